//! `POST /v1/attempts/{id}/undo`. Before anything is committed, the state machine must allow the
//! undo. The node must still have the copies of the files that the attempt changed. The undo itself
//! is a job like any other.

use super::super::{ManagerContext, examine, wall};
use super::{Actor, propose};
use axum::Extension;
use axum::extract::{Path, State};
use remoor_cluster::rpc::view::{Nothing, OrderView, OrderedView};
use remoor_cluster::rpc::wire::{ApiFailure, Code, Strict};
use remoor_exec::wire::{ExecutorOrder, Reply};
use remoor_model::{AttemptId, Command, Inventory, InventoryEntry, JobSpec, Node, Trigger};
use std::sync::Arc;
use std::time::Duration;

const ASK_TIMEOUT: Duration = Duration::from_secs(20);

pub async fn undo(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Actor>,
    Path(id): Path<u64>,
    _: Strict<Nothing>,
) -> Result<axum::Json<OrderedView>, ApiFailure> {
    let attempt = AttemptId(id);
    let inventory = shared.inventory();
    let node = node_of(&inventory, attempt).ok_or_else(|| {
        ApiFailure::new(Code::NotFound, format!("no attempt has the number {id}")).next("remoor job list")
    })?;
    let command = undo_command(node, attempt, &by);
    // The state machine is asked first. If it refuses the undo, the node need not be contacted.
    let entry = InventoryEntry { at: shared.entry_time(), by: by.to_string(), command: command.clone() };
    let mut copy = Inventory::clone(&inventory);
    if let Some(refusal) = copy.apply(inventory.applied + 1, &entry).refusal() {
        return Err(super::refusal_failure(refusal.clone()));
    }
    let name = node.name();
    let kept = backups(&shared, node).await?;
    if !kept.contains(&attempt) {
        let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
        let those = if kept.is_empty() { "none".to_owned() } else { format!("those of {}", kept.join(", ")) };
        let text = format!("{name} has no copies of attempt {id} any more; it has {those}");
        return Err(ApiFailure::new(Code::Refused, text).next(format!("remoor resetup {name} --force")));
    }
    propose(&shared, &by, command).await?;
    let text = format!("{name}: attempt {id} is being undone; {name} is held afterwards, until `remoor resume {name}`");
    let order = OrderView { version: 1, text, ..OrderView::default() };
    Ok(axum::Json(OrderedView { node: name.to_string(), order }))
}

fn node_of(inventory: &Inventory, attempt: AttemptId) -> Option<&Node> {
    let job = inventory.jobs.values().find(|j| j.attempts.iter().any(|a| a.id == attempt))?;
    inventory.node(job.node)
}

fn undo_command(node: &Node, attempt: AttemptId, by: &str) -> Command {
    let want =
        JobSpec { by: Some(by.to_owned()), undo: Some(attempt), ..JobSpec::new(Trigger::Live) }.into_request(wall());
    Command::RequestResetup { node: node.id, want: Box::new(want) }
}

/// The attempts of whose changed files the node still has copies.
async fn backups(shared: &Arc<ManagerContext>, node: &Node) -> Result<Vec<AttemptId>, ApiFailure> {
    let name = node.name();
    let unreached = |why: String| {
        ApiFailure::new(Code::Timeout, format!("{name} can't be reached over SSH: {why}; nothing was ordered"))
            .next(format!("remoor why {name}"))
    };
    let target = examine::target(shared, node.id).await.map_err(|e| ApiFailure::new(Code::Refused, e.to_string()))?;
    let mut session = shared.remote.open(&target).await.map_err(|e| unreached(e.to_string()))?;
    let reply = session.order(ExecutorOrder::Backups, &mut |_| {}, ASK_TIMEOUT).await;
    session.close().await;
    match reply.map_err(|e| unreached(e.to_string()))? {
        Reply::Backups { attempts } => Ok(attempts),
        other => Err(ApiFailure::new(Code::Unavailable, format!("unexpected reply of {name}: {other:?}"))),
    }
}
