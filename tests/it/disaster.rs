//! Managers that are lost permanently, as processes on the loopback of this machine. The cluster is
//! rebuilt from a survivor or restored from a backup. Workers move to the new cluster, and former
//! managers archive their logs. These tests need neither real hosts nor root.

use crate::local::{Daemon, net, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use age::secrecy::ExposeSecret;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Output;

pub struct Cluster {
    pub host: Box<dyn Fn(u8) -> Ipv4Addr>,
    pub managers: Vec<Daemon>,
    pub workers: Vec<Daemon>,
    /// Declared after the daemons, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in this folder.
    dir: tempfile::TempDir,
}

impl Cluster {
    /// Starts the cluster. m1 to m3 are voters. w1 and w2 have contacted a manager. A generation is
    /// applied, and the history contains a maintenance.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let host = net();
        let managers: Vec<Daemon> = three_managers(dir.path(), host).into();
        let mut workers = Vec::new();
        for (name, last) in [("w1", 4), ("w2", 5)] {
            let (mut join, address) = (remoor(), host(last).to_string());
            join.args(["join", &format!("{}:7947", host(1)), "--name", name, "--advertise", &address, "--dir"]);
            run_successfully(join.arg(dir.path().join(name)).arg("--token-file").arg(dir.path().join("worker")));
            workers.push(Daemon::start(&dir.path().join(name)));
        }
        let cluster = Self { dir, host: Box::new(host), managers, workers };
        cluster.votes(0, 3);
        for worker in &cluster.workers {
            wait_until("a worker has contacted a manager", || {
                worker.json("status")["manager"]["name"].as_str().map(drop)
            });
        }
        let fleet = cluster.path("fleet");
        fs::create_dir(&fleet).expect("made");
        fs::write(fleet.join("hosts"), "[web]\nw1\nw2\n").expect("written");
        fs::write(fleet.join("remoor.yml"), "version: 1\ninventory: hosts\ngroups:\n  web: {}\n").expect("written");
        assert_success(&cluster.managers[0].ask(&["apply", fleet.to_str().expect("UTF-8")]));
        assert_success(&cluster.managers[0].ask(&["maintenance", "w1", "--for", "1h"]));
        let index = cluster.managers[0].json("raft-members")["last_log"].as_u64().expect("an index");
        for manager in &cluster.managers {
            wait_until("all have the entry", || {
                // The asked manager answers the history query from its own log and does not forward
                // it to the leader.
                let history = manager.json("history").to_string();
                history.contains("maintenance").then_some(())
            });
        }
        assert!(index > 0);
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn manager(&self, at: usize) -> PathBuf {
        self.path(&format!("m{}", at + 1))
    }

    pub fn votes(&self, at: usize, wanted: usize) {
        wait_until(&format!("{wanted} are voters"), || {
            let status = self.managers[at].json("status");
            let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("leader" | "voter"));
            let count = status["nodes"].as_array()?.iter().filter(votes).count();
            (count == wanted && status["as_of"]["stale"] == false).then_some(())
        });
    }
}

pub fn recover(dir: &Path, args: &[&str]) -> Output {
    let mut command = remoor();
    command.args(["recover", "--force-new-cluster", "--dir"]).arg(dir).args(args);
    command.bounded_output()
}

pub fn text(out: &Output) -> String {
    String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned()
}

#[track_caller]
pub fn assert_success(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(0), "{}", text(out));
    text(out)
}

#[track_caller]
pub fn assert_rejected(out: &Output, words: &[&str]) {
    let message = text(out);
    assert_eq!(out.status.code(), Some(4), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
}

pub fn identity(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("identity.json")).expect("an identity")).expect("JSON")
}

pub fn archived_raft_dirs(dir: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(dir).expect("listed").flatten().map(|e| e.path());
    paths.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("raft.removed-"))).collect()
}

pub fn state_of(status: &Value, name: &str) -> String {
    let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
    let node = nodes.iter().find(|n| n["name"] == name).cloned().unwrap_or_default();
    node["manager_state"].as_str().unwrap_or_default().to_owned()
}

/// Two of three managers are lost permanently. Docker Swarm calls this scenario ForceNewCluster.
#[test]
fn a_survivor_rebuilds_the_cluster_without_losing_decisions() {
    let mut cluster = Cluster::start();
    // While a majority is alive, recovery is rejected and changes nothing
    // (docs/design/scenarios.md, E18).
    let before = identity(&cluster.manager(0));
    assert_rejected(&recover(&cluster.manager(0), &["--yes"]), &["remoor runs on"]);
    cluster.managers[0].kill();
    wait_until("the others have a leader", || {
        (cluster.managers[1].json("status")["as_of"]["stale"] == false).then_some(())
    });
    assert_rejected(&recover(&cluster.manager(0), &["--yes"]), &["follows a live leader", "are a majority"]);
    assert_rejected(&recover(&cluster.manager(0), &["--dry-run"]), &["follows a live leader"]);
    assert_eq!(identity(&cluster.manager(0)), before);
    let manager = cluster.manager(0);
    cluster.managers[0] = Daemon::start(&manager);
    cluster.votes(0, 3);

    // Two managers are lost. The remaining manager reports that it has no quorum, and rejects
    // orders.
    for lost in [1, 2] {
        cluster.managers[lost].kill();
    }
    wait_until("the remaining manager reports that it has no quorum", || {
        let out = cluster.managers[0].ask(&["status", "--json"]);
        let view: Value = serde_json::from_slice(&out.stdout).ok()?;
        (out.status.code() == Some(3) && view["as_of"]["stale"] == true).then_some(())
    });
    for asked in [&["nodes"][..], &["history"], &["why", "w1"], &["raft-members"]] {
        let out = cluster.managers[0].ask(asked);
        assert_eq!(out.status.code(), Some(3), "{asked:?}: {}", text(&out));
        assert!(text(&out).contains("STALE"), "{asked:?}: {}", text(&out));
    }
    assert_eq!(cluster.managers[0].ask(&["pause", "w1"]).status.code(), Some(3), "no orders");
    cluster.managers[0].kill();

    let dry = assert_success(&recover(&cluster.manager(0), &["--dry-run"]));
    assert!(dry.contains("m2") && dry.contains("does not answer") && dry.contains("nothing was changed"), "{dry}");
    assert_rejected(&recover(&cluster.manager(0), &[]), &["was not confirmed", "--yes"]);
    assert_eq!(identity(&cluster.manager(0)), before);
    let output = assert_success(&recover(&cluster.manager(0), &["--yes"]));
    assert!(output.contains("only manager"), "{output}");
    let after = identity(&cluster.manager(0));
    assert!(after["epoch"].as_u64() > before["epoch"].as_u64() && after["raft"].as_u64() > before["raft"].as_u64());
    assert!(archived_raft_dirs(&cluster.manager(0))[0].join("log.redb").exists(), "nothing is deleted");

    cluster.managers[0] = Daemon::start(&manager);
    let status = wait_until("the manager leads alone", || {
        let out = cluster.managers[0].ask(&["status", "--json"]);
        (out.status.code() == Some(0)).then(|| serde_json::from_slice::<Value>(&out.stdout).ok()).flatten()
    });
    assert_eq!((&status["generation"], &status["epoch"], &status["managers"]), (&1.into(), &after["epoch"], &1.into()));
    assert_eq!([state_of(&status, "m2"), state_of(&status, "m3")], ["lost", "lost"], "docs/design/scenarios.md, E19");
    let history = cluster.managers[0].json("history").to_string();
    assert!(history.contains("maintenance") && history.contains("recovered without a majority"), "{history}");
    // m2, one of the lost managers, finds no majority either, but learns that a newer epoch exists.
    // So recovery on m2 is rejected, and no option overrides this.
    let shut_out = ["--yes", "--even-if-majority-alive", "--even-if-behind"];
    let lost = identity(&cluster.manager(1));
    assert_rejected(&recover(&cluster.manager(1), &shut_out), &["rebuilt without this manager"]);
    assert_eq!(identity(&cluster.manager(1)), lost);
    // Workers move to the new epoch without joining again.
    for (at, name) in ["w1", "w2"].into_iter().enumerate() {
        wait_until("a worker is in the new epoch", || {
            (cluster.workers[at].json("status")["node"]["epoch"] == after["epoch"]).then_some(())
        });
        wait_until("the order is stored", || (identity(&cluster.path(name))["epoch"] == after["epoch"]).then_some(()));
        assert!(archived_raft_dirs(&cluster.path(name)).is_empty());
    }
    assert_success(&cluster.managers[0].ask(&["pause", "w1"]));

    // Both lost managers return. They are a majority of the previous epoch. They learn of the new
    // epoch, archive their logs and form no quorum.
    for lost in [1, 2] {
        let home = cluster.manager(lost);
        cluster.managers[lost] = Daemon::start(&home);
    }
    for lost in [1, 2] {
        let home = cluster.manager(lost);
        wait_until("the log is archived, and the reason logged", || {
            let now = identity(&home);
            let kept = archived_raft_dirs(&home);
            let whole = kept.first().is_some_and(|kept| kept.join("log.redb").exists());
            let told = fs::read_to_string(home.join("log")).expect("a log").contains("wrong-epoch");
            (now["raft"].is_null() && now["epoch"] == after["epoch"] && whole && told).then_some(())
        });
        assert!(!home.join("raft").exists() && !home.join("ca").exists());
    }
    assert_eq!(state_of(&cluster.managers[0].json("status"), "m2"), "lost", "it is not taken back automatically");
    assert_success(&cluster.managers[0].ask(&["promote", "m2", "--timeout", "4m"]));
    let again = identity(&cluster.manager(1));
    assert!(again["raft"].as_u64() > after["raft"].as_u64(), "{again}");
    assert_success(&cluster.managers[0].ask(&["demote", "m3"]));
    assert_eq!(state_of(&cluster.managers[0].json("status"), "m3"), "worker");
    let history = wait_until("m2 has all of it", || {
        let out = cluster.managers[1].ask(&["history"]);
        (out.status.code() == Some(0)).then(|| text(&out))
    });
    assert!(history.contains("maintenance"), "{history}");
}

/// Only the Raft directory of a manager is restored, from an older copy.
#[test]
fn a_manager_with_an_older_copy_of_its_log_is_rejected_and_the_others_continue() {
    let mut cluster = Cluster::start();
    let leader = wait_until("a leader", || {
        let leader = cluster.managers[0].json("status")["as_of"]["leader"].as_str()?.to_owned();
        leader[1..].parse::<usize>().ok().map(|n| n - 1)
    });
    let victim = (leader + 1) % 3;
    let home = cluster.manager(victim);
    cluster.managers[victim].kill();
    run_successfully(std::process::Command::new("cp").arg("-a").arg(home.join("raft")).arg(home.join("older")));
    cluster.managers[victim] = Daemon::start(&home);
    assert_success(&cluster.managers[leader].ask(&["maintenance", "w2", "--for", "1h"]));
    let wanted = cluster.managers[leader].json("raft-members")["last_applied"].as_u64().expect("an index");
    wait_until("the applied entry is recorded", || {
        let high = fs::read(home.join("raft.high")).ok()?;
        let high: Value = serde_json::from_slice(&high).ok()?;
        (high["index"].as_u64() >= Some(wanted)).then_some(())
    });
    // The manager can be started again with its own Raft directory. Only an older copy is rejected.
    cluster.managers[victim].kill();
    cluster.managers[victim] = Daemon::start(&home);
    cluster.votes(victim, 3);
    cluster.managers[victim].kill();
    fs::rename(home.join("raft"), home.join("newer")).expect("moved");
    fs::rename(home.join("older"), home.join("raft")).expect("moved");
    cluster.managers[victim] = Daemon::start(&home);
    let ended = wait_until("the start is rejected", || cluster.managers[victim].child.try_wait().expect("a status"));
    let text = fs::read_to_string(home.join("log")).expect("a log");
    assert!(!ended.success() && text.contains("was put back from an older copy"), "{text}");
    assert_success(&cluster.managers[leader].ask(&["pause", "w2"]));
    // Recovery on this manager is rejected too, unless the operator explicitly accepts the older
    // copy.
    let all_but = ["--dry-run", "--even-if-majority-alive", "--even-if-behind"];
    assert_rejected(
        &recover(&home, &all_but),
        &["it was restored from an older copy", "--even-if-rolled-back discards"],
    );
    assert_success(&recover(&home, &[&all_but[..], &["--even-if-rolled-back"]].concat()));
    fs::rename(home.join("raft"), home.join("older")).expect("moved");
    fs::rename(home.join("newer"), home.join("raft")).expect("moved");
    cluster.managers[victim] = Daemon::start(&home);
    cluster.votes(victim, 3);
}

/// Checks that a scheduled backup is made without an order. The manager that makes the backups
/// reports it even if another manager leads.
fn assert_scheduled_backup_is_made(cluster: &Cluster) {
    let leader = wait_until("a leader", || {
        let leader = cluster.managers[0].json("status")["as_of"]["leader"].as_str()?.to_owned();
        leader[1..].parse::<usize>().ok().map(|n| n - 1)
    });
    let other = (leader + 1) % 3;
    let (by, other) = (format!("m{}", other + 1), &cluster.managers[other]);
    let plan = |folder: &Path| {
        fs::create_dir(folder).expect("made");
        assert_success(&other.ask(&["backup", folder.to_str().expect("UTF-8"), "--every", "6h", "--keep", "2"]));
    };
    let folder = cluster.path("backups");
    plan(&folder);
    wait_until("the first backup is made", || {
        let backup = other.json("status")["backup"].clone();
        let made = fs::read_dir(&folder).ok()?.flatten().count() == 1;
        (made && backup["by"] == *by && backup["age_ms"].is_u64() && backup["every_ms"] == 21_600_000).then_some(())
    });
    let shown = text(&other.ask(&["status"]));
    let line = format!("backup of {by}: verified");
    assert!(shown.contains(&line) && shown.contains("one every 6 h"), "{shown}");
    // A backup that can't be written causes a warning.
    let gone = cluster.path("gone");
    plan(&gone);
    fs::remove_dir(&gone).expect("removed");
    let failed = format!("warning: {by}: the scheduled backup failed: ");
    wait_until("it is reported", || text(&other.ask(&["status"])).contains(&failed).then_some(()));
}

/// Checks that an incomplete backup is rejected, and that a directory of another node is rejected.
fn assert_restore_is_refused(cluster: &Cluster, path: &str) {
    let bytes = fs::read(path).expect("a backup");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 4;
    let newer = [&b"remoor backup 9"[..], &bytes[15..]].concat();
    let bad = cluster.path("bad");
    for (content, expected) in [
        (&flipped[..], "its checksum differs"),
        (&bytes[..bytes.len() - 7], "its checksum differs"),
        (b"remoor snapshot 1\nx", "its first line is not that of a backup"),
        (&newer[..], "install the newer program"),
    ] {
        fs::write(&bad, content).expect("written");
        let mut restore = remoor();
        restore.arg("restore").arg(&bad).arg("--dir").arg(cluster.path("new"));
        assert_rejected(&restore.bounded_output(), &[expected]);
        assert_rejected(&remoor().args(["backup", "--verify"]).arg(&bad).bounded_output(), &[expected]);
    }
    assert!(!cluster.path("new").join("identity.json").exists());
    let mut restore = remoor();
    restore.args(["restore", path, "--dir"]).arg(cluster.path("w1"));
    assert_rejected(&restore.bounded_output(), &["remoor runs on"]);
    restore = remoor();
    restore.args(["restore", path, "--dir"]).arg(cluster.manager(0));
    assert_rejected(&restore.bounded_output(), &["already belongs to node"]);
}

/// While a manager is away, the cluster promotes two workers and demotes the other two managers.
/// The log of the absent manager names only demoted managers. So `recover` on it must not replace
/// the cluster.
#[test]
fn a_manager_that_was_away_does_not_replace_the_managers_that_followed() {
    let mut cluster = Cluster::start();
    let home = cluster.manager(0);
    cluster.managers[0].kill();
    for (at, order) in [(&cluster.managers[1], ["promote", "w1", "w2"]), (&cluster.workers[0], ["demote", "m2", "m3"])]
    {
        wait_until("the order is done", || {
            let out = at.ask(&[&order[..], &["--timeout", "4m"]].concat());
            (out.status.code() == Some(0)).then_some(())
        });
    }
    wait_until("m2 and m3 are workers", || {
        let kinds = cluster.managers[1..].iter().map(|manager| manager.json("status")["kind"].clone());
        kinds.into_iter().all(|kind| kind == "agent").then_some(())
    });
    for dry_run in [&["--dry-run"][..], &["--yes"]] {
        assert_rejected(&recover(&home, dry_run), &["the cluster demoted it"]);
    }
    let status = cluster.workers[0].json("status");
    assert_eq!(status["epoch"], identity(&home)["epoch"], "{status}");
}

/// Makes a backup that is encrypted for a public key, and checks that only the private key decrypts
/// it. Restores a machine from this backup, but does not start the machine.
fn assert_encrypted_backup_needs_the_private_key(cluster: &Cluster) {
    let keys = age::x25519::Identity::generate();
    let (file, identity, to) = (cluster.path("encrypted"), cluster.path("age.key"), cluster.path("decrypted"));
    fs::write(&identity, keys.to_string().expose_secret()).expect("written");
    let (path, key) = (file.to_str().expect("UTF-8"), keys.to_public().to_string());
    let output = assert_success(&cluster.managers[1].ask(&["backup", path, "--recipient", &key]));
    assert!(output.contains("this file is encrypted"), "{output}");
    let bytes = fs::read(&file).expect("a backup");
    assert!(!bytes.windows(11).any(|part| part == b"PRIVATE KEY"));
    assert_rejected(
        &remoor().args(["backup", "--verify", path]).bounded_output(),
        &["is encrypted", "--identity FILE"],
    );
    let verified = remoor().args(["backup", "--verify", path, "--identity"]).arg(&identity).bounded_output();
    assert!(assert_success(&verified).contains("is complete"));
    let restore = || {
        let mut restore = remoor();
        restore.args(["restore", path, "--even-if-majority-alive", "--dir"]).arg(&to);
        restore
    };
    assert_rejected(&restore().bounded_output(), &["is encrypted", "--identity FILE"]);
    assert_success(&restore().arg("--identity").arg(&identity).bounded_output());
    let node_key = |dir: &Path| fs::read(dir.join("node.key")).expect("a key");
    assert_eq!(node_key(&to), node_key(&cluster.manager(1)));
}

/// All managers are lost, and a backup exists. Docker Swarm calls this scenario WipedState.
#[test]
fn a_backup_is_restored_as_the_cluster_at_another_address() {
    let mut cluster = Cluster::start();
    let file = cluster.path("b");
    let path = file.to_str().expect("UTF-8");
    let output = assert_success(&cluster.managers[1].ask(&["backup", path]));
    assert!(output.contains("read back and verified") && output.contains("contains the keys"), "{output}");
    assert_rejected(&cluster.managers[1].ask(&["backup", path]), &["exists"]);
    let whole = assert_success(&run_successfully(remoor().args(["backup", "--verify", path])));
    assert!(whole.contains("is complete") && whole.contains("generation 1"), "{whole}");
    assert!(cluster.managers[1].json("status")["as_of"]["leader"].is_string());

    assert_scheduled_backup_is_made(&cluster);
    assert_encrypted_backup_needs_the_private_key(&cluster);

    // w3 joins after the backup, so no backup contains it.
    let (mut join, address) = (remoor(), (cluster.host)(6).to_string());
    join.args(["join", &format!("{}:7947", (cluster.host)(1)), "--name", "w3", "--advertise", &address, "--dir"]);
    run_successfully(join.arg(cluster.path("w3")).arg("--token-file").arg(cluster.path("worker")));
    let later = Daemon::start(&cluster.path("w3"));
    wait_until("w3 has contacted a manager", || later.json("status")["manager"]["name"].as_str().map(drop));

    // All managers are lost.
    for lost in 0..3 {
        cluster.managers[lost].kill();
    }
    assert_restore_is_refused(&cluster, path);

    let elsewhere = (cluster.host)(9);
    let new = cluster.path("new");
    let mut restore = remoor();
    restore.args(["restore", path, "--set-addr", &format!("m2={elsewhere}"), "--dir"]).arg(&new);
    let output = assert_success(&run_successfully(&mut restore));
    assert!(output.contains("lost managers: m1, m3") && output.contains(&format!("{elsewhere}:7947")), "{output}");
    let epoch = identity(&new)["epoch"].clone();
    let manager = Daemon::start(&new);
    let status = wait_until("the manager leads alone", || {
        let out = manager.ask(&["status", "--json"]);
        (out.status.code() == Some(0)).then(|| serde_json::from_slice::<Value>(&out.stdout).ok()).flatten()
    });
    assert_eq!((&status["generation"], &status["epoch"]), (&1.into(), &epoch));
    assert_eq!([state_of(&status, "m1"), state_of(&status, "m2")], ["lost", "leader"]);
    let history = manager.json("history").to_string();
    assert!(history.contains("maintenance") && history.contains("restored from a backup"), "{history}");
    for worker in &cluster.workers {
        wait_until("a worker moved to the new epoch", || {
            let view = worker.json("status");
            (view["node"]["epoch"] == epoch && view["manager"]["name"] == "m2").then_some(())
        });
    }
    wait_until("the node that joined after the backup learns that it is unknown", || {
        let message = text(&later.ask(&["status"]));
        (message.contains("REMOVED") && message.contains("restored from before")).then_some(())
    });
    // A worker of the backup becomes a manager, because keys, CA and log are unchanged.
    assert_success(&manager.ask(&["promote", "w2", "--timeout", "4m"]));
    // A former manager returns with its complete log and archives it.
    let home = cluster.manager(0);
    cluster.managers[0] = Daemon::start(&home);
    wait_until("the log is archived", || {
        let now = identity(&home);
        (now["raft"].is_null() && now["epoch"] == epoch && !archived_raft_dirs(&home).is_empty()).then_some(())
    });
}
