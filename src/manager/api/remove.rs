//! Taking nodes out for good: what an order to remove says, what gossip has against it, and who was removed. Refusing is the
//! state machine's, and the way of a manager out of Raft the role manager's.

use super::super::{Shared, members};
use super::order::{Decided, Desk, said};
use super::{as_of, operator, roles};
use crate::model::{Command, Inventory, Node, NodeId, Removed};
use crate::rpc::caller::Caller;
use crate::rpc::view::{RemovedNode, RemovedView};
use crate::rpc::wire::{Answer, Code, Failure, rfc3339};
use axum::extract::State;
use std::sync::Arc;

/// What is proposed, and what is said once it stands. Who gossips is up, whatever the log says of it by now.
pub(super) fn decide(desk: &Desk<'_>) -> Result<Decided, Failure> {
    let (node, force) = (desk.node, desk.request.force);
    let name = node.name();
    let up = desk.shared.report_of(name).is_some_and(|report| !report.leaving);
    if up && !force && !node.manages() {
        return Err(Failure::new(Code::Refused, format!("node {name} is up; stop it or use --force"))
            .details(serde_json::json!({"refusal": "node-up"}))
            .next(format!("systemctl stop remoor on {name}, or remoor remove {name} --force")));
    }
    if force && let Some(why) = roles::stays(desk.shared, node) {
        return Err(Failure::new(Code::Refused, format!("{name} can't leave Raft now: {why}"))
            .details(serde_json::json!({"refusal": "quorum"}))
            .next("remoor demote those that are dead first, or bring them back; remoor raft-members shows them"));
    }
    Ok((Some(Command::Remove { node: node.id, force }), said(&words(node, up))))
}

fn words(node: &Node, up: bool) -> String {
    let name = node.name();
    match (node.manages(), up) {
        (true, _) => format!("{name} is to be removed; it leaves Raft first"),
        (false, true) => format!("{name} is removed; its daemon is told, and stops gossiping"),
        (false, false) => format!("{name} is removed; its name is free"),
    }
}

/// Those that are nodes no more by these orders, which were accepted; `before` is the state that these were decided on.
pub(super) fn tell(shared: &Shared, before: &Inventory, ordered: &[NodeId]) {
    let now = shared.inventory();
    for id in ordered.iter().filter(|id| now.removed.contains_key(id)) {
        members::tell_removed(shared, before.node(*id));
    }
}

/// The nodes that these orders remove.
pub(super) fn of(commands: &[Command]) -> Vec<NodeId> {
    let removed = commands.iter().filter(|command| matches!(command, Command::Remove { .. }));
    removed.filter_map(Command::in_batch).collect()
}

/// Who was taken out for good, and until when that is remembered.
pub async fn removed(State(shared): State<Arc<Shared>>, caller: Caller) -> Result<Answer<RemovedView>, Failure> {
    operator(&shared, &caller)?;
    Ok(Answer(RemovedView { version: 1, as_of: as_of(&shared), removed: list(&shared.inventory()) }))
}

fn list(inventory: &Inventory) -> Vec<RemovedNode> {
    let row = |(id, removed): (&NodeId, &Arc<Removed>)| RemovedNode {
        id: id.0,
        name: removed.name.to_string(),
        removed: rfc3339(removed.at),
        by: removed.by.clone(),
        until: rfc3339(removed.until),
        machine_id: removed.machine_id.clone(),
    };
    inventory.removed.iter().map(row).collect()
}
