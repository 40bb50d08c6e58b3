//! Tests of the rejoin loop with a simulated network that only counts calls.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

const NODES: usize = 400;

/// A network in which half of the nodes are members. Every dial fails at once.
#[derive(Clone)]
struct CountingNetwork {
    changes: Arc<watch::Sender<u64>>,
    looks: Arc<AtomicU64>,
    dials: Arc<AtomicU64>,
}

fn place(n: usize) -> SocketAddr {
    SocketAddr::from(([10, 1, (n / 250) as u8, (n % 250) as u8], 7946))
}

fn name(n: usize) -> NodeName {
    NodeName(format!("w{n:04}"))
}

impl DialledNetwork for CountingNetwork {
    fn own_address(&self) -> SocketAddr {
        place(0)
    }

    fn live_addresses(&self) -> Vec<(NodeName, SocketAddr, bool)> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        (0..NODES / 2).map(|n| (name(n), place(n), true)).collect()
    }

    fn is_live(&self, name: &NodeName) -> bool {
        *name < NodeName(format!("w{:04}", NODES / 2))
    }

    fn follow_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    async fn dial(&self, addr: SocketAddr) -> Result<(), GossipError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        Err(GossipError::JoinTimeout { addr })
    }
}

#[tokio::test]
async fn a_burst_of_changes_is_one_look_at_all_nodes() {
    let dir = tempfile::tempdir().expect("a folder");
    let changes = Arc::new(watch::Sender::new(0));
    let member = CountingNetwork { changes: changes.clone(), looks: Arc::default(), dials: Arc::default() };
    let timing = GossipTiming { change_spacing: Duration::from_millis(100), ..GossipTiming::default() };
    let begun = Instant::now();
    let rejoin = RejoinLoop::new(member.clone(), dir.path().join("addresses.json"), name(0), timing.clone());
    rejoin.set_known((0..NODES).map(|n| (name(n), vec![place(n)])).collect());
    let mut made = 0;
    while begun.elapsed() < 20 * timing.change_spacing {
        changes.send_modify(|changes| *changes += 1);
        made += 1;
        tokio::task::yield_now().await;
    }
    // The loop also reads the members three times without a change of the members: at the start, at
    // the first tick of the cache's interval, and after `set_known`.
    let most = begun.elapsed().as_millis() / timing.change_spacing.as_millis() + 1 + 3;
    let looks = u128::from(member.looks.load(Ordering::SeqCst));
    assert!(made > 1_000, "{made}");
    assert!((2..=most).contains(&looks), "{looks} looks for {made} changes, at most {most}");
    // 200 nodes are members and 200 are missing. This node dials each missing one once in 60 s *
    // 200 / 16, where 200 is the number of members.
    let dials = member.dials.load(Ordering::SeqCst);
    assert!(dials < 50, "{dials} dials");
    drop(rejoin);
}
