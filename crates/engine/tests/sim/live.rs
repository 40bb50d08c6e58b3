//! Simulations with fixed events, of nodes that were never away. The tests check the reports of
//! their agents' checks, and the times at which the leader examines such nodes.

use super::story::Story;
use super::world::World;
use remoor_model::*;

fn finding<'a>(world: &'a World, name: &str) -> Option<&'a Finding> {
    world.state.by_name(name).and_then(|n| n.examination.finding.as_ref())
}

fn has_warning(world: &World, name: &str) -> bool {
    finding(world, name).is_some_and(|f| f.verdict == Verdict::Same && f.reasons.iter().any(|r| !r.actionable))
}

/// Former bug: while a check that only warns failed, no other check was considered. A stopped unit
/// was neither reported nor repaired.
#[test]
fn a_failing_check_does_not_hide_one_that_fails_later() {
    let mut story = Story::begin();
    let (w1, x1) = (story.host_index("w1"), story.host_index("x1"));
    for at in [w1, x1] {
        story.world.hosts[at].check_faults.warns = true;
    }
    story.wait_until("the warnings are seen", 20, |w| has_warning(w, "w1") && has_warning(w, "x1"));
    story.secs(60);
    for at in [w1, x1] {
        story.world.hosts[at].part("web").running = false;
    }
    // Live drift of a worker is only reported. Live drift of an edge node is repaired.
    story.wait_until("drift is reported", 20, |w| finding(w, "w1").is_some_and(|f| f.verdict == Verdict::Drifted));
    story.wait_until("repaired", 30, |w| w.hosts[x1].parts["web"].running);
    story.wait_until_at_rest(60);
    assert_eq!((story.jobs("w1").len(), story.jobs("x1").len()), (0, 1));
    let reasons = &finding(&story.world, "w1").expect("examined").reasons;
    assert_eq!(reasons.iter().map(|r| r.actionable).collect::<Vec<_>>(), [true, false], "{reasons:?}");
    assert!(has_warning(&story.world, "x1"), "the warning stays and is reported again");
    // The actionable failure ends, and the warning stays.
    story.world.hosts[w1].part("web").running = true;
    story.wait_until("only the warning is left", 20, |w| has_warning(w, "w1"));
    story.wait_until_at_rest(10);
}

/// Former bug: an agent did not count a failed check that requires no action, but an examination
/// did. After the check had failed, the node was examined at intervals forever.
#[test]
fn a_check_that_requires_no_action_causes_no_examination() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    (story.world.hosts[w1].check_faults.murmurs, story.world.hosts[w1].check_faults.warns) = (true, true);
    story.wait_until("the warning is seen", 20, |w| has_warning(w, "w1"));
    let looks = story.verdicts("w1").len();
    story.secs(400);
    assert_eq!(story.verdicts("w1").len(), looks);
    story.world.hosts[w1].check_faults.warns = false;
    story.wait_until("as it should be", 20, |w| finding(w, "w1").is_some_and(|f| f.reasons.is_empty()));
    let looks = story.verdicts("w1").len();
    story.secs(400);
    assert_eq!(story.verdicts("w1").len(), looks);
}

#[test]
fn flapping_checks_are_examined_with_backoff_until_stable() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    let every = story.world.options.limits.check_interval_ms / 1_000;
    for _ in 0..80 {
        story.world.hosts[w1].check_faults.warns ^= true;
        story.secs(every);
    }
    let looks = story.verdicts("w1").len();
    assert!((5..25).contains(&looks), "{looks} looks at 80 changes");
    assert!(!story.world.hosts[w1].check_faults.warns);
    story.wait_until_at_rest(100);
    // The checks were stable for a long time, so the next change is examined at once.
    story.secs(every * 20);
    story.world.hosts[w1].check_faults.warns = true;
    story.wait_until("the warning is seen", 20, |w| has_warning(w, "w1"));
}

/// Former bug: a check without an answer was no reason for an examination. So a node that was never
/// away got no finding about this check.
#[test]
fn a_check_without_an_answer_is_examined_and_reported_the_second_time() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    let alert = format!("unknown {}", story.node("w1").id);
    story.world.hosts[w1].check_faults.hang = true;
    let unknown = |w: &World| finding(w, "w1").is_some_and(|f| matches!(f.verdict, Verdict::Unknown(_)));
    story.wait_until("it is examined", 20, unknown);
    assert!(!story.world.notices.contains(&alert), "once is not enough");
    story.wait_until("operators are notified", 20, |w| w.notices.contains(&alert));
    story.secs(120);
    assert!(unknown(&story.world) && story.jobs("w1").is_empty());
    story.world.hosts[w1].check_faults.hang = false;
    story.wait_until_at_rest(180);
    assert_eq!(finding(&story.world, "w1").map(|f| f.verdict.clone()), Some(Verdict::Same));
    assert!(story.jobs("w1").is_empty());
    assert_eq!(story.node("w1").absences.count, AbsenceNo(0));
}
