//! Where this manager's log ends, for one whose operator considers a recovery: it works without a majority. Each node may ask: one that
//! managed before the cluster was founded anew is a worker of this epoch, and must hear that there is a newer one.

use super::super::Shared;
use super::{as_of, member};
use crate::rpc::caller::Caller;
use crate::rpc::position::PositionReply;
use crate::rpc::wire::Failure;
use axum::extract::State;
use std::sync::Arc;

/// A leader that was not heard for so long is taken for gone: twice the longest election.
const LED_MS_MAX: u64 = 4_000;

pub async fn position(State(shared): State<Arc<Shared>>, caller: Caller) -> Result<axum::Json<PositionReply>, Failure> {
    member(&shared, &caller)?;
    let seen = as_of(&shared);
    let led = !seen.stale || shared.age_ms().is_some_and(|ms| ms < LED_MS_MAX);
    let (term, index) = shared.raft.last_entry().unwrap_or_default();
    let raft = shared.raft.status().borrow().id;
    let leader = seen.leader.filter(|_| led);
    Ok(axum::Json(PositionReply { epoch: shared.raft.epoch(), raft, term, index, leader }))
}
