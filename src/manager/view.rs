//! The view of the leader's engine in addition to the inventory, copied out of the loop for the
//! API.

use remoor_cluster::rpc::view::ConditionView;
use remoor_engine::{Manager, Presence};
use remoor_model::{Inventory, NodeId, NodeName, Now, Wall};
use std::collections::BTreeMap;

/// The engine's view of one node.
#[derive(Debug, Clone)]
pub struct Shown {
    /// None: it is too early to tell.
    pub presence: Option<Presence>,
    pub conditions: Vec<ConditionView>,
    /// Managers that don't reach the node's SSH port, and since when.
    pub unreachable_from: Vec<(NodeName, Wall)>,
}

pub type Snapshot = BTreeMap<NodeId, Shown>;

pub fn snapshot(engine: &Manager, now: Now, wall: Wall, inventory: &Inventory) -> Snapshot {
    let row = |node: &remoor_model::Node| {
        let conditions = engine.conditions(now, wall, inventory, node);
        let conditions = conditions.into_iter().map(|c| ConditionView { is: c.is, why: c.why }).collect();
        let unreachable_from = engine.unreachable_from(now, inventory, node);
        Shown { presence: engine.told_presence(now, node), conditions, unreachable_from }
    };
    inventory.nodes.values().map(|node| (node.id, row(node))).collect()
}
