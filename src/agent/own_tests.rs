//! Tests of the agent's knowledge about its own node: peers in gossip, managers that do not answer,
//! and secrecy of the manifest's keys.

use super::*;
use remoor_model::{Isolation, NodeManifest};

fn peer(id: u64, name: &str) -> PeerInfo {
    PeerInfo {
        id: NodeId(id),
        name: name.into(),
        api_addr: format!("10.0.0.{id}:7947"),
        gossip_addr: format!("10.0.0.{id}:7946"),
        public_key: String::new(),
    }
}

fn alive(id: u8, name: &str, leaving: bool) -> MemberEvent {
    let report = Report { leaving, instance: "00000000000000aa".into(), ..Report::default() };
    MemberEvent::Alive { name: name.into(), addr: ([10, 0, 0, id], 7946).into(), report, signed: true }
}

/// The state of w1, which knows m1, w2 and w3. Only m1 is alive in gossip.
pub fn sample_state() -> AgentState {
    let id =
        NodeIdentity { id: NodeId(4), name: "w1".into(), cluster: "c1".into(), epoch: Epoch(1), dir: PathBuf::new() };
    let own = AgentState::new(id);
    let record = AgentRecord {
        isolation: 2,
        crashes: 1,
        last_isolation: Some(Isolation { from: Wall(10_000), to: Some(Wall(40_000)), peers_lost: 3 }),
        ..AgentRecord::default()
    };
    own.record(&record, None);
    let known = ManifestReply {
        manifest: NodeManifest { group: "web".into(), ..NodeManifest::default() },
        digest_key: "5ec2e7".to_owned(),
        check_interval_ms: 60_000,
        rejoin_ms: 0,
    };
    own.set_peers(&[peer(1, "m1"), peer(4, "w1"), peer(5, "w2"), peer(6, "w3")], &[peer(1, "m1")], Some(&known));
    own.member(&alive(1, "m1", false), Wall(50_000));
    own.member(&alive(4, "w1", false), Wall(50_000));
    own
}

fn presence(own: &AgentState, name: &str) -> String {
    own.view(Wall(0)).peers.into_iter().find(|p| p.name == name).expect("a peer").presence
}

#[test]
fn peers_are_shown_as_this_node_saw_them() {
    let own = sample_state();
    assert_eq!((presence(&own, "m1"), presence(&own, "w2")), ("alive".to_owned(), "never-seen".to_owned()));
    own.member(&alive(5, "w2", true), Wall(60_000));
    let addr = ([10, 0, 0, 5], 7946).into();
    own.member(&MemberEvent::Gone { name: "w2".into(), addr }, Wall(61_000));
    own.member(&MemberEvent::Gone { name: "m1".into(), addr }, Wall(62_000));
    assert_eq!((presence(&own, "m1"), presence(&own, "w2")), ("gone".to_owned(), "left".to_owned()));
    let view = own.view(Wall(63_000));
    assert_eq!((view.peers_alive, view.peers.len()), (0, 3), "itself is no peer");
    assert_eq!(own.peers(), (0, 3));
    assert_eq!(view.peers[0].since.as_deref(), Some("1970-01-01T00:01:02.000Z"));
    assert!(view.peers[0].manager && view.peers[0].id == Some(1));
}

#[test]
fn the_last_word_of_a_manager_stays_while_they_are_silent() {
    let own = sample_state();
    assert_eq!(own.view(Wall(0)).manager.name, None);
    own.set_manager_contact(Ok("m1".into()), Wall(20_000));
    own.set_manager_contact(Err("m1: timed out".to_owned()), Wall(40_000));
    let contact = own.view(Wall(50_000)).manager;
    assert_eq!((contact.name.as_deref(), contact.age_ms), (Some("m1"), Some(30_000)));
    assert_eq!(contact.error.as_deref(), Some("m1: timed out"));
    assert_eq!(contact.known, ["10.0.0.1:7947"]);
    own.set_manager_contact(Ok("m1".into()), Wall(60_000));
    assert_eq!(own.view(Wall(60_000)).manager.error, None);
}

#[test]
fn the_key_of_the_digests_is_not_told() {
    let own = sample_state();
    let text = serde_json::to_string(&own.view(Wall(0))).expect("JSON");
    assert!(text.contains("\"group\":\"web\"") && !text.contains("5ec2e7"), "{text}");
}

#[test]
fn invented_members_are_bounded() {
    let own = sample_state();
    for n in 0..STRANGERS_MAX + 50 {
        own.member(&alive(9, &format!("x{n}"), false), Wall(0));
    }
    // Gossip may also show the four nodes that managers reported. They are not counted as invented.
    assert!(own.peers().1 <= STRANGERS_MAX as u64 + 8, "{:?}", own.peers());
}

#[test]
fn an_epoch_that_was_heard_is_never_gone_back_from() {
    let own = sample_state();
    let mut followed = own.follow_epoch();
    assert_eq!((own.epoch(), own.peers_reply().epoch), (Epoch(1), Epoch(1)));
    own.learn_epoch(Epoch(7));
    assert!(followed.has_changed().expect("followed") && *followed.borrow_and_update() == Epoch(7));
    own.learn_epoch(Epoch(3));
    own.learn_epoch(Epoch(0));
    assert!(!followed.has_changed().expect("followed"));
    assert_eq!((own.epoch(), own.peers_reply().epoch, own.view(Wall(1)).node.epoch), (Epoch(7), Epoch(7), 7));
}
