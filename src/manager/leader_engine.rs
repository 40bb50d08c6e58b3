//! The leader's engine. The manager's loop steps it, and the API shows its conditions of nodes. The
//! view of a node is made only on request, so that a step of the engine has no cost for other
//! nodes.

use remoor_cluster::rpc::view::ConditionView;
use remoor_engine::{Action, EngineEvent, ManagerEngine, Presence};
use remoor_model::{Inventory, Node, NodeName, Now, Wall};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The engine's view of one node.
#[derive(Debug, Clone)]
pub struct NodeSnapshot {
    /// The node's presence. None if the leader began to lead too recently to know it.
    pub presence: Option<Presence>,
    pub conditions: Vec<ConditionView>,
    /// Managers that do not reach the node's SSH port, each with the time at which its current
    /// failure began.
    pub unreachable_from: Vec<(NodeName, Wall)>,
}

/// The engine. It exists only while this manager leads.
#[derive(Debug, Default)]
pub struct LeaderEngine(Mutex<Option<ManagerEngine>>);

impl LeaderEngine {
    /// Replaces the engine at the beginning or end of a leadership.
    pub fn set(&self, engine: Option<ManagerEngine>) {
        *self.lock() = engine;
    }

    /// Whether this manager leads. A lease that expires for a moment does not end a leadership.
    pub fn leads(&self) -> bool {
        self.lock().is_some()
    }

    /// Runs one step of the engine. None if this manager does not lead.
    pub fn step(&self, now: Now, wall: Wall, inventory: &Inventory, event: EngineEvent) -> Option<Vec<Action>> {
        Some(self.lock().as_mut()?.step(now, wall, inventory, event))
    }

    /// The engine's view of a node in this state. None if this manager does not lead.
    pub fn snapshot(&self, now: Now, wall: Wall, inventory: &Inventory, node: &Node) -> Option<NodeSnapshot> {
        let engine = self.lock();
        let engine = engine.as_ref()?;
        let conditions = engine.conditions(now, wall, inventory, node);
        Some(NodeSnapshot {
            presence: engine.reported_presence(now, node),
            conditions: conditions.into_iter().map(|c| ConditionView { is: c.is, why: c.why }).collect(),
            unreachable_from: engine.unreachable_from(now, inventory, node),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<ManagerEngine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{NodeId, sample};

    #[test]
    fn a_view_shows_the_last_step_and_ends_with_the_leadership() {
        let (inventory, shared) = (sample::fleet(1, 0), LeaderEngine::default());
        let node = &inventory.nodes[&NodeId(1)];
        let presence = |now| shared.snapshot(Now(now), Wall(now), &inventory, node).map(|view| view.presence);
        let alive = || EngineEvent::Alive { node: NodeId(1), report: Default::default() };
        assert!(
            shared.step(Now(1), Wall(1), &inventory, alive()).is_none() && presence(1).is_none() && !shared.leads()
        );
        shared.set(Some(ManagerEngine::new("m1".into(), Now(0))));
        assert!(shared.step(Now(2), Wall(2), &inventory, alive()).is_some() && shared.leads());
        assert_eq!(presence(2), Some(Some(Presence::Alive)));
        shared.set(None);
        assert_eq!(presence(3), None);
    }
}
