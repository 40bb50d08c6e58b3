//! A manager's log position. Another manager requests it when an operator of that other manager
//! considers a recovery.

use remoor_model::{Epoch, RaftId};
use serde::{Deserialize, Serialize};

/// The path at which managers return their log position.
pub const POSITION_PATH: &str = "/manager/v1/position";

/// The field in the details of an error answer that is true if the node has no log. Such a node
/// can't vote, although it answers.
pub const NO_LOG: &str = "no_log";

/// The end of a manager's log, and its leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionReply {
    pub epoch: Epoch,
    pub raft: RaftId,
    /// Term of the last entry, committed or not; 0 for an empty log.
    pub term: u64,
    pub index: u64,
    /// The name of the leader node, if this manager heard from a leader recently.
    pub leader: Option<String>,
}
