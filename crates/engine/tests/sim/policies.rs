//! Tests with fixed events about configured policies and waiting times: maintenance windows, settle
//! times, and nodes that were only adopted.

use super::host::Cut;
use super::options::Options;
use super::story::Story;
use remoor_model::*;

#[test]
fn outside_the_windows_a_verdict_is_made_and_the_repair_waits() {
    let mut story = Story::with_options(Options { windows: true, ..Options::story() });
    let w1 = story.host_index("w1");
    story.world.cut(w1, Cut::Full, 10_000);
    story.edit("w1", "web");
    story.wait_until("a verdict", 30, |w| w.state.by_name("w1").is_some_and(|n| n.pending_resetup.is_some()));
    assert_eq!(story.verdict("w1").planned_action, PlannedAction::Resetup(vec!["web".into()]));
    story.wait_until("past the leader's grace", 40, |w| w.now >= 55_000);
    assert!(story.world.has_condition("w1", "waiting", "window opens at Mon 13:48 UTC"));
    // An order without `--now` waits for the maintenance window of the workers. The other groups
    // have no windows.
    story.want("w1", Trigger::Live, false);
    story.secs(5);
    assert!(story.jobs("w1").is_empty());
    story.wait_until("the window opens", 30, |w| w.now >= 80_000);
    story.wait_until_at_rest(30);
    assert_eq!(story.jobs("w1").len(), 1);
}

#[test]
fn an_order_with_now_does_not_wait_for_the_window() {
    let mut story = Story::with_options(Options { windows: true, ..Options::story() });
    let w1 = story.host_index("w1");
    let Command::RequestResetup { node, mut want } = story.world.request_resetup(w1, Trigger::Live, false) else {
        unreachable!()
    };
    want.spec.now = true;
    story.order(Command::RequestResetup { node, want });
    story.wait_until("a job", 10, |w| w.state.by_name("w1").is_some_and(|n| n.job.is_some()));
    assert!(story.world.now < 80_000);
}

#[test]
fn an_adopted_node_is_only_reported_until_it_is_entrusted() {
    let mut story = Story::begin();
    let Command::Generation { blob, mut summary } = story.world.generation() else { unreachable!() };
    summary.groups.values_mut().for_each(|group| group.policy.clear());
    story.order(Command::Generation { blob, summary });
    let w1 = story.host_index("w1");
    let away_and_edited = |story: &mut Story| {
        let before = story.verdicts("w1").len();
        story.world.cut(w1, Cut::Full, 10_000);
        story.edit("w1", "web");
        story.secs(30);
        let absent: Vec<Finding> =
            story.verdicts("w1")[before..].iter().filter(|f| f.absence.is_some()).cloned().collect();
        assert_eq!(absent.len(), 1);
        absent[0].clone()
    };
    let finding = away_and_edited(&mut story);
    assert_eq!((finding.verdict, finding.planned_action), (Verdict::Drifted, PlannedAction::Report));
    assert!(story.jobs("w1").is_empty() && story.node("w1").setup.adopted_only);
    // `Entrust` lets remoor repair the adopted node. It runs nothing on the node, but drift at the
    // node's next return is repaired.
    let id = story.node("w1").id;
    story.order(Command::Entrust { node: id });
    assert!(!story.node("w1").setup.adopted_only && story.jobs("w1").is_empty());
    let finding = away_and_edited(&mut story);
    assert_eq!(finding.planned_action, PlannedAction::Resetup(vec!["web".into()]));
    story.wait_until_at_rest(60);
    // After one re-setup, remoor may repair the adopted node, even if an operator adopts a later
    // state of it.
    let baseline = story.world.baseline(w1, true);
    story.order(Command::Adopt { node: id, baseline, basis: 0 });
    assert!(!story.node("w1").setup.adopted_only);
    // The adoption did not cause another job.
    assert_eq!(story.jobs("w1").len(), 1);
}

/// A clustered service that lost the network together with its node may need a moment to connect to
/// its other members again. This delay must not cause a re-setup.
#[test]
fn a_reconnecting_service_gets_time_and_one_that_stays_down_is_set_up_again() {
    for returns in [true, false] {
        let mut story = Story::begin();
        let w1 = story.host_index("w1");
        story.world.cut(w1, Cut::Full, 15_000);
        story.wait_until("away", 20, |w| w.state.by_name("w1").is_some_and(Node::is_away));
        story.world.hosts[w1].part("web").running = false;
        story.wait_until("examined once", 40, |w| w.has_condition("w1", "settling", "reconnected"));
        story.world.hosts[w1].part("web").running = returns;
        story.wait_until_at_rest(60);
        let (verdict, jobs) = (story.verdict("w1"), story.jobs("w1").len());
        assert_eq!(verdict.cause, Some(AbsenceCause::Network));
        assert_eq!((verdict.verdict == Verdict::Same, jobs), (returns, usize::from(!returns)));
    }
}

/// The simulation found a bug: drift was only reported, because the node was being decommissioned.
/// After the decommissioning was cancelled, the drift was never repaired.
#[test]
fn drift_seen_on_the_way_out_is_repaired_once_the_node_stays() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    let id = story.node("w1").id;
    // The job of w1 is cancelled, which holds w1. So the decommissioning of w1 waits.
    story.want("w1", Trigger::Live, false);
    story.wait_until("a job", 10, |w| w.state.by_name("w1").is_some_and(|n| n.job.is_some()));
    let job = story.node("w1").job.expect("a job");
    story.order(Command::CancelJob { job, why: "cancelled".to_owned(), now: false });
    story.secs(15);
    story.world.cut(w1, Cut::Full, 15_000);
    story.edit("w1", "web");
    story.want("w1", Trigger::Apply, true);
    story.wait_until("a verdict", 60, |w| {
        w.state.by_name("w1").is_some_and(|n| {
            n.absence.is_none()
                && n.examination.finding.as_ref().is_some_and(|f| f.absence.is_some() && f.verdict.is_drifted())
        })
    });
    assert_eq!(story.node("w1").lifecycle, Lifecycle::Decommissioning);
    story.order(Command::DropRequest { node: id, why: "called off".to_owned() });
    story.order(Command::ResumeNode { node: id });
    story.wait_until_at_rest(60);
    assert_eq!(story.jobs("w1").len(), 2);
}
