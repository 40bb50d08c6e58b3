//! Tests of removals: the nodes that are refused and why, the work that ends when a node is
//! removed, and the record that remains of it.

use super::*;

struct Log(Inventory);

impl Log {
    /// A state with the managers m1, m2 and m3 (nodes 1 to 3), and the adopted workers w1 and w2 of
    /// group web.
    fn new() -> Self {
        let mut log = Self(Inventory::default());
        for (name, role) in [("m1", ClusterRole::Manager), ("m2", ClusterRole::Manager), ("m3", ClusterRole::Manager)] {
            log.join(name, role);
        }
        for name in ["m1", "m2", "m3"] {
            let node = log.id(name);
            log.apply_ok(Command::Grant { node, founder: name == "m1" });
        }
        let mut summary = FleetSummary::default();
        summary.groups.insert("web".into(), GroupSummary::default());
        for name in ["w1", "w2"] {
            log.join(name, ClusterRole::Worker);
            summary.hosts.insert(name.into(), HostSummary { group: "web".into(), desired: Sha256::digest(b"one") });
        }
        log.apply_ok(Command::Generation { blob: Sha256::digest(b"one"), summary: Box::new(summary) });
        for name in ["w1", "w2"] {
            let node = log.id(name);
            log.apply_ok(Command::Fingerprint { node, marks: HostFingerprint::default() });
        }
        log
    }

    fn apply_at(&mut self, at: u64, command: Command) -> Applied {
        let index = self.0.applied + 1;
        self.0.apply(index, &InventoryEntry { at: Wall(at), by: "root@m1".to_owned(), command })
    }

    fn apply_ok(&mut self, command: Command) {
        let applied = self.apply_at(1, command);
        assert_eq!(applied.refusal(), None);
    }

    /// Applies the command. Returns the code of its refusal, or None if it was applied. A refusal
    /// must change nothing (I12) and must have a hint.
    fn code(&mut self, at: u64, command: Command) -> Option<String> {
        let before = self.0.clone();
        let refusal = self.apply_at(at, command).refusal().cloned()?;
        assert_eq!(Inventory { applied: before.applied, ..self.0.clone() }, before);
        assert!(refusal.next.is_some(), "{refusal:?}");
        Some(refusal.code)
    }

    fn join(&mut self, name: &str, role: ClusterRole) -> NodeId {
        let Applied::Node(id) = self.apply_at(1, accept(name, name, role)) else { panic!("{name} was not accepted") };
        id
    }

    fn id(&self, name: &str) -> NodeId {
        self.0.by_name(name).expect("a node").id
    }

    fn remove(&mut self, at: u64, name: &str, force: bool) -> Option<String> {
        let node = self.id(name);
        self.code(at, Command::Remove { node, force, rotate_gossip: false })
    }

    fn set_away(&mut self, name: &str, gone: AbsenceKind) {
        let (node, no) = (self.id(name), AbsenceNo(1));
        let (last_seen, seen_by) = (Wall(1), vec!["m1".into()]);
        self.apply_ok(Command::AbsenceOpened { node, no, last_seen, seen_by, gone, planned: false, returned: None });
    }

    fn want(&mut self, name: &str) -> Command {
        let want = JobSpec { by: Some("admin".to_owned()), now: true, force: true, ..JobSpec::new(Trigger::Live) }
            .into_request(Wall(1));
        Command::RequestResetup { node: self.id(name), want: Box::new(want) }
    }

    fn verdicts(&self, node: NodeId) -> Vec<Verdict> {
        let items = self.0.history.iter().filter(|i| i.node == Some(node));
        items
            .filter_map(|i| match &i.what {
                JournalEvent::Concluded { finding } if finding.absence == Some(AbsenceNo(1)) => {
                    Some(finding.verdict.clone())
                }
                _ => None,
            })
            .collect()
    }
}

fn accept(name: &str, key: &str, role: ClusterRole) -> Command {
    let spec = NodeSpec { name: name.into(), public_key: key.to_owned(), ..NodeSpec::default() };
    Command::Accept { spec, role }
}

#[test]
fn nodes_that_are_up_or_managers_or_away_too_briefly_are_not_removed() {
    let mut log = Log::new();
    assert_eq!(log.remove(5, "w1", false).as_deref(), Some("node-up"), "docs/design/scenarios.md, E23");
    assert_eq!(log.remove(5, "m2", false).as_deref(), Some("manager"));
    log.set_away("w1", AbsenceKind::Away);
    assert_eq!(log.remove(DOWN_MS, "w1", false).as_deref(), Some("just-gone"), "E21");
    let (node, no) = (log.id("w1"), AbsenceNo(1));
    let mut back = Log(log.0.clone());
    back.apply_ok(Command::Returned { node, no, after: HostFingerprint::default() });
    assert_eq!(back.remove(2 * DOWN_MS, "w1", false).as_deref(), Some("node-up"), "it is back");
    assert_eq!(log.remove(1 + DOWN_MS, "w1", false), None);
    log.set_away("w2", AbsenceKind::Left);
    assert_eq!(log.remove(2, "w2", false), None, "who said goodbye");
    let unseen = log.join("w3", ClusterRole::Worker);
    assert_eq!(
        log.code(2, Command::Remove { node: unseen, force: false, rotate_gossip: false }),
        None,
        "who never came"
    );
}

#[test]
fn a_raft_member_is_removed_only_after_it_left_raft() {
    let mut log = Log::new();
    let (m2, raft) = (log.id("m2"), log.0.by_name("m2").and_then(|n| n.raft).expect("an id"));
    log.apply_ok(Command::Role { node: m2, role: ClusterRole::Worker });
    assert_eq!(log.remove(5, "m2", false).as_deref(), Some("raft-member"), "E11");
    assert_eq!(log.remove(5, "m2", true), None);
    assert!(log.0.node(m2).is_some_and(|n| n.removing.is_some() && n.raft == Some(raft)));
    assert_eq!(log.remove(6, "m2", true).as_deref(), Some("nothing-new"));
    log.apply_ok(Command::Retire { node: m2, raft });
    assert_eq!(log.remove(7, "m2", true), None);
    assert!(log.0.node(m2).is_none() && log.0.is_retired(raft));
    assert_eq!(log.0.departed.removed[&m2].by, "root@m1", "who ordered it");

    // A forced removal of m3, which is still a manager, is revoked before it is complete.
    let m3 = log.id("m3");
    assert_eq!(log.remove(8, "m3", true), None);
    assert_eq!(log.0.node(m3).map(|n| (n.role, n.removing.is_some())), Some((ClusterRole::Worker, true)));
    assert_eq!(log.remove(9, "m1", true).as_deref(), Some("last-manager"));
    log.apply_ok(Command::Role { node: m3, role: ClusterRole::Manager });
    assert!(log.0.node(m3).is_some_and(|n| n.removing.is_none() && n.raft.is_some()));
}

#[test]
fn a_batch_removes_all_nodes_or_none() {
    let mut log = Log::new();
    let all = |log: &Log, names: &[&str]| {
        Command::Batch(
            names
                .iter()
                .map(|name| Command::Remove { node: log.id(name), force: true, rotate_gossip: false })
                .collect(),
        )
    };
    let too_many = all(&log, &["w1", "m1", "m2", "m3"]);
    assert_eq!(log.code(5, too_many).as_deref(), Some("last-manager"));
    let some = all(&log, &["w1", "m2", "m3"]);
    assert_eq!(log.code(5, some), None);
    assert!(log.0.by_name("w1").is_none());
    assert_eq!(log.0.nodes.values().filter(|n| n.removing.is_some()).count(), 2);
}

#[test]
fn a_removal_concludes_the_absence_and_drops_the_request() {
    let mut log = Log::new();
    log.set_away("w1", AbsenceKind::Away);
    let (w1, want) = (log.id("w1"), log.want("w1"));
    log.apply_ok(want.clone());
    assert_eq!(log.remove(50_000, "w1", false), None);
    assert_eq!(log.verdicts(w1), [Verdict::Unknown("removed".to_owned())], "I11");
    let finding = Finding { absence: Some(AbsenceNo(1)), basis: 1_000, ..sample::finding() };
    let late = [
        want,
        Command::OpenJob { node: w1, runner: "m1".into() },
        Command::Conclude { node: w1, finding: Box::new(finding) },
        Command::Returned { node: w1, no: AbsenceNo(1), after: HostFingerprint::default() },
        Command::Role { node: w1, role: ClusterRole::Manager },
        Command::Remove { node: w1, force: true, rotate_gossip: false },
        Command::Readdress { node: w1, api: "a:1".to_owned(), gossip: "10.0.0.1:1".to_owned(), over: None },
    ];
    for command in late {
        let refusal = log.apply_at(60_000, command.clone()).refusal().cloned();
        let code = refusal.map(|r| r.code);
        assert!(matches!(code.as_deref(), Some("node-removed" | "unknown-node")), "I8: {command:?}: {code:?}");
    }
    assert_eq!(log.verdicts(w1).len(), 1);
    assert_eq!(log.0.membership(w1).name().map(NodeName::as_str), Some("w1"));
    assert!(log.0.jobs.values().all(|j| j.node != w1));
}

#[test]
fn an_open_job_must_be_cancelled_and_a_removal_then_ends_its_task() {
    let mut log = Log::new();
    let (w1, want) = (log.id("w1"), log.want("w1"));
    log.apply_ok(want);
    let Applied::Job(job, _) = log.apply_at(1, Command::OpenJob { node: w1, runner: "m1".into() }) else {
        panic!("no job")
    };
    assert_eq!(log.remove(5, "w1", true).as_deref(), Some("job-open"), "I2");
    log.apply_ok(Command::CancelJob { job, why: "enough".to_owned(), now: false });
    assert!(!log.0.job(job).expect("kept").end_task_now);
    assert_eq!(log.remove(6, "w1", true), None);
    assert!(log.0.job(job).expect("kept").end_task_now, "its last task is not let finish");
}

#[test]
fn nothing_begins_on_a_node_that_is_being_removed() {
    let mut log = Log::new();
    let (m2, want) = (log.id("m2"), JobSpec { by: Some("admin".to_owned()), now: true, ..JobSpec::new(Trigger::Live) });
    assert_eq!(log.remove(5, "m2", true), None);
    let node = log.0.node(m2).expect("still there");
    let waits = FleetView::new(&log.0).obstacles(node, &want, Wall(9));
    assert!(waits.contains(&Wait::Lifecycle("being removed".to_owned())), "{waits:?}");
}

#[test]
fn a_removed_name_is_free_at_once_and_the_key_only_after_its_certificates_expired() {
    let mut log = Log::new();
    let w1 = log.id("w1");
    assert_eq!(log.remove(5, "w1", true), None);
    assert_eq!(log.0.removed_names().map(NodeName::as_str).collect::<Vec<_>>(), ["w1"]);
    let again = |key: &str| accept("w1", key, ClusterRole::Worker);
    assert_eq!(log.code(6, again("w1")).as_deref(), Some("node-removed"), "the same key");
    assert_eq!(
        log.code(6, accept("w9", "w1", ClusterRole::Worker)).as_deref(),
        Some("node-removed"),
        "by another name"
    );
    let Applied::Node(newer) = log.apply_at(7, again("another")) else { panic!("not accepted") };
    assert!(newer > w1, "an id is never given again");
    assert_eq!(log.0.removed_names().count(), 0, "another node has the name");
    assert!(log.0.pending_rendering().is_some(), "what is rendered with its address is another thing");

    assert!(log.apply_at(5 + REMOVED_MS, Command::Resume).refusal().is_some());
    assert!(log.0.departed.removed.contains_key(&w1), "what is refused changes nothing");
    let keep = Command::Maintenance { node: newer, until: None };
    assert_eq!(log.code(5 + REMOVED_MS - 1, keep.clone()), None);
    assert!(log.0.departed.removed.contains_key(&w1));
    assert_eq!(log.code(5 + REMOVED_MS, keep), None);
    assert!(log.0.departed.removed.is_empty());
}

/// The test applies arbitrary sequences of orders. A key or an id never belongs to both a node and
/// a removed one, names are consistent, one manager remains, and refused commands change nothing.
#[test]
fn a_removed_node_stays_removed_after_any_sequence_of_orders() {
    let mut removals = 0;
    for seed in 0..200u64 {
        let mut dice = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut roll = |below: u64| {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice % below
        };
        let (mut log, mut at) = (Log::new(), 10);
        for _ in 0..120 {
            at += roll(DOWN_MS);
            let node = NodeId(1 + roll(log.0.applied));
            let raft = log.0.node(node).and_then(|n| n.raft).unwrap_or(RaftId(roll(9)));
            let no = AbsenceNo(log.0.node(node).map_or(1, |n| n.absences.count.0 + 1));
            let name = format!("x{}", roll(4));
            let role = if roll(2) == 0 { ClusterRole::Manager } else { ClusterRole::Worker };
            let (last_seen, gone) = (Wall(at), if roll(2) == 0 { AbsenceKind::Away } else { AbsenceKind::Left });
            let command = match roll(7) {
                0 => Command::Remove { node, force: false, rotate_gossip: false },
                1 => Command::Remove { node, force: true, rotate_gossip: false },
                2 => Command::Role { node, role },
                3 => Command::Retire { node, raft },
                4 => Command::Grant { node, founder: false },
                5 => accept(&name, &format!("key {}", roll(8)), role),
                _ => Command::AbsenceOpened {
                    node,
                    no,
                    last_seen,
                    seen_by: Vec::new(),
                    gone,
                    planned: false,
                    returned: None,
                },
            };
            let before = log.0.clone();
            let refused = log.apply_at(at, command.clone()).refusal().is_some();
            let state = &log.0;
            if refused {
                assert_eq!(Inventory { applied: before.applied, ..state.clone() }, before, "{seed}: {command:?}");
            }
            for (id, removed) in &state.departed.removed {
                assert!(!state.nodes.contains_key(id), "{seed}: {command:?}");
                let taken = state.nodes.values().any(|n| n.spec.public_key == removed.public_key);
                assert!(!taken, "{seed}: {command:?}");
            }
            let gone: Vec<&NodeId> = before.nodes.keys().filter(|id| !state.nodes.contains_key(id)).collect();
            removals += gone.len();
            for id in gone {
                assert!(
                    state.departed.removed.contains_key(id) && before.nodes[id].raft.is_none(),
                    "{seed}: {command:?}"
                );
                assert_eq!(before.nodes[id].role, ClusterRole::Worker, "{seed}: {command:?}");
            }
            assert!(state.names.iter().all(|(name, id)| state.nodes[id].name() == name), "{seed}: {command:?}");
            assert_eq!(state.names.len(), state.nodes.len());
            assert!(state.managers().count() > 0, "{seed}: {command:?}");
        }
    }
    assert!(removals > 100, "{removals}");
}
