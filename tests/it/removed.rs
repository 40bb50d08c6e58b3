//! Nodes are removed permanently, as processes on the loopback of this machine. The tests check
//! which removals are rejected, and that a removed node learns of its removal. No manager accepts
//! requests of a removed node, whether for itself or for others. Other tests let nodes leave on
//! their own request and return, with the same identity or another. The tests need neither real
//! hosts nor root.

use crate::local::{Daemon, apply_small, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use remoor::manager::api::{Audience, Route, routes};
use remoor_cluster::rpc::client::Client;
use remoor_cluster::rpc::identity::{Credentials, TlsIdentity};
use remoor_cluster::rpc::tls::ClientTls;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn join_command(dir: &Path, name: &str, manager: Ipv4Addr, at: Ipv4Addr, home: &Path) -> Command {
    let mut join = remoor();
    join.args(["join", &format!("{manager}:7947"), "--name", name, "--advertise", &at.to_string(), "--dir"]).arg(home);
    join.arg("--token-file").arg(dir.join("worker"));
    join
}

fn order(daemon: &Daemon, args: &[&str]) -> (Option<i32>, String) {
    let out = daemon.ask(args);
    (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

#[track_caller]
fn assert_rejected(daemon: &Daemon, args: &[&str], why: &str) {
    let (code, text) = order(daemon, args);
    assert!(code == Some(4) && text.contains(why), "{args:?}: {code:?} {text}");
}

/// Names and ids of the nodes that this manager reports.
fn nodes(manager: &Daemon) -> Option<BTreeSet<(String, u64)>> {
    let status = manager.json("status");
    let node = |n: &Value| Some((n["name"].as_str()?.to_owned(), n["id"].as_u64()?));
    status["nodes"].as_array()?.iter().map(node).collect()
}

fn names(manager: &Daemon) -> Vec<String> {
    nodes(manager).unwrap_or_default().into_iter().map(|(name, _)| name).collect()
}

/// Waits until this agent reports that its node was removed.
fn wait_until_removed(daemon: &Daemon, name: &str) {
    let why = wait_until(&format!("{name} knows that it was removed"), || {
        daemon.json("status")["node"]["removed"].as_str().map(str::to_owned)
    });
    assert!(why.starts_with(&format!("{name} was removed from the cluster at 20")), "{why}");
    let (code, text) = order(daemon, &["status"]);
    assert!(code == Some(3) && text.contains("REMOVED") && text.contains("empty data directory"), "{text}");
}

/// Waits until `name` is not among the live peers of this agent.
fn wait_until_unseen(daemon: &Daemon, name: &str) {
    wait_until(&format!("no agent gossips with {name}"), || {
        let view = daemon.json("status");
        let peers = view["peers"].as_array()?;
        (!peers.iter().any(|p| p["name"] == name && p["presence"] == "alive")).then_some(())
    });
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// A client of the manager at `at`. It returns the error code of an answer, or `ok`.
struct Visitor {
    tls: ClientTls,
    at: Ipv4Addr,
}

impl Visitor {
    fn node(dir: &Path, at: Ipv4Addr) -> Self {
        let tls = Credentials::load(dir).expect("read").expect("credentials").tls();
        Self { tls: ClientTls::member(&tls).expect("TLS"), at }
    }

    fn code(&self, method: &str, path: &str) -> String {
        let client = Client::tls(format!("{}:7947", self.at), &self.tls, None).with_timeout(Duration::from_secs(30));
        let answer = match method {
            "GET" => wait(client.get_bytes(path)),
            _ => wait(client.post_bytes(path, "nothing of any kind".into())),
        };
        match answer {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.code().map_or_else(|| error.to_string(), str::to_owned),
        }
    }
}

/// An API path with values in place of its parameters.
fn with_values(path: &str) -> String {
    let value = |part| match part {
        "{name}" => "m1",
        "{kind}" => "vote",
        "{order}" => "pause",
        "{sha}" => "0000000000000000000000000000000000000000000000000000000000000000",
        _ if part.starts_with('{') => "1",
        _ => part,
    };
    path.split('/').map(value).collect::<Vec<_>>().join("/")
}

/// Requests every route of the manager at `at` without credentials, as a worker, as a removed node,
/// as the manager's own node, and as an operator.
fn check_all_routes(dir: &Path, at: Ipv4Addr, worker: &str, removed: &str) {
    let operator = TlsIdentity::load(&dir.join("m1/operator.json")).expect("an operator");
    let operator = Visitor { tls: ClientTls::member(&operator).expect("TLS"), at };
    let token = fs::read_to_string(dir.join("worker")).expect("a token");
    let digest = token.trim().split('-').nth(2).expect("the CA's digest");
    let nobody = Visitor { tls: ClientTls::joiner(digest).expect("TLS"), at };
    let (worker, removed) = (Visitor::node(&dir.join(worker), at), Visitor::node(&dir.join(removed), at));
    let manager = Visitor::node(&dir.join("m1"), at);
    for Route { method, path, audience, .. } in routes() {
        let (method, path) = (method.as_str(), with_values(path));
        let what = format!("{method} {path}");
        if audience == Audience::Anybody {
            continue;
        }
        assert_eq!(nobody.code(method, &path), "unauthenticated", "{what}");
        if audience == Audience::RaftMembers {
            // A request to this route must name the sender's Raft id. This request names none, so
            // it is rejected even with a valid certificate.
            for visitor in [&worker, &removed, &manager] {
                assert_ne!(visitor.code(method, &path), "ok", "{what}");
            }
        } else {
            assert_eq!(removed.code(method, &path), "node-removed", "{what}");
            let code = worker.code(method, &path);
            assert_eq!(code == "forbidden", audience != Audience::Nodes, "{what}: {code}");
        }
        if matches!(audience, Audience::Operators | Audience::LocalOperators) {
            continue; // permitted for operators, and for managers on their behalf
        }
        assert_eq!(operator.code(method, &path), "unauthenticated", "{what}");
        let code = manager.code(method, &path);
        assert!(
            audience == Audience::RaftMembers
                || !["forbidden", "unauthenticated", "node-removed"].contains(&code.as_str()),
            "{what}: {code}"
        );
    }
    for method in ["GET", "POST"] {
        assert_eq!(removed.code(method, "/no/such/thing"), "not-found");
    }
}

#[test]
fn a_removed_worker_stops_and_another_machine_takes_its_name() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let at = |name: &str| dir.path().join(name);
    let m1 = one_manager(dir.path(), host(1));
    let mut workers: Vec<Daemon> = Vec::new();
    for (name, last) in [("w1", 2), ("w2", 3), ("w3", 4)] {
        run_successfully(&mut join_command(dir.path(), name, host(1), host(last), &at(name)));
        workers.push(Daemon::start(&at(name)));
    }
    wait_until("all four are alive", || {
        let status = m1.json("status");
        let alive = status["nodes"].as_array()?.iter().filter(|n| n["presence"] == "alive").count();
        (alive == 4).then_some(())
    });
    let before = nodes(&m1).expect("nodes");

    assert_rejected(&m1, &["remove", "w1", "--yes"], "node w1 is up; stop it or use --force");
    assert_rejected(&m1, &["remove", "w1"], "was not confirmed; nothing was changed");
    assert_rejected(&m1, &["remove", "m1", "--yes"], "m1 is a manager");
    assert_rejected(&m1, &["remove", "w1", "m1", "--force", "--yes"], "only manager");
    assert_eq!(nodes(&m1).as_ref(), Some(&before), "one order: all or none");

    workers[0].kill();
    let text = wait_until("w1 was away long enough", || {
        let (code, text) = order(&m1, &["remove", "w1", "--yes"]);
        let early = ["is up", "has been away for less", "gossip does not see"];
        assert!(code == Some(0) || early.iter().any(|why| text.contains(why)), "{text}");
        (code == Some(0)).then_some(text)
    });
    assert!(text.contains("its name is free; a new gossip key goes to the other nodes"), "{text}");
    assert_eq!(names(&m1), ["m1", "w2", "w3"]);
    let gossip_key = |name: &str| Credentials::load(&at(name)).expect("read").expect("credentials").gossip_key;
    let new_key = wait_until("only w1 has the old gossip key", || {
        let keys = ["m1", "w2", "w3"].map(gossip_key);
        (keys[0] != gossip_key("w1") && keys.iter().all(|key| *key == keys[0])).then(|| keys[0].clone())
    });
    let (code, text) = order(&m1, &["nodes", "--removed"]);
    assert!(code == Some(0) && text.contains("w1") && text.contains("REMEMBERED UNTIL"), "{text}");
    let history = order(&m1, &["history", "w1"]).1;
    assert!(history.contains("unknown: removed") && history.contains("removed for good"), "{history}");

    // w1 returns twice. Each time it learns that it was removed, no node accepts it, and none of
    // its data is lost.
    for _ in 0..2 {
        workers[0] = Daemon::start(&at("w1"));
        wait_until_removed(&workers[0], "w1");
        workers[0].kill();
    }
    assert!(at("w1").join("node.key").exists() && at("w1").join("identity.json").exists());
    assert_eq!(names(&m1), ["m1", "w2", "w3"]);
    assert_eq!(order(&m1, &["history", "w1"]).1.lines().count(), history.lines().count(), "nothing happened to it");
    wait_until_unseen(&workers[1], "w1");

    // The key of w1 is rejected under any name. A machine with the same name and another key is
    // admitted.
    fs::create_dir(at("copy")).expect("made");
    fs::copy(at("w1").join("node.key"), at("copy").join("node.key")).expect("copied");
    let out = join_command(dir.path(), "w9", host(1), host(2), &at("copy")).bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("was permanently removed"), "{text}");
    run_successfully(&mut join_command(dir.path(), "w1", host(1), host(2), &at("again")));
    let again = Daemon::start(&at("again"));
    wait_until("the new w1 is alive", || {
        let status = m1.json("status");
        let node = status["nodes"].as_array()?.iter().find(|n| n["name"] == "w1" && n["presence"] == "alive")?;
        let old = before.iter().find(|(name, _)| name == "w1")?;
        (node["id"].as_u64()? > old.1).then_some(())
    });
    assert_eq!(again.json("status")["node"]["removed"], Value::Null);

    // A node that is up learns of its removal at once.
    let (code, text) = order(&m1, &["remove", "w2", "--force", "--yes", "--keep-gossip-key"]);
    assert_eq!(code, Some(0), "{text}");
    wait_until_removed(&workers[1], "w2");
    wait_until_unseen(&workers[2], "w2");
    let log = fs::read_to_string(at("w2").join("log")).expect("a log");
    assert!(log.contains("w2 was removed from the cluster") && log.contains("has deleted nothing"), "{log}");
    assert_eq!(names(&m1), ["m1", "w1", "w3"]);
    assert!(gossip_key("w3") == new_key, "the key was kept");

    check_all_routes(dir.path(), host(1), "w3", "w2");
}

#[test]
fn a_removed_manager_is_rejected_when_it_comes_back() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let mut daemons = Vec::from(three_managers(dir.path(), host));
    let votes = |daemon: &Daemon| -> Option<BTreeSet<String>> {
        let status = daemon.json("status");
        if status["as_of"]["stale"] != false {
            return None;
        }
        let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("voter" | "leader"));
        status["nodes"].as_array()?.iter().filter(votes).map(|n| n["name"].as_str().map(str::to_owned)).collect()
    };
    let voted = |daemon: &Daemon, wanted: &[usize]| {
        let wanted: BTreeSet<String> = wanted.iter().map(|at| format!("m{}", at + 1)).collect();
        wait_until(&format!("{wanted:?} are voters"), || (votes(daemon)? == wanted).then_some(()));
    };
    voted(&daemons[0], &[0, 1, 2]);
    let leader = wait_until("a leader", || {
        let name = daemons[0].json("status")["as_of"]["leader"].as_str()?.to_owned();
        (0..3).find(|at| name == format!("m{}", at + 1))
    });
    let [victim, other] = [(leader + 1) % 3, (leader + 2) % 3];
    let name = |at: usize| format!("m{}", at + 1);
    let home = |at: usize| dir.path().join(name(at));
    let identity: Value =
        serde_json::from_slice(&fs::read(home(victim).join("identity.json")).expect("an identity")).expect("JSON");
    let raft = identity["raft"].as_u64().expect("an id");

    // A dead manager is removed by an order to a follower. The removed manager returns with all of
    // its data and knows only that follower.
    daemons[victim].kill();
    let (code, text) = order(&daemons[other], &["remove", &name(victim), "--force", "--yes"]);
    assert!(code == Some(0) && text.contains("it leaves Raft first"), "{text}");
    voted(&daemons[leader], &[leader, other]);
    let left = BTreeSet::from([name(leader), name(other)]);
    assert_eq!(names(&daemons[leader]).into_iter().collect::<BTreeSet<_>>(), left);
    let book = home(victim).join("peers.json");
    let mut peers: Value = serde_json::from_slice(&fs::read(&book).expect("read")).expect("JSON");
    for list in peers.as_array_mut().expect("two lists") {
        list.as_array_mut().expect("peers").retain(|p| p["name"] == name(other));
    }
    fs::write(&book, peers.to_string()).expect("written");
    daemons[victim] = Daemon::start(&home(victim));
    wait_until_removed(&daemons[victim], &name(victim));
    let aside = wait_until("the log is archived", || {
        let entries = fs::read_dir(home(victim)).ok()?.flatten().map(|e| e.path());
        entries.into_iter().find(|p| p.to_string_lossy().contains(&format!("raft.removed-{raft}-")))
    });
    assert!(aside.join("log.redb").exists(), "nothing is deleted");
    // Orders of the removed manager, and orders that it forwards, are rejected by every manager.
    for to in [leader, other] {
        let visitor = Visitor::node(&home(victim), host(to as u8 + 1));
        let client = Client::tls(format!("{}:7947", visitor.at), &visitor.tls, None).on_behalf("root@m1", None);
        let pause: Result<Value, _> = wait(client.post(&format!("/v1/nodes/{}/pause", name(other)), &json!({})));
        assert_eq!(pause.expect_err("refused").code(), Some("node-removed"));
    }
    voted(&daemons[leader], &[leader, other]);
    assert_eq!(names(&daemons[leader]).into_iter().collect::<BTreeSet<_>>(), left);

    // The leader is removed at its own request. First another manager takes over the leadership,
    // then that manager completes the removal.
    let (code, text) = order(&daemons[leader], &["remove", &name(leader), "--force", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    voted(&daemons[other], &[other]);
    assert_eq!(names(&daemons[other]), [name(other)]);
    wait_until_removed(&daemons[leader], &name(leader));
    let (_, text) = order(&daemons[other], &["nodes", "--removed"]);
    assert!(text.contains(&name(leader)) && text.contains(&name(victim)), "{text}");
}

/// The names of the nodes that left, as the manager lists them.
fn nodes_that_left(manager: &Daemon) -> Vec<String> {
    let status = manager.json("status");
    let names =
        |list: &Value| list.as_array().map(|all| all.iter().map(|n| n["name"].as_str().map(str::to_owned)).collect());
    names(&status["left"]).unwrap_or(Some(Vec::new())).unwrap_or_default()
}

/// Waits until the manager reports exactly these nodes as alive.
fn alive(manager: &Daemon, names: &[&str]) {
    wait_until(&format!("{names:?} are alive"), || {
        let status = manager.json("status");
        let nodes = status["nodes"].as_array()?;
        let all = nodes.len() == names.len();
        let there = |name: &&str| nodes.iter().any(|n| n["name"] == **name && n["presence"] == "alive");
        (all && names.iter().all(there)).then_some(())
    });
}

#[test]
fn a_worker_leaves_and_comes_back_with_the_same_identity() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let at = |name: &str| dir.path().join(name);
    let m1 = one_manager(dir.path(), host(1));
    let mut workers: Vec<Daemon> = Vec::new();
    for (name, last) in [("w1", 2), ("w2", 3)] {
        run_successfully(&mut join_command(dir.path(), name, host(1), host(last), &at(name)));
        workers.push(Daemon::start(&at(name)));
    }
    alive(&m1, &["m1", "w1", "w2"]);
    let before = nodes(&m1).expect("nodes");

    // A manager can't leave, and no node leaves without confirmation.
    assert_rejected(&m1, &["leave", "--yes"], "m1 is the only manager");
    assert_rejected(&workers[0], &["leave"], "was not confirmed; nothing was changed");
    assert_eq!(nodes(&m1).as_ref(), Some(&before));

    let (code, text) = order(&workers[0], &["leave", "--yes"]);
    assert!(code == Some(0) && text.contains("w1 has left the cluster"), "{code:?} {text}");
    assert!(text.contains("nothing was cleaned up here") && text.contains("systemctl disable"), "{text}");
    assert_eq!((names(&m1), nodes_that_left(&m1)), (vec!["m1".to_owned(), "w2".to_owned()], vec!["w1".to_owned()]));
    let (code, text) = order(&workers[0], &["status"]);
    assert!(code == Some(3) && text.contains("LEFT") && text.contains("unchanged"), "{text}");
    let (code, text) = order(&workers[0], &["leave", "--yes"]);
    assert!(code == Some(0) && text.contains("nothing to do"), "{text}");
    wait_until_unseen(&workers[1], "w1");
    let (_, listed) = order(&m1, &["nodes"]);
    assert!(listed.lines().any(|l| l.starts_with("w1") && l.contains("left")), "{listed}");
    for args in [&["pause", "w1"][..], &["why", "w1"], &["promote", "w1"]] {
        assert_rejected(&m1, args, "w1 left the cluster at");
    }
    // w1 reports at each start that it left, even without a manager. Its certificate is rejected.
    workers[0].kill();
    workers[0] = Daemon::start(&at("w1"));
    let node = wait_until("w1 says that it left", || {
        let node = workers[0].json("status")["node"].clone();
        (node["left"] == true).then_some(node)
    });
    let (boot, started) = (node["boot"].as_str().unwrap_or_default(), node["started"].as_str().unwrap_or_default());
    assert!(!boot.is_empty() && started.starts_with("20"), "it tells of this start: {node}");
    let visitor = Visitor::node(&at("w1"), host(1));
    for (method, path) in [("GET", "/agent/v1/peers"), ("POST", "/agent/v1/renew"), ("GET", "/v1/status")] {
        assert_eq!(visitor.code(method, path), "node-removed", "{path}");
    }
    // The leave is not an absence, and no other node can take the name w1.
    let history = order(&m1, &["history", "w1"]).1;
    assert!(history.contains("left the cluster by its own word") && !history.contains("away since"), "{history}");
    let out = join_command(dir.path(), "w1", host(1), host(9), &at("other")).bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("which left") && text.contains("remoor remove w1"), "{text}");

    // w1 can't join again while its daemon runs. After the daemon was stopped, the same directory
    // is the same node, even at another address.
    let out = join_command(dir.path(), "w1", host(1), host(8), &at("w1")).bounded_output();
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("remoor runs on"), "{out:?}");
    workers[0].kill();
    run_successfully(&mut join_command(dir.path(), "w1", host(1), host(8), &at("w1")));
    let again = join_command(dir.path(), "w1", host(1), host(8), &at("w1")).bounded_output();
    assert!(
        !again.status.success() && String::from_utf8_lossy(&again.stderr).contains("the node has joined already"),
        "{again:?}"
    );
    workers[0] = Daemon::start(&at("w1"));
    alive(&m1, &["m1", "w1", "w2"]);
    assert_eq!((nodes(&m1).as_ref(), nodes_that_left(&m1)), (Some(&before), Vec::new()), "the same ids");
    assert!(order(&m1, &["history", "w1"]).1.contains("left the cluster by its own word"), "with its history");
    wait_until("w2 gossips with the node again", || {
        let view = workers[1].json("status");
        let back = |p: &Value| p["name"] == "w1" && p["presence"] == "alive";
        view["peers"].as_array()?.iter().any(back).then_some(())
    });

    // w1 leaves for the second time and is then removed at once. Its name becomes free.
    let (code, text) = order(&workers[0], &["leave", "--yes", "--no-wait"]);
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = order(&m1, &["remove", "w1", "--yes"]);
    assert!(code == Some(0) && text.contains("which had left, is removed"), "{text}");
    assert!(nodes_that_left(&m1).is_empty() && order(&m1, &["nodes", "--removed"]).1.contains("w1"));
    run_successfully(&mut join_command(dir.path(), "w1", host(1), host(9), &at("other")));
}

#[test]
fn a_node_that_left_is_removed_automatically_after_the_retention_period() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let m1 = one_manager(dir.path(), host(1));
    let home = dir.path().join("w1");
    // `join` is run without a token, then with tokens on the command line, then with a token in the
    // environment. It warns about a secret token on the command line.
    let bare = || {
        let (mut join, at) = (remoor(), host(2).to_string());
        join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &at, "--dir"]).arg(&home);
        join
    };
    let out = bare().bounded_output();
    assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("REMOOR_TOKEN"), "{out:?}");
    let token = fs::read_to_string(dir.path().join("worker")).expect("a token");
    let public = token.trim().rsplit_once('-').expect("a secret").0;
    for (given, warned) in [(format!("{public}-{}", "0".repeat(32)), true), (public.to_owned(), false)] {
        let out = bare().args(["--token", &given, "--wait", "1s"]).bounded_output();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!((out.status.success(), text.contains("is in the command line")), (false, warned), "{text}");
    }
    run_successfully(bare().env("REMOOR_TOKEN", token.trim()));
    let mut w1 = Daemon::start(&home);
    alive(&m1, &["m1", "w1"]);
    let config = "version: 1\ninventory: inventory.yml\ngroups:\n  web: {services: []}\nlimits: {remove-left: 2s}\n";
    apply_small(&m1, dir.path(), config, "web: {hosts: {w1: {}}}\n");
    let (code, text) = order(&w1, &["leave", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    wait_until("the node is removed", || {
        (nodes_that_left(&m1).is_empty() && order(&m1, &["nodes", "--removed"]).1.contains("w1")).then_some(())
    });
    assert_eq!(names(&m1), ["m1"]);
    // w1 returns after it was removed permanently. Its key is rejected, and the error says how to
    // join.
    w1.kill();
    let out = join_command(dir.path(), "w1", host(1), host(2), &home).bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("was permanently removed") && text.contains("away"), "{text}");
}
