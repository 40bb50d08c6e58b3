//! What `/v1/raft` answers: the membership as Raft itself has it; and the state that one manager holds.

use super::AsOf;
use crate::model::Sha256;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftView {
    pub version: u32,
    pub as_of: AsOf,
    pub term: u64,
    /// Index of the last entry of the log, committed or not.
    pub last_log: u64,
    pub last_applied: u64,
    /// A change of voters is half done.
    pub joint: bool,
    /// Ids of the voters after it; without one, of the voters.
    pub target: Vec<u64>,
    /// The list of members is committed; until then Raft takes no other.
    pub committed: bool,
    /// By id.
    pub members: Vec<RaftMemberView>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftMemberView {
    pub id: u64,
    /// Whose id it is; None: nobody's.
    pub node: Option<String>,
    /// What that node is to be.
    pub role: Option<String>,
    /// As Raft has it.
    pub address: String,
    /// `leader`, `voter`, `learner`.
    pub is: String,
    /// It votes until the change that is half done is finished.
    pub leaving: bool,
    /// The id was somebody's, and is nobody's any more.
    pub orphan: bool,
    /// Up to which entry it has the log. None: whoever answers does not lead, or never heard of it.
    pub matched: Option<u64>,
    /// How many entries it lacks.
    pub lag: Option<u64>,
    /// Milliseconds since it answered the leader; None: never, or it is the leader.
    pub answered_ms: Option<u64>,
}

/// What `/v1/raft/state` answers: of the manager that is asked, whoever leads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaftStateView {
    pub version: u32,
    pub as_of: AsOf,
    /// Index of the last entry that its state has.
    pub applied: u64,
    /// Of that state: managers that have applied the same entry have the same.
    pub sha256: Sha256,
    /// A change of voters is half done, as far as it knows.
    pub joint: bool,
}
