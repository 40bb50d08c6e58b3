//! The data directory of a manager is copied, or is replaced as a whole by an older copy. The other
//! managers notice this, and the affected manager archives its log. The printed commands make it a
//! manager again. All managers are processes on the loopback of this machine. These tests need
//! neither real hosts nor root.

use crate::local::{Daemon, net, run_successfully, three_managers, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

struct Cluster {
    /// Declared before the directory, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in the directory.
    managers: [Daemon; 3],
    host: Box<dyn Fn(u8) -> Ipv4Addr>,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Self {
        let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
        let managers = three_managers(dir.path(), host);
        let cluster = Self { managers, host: Box::new(host), dir };
        for at in 0..3 {
            cluster.votes(at);
        }
        cluster
    }

    fn home(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("m{}", at + 1))
    }

    /// Waits until all three managers are voters, as reported by manager `at`.
    fn votes(&self, at: usize) {
        wait_until("three are voters", || (self.voters(at)?.len() == 3).then_some(()));
    }

    /// Raft ids of the voters, as reported by manager `at`. None: the manager has no leader.
    fn voters(&self, at: usize) -> Option<BTreeSet<u64>> {
        let status = self.managers[at].json("status");
        let view = self.managers[at].json("raft-members");
        let members = view["members"].as_array()?.iter().filter(|m| m["is"] != "learner");
        (status["as_of"]["stale"] == false).then(|| members.filter_map(|m| m["id"].as_u64()).collect())
    }

    /// Starts a second daemon on `dir`, which is a copy of a data directory. The daemon listens on
    /// a separate address.
    fn start_elsewhere(&self, dir: &Path) -> Daemon {
        let _ = fs::remove_file(dir.join("s"));
        let mut config: Value = serde_json::from_slice(&fs::read(dir.join("node.json")).expect("read")).expect("JSON");
        config["advertise"] = (self.host)(9).to_string().into();
        fs::write(dir.join("node.json"), config.to_string()).expect("written");
        Daemon::start(dir)
    }

    /// The indexes of a follower and of the leader.
    fn follower(&self) -> (usize, usize) {
        let leader = wait_until("a leader", || {
            let leader = self.managers[0].json("status")["as_of"]["leader"].as_str()?.to_owned();
            leader[1..].parse::<usize>().ok().map(|n| n - 1)
        });
        ((leader + 1) % 3, leader)
    }

    /// Makes three acknowledged decisions. Then waits until manager `seen` has applied them.
    fn decide(&self, leader: usize, seen: Option<usize>) {
        for name in ["m1", "m2", "m3"] {
            // On a busy machine the leader may change even without a fault.
            wait_until("the decision is made", || {
                let out = self.managers[leader].ask(&["maintenance", name, "--for", "1h"]);
                (out.status.code() == Some(0)).then_some(())
            });
        }
        let Some(seen) = seen else { return };
        let last = last_applied(&self.managers[leader]).expect("an index");
        wait_until("the decisions are applied", || (last_applied(&self.managers[seen])? >= last).then_some(()));
    }
}

fn last_applied(manager: &Daemon) -> Option<u64> {
    manager.json("raft-members")["last_applied"].as_u64()
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

#[track_caller]
fn assert_success(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(0), "{}", text(out));
    text(out)
}

fn copy(from: &Path, to: &Path) {
    run_successfully(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Copies a directory while its daemon runs, as a copy of a running machine's disk does.
fn copy_running(daemon: &Daemon, from: &Path, to: &Path) {
    let pid = Pid::from_child(&daemon.child);
    kill_process(pid, Signal::STOP).expect("stopped");
    copy(from, to);
    kill_process(pid, Signal::CONT).expect("the process continues");
}

fn identity(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("identity.json")).expect("an identity")).expect("JSON")
}

/// The path of the archived log. None: the identity still has a Raft id, or there is no complete
/// archive.
fn archived_log(dir: &Path) -> Option<PathBuf> {
    let mut paths = fs::read_dir(dir).expect("listed").flatten().map(|e| e.path());
    let removed = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("raft.removed-"));
    let kept = paths.find(removed)?;
    (identity(dir)["raft"].is_null() && kept.join("log.redb").exists()).then_some(kept)
}

/// For this time after the first message of a manager's new start, the other managers only reject
/// messages of an earlier start, and record nothing. They assume that such a message was delayed
/// (`LATE_MS` of `crates/cluster/src/incarnation.rs`).
const ON_ITS_WAY: Duration = Duration::from_secs(1);

/// docs/design/scenarios.md, E7 and E13: a copy of a stopped machine replaces the directory, then a
/// copy of a running machine's disk.
#[test]
fn a_manager_with_a_restored_directory_archives_its_log_and_the_printed_commands_bring_it_back() {
    let mut cluster = Cluster::start();
    for (stopped, why) in [(true, "it reports start"), (false, "had reported entry")] {
        let (victim, leader) = cluster.follower();
        let (home, name) = (cluster.home(victim), format!("m{}", victim + 1));
        let (older, newer) = (cluster.dir.path().join("older"), cluster.dir.path().join("newer"));
        if stopped {
            cluster.managers[victim].kill();
            copy(&home, &older);
            cluster.managers[victim] = Daemon::start(&home);
        } else {
            copy_running(&cluster.managers[victim], &home, &older);
        }
        cluster.votes(victim);
        cluster.decide(leader, Some(victim));
        let before = cluster.voters(leader).expect("voters");
        // A normal restart is not an error.
        cluster.managers[victim].kill();
        if stopped {
            cluster.managers[victim] = Daemon::start(&home);
            cluster.votes(victim);
            cluster.decide(leader, Some(victim));
            cluster.managers[victim].kill();
        }
        assert!(archived_log(&home).is_none());
        let ended = Instant::now();
        wait_until("its last messages have arrived", || (ended.elapsed() > ON_ITS_WAY).then_some(()));
        fs::rename(&home, &newer).expect("moved");
        fs::rename(&older, &home).expect("moved");
        let _ = fs::remove_file(home.join("s"));
        cluster.managers[victim] = Daemon::start(&home);
        let log = wait_until("the log is archived, and this is reported", || {
            let log = fs::read_to_string(home.join("log")).expect("a log");
            log.contains("stale-directory").then_some(log)
        });
        let kept = archived_log(&home).expect("an archived log");
        assert!(log.contains(why), "{log}");
        assert!(log.contains(&format!("remoor demote {name}")) && log.contains("do not restore the files"), "{log}");
        assert!(kept.join("ca").exists() && kept.join("life").exists(), "nothing is deleted");

        // The other managers continue with their data, and their status reports that the manager is
        // rejected.
        let history = assert_success(&cluster.managers[leader].ask(&["history"]));
        cluster.decide(leader, None);
        assert_eq!(cluster.voters(leader).expect("voters"), before, "no voter was removed by it");
        let status = assert_success(&cluster.managers[leader].ask(&["status"]));
        assert!(status.contains(&format!("{name} is rejected as a manager")), "{status}");
        // The manager stays rejected after any number of starts.
        cluster.managers[victim].kill();
        cluster.managers[victim] = Daemon::start(&home);
        wait_until("the node is a worker", || {
            (cluster.managers[victim].json("status")["kind"] == "agent").then_some(())
        });

        assert_success(&cluster.managers[leader].ask(&["demote", &name, "--timeout", "4m"]));
        assert_success(&cluster.managers[leader].ask(&["promote", &name, "--timeout", "4m"]));
        cluster.votes(victim);
        assert!(!before.contains(&identity(&home)["raft"].as_u64().expect("an id")), "a new id");
        let again = wait_until("the manager has all decisions", || {
            let out = cluster.managers[victim].ask(&["history"]);
            (out.status.code() == Some(0) && text(&out).lines().count() >= history.lines().count()).then(|| text(&out))
        });
        assert!(again.contains("maintenance"), "{again}");
        let status = assert_success(&cluster.managers[leader].ask(&["status"]));
        assert!(!status.contains("is rejected as a manager"), "{status}");
        fs::remove_dir_all(&newer).expect("removed");
    }
}

/// A follower's directory is copied, and the follower makes progress afterwards. Then the copy is
/// started at another address while the follower runs. Another manager may first accept the copy as
/// the follower's next start. The follower continues nevertheless.
#[test]
fn an_older_copy_started_next_to_a_live_follower_costs_no_vote() {
    let cluster = Cluster::start();
    let (victim, leader) = cluster.follower();
    let (home, second) = (cluster.home(victim), cluster.dir.path().join("second"));
    copy_running(&cluster.managers[victim], &home, &second);
    cluster.votes(victim);
    cluster.decide(leader, Some(victim));
    let before = cluster.voters(leader).expect("voters");
    let mut copied = cluster.start_elsewhere(&second);
    wait_until("the copy has archived its log, and this is reported", || {
        fs::read_to_string(second.join("log")).expect("a log").contains("stale-directory").then_some(())
    });
    // Gossip shows the copy that another daemon uses the same identity at another address. The copy
    // is not a manager anymore, so the copy stops and the original continues.
    wait_until("the copy ends", || copied.child.try_wait().expect("a status"));
    cluster.decide(leader, Some(victim));
    cluster.votes(victim);
    assert!(
        archived_log(&home).is_none(),
        "the original was shut out: {}",
        fs::read_to_string(home.join("log")).expect("a log")
    );
    assert_eq!(cluster.voters(victim).expect("voters"), before);
}

/// A second process is started with a copy of a running manager's directory. The second process is
/// rejected, and the manager continues.
#[test]
fn the_second_of_two_processes_with_a_copied_directory_is_rejected() {
    let mut cluster = Cluster::start();
    let (victim, leader) = cluster.follower();
    let (home, second) = (cluster.home(victim), cluster.dir.path().join("second"));
    cluster.managers[victim].kill();
    copy(&home, &second);
    cluster.managers[victim] = Daemon::start(&home);
    cluster.votes(victim);
    let before = cluster.voters(leader).expect("voters");
    let mut copied = cluster.start_elsewhere(&second);
    let log = wait_until("the second process has archived its log, and this is reported", || {
        let log = fs::read_to_string(second.join("log")).expect("a log");
        log.contains("stale-directory").then_some(log)
    });
    assert!(log.contains("there are two copies") && archived_log(&second).is_some(), "{log}");
    cluster.decide(leader, Some(victim));
    assert_eq!(cluster.voters(victim).expect("voters"), before);
    // Gossip shows that the identity is in use elsewhere, so the whole second daemon stops too.
    let ended = wait_until("the second ends", || copied.child.try_wait().expect("a status"));
    assert!(!ended.success());
    let log = fs::read_to_string(second.join("log")).expect("a log");
    assert!(log.contains("this node's identity is in use at"), "{log}");
    assert!(cluster.managers[victim].child.try_wait().expect("a status").is_none(), "the first node continues");
    cluster.decide(leader, Some(victim));
    assert!(archived_log(&home).is_none());
}
