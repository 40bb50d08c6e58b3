//! The faults of a round. Each fault returns a proof that the fault took effect.

use super::cases::raft_id;
use super::cluster::{Cluster, NODES, name};
use super::{Rng, joint};
use crate::local::run_successfully;
use rustix::process::Signal;
use std::io::Write;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillLeader,
    KillFollower,
    KillAll,
    StopLeader,
    StopFollower,
    LeaderAlone,
    MinorityAway,
    MajorityAway,
    LeaderDeaf,
    LeaderMute,
    Bridge,
    Flapping,
    Loss,
    DiskFull,
    Swapped,
    PutBack,
    KillInJoint,
}

pub const ALL: [Fault; 17] = [
    Fault::KillLeader,
    Fault::KillFollower,
    Fault::KillAll,
    Fault::StopLeader,
    Fault::StopFollower,
    Fault::LeaderAlone,
    Fault::MinorityAway,
    Fault::MajorityAway,
    Fault::LeaderDeaf,
    Fault::LeaderMute,
    Fault::Bridge,
    Fault::Flapping,
    Fault::Loss,
    Fault::DiskFull,
    Fault::Swapped,
    Fault::PutBack,
    Fault::KillInJoint,
];

/// The faults of the eight rounds of `make test`, one of each kind: a killed process, all processes
/// killed, a stopped process, a leader without a network, a partition with one node that reaches
/// both sides, lost frames, a full disk, an older directory. A leader that dies during a change of
/// voters has its own test (`cases.rs`). `make long-faults` runs all faults of [`ALL`].
pub const GATE: [Fault; 8] = [
    Fault::KillFollower,
    Fault::KillAll,
    Fault::StopLeader,
    Fault::LeaderAlone,
    Fault::Bridge,
    Fault::Loss,
    Fault::DiskFull,
    Fault::PutBack,
];

/// The duration of a fault, longer than an election.
const HOLD: Duration = Duration::from_millis(5_000);

/// Causes the fault, holds it and ends it. Returns the proof that the fault took effect. None: the
/// fault did not take effect this time.
pub fn strike(fault: Fault, cluster: &mut Cluster, rng: &mut Rng) -> Option<String> {
    let leader = cluster.wait_for_leader();
    // This query waits, because no manager reports the voters while the leader changes.
    let voters = cluster.wait_until("a list of voters", |c| Some(c.voters()).filter(|voters| voters.len() > 1));
    let mut followers: Vec<usize> = voters.into_iter().filter(|at| *at != leader).collect();
    rng.shuffle(&mut followers);
    let others: Vec<usize> = (0..NODES).filter(|at| *at != leader).collect();
    let follower = followers.first().copied()?;
    match fault {
        Fault::KillLeader => kill_and_restart(cluster, &[leader], rng),
        Fault::KillFollower => kill_and_restart(cluster, &[follower], rng),
        Fault::KillAll => kill_and_restart(cluster, &[0, 1, 2, 3, 4], rng),
        Fault::StopLeader => pause_and_continue(cluster, leader),
        Fault::StopFollower => pause_and_continue(cluster, follower),
        Fault::LeaderAlone => cut(cluster, &cluster.frames_between(&[leader], &others)),
        Fault::MinorityAway => {
            let away = &followers[..followers.len() / 2];
            cut(cluster, &cluster.frames_between(away, &all_except(away)))
        }
        Fault::MajorityAway => {
            let away = &followers[..followers.len() / 2 + 1];
            cut(cluster, &cluster.frames_between(away, &all_except(away)))
        }
        Fault::LeaderDeaf => {
            cut(cluster, &others.iter().map(|at| cluster.frames_from(*at, leader)).collect::<Vec<_>>())
        }
        Fault::LeaderMute => {
            cut(cluster, &others.iter().map(|at| cluster.frames_from(leader, *at)).collect::<Vec<_>>())
        }
        Fault::Bridge => {
            // The leader and half of the other nodes can't reach the rest. Only one node reaches
            // both sides.
            let (between, side) = (follower, &followers[1..]);
            let far: Vec<usize> = side[..side.len().div_ceil(2)].to_vec();
            let near: Vec<usize> = (0..NODES).filter(|at| *at != between && !far.contains(at)).collect();
            cut(cluster, &cluster.frames_between(&near, &far))
        }
        Fault::Flapping => {
            flap_link(cluster, &cluster.frames_between(&[leader, follower], &all_except(&[leader, follower])))
        }
        Fault::Loss => {
            let percent = 5 + rng.up_to(26);
            let all = cluster
                .frames_between(&[leader], &others)
                .into_iter()
                .chain(cluster.frames_between(&[follower], &all_except(&[leader, follower])));
            let some = |rule: String| format!("{rule} numgen random mod 100 < {percent}");
            cut(cluster, &all.map(some).collect::<Vec<_>>()).map(|proof| format!("{percent} %: {proof}"))
        }
        Fault::DiskFull => fill_disk(cluster),
        Fault::Swapped => {
            let (one, two) = (others[rng.up_to(others.len())], leader);
            let ran = cluster.swap(one, two);
            std::thread::sleep(HOLD);
            ran.then(|| format!("{} and {} have swapped places", name(one), name(two)))
        }
        Fault::PutBack => {
            // The fifth node is not used, because its directory is a mount and can't be renamed.
            let who = followers.iter().copied().find(|at| *at != NODES - 1)?;
            put_back(cluster, who)
        }
        Fault::KillInJoint => joint::kill_in_joint(cluster, rng).map(|(_, proof)| proof),
    }
}

fn all_except(some: &[usize]) -> Vec<usize> {
    (0..NODES).filter(|at| !some.contains(at)).collect()
}

fn kill_and_restart(cluster: &mut Cluster, who: &[usize], rng: &mut Rng) -> Option<String> {
    let died = who.iter().filter(|at| cluster.kill(**at)).count();
    std::thread::sleep(if who.len() == NODES { HOLD / 5 } else { HOLD });
    for at in who {
        cluster.start(*at);
        std::thread::sleep(Duration::from_millis(rng.next() % 300));
    }
    (died == who.len()).then(|| format!("{died} died by signal 9"))
}

fn pause_and_continue(cluster: &Cluster, at: usize) -> Option<String> {
    let state = cluster.signal(at, Signal::STOP);
    std::thread::sleep(HOLD);
    let then = cluster.signal(at, Signal::CONT);
    (state == Some('T') && then != Some('T')).then(|| format!("{} was in state T", name(at)))
}

fn cut(cluster: &Cluster, rules: &[String]) -> Option<String> {
    cluster.cut(rules);
    std::thread::sleep(HOLD);
    let lost = cluster.lost_frames();
    cluster.cut(&[]);
    (lost > 0).then(|| format!("{lost} frames lost"))
}

fn flap_link(cluster: &Cluster, rules: &[String]) -> Option<String> {
    let (mut lost, mut times) = (0, 0);
    for pause in [700, 300, 900, 500, 1_100, 400] {
        cluster.cut(rules);
        std::thread::sleep(Duration::from_millis(pause));
        let now = cluster.lost_frames();
        lost += now;
        times += usize::from(now > 0);
        cluster.cut(&[]);
        std::thread::sleep(Duration::from_millis(300));
    }
    (times > 1).then(|| format!("{lost} frames lost in {times} cuts"))
}

/// Fills the disk of m5, which is small. A daemon that can't write its log ends.
fn fill_disk(cluster: &mut Cluster) -> Option<String> {
    let ballast = cluster.home(NODES - 1).join("ballast");
    let filled = std::fs::File::create(&ballast).map(|mut file| {
        loop {
            if let Err(error) = file.write_all(&[0; 65_536]) {
                return error.kind();
            }
        }
    });
    std::thread::sleep(HOLD);
    let ran = cluster.runs(NODES - 1);
    std::fs::remove_file(&ballast).expect("removed");
    cluster.revive();
    let is_full = matches!(filled, Ok(std::io::ErrorKind::StorageFull));
    is_full.then(|| format!("no space left; m5 {}", if ran { "went on" } else { "had ended" }))
}

/// Replaces the whole directory of a manager with an older copy, between two starts. The cluster
/// must reject the older directory. After a demotion and a promotion, the node must vote again.
/// None: the node was demoted meanwhile.
fn put_back(cluster: &mut Cluster, who: usize) -> Option<String> {
    // The number of times that the node has stopped its manager service: in all, and because of an
    // old directory.
    let stops = |c: &Cluster| {
        let log = std::fs::read_to_string(c.log(who)).unwrap_or_default();
        ["this node is no longer a manager", "stale-directory"].map(|text| log.matches(text).count())
    };
    let home = cluster.home(who);
    let (older, newer) = (home.with_extension("older"), home.with_extension("newer"));
    cluster.kill(who);
    run_successfully(std::process::Command::new("cp").arg("-a").arg(&home).arg(&older));
    cluster.start(who);
    std::thread::sleep(HOLD);
    cluster.kill(who);
    std::fs::rename(&home, &newer).expect("moved");
    std::fs::rename(&older, &home).expect("moved");
    std::fs::remove_dir_all(&newer).expect("removed");
    let before = stops(cluster);
    cluster.start(who);
    cluster.wait_until("it stops its manager service", |c| {
        (raft_id(&c.home(who)).is_none() && stops(c)[0] > before[0]).then_some(())
    });
    if stops(cluster)[1] == before[1] {
        return None;
    }
    cluster.order_successfully(&["demote", &name(who)]);
    cluster.order_successfully(&["promote", &name(who), "--no-wait"]);
    // Later faults need all voters, so that a minority can fail.
    cluster.wait_until("it votes again", |c| c.voters().contains(&who).then_some(()));
    Some(format!("the older directory of {} was rejected", name(who)))
}
