//! Credentials of operators: creates credentials, which are shown once, and revokes the credentials
//! of a name. `/v1/keys` lists them.

use super::super::{ManagerContext, authority, wall};
use super::{Actor, propose};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::identity::{self, IdentityError};
use remoor_cluster::rpc::view::{AcceptedView, OperatorMade, OperatorRequest, OperatorView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Strict};
use remoor_model::{Command, Inventory, OperatorKey, Wall, ca_id};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

pub async fn make(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<OperatorRequest>,
) -> Result<axum::Json<OperatorMade>, ApiFailure> {
    shared.check_clocks()?;
    let name = request.name;
    let internal = |e: IdentityError| ApiFailure::new(Code::Internal, e.to_string());
    let inventory = shared.inventory();
    let lacks = || ApiFailure::new(Code::Retry, "this manager does not have the key of the new CA yet");
    let credentials = authority::operator(&shared, &inventory, &name).map_err(internal)?.ok_or_else(lacks)?;
    let key = hex::encode(identity::certificate_key(&credentials.cert_pem).map_err(internal)?);
    let until = identity::certificate_not_after(&credentials.cert_pem).map_err(internal)?;
    let (fingerprint, ca) = (identity::fingerprint(&key), ca_id(inventory.issuer()));
    propose(&shared, &by, Command::MakeOperator { name: name.clone(), key, ca, until }).await?;
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

/// Waits until the operator's credentials are revoked. The operator's streams then end.
pub async fn until_revoked(shared: &ManagerContext, by: &Actor) {
    let Some(key) = &by.key else { return std::future::pending().await };
    while shared.inventory().revocation(key).is_none() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Rejects revoked credentials. The error contains the time of the revocation.
pub fn check_not_revoked(inventory: &Inventory, name: &str, key: &str) -> Result<(), ApiFailure> {
    let Some((at, by)) = inventory.revocation(key) else { return Ok(()) };
    let text = format!("these credentials of {name} were revoked at {} by {by}", wire::rfc3339(*at));
    Err(ApiFailure::new(Code::Forbidden, text)
        .next("new ones: remoor key operator NAME --file FILE, as root on a manager"))
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
            apply(Command::MakeOperator { name: name.to_owned(), key: format!("{name}-key"), ca, until: Wall(until) });
        }
        apply(Command::RevokeOperator { name: "dan".to_owned() });
        let told: Vec<_> = views(&inventory, Wall(100)).into_iter().map(|o| (o.name, o.state)).collect();
        let wanted = [("ann", "counts"), ("bob", "ended"), ("cy", "replaced"), ("dan", "revoked")];
        assert_eq!(told, wanted.map(|(name, state)| (name.to_owned(), state.to_owned())));
        assert_eq!(check_not_revoked(&inventory, "ann", "ann-key"), Ok(()));
        let failure = check_not_revoked(&inventory, "dan", "dan-key").unwrap_err();
        assert!(failure.code == Code::Forbidden && failure.message.contains("revoked") && failure.next.is_some());
    }
}
