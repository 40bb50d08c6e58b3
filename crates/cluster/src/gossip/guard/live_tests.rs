//! Attacks on real members by a node with the gossip key, or by a machine on the path.

use super::super::guard::highest_at;
use super::super::{forge, meta};
use super::*;
use tokio::net::UdpSocket;

/// A compromised node raises the incarnation of b again and again to the highest number that the
/// newest report of b allows. It also accuses b with every number that is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raised_incarnations_and_accusations_neither_remove_nor_freeze_a_node() {
    let keys = Keys::abc();
    let slower = GossipTiming {
        probe_interval: Duration::from_secs(1),
        probe_timeout: Duration::from_millis(500),
        gossip_interval: Duration::from_millis(200),
        ..timing()
    };
    let slow = |name, seed| Config { timing: slower.clone(), ..config(name, seed, &keys) };
    let (mut a, b) = (peer(slow("a", 1)).await, peer(slow("b", 2)).await);
    b.gossip.join(a.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    b.wait_until_listed("a", |_| true).await;
    let (name, accuser, at) = (NodeName::from("b"), NodeName::from("c"), b.gossip.addr());
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a socket");
    for round in 0..80_u32 {
        let record = a.gossip.record(&name).expect("b is a member");
        let limit = highest_at(meta::decode(&record).expect("a report").signed_at);
        for number in [limit, limit - 1, limit + 1, 1 + round, u32::MAX] {
            let messages = [
                forge::alive(&name, at, number, &record),
                forge::suspect(&name, &accuser, number),
                forge::dead(&name, &accuser, number),
                forge::dead(&name, &name, number),
            ];
            let datagram = forge::datagram(&"test".into(), [7; 32], &messages);
            // Not every datagram reaches both members.
            for target in [a.gossip.addr(), at].into_iter().skip((round % 2) as usize) {
                socket.send_to(&datagram, target).await.expect("sent");
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    b.gossip.publish(Report { isolation: 9, ..report(FIRST) }).await.expect("published");
    let seen = a.wait_for_event("news of b, which was never gone", |event| match event {
        MemberEvent::Gone { .. } => true,
        MemberEvent::Update { report, .. } => report.isolation == 9,
        _ => false,
    });
    let seen = seen.await;
    assert!(!matches!(seen, MemberEvent::Gone { .. }), "{seen:?}");
    stop([a, b]).await;
}

/// A machine on the path records all datagrams that b sends to a, and sends them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_datagrams_count_only_once() {
    let keys = Keys::abc();
    let tap = Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
    let bind = UdpSocket::bind("127.0.0.1:0").await.expect("a socket").local_addr().expect("bound");
    let advertise = tap.local_addr().expect("bound");
    let mut a = peer(Config { bind, advertise, ..config("a", 1, &keys) }).await;
    let b = peer(config("b", 2, &keys)).await;
    let recorded = Arc::new(Mutex::new(vec![]));
    let recorder = tokio::spawn({
        let (tap, recorded) = (tap.clone(), recorded.clone());
        async move {
            let mut buffer = [0; 4096];
            loop {
                let (length, _) = tap.recv_from(&mut buffer).await.expect("received");
                recorded.lock().expect("recorded").push(buffer[..length].to_vec());
                tap.send_to(&buffer[..length], bind).await.expect("forwarded");
            }
        }
    });
    a.gossip.join(b.gossip.addr()).await.expect("join");
    a.saw_alive("b").await;
    b.gossip.publish(Report { isolation: 9, ..report(FIRST) }).await.expect("published");
    a.wait_until_listed("b", |b| b.report.isolation == 9).await;
    let again = tokio::time::timeout(PATIENCE, async {
        while a.gossip.refusals().get("a datagram was sent again").is_none_or(|count| *count < 30) {
            let again = recorded.lock().expect("recorded").clone();
            for datagram in again {
                tap.send_to(&datagram, bind).await.expect("sent");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    assert!(again.await.is_ok(), "{:?}", a.gossip.refusals());
    recorder.abort();
    assert_eq!(a.member("b").map(|b| b.report.isolation), Some(9));
    while let Ok(event) = a.events.try_recv() {
        assert!(!matches!(event, MemberEvent::Gone { .. }), "{event:?}");
    }
    stop([a, b]).await;
}
