//! Nodes that leave by their own word, and what is said of those that did.

use super::super::{Shared, wall};
use super::{By, member, named, propose};
use crate::model::{Command, Inventory, Left, Node, NodeId};
use crate::rpc::caller::Caller;
use crate::rpc::view::{LeaveReply, LeftView, Nothing};
use crate::rpc::wire::{Code, Failure, Strict, rfc3339};
use axum::extract::State;
use serde_json::json;
use std::sync::Arc;

/// Only the caller's own node leaves, and only its machine's root can have it ask.
pub async fn leave(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    _: Strict<Nothing>,
) -> Result<axum::Json<LeaveReply>, Failure> {
    let node = member(&shared, &caller)?;
    let status = shared.raft.status().borrow().clone();
    if !status.is_leader {
        let leader = status.leader.and_then(|id| status.voters.get(&id).cloned());
        return Err(Failure::new(Code::NotLeader, "another manager leads").details(json!({ "leader": leader })));
    }
    let by = By::from(format!("leave on {}", node.name()));
    propose(&shared, &by, Command::Leave { node: node.id }).await?;
    let until = rfc3339(wall().after(shared.inventory().limits().remove_left_ms));
    let text = format!("{} has left the cluster; its name stays its own until {until}", node.name());
    Ok(axum::Json(LeaveReply { text, until }))
}

/// Those that left and are kept, by id.
pub fn views(inventory: &Inventory) -> Vec<LeftView> {
    let keep_ms = inventory.limits().remove_left_ms;
    let view = |(id, left): (&NodeId, &Arc<Left>)| LeftView {
        id: id.0,
        name: left.node.name().to_string(),
        group: inventory.group(&left.node).map(|(name, _)| name.to_string()),
        api: left.node.spec.api.clone(),
        left: rfc3339(left.at),
        by: left.by.clone(),
        until: rfc3339(left.at.after(keep_ms)),
    };
    inventory.left.iter().map(view).collect()
}

/// What an operator reads who asks for a node that left.
pub(super) fn gone(inventory: &Inventory, name: &str) -> Option<Failure> {
    let left = inventory.left_named(name)?;
    let next = format!("remoor join on {name} brings it back as the same node; remoor remove {name} frees its name");
    let details = json!({ "refusal": "node-left" });
    Some(Failure::new(Code::NotFound, told(left)).details(details).next(next))
}

/// The node of an order; one that left can be removed, and nothing else.
pub(super) fn about_whom(inventory: &Inventory, name: &str, verb: &str) -> Result<Arc<Node>, Failure> {
    let left = || inventory.left_named(name).filter(|_| verb == "remove").map(|left| left.node.clone());
    named(inventory, name).or_else(|unknown| left().ok_or(unknown))
}

/// Refuses a node that left, with the way back. It may have come back under the same id, so only a leader's word counts.
pub(super) fn refused(inventory: &Inventory, id: NodeId, leads: bool) -> Result<(), Failure> {
    let Some(left) = inventory.left.get(&id) else { return Ok(()) };
    if !leads {
        return Err(Failure::new(Code::Retry, format!("{}, as far as this manager knows", told(left))));
    }
    let next = "on it: remoor join, with the data directory as it is, if it is to be a node again";
    Err(Failure::new(Code::NodeRemoved, told(left)).details(json!({ "left": true })).next(next))
}

fn told(left: &Left) -> String {
    format!("{} left the cluster at {}, by its own word", left.node.name(), rfc3339(left.at))
}
