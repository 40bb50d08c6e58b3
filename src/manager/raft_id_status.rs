//! The status of a Raft id that a node uses, according to the applied state. Used between managers
//! and for the own id.

use remoor_model::{Inventory, Node, NodeId, RaftId};

#[derive(Debug, PartialEq, Eq)]
pub enum RaftIdStatus<'a> {
    /// The id belongs to the node, whatever its desired role: a manager that leaves may speak until
    /// it is removed from Raft.
    HeldByNode,
    /// The id belongs to no node and will never be used again.
    Retired,
    /// The id belongs to another node.
    HeldByOther(&'a Node),
    /// This state does not contain the entry that grants the id yet.
    Unknown,
}

impl<'a> RaftIdStatus<'a> {
    pub fn for_node(inventory: &'a Inventory, node: NodeId, raft: RaftId) -> Self {
        match inventory.raft_id_holder(raft) {
            Some(holder) if holder.id == node => Self::HeldByNode,
            Some(other) => Self::HeldByOther(other),
            // The founder's id is not a log index. The first grant of all grants it, and it may be
            // used before that.
            None if raft == RaftId(1) && inventory.nodes.values().all(|n| n.raft.is_none()) => Self::Unknown,
            None if inventory.is_retired(raft) => Self::Retired,
            None => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{Applied, ClusterRole, Command, InventoryEntry, NodeSpec, Wall};

    #[test]
    fn an_id_is_retired_only_once_its_grant_is_applied() {
        let mut state = Inventory::default();
        let mut write = |command: Command| {
            let index = state.applied + 1;
            let applied = state.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command });
            assert_eq!(applied.refusal(), None);
            (state.clone(), applied)
        };
        let accept = |name: &str| {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            Command::Accept { spec, role: ClusterRole::Manager }
        };
        assert_eq!(RaftIdStatus::for_node(&Inventory::default(), NodeId(1), RaftId(1)), RaftIdStatus::Unknown);
        let (seen, Applied::Node(m1)) = write(accept("m1")) else { panic!("not let in") };
        assert_eq!(
            RaftIdStatus::for_node(&seen, m1, RaftId(1)),
            RaftIdStatus::Unknown,
            "the founder speaks before its grant"
        );
        let (seen, _) = write(Command::Grant { node: m1, founder: true });
        assert_eq!(RaftIdStatus::for_node(&seen, m1, RaftId(1)), RaftIdStatus::HeldByNode);
        let (seen, Applied::Node(m2)) = write(accept("m2")) else { panic!("not let in") };
        assert_eq!(RaftIdStatus::for_node(&seen, m2, RaftId(4)), RaftIdStatus::Unknown, "not granted here yet");
        let (seen, Applied::Raft(second)) = write(Command::Grant { node: m2, founder: false }) else { panic!("no id") };
        assert_eq!(RaftIdStatus::for_node(&seen, m2, second), RaftIdStatus::HeldByNode);
        assert!(matches!(RaftIdStatus::for_node(&seen, m1, second), RaftIdStatus::HeldByOther(n) if n.id == m2));
        let (seen, _) = write(Command::Role { node: m2, role: ClusterRole::Worker });
        assert_eq!(
            RaftIdStatus::for_node(&seen, m2, second),
            RaftIdStatus::HeldByNode,
            "it leaves, but is still a member"
        );
        let (seen, _) = write(Command::Retire { node: m2, raft: second });
        assert_eq!(RaftIdStatus::for_node(&seen, m2, second), RaftIdStatus::Retired);
        write(Command::Role { node: m2, role: ClusterRole::Manager });
        write(Command::Grant { node: m2, founder: false });
        write(Command::Role { node: m1, role: ClusterRole::Worker });
        let (seen, _) = write(Command::Retire { node: m1, raft: RaftId(1) });
        assert_eq!(RaftIdStatus::for_node(&seen, m1, RaftId(1)), RaftIdStatus::Retired, "the founder's id too");
        assert_eq!(
            RaftIdStatus::for_node(&seen, NodeId(99), second),
            RaftIdStatus::Retired,
            "of a node that was removed"
        );
    }
}
