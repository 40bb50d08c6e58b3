//! The order of a node to leave the cluster, and how the API shows nodes that left.

use super::super::{ManagerContext, wall};
use super::{Actor, find_node, propose};
use axum::Extension;
use axum::extract::State;
use remoor_cluster::rpc::view::{LeaveReply, LeftView, Nothing};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Strict, rfc3339};
use remoor_model::{Command, Inventory, LeftNode, Node, NodeId, NodeMembership};
use serde_json::json;
use std::sync::Arc;

/// Makes the caller's own node leave the cluster. Only root on that node's machine can request
/// this.
pub async fn leave(
    State(shared): State<Arc<ManagerContext>>,
    Extension(node): Extension<Arc<Node>>,
    _: Strict<Nothing>,
) -> Result<axum::Json<LeaveReply>, ApiFailure> {
    let status = shared.raft.status().borrow().clone();
    if !status.is_leader {
        let leader = status.leader_address().map(|(_, addr)| addr);
        return Err(ApiFailure::new(Code::NotLeader, "another manager leads").details(json!({ "leader": leader })));
    }
    let by = Actor::from(format!("leave on {}", node.name()));
    propose(&shared, &by, Command::Leave { node: node.id }).await?;
    let until = rfc3339(wall().plus_ms(shared.inventory().limits().remove_left_ms));
    let text = format!("{} has left the cluster; its name stays reserved until {until}", node.name());
    Ok(axum::Json(LeaveReply { text, until }))
}

/// The nodes that left and whose records still exist, by id.
pub fn views(inventory: &Inventory) -> Vec<LeftView> {
    let keep_ms = inventory.limits().remove_left_ms;
    let view = |(id, left): (&NodeId, &Arc<LeftNode>)| LeftView {
        id: id.0,
        name: left.node.name().to_string(),
        group: inventory.group(&left.node).map(|(name, _)| name.to_string()),
        api: left.node.spec.api.clone(),
        left: rfc3339(left.at),
        by: left.by.clone(),
        until: rfc3339(left.at.plus_ms(keep_ms)),
    };
    inventory.departed.left.iter().map(view).collect()
}

/// The error for a request about a node that left.
pub(super) fn left_failure(left: &LeftNode) -> ApiFailure {
    let name = left.node.name();
    let next = format!("remoor join on {name} brings it back as the same node; remoor remove {name} frees its name");
    let details = json!({ "refusal": "node-left" });
    ApiFailure::new(Code::NotFound, describe_left(left)).details(details).next(next)
}

/// The node that an order is about. If the node left the cluster, it is returned only for the order
/// `remove`.
pub(super) fn node_of_order(inventory: &Inventory, name: &str, verb: &str) -> Result<Arc<Node>, ApiFailure> {
    if verb == "remove"
        && let NodeMembership::Left(left) = inventory.membership_by_name(name)
    {
        return Ok(left.node.clone());
    }
    find_node(inventory, name)
}

/// The error for a request from a node that left; it contains the way to join again. The node may
/// have joined again with the same id, so only the leader's rejection is final.
pub(super) fn left_member_failure(left: &LeftNode, leads: bool) -> ApiFailure {
    if !leads {
        return ApiFailure::new(Code::Retry, format!("{}, as far as this manager knows", describe_left(left)));
    }
    let next = "to make it a node again, on it: remoor join, with the data directory as it is";
    ApiFailure::new(Code::NodeRemoved, describe_left(left)).details(json!({ "left": true })).next(next)
}

fn describe_left(left: &LeftNode) -> String {
    format!("{} left the cluster at {}, by its own request", left.node.name(), rfc3339(left.at))
}
