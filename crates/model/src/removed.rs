//! Permanently removed nodes, remembered as long as one of their certificates may be valid; and
//! nodes that left by themselves, which may return with the same identity until they are removed.

use super::{Node, NodeName, Wall};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const DAY_MS: u64 = 24 * 3_600_000;
/// Lifetime of a node certificate in days.
pub const CERTIFICATE_DAYS: u32 = 90;
/// How long a removed node is remembered: the lifetime of a certificate that was issued at the last
/// moment, and one week to tolerate wrong clocks.
pub const REMOVED_MS: u64 = (CERTIFICATE_DAYS as u64 + 7) * DAY_MS;
/// Maximum number of remembered removed nodes. When it is reached, no further node is removed until
/// entries expire.
pub const REMOVED_MAX: usize = 10_000;
/// Maximum number of nodes that left. When it is reached, no further node may leave until some are
/// removed.
pub const LEFT_MAX: usize = 10_000;
/// Minimum absence before a node is removed without force. A shorter absence may be caused by a
/// leader change.
pub const DOWN_MS: u64 = 10_000;

/// The record of a removed node. Its name is free; its key cannot join while this record exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedRecord {
    pub name: NodeName,
    /// The node's ed25519 public key in hex.
    pub public_key: String,
    pub machine_id: String,
    pub at: Wall,
    /// The operator who ordered the removal.
    pub by: String,
    /// When the record expires.
    pub until: Wall,
}

/// A node that announced that it leaves permanently. Until it returns it is not among the nodes, so
/// it is not watched and nothing runs on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftNode {
    /// The node record for a return: its id, name and key, and its last known state.
    pub node: Arc<Node>,
    pub at: Wall,
    pub by: String,
}

/// A manager that will be removed as soon as it has left Raft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRemoval {
    pub by: String,
    pub since: Wall,
}
