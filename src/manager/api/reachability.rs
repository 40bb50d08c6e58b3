//! Requests between managers about the reachability of nodes: whether a manager reaches a node, and
//! the examination of a node for another manager.

use super::super::{ManagerContext, reach, remote_examination};
use axum::Extension;
use axum::extract::{Path, Query, State};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Json};
use remoor_engine::Reachability;
use remoor_model::{Node, NodeId};
use serde::Deserialize;
use std::sync::Arc;

type Answer<T> = Result<axum::Json<T>, ApiFailure>;

/// Checks now whether this manager reaches the node's SSH port.
pub async fn ask(State(shared): State<Arc<ManagerContext>>, Path(id): Path<u64>) -> Answer<Reachability> {
    let node = known_node(&shared, id)?;
    Ok(axum::Json(reach::probe_node(&shared, node).await))
}

/// Receives the report of another manager about its connection to the node.
pub async fn report(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Arc<Node>>,
    Path(id): Path<u64>,
    Json(line): Json<Reachability>,
) -> Answer<()> {
    let node = known_node(&shared, id)?;
    shared.observed.reaches.add_report(node, by.id, line);
    Ok(axum::Json(()))
}

#[derive(Debug, Deserialize)]
pub struct Basis {
    basis: u64,
}

/// Examines the node for another manager. The answer is MessagePack.
pub async fn examine(
    State(shared): State<Arc<ManagerContext>>,
    Path(id): Path<u64>,
    Query(Basis { basis }): Query<Basis>,
) -> Result<Vec<u8>, ApiFailure> {
    remote_examination::serve(&shared, NodeId(id), basis).await.map_err(|why| ApiFailure::new(Code::Retry, why))
}

fn known_node(shared: &ManagerContext, id: u64) -> Result<NodeId, ApiFailure> {
    let known = shared.inventory().node(NodeId(id)).map(|n| n.id);
    known.ok_or_else(|| ApiFailure::new(Code::Retry, format!("this manager does not know node {id} yet")))
}
