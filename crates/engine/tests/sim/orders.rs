//! Tests with fixed events about operators' orders: undo, batches, the cancellation of running or
//! queued work, and a decommissioning that is revoked.

use super::host::Cut;
use super::story::Story;
use super::world::{EPOCH, World};
use remoor_model::*;

/// Sets w1 up again by an order, because its service `web` was edited by hand. Returns the attempt.
fn repair_w1(story: &mut Story) -> AttemptId {
    story.edit("w1", "web");
    story.want("w1", Trigger::Live, false);
    story.wait_until_at_rest(60);
    let w1 = story.host_index("w1");
    assert_eq!(story.world.hosts[w1].parts["web"].edits, 0, "the edit is gone");
    story.jobs("w1")[0].attempts[0].id
}

fn undo(story: &mut Story, attempt: AttemptId) -> Applied {
    let w1 = story.host_index("w1");
    let mut command = story.world.request_resetup(w1, Trigger::Live, false);
    if let Command::RequestResetup { want, .. } = &mut command {
        (want.spec.undo, want.spec.now, want.spec.force) = (Some(attempt), false, false);
    }
    let applied = story.world.write(command);
    story.secs(1);
    applied
}

fn w1(world: &World) -> &Node {
    world.state.by_name("w1").expect("w1")
}

fn is_reported_drifted(world: &World) -> bool {
    w1(world).examination.finding.as_ref().is_some_and(|f| f.verdict == Verdict::Drifted)
}

#[test]
fn an_undone_node_is_examined_and_held_until_it_is_resumed() {
    let mut story = Story::begin();
    let attempt = repair_w1(&mut story);
    assert_eq!(undo(&mut story, attempt), Applied::Done);
    story.wait_until("undone", 30, |w| w1(w).job.is_none() && w1(w).pending_resetup.is_none() && w1(w).hold.is_some());
    let at = story.host_index("w1");
    assert_eq!(story.world.hosts[at].parts["web"].edits, 7, "the edit is back");
    story.wait_until("drift is reported", 30, is_reported_drifted);
    // w1 goes away and returns with drift. The policy repairs such drift, but not after an operator
    // has undone an attempt.
    story.world.cut(at, Cut::Full, 8_000);
    story.secs(90);
    assert_eq!(story.jobs("w1").len(), 2, "the repair and its undo, no more");
    assert!(w1(&story.world).hold.as_ref().is_some_and(|h| h.why.starts_with("undone by operator")));
    let node = story.node("w1").id;
    story.order(Command::ResumeNode { node });
    story.wait_until("repaired again", 60, |w| {
        w1(w).job.is_none() && w1(w).pending_resetup.is_none() && !is_reported_drifted(w)
    });
    assert_eq!(story.world.hosts[at].parts["web"].edits, 0);
    assert_eq!(story.jobs("w1").len(), 3);
}

#[test]
fn the_examination_after_an_undo_needs_no_report_of_the_agent() {
    let mut story = Story::begin();
    let attempt = repair_w1(&mut story);
    let before = story.verdicts("w1").len();
    story.edit("w1", "web");
    // The backups of the undone attempt equal the current files, so the undo changes nothing. The
    // node is still examined after it.
    story.wait_until("drift is reported", 90, is_reported_drifted);
    undo(&mut story, attempt);
    story.wait_until("examined", 30, |w| !w1(w).examination.needs_examination && w1(w).hold.is_some());
    assert!(story.verdicts("w1").len() > before + 1);
}

#[test]
fn an_undo_that_would_have_to_wait_or_has_no_effect_is_rejected() {
    let mut story = Story::begin();
    let attempt = repair_w1(&mut story);
    let code = |applied: &Applied| applied.refusal().map(|r| r.code.clone()).unwrap_or_default();
    assert_eq!(code(&undo(&mut story, AttemptId(1))), "unknown-attempt");
    assert_eq!(undo(&mut story, attempt), Applied::Done);
    story.wait_until("open", 10, |w| w1(w).job.is_some());
    assert_eq!(code(&undo(&mut story, attempt)), "job-open");
    story.wait_until("undone", 30, |w| w1(w).job.is_none());
    let of_undo = story.jobs("w1").pop().expect("a job").attempts[0].id;
    assert_eq!(code(&undo(&mut story, of_undo)), "nothing-to-undo");
    let at = story.host_index("w1");
    story.world.cut(at, Cut::Full, 15_000);
    story.wait_until("away", 20, |w| w1(w).is_away());
    assert_eq!(code(&undo(&mut story, attempt)), "away");
    story.wait_until("back", 90, |w| w1(w).absence.is_none());
    story.want("w1", Trigger::Apply, true);
    assert_eq!(code(&undo(&mut story, attempt)), "decommissioned");
}

/// Former bug: an undo of an absent node stayed queued. It would have run after the node's return,
/// when it was outdated.
#[test]
fn an_undo_that_has_not_begun_is_dropped_when_its_node_goes_away() {
    let mut story = Story::begin();
    let attempt = repair_w1(&mut story);
    let mut command = story.world.request_resetup(story.host_index("w1"), Trigger::Live, false);
    if let Command::RequestResetup { want, .. } = &mut command {
        (want.spec.undo, want.spec.now, want.spec.force) = (Some(attempt), false, false);
    }
    assert_eq!(story.world.write(command), Applied::Done);
    let node = story.node("w1").id;
    // The absence begins before the leader can open the job of the undo.
    story.world.write(Command::AbsenceOpened {
        node,
        no: AbsenceNo(1),
        last_seen: Wall(EPOCH),
        seen_by: Vec::new(),
        gone: AbsenceKind::Away,
        planned: false,
        returned: None,
    });
    assert!(story.node("w1").pending_resetup.is_none());
    story.wait_until_at_rest(60);
    assert_eq!(story.jobs("w1").len(), 1, "the repair, and no undo of it");
}

#[test]
fn a_cancelled_task_may_finish_and_ends_at_once_when_ordered_later() {
    let mut story = Story::begin();
    story.want("w1", Trigger::Live, false);
    story.wait_until("cleanup", 20, |w| {
        w1(w).job.and_then(|j| w.state.job(j)).and_then(Job::open_attempt).is_some_and(|a| a.phase == Phase::Cleanup)
    });
    let job = w1(&story.world).job.expect("a job");
    let cancel = |now| Command::CancelJob { job, why: "cancelled".to_owned(), now };
    assert_eq!(story.world.write(cancel(false)), Applied::Done);
    assert!(!story.world.state.job(job).expect("on record").end_task_now);
    assert_eq!(story.world.write(cancel(false)).refusal().map(|r| r.code.as_str()), Some("job-closed"));
    assert_eq!(story.world.write(cancel(true)), Applied::Done);
    assert_eq!(story.world.write(cancel(true)).refusal().map(|r| r.code.as_str()), Some("job-closed"));
    story.secs(10);
    let at = story.host_index("w1");
    assert!(story.world.hosts[at].executor.runs.is_empty());
    assert!(w1(&story.world).hold.is_some() && story.jobs("w1").len() == 1);
}

/// Former bug: while the agent was down, `--force` had the effect of `--now` too. So it overrode an
/// operator's hold.
#[test]
fn force_reaches_a_node_without_its_agent_and_overrides_nothing_else() {
    let mut story = Story::begin();
    let at = story.host_index("w1");
    let node = story.node("w1").id;
    story.world.kill_agent(at, 200_000);
    story.wait_until("agent-down", 90, |w| w1(w).agent_down());
    let order = |story: &mut Story, force| {
        let mut command = story.world.request_resetup(at, Trigger::Live, false);
        if let Command::RequestResetup { want, .. } = &mut command {
            (want.spec.now, want.spec.force) = (false, force);
        }
        story.order(command);
    };
    let held = |story: &mut Story, held: bool| {
        let node = story.world.state.nodes.get_mut(&node).expect("w1");
        let hold = Hold { why: "an operator examines it".to_owned(), since: Wall(1), until: None };
        std::sync::Arc::make_mut(node).hold = held.then_some(hold);
    };
    order(&mut story, false);
    story.secs(20);
    assert!(story.jobs("w1").is_empty(), "without force it waits for the agent");
    held(&mut story, true);
    order(&mut story, true);
    story.secs(20);
    assert!(story.jobs("w1").is_empty(), "a hold is no agent");
    held(&mut story, false);
    story.wait_until("set up", 30, |w| w.state.jobs.values().any(|j| j.node == node && j.state == JobState::Done));
}

/// Former bug: an `update` without `--wait` set up all workers with a broken generation, two at a
/// time.
#[test]
fn an_update_of_several_nodes_starts_with_one_and_stops_if_it_fails() {
    let mut story = Story::begin();
    let workers: Vec<usize> = (0..9).filter(|h| story.world.hosts[*h].group == "worker").collect();
    story.world.version += 1;
    let generation = story.world.generation();
    story.order(generation);
    workers.iter().for_each(|at| story.world.hosts[*at].executor.failing = 1_000);
    let order = |story: &mut Story| {
        let orders = workers.iter().map(|at| {
            let mut order = story.world.request_resetup(*at, Trigger::Apply, false);
            if let Command::RequestResetup { want, .. } = &mut order {
                (want.spec.now, want.spec.force, want.spec.rollout, want.commission) = (false, false, true, false);
            }
            order
        });
        let batch = Command::Batch(orders.collect());
        story.order(batch);
    };
    order(&mut story);
    let held = |w: &World| w.state.jobs.values().filter(|j| j.state == JobState::Held).map(|j| j.node).next();
    story.wait_until("the first node is held", 90, |w| held(w).is_some());
    story.secs(60);
    assert_eq!(story.world.state.jobs.len(), 1, "the others wait");
    workers.iter().for_each(|at| story.world.hosts[*at].executor.failing = 0);
    let node = held(&story.world).expect("held");
    story.order(Command::ResumeNode { node });
    // After the first node was set up successfully, the other nodes follow, two at a time.
    let working = |w: &World| w.state.jobs.values().filter(|j| j.open_attempt().is_some()).count();
    story.wait_until("the first node continues", 20, |w| working(w) == 1);
    story.wait_until("two at a time", 40, |w| working(w) == 2);
    assert!(story.world.state.jobs.values().any(|j| j.state == JobState::Done));
    story.wait_until_at_rest(90);
    for at in workers {
        let name = story.world.hosts[at].name;
        assert_eq!(
            story.node(name).setup.baseline.as_ref().map(|b| b.generation),
            Some(story.world.state.current),
            "{name}"
        );
    }
}

/// The simulation found a bug: the decommissioning of a group's member was ordered, waited for the
/// quorum, and was revoked. After that, this member counted as a node that is not in service. So it
/// was set up at the same time as the group's last other member.
#[test]
fn a_member_ordered_out_and_back_in_still_counts_for_the_quorum() {
    let mut story = Story::begin();
    story.want("m2", Trigger::Apply, true);
    let out = |w: &World| w.state.by_name("m2").is_some_and(|n| n.lifecycle == Lifecycle::Decommissioned);
    story.wait_until("m2 has left", 60, out);
    story.want("m3", Trigger::Apply, true);
    story.secs(10);
    story.want("m3", Trigger::Apply, false);
    story.want("m1", Trigger::Live, false);
    story.secs(60);
    assert_eq!(story.node("m3").lifecycle, Lifecycle::Commissioning);
    assert!(story.jobs("m3").is_empty() && story.jobs("m1").is_empty(), "two are left, and both must stay");
    assert!(story.world.has_condition("m3", "waiting", "quorum"));
}
