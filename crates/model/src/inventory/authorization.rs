//! Orders that another manager forwarded, or that came from an operator whose credentials can be
//! revoked. Manager and credentials are checked again when the entry is applied. The manager may
//! have been removed, or the credentials revoked, after the proposal (docs/design/scenarios.md,
//! E29).

use super::*;

impl Inventory {
    pub(super) fn decide_ordered(
        &mut self,
        at: &ApplyContext,
        via: Option<NodeId>,
        key: Option<&str>,
        command: &Command,
    ) -> Decision {
        if let Some(Err(refusal)) = via.map(|id| self.member(id)) {
            let message = format!("{}, so it cannot forward orders", refusal.message);
            return Err(Refusal { message, ..refusal });
        }
        if let Some((_, by)) = key.and_then(|key| self.revocation(key)) {
            let text = format!("the credentials of {} were revoked by {by}", at.entry.by);
            return Err(Refusal::new("revoked", text)
                .next("create new credentials as root on a manager: remoor key operator NAME"));
        }
        if matches!(command, Command::Ordered { .. }) {
            return Err(Refusal::new("ordered-twice", "an order contains another order with its own issuers"));
        }
        self.decide(&ApplyContext { command, ..*at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn apply(inventory: &mut Inventory, command: Command) -> Option<String> {
        let before = inventory.clone();
        let index = inventory.applied + 1;
        let entry = InventoryEntry { at: Wall(index * 1_000_000), by: "zoe".to_owned(), command };
        let refused = inventory.apply(index, &entry).refusal().map(|r| r.code.clone());
        if refused.is_some() {
            assert_eq!(Inventory { applied: index, ..before }, *inventory, "I12: {refused:?}");
        }
        refused
    }

    /// A cluster with the managers m1 to m3 (nodes 1 to 3) and the worker w1. The operator zoe has
    /// two sets of credentials.
    fn cluster() -> Inventory {
        let mut i = Inventory::default();
        for (name, role) in ["m1", "m2", "m3"].map(|name| (name, ClusterRole::Manager)) {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            assert_eq!(apply(&mut i, Command::Accept { spec, role }), None);
        }
        let spec = NodeSpec { name: "w1".into(), public_key: "w1".to_owned(), ..NodeSpec::default() };
        assert_eq!(apply(&mut i, Command::Accept { spec, role: ClusterRole::Worker }), None);
        for key in ["aa", "bb"] {
            let (name, key) = ("zoe".to_owned(), key.to_owned());
            assert_eq!(
                apply(
                    &mut i,
                    Command::MakeOperator {
                        name,
                        key,
                        ca: Sha256::digest(b"ca"),
                        until: Wall(u64::MAX),
                        enforce: true
                    }
                ),
                None
            );
        }
        i
    }

    fn pause(inventory: &Inventory) -> Command {
        let node = inventory.by_name("w1").expect("a node").id;
        Command::Availability { node, availability: Availability::Pause }
    }

    fn id(inventory: &Inventory, name: &str) -> Option<NodeId> {
        inventory.by_name(name).map(|n| n.id)
    }

    #[test]
    fn an_order_forwarded_by_a_removed_manager_is_refused_and_others_are_decided_normally() {
        let mut i = cluster();
        let (m2, m3, key) = (id(&i, "m2"), id(&i, "m3"), || Some("aa".to_owned()));
        let order = pause(&i);
        assert_eq!(apply(&mut i, order.clone().with_issuers(m2, key())), None);
        assert_eq!(
            apply(&mut i, Command::Resume.with_issuers(m2, None)).as_deref(),
            Some("nothing-to-resume"),
            "the order's own"
        );
        let batch = Command::Batch(vec![order.clone()]);
        assert_eq!(apply(&mut i, batch.clone().with_issuers(m2, key())), None);

        assert_eq!(apply(&mut i, Command::Role { node: m2.expect("a node"), role: ClusterRole::Worker }), None);
        assert_eq!(apply(&mut i, order.clone().with_issuers(m2, None)), None, "it is of the cluster still");
        assert_eq!(
            apply(&mut i, Command::Remove { node: m2.expect("a node"), force: true, rotate_gossip: false }),
            None
        );
        for command in
            [order.clone(), batch.clone(), Command::Role { node: m3.expect("a node"), role: ClusterRole::Worker }]
        {
            assert_eq!(apply(&mut i, command.with_issuers(m2, None)).as_deref(), Some("node-removed"));
        }
        assert_eq!(apply(&mut i, order.clone().with_issuers(Some(NodeId(999)), None)).as_deref(), Some("unknown-node"));
        let w1 = id(&i, "w1");
        assert_eq!(apply(&mut i, Command::Leave { node: w1.expect("a node") }), None);
        assert_eq!(apply(&mut i, Command::RotateGossip.with_issuers(w1, None)).as_deref(), Some("node-left"));

        assert_eq!(apply(&mut i, Command::RotateGossip.with_issuers(m3, key())), None);
        assert_eq!(apply(&mut i, Command::RevokeOperator { name: "zoe".to_owned() }.with_issuers(m3, key())), None);
        assert_eq!(apply(&mut i, Command::Resume.with_issuers(m3, key())).as_deref(), Some("revoked"));
        assert_eq!(
            apply(&mut i, Command::Resume.with_issuers(None, key())).as_deref(),
            Some("revoked"),
            "asked at the leader"
        );
        let twice = Command::Resume.with_issuers(m3, None).with_issuers(m3, None);
        assert_eq!(apply(&mut i, twice).as_deref(), Some("ordered-twice"));
        let inside = Command::Batch(vec![Command::Resume.with_issuers(m3, None)]);
        assert_eq!(apply(&mut i, inside).as_deref(), Some("not-in-batch"));
    }

    #[test]
    fn only_an_order_with_issuers_has_a_format_that_earlier_programs_refuse() {
        let format = |command: Command| {
            let entry = InventoryEntry { at: Wall(1), by: "zoe".to_owned(), command };
            let written = serde_json::to_value(&entry).expect("JSON");
            assert_eq!(serde_json::from_value::<InventoryEntry>(written.clone()).expect("read"), entry);
            written["format"].as_u64()
        };
        assert_eq!(format(Command::Resume.with_issuers(None, None)), None);
        assert_eq!(format(Command::Resume.with_issuers(Some(NodeId(2)), None)), Some(3));
        assert_eq!(format(Command::Resume.with_issuers(None, Some("aa".to_owned()))), Some(3));
        assert_eq!(Command::Resume.with_issuers(None, None), Command::Resume);
        let make = |enforce| Command::MakeOperator {
            name: "zoe".to_owned(),
            key: "aa".to_owned(),
            ca: Sha256::default(),
            until: Wall(1),
            enforce,
        };
        assert_eq!([format(make(false)), format(make(true))], [Some(2), Some(4)]);
        assert_eq!(format(make(true).with_issuers(Some(NodeId(2)), None)), Some(4));
        let remove = |rotate_gossip| Command::Remove { node: NodeId(2), force: true, rotate_gossip };
        assert_eq!([format(remove(false)), format(remove(true))], [None, Some(4)]);
        let batch = |rotate_gossip| Command::Batch(vec![Command::Resume, remove(rotate_gossip)]);
        assert_eq!([format(batch(false)), format(batch(true))], [None, Some(4)]);
        assert_eq!(format(batch(true).with_issuers(Some(NodeId(2)), None)), Some(4));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Order { via: Option<usize>, key: Option<usize>, what: usize },
        Remove(usize),
        Leave(usize),
        Join(usize),
        Revoke,
    }

    fn step() -> impl Strategy<Value = Step> {
        let order = (prop::option::of(0..4usize), prop::option::of(0..2usize), 0..4usize);
        prop_oneof![
            6 => order.prop_map(|(via, key, what)| Step::Order { via, key, what }),
            2 => (0..4usize).prop_map(Step::Remove),
            1 => (0..4usize).prop_map(Step::Leave),
            1 => (0..4usize).prop_map(Step::Join),
            1 => Just(Step::Revoke),
        ]
    }

    proptest! {
        /// After any sequence of events, an order from an issuer outside the cluster has no effect.
        /// Any other order has the effect of the same command without issuers.
        #[test]
        fn an_order_from_outside_the_cluster_changes_nothing(steps in prop::collection::vec(step(), 1..40)) {
            let mut i = cluster();
            let ids = ["m1", "m2", "m3", "w1"].map(|name| id(&i, name).expect("a node"));
            let keys = ["aa", "bb"].map(str::to_owned);
            for step in steps {
                match step {
                    Step::Order { via, key, what } => {
                        let orders = [
                            Command::Availability { node: ids[what], availability: Availability::Pause },
                            Command::Remove { node: ids[what], force: true, rotate_gossip: false },
                            Command::Role { node: ids[what], role: ClusterRole::Worker },
                            Command::RotateGossip,
                        ];
                        let (via, key) = (via.map(|at| ids[at]), key.map(|at| keys[at].clone()));
                        let out = via.is_some_and(|id| i.membership(id).is_out()) || key.as_ref().is_some_and(|k| i.revocation(k).is_some());
                        let (before, mut bare) = (i.clone(), i.clone());
                        let refused = apply(&mut i, orders[what].clone().with_issuers(via, key));
                        if out {
                            prop_assert!(refused.is_some());
                            prop_assert_eq!(Inventory { applied: i.applied, ..before }, i.clone());
                        } else {
                            prop_assert_eq!(refused, apply(&mut bare, orders[what].clone()));
                            prop_assert_eq!(&bare, &i);
                        }
                    }
                    Step::Remove(at) => drop(apply(&mut i, Command::Remove { node: ids[at], force: true, rotate_gossip: false })),
                    Step::Leave(at) => drop(apply(&mut i, Command::Leave { node: ids[at] })),
                    Step::Join(at) => {
                        let name = ["m1", "m2", "m3", "w1"][at];
                        let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
                        apply(&mut i, Command::Accept { spec, role: ClusterRole::Worker });
                    }
                    Step::Revoke => drop(apply(&mut i, Command::RevokeOperator { name: "zoe".to_owned() })),
                }
            }
        }
    }
}
