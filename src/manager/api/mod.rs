//! The HTTP API of a manager (docs/reference/api.md): `/v1` for operators, `/agent/v1` for nodes,
//! `/raft` and `/blob` between managers.
//!
//! A manager that does not lead forwards `/v1` requests to the leader. Without a leader it answers
//! reads from its own state, marked as stale, and refuses other requests.

mod authorization;
mod backup;
mod checks;
mod examination;
mod fleet;
mod forward;
mod invite;
mod jobs;
mod keys;
mod leave;
mod member;
mod operators;
mod order;
mod peer_list;
mod pending;
mod plan;
mod position;
mod reachability;
mod read;
mod remove;
mod renew;
mod replay;
mod roles;
mod routes;
mod state;
mod tokens;
mod undo;
mod vars;
mod waiting_networks;

use super::{ManagerContext, wall};
use authorization::{Actor, check_not_removed};
use remoor_cluster::raft::ProposeError;
use remoor_cluster::rpc::view::AsOf;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code};
use remoor_model::{Applied, Command, Inventory, InventoryEntry, Node, NodeMembership, Refusal};
use std::sync::Arc;

pub use authorization::Audience;
pub use member::{CaKeysReply, JoinConfig, JoinService, SshKeyReply, managers_of};
pub use operators::check_listed;
pub use peer_list::PeerListCache;
pub use read::metrics_registries as metrics;
pub use routes::{Route, router, routes};

/// Proposes a command and waits until it is applied here. A refusal becomes the error for the
/// operator. If another manager forwarded the order, that manager may have been removed in the
/// meantime, so its membership is checked here. The state machine checks the membership again, and
/// also the operator's key.
async fn propose(shared: &ManagerContext, by: &Actor, command: Command) -> Result<Applied, ApiFailure> {
    let inventory = shared.inventory();
    if let Some(via) = by.via {
        check_not_removed(shared, &inventory, via)?;
    }
    // Only a listed key can be revoked, so other keys are not checked again.
    let key = by.key.clone().filter(|key| inventory.operators.contains_key(key));
    let entry =
        InventoryEntry { at: shared.entry_time(), by: by.text.clone(), command: command.with_issuers(by.via, key) };
    match shared.raft.propose(entry).await {
        Ok((_, Applied::Refused(refusal))) => Err(refusal_failure(refusal)),
        Ok((_, applied)) => Ok(applied),
        // `forward` gives the order to the next leader.
        Err(error @ ProposeError::NotLeader { .. }) => {
            Err(ApiFailure::new(Code::NotLeader, format!("{error}; nothing was changed")))
        }
        Err(error @ ProposeError::Unknown { .. }) => Err(ApiFailure::new(Code::OutcomeUnknown, error.to_string())),
    }
}

/// Converts a refusal of the state machine to an error for an operator.
fn refusal_failure(refusal: Refusal) -> ApiFailure {
    let details = serde_json::json!({"refusal": refusal.code});
    let failure = ApiFailure::new(Code::Refused, refusal.message).details(details);
    match refusal.next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

fn find_node(inventory: &Inventory, name: &str) -> Result<Arc<Node>, ApiFailure> {
    match inventory.membership_by_name(name) {
        NodeMembership::Member(node) => Ok(node.clone()),
        NodeMembership::Left(left) => Err(leave::left_failure(left)),
        NodeMembership::Removed(_) | NodeMembership::Unknown => {
            Err(ApiFailure::new(Code::NotFound, format!("no node is called {name}")).next("remoor nodes"))
        }
    }
}

fn as_of(shared: &ManagerContext) -> AsOf {
    let status = shared.raft.status().borrow().clone();
    let inventory = shared.inventory();
    let leader = status.leader.and_then(|id| inventory.nodes.values().find(|n| n.raft == Some(id)));
    // If no leader has sent a message since the start, the state is as old as its last entry.
    let age_ms = || shared.age_ms().unwrap_or_else(|| wall().ms_since(inventory.last_entry_at()));
    AsOf {
        by: shared.identity.name.to_string(),
        leader: leader.map(|n| n.name().to_string()),
        at: wire::rfc3339(wall()),
        stale: !status.leads(),
        heard: forward::is_in_vain(),
        age_ms: if status.leads() { 0 } else { age_ms() },
    }
}
