//! The view of the leader's engine in addition to the inventory, copied out of the loop for the
//! API.

use remoor_cluster::rpc::view::ConditionView;
use remoor_engine::{ManagerEngine, Presence};
use remoor_model::{Inventory, NodeId, NodeName, Now, Wall};
use std::collections::BTreeMap;

/// The engine's view of one node.
#[derive(Debug, Clone)]
pub struct NodeSnapshot {
    /// None: it is too early to tell.
    pub presence: Option<Presence>,
    pub conditions: Vec<ConditionView>,
    /// Managers that don't reach the node's SSH port, and since when.
    pub unreachable_from: Vec<(NodeName, Wall)>,
}

pub type EngineSnapshot = BTreeMap<NodeId, NodeSnapshot>;

pub fn snapshot(engine: &ManagerEngine, now: Now, wall: Wall, inventory: &Inventory) -> EngineSnapshot {
    let row = |node: &remoor_model::Node| {
        let conditions = engine.conditions(now, wall, inventory, node);
        let conditions = conditions.into_iter().map(|c| ConditionView { is: c.is, why: c.why }).collect();
        let unreachable_from = engine.unreachable_from(now, inventory, node);
        NodeSnapshot { presence: engine.reported_presence(now, node), conditions, unreachable_from }
    };
    inventory.nodes.values().map(|node| (node.id, row(node))).collect()
}
