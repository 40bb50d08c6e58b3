//! Tests of the guard without memberlist. The records are signed as those of real members.

use super::super::forge;
use super::super::judge::Judge;
use super::super::meta::SignatureScope;
use super::*;
use ed25519_dalek::SigningKey;
use memberlist::proto::{Ack, IndirectPing, Message, Node, Ping};
use remoor_model::Wall;
use tokio::sync::mpsc;

const FROM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);

fn addr(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 7946))
}

fn signer(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

/// The guard of the node `me` with the key 1. The inventory knows the nodes w2 to w9. The number in
/// the name of a node is also its key.
struct Fixture {
    guard: MessageGuard,
    shared: Arc<GossipState>,
    refusals: Arc<Refusals>,
}

fn fixture() -> Fixture {
    let judge = Judge {
        cluster: "c".into(),
        me: "me".into(),
        addr: addr(1),
        own_key: signer(1).verifying_key(),
        verify: Arc::new(|name| match name.as_str().strip_prefix('w').and_then(|n| n.parse().ok()) {
            Some(seed @ 2..=9) => KeyLookup::Known(signer(seed).verifying_key()),
            _ => KeyLookup::Unknown,
        }),
    };
    let timing = GossipTiming { probe_interval: Duration::ZERO, ..GossipTiming::default() };
    let (events, _) = mpsc::unbounded_channel();
    let shared = Arc::new(GossipState::new(judge, Bytes::new(), &timing, events));
    let report = Report { sequence: 1, signed_at: wall_clock::now(), ..Report::default() };
    shared.set_own(&report, record("me", 1, &report).into());
    let refusals = Arc::new(Refusals::default());
    Fixture { guard: MessageGuard::new(shared.clone(), &signer(1), refusals.clone(), &timing), shared, refusals }
}

fn record(name: &str, seed: u8, report: &Report) -> Vec<u8> {
    let scope = SignatureScope { cluster: &"c".into(), name: &name.into(), addr: addr(seed) };
    meta::encode(report, scope, &signer(seed)).expect("a report")
}

fn report_at(signed_at: Wall) -> Report {
    Report { sequence: 1, signed_at, ..Report::default() }
}

impl Fixture {
    fn send(&self, messages: &[Vec<u8>]) -> Option<Vec<u8>> {
        let text = wire::join(messages).expect("messages");
        self.guard.check_datagram(BytesMut::from(&text[..]), FROM).map(|bytes| bytes.to_vec())
    }

    fn passes(&self, message: Vec<u8>) -> bool {
        self.send(std::slice::from_ref(&message)).is_some_and(|passed| passed == message)
    }

    fn known_number(&self, name: &str) -> Option<u32> {
        self.guard.ledger().known_number(&name.into())
    }
}

#[test]
fn an_incarnation_has_the_limit_of_the_signed_time() {
    let (f, w2, now) = (fixture(), NodeName::from("w2"), wall_clock::now());
    let meta = record("w2", 2, &report_at(now));
    assert!(f.passes(forge::alive(&w2, addr(2), 7, &meta)));
    for number in [u32::MAX, u32::MAX - 1, highest_at(now) + 1] {
        assert!(!f.passes(forge::alive(&w2, addr(2), number, &meta)));
        assert!(!f.passes(forge::suspect(&w2, &"w3".into(), number)));
        assert!(!f.passes(forge::dead(&w2, &"w3".into(), number)));
    }
    assert_eq!(f.known_number("w2"), Some(7));
    assert!(f.passes(forge::alive(&w2, addr(2), highest_at(now), &meta)));
    // Unknown nodes have the limit of the present time, whatever they report.
    let later = report_at(now.plus_ms(86_400_000));
    let number = highest_at(later.signed_at);
    assert!(!f.passes(forge::alive(&"new".into(), addr(20), number, &record("new", 20, &later))));
    assert!(f.passes(forge::alive(&"new".into(), addr(20), 1, &record("new", 20, &later))));
}

#[test]
fn nobody_speaks_as_another_node() {
    let (f, w2) = (fixture(), NodeName::from("w2"));
    let meta = record("w2", 2, &report_at(wall_clock::now()));
    assert!(!f.passes(forge::alive(&w2, addr(3), 7, &meta)), "another address");
    assert!(!f.passes(forge::alive(&w2, addr(2), 7, &record("w2", 3, &report_at(wall_clock::now())))), "another key");
    assert_eq!(f.known_number("w2"), None);
}

#[test]
fn an_accusation_is_weakened_until_its_node_had_time_to_contradict() {
    let (f, w2, w3) = (fixture(), NodeName::from("w2"), NodeName::from("w3"));
    assert_eq!(f.send(&[forge::suspect(&w2, &w3, 0)]), None, "the node is not in the table");
    assert_eq!(f.refusals.totals().values().sum::<u64>(), 0, "and that is nothing bad");
    assert!(f.passes(forge::alive(&w2, addr(2), 7, &record("w2", 2, &report_at(wall_clock::now())))));
    let suspicion = |from: &NodeName, number| Some(forge::suspect(&w2, from, number));
    assert_eq!(f.send(&[forge::dead(&w2, &w3, 7)]), suspicion(&w3, 7));
    assert!(f.passes(forge::dead(&w2, &w3, 7)), "the time of this fixture is 0");
    let leaves = Report { leaving: true, ..report_at(wall_clock::now()) };
    assert_eq!(f.send(&[forge::dead(&w2, &w2, 7)]), suspicion(&w2, 7), "w2 does not leave");
    // The leave is sent before the report, but in the same datagram.
    let goodbye = [forge::dead(&w2, &w2, 8), forge::alive(&w2, addr(2), 8, &record("w2", 2, &leaves))];
    assert_eq!(f.send(&goodbye), wire::join(&goodbye));
}

#[test]
fn this_node_contradicts_seldom_and_signs_again_near_the_limit() {
    let f = fixture();
    let (me, w3) = (NodeName::from("me"), NodeName::from("w3"));
    let (signed_at, own) = f.shared.own_record();
    let limit = highest_at(signed_at);
    assert!(f.passes(forge::alive(&me, addr(1), 5, &own)));
    assert!((0..100).all(|_| f.passes(forge::alive(&me, addr(1), 5, &own))), "an echo is no accusation");
    assert!(f.passes(forge::suspect(&me, &w3, 5000)), "from before a restart");
    assert_eq!(f.known_number("me"), Some(5001));
    assert!(!f.passes(forge::suspect(&me, &w3, u32::MAX)));
    assert!(!f.passes(forge::suspect(&me, &w3, highest_at(wall_clock::now().plus_ms(60_000)))));
    let renewals = f.shared.renewals();
    assert!(!renewals.has_changed().expect("open"));
    assert!(f.passes(forge::suspect(&me, &w3, limit)));
    assert!(renewals.has_changed().expect("open"));
    let passed = (1..100).filter(|n| f.passes(forge::suspect(&me, &w3, 5001 + n))).count();
    assert_eq!(passed, 99, "memberlist ignores old accusations");
}

#[test]
fn this_node_contradicts_only_a_few_accusations_at_once() {
    let f = fixture();
    let (me, w3) = (NodeName::from("me"), NodeName::from("w3"));
    let began = std::time::Instant::now();
    let passed = (0..100).filter(|n| f.passes(forge::suspect(&me, &w3, 100 + n))).count();
    // Each further half a second allows one more contradiction.
    let later = began.elapsed().as_millis() as usize / 500 + 1;
    assert!((4..=4 + later).contains(&passed), "{passed} of 100");
}

#[test]
fn a_time_far_in_the_future_does_not_raise_the_limit() {
    let (f, w2, now) = (fixture(), NodeName::from("w2"), wall_clock::now());
    let day = 86_400_000;
    let meta = record("w2", 2, &report_at(now.plus_ms(70 * 365 * day)));
    assert!(!f.passes(forge::alive(&w2, addr(2), highest_at(now.plus_ms(2 * day)), &meta)));
    assert!(f.passes(forge::alive(&w2, addr(2), highest_at(now.plus_ms(day / 2)), &meta)));
}

#[test]
fn messages_that_break_memberlist_are_refused() {
    let f = fixture();
    let node = |name: &str| Node::new(SmolStr::new(name), addr(2));
    let encode = |message: OwnedMessage| wire::encode(&message).expect("encoded");
    assert!(f.passes(forge::alive(&"w2".into(), addr(2), 7, &record("w2", 2, &report_at(wall_clock::now())))));
    assert!(f.passes(encode(IndirectPing::new(1, node("w3"), node("w2")).into())));
    let long = "x".repeat(1_400);
    assert!(!f.passes(encode(IndirectPing::new(1, node("w3"), node(&long)).into())), "the size underflows");
    assert!(!f.passes(encode(IndirectPing::new(1, node(&long), node("w2")).into())));
    assert!(!f.passes(encode(IndirectPing::new(1, node("w3"), node("w4")).into())), "not a member");
    let ping = encode(Ping::new(1, node("w2"), node("me")).into());
    assert!(f.passes(ping.clone()));
    assert!(!f.passes(encode(Ping::new(1, node("w2"), node("w3")).into())));
    let nowhere = Node::new(SmolStr::new("w2"), SocketAddr::from(([0, 0, 0, 0], 7)));
    assert!(!f.passes(encode(Ping::new(1, nowhere, node("me")).into())));
    assert!(!f.passes(encode(Message::UserData(Bytes::from_static(b"x")))));
    for text in [&[][..], &[1], &[2, 0x80], &[8, 0xff, 0xff], &ping[..ping.len() - 1]] {
        assert_eq!(f.guard.check_datagram(BytesMut::from(text), FROM), None);
        assert_eq!(f.guard.check_stream(BytesMut::from(text), FROM), None);
    }
    // The other messages of a datagram are passed on.
    let bad = forge::alive(&"w2".into(), addr(2), u32::MAX, b"");
    assert_eq!(f.send(&[ping.clone(), bad]), Some(ping));
}

/// A compromised node guesses the numbers of the pings that this node sends to w2, and acknowledges
/// them. So w2 would seem to be alive after it failed.
#[test]
fn nobody_acknowledges_for_another_node() {
    let (f, w2) = (fixture(), NodeName::from("w2"));
    let meta = record("w2", 2, &report_at(wall_clock::now()));
    f.shared.take_in(w2.clone(), addr(2), meta.into());
    let node = |name: &str, seed| Node::new(SmolStr::new(name), addr(seed));
    let encode = |message: OwnedMessage| wire::encode(&message).expect("encoded");
    let ping = encode(Ping::new(7, node("me", 1), node("w2", 2)).into());
    let ack = |number| encode(Ack::new(number).into());
    let own = signer(1).verifying_key();
    let sealer = |name: &str, seed| EnvelopeSealer::new("c".into(), name.into(), signer(seed), wall_clock::now());
    let receive = |text: Vec<u8>| f.guard.check_datagram(BytesMut::from(&text[..]), FROM).is_some();

    assert!(f.guard.seal(addr(2), &ping).is_some_and(|sealed| sealed.len() == ping.len() + f.guard.overhead()));
    assert_eq!(f.guard.seal(addr(3), &ping), None, "w3 is not a member");
    assert!(!receive(ack(8)), "nobody was asked");
    assert!(receive(ack(7)), "w2 may not know this node yet");
    let (w2, w3) = (sealer("w2", 2), sealer("w3", 3));
    let seal = |sealer: &EnvelopeSealer| sealer.seal(&"me".into(), own.as_bytes(), &ack(7)).expect("sealed");
    let first = seal(&w2);
    assert!(receive(first.clone()));
    assert!(!receive(first), "sent again");
    assert!(!receive(ack(7)), "w2 proves what it sends");
    assert!(!receive(seal(&w3)), "w3 was not asked");
    assert!(receive(seal(&w2)));
}

#[test]
fn each_node_of_an_exchange_is_checked() {
    let f = fixture();
    let meta = record("w2", 2, &report_at(wall_clock::now()));
    let node = |name: &str, number, state| {
        let node = NodeRecord::new(number, SmolStr::new(name), addr(2), state);
        node.with_meta(meta.clone().try_into().expect("a report"))
    };
    let exchange = |nodes: Vec<NodeRecord>| {
        let message: OwnedMessage = PushPull::new(true, nodes.into_iter()).into();
        BytesMut::from(&wire::encode(&message).expect("encoded")[..])
    };
    let good = exchange(vec![node("w2", 7, State::Alive), node("unknown", 1, State::Alive)]);
    assert_eq!(f.guard.check_stream(good.clone(), FROM), Some(good));
    let mixed = vec![
        node("w2", 9, State::Left),
        node("w2", u32::MAX, State::Alive),
        node("w2", 7, State::Left),
        node("w2", 7, State::Alive),
        node("w3", 7, State::Alive),
        node("w4", 7, State::Dead),
        node("w5", 7, State::Unknown(9)),
    ];
    // w2 did not announce that it leaves, and occurs twice. The record is not signed by w3.
    let kept = exchange(vec![node("w2", 7, State::Suspect)]);
    assert_eq!(f.guard.check_stream(exchange(mixed), FROM), Some(kept));
    let names = (0..25_000).map(|n| node(&format!("x{n}"), 1, State::Alive)).collect();
    let kept = f.guard.check_stream(exchange(names), FROM).expect("an exchange");
    let Ok(MessageView::PushPull(kept)) = wire::decode(&kept) else { panic!("an exchange") };
    assert_eq!(kept.states().len(), super::super::view::STRANGERS_MIN - 1, "one of the names was used before");
}
