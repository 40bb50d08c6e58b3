//! Rotation of the gossip key and of the CA. Operators give orders and read the status; nodes fetch
//! their gossip keys and trusted CAs.

use super::super::gossip_key::{self, Confirmations};
use super::super::{ManagerContext, authority, wall};
use super::{Actor, JoinService, as_of, operators, pending, propose};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::agent::{CaRequest, GossipKeysReply, GossipKeysRequest, TrustedCasReply};
use remoor_cluster::rpc::identity;
use remoor_cluster::rpc::token;
use remoor_cluster::rpc::view::{AcceptedView, CaView, KeysView, RotateKeyRequest, RotationView};
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Json, Strict};
use remoor_model::{CaStep, Command, Inventory, KeyStep, Node, Wall, count_noun};
use std::sync::Arc;
use std::time::Instant;

/// Remaining validity of the CA below which a warning is shown.
const CA_LEFT_MS: u64 = 180 * DAY_MS;
const DAY_MS: u64 = 24 * 3_600_000;
/// The warning in a cluster of an earlier version whose list of operators has not begun.
const UNLISTED: &str = "the managers accept every operator's certificate that the CA signed; once all managers run this \
                        version, begin the list of operators: remoor key operator NAME --file FILE";

/// Returns the gossip keys that the caller must have; the first one encrypts sent messages. Also
/// records the step of the key rotation that the caller has confirmed.
pub async fn gossip_keys(
    State(desk): State<Arc<JoinService>>,
    Extension(node): Extension<Arc<Node>>,
    Json(request): Json<GossipKeysRequest>,
) -> Result<axum::Json<GossipKeysReply>, ApiFailure> {
    let shared = desk.context();
    let inventory = shared.inventory();
    shared.observed.key_confirmed.record(node.id, request.holds);
    let leads = shared.raft.status().borrow().is_leader;
    let keys = desk.gossip_keys(&inventory)?;
    let keys = keys.iter().map(|key| key.to_hex()).collect();
    Ok(axum::Json(GossipKeysReply { keys, changed: inventory.gossip.changed, leads }))
}

/// Returns the CAs that the caller must trust; the first one issues certificates. Also records the
/// step of the CA rotation that the caller has confirmed.
pub async fn trusted_cas(
    State(shared): State<Arc<ManagerContext>>,
    Extension(node): Extension<Arc<Node>>,
    Json(request): Json<CaRequest>,
) -> axum::Json<TrustedCasReply> {
    let inventory = shared.inventory();
    shared.observed.ca_confirmed.record(node.id, request.holds);
    let (ca_pem, changed) = (inventory.roots().concat(), inventory.authority.changed);
    let leads = shared.raft.status().borrow().is_leader;
    axum::Json(TrustedCasReply { ca_pem, changed, rotating: inventory.authority.next.is_some(), leads })
}

pub async fn rotate(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Strict(request): Strict<RotateKeyRequest>,
) -> Result<axum::Json<AcceptedView>, ApiFailure> {
    let text = match (request.key.as_str(), request.finish) {
        ("gossip", false) => {
            propose(&shared, &by, Command::RotateGossip).await?;
            "a new gossip key is sent to all nodes; absent nodes get it when they return".to_owned()
        }
        ("gossip", true) => {
            return Err(ApiFailure::new(Code::BadRequest, "a new gossip key does not wait for absent nodes"));
        }
        ("ca", false) => rotate_ca(&shared, &by).await?,
        ("ca", true) => finish_ca(&shared, &by).await?,
        _ => return Err(ApiFailure::new(Code::BadRequest, "key must be gossip or ca")),
    };
    Ok(axum::Json(AcceptedView { version: 1, text }))
}

async fn rotate_ca(shared: &Arc<ManagerContext>, by: &Actor) -> Result<String, ApiFailure> {
    // The check comes before a new CA key is made. The state machine makes the same check when it
    // applies the entry.
    shared.inventory().may_rotate_ca().map_err(super::refusal_failure)?;
    if !shared.raft.status().borrow().is_leader {
        return Err(ApiFailure::new(Code::NotLeader, "another manager leads now; nothing was changed"));
    }
    shared.check_clocks()?;
    let made = authority::make(shared).await;
    let (command, lack) = made.map_err(|error| match error {
        authority::MakeError::Few { .. } => {
            ApiFailure::new(Code::NoQuorum, error.to_string()).next("remoor raft-members")
        }
        authority::MakeError::Lacks => ApiFailure::new(Code::Retry, error.to_string()),
        authority::MakeError::Failed(_) => ApiFailure::new(Code::Internal, error.to_string()),
    })?;
    propose(shared, by, command).await?;
    let text = "a new CA is sent to all nodes: all trust it in addition to the old one, then all get certificates from it, then the \
                old one is no longer trusted";
    Ok(match lack.is_empty() {
        true => text.to_owned(),
        false => format!(
            "{text}; {} can't be reached, and the rotation can't end without them: start them, or demote and remove them",
            lack.join(", ")
        ),
    })
}

/// Finishes a CA rotation without waiting for absent nodes. The call fails if an absent node is a
/// manager, because that manager would be cut off from the others for ever.
async fn finish_ca(shared: &Arc<ManagerContext>, by: &Actor) -> Result<String, ApiFailure> {
    let inventory = shared.inventory();
    let missing = authority::unconfirmed_nodes(shared, &inventory);
    if let Some(manager) = missing.managers.first() {
        let name = manager.name();
        let text = format!("{name} is a manager and is away: the rotation can't end without it");
        return Err(ApiFailure::new(Code::Refused, text)
            .next(format!("start it, or remoor demote {name}; then repeat the command")));
    }
    let without = missing.away.iter().map(|node| node.id).collect();
    propose(shared, by, Command::FinishCa { without }).await?;
    let away = names(&missing.away).join(", ");
    Ok(format!("the rotation continues without {away}; a node that returns after its end waits for remoor accept NAME"))
}

fn names(nodes: &[&Node]) -> Vec<String> {
    nodes.iter().map(|node| node.name().to_string()).collect()
}

pub async fn status(State(shared): State<Arc<ManagerContext>>) -> axum::Json<KeysView> {
    let inventory = shared.inventory();
    let gossip = inventory.gossip.next.as_ref().map(|next| {
        let (waits_for, away) = gossip_key::unconfirmed_nodes(&shared, &inventory);
        let step = match next.step {
            KeyStep::Insert => "insert",
            KeyStep::Use => "use",
        };
        let (step, since) = (step.to_owned(), wire::rfc3339(next.since));
        let overdue = overdue(&shared.observed.key_confirmed, inventory.gossip.changed, &waits_for, Instant::now());
        let (waits_for, away) = (names(&waits_for), names(&away));
        RotationView { step, since, by: next.by.clone(), waits_for, away, overdue, ..RotationView::default() }
    });
    let next = inventory.authority.next.as_ref().map(|next| {
        let missing = authority::unconfirmed_nodes(&shared, &inventory);
        let (away, without) = missing.split(&next.without);
        let step = match next.step {
            CaStep::Trust => "trust",
            CaStep::Issue => "issue",
        };
        RotationView {
            step: step.to_owned(),
            since: wire::rfc3339(next.since),
            by: next.by.clone(),
            overdue: overdue(&shared.observed.ca_confirmed, inventory.authority.changed, &missing.here, Instant::now()),
            waits_for: names(&missing.here),
            away: names(&away),
            fingerprint: Some(token::ca_digest(&next.ca_pem).unwrap_or_default()),
            without: names(&without),
        }
    });
    let ca = CaView {
        serial: inventory.authority.serial,
        fingerprint: token::ca_digest(&inventory.ca_pem).unwrap_or_default(),
        until: identity::certificate_not_after(&inventory.ca_pem).map(wire::rfc3339).unwrap_or_default(),
        next,
    };
    let mut waiting = pending::views(&inventory, wall());
    waiting.retain(|one| one.why == pending::CERTIFICATE);
    let (ca, serial) = (Some(ca), inventory.gossip.serial);
    let operators = operators::views(&inventory, wall());
    let (as_of, unlisted_operators) = (as_of(&shared), !inventory.only_listed_operators);
    axum::Json(KeysView { version: 1, as_of, serial, gossip, ca, waiting, operators, unlisted_operators })
}

/// Names of the nodes that did not confirm the current step of a rotation in time. The result is
/// empty on a manager that does not lead, because only the leader receives confirmations.
fn overdue(confirmed: &Confirmations, changed: u64, waits_for: &[&Node], now: Instant) -> Vec<String> {
    let late = |node: &&Node| confirmed.is_overdue(node.id, changed, now);
    names(&waits_for.iter().copied().filter(late).collect::<Vec<_>>())
}

/// Warnings for `status`: the CA expires, a CA rotation waits for nodes, a gossip key rotation is
/// blocked, or the list of operators has not begun.
pub fn warnings(shared: &ManagerContext, inventory: &Inventory) -> Vec<String> {
    let ends = identity::certificate_not_after(&inventory.ca_pem).ok();
    let ending = ends.filter(|_| inventory.authority.next.is_none()).and_then(|ends| ca_expiry_warning(ends, wall()));
    let waits = inventory.authority.next.iter().filter(|_| shared.published.engine.leads()).flat_map(|next| {
        let missing = authority::unconfirmed_nodes(shared, inventory);
        let (away, _) = missing.split(&next.without);
        let overdue =
            overdue(&shared.observed.ca_confirmed, inventory.authority.changed, &missing.here, Instant::now());
        waits_for(&names(&away), "away").into_iter().chain(waits_for(&overdue, "reachable but unconfirmed"))
    });
    let gossip = inventory.gossip.next.as_ref().and_then(|_| {
        let (here, _) = gossip_key::unconfirmed_nodes(shared, inventory);
        stuck_rotation_warning(&shared.observed.key_confirmed, inventory.gossip.changed, &here, Instant::now())
    });
    let unlisted = (!inventory.only_listed_operators).then(|| UNLISTED.to_owned());
    ending.into_iter().chain(waits).chain(gossip).chain(unlisted).collect()
}

/// A warning about reachable nodes that do not confirm the current step of a gossip key rotation.
/// The rotation does not wait for absent nodes. But a reachable node without a confirmation blocks
/// this rotation and every other one.
fn stuck_rotation_warning(confirmed: &Confirmations, changed: u64, here: &[&Node], now: Instant) -> Option<String> {
    let late = overdue(confirmed, changed, here, now).join(", ");
    (!late.is_empty()).then(|| {
        format!(
            "the new gossip key waits for {late}, reachable but unconfirmed; next, on it: systemctl restart remoor, or stop it: \
             it gets the key on its return; remoor key status"
        )
    })
}

fn waits_for(names: &[String], how: &str) -> Option<String> {
    (!names.is_empty()).then(|| format!("the new CA waits for {}, {how}; next: remoor key status", names.join(", ")))
}

fn ca_expiry_warning(ends: Wall, now: Wall) -> Option<String> {
    let left = ends.ms_since(now);
    let when = match now > ends {
        true => "has ended".to_owned(),
        false => format!("ends in {}", count_noun(left / DAY_MS, "day")),
    };
    (left < CA_LEFT_MS).then(|| format!("the CA {when}; next: remoor key rotate ca"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{ClusterRole, InventoryEntry, NodeSpec};
    use std::time::Duration;

    #[test]
    fn a_stuck_gossip_key_rotation_causes_a_warning_with_a_next_step() {
        let mut inventory = Inventory::default();
        let spec = |name: &str| NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
        for (index, name) in (1..).zip(["w1", "w2"]) {
            let command = Command::Accept { spec: spec(name), role: ClusterRole::Worker };
            let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
            assert_eq!(applied.refusal(), None);
        }
        let here: Vec<&Node> = inventory.nodes.values().map(|node| &**node).collect();
        let (confirmed, began) = (Confirmations::default(), Instant::now());
        let said = |changed, s| stuck_rotation_warning(&confirmed, changed, &here, began + Duration::from_secs(s));
        assert_eq!(said(7, 600), None, "who does not lead waits for nobody");
        confirmed.waits_for(7, [(here[1].id, None)].into_iter(), began);
        assert_eq!((said(7, 119), said(8, 120)), (None, None), "it has its time, in each step");
        let text = said(7, 120).expect("a warning");
        assert!(text.starts_with("the new gossip key waits for w2, reachable but unconfirmed"), "{text}");
        assert!(text.contains("systemctl restart remoor, or stop it") && text.ends_with("remoor key status"), "{text}");
    }

    #[test]
    fn a_ca_that_expires_within_half_a_year_causes_a_warning() {
        let ends = Wall(4_000 * DAY_MS);
        let said = |days_before: u64| ca_expiry_warning(ends, Wall(ends.0 - days_before * DAY_MS));
        assert_eq!(said(180), None);
        assert_eq!(said(179).unwrap(), "the CA ends in 179 days; next: remoor key rotate ca");
        assert_eq!(said(1).unwrap(), "the CA ends in 1 day; next: remoor key rotate ca");
        assert!(ca_expiry_warning(ends, ends.plus_ms(1)).unwrap().starts_with("the CA has ended"));
    }
}
