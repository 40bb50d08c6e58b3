//! Requests of the leader to nodes: to run a manager service under a Raft id, and to ask the
//! managers for news.
//!
//! Every node answers these at its API address; a worker answers nothing else there. The caller
//! recognises the node by its certificate. The node recognises a manager by the list of managers
//! that it received.

use super::join::PeerInfo;
use remoor_model::{ClusterId, Epoch, NodeId, RaftId};
use serde::{Deserialize, Serialize};

/// The path of the request to run a manager service.
pub const MANAGE_PATH: &str = "/node/v1/manage";

/// The path of the notice that managers have news for the node, for example that it was removed.
/// The node then asks them for it.
pub const ASK_PATH: &str = "/node/v1/ask";

/// Run a manager service under this Raft id from now on. If one runs under it already, nothing has
/// to be done. The log of an older id is archived first: that id is retired, otherwise the node
/// would not get another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManageRequest {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub node: NodeId,
    pub raft: RaftId,
    /// The nodes from which the CA and the cluster's SSH key are fetched, and which may send to an
    /// empty log.
    pub managers: Vec<PeerInfo>,
}

/// The Raft id under which the manager service runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManageReply {
    pub raft: RaftId,
}
