//! Attacks of a node with the gossip key on real members.

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
