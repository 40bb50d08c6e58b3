//! Entries about the addresses of nodes, and their effect on the desired state.

use super::*;

/// The IP address in `ip:port`, without the brackets of IPv6. The proposer has validated it.
pub fn ip_of(gossip: &str) -> Option<&str> {
    let (host, port) = gossip.rsplit_once(':')?;
    let ip = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    (!ip.is_empty() && port.parse::<u16>().is_ok()).then_some(ip)
}

impl Inventory {
    /// A node other than `node` whose recorded gossip address is `gossip`. If there are several,
    /// one that is not away is preferred.
    pub fn address_holder(&self, node: NodeId, gossip: &str) -> Option<&Node> {
        let others = self.nodes.values().map(Arc::as_ref).filter(|n| n.id != node && n.spec.gossip == gossip);
        others.min_by_key(|n| n.is_away())
    }

    /// Recorded IP addresses by node name.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.nodes.values().filter_map(|n| Some((n.name().to_string(), n.ip()?.to_string()))).collect()
    }

    /// The current generation and the index of the last address change. None if the generation was
    /// already rendered for that change.
    pub fn pending_rendering(&self) -> Option<(GenerationSeq, u64)> {
        self.generation().filter(|g| g.rendered_for < self.moved_at_index).map(|g| (g.seq, self.moved_at_index))
    }

    /// Whether the desired state differs from the provisioned one only because addresses changed,
    /// and not because of a new generation.
    pub fn only_addresses_changed(&self, node: &Node) -> bool {
        let (Some(baseline), Some(generation)) = (&node.setup.baseline, self.generation()) else { return false };
        let applied = generation.summary.hosts.get(node.name()).map(|h| h.desired);
        generation.desired_hash(node.name()).is_some_and(|now| now != baseline.desired)
            && (baseline.generation == generation.seq || applied == Some(baseline.desired))
    }

    /// The node's own address change, if it affects the node's desired state. Configuration for an
    /// old address counts as drift and is repaired with the current generation. A change without
    /// effect is dropped after rendering or adoption. So a later `apply` is not attributed to that
    /// change.
    pub fn own_address_change<'a>(&self, node: &'a Node) -> Option<&'a AddressChange> {
        node.setup.address_change.as_ref().filter(|_| self.is_outdated(node))
    }

    pub(super) fn readdress(
        &mut self,
        at: &ApplyContext,
        id: NodeId,
        api: &str,
        gossip: &str,
        over: Option<NodeId>,
    ) -> Decision {
        if ip_of(gossip).is_none() {
            return Err(Refusal::new("bad-address", format!("{gossip:?} is not ip:port")));
        }
        let known = self.node(id).ok_or_else(|| Refusal::new("unknown-node", format!("no node has the id {id}")))?;
        if (known.spec.api.as_str(), known.spec.gossip.as_str()) == (api, gossip) {
            return Err(Refusal::new("nothing-new", "the node has this address already"));
        }
        if let Some(other) = self.address_holder(id, gossip).filter(|n| !n.is_away() && Some(n.id) != over) {
            return Err(Refusal::new("address-held", format!("{gossip} is the address of {}", other.name())));
        }
        self.move_to(at, id, api, gossip)
    }

    pub(super) fn move_to(&mut self, at: &ApplyContext, id: NodeId, api: &str, gossip: &str) -> Decision {
        let changed = self.change(id)?;
        let from = std::mem::replace(&mut changed.spec.gossip, gossip.to_owned());
        changed.spec.api = api.to_owned();
        let (before, to) = (ip_of(&from), ip_of(gossip));
        if before == to {
            return Ok(Applied::Done); // only the port differs; rendering does not use it
        }
        // The findings at the old address may concern another machine.
        changed.examination.invalidated_at_index = at.index;
        changed.host_key.changed = None;
        changed.setup.address_change = match (changed.setup.address_change.take(), before) {
            (Some(moved), _) if to == Some(moved.from.as_str()) => None,
            (Some(moved), _) => Some(AddressChange { since: at.entry.at, ..moved }),
            (None, Some(before)) if changed.setup.baseline.is_some() => {
                Some(AddressChange { from: before.to_string(), since: at.entry.at })
            }
            (None, _) => None,
        };
        self.moved_at_index = at.index;
        self.note(at, Some(id), JournalEvent::Moved { from, to: gossip.to_owned() });
        Ok(Applied::Done)
    }

    pub(super) fn apply_rendering(
        &mut self,
        at: &ApplyContext,
        seq: GenerationSeq,
        moved: u64,
        hosts: &BTreeMap<NodeName, Sha256>,
        fault: Option<&str>,
    ) -> Decision {
        if seq != self.current || moved != self.moved_at_index {
            return Err(Refusal::new("overtaken", "a newer generation or address change was applied in between"));
        }
        let generation = self.generations.get_mut(&seq).map(Arc::make_mut);
        let generation = generation.ok_or_else(|| Refusal::new("no-generation", "no fleet was applied"))?;
        if generation.rendered_for >= moved {
            return Err(Refusal::new("nothing-new", "the generation was rendered for this change already"));
        }
        generation.rendered_for = moved;
        let mut changed = 0;
        if fault.is_none() {
            let before = std::mem::take(&mut generation.rendered);
            generation.rendered = hosts.clone();
            let names = generation.summary.hosts.keys();
            changed = names.filter(|name| before.get(*name) != hosts.get(*name)).count() as u32;
        }
        if fault.is_none() {
            self.forget_moves();
        }
        if changed > 0 || fault.is_some() {
            self.note(at, None, JournalEvent::Rendered { changed, fault: fault.map(str::to_owned) });
        }
        Ok(Applied::Done)
    }

    /// Drops address changes that do not affect the node's desired state, because nothing has to be
    /// repaired.
    fn forget_moves(&mut self) {
        let over =
            self.nodes.values().filter(|n| n.setup.address_change.is_some() && !self.is_outdated(n)).map(|n| n.id);
        for id in over.collect::<Vec<NodeId>>() {
            if let Some(node) = self.nodes.get_mut(&id) {
                Arc::make_mut(node).setup.address_change = None;
            }
        }
    }
}

impl Generation {
    /// Whether a fleet with this summary equals this generation, either as it was applied or as it
    /// was rendered again later.
    pub(super) fn has_summary(&self, summary: &FleetSummary) -> bool {
        let mut own = self.summary.clone();
        if own == *summary {
            return true;
        }
        for (name, host) in &mut own.hosts {
            host.desired = self.rendered.get(name).copied().unwrap_or(host.desired);
        }
        own == *summary
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

        fn readdress(&mut self, node: u64, last: u8, over: Option<u64>) -> Result<(), String> {
            let (api, gossip) = (format!("10.0.0.{last}:7947"), format!("10.0.0.{last}:7946"));
            let command = Command::Readdress { node: NodeId(node), api, gossip, over: over.map(NodeId) };
            self.write(command).refusal().map_or(Ok(()), |r| Err(r.code.clone()))
        }

        fn node(&self, id: u64) -> &Node {
            self.0.node(NodeId(id)).expect("a node")
        }

        fn previous_ip(&self, id: u64) -> Option<&str> {
            self.node(id).setup.address_change.as_ref().map(|m| m.from.as_str())
        }

        fn summary() -> FleetSummary {
            let host = |name: &str| {
                let desired = Sha256::digest(name.as_bytes());
                (NodeName::from(name), HostSummary { group: "web".into(), desired })
            };
            let groups = [("web".into(), GroupSummary::default())].into();
            FleetSummary { hosts: [host("w1"), host("w2")].into(), groups, ..FleetSummary::default() }
        }
    }

    /// Two nodes, both adopted with generation 1. The IP address of w1 (node 1) ends in .1, and
    /// that of w2 (node 2) in .2.
    fn two_nodes() -> Log {
        let mut log = Log(Inventory::default());
        for (name, last) in [("w1", 1), ("w2", 2)] {
            let spec = NodeSpec {
                name: name.into(),
                public_key: name.to_owned(),
                api: format!("10.0.0.{last}:7947"),
                gossip: format!("10.0.0.{last}:7946"),
                ..NodeSpec::default()
            };
            log.write(Command::Accept { spec, role: ClusterRole::Worker });
        }
        log.write(Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(Log::summary()) });
        for id in [1, 2] {
            let desired = log.0.desired_hash(log.node(id)).expect("desired");
            let (generation, root, blob) = (GenerationSeq(1), Sha256::default(), Sha256::default());
            let baseline = Baseline { generation, desired, root, blob, adopted: true, at: Wall(4) };
            log.write(Command::Adopt { node: NodeId(id), baseline, basis: 0 });
        }
        log
    }

    #[test]
    fn an_address_change_is_recorded_until_the_node_returns_to_its_old_address() {
        let mut log = two_nodes();
        assert_eq!(log.readdress(1, 1, None), Err("nothing-new".to_owned()));
        assert_eq!(log.readdress(1, 9, None), Ok(()));
        assert_eq!(log.readdress(1, 8, None), Ok(()));
        assert_eq!((log.previous_ip(1), log.node(1).spec.api.as_str()), (Some("10.0.0.1"), "10.0.0.8:7947"));
        assert_eq!(log.readdress(1, 1, None), Ok(()));
        assert_eq!(log.previous_ip(1), None, "the configuration was made for this address");
        let command =
            Command::Readdress { node: NodeId(1), api: String::new(), gossip: "10.0.0.1".to_owned(), over: None };
        assert!(log.write(command).refusal().is_some(), "no port");
        assert_eq!((ip_of("[fd00::1]:7946"), ip_of("10.0.0.1:7946")), (Some("fd00::1"), Some("10.0.0.1")));
        assert_eq!((ip_of(""), ip_of(":7946"), ip_of("10.0.0.1:x")), (None, None, None));
    }

    #[test]
    fn an_address_is_taken_over_only_from_a_node_that_is_away_or_elsewhere() {
        let mut log = two_nodes();
        assert_eq!(log.readdress(1, 2, None), Err("address-held".to_owned()));
        assert_eq!(log.readdress(1, 2, Some(1)), Err("address-held".to_owned()), "`over` names another node");
        let mut swapped = Log(log.0.clone());
        assert_eq!((swapped.readdress(1, 2, Some(2)), swapped.readdress(2, 1, None)), (Ok(()), Ok(())));
        log.write(Command::AbsenceOpened {
            node: NodeId(2),
            no: AbsenceNo(1),
            last_seen: Wall(1),
            seen_by: Vec::new(),
            gone: AbsenceKind::Away,
            planned: false,
            returned: None,
        });
        assert_eq!(log.readdress(1, 2, None), Ok(()));
    }

    #[test]
    fn rendering_must_match_the_last_address_change_and_makes_no_new_generation() {
        let mut log = two_nodes();
        assert_eq!(log.0.pending_rendering(), None);
        log.readdress(1, 9, None).expect("moved");
        let (seq, moved) = log.0.pending_rendering().expect("due");
        let hosts: BTreeMap<NodeName, Sha256> =
            [("w1".into(), Sha256::digest(b"w1 at 9")), ("w2".into(), Sha256::digest(b"w2 with w1 at 9"))].into();
        let rendered = |moved| Command::Rendered { generation: seq, moved, hosts: hosts.clone(), fault: None };
        assert!(log.write(rendered(moved - 1)).refusal().is_some(), "of an earlier move");
        assert_eq!(log.write(rendered(moved)), Applied::Done);
        assert!(log.write(rendered(moved)).refusal().is_some(), "once");
        assert_eq!(
            (log.0.pending_rendering(), log.0.desired_hash(log.node(2))),
            (None, hosts.get(&NodeName::from("w2")).copied())
        );
        assert!(log.0.only_addresses_changed(log.node(2)) && log.0.only_addresses_changed(log.node(1)));
        // The command contains the same fleet with the addresses already rendered. It is not a new
        // generation.
        let mut summary = Log::summary();
        for (name, host) in &mut summary.hosts {
            host.desired = hosts[name];
        }
        let again = Command::Generation { blob: Sha256::digest(b"files"), summary: Box::new(summary) };
        assert_eq!(log.write(again), Applied::Generation(seq));
        // After w1 returned to its first address, nothing differs from the applied generation.
        log.readdress(1, 1, None).expect("home");
        let (seq, moved) = log.0.pending_rendering().expect("due again");
        log.write(Command::Rendered { generation: seq, moved, hosts: BTreeMap::new(), fault: None });
        assert!(!log.0.only_addresses_changed(log.node(2)));
        assert_eq!(log.0.desired_hash(log.node(1)), Some(Sha256::digest(b"w1")));
    }

    #[test]
    fn an_address_change_without_effect_or_after_adoption_is_dropped() {
        let mut log = two_nodes();
        log.readdress(1, 9, None).expect("moved");
        let (generation, moved) = log.0.pending_rendering().expect("due");
        let mut adopted = Log(log.0.clone());
        let mut failed = Log(log.0.clone());
        let rendered = |fault| Command::Rendered { generation, moved, hosts: BTreeMap::new(), fault };
        log.write(rendered(None));
        assert_eq!(log.previous_ip(1), None);
        failed.write(rendered(Some("no".to_owned())));
        assert_eq!(failed.previous_ip(1), Some("10.0.0.1"), "nobody knows");
        let baseline = adopted.node(1).setup.baseline.clone().expect("adopted before");
        adopted.write(Command::Adopt { node: NodeId(1), baseline, basis: 0 });
        assert_eq!(adopted.previous_ip(1), None);
    }

    #[test]
    fn an_address_must_be_stable_before_an_automatic_re_setup() {
        let mut log = two_nodes();
        log.readdress(1, 9, None).expect("moved");
        log.readdress(1, 8, None).expect("moved on");
        let since = Wall(log.0.applied);
        let (generation, moved) = log.0.pending_rendering().expect("due");
        let hosts = [("w1".into(), Sha256::digest(b"w1 at 8"))].into();
        log.write(Command::Rendered { generation, moved, hosts, fault: None });
        assert_eq!(log.0.own_address_change(log.node(1)).map(|m| m.since), Some(since), "the last move counts");
        let reason = |by| Reason::new(by, "".into(), String::new(), false);
        let spec = JobSpec { reasons: vec![reason(Witness::Desired)], ..JobSpec::new(Trigger::Network) };
        let ask = |spec: &JobSpec, ms| guard::may_open(&log.0, log.node(1), spec, since.plus_ms(ms));
        let settle = log.0.limits().settle_ms;
        assert_eq!(ask(&spec, settle - 1), Err(guard::Wait::Moved));
        assert_eq!(ask(&spec, settle), Ok(()));
        let drifted = JobSpec { reasons: vec![reason(Witness::Desired), reason(Witness::Digest)], ..spec.clone() };
        assert_eq!(ask(&drifted, 0), Ok(()), "not only for the move");
        assert_eq!(ask(&JobSpec { by: Some("admin".to_owned()), ..spec }, 0), Ok(()), "an order");
    }
}
