//! Tests with fixed events about nodes that return with another address (docs/design/scenarios.md,
//! A10).

use super::host::{Cut, Sshd, gossip};
use super::story::Story;
use remoor_model::*;

fn cut_and_moved(name: &str, place: u64) -> Story {
    let mut story = Story::begin();
    let at = story.host_index(name);
    story.world.cut(at, Cut::Full, 15_000);
    story.wait_until("away", 10, |w| w.hosts[at].gossip_view.report.is_none());
    story.world.moves(at, place);
    story
}

#[test]
fn a_node_that_returns_with_another_address_is_set_up_for_it() {
    let mut story = cut_and_moved("w1", 40);
    story.wait_until_at_rest(90);
    let verdict = story.verdict("w1");
    assert_eq!((verdict.cause, verdict.verdict), (Some(AbsenceCause::Network), Verdict::Outdated));
    assert_eq!(verdict.planned_action, PlannedAction::Resetup(Vec::new()));
    assert!(verdict.evidence.iter().any(|e| e == "its address was 10.0.0.4, is 10.0.0.40"), "{:?}", verdict.evidence);
    let node = story.node("w1");
    assert_eq!((node.spec.gossip.as_str(), node.spec.api.as_str()), ("10.0.0.40:7946", "10.0.0.40:7947"));
    assert_eq!(
        (&node.setup.address_change, node.setup.baseline.as_ref().map(|b| b.desired)),
        (&None, story.world.state.desired_hash(node))
    );
    assert_eq!(story.jobs("w1").len(), 1);
    // The files of the other workers contain the address of w1. These files are outdated now and
    // stay unchanged.
    for other in ["w2", "w3", "w4"] {
        let node = story.node(other);
        assert_ne!(node.setup.baseline.as_ref().map(|b| b.desired), story.world.state.desired_hash(node), "{other}");
        assert!(story.world.state.only_addresses_changed(node) && story.jobs(other).is_empty(), "{other}");
    }
    let master = story.node("m1");
    assert_eq!(master.setup.baseline.as_ref().map(|b| b.desired), story.world.state.desired_hash(master));
}

#[test]
fn a_node_that_moved_and_drifted_is_set_up_completely() {
    let mut story = cut_and_moved("w1", 40);
    story.edit("w1", "web");
    story.wait_until_at_rest(90);
    let verdict = story.verdict("w1");
    assert_eq!((verdict.verdict, verdict.planned_action), (Verdict::Conflict, PlannedAction::Resetup(Vec::new())));
}

#[test]
fn a_node_that_returns_to_its_old_address_is_unchanged() {
    let mut story = cut_and_moved("w1", 40);
    let w1 = story.host_index("w1");
    story.world.hosts[w1].sshd = Sshd::Down;
    story.wait_until("entered", 40, |w| w.state.by_name("w1").is_some_and(|n| n.spec.gossip == gossip(40)));
    story.world.cut(w1, Cut::Full, 15_000);
    story.world.moves(w1, 4);
    story.secs(10);
    story.world.ssh_on(w1);
    story.wait_until_at_rest(90);
    let node = story.node("w1");
    assert_eq!((node.spec.gossip.clone(), &node.setup.address_change), (gossip(4), &None));
    assert!(story.jobs("w1").is_empty(), "its files were made for this address");
    let finding = node.examination.finding.as_ref().expect("a verdict");
    assert_eq!(finding.verdict, Verdict::Same);
}

#[test]
fn an_address_in_use_by_another_node_is_not_taken_over() {
    let mut story = cut_and_moved("w1", 5); // the address of w2
    story.secs(40);
    assert_eq!(story.node("w1").spec.gossip, gossip(4));
    let (w1, w2) = (story.node("w1").id, story.node("w2").clone());
    assert!(story.world.notices.contains(&format!("address-held {w1} {}", gossip(5))), "{:?}", story.world.notices);
    assert_eq!((w2.spec.gossip.clone(), w2.absence, w2.host_key.changed), (gossip(5), None, None));
    // w2 moves to the old address of w1. After this exchange of two addresses, both new addresses
    // are recorded.
    let at = story.host_index("w2");
    story.world.cut(at, Cut::Full, 10_000);
    story.world.moves(at, 4);
    story.wait_until_at_rest(200);
    assert_eq!((story.node("w1").spec.gossip.clone(), story.node("w2").spec.gossip.clone()), (gossip(5), gossip(4)));
}

#[test]
fn a_host_at_a_nodes_old_address_gets_no_login() {
    let mut story = Story::begin();
    let (w1, w2) = (story.host_index("w1"), story.host_index("w2"));
    story.world.cut(w1, Cut::Full, 60_000);
    story.wait_until("away", 10, |w| w.hosts[w1].gossip_view.report.is_none());
    story.world.cut(w2, Cut::Full, 10_000);
    story.world.moves(w1, 40);
    story.world.moves(w2, 4);
    story.secs(30);
    // w2 returns at the address of w1, which is away. w2 takes over the address, and a notice
    // reports this.
    assert_eq!(story.node("w2").spec.gossip, gossip(4));
    let w2_id = story.node("w2").id;
    assert!(story.world.notices.contains(&format!("address-taken {w2_id} {}", gossip(4))), "{:?}", story.world.notices);
    assert!(story.jobs("w1").is_empty());
    story.wait_until_at_rest(200);
    assert_eq!(story.node("w1").spec.gossip, gossip(40));
    assert_eq!(story.node("w1").host_key.changed, None, "w2's key was not mistaken for w1's");
}
