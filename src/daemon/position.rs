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
        answer_without_service(&name, raft, || log.try_exists().unwrap_or(true))
    };
    Router::new().route(POSITION_PATH, get(answer))
}

/// The answer of a node whose manager service does not run. Only the answer that a manager has lost
/// its log contains [`NO_LOG`].
fn answer_without_service(name: &NodeName, raft: Option<RaftId>, has_log: impl FnOnce() -> bool) -> ApiFailure {
    match raft {
        // The cluster has retired the Raft id after the log of the asking node ended, so the
        // cluster made decisions that this log does not contain.
        None => ApiFailure::new(Code::NotLeader, format!("{name} is a worker now: the cluster demoted it")),
        // The file may have been put back, and the next start of the daemon then uses it.
        Some(_) if has_log() => {
            ApiFailure::new(Code::Unavailable, format!("the manager service of {name} does not run now"))
        }
        Some(_) => {
            let text = format!("{name} has lost its log and works as a worker");
            ApiFailure::new(Code::NotLeader, text).details(serde_json::json!({ NO_LOG: true }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_manager_that_lost_its_log_says_so() {
        let says = |raft, has_log| answer_without_service(&"m2".into(), raft, || has_log).details[NO_LOG] == true;
        assert!(says(Some(RaftId(7)), false));
        assert!(!says(Some(RaftId(7)), true) && !says(None, false) && !says(None, true));
    }
}
