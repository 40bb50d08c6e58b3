//! Tests of leaving: the nodes that may leave, the work that ends when a node leaves, the identity
//! on return, and the final removal.

use super::*;

const DAY: u64 = 24 * 3_600_000;
const W: ClusterRole = ClusterRole::Worker;

struct Log(Inventory);

impl Log {
    /// A state with the managers m1 and m2, and the adopted worker w1 of group web.
    fn new() -> Self {
        let mut log = Self(Inventory::default());
        for (name, role) in [("m1", ClusterRole::Manager), ("m2", ClusterRole::Manager), ("w1", W)] {
            let Applied::Node(node) = log.apply_at(1, accept(name, name, role)) else {
                panic!("{name} was not accepted")
            };
            if role == ClusterRole::Manager {
                log.apply_ok(1, Command::Grant { node, founder: name == "m1" });
            }
        }
        let mut summary = FleetSummary::default();
        summary.groups.insert("web".into(), GroupSummary::default());
        summary.hosts.insert("w1".into(), HostSummary { group: "web".into(), desired: Sha256::digest(b"one") });
        log.apply_ok(1, Command::Generation { blob: Sha256::digest(b"one"), summary: Box::new(summary) });
        let node = log.id("w1");
        log.apply_ok(1, Command::Fingerprint { node, marks: HostFingerprint::default() });
        let (generation, desired, root) = (GenerationSeq(1), Sha256::digest(b"one"), Sha256::digest(b"root"));
        let baseline = Baseline { generation, desired, root, blob: root, adopted: true, at: Wall(1) };
        log.apply_ok(1, Command::Adopt { node, baseline, basis: 0 });
        log
    }

    fn apply_at(&mut self, at: u64, command: Command) -> Applied {
        let before = self.0.clone();
        let index = self.0.applied + 1;
        let applied = self.0.apply(index, &InventoryEntry { at: Wall(at), by: "leave on w1".to_owned(), command });
        if let Some(refusal) = applied.refusal() {
            assert_eq!(Inventory { applied: index, ..before }, self.0, "I12: {refusal:?}");
        }
        applied
    }

    fn apply_ok(&mut self, at: u64, command: Command) {
        let applied = self.apply_at(at, command);
        assert_eq!(applied.refusal(), None);
    }

    /// Applies the command, which must be refused. Returns the code of the refusal.
    fn code(&mut self, at: u64, command: Command) -> String {
        let applied = self.apply_at(at, command);
        applied.refusal().map_or_else(|| panic!("{applied:?}"), |refusal| refusal.code.clone())
    }

    fn id(&self, name: &str) -> NodeId {
        self.0.by_name(name).expect("a node").id
    }
}

fn spec(name: &str, key: &str) -> NodeSpec {
    let gossip = "10.0.0.1:7946".to_owned();
    NodeSpec {
        name: name.into(),
        public_key: key.to_owned(),
        machine_id: key.to_owned(),
        gossip,
        ..NodeSpec::default()
    }
}

fn accept(name: &str, key: &str, role: ClusterRole) -> Command {
    Command::Accept { spec: spec(name, key), role }
}

#[test]
fn a_node_that_left_is_not_a_node_and_nothing_runs_on_it() {
    let mut log = Log::new();
    let node = log.id("w1");
    let (no, last_seen, seen_by) = (AbsenceNo(1), Wall(1), vec!["m1".into()]);
    let absence = Command::AbsenceOpened {
        node,
        no,
        last_seen,
        seen_by,
        gone: AbsenceKind::Away,
        planned: false,
        returned: None,
    };
    log.apply_ok(2, absence.clone());
    let want = JobSpec { by: Some("admin".to_owned()), ..JobSpec::new(Trigger::Live) }.into_request(Wall(2));
    log.apply_ok(2, Command::RequestResetup { node, want: Box::new(want.clone()) });
    log.apply_ok(3, Command::Leave { node });
    assert!(log.0.node(node).is_none() && log.0.by_name("w1").is_none());
    assert!(matches!(log.0.membership(node), NodeMembership::Left(left) if left.at == Wall(3)));
    assert_eq!((log.0.membership(node).name(), log.0.id_by_name("w1")), (Some(&"w1".into()), Some(node)));
    assert_eq!(log.0.removed_names().collect::<Vec<_>>(), [&NodeName::from("w1")], "gossip knows it no more");
    // When the node leaves, its open absence gets exactly one verdict, and its waiting request is
    // dropped.
    let verdicts = log.0.history.iter().filter(|i| match &i.what {
        JournalEvent::Concluded { finding } => {
            finding.absence == Some(no) && finding.verdict == Verdict::Unknown("left".to_owned())
        }
        _ => false,
    });
    assert_eq!(verdicts.count(), 1);
    assert!(log.0.history.iter().any(|i| matches!(i.what, JournalEvent::WantDropped { .. })));
    for command in [
        absence,
        Command::RequestResetup { node, want: Box::new(want) },
        Command::OpenJob { node, runner: "m1".into() },
        Command::Role { node, role: ClusterRole::Manager },
        Command::Fingerprint { node, marks: HostFingerprint::default() },
        Command::Availability { node, availability: Availability::Pause },
    ] {
        let code = log.code(4, command.clone());
        assert!(["node-left", "unknown-node"].contains(&code.as_str()), "{command:?}: {code}");
    }
    assert_eq!(log.code(4, Command::Leave { node }), "nothing-new");
    // The generation from which the node was set up is kept.
    let other = Command::Generation { blob: Sha256::digest(b"two"), summary: Box::default() };
    log.apply_ok(5, other);
    assert!(log.0.generations.contains_key(&GenerationSeq(1)) && log.0.baselines().count() == 1);
}

#[test]
fn a_manager_cannot_leave_and_the_last_one_gets_a_hint() {
    let mut log = Log::new();
    let node = log.id("m2");
    let refusal = log.apply_at(2, Command::Leave { node }).refusal().cloned().expect("refused");
    assert_eq!((refusal.code.as_str(), refusal.message.as_str()), ("manager", "m2 is a manager"));
    assert!(refusal.next.is_some_and(|next| next.starts_with("remoor demote m2")));
    log.apply_ok(3, Command::Role { node, role: W });
    assert_eq!(log.code(4, Command::Leave { node }), "raft-member", "it votes still");
    let raft = log.0.node(node).and_then(|n| n.raft).expect("an id");
    log.apply_ok(5, Command::Retire { node, raft });
    log.apply_ok(6, Command::Leave { node });
    let node = log.id("m1");
    let refusal = log.apply_at(7, Command::Leave { node }).refusal().cloned().expect("refused");
    assert_eq!(refusal.message, "m1 is the only manager");
    assert!(refusal.next.is_some_and(|next| next.contains("remoor recover") && next.contains("just stop")));
}

#[test]
fn a_returning_node_keeps_its_identity_and_other_machines_are_refused() {
    let mut log = Log::new();
    let node = log.id("w1");
    log.apply_ok(2, Command::Availability { node, availability: Availability::Pause });
    let before = log.0.node(node).cloned().expect("a node");
    log.apply_ok(3, Command::Leave { node });
    for (name, key, wanted) in [("w1", "other", "identity-conflict"), ("w9", "w1", "identity-conflict")] {
        assert_eq!(log.code(4, accept(name, key, W)), wanted, "{name} {key}");
        assert_eq!(log.code(4, Command::Pend { spec: spec(name, key), role: W }), wanted, "{name} {key}");
    }
    let moved = NodeSpec { machine_id: "another".to_owned(), ..spec("w1", "w1") };
    assert_eq!(log.code(4, Command::Accept { spec: moved, role: W }), "identity-conflict", "another machine");

    let elsewhere = NodeSpec { gossip: "10.0.0.9:7946".to_owned(), ..spec("w1", "w1") };
    assert_eq!(log.apply_at(5, Command::Accept { spec: elsewhere.clone(), role: W }), Applied::Node(node), "no ghost");
    let after = log.0.node(node).cloned().expect("a node");
    assert_eq!(
        (after.accepted, &after.setup.baseline, after.availability),
        (Wall(1), &before.setup.baseline, Availability::Pause)
    );
    assert_eq!(
        (after.ip(), after.examination.last_identity.is_none(), after.absence.is_none()),
        (Some("10.0.0.9"), true, true)
    );
    assert!(after.examination.needs_examination, "the node is examined whatever its agent reports");
    assert!(
        log.0.departed.left.is_empty() && !log.0.membership(node).is_out() && log.0.removed_names().next().is_none()
    );
    assert_eq!(
        log.apply_at(6, Command::Accept { spec: elsewhere, role: W }),
        Applied::Node(node),
        "its answer was lost"
    );
    assert_eq!(
        log.0.pending_rendering().map(|(_, moved)| moved),
        Some(log.0.moved_at_index),
        "peers are rendered again"
    );
}

#[test]
fn a_node_that_left_is_removed_after_its_timeout_or_by_order() {
    let mut log = Log::new();
    let node = log.id("w1");
    log.apply_ok(2, Command::Leave { node });
    let forget = Command::ForgetLeft { node, since: Wall(2) };
    assert_eq!(
        (log.0.next_to_forget(Wall(1 + 7 * DAY)), log.0.next_to_forget(Wall(2 + 7 * DAY))),
        (None, Some(forget.clone()))
    );
    assert_eq!(log.code(1 + 7 * DAY, forget.clone()), "too-early");
    // The node returned and left again between the proposal of `ForgetLeft` and its application.
    log.apply_ok(3, accept("w1", "w1", W));
    assert_eq!(log.code(3 + 7 * DAY, forget.clone()), "nothing-new");
    log.apply_ok(4, Command::Leave { node });
    assert_eq!(log.code(2 + 7 * DAY, forget), "too-early", "another leaving");
    log.apply_ok(4 + 7 * DAY, Command::ForgetLeft { node, since: Wall(4) });
    assert!(log.0.departed.left.is_empty() && log.0.departed.removed[&node].name == "w1".into());
    assert_eq!(log.code(5 + 7 * DAY, accept("w1", "w1", W)), "node-removed");

    let mut log = Log::new();
    log.apply_ok(2, Command::Leave { node });
    log.apply_ok(2, Command::Remove { node, force: false, rotate_gossip: false });
    assert!(log.0.departed.left.is_empty() && log.0.departed.removed.contains_key(&node));
    let Applied::Node(new) = log.apply_at(3, accept("w1", "new", W)) else { panic!("its name is not free") };
    assert!(new > node);
}

#[test]
fn a_node_cannot_have_the_name_of_a_group() {
    let mut log = Log::new();
    let secret = Sha256([7; 32]);
    for command in [
        accept("web", "new", W),
        Command::Pend { spec: spec("web", "new"), role: W },
        Command::Invite { secret, name: "web".into(), role: W, expires: Wall(9) },
    ] {
        assert_eq!(log.code(2, command), "reserved-name");
    }
}

#[test]
fn a_node_with_an_open_job_cannot_leave() {
    let mut log = Log::new();
    let node = log.id("w1");
    let want = JobSpec { by: Some("admin".to_owned()), now: true, force: true, ..JobSpec::new(Trigger::Live) }
        .into_request(Wall(2));
    log.apply_ok(2, Command::RequestResetup { node, want: Box::new(want) });
    let applied = log.apply_at(2, Command::OpenJob { node, runner: "m1".into() });
    assert!(matches!(applied, Applied::Job(..)), "{applied:?}");
    assert_eq!(log.code(3, Command::Leave { node }), "job-open");
}
