//! Requests of the leader to nodes: to run a manager service under a Raft id, and to ask the
//! managers for news, for example about its own removal.
//!
//! Every node answers these requests at its API address. A worker answers no other requests there.
//! The caller identifies the node by its certificate. The node identifies a manager by the list of
//! managers that it received.

use super::join::PeerInfo;
use remoor_model::{ClusterId, Epoch, NodeId, RaftId};
use serde::{Deserialize, Serialize};

/// The path of the request to run a manager service.
pub const MANAGE_PATH: &str = "/node/v1/manage";

/// The path of the notification that managers have news for the node, for example that it was
/// removed. The node then requests the news from them.
pub const ASK_PATH: &str = "/node/v1/ask";

/// The request to run a manager service under this Raft id from now on. If a service already runs
/// under the id, the node does nothing. Otherwise the node first archives the log of an older id.
/// The older id is retired, because a node gets a new id only after the retirement of its old one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManageRequest {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub node: NodeId,
    pub raft: RaftId,
    /// The managers from which the node fetches the CA and the cluster's SSH key. Only they may
    /// send Raft messages while the node's log is empty.
    pub managers: Vec<PeerInfo>,
}

/// The Raft id under which the manager service runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManageReply {
    pub raft: RaftId,
}
