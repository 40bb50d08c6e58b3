//! Answer of `/v1/removed`: permanently removed nodes. Also nodes that left by their own request,
//! as listed in `/v1/status`.

use super::AsOf;
use serde::{Deserialize, Serialize};

/// Answer of `/v1/removed`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedView {
    pub version: u32,
    pub as_of: AsOf,
    /// By id, so the node that joined first is first.
    pub removed: Vec<RemovedNode>,
}

/// A permanently removed node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// Never assigned to another node.
    pub id: u64,
    /// May have been assigned to another node since.
    pub name: String,
    /// When it was removed.
    pub removed: String,
    pub by: String,
    /// Until then its certificates and its key are rejected.
    pub until: String,
    pub machine_id: String,
}

/// A node that left: it is not a member, and may rejoin with its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftView {
    pub id: u64,
    pub name: String,
    pub group: Option<String>,
    /// Its last API address.
    pub api: String,
    /// When it left.
    pub left: String,
    pub by: String,
    /// After this time it is removed automatically.
    pub until: String,
}

/// A manager's answer: the node is no longer a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveReply {
    /// Text for the operator.
    pub text: String,
    /// Until then it may rejoin with its identity.
    pub until: String,
}
