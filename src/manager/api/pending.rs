//! Machines that request to join without a secret, nodes whose certificate expired, and the answers
//! of operators to both.

use super::super::{ManagerContext, wall};
use super::member::spec_of;
use super::read::first_names;
use super::waiting_networks::WaitingPlace;
use super::{Actor, JoinService, propose, refusal_failure};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::caller::PeerAddr;
use remoor_cluster::rpc::identity::fingerprint;
use remoor_cluster::rpc::join::{JoinRequest, SKEW_MAX_MS};
use remoor_cluster::rpc::view::{AcceptRequest, AcceptedView, PendingView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Strict};
use remoor_model::{ClusterRole, Command, DeniedKey, Inventory, JoinDecision, NodeName, NodeSpec, PendingJoin, Wall};
use serde_json::json;
use std::sync::Arc;

/// Rejects a machine whose clock is wrong; the error contains the difference to this manager's
/// clock. `theirs` is the machine's clock; None if the machine's version does not send it.
pub fn check_clock(theirs: Option<Wall>, now: Wall) -> Result<(), ApiFailure> {
    let Some(theirs) = theirs else { return Ok(()) };
    let off = theirs.0.abs_diff(now.0);
    if off <= SKEW_MAX_MS {
        return Ok(());
    }
    let (sign, way) = if theirs > now { ("+", "ahead of") } else { ("-", "behind") };
    let text = format!("the clock of this machine is {} s {way} the cluster's ({sign}{} s)", off / 1000, off / 1000);
    let skew_ms = i64::try_from(off).unwrap_or(i64::MAX) * if theirs > now { 1 } else { -1 };
    let failure = ApiFailure::new(Code::ClockSkew, text).details(json!({ "skew_ms": skew_ms }));
    Err(failure.next("set the clock (timedatectl set-ntp true), then the same command"))
}

/// Checks that an operator has accepted the machine; otherwise records the machine as waiting.
/// `from` is the address of the machine.
pub async fn check_accepted(desk: &JoinService, request: &JoinRequest, from: PeerAddr) -> Result<(), ApiFailure> {
    let (shared, now, name) = (desk.context(), wall(), &request.name);
    // Denials are checked first, because a denied machine must not be recorded as waiting.
    if let Some(denied) = shared.inventory().admission.denied.get(&request.node_public_key) {
        return Err(denial(&denied.spec.name));
    }
    let waits = |inventory: &Inventory| {
        let waits = inventory.admission.pending.get(name).filter(|p| p.expires >= now);
        waits.filter(|p| p.spec.public_key == request.node_public_key).cloned()
    };
    let pending = match waits(&shared.inventory()) {
        Some(pending) => pending,
        None => {
            let role = if request.want_manager { ClusterRole::Manager } else { ClusterRole::Worker };
            let (by, spec) = (Actor::from(format!("join from {}", request.advertise)), spec_of(request));
            let _place = check_stranger(desk, request, &spec, from)?;
            propose(shared, &by, Command::Pend { spec, role }).await?;
            let entered = waits(&shared.inventory());
            entered.ok_or_else(|| ApiFailure::new(Code::Retry, "the request was answered meanwhile; retry"))?
        }
    };
    match pending.answer {
        JoinDecision::Accepted(_) => Ok(()),
        JoinDecision::Denied => Err(denial(name)),
        JoinDecision::None => {
            let (until, fingerprint) = (wire::rfc3339(pending.expires), fingerprint(&request.node_public_key));
            let text = format!("{name} waits to be accepted, until {until}");
            let failure = ApiFailure::new(Code::Pending, text).next(format!("remoor accept {name}, on a manager"));
            Err(failure.details(json!({"fingerprint": fingerprint, "expires": until})))
        }
    }
}

/// Rejects a join request without a secret before it enters the log, if it would be refused later
/// anyway.
fn check_stranger<'a>(
    desk: &'a JoinService,
    request: &JoinRequest,
    spec: &NodeSpec,
    from: PeerAddr,
) -> Result<WaitingPlace<'a>, ApiFailure> {
    if !desk.parts.join_requests {
        let text = "this cluster accepts no machine without the secret of a token";
        return Err(ApiFailure::new(Code::BadToken, text).next("ask an operator for a token: remoor token list"));
    }
    request.check_short().map_err(|e| ApiFailure::new(Code::BadRequest, e.to_string()))?;
    let inventory = desk.context().inventory();
    inventory.check_pend(spec, wall()).map_err(refusal_failure)?;
    desk.waiting.take(from, &spec.public_key, &inventory, wall()).map_err(refusal_failure)
}

/// The error for a denied machine. A denial overrides every token until an operator cancels it.
fn denial(name: &NodeName) -> ApiFailure {
    let text = format!("an operator denied {name} with this key");
    let next = format!("to take that back, on a manager: remoor accept {name}");
    ApiFailure::new(Code::Refused, text).details(json!({ "refusal": "denied" })).next(next)
}

/// Accepts or denies the machine or node that waits under a name.
pub async fn accept(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<AcceptRequest>,
) -> Result<axum::Json<AcceptedView>, ApiFailure> {
    let name = NodeName(request.name.clone());
    let inventory = shared.inventory();
    let role = role(&request.role)?;
    let named =
        |spec: &NodeSpec| request.fingerprint.is_empty() || fingerprint(&spec.public_key) == request.fingerprint;
    let denied = inventory.denied_by_name(name.as_str()).filter(|d| named(&d.spec) && !request.deny);
    let waiting = inventory.admission.pending.get(&name).filter(|p| p.expires >= wall());
    let (command, text) = match (waiting.filter(|p| named(&p.spec) || denied.is_none()), denied) {
        (Some(pending), _) => answer(&request, name, pending, role)?,
        (None, Some(denied)) => taken_back(name, denied, role),
        (None, None) => readmit(&request, &inventory, role)?,
    };
    propose(&shared, &by, command).await?;
    Ok(axum::Json(AcceptedView { version: 1, text }))
}

fn answer(
    request: &AcceptRequest,
    name: NodeName,
    pending: &PendingJoin,
    role: Option<ClusterRole>,
) -> Result<(Command, String), ApiFailure> {
    let shown = fingerprint(&pending.spec.public_key);
    if !request.fingerprint.is_empty() && request.fingerprint != shown {
        let text =
            format!("the machine that waits as {name} has a key with the fingerprint {shown}; nothing was changed");
        return Err(ApiFailure::new(Code::Conflict, text).next(format!("remoor accept --deny {name}")));
    }
    if request.deny {
        return Ok((Command::Deny { name: name.clone() }, format!("{name} ({shown}) is denied")));
    }
    if role.is_none() && pending.role == ClusterRole::Manager {
        let text = format!("{name} asks to be a manager: it would get the keys of the cluster");
        return Err(ApiFailure::new(Code::Conflict, text)
            .next(format!("remoor accept {name} --role manager, or --role worker")));
    }
    let role = role.unwrap_or(pending.role);
    let text = format!("{name} ({shown}) is accepted as {}; it joins when it asks again", role.as_str());
    Ok((Command::Admit { name, key: pending.spec.public_key.clone(), role }, text))
}

/// Cancels the denial of a machine. The machine then does not wait for an answer any more; it may
/// request to join again or use a token.
fn taken_back(name: NodeName, denied: &DeniedKey, role: Option<ClusterRole>) -> (Command, String) {
    let key = denied.spec.public_key.clone();
    let text =
        format!("the denial of {name} ({}) is taken back: it may ask again, or join with a token", fingerprint(&key));
    (Command::Admit { name, key, role: role.unwrap_or_default() }, text)
}

/// Accepts a node whose certificate expired.
fn readmit(
    request: &AcceptRequest,
    inventory: &Inventory,
    role: Option<ClusterRole>,
) -> Result<(Command, String), ApiFailure> {
    let name = &request.name;
    let node = inventory.by_name(name).filter(|n| inventory.expired_certificates.contains_key(&n.id));
    let none =
        || ApiFailure::new(Code::NotFound, format!("no machine waits to be accepted as {name}")).next("remoor nodes");
    let node = node.ok_or_else(none)?;
    let shown = fingerprint(&node.spec.public_key);
    if !request.fingerprint.is_empty() && request.fingerprint != shown {
        let text = format!("the key of {name} has the fingerprint {shown}; nothing was changed");
        return Err(ApiFailure::new(Code::Conflict, text));
    }
    if request.deny {
        let text = format!("{name} is a node whose certificate expired: it stays out until it is accepted");
        return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor remove {name}")));
    }
    if role.is_some_and(|role| role != node.role) {
        let text = format!("the desired role of {name} is {}", node.role.as_str());
        return Err(
            ApiFailure::new(Code::Conflict, text).next(format!("remoor accept {name}, then promote or demote it"))
        );
    }
    let text = format!("{name} ({shown}) gets a new certificate when it asks again");
    Ok((Command::Readmit { node: node.id }, text))
}

/// Parses the role in an order. None if the order contains no role.
pub fn role(word: &str) -> Result<Option<ClusterRole>, ApiFailure> {
    match word {
        "" => Ok(None),
        "worker" => Ok(Some(ClusterRole::Worker)),
        "manager" => Ok(Some(ClusterRole::Manager)),
        _ => Err(ApiFailure::new(Code::BadRequest, "a role is worker or manager")),
    }
}

/// Values of the field `why` of a [`PendingView`].
const JOIN: &str = "join";
pub const CERTIFICATE: &str = "certificate";

/// Warnings for `status` about machines and nodes that wait for an operator's answer.
pub fn warnings(waiting: &[PendingView]) -> Vec<String> {
    let told = |(why, what, next): (&str, &str, &str)| {
        let names = waiting.iter().filter(|one| one.why == why && one.state == "waiting").map(|one| one.name.as_str());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| format!("waiting {what}: {}; next: {next}", first_names(&names)))
    };
    let join = "compare the key in remoor nodes, then remoor accept NAME, or --deny";
    let all = [(JOIN, "to be accepted", join), (CERTIFICATE, "for a new certificate", "remoor accept NAME")];
    all.into_iter().filter_map(told).collect()
}

/// All waiting machines and nodes, each with the last answer of an operator.
pub fn views(inventory: &Inventory, now: Wall) -> Vec<PendingView> {
    let machines = inventory.admission.pending.values().filter(|p| p.expires >= now);
    let machines =
        machines.filter(|p| !matches!(p.answer, JoinDecision::Accepted(_)) || !is_node(inventory, p)).map(|p| {
            let (state, role) = match p.answer {
                JoinDecision::None => ("waiting", p.role),
                JoinDecision::Accepted(role) => ("accepted", role),
                JoinDecision::Denied => ("denied", p.role),
            };
            PendingView {
                name: p.spec.name.to_string(),
                why: JOIN.to_owned(),
                state: state.to_owned(),
                role: role.as_str().to_owned(),
                fingerprint: fingerprint(&p.spec.public_key),
                address: p.spec.api.clone(),
                since: wire::rfc3339(p.since),
                expires: Some(wire::rfc3339(p.expires)),
            }
        });
    // Denials are kept longer than the records of waiting machines, so denials without such a
    // record are added here.
    let over = |d: &&Arc<DeniedKey>| {
        let waits = inventory.admission.pending.get(&d.spec.name).filter(|p| p.expires >= now);
        waits.is_none_or(|p| p.spec.public_key != d.spec.public_key)
    };
    let denied = inventory.admission.denied.values().filter(over).map(|denied| PendingView {
        name: denied.spec.name.to_string(),
        why: JOIN.to_owned(),
        state: "denied".to_owned(),
        role: ClusterRole::Worker.as_str().to_owned(),
        fingerprint: fingerprint(&denied.spec.public_key),
        address: denied.spec.api.clone(),
        since: wire::rfc3339(denied.at),
        expires: None,
    });
    // If an operator's acceptance expires before the node uses it, the node counts as waiting only
    // after its next request.
    let nodes = inventory.expired_certificates.iter().filter(|(_, l)| l.accepted_until.is_none() || l.is_accepted(now));
    let nodes = nodes.filter_map(|(id, lapsed)| {
        let node = inventory.node(*id)?;
        Some(PendingView {
            name: node.name().to_string(),
            why: CERTIFICATE.to_owned(),
            state: if lapsed.is_accepted(now) { "accepted" } else { "waiting" }.to_owned(),
            role: node.role.as_str().to_owned(),
            fingerprint: fingerprint(&node.spec.public_key),
            address: node.spec.api.clone(),
            since: wire::rfc3339(lapsed.since),
            expires: lapsed.accepted_until.map(wire::rfc3339),
        })
    });
    machines.chain(denied).chain(nodes).collect()
}

/// Whether the accepted machine has joined; it then does not wait any more.
fn is_node(inventory: &Inventory, pending: &PendingJoin) -> bool {
    inventory.by_name(pending.spec.name.as_str()).is_some_and(|n| n.spec.public_key == pending.spec.public_key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::InventoryEntry;

    #[test]
    fn a_machine_that_asks_to_be_a_manager_needs_an_explicit_role() {
        let mut inventory = Inventory::default();
        let spec = NodeSpec { name: "m9".into(), public_key: "aa".to_owned(), ..NodeSpec::default() };
        let command = Command::Pend { spec, role: ClusterRole::Manager };
        inventory.apply(1, &InventoryEntry { at: Wall(1), by: "test".to_owned(), command });
        let pending = &inventory.admission.pending[&NodeName::from("m9")];
        let answer = |role| answer(&AcceptRequest::default(), "m9".into(), pending, role);
        let refused = answer(None).unwrap_err();
        assert!(refused.code == Code::Conflict && refused.next.is_some_and(|n| n.contains("--role manager")));
        for role in [ClusterRole::Worker, ClusterRole::Manager] {
            let (command, _) = answer(Some(role)).expect("a yes");
            assert!(matches!(command, Command::Admit { role: as_what, .. } if as_what == role));
        }
    }

    #[test]
    fn waiting_machines_and_nodes_cause_warnings_with_a_next_step() {
        let one = |name: &str, why: &str, state: &str| PendingView {
            name: name.to_owned(),
            why: why.to_owned(),
            state: state.to_owned(),
            ..PendingView::default()
        };
        let answered = [one("w1", JOIN, "denied"), one("w2", JOIN, "accepted"), one("w3", CERTIFICATE, "accepted")];
        assert_eq!(warnings(&answered), Vec::<String>::new());
        let waiting = [one("w4", JOIN, "waiting"), one("w5", CERTIFICATE, "waiting"), one("w6", JOIN, "waiting")];
        let told = warnings(&waiting);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("waiting to be accepted: w4, w6; next: ") && told[0].contains("remoor accept"),
            "{told:?}"
        );
        assert_eq!(told[1], "waiting for a new certificate: w5; next: remoor accept NAME");
    }

    #[test]
    fn a_clock_off_by_more_than_a_minute_is_refused_with_the_signed_difference() {
        let now = Wall(1_800_000_000_000);
        for theirs in [None, Some(now), Some(now.plus_ms(SKEW_MAX_MS)), Some(Wall(now.0 - SKEW_MAX_MS))] {
            assert_eq!(check_clock(theirs, now), Ok(()));
        }
        for (theirs, text, skew) in [
            (now.plus_ms(3_600_000), "3600 s ahead of the cluster's (+3600 s)", 3_600_000),
            (Wall(now.0 - 61_000), "61 s behind the cluster's (-61 s)", -61_000),
        ] {
            let failure = check_clock(Some(theirs), now).unwrap_err();
            assert_eq!((failure.code, &failure.details["skew_ms"]), (Code::ClockSkew, &skew.into()));
            assert!(failure.message.contains(text) && failure.next.is_some(), "{failure:?}");
        }
    }
}
