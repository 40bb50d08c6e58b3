//! Tests with fixed events about managers that can't reach a node that is in gossip
//! (docs/design/scenarios.md, A04).

use super::host::Cut;
use super::story::Story;
use super::world::World;
use remoor_engine::Presence;
use remoor_model::*;

fn has_condition_while_alive(world: &World, name: &str, is: &str, why: &str) -> bool {
    stays_alive(world, name);
    world.has_condition(name, is, why)
}

fn stays_alive(world: &World, name: &str) {
    let presence = world.leader.as_ref().map(|l| l.engine.presence_of(world.state.by_name(name).expect("a node")));
    assert!(presence.is_none_or(|p| p == Presence::Alive), "{name} stays alive");
}

#[test]
fn a_leader_that_cannot_reach_a_node_reports_it_and_hands_the_work_over() {
    let mut story = Story::begin();
    let (w1, old) = (story.host_index("w1"), story.leader());
    let name = story.world.hosts[old].name;
    story.world.lose_reachability(w1, &[old], 600_000);
    story.wait_until("it is said", 20, |w| {
        has_condition_while_alive(w, "w1", "unreachable-from", &format!("{name} since Mon"))
    });
    assert!(story.jobs("w1").is_empty() && story.verdicts("w1").is_empty());
    story.edit("w1", "web");
    story.want("w1", Trigger::Live, false);
    story.wait_until("the job is done", 60, |w| w.state.jobs.values().any(|j| j.state == JobState::Done));
    let jobs = story.jobs("w1");
    assert_eq!((jobs.len(), jobs[0].attempts.len(), jobs[0].failures), (1, 1, 0));
    assert_eq!(jobs[0].attempts[0].runner, story.world.hosts[story.leader()].name.into());
    assert!(story.leader() != old && jobs[0].attempts[0].runner.as_str() != name);
    story.wait_until("it is still said", 20, |w| has_condition_while_alive(w, "w1", "unreachable-from", name));
    assert_eq!(story.world.outcome.fired.get("leadership handed over for reachability"), Some(&1));
}

#[test]
fn a_job_whose_node_no_manager_reaches_waits_without_failing() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    story.edit("w1", "web");
    story.world.lose_reachability(w1, &[0, 1, 2], 600_000);
    story.wait_until("all miss it", 30, |w| {
        ["m1", "m2", "m3"].iter().all(|m| has_condition_while_alive(w, "w1", "unreachable-from", m))
    });
    story.want("w1", Trigger::Live, false);
    story.wait_until("it is blocked", 15, |w| has_condition_while_alive(w, "w1", "blocked", "no route to w1"));
    story.secs(60);
    assert!(has_condition_while_alive(&story.world, "w1", "blocked", "no route to w1"));
    assert!(story.jobs("w1").is_empty() && story.node("w1").failed.is_none());
    story.world.hosts[w1].unreachable_from.remove(&2);
    story.wait_until("the job is done", 60, |w| w.state.jobs.values().any(|j| j.state == JobState::Done));
    assert_eq!(story.jobs("w1")[0].attempts[0].runner, "m3".into());
    story.world.hosts[w1].unreachable_from.clear();
    story.wait_until_at_rest(30);
    story.wait_until("all managers reach it", 20, |w| !has_condition_while_alive(w, "w1", "unreachable-from", ""));
}

/// Two nodes need work at the same time. The leader reaches only one of them, and the other
/// managers reach only the other one. The leadership must not be transferred for the work on one
/// node while an attempt runs on the other node.
#[test]
fn work_that_the_leader_can_start_begins_before_a_leadership_transfer() {
    let mut story = Story::begin();
    let (w1, x1, old) = (story.host_index("w1"), story.host_index("x1"), story.leader());
    story.world.lose_reachability(w1, &[old], 600_000);
    story.world.lose_reachability(x1, &[(old + 1) % 3, (old + 2) % 3], 600_000);
    story.wait_until("a manager does not reach w1", 30, |w| has_condition_while_alive(w, "w1", "unreachable-from", ""));
    story.secs(30);
    let wants = [w1, x1].map(|at| match story.world.request_resetup(at, Trigger::Live, false) {
        Command::RequestResetup { node, mut want } => {
            (want.spec.now, want.spec.force) = (false, false);
            Command::RequestResetup { node, want }
        }
        other => other,
    });
    story.order(Command::Batch(wants.into()));
    let done = |w: &World| w.state.jobs.values().filter(|j| j.state == JobState::Done).count() == 2;
    story.wait_until("both jobs are done", 300, done);
    for name in ["w1", "x1"] {
        let jobs = story.jobs(name);
        assert_eq!((jobs.len(), jobs[0].attempts.len(), jobs[0].failures), (1, 1, 0), "{name}: {:?}", jobs[0].attempts);
    }
    assert_eq!(story.jobs("x1")[0].attempts[0].runner.as_str(), story.world.hosts[old].name);
    assert_eq!(story.world.outcome.fired.get("leadership handed over for reachability"), Some(&1));
}

#[test]
fn a_job_whose_node_becomes_unreachable_continues_from_another_manager() {
    let mut story = Story::begin();
    let (w1, old) = (story.host_index("w1"), story.leader());
    story.edit("w1", "web");
    story.want("w1", Trigger::Live, false);
    story.wait_until("an attempt runs", 20, |w| w.state.jobs.values().any(|j| j.open_attempt().is_some()));
    story.world.lose_reachability(w1, &[old], 600_000);
    story.wait_until("the job is done", 90, |w| w.state.jobs.values().any(|j| j.state == JobState::Done));
    let jobs = story.jobs("w1");
    assert_eq!((jobs.len(), jobs[0].failures), (1, 0));
    let runners: Vec<&str> = jobs[0].attempts.iter().map(|a| a.runner.as_str()).collect();
    assert_eq!(runners[0], story.world.hosts[old].name);
    assert!(runners.len() == 2 && runners[1] != runners[0], "{runners:?}");
}

#[test]
fn a_returning_node_is_examined_by_a_manager_that_reaches_it() {
    let mut story = Story::begin();
    let (w1, old) = (story.host_index("w1"), story.leader());
    story.world.cut(w1, Cut::Full, 15_000);
    story.world.lose_reachability(w1, &[old], 600_000);
    story.wait_until("away", 10, |w| w.state.by_name("w1").is_some_and(Node::is_away));
    story.wait_until("a verdict", 60, |w| w.state.by_name("w1").is_some_and(|n| n.absence.is_none()));
    let verdict = story.verdict("w1");
    assert_eq!((verdict.cause, verdict.verdict), (Some(AbsenceCause::Network), Verdict::Same));
    assert_eq!(story.leader(), old, "an examination needs no leadership transfer");
}
