//! Managers of a previous epoch, as processes on the loopback of this machine. A manager that was
//! not part of the rebuild decides nothing after it has contact with any node of the newer epoch.
//! If two daemons run as one node, the older daemon stops. These tests need neither real hosts nor
//! root.

use crate::disaster::{
    Cluster, archived_raft_dirs, assert_rejected, assert_success, identity, recover, state_of, text,
};
use crate::local::{Daemon, net, one_manager, remoor, run_successfully, wait_until};
use crate::time_limit::BoundedCommand;
use serde_json::Value;
use std::fs;
use std::path::Path;

fn log(dir: &Path) -> String {
    fs::read_to_string(dir.join("log")).expect("a log")
}

/// Waits until the manager has archived its log, because its epoch is older than the epoch in
/// `after`, the identity of the rebuilding manager.
fn wait_until_archived(home: &Path, after: &Value) {
    wait_until("the log is archived", || {
        let (now, kept) = (identity(home), archived_raft_dirs(home));
        let text = log(home).contains("wrong-epoch");
        (now["raft"].is_null() && now["epoch"] == after["epoch"] && !kept.is_empty() && text).then_some(())
    });
}

fn wait_for_leadership(manager: &Daemon) -> Value {
    wait_until("the manager leads alone", || {
        let out = manager.ask(&["status", "--json"]);
        (out.status.code() == Some(0)).then(|| serde_json::from_slice::<Value>(&out.stdout).ok()).flatten()
    })
}

/// docs/design/scenarios.md, E19: the lost managers return as a majority while the new manager is
/// down. A single worker is enough to stop them.
#[test]
fn former_managers_decide_nothing_even_if_only_workers_know_the_new_epoch() {
    let mut cluster = Cluster::start();
    for lost in 0..3 {
        cluster.managers[lost].kill();
    }
    let first = cluster.manager(0);
    assert_success(&recover(&first, &["--yes"]));
    let after = identity(&first);
    cluster.managers[0] = Daemon::start(&first);
    wait_for_leadership(&cluster.managers[0]);
    for name in ["w1", "w2"] {
        wait_for_certificate(&cluster.path(name), name, after["epoch"].as_u64().expect("an epoch"), 1);
    }
    assert_success(&cluster.managers[0].ask(&["pause", "w1"]));
    cluster.managers[0].kill();

    for lost in [1, 2] {
        let home = cluster.manager(lost);
        cluster.managers[lost] = Daemon::start(&home);
    }
    // Until a former manager has archived its log, it acknowledges no order, because the result
    // would be lost.
    for lost in [1, 2] {
        let home = cluster.manager(lost);
        wait_until("the log is archived", || {
            let out = cluster.managers[lost].ask(&["maintenance", "w2", "--for", "1h"]);
            assert_ne!(out.status.code(), Some(0), "m{} decided in the old epoch: {}", lost + 1, text(&out));
            identity(&home)["raft"].is_null().then_some(())
        });
        wait_until_archived(&home, &after);
    }

    cluster.managers[0] = Daemon::start(&first);
    wait_for_leadership(&cluster.managers[0]);
    assert_success(&cluster.managers[0].ask(&["promote", "m2", "--timeout", "4m"]));
    assert_eq!(state_of(&cluster.managers[0].json("status"), "m2"), "voter");
}

/// There are two recoveries. The workers have no address of the manager of the second recovery, and
/// find it by its certificate. Then the manager of the first recovery returns while the second
/// manager is down. The certificates of the workers make the first manager stop. The certificate of
/// a node that joined later makes it stop too.
#[test]
fn workers_find_the_new_manager_by_its_certificate() {
    let mut cluster = Cluster::start();
    for lost in 0..3 {
        cluster.managers[lost].kill();
    }
    let (first, second) = (cluster.manager(0), cluster.manager(1));
    assert_success(&recover(&first, &["--yes"]));
    cluster.managers[0] = Daemon::start(&first);
    wait_for_leadership(&cluster.managers[0]);
    let of = |home: &Path| identity(home)["epoch"].as_u64().expect("an epoch");
    for name in ["w1", "w2"] {
        wait_for_certificate(&cluster.path(name), name, of(&first), 1);
    }
    cluster.managers[0].kill();
    assert_rejected(&recover(&second, &["--yes"]), &["has a certificate of epoch", "--even-if-behind"]);
    assert_success(&recover(&second, &["--yes", "--even-if-behind"]));
    let after = identity(&second);
    assert!(of(&second) > of(&first));
    cluster.managers[1] = Daemon::start(&second);
    wait_for_leadership(&cluster.managers[1]);
    for name in ["w1", "w2"] {
        wait_for_certificate(&cluster.path(name), name, of(&second), 2);
    }
    for (at, name) in ["w1", "w2"].into_iter().enumerate() {
        wait_until("the worker has heard from the new manager", || {
            (cluster.workers[at].json("status")["manager"]["name"] == "m2").then_some(name)
        });
    }
    let (mut join, address) = (remoor(), (cluster.host)(6).to_string());
    join.args(["join", &format!("{}:7947", (cluster.host)(2)), "--name", "w3", "--advertise", &address, "--dir"]);
    run_successfully(join.arg(cluster.path("w3")).arg("--token-file").arg(cluster.path("worker")));
    let _later = Daemon::start(&cluster.path("w3"));
    wait_until("m2 has w3", || {
        let status = cluster.managers[1].json("status");
        status["nodes"].as_array()?.iter().any(|n| n["name"] == "w3" && n["presence"] == "alive").then_some(())
    });
    cluster.managers[1].kill();
    cluster.workers.clear();
    // Only w3 is up. The manager of the first recovery returns and does not know w3.
    cluster.managers[0] = Daemon::start(&first);
    wait_until_archived(&first, &after);
}

/// Waits until the node has a certificate of `epoch`. It must be at least the `nth` certificate
/// since the epoch began.
fn wait_for_certificate(home: &Path, name: &str, epoch: u64, nth: usize) {
    wait_until("the node has a certificate of the new epoch", || {
        let renewed = log(home).matches(&format!("the certificate of {name} was renewed")).count();
        (identity(home)["epoch"] == epoch && renewed >= nth).then_some(())
    });
}

/// The cluster is rebuilt on m1, which then starts with another address. Only gossip announces that
/// address.
#[test]
fn a_survivor_at_a_new_address_is_found_by_workers_and_by_lost_managers() {
    let mut cluster = Cluster::start();
    for lost in 0..3 {
        cluster.managers[lost].kill();
    }
    let (first, elsewhere) = (cluster.manager(0), (cluster.host)(9));
    let output = assert_success(&recover(&first, &["--yes", "--set-addr", &format!("m1={elsewhere}")]));
    assert!(output.contains("only manager"), "{output}");
    let after = identity(&first);
    cluster.managers[0] = Daemon::start(&first);
    let status = wait_for_leadership(&cluster.managers[0]);
    let api = status["nodes"].as_array().and_then(|nodes| nodes.iter().find(|n| n["name"] == "m1")?["api"].as_str());
    assert_eq!(api, Some(format!("{elsewhere}:7947").as_str()));
    for name in ["w1", "w2"] {
        wait_until("a worker is in the new epoch", || {
            (identity(&cluster.path(name))["epoch"] == after["epoch"]).then_some(())
        });
    }
    let home = cluster.manager(1);
    cluster.managers[1] = Daemon::start(&home);
    wait_until_archived(&home, &after);
    assert_success(&cluster.managers[0].ask(&["promote", "m2", "--timeout", "4m"]));
}

/// A backup is restored while all managers are alive, which requires an explicit option. The
/// restored cluster continues, because its epoch is newer. The other managers stop deciding. The
/// daemon whose node was restored elsewhere stops.
#[test]
fn a_restore_while_managers_are_alive_leaves_one_cluster() {
    let mut cluster = Cluster::start();
    let file = cluster.path("b");
    assert_success(&cluster.managers[0].ask(&["backup", file.to_str().expect("UTF-8")]));
    let (elsewhere, new) = ((cluster.host)(9), cluster.path("new"));
    let mut restore = remoor();
    restore.arg("restore").arg(&file).args(["--set-addr", &format!("m1={elsewhere}"), "--dir"]).arg(&new);
    assert_rejected(&restore.bounded_output(), &["follows a live leader", "--even-if-majority-alive"]);
    assert!(!new.join("node.key").exists() && !new.join("identity.json").exists(), "nothing is left");
    assert_success(&run_successfully(restore.arg("--even-if-majority-alive")));
    let after = identity(&new);
    let restored = Daemon::start(&new);
    wait_for_leadership(&restored);
    for at in 0..3 {
        wait_until_archived(&cluster.manager(at), &after);
        let out = cluster.managers[at].ask(&["pause", "w1"]);
        assert_ne!(out.status.code(), Some(0), "m{} decides: {}", at + 1, text(&out));
    }
    let ended = wait_until("the first m1 ends", || cluster.managers[0].child.try_wait().expect("a status"));
    let message = log(&cluster.manager(0));
    assert!(
        !ended.success() && message.contains(&format!("another daemon of this node, at {elsewhere}:7946")),
        "{message}"
    );
    for name in ["w1", "w2"] {
        wait_until("a worker is in the new epoch", || {
            (identity(&cluster.path(name))["epoch"] == after["epoch"]).then_some(())
        });
    }
    wait_until("all nodes are alive", || {
        let status = restored.json("status");
        let alive = status["nodes"].as_array()?.iter().filter(|n| n["presence"] == "alive").count();
        (alive == 5).then_some(())
    });
    assert_success(&restored.ask(&["pause", "w1"]));
    assert_success(&restored.ask(&["promote", "m2", "--timeout", "4m"]));
}

/// One backup is restored twice, under two names. Then the clusters contact each other, and the
/// newer epoch is valid. The manager of the older epoch has a key that the newer cluster does not
/// know. Another node joined in the older epoch. Both learn that they are no longer nodes, and can
/// join again.
#[test]
fn a_backup_restored_twice_under_two_names_leaves_no_orphans() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let path = |name: &str| dir.path().join(name);
    let join = |name: &str, last: u8, to: u8, token: &str| {
        let (mut join, at) = (remoor(), host(last).to_string());
        join.args(["join", &format!("{}:7947", host(to)), "--name", name, "--advertise", &at]);
        if token == "manager" {
            join.arg("--manager");
        }
        join.arg("--dir").arg(path(&format!("{name}-{to}"))).arg("--token-file").arg(path(token)).bounded_output()
    };
    let mut first = one_manager(dir.path(), host(1));
    assert_success(&join("m2", 2, 1, "manager"));
    let mut second = Daemon::start(&path("m2-1"));
    wait_until("two voters", || {
        let members = first.json("raft-members")["members"].as_array()?.clone();
        (members.iter().filter(|m| m["is"] == "voter" || m["is"] == "leader").count() == 2).then_some(())
    });
    let file = path("backup");
    assert_success(&first.ask(&["backup", file.to_str().expect("UTF-8")]));
    first.kill();
    second.kill();
    let restore = |name: &str, to: &str| {
        let mut restore = remoor();
        restore.arg("restore").arg(&file).args(["--name", name, "--dir"]).arg(path(to));
        assert_success(&restore.bounded_output());
        identity(&path(to))["epoch"].as_u64().expect("an epoch")
    };
    let older = restore("m2", "older");
    // The order of two epochs that begin in the same second is not defined.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let newer = restore("m1", "newer");
    assert!(older < newer);
    let outdated = Daemon::start(&path("older"));
    wait_for_leadership(&outdated);
    assert_success(&join("w1", 3, 2, "worker"));
    let worker = Daemon::start(&path("w1-2"));
    wait_until("w1 has contacted m2", || (worker.json("status")["manager"]["name"] == "m2").then_some(()));

    let valid = Daemon::start(&path("newer"));
    wait_for_leadership(&valid);
    for (name, node) in [("m2", &outdated), ("w1", &worker)] {
        let why = wait_until(&format!("{name} learns that it is not a node any more"), || {
            node.json("status")["node"]["removed"].as_str().map(str::to_owned)
        });
        eprintln!("{name}: {why}");
    }
    drop((outdated, worker));
    fs::remove_dir_all(path("m2-1")).expect("removed");
    assert_success(&valid.ask(&["remove", "m2", "--force", "--yes"]));
    wait_until("m2 joins again", || (join("m2", 2, 1, "worker").status.code() == Some(0)).then_some(()));
    assert_success(&join("w1", 3, 1, "worker"));
}
