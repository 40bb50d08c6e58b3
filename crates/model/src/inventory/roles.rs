//! Entries about cluster roles: the desired roles, and the Raft ids that result from them.
//!
//! The Raft membership is not part of this state. The role manager (`engine/roles.rs`) adapts the
//! membership to the desired roles.

use super::*;

impl Inventory {
    /// Nodes whose desired role is manager, also those that are not voters yet.
    pub fn managers(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().map(Arc::as_ref).filter(|n| n.role == ClusterRole::Manager)
    }

    /// The node that has this Raft id.
    pub fn raft_id_holder(&self, raft: RaftId) -> Option<&Node> {
        self.nodes.values().map(Arc::as_ref).find(|n| n.raft == Some(raft))
    }

    /// Whether the id is no longer in use. Raft ids are log indices. So an id that no node has and
    /// that is not higher than the last applied index is never granted again.
    pub fn is_retired(&self, raft: RaftId) -> bool {
        raft.0 <= self.applied && self.raft_id_holder(raft).is_none()
    }

    pub(super) fn grant(&mut self, at: &ApplyContext, node: NodeId, founder: bool) -> Decision {
        if founder && self.nodes.values().any(|n| n.raft.is_some()) {
            return Err(Refusal::new("founder-exists", "Raft id 1 was granted already and is never granted again"));
        }
        let changed = self.change(node)?;
        if changed.role != ClusterRole::Manager {
            let text = format!("{} is not to be a manager", changed.name());
            return Err(Refusal::new("no-manager", text).next(format!("remoor promote {}", changed.name())));
        }
        let id = *changed.raft.get_or_insert(if founder { RaftId(1) } else { RaftId(at.index) });
        Ok(Applied::Raft(id))
    }

    /// Sets the desired role. The demotion of the last manager is always refused, because the
    /// desired managers are counted and not the current voters. swarmkit counts current voters;
    /// three simultaneous demotions there leave a manager whose desired role is worker.
    pub(super) fn set_role(&mut self, at: &ApplyContext, id: NodeId, role: ClusterRole) -> Decision {
        let managers = self.managers().count();
        let changed = self.change(id)?;
        let name = changed.name().clone();
        if changed.awaiting_role_decision && role == ClusterRole::Worker {
            changed.awaiting_role_decision = false;
            self.note(at, Some(id), JournalEvent::Operator { text: "given up as a manager: a worker".to_owned() });
            return Ok(Applied::Done);
        }
        if changed.role == role {
            return Err(Refusal::new("nothing-new", format!("{name} is to be a {} already", role.as_str())));
        }
        if role == ClusterRole::Worker && managers == 1 {
            let text = format!("{name} is the only manager: the cluster would have none");
            return Err(Refusal::new("last-manager", text).next("remoor promote another node first"));
        }
        (changed.role, changed.awaiting_role_decision) = (role, false);
        if role == ClusterRole::Manager {
            changed.removing = None;
        }
        let text = match role {
            ClusterRole::Manager => "promoted: to be a manager",
            ClusterRole::Worker => "demoted: to be a worker",
        };
        self.note(at, Some(id), JournalEvent::Operator { text: text.to_owned() });
        Ok(Applied::Done)
    }

    pub(super) fn retire(&mut self, at: &ApplyContext, id: NodeId, raft: RaftId) -> Decision {
        let changed = self.change(id)?;
        if changed.role == ClusterRole::Manager || changed.raft != Some(raft) {
            let text = format!("{} has another Raft id, or is to be a manager again", changed.name());
            return Err(Refusal::new("overtaken", text));
        }
        changed.raft = None;
        self.note(at, Some(id), JournalEvent::Operator { text: format!("manages no more: Raft id {raft} is retired") });
        Ok(Applied::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Log(Inventory);

    impl Log {
        fn write(&mut self, command: Command) -> Applied {
            let index = self.0.applied + 1;
            self.0.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command })
        }

        fn join(&mut self, name: &str, role: ClusterRole) -> NodeId {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            let Applied::Node(id) = self.write(Command::Accept { spec, role }) else {
                panic!("{name} was not accepted")
            };
            id
        }

        fn code(&mut self, command: Command) -> Option<String> {
            self.write(command).refusal().map(|r| r.code.clone())
        }

        fn role(&mut self, node: NodeId, role: ClusterRole) -> Option<String> {
            self.code(Command::Role { node, role })
        }
    }

    fn three_managers() -> (Log, [NodeId; 3]) {
        let mut log = Log(Inventory::default());
        let ids = ["m1", "m2", "m3"].map(|name| log.join(name, ClusterRole::Manager));
        for (at, node) in ids.into_iter().enumerate() {
            assert!(matches!(log.write(Command::Grant { node, founder: at == 0 }), Applied::Raft(_)));
        }
        (log, ids)
    }

    #[test]
    fn demoting_all_managers_at_once_is_refused_for_the_last() {
        let (mut log, [a, b, c]) = three_managers();
        assert_eq!((log.role(a, ClusterRole::Worker), log.role(b, ClusterRole::Worker)), (None, None));
        assert_eq!(
            log.role(c, ClusterRole::Worker).as_deref(),
            Some("last-manager"),
            "docs/design/scenarios.md, E9, E17"
        );
        let (mut log, ids) = three_managers();
        let before = log.0.nodes.clone();
        let all = ids.map(|node| Command::Role { node, role: ClusterRole::Worker });
        assert_eq!(log.code(Command::Batch(all.to_vec())).as_deref(), Some("last-manager"));
        assert_eq!(log.0.nodes, before, "as one order nothing of it is done (I12)");
    }

    #[test]
    fn a_revoked_and_repeated_promotion_keeps_the_raft_id_until_it_is_retired() {
        let (mut log, _) = three_managers();
        let w1 = log.join("w1", ClusterRole::Worker);
        assert_eq!(log.code(Command::Grant { node: w1, founder: false }).as_deref(), Some("no-manager"), "E8");
        assert_eq!(log.role(w1, ClusterRole::Manager), None);
        assert_eq!(log.role(w1, ClusterRole::Manager).as_deref(), Some("nothing-new"));
        let Applied::Raft(first) = log.write(Command::Grant { node: w1, founder: false }) else { panic!("no id") };
        assert_eq!(log.write(Command::Grant { node: w1, founder: false }), Applied::Raft(first), "asked twice");
        // docs/design/scenarios.md, E3: the node was promoted again before its Raft id was retired.
        assert_eq!((log.role(w1, ClusterRole::Worker), log.role(w1, ClusterRole::Manager)), (None, None));
        let retire = Command::Retire { node: w1, raft: first };
        assert_eq!(log.code(retire.clone()).as_deref(), Some("overtaken"));
        // docs/design/scenarios.md, E4: the Raft id was retired before the node was promoted again.
        assert_eq!((log.role(w1, ClusterRole::Worker), log.code(retire.clone())), (None, None));
        assert!(log.0.is_retired(first) && !log.0.is_retired(RaftId(1)));
        assert!(!log.0.is_retired(RaftId(log.0.applied + 1)), "not granted yet is not retired");
        assert_eq!(log.code(retire).as_deref(), Some("overtaken"), "once");
        assert_eq!(log.role(w1, ClusterRole::Manager), None);
        let Applied::Raft(second) = log.write(Command::Grant { node: w1, founder: false }) else { panic!("no id") };
        assert!(second > first);
    }

    #[test]
    fn a_node_that_joins_again_with_an_empty_directory_gets_a_new_raft_id() {
        let (mut log, [_, b, _]) = three_managers();
        let before = log.0.nodes[&b].raft.expect("an id");
        assert_eq!(log.join("m2", ClusterRole::Manager), b, "the same key is the same node");
        assert!(log.0.is_retired(before), "docs/design/scenarios.md, E12");
        let Applied::Raft(after) = log.write(Command::Grant { node: b, founder: false }) else { panic!("no id") };
        assert!(after > before);
    }
}
