//! The status of a Raft id that a node uses, according to the applied state. Used between managers
//! and for the own id.

use remoor_model::{Inventory, Node, NodeId, RaftId};

#[derive(Debug, PartialEq, Eq)]
pub enum Standing<'a> {
    /// The id belongs to the node, whatever its desired role: a manager that leaves may speak until
    /// it is removed from Raft.
    Holds,
    /// The id belongs to no node and will never be used again.
    Retired,
    /// The id belongs to another node.
    Anothers(&'a Node),
    /// This state does not contain the entry that grants the id yet.
    Unknown,
}

impl<'a> Standing<'a> {
    pub fn of(inventory: &'a Inventory, node: NodeId, raft: RaftId) -> Self {
        match inventory.holds(raft) {
            Some(holder) if holder.id == node => Self::Holds,
            Some(other) => Self::Anothers(other),
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
    use remoor_model::{Applied, ClusterRole, Command, Entry, NodeSpec, Wall};

    #[test]
    fn an_id_is_retired_only_once_the_state_has_passed_it() {
        let mut state = Inventory::default();
        let mut write = |command: Command| {
            let index = state.applied + 1;
            let applied = state.apply(index, &Entry { at: Wall(index), by: "m1".to_owned(), command });
            assert_eq!(applied.refusal(), None);
            (state.clone(), applied)
        };
        let accept = |name: &str| {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            Command::Accept { spec, role: ClusterRole::Manager }
        };
        assert_eq!(Standing::of(&Inventory::default(), NodeId(1), RaftId(1)), Standing::Unknown);
        let (seen, Applied::Node(m1)) = write(accept("m1")) else { panic!("not let in") };
        assert_eq!(Standing::of(&seen, m1, RaftId(1)), Standing::Unknown, "the founder speaks before its grant");
        let (seen, _) = write(Command::Grant { node: m1, founder: true });
        assert_eq!(Standing::of(&seen, m1, RaftId(1)), Standing::Holds);
        let (seen, Applied::Node(m2)) = write(accept("m2")) else { panic!("not let in") };
        assert_eq!(Standing::of(&seen, m2, RaftId(4)), Standing::Unknown, "not granted here yet");
        let (seen, Applied::Raft(second)) = write(Command::Grant { node: m2, founder: false }) else { panic!("no id") };
        assert_eq!(Standing::of(&seen, m2, second), Standing::Holds);
        assert!(matches!(Standing::of(&seen, m1, second), Standing::Anothers(n) if n.id == m2));
        let (seen, _) = write(Command::Role { node: m2, role: ClusterRole::Worker });
        assert_eq!(Standing::of(&seen, m2, second), Standing::Holds, "it leaves, but is still a member");
        let (seen, _) = write(Command::Retire { node: m2, raft: second });
        assert_eq!(Standing::of(&seen, m2, second), Standing::Retired);
        write(Command::Role { node: m2, role: ClusterRole::Manager });
        write(Command::Grant { node: m2, founder: false });
        write(Command::Role { node: m1, role: ClusterRole::Worker });
        let (seen, _) = write(Command::Retire { node: m1, raft: RaftId(1) });
        assert_eq!(Standing::of(&seen, m1, RaftId(1)), Standing::Retired, "the founder's id too");
        assert_eq!(Standing::of(&seen, NodeId(99), second), Standing::Retired, "of a node that was removed");
    }
}
