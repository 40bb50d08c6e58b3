//! Answers of `/v1/raft`: the membership according to Raft, and the state of one manager.

use super::AsOf;
use remoor_model::Sha256;
use serde::{Deserialize, Serialize};

/// Answer of `/v1/raft`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftView {
    pub version: u32,
    pub as_of: AsOf,
    pub term: u64,
    /// Index of the last entry of the log, committed or not.
    pub last_log: u64,
    pub last_applied: u64,
    /// Whether a change of voters is half done: the second of its two entries is still missing.
    pub joint: bool,
    /// Ids of the voters after the half-done change. Without such a change, ids of the current
    /// voters.
    pub target: Vec<u64>,
    /// Whether the list of members is committed. Until then Raft accepts no other list.
    pub committed: bool,
    /// The members, sorted by id.
    pub members: Vec<RaftMemberView>,
    pub warnings: Vec<String>,
}

/// One member of Raft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftMemberView {
    pub id: u64,
    /// The name of the node with this id. None if no node has this id.
    pub node: Option<String>,
    /// The node's desired role.
    pub role: Option<String>,
    /// The member's address according to Raft.
    pub address: String,
    /// The state of the member in Raft: `leader`, `voter` or `learner`.
    pub is: String,
    /// Whether the member votes only until the half-done change is complete.
    pub leaving: bool,
    /// Whether a node had this id, and no node has it now.
    pub orphan: bool,
    /// Index up to which the member has the log. None if the answering manager does not lead, or if
    /// the member never answered the manager.
    pub matched: Option<u64>,
    /// Number of entries that the member lacks.
    pub lag: Option<u64>,
    /// Milliseconds since the member last answered the leader. None for the leader itself, and for
    /// a member that never answered.
    pub answered_ms: Option<u64>,
}

/// Answer of `/v1/raft/state`: the state of the requested manager, whether or not it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftStateView {
    pub version: u32,
    pub as_of: AsOf,
    /// Index of the last entry that the manager has applied to its state.
    pub applied: u64,
    /// Hash of the applied state. It is equal on all managers that have applied the same entries.
    pub sha256: Sha256,
    /// Whether a change of voters is half done, according to this manager.
    pub joint: bool,
}
