//! A node that leaves the cluster permanently: the paths of the requests to the managers and to its
//! own daemon.

/// The path at managers; the caller is identified by the node's certificate.
pub const LEAVE_PATH: &str = "/agent/v1/leave";

/// The path at the node's own daemon, on its local socket.
pub const LEAVE_HERE: &str = "/v1/leave";
