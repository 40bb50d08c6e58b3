//! What the engine of the leader shows beside the inventory, copied out of the loop for the API.

use crate::engine::{Manager, Presence};
use crate::model::{Inventory, NodeId, Now, Wall};
use crate::rpc::view::ConditionView;
use std::collections::BTreeMap;

/// By node: presence and conditions.
pub type Snapshot = BTreeMap<NodeId, (Presence, Vec<ConditionView>)>;

pub fn snapshot(engine: &Manager, now: Now, wall: Wall, inventory: &Inventory) -> Snapshot {
    let row = |node: &crate::model::Node| {
        let conditions = engine.conditions(now, wall, inventory, node);
        let conditions = conditions.into_iter().map(|c| ConditionView { is: c.is, why: c.why }).collect();
        (engine.presence_of(node), conditions)
    };
    inventory.nodes.values().map(|node| (node.id, row(node))).collect()
}
