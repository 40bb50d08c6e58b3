//! Several orders in one entry. Either all orders are applied, or none.

use super::*;

impl Inventory {
    /// Applies the orders to a copy. The copy replaces the state only if no order was refused
    /// (invariant I12).
    pub(super) fn batch(&mut self, at: &ApplyContext, commands: &[Command]) -> Decision {
        if commands.is_empty() || commands.len() > BATCH_MAX {
            let text = format!("{} orders in one batch; 1 to {BATCH_MAX} are allowed", commands.len());
            return Err(Refusal::new("batch-size", text).next("name a group, or fewer nodes"));
        }
        let mut copy = self.clone();
        let mut seen = std::collections::BTreeSet::new();
        for command in commands {
            let Some(node) = command.in_batch() else {
                return Err(Refusal::new("not-in-batch", "an order of this kind is not allowed in a batch"));
            };
            let name = self.membership(node).name().map_or_else(|| format!("node {node}"), ToString::to_string);
            if !seen.insert(node) {
                return Err(Refusal::new("named-twice", format!("{name} is named twice")));
            }
            copy.decide(&ApplyContext { command, ..*at }).map_err(|refusal| Refusal {
                message: format!("{name}: {}; nothing was ordered", refusal.message),
                ..refusal
            })?;
        }
        *self = copy;
        Ok(Applied::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> (Inventory, Vec<NodeId>) {
        let (mut state, mut ids) = (Inventory::default(), Vec::new());
        for name in ["w1", "w2"] {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            let applied = write(&mut state, Command::Accept { spec, role: ClusterRole::Worker });
            let Applied::Node(id) = applied else { panic!("{applied:?}") };
            ids.push(id);
        }
        (state, ids)
    }

    fn write(state: &mut Inventory, command: Command) -> Applied {
        let index = state.applied + 1;
        state.apply(index, &InventoryEntry { at: Wall(index), by: "root@m1".to_owned(), command })
    }

    fn pause(node: NodeId) -> Command {
        Command::Availability { node, availability: Availability::Pause }
    }

    #[test]
    fn a_batch_is_applied_as_a_whole_or_not_at_all() {
        let (mut state, ids) = cluster();
        let before = state.clone();
        // The second order is refused, because its node has no waiting request.
        let bad = Command::Batch(vec![pause(ids[0]), Command::DropRequest { node: ids[1], why: String::new() }]);
        let applied = write(&mut state, bad);
        let refusal = applied.refusal().expect("refused");
        assert_eq!(refusal.code, "nothing-wanted");
        assert!(refusal.message.starts_with("w2: ") && refusal.message.ends_with("nothing was ordered"), "{refusal}");
        assert_eq!(Inventory { applied: before.applied, ..state.clone() }, before);
        assert_eq!(write(&mut state, Command::Batch(ids.iter().map(|id| pause(*id)).collect())), Applied::Done);
        assert!(state.nodes.values().all(|n| n.availability == Availability::Pause));
        assert_eq!(state.history.iter().filter(|h| h.index == state.applied).count(), 2);
    }

    #[test]
    fn invalid_batches_are_refused() {
        let (mut state, ids) = cluster();
        let many = (0..=BATCH_MAX as u64).map(|n| pause(NodeId(n))).collect();
        for (commands, code) in [
            (Vec::new(), "batch-size"),
            (many, "batch-size"),
            (vec![Command::Resume], "not-in-batch"),
            (vec![Command::Batch(vec![pause(ids[0])])], "not-in-batch"),
            (vec![pause(ids[0]), pause(ids[0])], "named-twice"),
            (vec![pause(ids[0]), pause(NodeId(99))], "unknown-node"),
        ] {
            let before = state.clone();
            let applied = write(&mut state, Command::Batch(commands));
            assert_eq!(applied.refusal().map(|r| r.code.as_str()), Some(code));
            assert_eq!(Inventory { applied: before.applied, ..state.clone() }, before);
        }
    }
}
