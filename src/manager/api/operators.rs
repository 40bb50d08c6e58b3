//! The list of operators. A manager accepts an operator's certificate only if the replicated state
//! lists its key, because everybody with the CA's key can mint a certificate. New credentials are
//! put on the list before the operator receives them, and are shown once. `/v1/keys` has the list.

use super::super::{ManagerContext, authority, wall};
use super::{Actor, propose, refusal_failure};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::identity::{self, IdentityError};
use remoor_cluster::rpc::view::{AcceptedView, OperatorMade, OperatorRequest, OperatorView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Strict};
use remoor_model::{Command, Inventory, OPERATOR_NAME_RULE, OperatorKey, Refusal, Wall, ca_id, is_operator_name};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);
/// Maximum time for which a manager that does not lead waits for the entry with new credentials.
const LISTED_WITHIN: Duration = Duration::from_secs(1);

pub async fn make(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<OperatorRequest>,
) -> Result<axum::Json<OperatorMade>, ApiFailure> {
    shared.check_clocks()?;
    let OperatorRequest { name, cert_pem } = request;
    if !is_operator_name(&name) {
        let text = format!("{name:?} is not a valid operator name: {OPERATOR_NAME_RULE}");
        return Err(refusal_failure(Refusal::new("bad-name", text)));
    }
    let internal = |e: IdentityError| ApiFailure::new(Code::Internal, e.to_string());
    let inventory = shared.inventory();
    let lacks = || ApiFailure::new(Code::Retry, "this manager does not have the key of the new CA yet");
    let credentials = match cert_pem.is_empty() {
        true => Some(authority::operator(&shared, &inventory, &name).map_err(internal)?.ok_or_else(lacks)?),
        false => None,
    };
    let cert_pem = credentials.as_ref().map_or(cert_pem, |made| made.cert_pem.clone());
    let bad = |e: IdentityError| ApiFailure::new(Code::BadRequest, e.to_string());
    let key = hex::encode(identity::certificate_key(&cert_pem).map_err(bad)?);
    let until = identity::certificate_not_after(&cert_pem).map_err(bad)?;
    let issuer = inventory.roots().into_iter().find(|ca| identity::names_issuer(&cert_pem, ca).unwrap_or(false));
    let foreign = || ApiFailure::new(Code::BadRequest, "no CA of this cluster issued the certificate");
    let (fingerprint, ca) = (identity::fingerprint(&key), ca_id(issuer.ok_or_else(foreign)?));
    propose(&shared, &by, Command::MakeOperator { name: name.clone(), key, ca, until, enforce: true }).await?;
    Ok(axum::Json(OperatorMade { version: 1, name, fingerprint, until: wire::rfc3339(until), credentials }))
}

pub async fn revoke(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<OperatorRequest>,
) -> Result<axum::Json<AcceptedView>, ApiFailure> {
    let name = request.name;
    propose(&shared, &by, Command::RevokeOperator { name: name.clone() }).await?;
    let mut others: Vec<_> = views(&shared.inventory(), wall()).into_iter().filter(|o| o.by == name).collect();
    others.retain(|operator| operator.state == "counts");
    let mut text = format!("the credentials of {name} are no longer valid");
    if !others.is_empty() {
        let names: BTreeSet<String> = others.into_iter().map(|operator| operator.name).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        text.push_str(&format!(
            "; credentials that {name} had made stay valid, of {names}: remoor key operator NAME --revoke"
        ));
    }
    Ok(axum::Json(AcceptedView { version: 1, text }))
}

/// Credentials that operators created by an order, with the state of each.
pub fn views(inventory: &Inventory, now: Wall) -> Vec<OperatorView> {
    let present: Vec<_> = inventory.roots().into_iter().map(ca_id).collect();
    let state = |operator: &OperatorKey| match &operator.revoked {
        Some(_) => "revoked",
        None if operator.until < now => "ended",
        None if !present.contains(&operator.ca) => "replaced",
        None => "counts",
    };
    let view = |(key, operator): (&String, &Arc<OperatorKey>)| OperatorView {
        name: operator.name.clone(),
        fingerprint: identity::fingerprint(key),
        since: wire::rfc3339(operator.at),
        by: operator.by.clone(),
        until: wire::rfc3339(operator.until),
        state: state(operator).to_owned(),
    };
    inventory.operators.iter().map(view).collect()
}

/// Waits until the operator's credentials are not accepted any more. The operator's streams then
/// end.
pub async fn until_refused(shared: &ManagerContext, by: &Actor) {
    let Some(key) = &by.key else { return std::future::pending().await };
    while check_listed(&shared.inventory(), by, key).is_ok() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Accepts credentials that are on the list and not revoked. Returns the operator's name on the
/// list, because the name in a minted certificate may be any text. While the list has not begun,
/// credentials that are not on it are accepted with the name in their certificate.
pub fn check_listed(inventory: &Inventory, name: &str, key: &str) -> Result<String, ApiFailure> {
    let next = "new ones: remoor key operator NAME --file FILE, as root on a manager";
    if let Some((at, by)) = inventory.revocation(key) {
        let text = format!("these credentials of {name} were revoked at {} by {by}", wire::rfc3339(*at));
        return Err(ApiFailure::new(Code::Forbidden, text).next(next));
    }
    match inventory.operators.get(key) {
        Some(operator) => Ok(operator.name.clone()),
        None if !inventory.only_listed_operators => Ok(name.to_owned()),
        None => {
            let text = format!("these credentials of {name:?} are not on the list of operators");
            Err(ApiFailure::new(Code::Forbidden, text).next(next))
        }
    }
}

/// Waits a moment if the operator's credentials are not on the list and this manager does not lead.
/// The credentials may be new, and this manager may not have applied their entry yet.
pub async fn wait_until_listed(shared: &ManagerContext, caller: &Caller) {
    let Caller::Operator { name, key, .. } = caller else { return };
    if shared.raft.status().borrow().leads() {
        return;
    }
    let mut state = shared.raft.state();
    let listed =
        state.wait_for(|inventory| inventory.operators.contains_key(key) || check_listed(inventory, name, key).is_ok());
    // After the timeout, the caller is refused as on the leader.
    let _ = tokio::time::timeout(LISTED_WITHIN, listed).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{InventoryEntry, Sha256};

    #[test]
    fn the_state_of_credentials_is_shown_and_revoked_ones_are_refused() {
        let mut inventory = Inventory { ca_pem: Arc::new("A".to_owned()), ..Inventory::default() };
        let mut apply = |command| {
            let index = inventory.applied + 1;
            let entry = InventoryEntry { at: Wall(index), by: "max".to_owned(), command };
            assert_eq!(inventory.apply(index, &entry).refusal(), None);
        };
        let made = [
            ("ann", ca_id("A"), 500),
            ("bob", ca_id("A"), 50),
            ("cy", Sha256::digest(b"B"), 500),
            ("dan", ca_id("A"), 500),
        ];
        for (name, ca, until) in made {
            let (key, until) = (format!("{name}-key"), Wall(until));
            apply(Command::MakeOperator { name: name.to_owned(), key, ca, until, enforce: false });
        }
        apply(Command::RevokeOperator { name: "dan".to_owned() });
        let told: Vec<_> = views(&inventory, Wall(100)).into_iter().map(|o| (o.name, o.state)).collect();
        let wanted = [("ann", "counts"), ("bob", "ended"), ("cy", "replaced"), ("dan", "revoked")];
        assert_eq!(told, wanted.map(|(name, state)| (name.to_owned(), state.to_owned())));
        let check = |name: &str, key: &str| check_listed(&inventory, name, key);
        assert_eq!(check("root@m1", "ann-key").as_deref(), Ok("ann"), "the name on the list");
        let failure = check("dan", "dan-key").unwrap_err();
        assert!(failure.code == Code::Forbidden && failure.message.contains("revoked") && failure.next.is_some());
        assert_eq!(check("eve", "eve-key").as_deref(), Ok("eve"), "the list has not begun");
        inventory.only_listed_operators = true;
        let failure = check_listed(&inventory, "eve\n", "eve-key").unwrap_err();
        assert!(failure.code == Code::Forbidden && failure.message.contains("\"eve\\n\" are not on the list"));
        assert!(check_listed(&inventory, "ann", "ann-key").is_ok());
    }
}
