//! Simulations with fixed events of nodes that gossip lost. The leader tries a handshake with the
//! daemon of such a node before it opens an absence.

use super::host::{Cut, Greetings};
use super::story::{Story, has_verdict};
use remoor_engine::EngineEvent;
use remoor_model::*;

/// Begins a story in which gossip has lost w1, whose daemon answers handshakes.
fn begin_with_lost_gossip() -> (Story, usize) {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    story.world.hosts[w1].greetings = Greetings::Answered;
    // The agent still receives gossip, so it does not count an isolation.
    story.world.hosts[w1].agent.isolated = true;
    story.world.cut(w1, Cut::Gossip, 600_000);
    story.wait_until("the loss is shown", 20, |w| w.has_condition("w1", "gossip-lost", "answers a handshake"));
    (story, w1)
}

#[test]
fn a_node_whose_daemon_answers_has_no_absence_and_is_watched() {
    let (mut story, w1) = begin_with_lost_gossip();
    story.secs(60);
    assert_eq!(story.node("w1").absences.count, AbsenceNo(0));
    assert!(story.world.notices.iter().any(|key| key.starts_with("gossip-lost")));
    story.edit("w1", "web");
    let (node, report) = (story.world.hosts[w1].id, story.world.hosts[w1].report(false));
    story.world.tell_all(EngineEvent::Reported { node, report });
    story.wait_until("the drift is found", 20, |w| has_verdict(w, "w1", &Verdict::Drifted));
    assert_eq!(story.node("w1").absences.count, AbsenceNo(0));
}

#[test]
fn a_node_that_dies_after_gossip_lost_it_is_away_soon() {
    let (mut story, w1) = begin_with_lost_gossip();
    story.secs(30);
    story.world.power_off(w1, 600_000);
    story.wait_until("it is away", 20, |w| w.state.by_name("w1").is_some_and(Node::is_away));
}

/// Without a result of the handshake, gossip alone decides after some seconds.
#[test]
fn a_handshake_without_a_result_hides_no_absence() {
    let mut story = Story::begin();
    let w1 = story.host_index("w1");
    story.world.hosts[w1].greetings = Greetings::Lost;
    story.world.cut(w1, Cut::Gossip, 600_000);
    story.wait_until("it is away", 20, |w| w.state.by_name("w1").is_some_and(Node::is_away));
}
