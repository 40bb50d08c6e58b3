//! Nodes that were taken out for good, as far as they are remembered: for as long as one of their certificates may live; and
//! those that left by themselves, which may come back as who they were until they are taken out.

use super::{Node, NodeName, Wall};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const DAY_MS: u64 = 24 * 3_600_000;
/// For so many days a node's certificate holds.
pub const CERTIFICATE_DAYS: u32 = 90;
/// For so long a removed node is remembered: as long as a certificate that it was given at the last moment, and a week for
/// clocks that are wrong.
pub const REMOVED_MS: u64 = (CERTIFICATE_DAYS as u64 + 7) * DAY_MS;
/// So many removed nodes are remembered; no further one is removed until some were forgotten.
pub const REMOVED_MAX: usize = 10_000;
/// So many nodes that left are kept; no further one may leave until some were taken out.
pub const LEFT_MAX: usize = 10_000;
/// A node has been away for so long before it is removed without force: a shorter absence may be a matter of who leads.
pub const DOWN_MS: u64 = 10_000;

/// What is left of a node that was removed. Its name is free; its key is not let in again while it stands here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    pub name: NodeName,
    /// ed25519, hex.
    pub public_key: String,
    pub machine_id: String,
    pub at: Wall,
    /// Who ordered it.
    pub by: String,
    /// When it is forgotten.
    pub until: Wall,
}

/// A node that said itself that it goes for good. It is no node meanwhile: nobody watches it, and nothing is done on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// As it comes back, if it does: its id, name and key, and what was last known of what is there.
    pub node: Arc<Node>,
    pub at: Wall,
    pub by: String,
}

/// A manager that is to be removed as soon as it has left Raft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removing {
    pub by: String,
    pub since: Wall,
}
