//! What a manager tells of its log to another one whose operator considers a recovery.

use crate::model::{Epoch, RaftId};
use serde::{Deserialize, Serialize};

/// Where managers answer it.
pub const POSITION_PATH: &str = "/manager/v1/position";

/// Where a manager's log ends, and whether it is led.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionReply {
    pub epoch: Epoch,
    pub raft: RaftId,
    /// Of the last entry, committed or not; 0 of an empty log.
    pub term: u64,
    pub index: u64,
    /// The node that leads, if one was heard of late.
    pub leader: Option<String>,
}
