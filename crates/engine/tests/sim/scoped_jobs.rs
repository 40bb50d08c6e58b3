//! Tests with fixed events about jobs for some of a node's services. The other services and their
//! records must not change.

use super::host::Cut;
use super::story::Story;
use remoor_model::*;

/// Former bug: a job about some services recorded the drift of the other services in the new
/// baseline. So that drift was never reported again.
#[test]
fn drift_that_was_only_reported_outlives_the_repair_of_another_service() {
    let mut story = Story::begin();
    let x1 = story.host_index("x1");
    story.edit("x1", "tool");
    let reported = |w: &super::world::World| {
        let finding = w.state.by_name("x1").and_then(|n| n.examination.finding.as_ref());
        finding.is_some_and(|f| f.verdict == Verdict::Drifted && f.planned_action == PlannedAction::Report)
    };
    story.wait_until("reported", 30, reported);
    story.world.cut(x1, Cut::Full, 10_000);
    story.edit("x1", "web");
    story.wait_until("a job", 60, |w| w.state.by_name("x1").is_some_and(|n| n.job.is_some()));
    assert_eq!(story.jobs("x1")[0].spec.services, ["web".into()]);
    story.wait_until_at_rest(60);
    assert_eq!(story.world.hosts[x1].parts["web"].edits, 0, "repaired");
    assert_eq!(story.world.hosts[x1].parts["tool"].edits, 7, "and no more than that");
    story.wait_until("examined", 30, |w| w.state.by_name("x1").is_some_and(|n| !n.examination.needs_examination));
    assert!(reported(&story.world), "{:?}", story.node("x1").examination.finding);
    assert_eq!(story.jobs("x1").len(), 1);
}

/// Former bug: after the repair of one service, the whole node counted as set up with the new
/// generation. So `update` did nothing.
#[test]
fn a_repair_of_one_service_does_not_make_the_node_current() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    let before = story.node("w1").setup.baseline.clone().expect("adopted");
    story.world.cut(w1, Cut::Full, 15_000);
    story.edit("w1", "web");
    story.world.version += 1;
    let generation = story.world.generation();
    story.order(generation);
    story.wait_until_at_rest(60);
    let verdict = story.verdict("w1");
    assert_eq!(
        (verdict.verdict, verdict.planned_action),
        (Verdict::Conflict, PlannedAction::Resetup(vec!["web".into()]))
    );
    let stands = |story: &Story, service: &str| story.world.hosts[w1].parts[service].version;
    let node = story.node("w1");
    assert_eq!(
        node.setup.baseline.as_ref().map(|b| (b.desired, b.generation)),
        Some((before.desired, before.generation))
    );
    assert!(story.world.state.is_outdated(node));
    story.wait_until("examined", 30, |w| w.state.by_name("w1").is_some_and(|n| !n.examination.needs_examination));
    let node = story.node("w1");
    assert_eq!(
        node.examination.finding.as_ref().map(|f| f.verdict.clone()),
        Some(Verdict::Outdated),
        "it is still to be reported"
    );
    assert_eq!((stands(&story, "web"), stands(&story, "net")), (Some(before.desired), Some(before.desired)));
    // The operator's `update` still sets up the node, because its other services are from the old
    // generation.
    story.want("w1", Trigger::Apply, false);
    story.wait_until_at_rest(60);
    let (node, desired) = (story.node("w1"), story.world.state.desired_hash(story.node("w1")));
    assert!(!story.world.state.is_outdated(node));
    assert_eq!((stands(&story, "web"), stands(&story, "net")), (desired, desired));
}
