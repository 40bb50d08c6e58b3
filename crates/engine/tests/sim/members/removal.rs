//! Nodes that are removed permanently. They learn of their removal and join again as other nodes.
//! This file also has the laws and the planted bugs about removal.

use super::driver::HEARD_MS;
use super::planted::Planted;
use super::world::{NAMES, World};
use remoor_model::*;
use std::sync::Arc;

impl World {
    /// Makes a removed node learn of its removal, from any manager that knows of it. The operator
    /// then starts the node with an empty data directory. The node still has its old key at first,
    /// as a copy of the machine would.
    pub fn learn_of_removal(&mut self, at: usize) {
        let node = self.hosts[at].node;
        let knows = |other: usize| {
            let part = self.hosts[other].part.as_ref().filter(|_| self.reaches(at, other));
            part.is_some_and(|p| self.states[p.commit as usize].departed.removed.contains_key(&node))
        };
        let host = &self.hosts[at];
        if host.part.is_none() && host.joined.is_some() && (0..self.hosts.len()).any(knows) {
            self.fire("a removed node starts again");
            let host = &mut self.hosts[at];
            (host.joined, host.newest, host.life) = (None, RaftId(0), host.life + 1);
        }
    }

    /// Handles a rejected join request of the host. If the request was rejected because of the
    /// host's key, the host gets another key.
    pub fn refused_to_join(&mut self, at: usize, index: u64) {
        let key = self.spec(at).public_key;
        if self.states[index as usize].removed_key(&key).is_some() {
            self.fire("a removed key is refused");
            self.hosts[at].keys += 1;
        }
    }

    /// Orders the removal of this node. If the node may be up, the order has the option `force`.
    /// Otherwise the seed decides whether it has this option.
    pub fn order_removal(&mut self, at: usize) {
        let host = &self.hosts[at];
        let (node, force) = (host.node, host.up || self.now - host.down_since <= HEARD_MS || self.rng.chance(500));
        self.order(Command::Remove { node, force, rotate_gossip: false });
    }

    /// Checks the laws of removal after each command. A node must not be a member of Raft when it
    /// is removed. No node may have the id or the key of a removed node.
    pub fn judge_removed(&mut self, before: &Inventory, after: &Inventory) {
        for node in before.nodes.values().filter(|n| !after.nodes.contains_key(&n.id)) {
            self.fire("a node is removed");
            if node.removing.is_some() {
                self.fire("removed after it had left Raft");
            }
            if let Some(raft) = node.raft.filter(|id| self.list.nodes.contains_key(id)) {
                self.breaks("removed", || format!("{} is removed, and a member of Raft as {raft}", node.name()));
            }
        }
        let back = |(id, removed): (&NodeId, &Arc<RemovedRecord>)| {
            let by_key = after.nodes.values().any(|n| n.spec.public_key == removed.public_key);
            (by_key || after.nodes.contains_key(id)).then(|| removed.name.clone())
        };
        if let Some(name) = after.departed.removed.iter().find_map(back) {
            self.breaks("back", || format!("{name} was removed, and is answered as a node"));
        }
    }

    /// The description of a removal that was ordered and is not completed.
    pub fn being_removed(&self, state: &Inventory) -> Option<String> {
        let node = state.nodes.values().find(|n| n.removing.is_some())?;
        Some(format!("the removal of {}", node.name()))
    }

    /// Planted bugs in the inventory.
    pub fn plant_in_removal(
        &mut self,
        before: &Inventory,
        after: &mut Inventory,
        entry: &InventoryEntry,
        applied: &mut Applied,
    ) {
        match &entry.command {
            Command::Remove { node, .. } if self.options.planted == Some(Planted::RemovesMembers) => {
                let Some(known) = before.node(*node).filter(|n| n.role == ClusterRole::Worker) else { return };
                after.nodes.remove(node);
                after.names.remove(known.name());
                *applied = Applied::Done;
            }
            Command::Accept { spec, .. } if self.options.planted == Some(Planted::LetsKeysBackIn) => {
                if before.removed_key(&spec.public_key).is_none() {
                    return;
                }
                let mut blind = before.clone();
                blind.departed.removed.clear();
                *applied = blind.apply(after.applied, entry);
                blind.departed.removed = before.departed.removed.clone();
                *after = blind;
            }
            _ => {}
        }
    }

    /// The hosts whose nodes are in `state`, by index. The operator may give orders only about
    /// these nodes.
    pub fn nodes_of(&self, state: &Inventory) -> Vec<usize> {
        (0..NAMES.len()).filter(|at| state.nodes.contains_key(&self.hosts[*at].node)).collect()
    }
}
