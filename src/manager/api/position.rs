//! Returns the term and index of the last entry in this manager's log, for an operator who
//! considers a recovery. The request works without a majority. Every node may make it. A manager of
//! an older epoch needs it, because it is a worker in the new epoch and must learn of that epoch.

use super::super::ManagerContext;
use super::as_of;
use axum::extract::State;
use remoor_cluster::rpc::position::PositionReply;
use std::sync::Arc;

/// Time in milliseconds without a message after which a leader counts as lost. It is twice the
/// duration of the longest election.
const LED_MS_MAX: u64 = 4_000;

pub async fn position(State(shared): State<Arc<ManagerContext>>) -> axum::Json<PositionReply> {
    let seen = as_of(&shared);
    let led = !seen.stale || shared.age_ms().is_some_and(|ms| ms < LED_MS_MAX);
    let (term, index) = shared.raft.last_entry().unwrap_or_default();
    let raft = shared.raft.status().borrow().id;
    let leader = seen.leader.filter(|_| led);
    axum::Json(PositionReply { epoch: shared.raft.epoch(), raft, term, index, leader })
}
