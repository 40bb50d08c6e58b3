//! Managers come and go, as processes on the loopback of this machine. Workers are promoted and
//! demoted while they run, and the leader and dead managers are demoted. A manager that was demoted
//! while it was down archives its log when it returns. These tests need neither real hosts nor
//! root.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Nodes by index. The index of m1 is 0.
struct Cluster {
    names: Vec<&'static str>,
    daemons: Vec<Daemon>,
    /// Declared after the daemons, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in this folder.
    dir: tempfile::TempDir,
}

impl Cluster {
    /// A cluster of one manager m1 and the workers w1 and w2.
    fn of_one() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let host = net();
        let mut daemons = vec![one_manager(dir.path(), host(1))];
        for (name, last) in [("w1", 2), ("w2", 3)] {
            daemons.push(worker(dir.path(), name, host(1), host(last)));
        }
        let cluster = Self { dir, names: vec!["m1", "w1", "w2"], daemons };
        wait_until("all three are alive", || {
            let status = cluster.daemons[0].json("status");
            let alive = status["nodes"].as_array()?.iter().filter(|n| n["presence"] == "alive").count();
            (alive == 3).then_some(())
        });
        cluster
    }

    fn of_three() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let daemons = three_managers(dir.path(), net()).into();
        let cluster = Self { dir, names: vec!["m1", "m2", "m3"], daemons };
        cluster.votes(0, &["m1", "m2", "m3"]);
        cluster
    }

    fn folder(&self, at: usize) -> PathBuf {
        self.dir.path().join(self.names[at])
    }

    /// Waits until node `at` reports a leader and exactly these nodes as voters.
    fn votes(&self, at: usize, wanted: &[&str]) {
        let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        wait_until(&format!("{wanted:?} are voters according to {}", self.names[at]), || {
            let status = self.daemons[at].json("status");
            let nodes = status["nodes"].as_array()?.clone();
            let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("voter" | "leader"));
            let found: BTreeSet<String> =
                nodes.iter().filter(votes).filter_map(|n| n["name"].as_str()).map(str::to_owned).collect();
            (found == wanted && status["as_of"]["stale"] == false).then_some(())
        });
    }

    /// The index of the leader, as reported by node `at`.
    fn leader(&self, at: usize) -> usize {
        wait_until("a leader", || {
            let status = self.daemons[at].json("status");
            let leader = status["as_of"]["leader"].as_str()?.to_owned();
            self.names.iter().position(|name| *name == leader)
        })
    }

    fn order(&self, at: usize, args: &[&str]) -> (Option<i32>, String) {
        let out = self.daemons[at].ask(args);
        let text = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    fn order_successfully(&self, at: usize, args: &[&str]) -> String {
        let (code, text) = self.order(at, args);
        assert_eq!(code, Some(0), "{args:?}: {text}");
        text
    }

    /// The Raft id in the node's identity. None: the node is a worker.
    fn raft_id(&self, at: usize) -> Option<u64> {
        let bytes = fs::read(self.folder(at).join("identity.json")).expect("an identity");
        serde_json::from_slice::<Value>(&bytes).expect("JSON")["raft"].as_u64()
    }

    /// Waits until node `at` is a worker and has archived the log that it had as the manager with
    /// the Raft id `id`.
    fn wait_until_archived(&self, at: usize, id: u64) {
        let prefix = format!("raft.removed-{id}-");
        let aside = wait_until("the node is a worker and its log is archived", || {
            let entries = fs::read_dir(self.folder(at)).ok()?.flatten();
            let aside = entries.map(|e| e.path()).find(|p| file_name(p).starts_with(&prefix))?;
            self.raft_id(at).is_none().then_some(aside)
        });
        assert!(aside.join("log.redb").exists(), "nothing is deleted");
        let folder = self.folder(at);
        assert!(!folder.join("raft").exists() && !folder.join("ca").exists() && !folder.join("ssh.key").exists());
        wait_until("the socket answers like that of a worker", || {
            (self.daemons[at].json("status")["kind"] == "agent").then_some(())
        });
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn worker(dir: &Path, name: &str, manager: Ipv4Addr, at: Ipv4Addr) -> Daemon {
    let mut join = remoor();
    join.args(["join", &format!("{manager}:7947"), "--name", name, "--advertise", &at.to_string(), "--dir"]);
    run_successfully(join.arg(dir.join(name)).arg("--token-file").arg(dir.join("worker")));
    Daemon::start(&dir.join(name))
}

/// One manager becomes three. m1, which founded the cluster and leads it, is demoted, and is
/// promoted again with another Raft id. Then one order demotes two managers.
#[test]
fn managers_come_and_go_without_an_absence() {
    let cluster = Cluster::of_one();
    let (code, text) = cluster.order(0, &["demote", "m1"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("the only manager"), "{text}");

    cluster.order_successfully(0, &["promote", "w1", "w2"]);
    for at in 0..3 {
        cluster.votes(at, &["m1", "w1", "w2"]);
    }
    let first = cluster.raft_id(1).expect("an id");

    // Docker Swarm calls this scenario DemotePromoteLeader. First the leadership is handed over,
    // then the former leader stops being a voter, then its Raft id is retired. Afterwards the node
    // returns with another Raft id.
    assert_eq!(cluster.leader(1), 0);
    cluster.order_successfully(1, &["demote", "m1"]);
    cluster.votes(1, &["w1", "w2"]);
    cluster.wait_until_archived(0, 1);
    assert_ne!(cluster.leader(1), 0);
    cluster.order_successfully(2, &["promote", "m1"]);
    cluster.votes(0, &["m1", "w1", "w2"]);
    let again = cluster.raft_id(0).expect("an id");
    assert!(again > first, "{again} was granted after {first}");

    // Docker Swarm calls this scenario DemoteToSingleManager; here one order demotes two managers.
    // An order to demote all three is refused, and no part of it is executed.
    let (code, text) = cluster.order(0, &["demote", "m1", "w1", "w2"]);
    assert_eq!(code, Some(4), "{text}");
    cluster.votes(0, &["m1", "w1", "w2"]);
    cluster.order_successfully(0, &["demote", "w1", "w2"]);
    cluster.votes(0, &["m1"]);
    cluster.wait_until_archived(1, first);
    cluster.order_successfully(0, &["maintenance", "w1", "--for", "1h"]);

    let history = cluster.daemons[0].json("history").to_string();
    assert!(
        !history.contains("\"away\"") && !history.contains("absence"),
        "a role is no reason to be missed: {history}"
    );
}

/// The only voter is to be demoted. It keeps leading until w1, which is to replace it, is back. The
/// output of `remoor nodes` says how to bring w1 back.
#[test]
fn the_only_manager_is_demoted_when_its_successor_is_back() {
    let mut cluster = Cluster::of_one();
    cluster.daemons[1].kill();
    cluster.order_successfully(0, &["promote", "w1", "--no-wait"]);
    cluster.order_successfully(0, &["demote", "m1", "--no-wait"]);
    wait_until("the output says what it waits for", || {
        cluster.order(0, &["nodes"]).1.contains("it is the only voter").then_some(())
    });
    cluster.order_successfully(0, &["maintenance", "w2", "--for", "1h"]);
    let folder = cluster.folder(1);
    cluster.daemons[1] = Daemon::start(&folder);
    cluster.votes(1, &["w1"]);
    cluster.wait_until_archived(0, 1);
    // A node that only knew the old manager learns of the new manager from the old one.
    let folder = cluster.folder(2);
    cluster.daemons[2].kill();
    cluster.daemons[2] = Daemon::start(&folder);
    for at in [0, 2] {
        wait_until(&format!("the agent of {} knows the new manager", cluster.names[at]), || {
            (cluster.daemons[at].json("status")["manager"]["name"] == "w1").then_some(())
        });
    }
    let (code, history) = cluster.order(1, &["history", "w2"]);
    assert!(code == Some(0) && history.contains("maintenance"), "{history}");
}

/// Docker Swarm calls this scenario DemoteDownedManager. A dead manager is demoted while the two
/// others are alive. It learns of the demotion when it returns. If one of two managers is dead,
/// neither is demoted. The living manager reports the reason, and the order can be cancelled.
#[test]
fn a_dead_manager_is_demoted_and_archives_its_log_when_it_comes_back() {
    let mut cluster = Cluster::of_three();
    let leader = cluster.leader(0);
    let [dead, other] = [(leader + 1) % 3, (leader + 2) % 3];
    let (gone, id) = (cluster.names[dead], cluster.raft_id(dead).expect("an id"));
    cluster.daemons[dead].kill();

    // The living follower can't be demoted, because only one of the two remaining voters would be
    // alive.
    let lives = cluster.names[other];
    let same = cluster.raft_id(other);
    cluster.order_successfully(leader, &["demote", lives, "--no-wait"]);
    wait_until("the output says what it waits for", || {
        let (_, text) = cluster.order(leader, &["nodes"]);
        text.contains("waiting for quorum").then_some(())
    });
    cluster.order_successfully(leader, &["promote", lives]);
    assert_eq!(cluster.raft_id(other), same, "docs/design/scenarios.md, E3");

    cluster.order_successfully(leader, &["demote", gone]);
    cluster.votes(leader, &[cluster.names[leader], lives]);
    let folder = cluster.folder(dead);
    cluster.daemons[dead] = Daemon::start(&folder);
    cluster.wait_until_archived(dead, id);
    cluster.votes(leader, &[cluster.names[leader], lives]);

    // The cluster keeps its decisions without the present leader. The maintenance is announced
    // before the leader is killed, and the history still contains it afterwards.
    cluster.order_successfully(other, &["maintenance", gone, "--for", "1h"]);
    cluster.order_successfully(leader, &["promote", gone]);
    cluster.votes(dead, &["m1", "m2", "m3"]);
    assert!(cluster.raft_id(dead) > Some(id));
    cluster.daemons[leader].kill();
    let history = wait_until("the others have a leader", || {
        let (code, text) = cluster.order(dead, &["history", gone]);
        (code == Some(0)).then_some(text)
    });
    assert!(history.contains("maintenance"), "{history}");
}
