//! Paths of the requests by which a node leaves the cluster permanently: to the managers, and to
//! its own daemon.

/// The path of the request to the managers. The node's certificate identifies the caller.
pub const LEAVE_PATH: &str = "/agent/v1/leave";

/// The path of the request to the node's own daemon, on its local socket.
pub const LEAVE_HERE: &str = "/v1/leave";
