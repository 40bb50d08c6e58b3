//! What `/v1/removed` answers: nodes that were taken out for good. And who left by its own word, as `/v1/status` has it.

use super::AsOf;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedView {
    pub version: u32,
    pub as_of: AsOf,
    /// By id: those that joined first come first.
    pub removed: Vec<RemovedNode>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// Never given to another node.
    pub id: u64,
    /// May be another node's by now.
    pub name: String,
    /// When it was removed.
    pub removed: String,
    pub by: String,
    /// Until then its certificates and its key are refused.
    pub until: String,
    pub machine_id: String,
}

/// A node that left: it is none, and may join again as who it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftView {
    pub id: u64,
    pub name: String,
    pub group: Option<String>,
    /// Where it answered last.
    pub api: String,
    /// When it left.
    pub left: String,
    pub by: String,
    /// Then it is removed by itself.
    pub until: String,
}

/// A manager's answer: the node is none any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveReply {
    /// For people.
    pub text: String,
    /// Until then it may join again as who it was.
    pub until: String,
}
