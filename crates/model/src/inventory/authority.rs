//! Entries about the certificate authority. First all nodes trust a new CA in addition. Then the
//! new CA issues certificates. At the end of the rotation, the new CA is the only one.
//!
//! ```text
//! RotateCa -> Trust (old issues; both trusted) -> Issue (new issues; both trusted) -> the new one alone
//! ```
//! A certificate that is valid in one step of the rotation is also valid in the next step. So nodes
//! need not begin a step at the same time.

use super::*;
use std::collections::BTreeSet;

impl Inventory {
    /// Checks whether a CA rotation may begin. It is called before the new key is generated, and
    /// again when the entry is applied.
    pub fn may_rotate_ca(&self) -> Result<(), Refusal> {
        if let Some(next) = &self.authority.next {
            let text = format!("a CA rotation is in progress already, begun by {}", next.by);
            return Err(Refusal::new("ca-rotating", text).next("remoor key status"));
        }
        if let Some(next) = &self.gossip.next {
            let text = format!(
                "a gossip key rotation is in progress, begun by {}; only one rotation may run at a time",
                next.by
            );
            return Err(Refusal::new("key-rotating", text).next("remoor key status; then the same command"));
        }
        Ok(())
    }

    pub(super) fn rotate_ca(&mut self, at: &ApplyContext, ca_pem: &str, cross_pem: &str) -> Decision {
        self.may_rotate_ca()?;
        let former = self.authority.former.iter().map(|f| f.ca_pem.as_str());
        if former.chain([self.ca_pem.as_str()]).any(|known| known == ca_pem) {
            return Err(Refusal::new("nothing-new", "this CA is a current or former CA of the cluster"));
        }
        let authority = Arc::make_mut(&mut self.authority);
        authority.next = Some(NextCa {
            serial: at.index,
            step: CaStep::Trust,
            since: at.entry.at,
            by: at.entry.by.clone(),
            ca_pem: ca_pem.to_owned(),
            cross_pem: cross_pem.to_owned(),
            without: BTreeSet::new(),
        });
        authority.changed = at.index;
        self.note(at, None, JournalEvent::Operator { text: "a new CA goes to all nodes".to_owned() });
        Ok(Applied::Done)
    }

    /// Begins the next step of the CA rotation. It is refused unless `changed` is the index of the
    /// current CA state, because the nodes have confirmed exactly that state to the leader.
    pub(super) fn ca_step(&mut self, at: &ApplyContext, changed: u64) -> Decision {
        if self.authority.changed != changed {
            return Err(Refusal::new("outlived", "the CA rotation has moved on meanwhile"));
        }
        let authority = Arc::make_mut(&mut self.authority);
        let Some(mut next) = authority.next.take() else {
            return Err(Refusal::new("nothing-new", "no CA rotation is in progress"));
        };
        authority.changed = at.index;
        let text = match next.step {
            CaStep::Trust => {
                next.step = CaStep::Issue;
                authority.next = Some(next);
                "the new CA is trusted, and issues from now on"
            }
            CaStep::Issue => {
                let present = Arc::new(next.ca_pem);
                let ca_pem = Arc::unwrap_or_clone(std::mem::replace(&mut self.ca_pem, present));
                authority.former.insert(0, FormerCa { ca_pem, cross_pem: next.cross_pem, until: at.entry.at });
                authority.former.truncate(FORMER_MAX);
                authority.serial = next.serial;
                "the new CA is the only one from now on"
            }
        };
        self.note(at, None, JournalEvent::Operator { text: text.to_owned() });
        Ok(Applied::Done)
    }

    /// Ends the waiting of the CA rotation for the workers `without`. The rotation still waits for
    /// workers that go away later, because the operator did not name them.
    pub(super) fn finish_ca(&mut self, at: &ApplyContext, without: &BTreeSet<NodeId>) -> Decision {
        let Some(next) = &self.authority.next else {
            return Err(Refusal::new("nothing-new", "no CA rotation is in progress").next("remoor key status"));
        };
        let works = |id: &&NodeId| self.nodes.get(id).is_some_and(|n| !n.manages());
        let more: Vec<NodeId> = without.difference(&next.without).filter(works).copied().collect();
        if more.is_empty() {
            return Err(Refusal::new("nothing-new", "the rotation is not waiting for an absent worker"));
        }
        let names: Vec<&str> = more.iter().filter_map(|id| Some(self.nodes.get(id)?.name().as_str())).collect();
        let text = format!("the new CA waits no more for {}", names.join(", "));
        if let Some(next) = &mut Arc::make_mut(&mut self.authority).next {
            next.without.extend(more);
        }
        self.note(at, None, JournalEvent::Operator { text });
        Ok(Applied::Done)
    }

    /// The certificates of the trusted CAs. The issuing CA is the first.
    pub fn roots(&self) -> Vec<&str> {
        match &self.authority.next {
            None => vec![&self.ca_pem],
            Some(next) if next.step == CaStep::Trust => vec![&self.ca_pem, &next.ca_pem],
            Some(next) => vec![&next.ca_pem, &self.ca_pem],
        }
    }

    /// The certificate of the issuing CA.
    pub fn issuer(&self) -> &str {
        self.roots()[0]
    }

    /// The chain that is appended to new certificates, for nodes that know only a former CA. It
    /// goes from the issuing CA to the oldest remembered CA. Each CA in it is signed by its
    /// predecessor.
    pub fn cross_chain(&self) -> String {
        let next = self.authority.next.iter().filter(|next| next.step == CaStep::Issue).map(|n| &n.cross_pem);
        next.chain(self.authority.former.iter().map(|f| &f.cross_pem)).map(String::as_str).collect()
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

    fn new_ca(name: &str) -> Command {
        Command::RotateCa { ca_pem: name.to_owned(), cross_pem: format!("[{name} by the one before]") }
    }

    fn initial_inventory() -> Inventory {
        Inventory { ca_pem: Arc::new("A".to_owned()), cluster: "c1".into(), ..Inventory::default() }
    }

    /// Nodes that are one step of the CA rotation apart trust each other's certificates in both
    /// directions.
    #[test]
    fn neighbours_in_the_rotation_trust_each_other() {
        let mut i = initial_inventory();
        let mut states = vec![i.clone()];
        for name in ["B", "C", "D", "E"] {
            assert_eq!(apply(&mut i, new_ca(name)), None);
            states.push(i.clone());
            assert_eq!(apply(&mut i, new_ca("X")).as_deref(), Some("ca-rotating"));
            for _ in 0..2 {
                let changed = i.authority.changed;
                assert_eq!(apply(&mut i, Command::CaStep { changed: changed - 1 }).as_deref(), Some("outlived"));
                assert_eq!(apply(&mut i, Command::CaStep { changed }), None);
                states.push(i.clone());
            }
            let changed = i.authority.changed;
            assert_eq!(apply(&mut i, Command::CaStep { changed }).as_deref(), Some("nothing-new"));
        }
        for pair in states.windows(2) {
            let [before, after] = pair else { panic!("two") };
            assert!(before.roots().contains(&after.issuer()), "{:?} {:?}", before.roots(), after.roots());
            // A node that confirmed the previous step has a certificate that the next step accepts.
            assert!(after.roots().contains(&before.issuer()));
            assert!(before.authority.changed < after.authority.changed);
        }
        let last = states.last().expect("states");
        assert_eq!((last.roots(), last.authority.next.is_none()), (vec!["E"], true), "the old ones are gone");
        assert_eq!(last.authority.former.iter().map(|f| f.ca_pem.as_str()).collect::<Vec<_>>(), ["D", "C", "B"]);
        assert_eq!(
            last.cross_chain(),
            "[E by the one before][D by the one before][C by the one before]",
            "a node that knows only B trusts E by this chain; a node that knows only A must join again"
        );
    }

    #[test]
    fn the_cross_certificate_is_appended_once_the_new_ca_issues() {
        let mut i = initial_inventory();
        apply(&mut i, new_ca("B"));
        assert_eq!((i.roots(), i.issuer(), i.cross_chain().as_str()), (vec!["A", "B"], "A", ""));
        let changed = i.authority.changed;
        apply(&mut i, Command::CaStep { changed });
        assert_eq!((i.roots(), i.issuer()), (vec!["B", "A"], "B"));
        assert_eq!(i.cross_chain(), "[B by the one before]");
    }

    #[test]
    fn only_one_rotation_runs_and_only_a_running_one_can_be_finished() {
        let mut i = initial_inventory();
        let without = |ids: &[u64]| Command::FinishCa { without: ids.iter().map(|id| NodeId(*id)).collect() };
        let [worker, manager] = [("w", ClusterRole::Worker), ("m", ClusterRole::Manager)].map(|(name, role)| {
            let index = i.applied + 1;
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            let command = Command::Accept { spec, role };
            match i.apply(index, &InventoryEntry { at: Wall(index), by: "test".to_owned(), command }) {
                Applied::Node(id) => id.0,
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(apply(&mut i, without(&[worker])).as_deref(), Some("nothing-new"));
        assert_eq!(apply(&mut i, Command::RotateGossip), None);
        assert_eq!(apply(&mut i, new_ca("B")).as_deref(), Some("key-rotating"));
        for _ in 0..2 {
            let changed = i.gossip.changed;
            apply(&mut i, Command::GossipStep { changed });
        }
        assert_eq!(i.gossip.base, None, "derived from the first CA's key");
        assert_eq!(apply(&mut i, new_ca("A")).as_deref(), Some("nothing-new"));
        assert_eq!(apply(&mut i, new_ca("B")), None);
        assert_eq!(apply(&mut i, Command::RotateGossip).as_deref(), Some("ca-rotating"));
        let before = i.authority.changed;
        assert_eq!(
            apply(&mut i, without(&[manager, 999])).as_deref(),
            Some("nothing-new"),
            "a manager, and an unknown id"
        );
        assert_eq!(apply(&mut i, without(&[worker, manager])), None);
        assert_eq!(apply(&mut i, without(&[worker])).as_deref(), Some("nothing-new"));
        assert_eq!(i.authority.changed, before, "what nodes confirmed stays confirmed");
        for _ in 0..2 {
            assert!(i.authority.next.as_ref().is_some_and(|next| next.without == [NodeId(worker)].into()));
            let changed = i.authority.changed;
            apply(&mut i, Command::CaStep { changed });
        }
        assert_eq!((i.gossip.base, apply(&mut i, Command::RotateGossip)), (None, None));
        let next = i.gossip.next.as_ref().expect("one on its way");
        assert_eq!(next.base, Some(ca_id("B")), "the new gossip key cannot be derived from the old CA key");
    }
}
