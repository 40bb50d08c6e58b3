//! Damaged data directories, with real processes on the loopback of this machine: a manager that
//! lost its Raft log and kept its identity, and the remains of a killed `init` or `join`. These
//! tests need neither real hosts nor root.

use crate::disaster;
use crate::lab::tool::run;
use crate::local::{Daemon, LONG, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

struct Cluster {
    dir: tempfile::TempDir,
    /// Returns the address that belongs to a number.
    host: Box<dyn Fn(u8) -> Ipv4Addr>,
    managers: [Daemon; 3],
}

impl Cluster {
    fn begin() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let host = net();
        let managers = three_managers(dir.path(), host);
        Self { dir, host: Box::new(host), managers }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The number of voters and the leader, as reported by manager `at`.
    fn voters(&self, at: usize) -> (usize, Option<usize>) {
        let status = self.managers[at].json("status");
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let is = |n: &Value, what: &str| n["manager"] == what;
        let voters = nodes.iter().filter(|n| is(n, "voter") || is(n, "leader")).count();
        let leader = nodes.iter().find(|n| is(n, "leader")).and_then(|n| n["name"].as_str());
        (voters, leader.and_then(|name| name[1..].parse::<usize>().ok()).map(|n| n - 1))
    }

    /// Waits for three voters and a leader. Returns the leader.
    fn wait_for_leader(&self) -> usize {
        wait_until("three voters and a leader", || {
            let (voters, leader) = self.voters(0);
            leader.filter(|_| voters == 3)
        })
    }

    /// Stops a follower, applies `wipe` to its directory, and starts it again.
    fn wipe_a_follower(&mut self, wipe: impl Fn(&Path)) -> usize {
        let leader = self.wait_for_leader();
        let victim = [2, 1].into_iter().find(|at| *at != leader).expect("a follower");
        let dir = self.path(&format!("m{}", victim + 1));
        self.managers[victim].kill();
        wipe(&dir.join("raft"));
        self.managers[victim] = Daemon::start(&dir);
        victim
    }
}

fn identity(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("identity.json")).expect("an identity")).expect("JSON")
}

/// docs/design/scenarios.md, E12: a voter loses its log.
#[test]
fn a_voter_without_its_log_becomes_a_worker_and_votes_again_with_another_raft_id() {
    for wipe in [
        |raft: &Path| fs::remove_dir_all(raft).expect("removed"),
        |raft: &Path| {
            fs::remove_dir_all(raft).expect("removed");
            fs::create_dir(raft).expect("made");
        },
    ] {
        let mut cluster = Cluster::begin();
        wait_until("a decision", || (cluster.managers[0].ask(&["pause", "m1"]).status.code() == Some(0)).then_some(()));
        let victim = cluster.wipe_a_follower(wipe);
        let (dir, name) = (cluster.path(&format!("m{}", victim + 1)), format!("m{}", victim + 1));
        let (file, before) = (dir.join("raft/log.redb"), identity(&dir));
        let key = || fs::read(dir.join("node.key")).expect("a key");
        let key_before = key();
        let works = |cluster: &Cluster| {
            wait_until("the node is a worker", || {
                (cluster.managers[victim].json("status")["kind"] == "agent").then_some(())
            });
        };
        works(&cluster);
        let text = fs::read_to_string(dir.join("log")).expect("a log");
        assert!(text.contains(&format!("{} is gone", file.display())), "{text}");
        assert!(text.contains(&format!("remoor demote {name} on another manager")), "{text}");
        // The other two managers know that only two managers work although gossip has three. They
        // report the next step.
        let other = (0..3).find(|at| *at != victim).expect("another");
        wait_until("the others report it", || {
            let status = cluster.managers[other].json("status");
            let silent =
                format!("{name} is up and is a voter, but does not work as a manager: no answer to the leader");
            let warned = status["warnings"].as_array()?.iter().any(|w| w.as_str().is_some_and(|w| w.contains(&silent)));
            (warned && status["managers_up"] == 2).then_some(())
        });
        let listed = cluster.managers[other].ask(&["nodes"]);
        let listed = String::from_utf8_lossy(&[&listed.stdout[..], &listed.stderr].concat()).into_owned();
        assert!(listed.contains("voter: no answer to the leader"), "{listed}");
        assert!(listed.contains(&format!("{name} is alive but does not act as a manager")), "{listed}");
        // The manager makes no new log after any number of starts, whatever the leader sends
        // meanwhile. The other managers keep their leader and accept orders.
        cluster.managers[victim].kill();
        cluster.managers[victim] = Daemon::start(&dir);
        works(&cluster);
        std::thread::sleep(Duration::from_secs(3));
        assert!(!file.exists(), "a log was made under the id that had one");
        assert_eq!(identity(&dir), before);
        let ask = |cluster: &Cluster, args: &[&str]| {
            let out = cluster.managers[other].ask(args);
            assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).into_owned()
        };
        ask(&cluster, &["resume", "m1"]);

        ask(&cluster, &["demote", &name, "--timeout", "4m"]);
        assert_eq!(cluster.voters(other).0, 2);
        assert!(!file.exists());
        ask(&cluster, &["promote", &name, "--timeout", "4m"]);
        wait_until("three voters", || (cluster.voters(victim).0 == 3).then_some(()));
        let after = identity(&dir);
        let raft = |identity: &Value| identity["raft"].as_u64().expect("an id");
        assert!(raft(&after) > raft(&before), "{after} and {before}");
        assert_eq!(
            (&after["node"], &after["name"], &after["cluster"]),
            (&before["node"], &before["name"], &before["cluster"])
        );
        assert_eq!(key(), key_before);
        let history = wait_until("the manager has all decisions", || {
            let out = cluster.managers[victim].ask(&["history"]);
            (out.status.code() == Some(0)).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
        });
        assert!(history.contains("availability pause") && history.contains("m1"), "{history}");
        let ids = cluster.managers[other].json("raft-members").to_string();
        assert!(!ids.contains(&format!("\"{}\"", raft(&before))), "{ids}");
    }
}

/// Two of three managers lose their logs. Their daemons answer as workers, so they do not count as
/// a majority, and the survivor can rebuild the cluster.
#[test]
fn a_survivor_recovers_while_two_managers_without_logs_answer() {
    let mut cluster = Cluster::begin();
    let survivor = cluster.wait_for_leader();
    wait_until("a decision", || {
        (cluster.managers[survivor].ask(&["pause", "m1"]).status.code() == Some(0)).then_some(())
    });
    let victims: Vec<usize> = (0..3).filter(|at| *at != survivor).collect();
    let home = |at: usize| cluster.dir.path().join(format!("m{}", at + 1));
    for at in &victims {
        cluster.managers[*at].kill();
        fs::remove_dir_all(home(*at).join("raft")).expect("removed");
        cluster.managers[*at] = Daemon::start(&home(*at));
        wait_until("it works as a worker", || (cluster.managers[*at].json("status")["kind"] == "agent").then_some(()));
    }
    cluster.managers[survivor].kill();
    let out = disaster::recover(&home(survivor), &["--yes"]);
    let text = disaster::assert_success(&out);
    assert_eq!(text.matches("answers as a worker, so it does not count").count(), 2, "{text}");
    cluster.managers[survivor] = Daemon::start(&home(survivor));
    let names: Vec<String> = victims.iter().map(|at| format!("m{}", at + 1)).collect();
    wait_until("the new cluster knows both nodes", || {
        let status = cluster.managers[survivor].json("status");
        let nodes = status["nodes"].as_array()?;
        let there = nodes.iter().filter(|n| n["presence"] == "alive" && n["name"] != status["as_of"]["by"]);
        (there.count() == 2).then_some(())
    });
    let promote = ["promote", &names[0], &names[1], "--timeout", "4m"];
    disaster::assert_success(&cluster.managers[survivor].ask(&promote));
    wait_until("three voters", || (cluster.voters(survivor).0 == 3).then_some(()));
    let history = cluster.managers[survivor].ask(&["history"]);
    assert!(String::from_utf8_lossy(&history.stdout).contains("availability pause"), "{history:?}");
}

/// All managers get other addresses while they are stopped. The new addresses are recorded on each
/// of them, and the cluster continues in its epoch with its log.
#[test]
fn managers_that_all_moved_at_once_find_each_other_and_lose_nothing() {
    let mut cluster = Cluster::begin();
    let leader = cluster.wait_for_leader();
    disaster::assert_success(&cluster.managers[leader].ask(&["pause", "m1"]));
    let before = [0, 1, 2].map(|at| identity(&cluster.path(&format!("m{}", at + 1))));
    let moved = net();
    let places: Vec<String> =
        (1..=3).flat_map(|n: u8| ["--set-addr".to_owned(), format!("m{n}={}", moved(n))]).collect();
    for manager in &mut cluster.managers {
        manager.kill();
    }
    for at in 0..3 {
        let home = cluster.path(&format!("m{}", at + 1));
        let mut command = remoor();
        let out = command.arg("recover").args(&places).arg("--dir").arg(&home).bounded_output();
        let text = disaster::assert_success(&out);
        assert!(text.contains("epoch, log and keys are unchanged"), "{text}");
        cluster.managers[at] = Daemon::start(&home);
    }
    let unknown = disaster::text(
        &remoor().args(["recover", "--set-addr", "m9=10.0.0.1", "--dir"]).arg(cluster.path("other")).bounded_output(),
    );
    assert!(unknown.contains("does not belong to a node"), "{unknown}");
    wait_until("three voters at their new addresses", || {
        let view = cluster.managers[0].json("raft-members");
        let members = view["members"].as_array()?;
        let there = |n: u8| members.iter().any(|m| m["address"] == format!("{}:7947", moved(n)));
        (view["as_of"]["stale"] == false && (1..=3).all(there)).then_some(())
    });
    let after = [0, 1, 2].map(|at| identity(&cluster.path(&format!("m{}", at + 1))));
    assert_eq!(after, before, "the epoch, the Raft id and the node are the same");
    let history = cluster.managers[0].ask(&["history"]);
    assert!(String::from_utf8_lossy(&history.stdout).contains("availability pause"), "{history:?}");
}

/// Archived logs are counted and reported. A command deletes the old ones, after it has named them.
#[test]
fn archived_logs_are_reported_and_old_ones_are_deleted_by_a_command() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut manager = one_manager(dir.path(), net()(1));
    let home = dir.path().join("m1");
    manager.kill();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let archive = |age_days: u64| home.join(format!("raft.removed-1-{}", now - age_days * 86_400));
    for days in [40, 60, 1] {
        fs::create_dir(archive(days)).expect("made");
        fs::write(archive(days).join("log.redb"), "a log").expect("written");
    }
    manager = Daemon::start(&home);
    let warning = wait_until("the status warns", || {
        let status = manager.json("status");
        let warnings = status["warnings"].as_array()?.iter().filter_map(Value::as_str);
        warnings.into_iter().find(|w| w.contains("archived log")).map(str::to_owned)
    });
    assert!(warning.contains("2 archived logs") && warning.contains("--delete-archives 30d"), "{warning}");
    let log = fs::read_to_string(home.join("log")).expect("a log");
    assert!(log.contains("archived logs with keys of the cluster"), "{log}");
    let delete = |args: &[&str]| {
        let mut command = remoor();
        command.args(["recover", "--delete-archives", "30d", "--dir"]).arg(&home).args(args).bounded_output()
    };
    let dry = disaster::assert_success(&delete(&["--dry-run"]));
    assert!(dry.contains(&archive(40).display().to_string()) && dry.contains("nothing was deleted"), "{dry}");
    disaster::assert_rejected(&delete(&[]), &["was not confirmed"]);
    assert!([40, 60, 1].iter().all(|days| archive(*days).exists()));
    let done = disaster::assert_success(&delete(&["--yes"]));
    assert!(done.contains("2 archived logs deleted"), "{done}");
    assert_eq!([40, 60, 1].map(|days| archive(days).exists()), [false, false, true]);
    // Without the log of the manager, an archive may be its only copy.
    fs::rename(home.join("raft"), home.join("raft.away")).expect("moved");
    let mut command = remoor();
    let all = command.args(["recover", "--delete-archives", "1ms", "--yes", "--dir"]).arg(&home).bounded_output();
    disaster::assert_rejected(&all, &["may be the only copy"]);
    fs::rename(home.join("raft.away"), home.join("raft")).expect("moved back");
}

#[test]
fn a_missing_credentials_file_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut manager = one_manager(dir.path(), net()(1));
    manager.kill();
    let home = dir.path().join("m1");
    fs::rename(home.join("credentials.json"), dir.path().join("kept")).expect("moved");
    let mut agent = remoor();
    let out = agent.args(["agent", "--dir"]).arg(&home).arg("--socket").arg(home.join("s")).bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success(), "{text}");
    assert!(text.contains("credentials.json is missing") && text.contains("put the file back"), "{text}");
    fs::rename(dir.path().join("kept"), home.join("credentials.json")).expect("moved back");
    let manager = Daemon::start(&home);
    wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
}

/// The only manager must not start without its log, because no other manager could give it another
/// Raft id.
#[test]
fn the_only_manager_is_not_started_without_its_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut manager = one_manager(dir.path(), net()(1));
    let home = dir.path().join("m1");
    manager.kill();
    fs::remove_dir_all(home.join("raft")).expect("removed");
    assert_rejected(
        remoor().args(["agent", "--dir"]).arg(&home),
        5,
        &["log.redb is gone, but this node has taken part"],
    );
    assert!(!home.join("raft/log.redb").exists());
}

/// The other managers fetch the SSH key that `init` made, also after the key file was lost or
/// damaged. A worker never has the key. A cluster without an SSH key keeps running.
#[test]
fn managers_give_the_clusters_ssh_key_only_to_each_other() {
    let mut cluster = Cluster::begin();
    let file = |cluster: &Cluster, name: &str| cluster.path(name).join("ssh.key");
    let made = fs::read_to_string(file(&cluster, "m1")).expect("made by init");
    let has_it = |cluster: &Cluster, name: &str| {
        wait_until("the key is fetched", || (fs::read_to_string(file(cluster, name)).ok()? == made).then_some(()));
        let mode = fs::metadata(file(cluster, name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    };
    has_it(&cluster, "m2");
    has_it(&cluster, "m3");
    let line =
        wait_until("m2 reports it", || cluster.managers[1].json("status")["ssh_key"].as_str().map(str::to_owned));
    assert!(line.starts_with("restrict ssh-ed25519 AAAA") && line.contains(" remoor-"), "{line}");
    cluster.managers[1].kill();
    fs::remove_file(file(&cluster, "m2")).expect("removed");
    cluster.managers[1] = Daemon::start(&cluster.path("m2"));
    has_it(&cluster, "m2");
    cluster.managers[2].kill();
    fs::write(file(&cluster, "m3"), "spoilt").expect("written");
    cluster.managers[2] = Daemon::start(&cluster.path("m3"));
    has_it(&cluster, "m3");

    wait_until("a leader", || (cluster.managers[0].ask(&["status"]).status.code() == Some(0)).then_some(()));
    let mut join = remoor();
    let [first, address] = [1, 4].map(|last| (cluster.host)(last).to_string());
    join.args(["join", &format!("{first}:7947"), "--name", "w1", "--advertise", &address, "--dir"]);
    run_successfully(join.arg(cluster.path("w1")).arg("--token-file").arg(cluster.path("worker")));
    let worker = Daemon::start(&cluster.path("w1"));
    wait_until("the worker has contacted a manager", || worker.json("status")["manager"]["name"].as_str().map(drop));
    assert!(!file(&cluster, "w1").exists());
    drop(worker);

    // No manager has an SSH key, as in a cluster of an older version.
    for at in 0..3 {
        cluster.managers[at].kill();
        fs::remove_file(file(&cluster, &format!("m{}", at + 1))).expect("removed");
    }
    for at in 0..3 {
        cluster.managers[at] = Daemon::start(&cluster.path(&format!("m{}", at + 1)));
    }
    let status = wait_until("the managers agree again", || {
        let out = cluster.managers[0].ask(&["status", "--json"]);
        (out.status.code() == Some(0)).then(|| serde_json::from_slice::<Value>(&out.stdout).expect("JSON"))
    });
    assert!(status["ssh_key"].is_null(), "{status:#}");
}

fn init(dir: &Path, at: &str) -> std::process::Command {
    let mut command = remoor();
    command.args(["init", "--json", "--name", "m1", "--advertise", at, "--dir"]).arg(dir);
    command
}

fn assert_rejected(command: &mut std::process::Command, code: i32, wanted: &[&str]) {
    let out = run(&mut *command, None, LONG).expect("it ends");
    let message = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.code, code, "{command:?}: {message}");
    for text in wanted {
        assert!(message.contains(text), "{command:?} does not say {text:?}: {message}");
    }
}

#[test]
fn init_and_join_continue_after_a_kill_and_reject_invalid_cases_with_a_reason() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name);
    let net = net();
    let host = |last: u8| net(last).to_string();
    let m1 = at("m1");
    for ms in [20, 60, 120, 250, 500, 700] {
        let mut child = init(&m1, &host(1)).stdout(std::process::Stdio::null()).spawn().expect("remoor runs");
        std::thread::sleep(Duration::from_millis(ms));
        let _gone_or_killed = child.kill();
        child.wait().expect("a status");
        if m1.join("identity.json").exists() {
            fs::remove_dir_all(&m1).expect("removed"); // `init` had completed; start again for slow machines
        }
    }
    // An invalid name is rejected, and nothing is created.
    let mut odd = remoor();
    odd.args(["init", "--name", "web 1", "--advertise", &host(1), "--dir"]).arg(at("odd"));
    assert_rejected(&mut odd, 2, &["\"web 1\" can't be the name of a node (letters, digits", "next: --name"]);
    assert!(!at("odd").exists());
    let output: Value = serde_json::from_slice(&run_successfully(&mut init(&m1, &host(1))).stdout).expect("JSON");
    assert!(!m1.join("unfinished").exists());
    assert_rejected(&mut init(&m1, &host(1)), 4, &["already belongs to node m1", "next: systemctl start remoor"]);

    let manager = Daemon::start(&m1);
    wait_until("the manager leads", || (manager.ask(&["status"]).status.code() == Some(0)).then_some(()));
    assert_rejected(&mut init(&m1, &host(1)), 4, &["remoor runs on", "next: remoor status"]);
    assert_rejected(init(&m1, &host(1)).arg("--force"), 4, &["remoor runs on"]);

    let join = |name: &str, token: &str| {
        let mut command = remoor();
        command.args(["join", &format!("{}:7947", host(1)), "--name", name, "--advertise", &host(2), "--dir"]);
        command.arg(at(name)).args(["--token", token]);
        command
    };
    let token = |which: &str| output[which].as_str().expect("a token").to_owned();
    let (worker, of_manager) = (token("worker_token"), token("manager_token"));
    assert_rejected(&mut join("w1", "remoor-1-cut"), 2, &["the token can't be read", "next: "]);
    let foreign = format!("remoor-1-{}-{}", "0".repeat(32), &worker[worker.len() - 32..]);
    assert_rejected(
        &mut join("w1", &foreign),
        3,
        &["its CA is not the one that the token names", "next: use the token of the cluster"],
    );
    let last = if worker.ends_with('0') { '1' } else { '0' };
    let guessed = format!("{}{last}", &worker[..worker.len() - 1]);
    assert_rejected(&mut join("w1", &guessed), 4, &["not valid here", "next: "]);
    assert_rejected(&mut join("w1", &of_manager), 4, &["this token is for managers", "next: remoor join --manager"]);
    assert_rejected(join("w1", &worker).arg("--manager"), 4, &["admits workers only", "next: "]);
    // The rejected joins do not prevent a later join. The remains of a join that was killed before
    // it wrote its identity do not prevent a join either.
    run_successfully(&mut join("w1", &worker));
    fs::remove_file(at("w1").join("identity.json")).expect("removed");
    fs::write(at("w1").join("unfinished"), "").expect("written");
    run_successfully(&mut join("w1", &worker));
    assert_rejected(
        &mut join("w1", &worker),
        4,
        &["already belongs to node w1 of the token's cluster", "next: systemctl start"],
    );
    // In the following cases, a directory belongs to another cluster or has lost its identity.
    let other = at("m2");
    run_successfully(&mut init(&other, &host(3)));
    assert_rejected(
        &mut join("m2", &worker),
        4,
        &["already belongs to node m1 of another cluster", "next: move the directory"],
    );
    // The error names a damaged file and the next step. The file stays unchanged.
    for (file, next) in [
        ("identity.json", "next: put back that file"),
        ("node.key", "next: put back that file"),
        ("credentials.json", "next: put back that file"),
        ("raft/log.redb", "next: put back that file"),
        ("ca/ca.pem", "next: put back that file"),
        ("ca/ca.key", "next: put back that file"),
        ("node.json", "next: correct that file"),
    ] {
        let path = other.join(file);
        let whole = fs::read(&path).expect("read");
        let half = whole[..whole.len() / 2].to_vec();
        fs::write(&path, &half).expect("written");
        assert_rejected(remoor().args(["agent", "--dir"]).arg(&other), 5, &[file, next]);
        assert!(fs::read(&path).expect("read") == half, "{file} was changed");
        fs::write(&path, whole).expect("written");
    }
    fs::remove_file(other.join("identity.json")).expect("removed");
    assert_rejected(&mut join("m2", &worker), 4, &["raft/ but no identity.json", "next: put"]);
    assert_rejected(&mut init(&other, &host(3)), 4, &["raft/ but no identity.json"]);
    assert!(other.join("raft/log.redb").exists() && other.join("ca").exists());
}
