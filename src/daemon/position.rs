//! The log position of a node whose manager service does not run. `recover` must know whether such
//! a node has a log, because a node without a log can't be part of a majority.

use super::layout::Layout;
use axum::Router;
use axum::routing::get;
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::position::{NO_LOG, POSITION_PATH};
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use remoor_model::{NodeName, RaftId};

/// The route that answers instead of the manager service. `raft` is the Raft id in the identity of
/// the node.
pub(super) fn routes(layout: &Layout, name: &NodeName, raft: Option<RaftId>) -> Router {
    let (log, name) = (layout.raft_log(), name.clone());
    let answer = move |caller: Caller| async move {
        if !matches!(caller, Caller::Node { .. }) {
            return ApiFailure::new(Code::Unauthenticated, "only nodes of the cluster may ask this");
        }
        match raft {
            // The cluster has retired the Raft id after the log of the asking node ended, so the
            // cluster made decisions that this log does not contain.
            None => ApiFailure::new(Code::NotLeader, format!("{name} is a worker now: the cluster demoted it")),
            // The file may have been put back, and the next start of the daemon then uses it.
            Some(_) if log.try_exists().unwrap_or(true) => {
                ApiFailure::new(Code::Unavailable, format!("the manager service of {name} does not run now"))
            }
            Some(_) => without_log(format!("{name} has lost its log and works as a worker")),
        }
    };
    Router::new().route(POSITION_PATH, get(answer))
}

fn without_log(text: String) -> ApiFailure {
    ApiFailure::new(Code::NotLeader, text).details(serde_json::json!({ NO_LOG: true }))
}
