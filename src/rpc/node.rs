//! What the leader asks of nodes: to run a manager part under a Raft id, and to ask the managers for news.
//!
//! Every node answers these at its API address, a worker nothing else. That it is the node which is meant is known by its
//! certificate; that a manager asks, by the list of managers that the node was told.

use super::join::Peer;
use crate::model::{ClusterId, Epoch, NodeId, RaftId};
use serde::{Deserialize, Serialize};

/// Where nodes take the order.
pub const MANAGE_PATH: &str = "/node/v1/manage";

/// Where nodes are told that managers have something to say to them, as that they were removed. What it is, they ask themselves.
pub const ASK_PATH: &str = "/node/v1/ask";

/// Run a manager part under this Raft id from now on; where one runs under it already, nothing is to be done. An older id's log
/// is parked first: the id is retired, or the node would not have another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManageRequest {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub node: NodeId,
    pub raft: RaftId,
    /// From whom the CA and the cluster's SSH key are fetched, and who may speak to an empty log.
    pub managers: Vec<Peer>,
}

/// Under which id the manager part runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManageReply {
    pub raft: RaftId,
}
