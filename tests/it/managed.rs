//! A manager service that starts and stops in a daemon that keeps running, with real processes on
//! the loopback of this machine. The tests check who may order the service, which state a kill in
//! the middle of an order leaves, and that the agent is not affected. They need neither real hosts
//! nor root.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use remoor_cluster::rpc::agent::PeersReply;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::identity::{Credentials, TlsIdentity};
use remoor_cluster::rpc::node::{MANAGE_PATH, ManageReply, ManageRequest};
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::view::AgentView;
use remoor_model::{ClusterId, Epoch, NodeId, RaftId};
use serde_json::Value;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn identity(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("identity.json")).expect("an identity")).expect("JSON")
}

fn node(dir: &Path) -> NodeId {
    NodeId(identity(dir)["node"].as_u64().expect("a node id"))
}

fn tls(dir: &Path) -> TlsIdentity {
    Credentials::load(dir).expect("read").expect("credentials").tls()
}

/// The answer of a daemon's agent about itself, also if the daemon is a manager.
fn agent(dir: &Path) -> Option<AgentView> {
    wait(Client::unix(dir.join("s")).with_timeout(Duration::from_secs(5)).get("/v1/agent")).ok()
}

fn archived_logs(dir: &Path, id: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).expect("listed").map(|e| e.expect("an entry").path());
    let start = format!("raft.removed-{id}-");
    names.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&start))).collect()
}

/// Sends orders to a node's daemon. `to` is the directory of the node, `at` its address.
struct Orders {
    to: PathBuf,
    at: Ipv4Addr,
    managers: PeersReply,
}

impl Orders {
    fn new(to: &Path, at: Ipv4Addr, manager: &Path, manager_at: Ipv4Addr) -> Self {
        let tls = ClientTls::member(&tls(manager)).expect("TLS");
        let client = Client::tls(format!("{manager_at}:7947"), &tls, Some(node(manager)));
        let managers = wait(client.get("/agent/v1/peers")).expect("peers");
        Self { to: to.to_owned(), at, managers }
    }

    fn request(&self, raft: u64) -> ManageRequest {
        let identity = identity(&self.to);
        ManageRequest {
            cluster: ClusterId::from(identity["cluster"].as_str().expect("a cluster")),
            epoch: Epoch(identity["epoch"].as_u64().expect("an epoch")),
            node: node(&self.to),
            raft: RaftId(raft),
            managers: self.managers.managers.clone(),
        }
    }

    fn give(&self, by: &TlsIdentity, request: &ManageRequest) -> Result<ManageReply, ApiError> {
        let tls = ClientTls::member(by).expect("TLS");
        let client = Client::tls(format!("{}:7947", self.at), &tls, Some(node(&self.to)));
        wait(client.post(MANAGE_PATH, request))
    }

    fn code(&self, by: &TlsIdentity, request: &ManageRequest) -> String {
        match self.give(by, request) {
            Ok(reply) => format!("{reply:?}"),
            Err(error) => error.code().map_or_else(|| error.to_string(), str::to_owned),
        }
    }
}

fn join_command(dir: &Path, name: &str, token: &str, to: Ipv4Addr, at: Ipv4Addr, home: &Path) -> Command {
    let mut join = remoor();
    join.args(["join", &format!("{to}:7947"), "--name", name, "--advertise", &at.to_string(), "--dir"]).arg(home);
    if token == "manager" {
        join.arg("--manager");
    }
    join.arg("--token-file").arg(dir.join(token));
    join
}

fn join(dir: &Path, name: &str, token: &str, to: Ipv4Addr, at: Ipv4Addr, home: &Path) {
    run_successfully(&mut join_command(dir, name, token, to, at, home));
}

#[test]
fn an_order_is_rejected_with_a_reason_and_a_log_of_a_retired_id_is_archived() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let at = |name: &str| dir.path().join(name);
    let (m1, w1, w2) = (at("m1"), at("w1"), at("w2"));
    let _manager = one_manager(dir.path(), host(1));
    join(dir.path(), "w1", "worker", host(1), host(2), &w1);
    join(dir.path(), "w2", "worker", host(1), host(3), &w2);
    let mut worker = Daemon::start(&w1);
    let view = wait_until("w1 has contacted its manager", || agent(&w1).filter(|view| view.manager.name.is_some()));
    assert!(!view.node.manager);
    let orders = Orders::new(&w1, host(2), &m1, host(1));
    let (manager, other) = (tls(&m1), tls(&w2));
    let operator = TlsIdentity::load(&m1.join("operator.json")).expect("an operator");

    let good = orders.request(2);
    let code = wait_until("w1 knows w2", || Some(orders.code(&other, &good)).filter(|code| code != "retry"));
    assert_eq!(code, "forbidden", "it knows that w2 is a worker");
    assert_eq!(orders.code(&operator, &good), "unauthenticated");
    for (code, wrong) in [
        ("wrong-cluster", ManageRequest { cluster: "another".into(), ..good.clone() }),
        ("wrong-epoch", ManageRequest { epoch: Epoch(good.epoch.0 + 1), ..good.clone() }),
        ("wrong-node", ManageRequest { node: NodeId(good.node.0 + 1), ..good.clone() }),
        ("bad-request", ManageRequest { raft: RaftId(1), ..good.clone() }),
        ("bad-request", ManageRequest { raft: RaftId(0), ..good.clone() }),
    ] {
        assert_eq!(orders.code(&manager, &wrong), code);
    }
    let client = Client::tls(format!("{}:7947", host(2)), &ClientTls::member(&manager).expect("TLS"), Some(node(&w1)));
    for path in ["/agent/v1/peers", "/manager/v1/ca"] {
        let answer = wait(client.get::<Value>(path)).expect_err("a worker answers nothing else");
        assert_eq!(answer.code(), Some("not-found"), "{path}");
    }
    let answer = wait(client.get::<Value>("/v1/status")).expect_err("a worker knows nothing of the cluster");
    assert!(answer.code() == Some("not-leader") && answer.to_string().contains("is not a manager"), "{answer}");
    assert!(!w1.join("raft").exists() && archived_logs(&w1, "2").is_empty(), "a refusal changes nothing");

    // The Raft id in the order to w1 was never granted, because the managers' log has skipped it.
    // As a manager, w1 only asks whether its Raft id is valid.
    let socket = fs::metadata(w1.join("s")).expect("a socket").ino();
    let begun = Instant::now();
    wait_until("w1 learns of the end", || (orders.code(&manager, &good) == "retired").then_some(()));
    eprintln!("archived after {:?}", begun.elapsed());
    let kept = archived_logs(&w1, "2");
    assert!(kept.len() == 1 && kept[0].join("log.redb").exists(), "{kept:?}");
    assert!(!w1.join("raft").exists() && !w1.join("ca").exists());
    let now = identity(&w1);
    assert_eq!((&now["raft"], &now["log_begun"], &now["retired"]), (&Value::Null, &false.into(), &2.into()));
    let log = fs::read_to_string(w1.join("log")).expect("a log");
    assert!(log.contains("is no longer a manager") && log.contains("or remoor promote w1"), "{log}");
    assert_eq!(orders.code(&manager, &good), "retired", "an order that comes late begins nothing");
    assert_eq!(archived_logs(&w1, "2").len(), 1);
    let after = agent(&w1).expect("the agent continues");
    assert_eq!((&after.node.instance, after.node.manager), (&view.node.instance, false));
    assert_eq!(fs::metadata(w1.join("s")).expect("a socket").ino(), socket);

    // The test writes the files that a crash leaves between the write of the identity and the write
    // of the log.
    worker.kill();
    fs::create_dir(w1.join("raft")).expect("made");
    fs::write(w1.join("raft/log.redb"), "left").expect("written");
    fs::create_dir(w1.join("ca")).expect("made");
    fs::write(w1.join("ca/ca.key"), "left").expect("written");
    let _worker = Daemon::start(&w1);
    wait_until("w1 is alive again", || agent(&w1));
    assert!(!w1.join("raft").exists() && !w1.join("ca").exists());
    assert!(archived_logs(&w1, "2").iter().any(|kept| kept.join("ca/ca.key").exists()));
}

#[test]
fn a_node_is_promoted_demoted_and_promoted_again_while_its_agent_keeps_running() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let at = |name: &str| dir.path().join(name);
    let (m1, m4) = (at("m1"), at("m4"));
    let [first, _second, _third] = three_managers(dir.path(), host);
    let voters = || {
        let status = first.json("status");
        let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("leader" | "voter")) && n["presence"] == "alive";
        status["nodes"].as_array().map_or(0, |nodes| nodes.iter().filter(votes).count())
    };
    wait_until("three voters", || (voters() == 3).then_some(()));
    // m4 was admitted as a manager, but its daemon has not started the manager service. A node that
    // is being promoted is in the same state.
    join(dir.path(), "m4", "manager", host(1), host(4), &m4);
    let granted = identity(&m4)["raft"].as_u64().expect("an id");
    let mut worker = identity(&m4);
    worker["raft"] = Value::Null;
    fs::write(m4.join("identity.json"), worker.to_string()).expect("written");
    let mut fourth = Daemon::start(&m4);
    wait_until("m4 is alive", || agent(&m4).filter(|view| view.peers_alive >= 2));
    let manager = tls(&m1);
    let orders = Orders::new(&m4, host(4), &m1, host(1));

    // The daemon of m4 is killed at several moments of the order to start its manager service. Each
    // kill leaves a valid state, from which the next start or the next order continues.
    for ms in [0, 5, 15, 40, 90, 200, 500] {
        std::thread::scope(|scope| {
            let given = scope.spawn(|| orders.give(&manager, &orders.request(granted)));
            std::thread::sleep(Duration::from_millis(ms));
            fourth.kill();
            let _whatever = given.join().expect("no panic");
        });
        fourth = Daemon::start(&m4);
        wait_until("m4 is alive after the kill", || agent(&m4));
        assert!(archived_logs(&m4, "unknown").is_empty(), "the started work is continued");
    }
    let before = agent(&m4).expect("an agent").node.instance;
    let reply = |raft| wait_until("the order is performed", || orders.give(&manager, &orders.request(raft)).ok());
    assert_eq!(reply(granted), ManageReply { raft: RaftId(granted) });
    assert_eq!(reply(granted), ManageReply { raft: RaftId(granted) }, "twice is once");
    wait_until("four voters", || (voters() == 4).then_some(()));
    assert_eq!(fourth.ask(&["status"]).status.code(), Some(0), "it answers as a manager");
    let view = agent(&m4).expect("an agent");
    assert_eq!((&view.node.instance, view.node.manager), (&before, true));
    assert!(m4.join("ca").exists());

    // Another machine joins with the key of m4 while m4 runs, and is rejected
    // (docs/design/scenarios.md, E13).
    fs::create_dir(at("again")).expect("made");
    fs::copy(m4.join("node.key"), at("again").join("node.key")).expect("copied");
    let out = join_command(dir.path(), "m4", "manager", host(1), host(5), &at("again")).bounded_output();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("it is not joined a second time"), "{text}");
    assert_eq!(voters(), 4);

    // After the demotion, the Raft id of m4 is not used anymore. The next promotion gives m4
    // another id.
    let begun = Instant::now();
    let out = first.ask(&["demote", "m4"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    wait_until("the old log is archived", || archived_logs(&m4, &granted.to_string()).pop());
    eprintln!("archived after {:?}", begun.elapsed());
    let kept = archived_logs(&m4, &granted.to_string());
    assert!(kept[0].join("log.redb").exists() && kept[0].join("ca").exists(), "{kept:?}");
    assert_eq!(agent(&m4).expect("an agent").node.instance, before);
    assert_eq!(orders.code(&manager, &orders.request(granted)), "retired", "an order that comes late begins nothing");
    let out = first.ask(&["promote", "m4"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let newer = identity(&m4)["raft"].as_u64().expect("an id");
    assert!(newer > granted);
    assert_eq!(reply(newer), ManageReply { raft: RaftId(newer) });
    wait_until("its new log has caught up", || {
        let state = fourth.json("status");
        (state["as_of"]["leader"].is_string() && voters() == 4).then_some(())
    });
    let view = agent(&m4).expect("an agent");
    assert_eq!((&view.node.instance, view.node.manager), (&before, true));
}
