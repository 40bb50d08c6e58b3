//! Entries about the gossip key. First all nodes accept a new key in addition to the current one.
//! Then they send with the new key. At the end of the rotation, they accept only the new key.

use super::*;

impl Inventory {
    pub(super) fn rotate_gossip(&mut self, at: &ApplyContext) -> Decision {
        if let Some(next) = &self.gossip.next {
            let text = format!("a gossip key rotation is in progress already, begun by {}", next.by);
            return Err(Refusal::new("key-rotating", text).next("remoor key status"));
        }
        if self.authority.next.is_some() {
            let text = "a CA rotation is in progress; only one rotation may run at a time";
            return Err(Refusal::new("ca-rotating", text).next("remoor key status; then the same command"));
        }
        let (since, by) = (at.entry.at, at.entry.by.clone());
        let base = (self.authority.serial > 0).then(|| ca_id(&self.ca_pem));
        self.gossip.next = Some(NextKey { serial: at.index, step: KeyStep::Insert, since, by, base });
        self.gossip.changed = at.index;
        self.note(at, None, JournalEvent::Operator { text: "a new gossip key goes to all nodes".to_owned() });
        Ok(Applied::Done)
    }

    /// Whether a removed node still has the current gossip key, and no rotation of the gossip key
    /// or the CA is in progress.
    pub fn is_gossip_rotation_due(&self) -> bool {
        let known = |removed: &RemovedRecord| removed.rotate_gossip_after > self.gossip.serial;
        let free = self.gossip.next.is_none() && self.authority.next.is_none();
        free && self.departed.removed.values().any(|removed| known(removed))
    }

    /// Begins the next step of the gossip key rotation. It is refused unless `changed` is the index
    /// of the current key state. The nodes have confirmed exactly that state to the leader.
    pub(super) fn gossip_step(&mut self, at: &ApplyContext, changed: u64) -> Decision {
        if self.gossip.changed != changed {
            return Err(Refusal::new("outlived", "the gossip key rotation has moved on meanwhile"));
        }
        let Some(next) = &mut self.gossip.next else {
            return Err(Refusal::new("nothing-new", "no gossip key rotation is in progress"));
        };
        let text = match next.step {
            KeyStep::Insert => {
                next.step = KeyStep::Use;
                "all nodes that are there have the new gossip key; it is used from now on"
            }
            KeyStep::Use => {
                (self.gossip.serial, self.gossip.base) = (next.serial, next.base);
                self.gossip.next = None;
                "the new gossip key is the only one from now on"
            }
        };
        self.gossip.changed = at.index;
        self.note(at, None, JournalEvent::Operator { text: text.to_owned() });
        Ok(Applied::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(inventory: &mut Inventory, command: Command) -> Option<String> {
        let index = inventory.applied + 1;
        let applied = inventory.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command });
        applied.refusal().map(|r| r.code.clone())
    }

    #[test]
    fn a_removal_makes_a_rotation_due_until_a_newer_key_is_in_use() {
        let mut i = crate::sample::fleet(2, 3);
        let mut names = i.nodes.values().filter(|n| !n.manages()).map(|n| n.id).collect::<Vec<_>>().into_iter();
        let mut remove = |i: &mut Inventory, rotate_gossip| {
            let node = names.next().expect("a worker");
            assert_eq!(apply(i, Command::Remove { node, force: true, rotate_gossip }), None);
        };
        remove(&mut i, false);
        assert!(!i.is_gossip_rotation_due(), "the operator kept the key");
        remove(&mut i, true);
        assert!(i.is_gossip_rotation_due());
        assert_eq!(apply(&mut i, Command::RotateGossip), None);
        assert!(!i.is_gossip_rotation_due(), "it is in progress");
        remove(&mut i, true);
        for _ in 0..2 {
            let changed = i.gossip.changed;
            assert_eq!(apply(&mut i, Command::GossipStep { changed }), None);
        }
        assert!(i.is_gossip_rotation_due(), "the node that was removed during the rotation may have its key");
        assert_eq!(apply(&mut i, Command::RotateGossip), None);
        for _ in 0..2 {
            let changed = i.gossip.changed;
            assert_eq!(apply(&mut i, Command::GossipStep { changed }), None);
        }
        assert!(!i.is_gossip_rotation_due());
    }

    /// Nodes that are one step of the gossip key rotation apart can always read each other's
    /// messages.
    #[test]
    fn neighbours_in_the_rotation_read_each_other() {
        let mut i = Inventory::default();
        let mut states = vec![i.gossip.clone()];
        for _ in 0..2 {
            assert_eq!(apply(&mut i, Command::RotateGossip), None);
            states.push(i.gossip.clone());
            assert_eq!(apply(&mut i, Command::RotateGossip).as_deref(), Some("key-rotating"));
            for _ in 0..2 {
                let changed = i.gossip.changed;
                assert_eq!(apply(&mut i, Command::GossipStep { changed: changed - 1 }).as_deref(), Some("outlived"));
                assert_eq!(apply(&mut i, Command::GossipStep { changed }), None);
                states.push(i.gossip.clone());
            }
            let changed = i.gossip.changed;
            assert_eq!(apply(&mut i, Command::GossipStep { changed }).as_deref(), Some("nothing-new"));
        }
        for pair in states.windows(2) {
            let reads = |keys: &GossipKeys, key| keys.active_keys().0 == key || keys.active_keys().1 == Some(key);
            assert!(reads(&pair[0], pair[1].active_keys().0) && reads(&pair[1], pair[0].active_keys().0), "{pair:?}");
            assert!(pair[0].changed < pair[1].changed);
        }
        assert!(states[3].active_keys().1.is_none() && states[3].serial != states[0].serial, "the old one is gone");
    }
}
