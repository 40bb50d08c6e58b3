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
    /// Whether a change of voters is half done.
    pub joint: bool,
    /// Ids of the voters after that change; if there is none, of the current voters.
    pub target: Vec<u64>,
    /// Whether the list of members is committed. Until then Raft accepts no other.
    pub committed: bool,
    /// Sorted by id.
    pub members: Vec<RaftMemberView>,
    pub warnings: Vec<String>,
}

/// One member of Raft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftMemberView {
    pub id: u64,
    /// The node with this id. None: no node has it.
    pub node: Option<String>,
    /// The node's desired role.
    pub role: Option<String>,
    /// The address according to Raft.
    pub address: String,
    /// `leader`, `voter`, `learner`.
    pub is: String,
    /// It votes only until the half-done change is completed.
    pub leaving: bool,
    /// A node had this id, and none has it now.
    pub orphan: bool,
    /// Index up to which it has the log. None: the answering manager does not lead, or has never
    /// heard from it.
    pub matched: Option<u64>,
    /// Number of entries that it lacks.
    pub lag: Option<u64>,
    /// Milliseconds since it answered the leader. None: never, or it is the leader.
    pub answered_ms: Option<u64>,
}

/// Answer of `/v1/raft/state`: the state of the requested manager, whether or not it leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftStateView {
    pub version: u32,
    pub as_of: AsOf,
    /// Index of the last entry in its state.
    pub applied: u64,
    /// Hash of that state; equal on managers that have applied the same entry.
    pub sha256: Sha256,
    /// Whether a change of voters is half done, as far as it knows.
    pub joint: bool,
}
