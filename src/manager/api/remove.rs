//! Removal of nodes: the answer to an operator's order, the objections if the node is in gossip,
//! and the list of removed nodes. The state machine refuses orders that are not allowed. The role
//! manager removes a manager from Raft first.

use super::super::{ManagerContext, members};
use super::order::{Decided, Desk, ok_view};
use super::{as_of, roles};
use axum::extract::State;
use remoor_cluster::rpc::view::{RemovedNode, RemovedView};
use remoor_cluster::rpc::wire::{ApiFailure, Code, TimedJson, rfc3339};
use remoor_model::{Command, Inventory, Node, NodeId, NodeMembership, RemovedRecord};
use std::sync::Arc;

/// Decides on an order to remove a node. A node that is in gossip counts as up, even if the log
/// contains its absence.
pub(super) fn decide(desk: &Desk<'_>) -> Result<Decided, ApiFailure> {
    let (node, force) = (desk.node, desk.request.force);
    let rotate_gossip = !desk.request.keep_gossip_key;
    let name = node.name();
    if let NodeMembership::Left(_) = desk.shared.inventory().membership(node.id) {
        let text = format!("{name}, which had left, is removed; its name is free");
        return Ok((Some(Command::Remove { node: node.id, force, rotate_gossip }), ok_view(&text)));
    }
    let up = desk.shared.observed.report_of(name).is_some_and(|report| !report.leaving);
    if !force && !node.manages() {
        may_go(node, up)?;
    }
    if force && let Some(why) = roles::stays(desk.shared, node) {
        return Err(ApiFailure::new(Code::Refused, format!("{name} can't leave Raft now: {why}"))
            .details(serde_json::json!({"refusal": "quorum"}))
            .next("first bring the dead managers back or remoor demote them; remoor raft-members shows them"));
    }
    let rotation = if rotate_gossip { "; a new gossip key goes to the other nodes" } else { "" };
    let text = describe_removal(node, up) + rotation;
    Ok((Some(Command::Remove { node: node.id, force, rotate_gossip }), ok_view(&text)))
}

/// Refuses to remove a node that is up, or whose presence is unknown. The presence is unknown if
/// the node is not in gossip and has no recorded absence, for example after a recovery or under a
/// new leader.
fn may_go(node: &Node, up: bool) -> Result<(), ApiFailure> {
    let name = node.name();
    let refused = |code: &str, text: String, next: String| {
        Err(ApiFailure::new(Code::Refused, text).details(serde_json::json!({ "refusal": code })).next(next))
    };
    if up {
        let next = format!("systemctl stop remoor on {name}, or remoor remove {name} --force");
        return refused("node-up", format!("node {name} is up; stop it or use --force"), next);
    }
    if node.absence.is_none() && node.examination.last_identity.is_some() {
        let text = format!("gossip does not see {name}, but its absence is not recorded yet");
        let next = format!("remoor remove {name} again in half a minute, or with --force if it is gone for sure");
        return refused("not-seen", text, next);
    }
    Ok(())
}

fn describe_removal(node: &Node, up: bool) -> String {
    let name = node.name();
    match (node.manages(), up) {
        (true, _) => format!("{name} will be removed; it leaves Raft first"),
        (false, true) => format!("{name} is removed; its daemon is notified and stops gossiping"),
        (false, false) => format!("{name} is removed; its name is free"),
    }
}

/// Notifies the nodes that these accepted orders removed. `before` is the state before the orders.
pub(super) fn notify_removed(shared: &ManagerContext, before: &Inventory, ordered: &[NodeId]) {
    let now = shared.inventory();
    for id in ordered.iter().filter(|id| matches!(now.membership(**id), NodeMembership::Removed(_))) {
        members::tell_removed(shared, before.node(*id));
    }
}

/// The nodes that these orders remove.
pub(super) fn removed_nodes(commands: &[Command]) -> Vec<NodeId> {
    let removed = commands.iter().filter(|command| matches!(command, Command::Remove { .. }));
    removed.filter_map(Command::in_batch).collect()
}

/// Lists removed nodes, each with the time until which its record exists.
pub async fn list_removed(State(shared): State<Arc<ManagerContext>>) -> TimedJson<RemovedView> {
    TimedJson(RemovedView { version: 1, as_of: as_of(&shared), removed: list(&shared.inventory()) })
}

fn list(inventory: &Inventory) -> Vec<RemovedNode> {
    let row = |(id, removed): (&NodeId, &Arc<RemovedRecord>)| RemovedNode {
        id: id.0,
        name: removed.name.to_string(),
        removed: rfc3339(removed.at),
        by: removed.by.clone(),
        until: rfc3339(removed.until),
        machine_id: removed.machine_id.clone(),
    };
    inventory.departed.removed.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{AbsenceKind, AbsenceNo, HostFingerprint, InventoryEntry, Wall, sample};

    #[test]
    fn a_node_that_was_not_seen_is_neither_up_nor_away() {
        let mut inventory = sample::fleet(0, 1);
        let mut write = |command| {
            let index = inventory.applied + 1;
            let entry = InventoryEntry { at: Wall(index), by: "m1".to_owned(), command };
            assert_eq!(inventory.apply(index, &entry).refusal(), None);
            inventory.nodes[&NodeId(1)].clone()
        };
        let node = NodeId(1);
        let refusal = |node: &Node, up| may_go(node, up).err().map(|f| f.details["refusal"].clone());
        let seen = write(Command::Fingerprint { node, marks: HostFingerprint::default() });
        assert_eq!(refusal(&seen, true), Some("node-up".into()));
        assert_eq!(refusal(&seen, false), Some("not-seen".into()));
        let away = write(Command::AbsenceOpened {
            node,
            no: AbsenceNo(1),
            last_seen: Wall(1),
            seen_by: Vec::new(),
            gone: AbsenceKind::Away,
            planned: false,
            returned: None,
        });
        assert_eq!((refusal(&away, false), refusal(&away, true)), (None, Some("node-up".into())));
    }
}
