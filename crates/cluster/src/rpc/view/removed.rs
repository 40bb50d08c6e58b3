//! Answers about nodes that are no longer members: `/v1/removed` lists the permanently removed
//! ones, and `/v1/status` those that left by their own request.

use super::AsOf;
use serde::{Deserialize, Serialize};

/// Answer of `/v1/removed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedView {
    pub version: u32,
    pub as_of: AsOf,
    /// The removed nodes, sorted by id. So the node that joined first is the first.
    pub removed: Vec<RemovedNode>,
}

/// A permanently removed node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// The id of the node. It is never assigned to another node.
    pub id: u64,
    /// The name of the node. It may have been assigned to another node since.
    pub name: String,
    /// The time of the removal.
    pub removed: String,
    pub by: String,
    /// The time until which the node's certificates and key are rejected.
    pub until: String,
    pub machine_id: String,
}

/// A node that left. It is not a member, and may rejoin with its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftView {
    pub id: u64,
    pub name: String,
    pub group: Option<String>,
    /// The node's last API address.
    pub api: String,
    /// The time at which the node left.
    pub left: String,
    pub by: String,
    /// The time after which the node is removed automatically.
    pub until: String,
}

/// A manager's answer to a node that leaves: the node is no longer a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveReply {
    /// The text that the leaving node shows to its operator.
    pub text: String,
    /// The time until which the node may rejoin with its identity.
    pub until: String,
}
