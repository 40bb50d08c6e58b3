//! One test for each rule of the role manager. The simulation tests all rules together.

use super::*;
use remoor_model::{Applied, Command, InventoryEntry, NodeSpec, Wall};

const MANAGER: ClusterRole = ClusterRole::Manager;
const WORKER: ClusterRole = ClusterRole::Worker;
/// The waiting reason after a step that failed by [`Bench::fail`].
const FAILED: &str = "the last step failed and is tried again: nobody answers";

/// Three managers, of which the first leads, and two workers. The tests set the state of Raft and
/// gossip directly.
struct Bench {
    roles: RoleManager,
    now: Now,
    inventory: Inventory,
    raft: Membership,
    up: BTreeSet<NodeId>,
}

fn api(name: &str) -> String {
    format!("{name}:7947")
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            roles: RoleManager::default(),
            now: Now(1_000),
            inventory: Inventory::default(),
            raft: Membership { committed: true, last_log: 1_000, ..Membership::default() },
            up: BTreeSet::new(),
        };
        for name in ["m1", "m2", "m3"] {
            let node = bench.join(name, MANAGER);
            let raft = bench.grant(node);
            bench.vote(raft, name);
        }
        bench.join("w1", WORKER);
        bench.join("w2", WORKER);
        bench.raft.me = bench.id("m1");
        bench
    }

    fn write(&mut self, command: Command) -> Applied {
        let index = self.inventory.applied + 1;
        self.inventory.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command })
    }

    fn join(&mut self, name: &str, role: ClusterRole) -> NodeId {
        let spec = NodeSpec {
            name: name.into(),
            public_key: name.to_owned(),
            api: api(name),
            gossip: format!("{name}:7946"),
            ..NodeSpec::default()
        };
        let Applied::Node(node) = self.write(Command::Accept { spec, role }) else { panic!("{name} was not accepted") };
        self.up.insert(node);
        node
    }

    fn grant(&mut self, node: NodeId) -> RaftId {
        let granted = self.write(Command::Grant { node, founder: false });
        let Applied::Raft(raft) = granted else { panic!("{granted:?}") };
        raft
    }

    /// Makes the member a voter that answers and has the complete log.
    fn vote(&mut self, raft: RaftId, name: &str) {
        self.raft.learners.remove(&raft);
        self.raft.voters.insert(raft, api(name));
        self.raft.target.insert(raft);
        self.answer(raft, 0);
    }

    fn learn(&mut self, raft: RaftId, name: &str) {
        self.raft.learners.insert(raft, api(name));
    }

    fn answer(&mut self, raft: RaftId, lag: u64) {
        self.raft.heard.insert(raft);
        self.raft.matched.insert(raft, self.raft.last_log - lag);
    }

    fn silence(&mut self, name: &str) {
        let (node, raft) = (self.node(name), self.id(name));
        self.up.remove(&node);
        self.raft.heard.remove(&raft);
    }

    fn node(&self, name: &str) -> NodeId {
        self.inventory.by_name(name).expect("a node of that name").id
    }

    fn id(&self, name: &str) -> RaftId {
        self.inventory.by_name(name).and_then(|n| n.raft).expect("a Raft id")
    }

    fn ids(&self, names: &[&str]) -> BTreeSet<RaftId> {
        names.iter().map(|name| self.id(name)).collect()
    }

    fn role(&mut self, name: &str, role: ClusterRole) {
        let node = self.node(name);
        assert_eq!(self.write(Command::Role { node, role }).refusal(), None);
    }

    fn step(&mut self) -> Option<RoleStep> {
        self.roles.step(self.now, &self.inventory, &self.raft, &self.up)
    }

    fn step_after(&mut self, ms: u64) -> Option<RoleStep> {
        self.now = self.now.plus_ms(ms);
        self.step()
    }

    /// Finishes the current step and returns the next one.
    fn finish(&mut self) -> Option<RoleStep> {
        self.roles.finish_step(self.now, Ok(()));
        self.step()
    }

    fn fail(&mut self) -> Option<RoleStep> {
        self.roles.finish_step(self.now, Err("nobody answers".to_owned()));
        self.step()
    }

    fn wait(&self, name: &str) -> Option<&str> {
        self.roles.waits(RoleSubject::Node(self.node(name)))
    }

    fn set(&self, voters: &[&str], about: &str) -> Option<RoleStep> {
        Some(RoleStep::SetVoters { voters: self.ids(voters), raft: self.id(about) })
    }

    /// A promoted worker that has a Raft id but is not a member of Raft yet.
    fn with_promoted(name: &str) -> (Self, RaftId) {
        let mut bench = Self::new();
        bench.role(name, MANAGER);
        let raft = bench.grant(bench.node(name));
        (bench, raft)
    }
}

#[test]
fn no_step_if_all_roles_are_as_desired() {
    let mut bench = Bench::new();
    assert_eq!(bench.step(), None);
    assert!(["m1", "m2", "m3", "w1", "w2"].iter().all(|name| bench.wait(name).is_none()));
}

#[test]
fn a_promotion_grants_an_id_then_adds_a_learner_then_a_voter() {
    let mut bench = Bench::new();
    bench.role("w1", MANAGER);
    let node = bench.node("w1");
    assert_eq!(bench.step(), Some(RoleStep::Grant { node }));
    let raft = bench.grant(node);
    assert_eq!(bench.finish(), Some(RoleStep::Enlist { node, raft, addr: api("w1") }));
    bench.learn(raft, "w1");
    assert_eq!(bench.finish(), None);
    assert_eq!(bench.wait("w1"), Some("its manager service does not answer"));
    bench.answer(raft, LAG_MAX + 1);
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("w1"), Some("catching up, 101 entries behind"));
    bench.answer(raft, LAG_MAX);
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("w1"), Some("caught up; becomes a voter after 10 s without lag"));
    assert_eq!(bench.step_after(STEADY_MS - 1), None);
    assert_eq!(bench.step_after(1), bench.set(&["m1", "m2", "m3", "w1"], "w1"));
    bench.vote(raft, "w1");
    assert_eq!(bench.finish(), None);
    assert_eq!(bench.wait("w1"), None);
}

#[test]
fn a_learner_that_lags_or_is_silent_starts_its_waiting_time_again() {
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.learn(raft, "w1");
    bench.answer(raft, 0);
    assert_eq!(bench.step(), None);
    assert_eq!(bench.step_after(STEADY_MS - 1), None);
    bench.answer(raft, LAG_MAX + 1);
    assert_eq!(bench.step_after(500), None, "late by one entry");
    bench.answer(raft, 0);
    assert_eq!(bench.step_after(500), None);
    assert_eq!(bench.step_after(STEADY_MS - 1), None);
    bench.raft.heard.remove(&raft);
    assert_eq!(bench.step_after(500), None, "silent for a moment");
    bench.answer(raft, 0);
    assert_eq!(bench.step_after(500), None);
    assert_eq!(bench.step_after(STEADY_MS), bench.set(&["m1", "m2", "m3", "w1"], "w1"));
}

#[test]
fn an_absent_node_gets_an_id_and_is_waited_for() {
    let mut bench = Bench::new();
    bench.role("w1", MANAGER);
    let node = bench.node("w1");
    bench.up.remove(&node);
    assert_eq!(bench.step(), Some(RoleStep::Grant { node }));
    let raft = bench.grant(node);
    assert_eq!(bench.finish(), None);
    assert_eq!(bench.wait("w1"), Some("it is away"));
    bench.up.insert(node);
    assert_eq!(bench.step(), Some(RoleStep::Enlist { node, raft, addr: api("w1") }));
}

#[test]
fn a_changed_member_address_is_set_in_raft_once_the_node_is_up() {
    let mut bench = Bench::new();
    let (node, raft) = (bench.node("m2"), bench.id("m2"));
    let (addr, gossip) = ("m2:8000".to_owned(), "m2:8001".to_owned());
    bench.write(Command::Readdress { node, api: addr.clone(), gossip, over: None });
    bench.up.remove(&node);
    assert_eq!(bench.step(), None);
    bench.up.insert(node);
    assert_eq!(bench.step(), Some(RoleStep::Readdress { raft, addr: addr.clone() }));
    bench.raft.voters.insert(raft, addr);
    assert_eq!(bench.finish(), None);
    // A learner with a changed address gets the new address before it becomes a voter.
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.raft.learners.insert(raft, "elsewhere:1".to_owned());
    bench.answer(raft, 0);
    assert_eq!(bench.step(), Some(RoleStep::Readdress { raft, addr: api("w1") }));
}

#[test]
fn a_follower_leaves_raft_before_its_id_is_retired() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    let (node, raft) = (bench.node("m3"), bench.id("m3"));
    assert_eq!(bench.step(), bench.set(&["m1", "m2"], "m3"));
    bench.raft.voters.remove(&raft);
    bench.raft.target.remove(&raft);
    assert_eq!(bench.finish(), Some(RoleStep::Retire { node, raft }));
    assert_eq!(bench.write(Command::Retire { node, raft }).refusal(), None);
    assert_eq!(bench.finish(), None);
}

#[test]
fn a_node_is_removed_after_it_left_raft_and_its_id_is_retired() {
    let mut bench = Bench::new();
    let (node, raft) = (bench.node("m3"), bench.id("m3"));
    assert_eq!(bench.write(Command::Remove { node, force: true, rotate_gossip: false }).refusal(), None);
    assert_eq!(bench.step(), bench.set(&["m1", "m2"], "m3"));
    bench.raft.voters.remove(&raft);
    bench.raft.target.remove(&raft);
    assert_eq!(bench.finish(), Some(RoleStep::Retire { node, raft }));
    assert_eq!(bench.write(Command::Retire { node, raft }).refusal(), None);
    assert_eq!(bench.finish(), Some(RoleStep::Remove { node }));
    assert_eq!(bench.write(Command::Remove { node, force: true, rotate_gossip: false }).refusal(), None);
    assert_eq!(bench.finish(), None);
    assert!(bench.inventory.departed.removed.contains_key(&node));
}

#[test]
fn a_leader_hands_over_to_the_answering_voter_with_the_most_log() {
    let mut bench = Bench::new();
    bench.role("w1", MANAGER);
    let raft = bench.grant(bench.node("w1"));
    bench.vote(raft, "w1");
    bench.role("w2", MANAGER);
    let other = bench.grant(bench.node("w2"));
    bench.vote(other, "w2");
    // w1 has the complete log but does not answer. m3 lacks 3 entries, w2 lacks 5 and m2 lacks 9.
    bench.silence("w1");
    bench.answer(bench.id("m2"), 9);
    bench.answer(bench.id("m3"), 3);
    bench.role("m1", WORKER);
    let (m2, m3) = (bench.id("m2"), bench.id("m3"));
    bench.answer(other, 5);
    assert_eq!(bench.step(), Some(RoleStep::HandOver { to: m3 }));
    assert_eq!(bench.fail(), Some(RoleStep::HandOver { to: other }), "the next one is asked at once");
    assert_eq!(bench.fail(), Some(RoleStep::HandOver { to: m2 }));
    let all_but_the_leader = bench.set(&["m2", "m3", "w1", "w2"], "m1");
    assert_eq!(bench.fail(), all_but_the_leader, "all declined: by the change itself");
}

#[test]
fn a_voter_that_declined_is_asked_again_after_the_demotion_was_revoked() {
    let mut bench = Bench::new();
    let (m2, m3) = (bench.id("m2"), bench.id("m3"));
    bench.role("m1", WORKER);
    assert_eq!(bench.step(), Some(RoleStep::HandOver { to: m2 }));
    assert_eq!(bench.fail(), Some(RoleStep::HandOver { to: m3 }));
    bench.role("m1", MANAGER);
    assert_eq!(bench.finish(), None);
    bench.role("m1", WORKER);
    assert_eq!(bench.step(), Some(RoleStep::HandOver { to: m2 }));
}

#[test]
fn a_leader_leaves_last_and_hands_over_only_to_a_voter_that_stays() {
    let mut bench = Bench::new();
    bench.answer(bench.id("m3"), 7);
    bench.role("m2", WORKER);
    bench.role("m1", WORKER);
    let (m2, m3) = (bench.id("m2"), bench.id("m3"));
    assert_eq!(bench.step(), bench.set(&["m1", "m3"], "m2"), "first the follower, though it has more of the log");
    assert_eq!(bench.wait("m1"), Some("one change of managers at a time"));
    bench.raft.voters.remove(&m2);
    bench.raft.target.remove(&m2);
    assert_eq!(bench.finish(), Some(RoleStep::HandOver { to: m3 }));
}

#[test]
fn dead_voters_are_demoted_first() {
    let mut bench = Bench::new();
    bench.silence("m3");
    bench.role("m2", WORKER);
    bench.role("m3", WORKER);
    assert_eq!(bench.step(), bench.set(&["m1", "m2"], "m3"));
}

#[test]
fn no_change_begins_that_would_cost_the_quorum() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    bench.silence("m2");
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("m3"), Some("waiting for quorum, 1 of 2 managers answer"), "docs/design/scenarios.md, E10");
    bench.silence("m3");
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("m3"), Some("waiting for quorum, 1 of 3 managers answer"));
    // Only one of three voters answers, so the promotion of w1 cannot be committed.
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.learn(raft, "w1");
    bench.answer(raft, 0);
    bench.silence("m2");
    bench.silence("m3");
    assert_eq!(bench.step(), None);
    assert_eq!(bench.step_after(STEADY_MS), None);
    assert_eq!(bench.wait("w1"), Some("waiting for quorum, 1 of 3 managers answer"));
    bench.answer(bench.id("m2"), 0);
    assert_eq!(bench.step(), bench.set(&["m1", "m2", "m3", "w1"], "w1"));
}

#[test]
fn a_blocked_demotion_does_not_block_another_one() {
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.vote(raft, "w1");
    bench.silence("m3");
    bench.silence("w1");
    bench.answer(bench.id("m2"), 0);
    // Two of four voters answer, so no change can be committed. Both demotions wait for the quorum.
    bench.role("m3", WORKER);
    bench.role("m2", WORKER);
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("m2"), Some("waiting for quorum, 2 of 4 managers answer"));
    bench.answer(raft, 0);
    assert_eq!(bench.step(), bench.set(&["m1", "m2", "w1"], "m3"));
}

#[test]
fn the_only_voter_stays_until_another_one_votes() {
    let (mut bench, raft) = Bench::with_promoted("w1");
    for name in ["m1", "m2", "m3"] {
        bench.role(name, WORKER);
    }
    let lonely = bench.ids(&["m1"]);
    bench.raft.voters.retain(|id, _| lonely.contains(id));
    bench.learn(raft, "w1");
    while matches!(bench.step(), Some(RoleStep::Retire { node, raft }) if bench.write(Command::Retire { node, raft }).refusal().is_none())
    {
        bench.roles.finish_step(bench.now, Ok(()));
    }
    assert_eq!(bench.wait("m1"), Some("it is the only voter"));
    bench.vote(raft, "w1");
    assert_eq!(bench.step(), Some(RoleStep::HandOver { to: raft }));
}

#[test]
fn an_answering_manager_keeps_its_vote_until_its_replacements_are_voters() {
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.role("m3", WORKER);
    bench.learn(raft, "w1");
    bench.answer(raft, 500);
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("m3"), Some("it keeps its vote until the promoted managers are voters"));
    let mut dead = Bench {
        roles: RoleManager::default(),
        raft: bench.raft.clone(),
        inventory: bench.inventory.clone(),
        ..Bench::new()
    };
    dead.silence("m3");
    assert_eq!(dead.step(), dead.set(&["m1", "m2"], "m3"), "a dead voter is not kept");
    // The demotion of m3 does not wait for w1, because w1 does not answer any more.
    bench.silence("w1");
    assert_eq!(bench.step(), bench.set(&["m1", "m2"], "m3"));
}

#[test]
fn a_joint_configuration_is_finished_with_exactly_its_target() {
    let mut bench = Bench::new();
    let m3 = bench.id("m3");
    bench.raft.joint = true;
    bench.raft.target = bench.ids(&["m1", "m2"]);
    // m3 is to be a manager again. Its unfinished removal is still completed before other steps.
    bench.role("w1", MANAGER);
    bench.role("m2", WORKER);
    assert_eq!(bench.step(), bench.set(&["m1", "m2"], "m3"));
    let half = Some("waiting until an unfinished change of managers is completed");
    assert_eq!((bench.wait("w1"), bench.wait("m2"), bench.wait("m3")), (half, half, None));
    assert_eq!(bench.fail(), None);
    assert_eq!(bench.step_after(RETRY_MS - 1), None, "Raft takes no other change");
    assert_eq!(bench.step_after(1), bench.set(&["m1", "m2"], "m3"));
    // If the unfinished change adds a member, the step is about that member.
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.vote(raft, "w1");
    bench.raft.joint = true;
    assert_eq!(bench.step(), bench.set(&["m1", "m2", "m3", "w1"], "w1"));
    assert_ne!(raft, m3);
}

#[test]
fn an_uncommitted_membership_is_waited_for() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    bench.role("w1", MANAGER);
    bench.raft.committed = false;
    assert_eq!(bench.step(), None);
    let last = Some("waiting until the last change of managers is committed");
    assert_eq!((bench.wait("m3"), bench.wait("w1"), bench.wait("m2")), (last, last, None));
    bench.raft.committed = true;
    assert!(bench.step().is_some());
}

#[test]
fn members_without_a_node_are_removed() {
    let mut bench = Bench::new();
    let (learner, voter) = (RaftId(400), RaftId(401));
    bench.learn(learner, "gone");
    bench.vote(voter, "gone");
    assert_eq!(bench.step(), Some(RoleStep::RemoveLearner { raft: learner }), "docs/design/scenarios.md, E2");
    bench.raft.learners.clear();
    let three = bench.ids(&["m1", "m2", "m3"]);
    assert_eq!(bench.finish(), Some(RoleStep::SetVoters { voters: three, raft: voter }));
    // The removal of the orphan would cost the quorum, so it waits. The waiting reason is stored
    // for the orphan itself.
    for name in ["m2", "m3"] {
        bench.silence(name);
    }
    assert_eq!(bench.finish(), None);
    assert_eq!(
        bench.roles.waits(RoleSubject::Orphan(voter)),
        Some("waiting for quorum, 2 of 4 managers answer"),
        "seen by whoever asks for it"
    );
}

#[test]
fn a_node_that_joined_again_is_removed_under_its_old_id_and_added_under_a_new_one() {
    let mut bench = Bench::new();
    let (node, old) = (bench.node("m2"), bench.id("m2"));
    bench.raft.heard.remove(&old);
    assert_eq!(bench.join("m2", MANAGER), node);
    assert_eq!(bench.step(), Some(RoleStep::Grant { node }));
    let raft = bench.grant(node);
    assert_eq!(bench.finish(), Some(RoleStep::Enlist { node, raft, addr: api("m2") }));
    bench.learn(raft, "m2");
    bench.answer(raft, 0);
    let without = Some(RoleStep::SetVoters { voters: bench.ids(&["m1", "m3"]), raft: old });
    assert_eq!(bench.finish(), without, "docs/design/scenarios.md, E12");
}

#[test]
fn a_step_that_fails_does_not_starve_the_others() {
    let mut bench = Bench::new();
    for name in ["w1", "w2"] {
        bench.role(name, MANAGER);
        bench.grant(bench.node(name));
    }
    bench.role("m3", WORKER);
    let (w1, w2) = (bench.node("w1"), bench.node("w2"));
    let enlists =
        |step: &Option<RoleStep>, whom: NodeId| matches!(step, Some(RoleStep::Enlist { node, .. }) if *node == whom);
    // The steps for w1 and w2 fail, each after the pause of the other step is over. If only these
    // two were retried, they would block the third step.
    let first = bench.step();
    assert!(enlists(&first, w1));
    bench.now = bench.now.plus_ms(RETRY_MS + 1);
    let second = bench.fail();
    assert!(enlists(&second, w2), "{second:?}");
    assert_eq!(bench.wait("w1"), Some(FAILED));
    bench.now = bench.now.plus_ms(RETRY_MS + 1);
    assert_eq!(bench.fail(), bench.set(&["m1", "m2"], "m3"), "before the first is tried again");
    assert_eq!(bench.wait("w1"), Some(FAILED), "which is worth more than whose turn it is");
    let third = bench.finish();
    assert!(matches!(third, Some(RoleStep::SetVoters { .. })), "{third:?}");
}

#[test]
fn a_failed_step_is_retried_after_a_pause() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    let step = bench.step();
    assert_eq!(step, bench.set(&["m1", "m2"], "m3"));
    assert_eq!(bench.fail(), None);
    assert_eq!(bench.wait("m3"), Some(FAILED));
    assert_eq!(bench.step_after(RETRY_MS - 1), None);
    assert_eq!(bench.step_after(1), step);
    assert_eq!(bench.wait("m3"), Some(FAILED), "while it is tried again, too");
    let gone = bench.id("m3");
    bench.raft.voters.remove(&gone);
    bench.raft.target.remove(&gone);
    bench.finish();
    assert_eq!(bench.wait("m3"), None);
}

#[test]
fn an_unfinished_change_that_fails_shows_the_reason() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    let going = bench.id("m3");
    bench.raft.joint = true;
    bench.raft.target.remove(&going);
    assert!(matches!(bench.step(), Some(RoleStep::SetVoters { .. })));
    assert_eq!(bench.wait("m3"), Some("waiting until an unfinished change of managers is completed"));
    assert_eq!(bench.fail(), None);
    assert_eq!(bench.wait("m3"), Some(FAILED));
}

#[test]
fn a_node_without_a_valid_certificate_is_not_enlisted() {
    let (mut bench, _) = Bench::with_promoted("w1");
    let node = bench.node("w1");
    bench.write(Command::CertificateExpired { node });
    assert_eq!(bench.step(), None);
    assert_eq!(bench.wait("w1"), Some("its certificate is no longer valid; next: remoor accept w1"));
    bench.write(Command::CertificateRenewed { node });
    assert!(matches!(bench.step(), Some(RoleStep::Enlist { .. })));
}

#[test]
fn one_change_runs_at_a_time_and_a_lost_one_is_retried() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    bench.role("w1", MANAGER);
    let node = bench.node("w1");
    assert_eq!(bench.step(), Some(RoleStep::Grant { node }));
    assert_eq!(bench.step(), None);
    assert_eq!(bench.step_after(LOST_MS), None);
    assert_eq!(bench.step_after(1), bench.set(&["m1", "m2"], "m3"), "no answer is a failure");
    assert_eq!(bench.step_after(LOST_MS), None);
    assert_eq!(bench.step_after(1), Some(RoleStep::Grant { node }), "and a failure is tried again");
}

#[test]
fn a_handover_without_an_answer_counts_as_declined() {
    let mut bench = Bench::new();
    bench.role("m1", WORKER);
    let (m2, m3) = (bench.id("m2"), bench.id("m3"));
    assert_eq!(bench.step(), Some(RoleStep::HandOver { to: m2 }));
    assert_eq!(bench.step_after(LOST_MS + 1), Some(RoleStep::HandOver { to: m3 }));
}

#[test]
fn a_revoked_promotion_makes_no_voter_and_needs_no_quorum() {
    // The promotion is revoked before any step (docs/design/scenarios.md, E6).
    let mut bench = Bench::new();
    bench.role("w1", MANAGER);
    bench.role("w1", WORKER);
    assert_eq!(bench.step(), None);
    // If w1 has a Raft id that was never a member of Raft, the id is retired.
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.role("w1", WORKER);
    let node = bench.node("w1");
    assert_eq!(bench.step(), Some(RoleStep::Retire { node, raft }), "docs/design/scenarios.md, E1");
    // If w1 is a learner that is almost a voter, the learner is removed, even without a quorum.
    let (mut bench, raft) = Bench::with_promoted("w1");
    bench.learn(raft, "w1");
    bench.answer(raft, 0);
    assert_eq!(bench.step(), None);
    bench.silence("m2");
    bench.silence("m3");
    bench.role("w1", WORKER);
    assert_eq!(bench.step_after(STEADY_MS), Some(RoleStep::RemoveLearner { raft }));
    bench.raft.learners.clear();
    let node = bench.node("w1");
    assert_eq!(bench.finish(), Some(RoleStep::Retire { node, raft }));
}

#[test]
fn a_demotion_revoked_in_time_needs_no_step() {
    let mut bench = Bench::new();
    bench.role("m3", WORKER);
    bench.role("m3", MANAGER);
    assert_eq!(bench.step(), None, "docs/design/scenarios.md, E3");
    // m3 is removed from Raft and then promoted again. It rejoins Raft under its current id.
    bench.role("m3", WORKER);
    let (node, raft) = (bench.node("m3"), bench.id("m3"));
    assert!(matches!(bench.step(), Some(RoleStep::SetVoters { .. })));
    bench.raft.voters.remove(&raft);
    bench.raft.target.remove(&raft);
    bench.role("m3", MANAGER);
    assert_eq!(bench.finish(), Some(RoleStep::Enlist { node, raft, addr: api("m3") }));
}
