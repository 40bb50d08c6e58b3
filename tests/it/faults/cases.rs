//! The cases of Docker Swarm's own manager tests, under their names; and some cases of remoor that
//! take too long for a round of faults.

use super::cluster::{Cluster, name};
use super::{Rng, namespaces_missing, one_at_a_time};
use crate::time_limit::BoundedCommand;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The Raft id of the node in this directory. None: the node is a worker.
pub fn raft_id(home: &Path) -> Option<u64> {
    let bytes = fs::read(home.join("identity.json")).expect("an identity");
    serde_json::from_slice::<Value>(&bytes).expect("JSON")["raft"].as_u64()
}

impl Cluster {
    fn wait_until_voters(&mut self, wanted: &[usize]) {
        let wanted: BTreeSet<usize> = wanted.iter().copied().collect();
        self.wait_until(&format!("{wanted:?} are voters"), |c| {
            (c.voters().into_iter().collect::<BTreeSet<_>>() == wanted).then_some(())
        });
    }

    fn follower(&self) -> usize {
        let leader = self.wait_for_leader();
        self.voters().into_iter().find(|at| *at != leader).expect("a follower")
    }

    /// Announces maintenance of the node. The resulting log entry must not be lost.
    fn note(&self, of: usize) {
        self.order_successfully(&["maintenance", &name(of), "--for", "1h"]);
    }

    fn has_note(&self, of: usize) -> bool {
        let path = format!("/v1/history?node={}", name(of));
        let history: Value = self.wait_until("a journal", |c| c.get(c.leader()?, &path).ok());
        history.to_string().contains("maintenance announced")
    }
}

/// A node that joins again is the same node. While the node runs, its join is rejected and the
/// members do not change.
#[test]
fn join_twice() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let (before, key) = (cluster.members().expect("members"), cluster.home(1).join("node.key"));
    let again = cluster.home(1).with_file_name("again");
    fs::create_dir(&again).expect("made");
    fs::copy(key, again.join("node.key")).expect("copied");
    let out = cluster.join_command(3, "m2", true).arg("--dir").arg(&again).bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("it is not joined a second time"), "{text}");
    // Another machine with another key tries to join with the name m2.
    let other = again.with_file_name("other");
    let out = cluster.join_command(3, "m2", true).arg("--dir").arg(&other).bounded_output();
    assert!(!out.status.success(), "{out:?}");
    cluster.wait_until_voters(&[0, 1, 2]);
    let ids = |view: remoor_cluster::rpc::view::RaftView| view.members.into_iter().map(|m| m.id).collect::<Vec<_>>();
    assert_eq!(ids(cluster.members().expect("members")), ids(before));
    cluster.wait_until_settled();
}

/// The leader stops in an orderly way. The other managers continue with a new leader. When the
/// former leader returns, it is a voter again.
#[test]
fn leader_leave() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let leader = cluster.wait_for_leader();
    cluster.note(leader);
    cluster.signal(leader, Signal::TERM);
    let begun = Instant::now();
    while cluster.runs(leader) {
        assert!(begun.elapsed() < super::cluster::LONG, "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let next = cluster.wait_until("another manager leads", |c| c.leader().filter(|at| *at != leader));
    assert!(cluster.has_note(leader));
    cluster.note(next);
    cluster.start(leader);
    cluster.wait_until_voters(&[0, 1, 2]);
    cluster.wait_until_settled();
    assert!(cluster.has_note(next));
}

/// A follower that lost its log never gets its old vote again. After a demotion, the machine
/// returns with another name and id.
#[test]
fn wiped_state() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let wiped = cluster.follower();
    let id = raft_id(&cluster.home(wiped)).expect("an id");
    cluster.note(wiped);
    assert!(cluster.kill(wiped));
    fs::remove_dir_all(cluster.home(wiped).join("raft")).expect("removed");
    cluster.start(wiped);
    cluster.wait_until("the service does not start with the id that had a log", |c| {
        fs::read_to_string(c.log(wiped))
            .ok()
            .filter(|log| log.contains("so its manager service does not run under this Raft id"))
    });
    cluster.order_successfully(&["demote", &name(wiped)]);
    let others: Vec<usize> = (0..3).filter(|at| *at != wiped).collect();
    cluster.wait_until_voters(&others);
    assert!(cluster.members().expect("members").members.iter().all(|m| m.id != id));

    // The node that lost its log is promoted again, with another Raft id.
    cluster.order_successfully(&["promote", &name(wiped)]);
    cluster.wait_until_voters(&[0, 1, 2]);
    let id = raft_id(&cluster.home(wiped)).filter(|new| *new > id).expect("another id");
    assert!(cluster.has_note(wiped));

    // Now the whole directory of the node is lost, and the same machine joins with the name m4.
    cluster.note(wiped);
    cluster.kill(wiped);
    cluster.order_successfully(&["demote", &name(wiped), "--no-wait"]);
    cluster.wait_until_voters(&others);
    cluster.move_node(wiped, 3);
    let home = cluster.home(3);
    crate::local::run_successfully(cluster.join_command(3, "m4", true).arg("--dir").arg(&home));
    cluster.start(3);
    cluster.wait_until_voters(&[others[0], others[1], 3]);
    assert!(raft_id(&home) > Some(id));
    assert!(cluster.has_note(wiped));
}

/// All managers stop, and start again one after the other. With the second manager there is a
/// leader, and no log entry is lost.
#[test]
fn restart_cluster_staggered() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    for round in 0..3 {
        cluster.note(round);
        assert!((0..3).all(|at| cluster.kill(at)));
        for step in 0..3 {
            let at = (step + round) % 3;
            cluster.start(at);
            std::thread::sleep(Duration::from_millis(400));
            if step == 1 {
                cluster.wait_for_leader();
            }
        }
        cluster.wait_until_voters(&[0, 1, 2]);
        cluster.wait_until_settled();
        assert!((0..=round).all(|at| cluster.has_note(at)));
    }
}

#[test]
fn demote_promote_leader() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let leader = cluster.wait_for_leader();
    let (id, others) = (raft_id(&cluster.home(leader)), (0..3).filter(|at| *at != leader).collect::<Vec<_>>());
    cluster.order_successfully(&["demote", &name(leader), "--no-wait"]);
    cluster.wait_until_voters(&others);
    cluster.wait_until("the node is a worker", |c| raft_id(&c.home(leader)).is_none().then_some(()));
    cluster.order_successfully(&["promote", &name(leader), "--no-wait"]);
    cluster.wait_until_voters(&[0, 1, 2]);
    assert!(raft_id(&cluster.home(leader)) > id, "an id is given once");
    cluster.wait_until_settled();
}

#[test]
fn demote_downed_manager() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let down = cluster.follower();
    assert!(cluster.kill(down));
    cluster.order_successfully(&["demote", &name(down), "--no-wait"]);
    let others: Vec<usize> = (0..3).filter(|at| *at != down).collect();
    cluster.wait_until_voters(&others);
    cluster.start(down);
    cluster.wait_until("the log is archived after the return", |c| raft_id(&c.home(down)).is_none().then_some(()));
    cluster.wait_until_voters(&others);
    cluster.wait_until_settled();
}

#[test]
fn demote_to_single_manager() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let stays = cluster.wait_for_leader();
    let others: Vec<String> = (0..3).filter(|at| *at != stays).map(name).collect();
    cluster.order_successfully(&["demote", &others[0], &others[1], "--no-wait"]);
    cluster.wait_until_voters(&[stays]);
    let out = cluster.ask(stays, &["demote", &name(stays)]);
    assert_eq!(out.status.code(), Some(4), "{out:?}");
    cluster.note(stays);
    cluster.wait_until_settled();
}

/// Promotions and demotions alternate faster than they can be completed. At the end no demoted node
/// is a voter, and the last order takes effect. There are thirty rounds, with `REMOOR_LONG` a
/// hundred.
#[test]
fn hundred_promote_demote_rounds() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 1);
    let mut rng = Rng(7);
    for round in 0..if crate::lab::tool::has_production_durations() { 100 } else { 30 } {
        for verb in ["promote", "demote"] {
            cluster.order_successfully(&[verb, "m2", "--no-wait"]);
            // Most demotions come while the node is still a learner, and some after it has become a
            // voter.
            let voted = round % 15 == 14 && verb == "promote";
            if voted {
                cluster.wait_until_voters(&[0, 1]);
            }
            std::thread::sleep(Duration::from_millis(rng.next() % 400));
        }
    }
    cluster.wait_until("the node is a worker and not a member", |c| {
        let alone = c.members()?.members.len() == 1;
        (alone && raft_id(&c.home(1)).is_none()).then_some(())
    });
    cluster.order_successfully(&["promote", "m2", "m3", "--no-wait"]);
    cluster.wait_until_voters(&[0, 1, 2]);
    cluster.wait_until_settled();
}

/// The leader dies when a change of voters is half done. Another leader completes the change.
#[test]
fn leader_dies_in_joint() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(5, 5);
    let mut rng = Rng(11);
    for _ in 0..2 {
        let killed = (0..3).find_map(|_| super::joint::kill_in_joint(&mut cluster, &mut rng));
        let (demoted, proof) = killed.expect("half of a change");
        eprintln!("{proof}");
        cluster.wait_until_voters(&(0..5).filter(|at| *at != demoted).collect::<Vec<_>>());
        cluster.wait_until_settled();
    }
}

/// Rate of the network in kilobytes per second. With it, the snapshot takes some seconds.
const RATE: u64 = 100;

/// A follower is killed repeatedly while it receives a snapshot. At the end it has all log entries.
#[test]
fn snapshot_interrupted() {
    if namespaces_missing() {
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let late = cluster.follower();
    let before = cluster.state(late).expect("a state").applied;
    // First the number of bytes is measured that the follower receives at a start without a
    // snapshot.
    assert!(cluster.kill(late));
    cluster.limit(late, RATE);
    cluster.start(late);
    cluster.wait_until_voters(&[0, 1, 2]);
    cluster.wait_until_settled();
    let usual = cluster.sent_bytes(late);
    cluster.unlimit(late);
    assert!(cluster.kill(late));
    let leader = cluster.wait_for_leader();
    cluster.fill(leader, 64, 6_500);
    // The old log is purged, so the follower can receive the missing log entries only with a
    // snapshot.
    let snapshot = |c: &Cluster, of: usize| fs::metadata(c.home(of).join("raft/snapshot")).map(|file| file.len());
    assert!(snapshot(&cluster, late).is_err());
    let whole = snapshot(&cluster, leader).expect("a snapshot");
    for part in [1, 2, 3] {
        cluster.limit(late, RATE);
        cluster.start(late);
        let wanted = usual + whole * part / 4;
        let enough = |c: &Cluster| Some(c.sent_bytes(late)).filter(|sent| *sent >= wanted);
        let sent = cluster.wait_until("a part of the snapshot exists", enough);
        assert!(cluster.kill(late));
        eprintln!("killed after {sent} bytes, {usual} as usual, of a snapshot of {whole}");
        assert!(sent < usual + whole && snapshot(&cluster, late).is_err(), "the kill came too late");
        cluster.unlimit(late);
    }
    cluster.start(late);
    let after = cluster.wait_until("the log has caught up", |c| c.state(late).filter(|s| s.applied > before + 6_000));
    assert!(snapshot(&cluster, late).is_ok(), "by a snapshot: {after:?}");
    cluster.wait_until_settled();
}

/// An older copy replaces the directory of a follower. The copy lacks log entries that the follower
/// has confirmed. No acknowledged write is lost, and the other managers always accept orders. Only
/// `make long-faults` runs this test; in `make test`, `Fault::PutBack` does the same while clients
/// write.
#[test]
fn rolled_back_directory() {
    if namespaces_missing() {
        return;
    }
    if !crate::lab::tool::has_production_durations() {
        eprintln!("NOT RUN HERE: rolled_back_directory; next: make long-faults");
        return;
    }
    let _alone = one_at_a_time();
    let mut cluster = Cluster::create(3, 3);
    let back = cluster.follower();
    let (home, copy) = (cluster.home(back), cluster.home(back).with_extension("copy"));
    assert!(cluster.kill(back));
    crate::local::run_successfully(std::process::Command::new("cp").arg("-a").arg(&home).arg(&copy));
    cluster.start(back);
    cluster.wait_until_settled();
    cluster.fill(cluster.wait_for_leader(), 8, 200);
    cluster.note(back);
    cluster.wait_until_settled();
    assert!(cluster.kill(back));
    fs::remove_dir_all(&home).expect("removed");
    fs::rename(&copy, &home).expect("moved");
    cluster.start(back);
    cluster.wait_until("the log is archived", |c| raft_id(&c.home(back)).is_none().then_some(()));
    assert_eq!((0..3).filter(|at| !cluster.runs(*at)).count(), 0, "no node has ended");
    cluster.order_successfully(&["demote", &name(back)]);
    cluster.order_successfully(&["promote", &name(back)]);
    cluster.note(0);
    assert!(cluster.has_note(back) && cluster.has_note(0));
    cluster.wait_until_settled();
}
