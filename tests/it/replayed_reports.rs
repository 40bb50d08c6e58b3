//! Gossip records of a daemon that another machine recorded and sends again. All nodes are
//! processes on the loopback of this machine. These tests need neither real hosts nor root.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, wait_until};
use remoor_cluster::gossip::{self, GossipTiming, KeyLookup};
use remoor_cluster::rpc::identity::Credentials;
use remoor_model::{BootId, Instance, Report};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

/// Another process repeatedly sends a gossip record with the signature of w1 and another address.
/// No API at that address proves the identity of w1. Every machine that recorded the gossip of w1
/// before w1 moved can send such a record. The record must not end the daemon of w1.
#[test]
fn a_record_from_another_address_ends_no_daemon_without_a_handshake() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let _manager = one_manager(dir.path(), host(1));
    let home = dir.path().join("w1");
    let mut join = remoor();
    join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(2).to_string(), "--dir"]);
    run_successfully(join.arg(&home).arg("--token-file").arg(dir.path().join("worker")));
    let mut worker = Daemon::start(&home);
    wait_until("the worker is up", || (worker.json("status")["kind"] == "agent").then_some(()));

    let credentials = Credentials::load(&home).expect("read").expect("credentials");
    let at = SocketAddr::from((host(9), 7946));
    let config = gossip::Config {
        cluster: credentials.cluster.clone(),
        name: credentials.name.clone(),
        bind: at,
        advertise: at,
        key: credentials.gossip_key.0,
        signer: credentials.key().expect("a key").signing_key().clone(),
        verify: Arc::new(|_| KeyLookup::Unknown),
        timing: GossipTiming::default(),
    };
    let report = Report {
        boot: BootId::from("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"),
        instance: Instance::from("00000000deadbeef"),
        api: 7947,
        ..Report::default()
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (echo, _events) = runtime.block_on(gossip::start(config, report)).expect("a member");
    let log = wait_until("the worker has asked who is there, or has ended", || {
        let _ = runtime.block_on(echo.join(SocketAddr::from((host(2), 7946))));
        let log = fs::read_to_string(home.join("log")).expect("a log");
        let asked = log.contains("no daemon there proves this node's identity");
        (asked || worker.child.try_wait().expect("a status").is_some()).then_some(log)
    });
    assert!(worker.child.try_wait().expect("a status").is_none(), "the daemon ended: {log}");
    assert!(log.contains(&at.to_string()), "{log}");
    runtime.block_on(echo.shutdown());
}
