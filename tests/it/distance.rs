//! Three managers with a round trip of 300 ms and a loss of 2 % of the frames in each direction.
//! All managers name the same leader, at rest and under load, during the restart of a follower and
//! during a join. The test needs root and a C compiler.

use crate::far::{Far, Links, NODES, node};
use crate::local::wait_until;
use remoor_cluster::rpc::view::RaftStateView;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A round trip of 300 ms, and 2 % of the frames are lost in each direction.
const FAR: Links = Links { delay_ms: 150, loss: 200, mute: 0 };
const LOOK: Duration = Duration::from_millis(200);

impl Far {
    fn state(&self, at: usize) -> Option<RaftStateView> {
        self.runtime.block_on(self.client(at).with_timeout(Duration::from_secs(3)).get("/v1/raft/state")).ok()
    }

    /// The leader on which these managers agree and that itself says that it leads.
    fn leader(&self, among: &[usize]) -> Option<usize> {
        let states: Vec<_> = among.iter().map(|at| self.state(*at)).collect::<Option<_>>()?;
        let leader = states.first()?.as_of.leader.clone()?;
        let same = states.iter().all(|s| s.as_of.leader.as_ref() == Some(&leader));
        let leads = |s: &RaftStateView| s.as_of.by != leader || !s.as_of.stale;
        (same && states.iter().all(leads)).then(|| (1..=NODES).find(|at| node(*at) == leader))?
    }

    /// Asks these managers for the leader again and again until `end` returns true. Returns the
    /// number of rounds, and the number of rounds in which each leader was named.
    fn watch(&self, among: &[usize], mut end: impl FnMut(Duration) -> bool) -> (usize, BTreeMap<usize, usize>) {
        let (begun, mut looks, mut seen) = (Instant::now(), 0, BTreeMap::new());
        while !end(begun.elapsed()) {
            looks += 1;
            match self.leader(among) {
                Some(leader) => *seen.entry(leader).or_default() += 1,
                None => eprintln!("no leader of {among:?} after {:?}", begun.elapsed()),
            }
            std::thread::sleep(LOOK);
        }
        eprintln!("{among:?}: {looks} looks in {:?}, leaders {seen:?}", begun.elapsed());
        (looks, seen)
    }
}

/// Asserts that all managers named the same leader in every round, and returns the leader.
fn assert_stable((looks, seen): (usize, BTreeMap<usize, usize>)) -> usize {
    assert!(looks > 0 && seen.len() == 1 && seen.values().all(|n| *n == looks), "{looks} looks, leaders {seen:?}");
    *seen.keys().next().expect("one leader")
}

#[test]
fn managers_with_a_round_trip_of_300_ms_and_losses_keep_their_leader() {
    let Some(mut far) = Far::start_first("d") else { return };
    (2..=3).for_each(|at| far.join(at, "manager"));
    far.wait_for_voters(3);
    let all = [1, 2, 3];
    far.set_links(FAR);
    // The connections have to adapt to the sudden change of the distance.
    std::thread::sleep(Duration::from_secs(10));
    wait_until("a common leader", || far.leader(&all));
    let leader = assert_stable(far.watch(&all, |passed| passed > Duration::from_secs(60)));

    // Orders at the leader and at both followers.
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let clients = all.iter().flat_map(|at| [*at; 4]).map(|at| {
        let (client, stop, done) = (far.client(at), stop.clone(), done.clone());
        far.runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let order = json!({"for_ms": 3_600_000});
                match client.post::<Value>("/v1/nodes/m1/maintenance", &order).await {
                    Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        eprintln!("an order at m{at}: {error}");
                        tokio::time::sleep(LOOK * 5).await;
                    }
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    assert_eq!(assert_stable(far.watch(&all, |passed| passed > Duration::from_secs(30))), leader);
    eprintln!("{done:?} orders in 30 s");
    assert!(done.load(Ordering::Relaxed) > 30, "{done:?} orders in 30 s");
    let nodes = far.daemons[&leader].json("status")["nodes"].clone();
    let absent = |node: &Value| node["presence"] != "alive" || node["absences"] != 0;
    assert!(!nodes.as_array().expect("nodes").iter().any(absent), "a node was lost: {nodes:#}");

    // A follower starts again. The other two keep the leader.
    let follower = all.into_iter().find(|at| *at != leader).expect("a follower");
    let stay: Vec<usize> = all.into_iter().filter(|at| *at != follower).collect();
    far.daemons.get_mut(&follower).expect("a daemon").kill();
    assert_eq!(assert_stable(far.watch(&stay, |passed| passed > Duration::from_secs(10))), leader);
    far.start(follower);
    assert_eq!(assert_stable(far.watch(&stay, |_| far.leader(&all) == Some(leader))), leader);

    // A manager joins.
    far.join(4, "manager");
    assert_eq!(assert_stable(far.watch(&all, |_| far.leader(&[1, 2, 3, 4]) == Some(leader))), leader);
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| far.runtime.block_on(client).expect("no client panics"));
    assert_eq!(assert_stable(far.watch(&all, |passed| passed > Duration::from_secs(10))), leader);

    far.daemons.get_mut(&leader).expect("a daemon").kill();
    let (killed, left) = (Instant::now(), [1, 2, 3, 4].into_iter().filter(|at| *at != leader).collect::<Vec<_>>());
    wait_until("another leader", || far.leader(&left).filter(|at| *at != leader));
    eprintln!("another manager leads {:?} after the end of the leader", killed.elapsed());
}
