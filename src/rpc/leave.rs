//! A node that goes for good: where it tells the managers, and where its own machine tells it.

/// Where managers are told, by the node's certificate.
pub const LEAVE_PATH: &str = "/agent/v1/leave";

/// Where a daemon is told, on the socket of its machine.
pub const LEAVE_HERE: &str = "/v1/leave";
