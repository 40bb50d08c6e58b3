//! A node that goes for good: what it tells the managers, and what is told it on its own machine.

use serde::{Deserialize, Serialize};

/// Where managers are told, by the node's certificate.
pub const LEAVE_PATH: &str = "/agent/v1/leave";

/// Where a daemon is told, on the socket of its machine.
pub const LEAVE_HERE: &str = "/v1/leave";

/// A manager's answer: the node is none any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaveReply {
    /// For people.
    pub text: String,
    /// Until then it may join again as who it was.
    pub until: String,
}
