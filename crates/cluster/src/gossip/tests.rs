//! Tests with real members on loopback. Each test waits for its condition, with a timeout that only
//! a failure reaches.

use super::*;
use ed25519_dalek::SigningKey;
use remoor_model::{BootId, Epoch, NodeName, Report, Wall};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

#[path = "guard/live_tests.rs"]
mod attacks;

const PATIENCE: Duration = Duration::from_secs(180);

/// The inventory of a test: the key lookup of each name.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<BTreeMap<NodeName, KeyLookup>>>);

impl Keys {
    fn know(&self, name: &str, seed: u8) {
        self.set(name, KeyLookup::Known(signer(seed).verifying_key()));
    }
    fn set(&self, name: &str, lookup: KeyLookup) {
        self.0.lock().expect("keys").insert(name.into(), lookup);
    }
    /// The inventory of a test in which key 1 belongs to `a`, key 2 to `b` and key 3 to `c`.
    fn abc() -> Self {
        let keys = Self::default();
        for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
            keys.know(name, seed);
        }
        keys
    }
}

fn signer(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn timing() -> GossipTiming {
    GossipTiming {
        probe_interval: Duration::from_millis(200),
        probe_timeout: Duration::from_millis(100),
        gossip_interval: Duration::from_millis(20),
        exchange_interval: Duration::from_millis(400),
        reclaim: Duration::from_millis(50),
        copy_grace: Duration::from_millis(300),
        rejoin_interval: Duration::from_millis(500),
        isolated_min: Duration::from_millis(50),
        isolated_max: Duration::from_millis(500),
        nudge_spacing: Duration::from_millis(100),
        change_spacing: Duration::from_millis(20),
        cache_interval: Duration::from_millis(100),
        ..GossipTiming::default()
    }
}

fn config(name: &str, seed: u8, keys: &Keys) -> Config {
    let keys = keys.clone();
    Config {
        cluster: "test".into(),
        name: name.into(),
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        advertise: SocketAddr::from(([127, 0, 0, 1], 0)),
        key: [7; 32],
        signer: signer(seed),
        verify: Arc::new(move |name| keys.0.lock().expect("keys").get(name).cloned().unwrap_or(KeyLookup::Unknown)),
        timing: timing(),
    }
}

/// The report without its sequence number and its time of signing.
fn without_stamp(report: &Report) -> Report {
    Report { sequence: 0, signed_at: Wall(0), ..report.clone() }
}

fn report(instance: &str) -> Report {
    let boot = BootId::from("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0");
    Report { boot, instance: instance.into(), ..Report::default() }
}

const FIRST: &str = "0000000000000001";
const SECOND: &str = "0000000000000002";

struct Peer {
    gossip: Gossip,
    events: UnboundedReceiver<MemberEvent>,
}

async fn peer(config: Config) -> Peer {
    peer_as(config, FIRST).await
}

/// Starts a member. Retries while an earlier member may still hold the port.
async fn peer_as(config: Config, instance: &str) -> Peer {
    let started = tokio::time::timeout(PATIENCE, async {
        loop {
            match start(config.clone(), report(instance)).await {
                Ok((gossip, events)) => return Peer { gossip, events },
                Err(GossipError::Start { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(other) => panic!("start: {other}"),
            }
        }
    });
    started.await.expect("the member starts")
}

impl Peer {
    /// Reads events until one matches. The other events are dropped.
    async fn wait_for_event(&mut self, what: &str, fits: impl Fn(&MemberEvent) -> bool) -> MemberEvent {
        let mut seen = vec![];
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let event = self.events.recv().await.expect("the member runs");
                if fits(&event) {
                    return event;
                }
                seen.push(event);
            }
        });
        match found.await {
            Ok(event) => event,
            Err(_) => panic!("{what}: not seen, but {seen:?}"),
        }
    }

    async fn saw_alive(&mut self, who: &str) -> MemberEvent {
        self.wait_for_event(who, |e| matches!(e, MemberEvent::Alive { name, .. } if name.as_str() == who)).await
    }

    async fn saw_gone(&mut self, who: &str) -> MemberEvent {
        self.wait_for_event(who, |e| matches!(e, MemberEvent::Gone { name, .. } if name.as_str() == who)).await
    }

    fn member(&self, who: &str) -> Option<Member> {
        self.gossip.members().into_iter().find(|m| m.name.as_str() == who)
    }

    /// Waits until the member `who` is listed and matches `fits`.
    async fn wait_until_listed(&self, who: &str, fits: impl Fn(&Member) -> bool) {
        let found = tokio::time::timeout(PATIENCE, async {
            while !self.member(who).is_some_and(|m| fits(&m)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(found.await.is_ok(), "{who} is not listed as expected: {:?}", self.member(who));
    }
}

async fn stop(peers: impl IntoIterator<Item = Peer>) {
    for peer in peers {
        peer.gossip.shutdown().await;
    }
}

#[tokio::test]
async fn two_members_see_each_other_and_each_others_updates() {
    let keys = Keys::abc();
    let (mut a, mut b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    assert_eq!((a.gossip.peers_alive(), a.gossip.members().len()), (0, 1), "itself only");
    a.saw_alive("a").await;
    b.gossip.join(a.gossip.addr()).await.expect("join");
    let seen = [(a.saw_alive("b").await, b.gossip.addr()), (b.saw_alive("a").await, a.gossip.addr())];
    for (seen, at) in seen {
        let MemberEvent::Alive { addr, report: sent, signed: true, .. } = &seen else { panic!("{seen:?}") };
        assert_eq!((*addr, without_stamp(sent)), (at, report(FIRST)));
    }
    assert_eq!((a.gossip.peers_alive(), b.gossip.peers_alive()), (1, 1));

    let changed = Report { isolation: 5, ..report(FIRST) };
    b.gossip.publish(changed.clone()).await.expect("publish");
    a.wait_for_event(
        "update",
        |e| matches!(e, MemberEvent::Update { report, signed: true, .. } if without_stamp(report) == changed),
    )
    .await;
    assert_eq!(a.member("b").map(|m| without_stamp(&m.report)), Some(changed));
    stop([a, b]).await;
}

#[tokio::test]
async fn a_crash_is_seen_and_is_no_goodbye() {
    let keys = Keys::abc();
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    b.gossip.shutdown().await;
    let gone = a
        .wait_for_event("gone", |e| match e {
            MemberEvent::Gone { name, .. } => name.as_str() == "b",
            MemberEvent::Update { report, .. } => report.leaving,
            _ => false,
        })
        .await;
    assert!(matches!(gone, MemberEvent::Gone { .. }), "{gone:?}");
    assert_eq!((a.gossip.peers_alive(), a.member("b")), (0, None));
    stop([a]).await;
}

/// Telemetry counts suspicions by a log line of memberlist, because memberlist reports them in no
/// other way. The test checks that this line is still logged.
#[tokio::test]
async fn a_suspicion_is_told_by_a_known_log_line() {
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
    use tracing_subscriber::util::SubscriberInitExt;
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);
    impl<S: tracing::Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &tracing::Event<'_>, _cx: Context<'_, S>) {
            let meta = event.metadata();
            let line = format!("{} {} {event:?}", meta.level(), meta.target());
            self.0.lock().expect("lines").push(line);
        }
    }
    let lines = Lines::default();
    // The test runs in a separate process, because tracing may cache the log line as disabled if
    // the thread of another test reached it first.
    const ASK: &str = "REMOOR_TEST_SUSPICION";
    if std::env::var_os(ASK).is_none() {
        let this = std::env::current_exe().expect("this test binary");
        let mut command = tokio::process::Command::new(this);
        command
            .args(["--exact", "gossip::tests::a_suspicion_is_told_by_a_known_log_line", "--nocapture"])
            .env(ASK, "1");
        let output = command.kill_on_drop(true).output().await.expect("run the test binary");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && said.contains("1 passed"), "{said}{output:?}");
        return;
    }
    // The runtime of this test has one thread, so lines of memberlist's tasks are captured too.
    let _guard = tracing_subscriber::registry().with(lines.clone()).set_default();

    let keys = Keys::abc();
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    b.gossip.shutdown().await;
    a.saw_gone("b").await;
    let lines = lines.0.lock().expect("lines").clone();
    let told = |line: &&String| line.starts_with("INFO memberlist_core::state ") && line.contains("no acks received");
    assert!(lines.iter().any(|line| told(&line)), "{lines:#?}");
    stop([a]).await;
}

#[tokio::test]
async fn a_goodbye_is_told_before_the_leave() {
    let keys = Keys::abc();
    let (mut a, mut b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    b.saw_alive("a").await;
    let clone = b.gossip.clone();
    b.gossip.leave().await;
    let told = |e: &MemberEvent| match e {
        MemberEvent::Gone { name, .. } | MemberEvent::Update { name, .. } => name.as_str() == "b",
        _ => false,
    };
    let first = a.wait_for_event("goodbye", told).await;
    assert!(matches!(&first, MemberEvent::Update { report, signed: true, .. } if report.leaving), "{first:?}");
    a.saw_gone("b").await;
    assert!(matches!(clone.publish(report(FIRST)).await, Err(GossipError::Stopped)));
    assert!(matches!(clone.join(a.gossip.addr()).await, Err(GossipError::Stopped)));

    let again = peer_as(config("b", 2, &keys), SECOND).await;
    again.gossip.join(a.gossip.addr()).await.expect("join");
    a.wait_for_event("back", |e| matches!(e, MemberEvent::Alive { report, .. } if !report.leaving)).await;
    stop([a, again]).await;
}

#[tokio::test]
async fn a_wrong_signature_is_kept_out_and_alarmed() {
    let keys = Keys::abc();
    let mut a = peer(config("a", 1, &keys)).await;
    let forger = peer(config("b", 9, &keys)).await;
    // memberlist returns Ok to the joiner even if its record is rejected.
    let _ = forger.gossip.join(a.gossip.addr()).await;
    let event =
        a.wait_for_event("alarm", |e| !matches!(e, MemberEvent::Alive { name, .. } if name.as_str() == "a")).await;
    assert_eq!(event, MemberEvent::Forged { name: "b".into(), addr: forger.gossip.addr() });
    assert_eq!(a.gossip.peers_alive(), 0);

    // The real node is admitted, and the forger is still not listed.
    let b = peer(config("b", 2, &keys)).await;
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    let _ = forger.gossip.join(a.gossip.addr()).await;
    assert_eq!(a.member("b").map(|m| (m.addr, m.signed)), Some((b.gossip.addr(), true)));
    stop([a, b, forger]).await;
}

#[tokio::test]
async fn an_impostor_leaves_the_true_node_undisturbed_but_alarmed() {
    let keys = Keys::abc();
    let (mut a, mut b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    let impostor = peer(config("b", 9, &keys)).await;
    let _ = impostor.gossip.join(b.gossip.addr()).await;
    let forged = MemberEvent::Forged { name: "b".into(), addr: impostor.gossip.addr() };
    let seen = b
        .wait_for_event("alarm", |e| matches!(e, MemberEvent::Forged { .. } | MemberEvent::SignedElsewhere { .. }))
        .await;
    assert_eq!(seen, forged);
    assert_eq!(a.member("b").map(|m| m.addr), Some(b.gossip.addr()));
    stop([a, b, impostor]).await;
}

#[tokio::test]
async fn an_unknown_node_is_let_in_unsigned_until_it_is_known_and_out_when_removed() {
    let keys = Keys::abc();
    let (mut a, x) = (peer(config("a", 1, &keys)).await, peer(config("x", 9, &keys)).await);
    x.gossip.join(a.gossip.addr()).await.expect("join");
    let seen = a.saw_alive("x").await;
    assert!(matches!(seen, MemberEvent::Alive { signed: false, .. }), "{seen:?}");

    keys.know("x", 9);
    a.gossip.recheck().await;
    a.wait_for_event(
        "believed",
        |e| matches!(e, MemberEvent::Update { name, signed: true, .. } if name.as_str() == "x"),
    )
    .await;

    keys.set("x", KeyLookup::Removed);
    a.gossip.recheck().await;
    a.saw_gone("x").await;
    let _ = x.gossip.join(a.gossip.addr()).await;
    assert_eq!(a.member("x"), None);

    keys.know("x", 9);
    a.gossip.recheck().await;
    a.saw_alive("x").await;
    stop([a, x]).await;
}

#[tokio::test]
async fn a_wrong_gossip_key_or_cluster_never_joins() {
    let keys = Keys::abc();
    let mut a = peer(config("a", 1, &keys)).await;
    let b = peer(Config { key: [8; 32], ..config("b", 2, &keys) }).await;
    let c = peer(Config { cluster: "other".into(), ..config("c", 3, &keys) }).await;
    assert!(b.gossip.join(a.gossip.addr()).await.is_err());
    assert!(c.gossip.join(a.gossip.addr()).await.is_err());
    // A permitted node joins. This shows that `a` was listening all the time.
    let d = peer(config("d", 4, &keys)).await;
    d.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("d").await;
    assert_eq!(a.gossip.peers_alive(), 1, "{:?}", a.gossip.members());
    assert_eq!((b.gossip.peers_alive(), c.gossip.peers_alive()), (0, 0));
    stop([a, b, c, d]).await;
}

#[tokio::test]
async fn the_gossip_key_is_rotated_without_a_break() {
    let keys = Keys::abc();
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    let new = [9; 32];
    let old = [7; 32];
    for (first, others) in [(old, &[new][..]), (new, &[old]), (new, &[])] {
        for peer in [&a, &b] {
            peer.gossip.set_keys(first, others);
        }
    }
    // The member moves to another port and keeps its keys.
    let moved = SocketAddr::from(([127, 0, 0, 1], 0));
    b.gossip.move_to(moved, moved).await.expect("moved");
    b.gossip.join(a.gossip.addr()).await.expect("found again by the new key");
    let stranger = peer(config("d", 4, &keys)).await;
    assert!(stranger.gossip.join(a.gossip.addr()).await.is_err(), "the old key opens nothing");
    let c = peer(Config { key: new, ..config("c", 3, &keys) }).await;
    c.gossip.join(b.gossip.addr()).await.expect("join with the new key");
    a.saw_alive("c").await;
    stop([a, b, c, stranger]).await;
}

#[tokio::test]
async fn a_quick_restart_and_a_move_show_the_new_instance() {
    let keys = Keys::abc();
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    let at = b.gossip.addr();
    b.gossip.shutdown().await;
    let b = peer_as(Config { bind: at, advertise: at, ..config("b", 2, &keys) }, SECOND).await;
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.wait_until_listed("b", |m| m.report.instance.as_str() == SECOND && m.signed && m.addr == at).await;

    b.gossip.shutdown().await;
    a.saw_gone("b").await;
    let mut b = peer_as(config("b", 2, &keys), FIRST).await;
    assert_ne!(b.gossip.addr(), at);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.wait_until_listed("b", |m| m.report.instance.as_str() == FIRST && m.signed && m.addr == b.gossip.addr()).await;
    while let Ok(event) = b.events.try_recv() {
        assert!(!matches!(event, MemberEvent::SignedElsewhere { .. } | MemberEvent::Forged { .. }), "{event:?}");
    }
    stop([a, b]).await;
}

#[tokio::test]
async fn a_reinstalled_node_gets_in_with_a_new_key_at_the_same_address() {
    let keys = Keys::abc();
    let (a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    // The record of `b` has been superseded often. So memberlist would treat the record of a fresh
    // start as older.
    for isolation in 1..5 {
        b.gossip.publish(Report { isolation, ..report(FIRST) }).await.expect("publish");
    }
    a.wait_until_listed("b", |m| m.report.isolation == 4).await;
    let at = b.gossip.addr();
    b.gossip.shutdown().await;
    // The restart is faster than failure detection, so `a` still has the record of the earlier key
    // as alive.
    keys.know("b", 5);
    let b = peer_as(Config { bind: at, advertise: at, ..config("b", 5, &keys) }, SECOND).await;
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.wait_until_listed("b", |m| m.report.instance.as_str() == SECOND && m.signed).await;
    stop([a, b]).await;
}

#[tokio::test]
async fn a_copied_identity_is_told_so() {
    let keys = Keys::abc();
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    let mut copy = peer_as(config("b", 2, &keys), SECOND).await;
    let _ = copy.gossip.join(a.gossip.addr()).await;
    let told = copy.wait_for_event("copied", |e| matches!(e, MemberEvent::SignedElsewhere { .. })).await;
    assert_eq!(told, MemberEvent::SignedElsewhere { addr: b.gossip.addr(), api: 0 });
    a.wait_for_event("conflict", |e| matches!(e, MemberEvent::Conflict { name, .. } if name.as_str() == "b")).await;
    assert_eq!(a.member("b").map(|m| m.addr), Some(b.gossip.addr()));
    stop([a, b, copy]).await;
}

#[tokio::test]
async fn of_two_daemons_of_one_node_the_older_one_is_told_and_the_other_goes_on() {
    let keys = Keys::abc();
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    let of = |epoch, manages, instance| Report { epoch: Epoch(epoch), manages, ..report(instance) };
    b.gossip.publish(of(3, true, FIRST)).await.expect("published");
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    let mut newer = peer_as(config("b", 2, &keys), SECOND).await;
    newer.gossip.publish(Report { api: 7_947, ..of(7, true, SECOND) }).await.expect("published");
    let _ = newer.gossip.join(a.gossip.addr()).await;
    let told = newer.wait_for_event("outranked", |e| matches!(e, MemberEvent::OutrankedElsewhere { .. })).await;
    assert_eq!(told, MemberEvent::OutrankedElsewhere { addr: b.gossip.addr(), lasting: false });
    // `b` gets the record of the newer daemon directly, because members do not pass on a record
    // that contradicts the record of a live member.
    let _ = newer.gossip.join(b.gossip.addr()).await;
    let mut claims = b.gossip.claims();
    let claim = EpochClaim { addr: newer.gossip.addr(), epoch: Epoch(7), api: 7_947, manages: true, signed: true };
    let heard =
        tokio::time::timeout(PATIENCE, claims.wait_for(|claims| claims.get(&NodeName::from("b")) == Some(&claim)))
            .await;
    drop(heard.expect("it is heard").expect("the member runs"));
    // Now `b` has the epoch of the newer daemon and is no manager, so `b` has to stop.
    b.gossip.publish(of(7, false, FIRST)).await.expect("published");
    assert!(b.gossip.claims().borrow().is_empty(), "what was claimed is known");
    let (mut b, addr) = (b, newer.gossip.addr());
    for _ in 0..50 {
        let _ = newer.gossip.join(b.gossip.addr()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = b.wait_for_event("copied", |e| matches!(e, MemberEvent::SignedElsewhere { .. })).await;
    assert_eq!(told, MemberEvent::SignedElsewhere { addr, api: 7_947 });
    let ends = |e: &MemberEvent| matches!(e, MemberEvent::SignedElsewhere { .. });
    while let Ok(event) = newer.events.try_recv() {
        assert!(!ends(&event), "{event:?}");
    }
    stop([a, b, newer]).await;
}

#[tokio::test]
async fn a_node_that_was_cut_off_is_found_again_from_the_cache() {
    let keys = Keys::abc();
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("peers.json");
    let (mut a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    let at = b.gossip.addr();
    let rejoin = RejoinLoop::new(a.gossip.clone(), path.clone(), "a".into(), timing());
    rejoin.set_known(BTreeMap::from([("a".into(), vec![]), ("b".into(), vec![at])]));
    a.saw_alive("b").await;

    b.gossip.shutdown().await;
    a.saw_gone("b").await;
    // `b` comes back and dials no node, so `a` has to find it.
    let b = peer_as(Config { bind: at, advertise: at, ..config("b", 2, &keys) }, SECOND).await;
    a.saw_alive("b").await;

    // Then `a` is restarted. It knows only the addresses in its cache file.
    drop(rejoin);
    a.gossip.shutdown().await;
    let mut a = peer_as(config("a", 1, &keys), SECOND).await;
    let rejoin = RejoinLoop::new(a.gossip.clone(), path.clone(), "a".into(), timing());
    a.saw_alive("b").await;
    drop(rejoin);
    stop([a, b]).await;
}

#[tokio::test]
async fn addresses_seen_in_use_are_written_to_the_cache() {
    let keys = Keys::abc();
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("peers.json");
    let (a, b) = (peer(config("a", 1, &keys)).await, peer(config("b", 2, &keys)).await);
    let rejoin = RejoinLoop::new(a.gossip.clone(), path.clone(), "a".into(), timing());
    let stale = SocketAddr::from(([127, 0, 0, 1], 1));
    rejoin.set_known(BTreeMap::from([("b".into(), vec![stale])]));
    b.gossip.join(a.gossip.addr()).await.expect("join");
    let expect = vec![b.gossip.addr(), stale];
    let written = tokio::time::timeout(PATIENCE, async {
        while cache::load(&path).ok().and_then(|nodes| nodes.get("b").cloned()) != Some(expect.clone()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(written.await.is_ok(), "{:?}", std::fs::read_to_string(&path));
    drop(rejoin);
    stop([a, b]).await;
}

#[tokio::test]
async fn what_can_not_work_is_refused_at_the_start() {
    let keys = Keys::abc();
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let refused = start(Config { advertise: anywhere, ..config("a", 1, &keys) }, report(FIRST)).await;
    assert!(matches!(refused.err(), Some(GossipError::Advertise(_))));
    let refused = start(config("a b", 1, &keys), report(FIRST)).await;
    assert!(matches!(refused.err(), Some(GossipError::Name(3))));
    let refused = start(Config { cluster: "c".repeat(300).into(), ..config("a", 1, &keys) }, report(FIRST)).await;
    assert!(matches!(refused.err(), Some(GossipError::Label)));
    let refused = start(config("a", 1, &keys), report("x")).await;
    assert!(matches!(refused.err(), Some(GossipError::Report(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_moves_is_the_same_instance_elsewhere() {
    let keys = Keys::abc();
    let mut patient = config("a", 1, &keys);
    // The grace period is so long that even a slow machine finds the old address dead within it.
    patient.timing.copy_grace = PATIENCE;
    let mut a = peer(patient).await;
    let mut b = peer(config("b", 2, &keys)).await;
    b.gossip.join(a.gossip.addr()).await.expect("joined");
    a.saw_alive("b").await;
    b.saw_alive("a").await;
    let (before, port) = (b.gossip.addr(), b.gossip.addr().port());
    let mut watched = b.gossip.changes();
    watched.mark_unchanged();

    let elsewhere = SocketAddr::from(([127, 0, 0, 2], port));
    b.gossip.move_to(elsewhere, elsewhere).await.expect("moved");
    b.wait_for_event("a gone", |e| matches!(e, MemberEvent::Gone { name, .. } if name.as_str() == "a")).await;
    assert!(watched.has_changed().expect("the same watch goes on"), "the rejoin loop is notified");
    assert_eq!((b.gossip.addr(), b.gossip.peers_alive()), (elsewhere, 0));
    // Dial repeatedly, as the rejoin loop does, until the other members have found the old address
    // dead.
    let again = b.gossip.clone();
    let target = a.gossip.addr();
    let dialling = tokio::spawn(async move {
        loop {
            let _ = again.join(target).await; // refused until the old address is found dead
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let moved = |e: &MemberEvent| {
        matches!(e, MemberEvent::Alive { name, addr, signed: true, report }
            | MemberEvent::Update { name, addr, signed: true, report }
            if name.as_str() == "b" && *addr == elsewhere && report.instance.0 == FIRST)
    };
    let mut told = Vec::new();
    let seen = tokio::time::timeout(PATIENCE, async {
        loop {
            let event = a.events.recv().await.expect("the member runs");
            let there = moved(&event);
            told.push(event);
            if there {
                return;
            }
        }
    });
    seen.await.unwrap_or_else(|_| panic!("never at {elsewhere}: {told:?}"));
    dialling.abort();
    let alarm = |e: &&MemberEvent| matches!(e, MemberEvent::Conflict { .. } | MemberEvent::Forged { .. });
    assert_eq!(told.iter().find(alarm), None, "a move is no impostor; it was at {before}");
    // The later reports of `b` arrive from its new address.
    b.gossip.publish(Report { isolation: 9, ..report(FIRST) }).await.expect("published");
    a.wait_for_event("news", |e| matches!(e, MemberEvent::Update { report, .. } if report.isolation == 9)).await;
}
