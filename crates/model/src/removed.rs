//! Permanently removed nodes, and nodes that left by their own request. A removed node is
//! remembered as long as one of its certificates may be valid. A node that left may return with the
//! same identity until it is removed.

use super::{Node, NodeName, Wall};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const DAY_MS: u64 = 24 * 3_600_000;
/// Lifetime of a node certificate in days.
pub const CERTIFICATE_DAYS: u32 = 90;
/// The time for which a removed node is remembered: the lifetime of a certificate that was issued
/// at the last moment, and one week for wrong clocks.
pub const REMOVED_MS: u64 = (CERTIFICATE_DAYS as u64 + 7) * DAY_MS;
/// Maximum number of remembered removed nodes. While it is reached, no further node is removed.
pub const REMOVED_MAX: usize = 10_000;
/// Maximum number of nodes that left. While it is reached, no further node may leave.
pub const LEFT_MAX: usize = 10_000;
/// Minimum duration of an absence before its node is removed without force. A change of the leader
/// may cause a shorter absence.
pub const DOWN_MS: u64 = 10_000;

/// The record of a removed node. The node's name is free, but its key cannot join while the record
/// exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedRecord {
    pub name: NodeName,
    /// The node's ed25519 public key in hex.
    pub public_key: String,
    pub machine_id: String,
    pub at: Wall,
    /// The operator who ordered the removal.
    pub by: String,
    /// The time at which the record expires.
    pub until: Wall,
    /// Log index of the removal. A gossip key with a lower serial number must be replaced, because
    /// the removed node has it. 0 if the operator kept the key, or if an earlier version of remoor
    /// removed the node.
    #[serde(default)]
    pub rotate_gossip_after: u64,
}

/// A node that announced that it leaves permanently. Until it returns, it is not in the list of
/// nodes. So it is not observed, and nothing runs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftNode {
    /// The node's record for a return: id, name, key, and the last known state.
    pub node: Arc<Node>,
    pub at: Wall,
    pub by: String,
}

/// The order to remove a node. A manager is removed as soon as it has left Raft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRemoval {
    pub by: String,
    pub since: Wall,
    /// Whether a new gossip key is due after the removal.
    #[serde(default)]
    pub rotate_gossip: bool,
}
