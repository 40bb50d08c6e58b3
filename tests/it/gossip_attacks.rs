//! Attacks on the gossip port of a real daemon, by a stranger without the gossip key and by a
//! compromised worker with the key. The attacks cost the daemon neither memory nor descriptors nor
//! log lines, and they mark no node as away. Daemons are processes on the loopback of this machine.
//! These tests need neither real hosts nor root.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, wait_until};
use remoor_cluster::gossip::{self, GossipTiming, KeyLookup, forge};
use remoor_cluster::rpc::identity::Credentials;
use remoor_model::{NodeName, Report};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const GOSSIP: u16 = 7946;

/// The resources that a daemon uses.
#[derive(Debug)]
struct Usage {
    /// Maximum address space that the daemon has had since its start, in MB.
    peak_mb: u64,
    /// Maximum resident memory that the daemon has had since its start, in MB.
    memory_mb: u64,
    descriptors: usize,
    log_lines: usize,
}

impl Usage {
    fn measure(daemon: &Daemon, home: &Path) -> Self {
        let proc = Path::new("/proc").join(daemon.child.id().to_string());
        let status = fs::read_to_string(proc.join("status")).expect("a running daemon");
        let mb = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known line");
            line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
        };
        Self {
            peak_mb: mb("VmPeak"),
            memory_mb: mb("VmHWM"),
            descriptors: fs::read_dir(proc.join("fd")).expect("descriptors").count(),
            log_lines: fs::read_to_string(home.join("log")).expect("a log").lines().count(),
        }
    }
}

/// The bytes of a frame before its length. A stranger knows them, because they are not encrypted.
fn frame_start(home: &Path) -> Vec<u8> {
    let identity: Value = serde_json::from_slice(&fs::read(home.join("identity.json")).expect("read")).expect("JSON");
    let label = format!("remoor-{}", identity["cluster"].as_str().expect("a cluster"));
    [&[12, label.len() as u8], label.as_bytes(), &[15, 1]].concat()
}

/// Waits until the daemon has closed the connection.
fn wait_closed(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(crate::local::LONG)).expect("set");
    // A reset also ends the connection.
    assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)), "a stranger gets no answer");
}

fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("raised to the allowed maximum");
}

#[test]
fn a_stranger_costs_neither_memory_nor_descriptors_nor_log_lines() {
    raise_open_files();
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let (home, at) = (dir.path().join("m1"), SocketAddr::from((host(1), GOSSIP)));
    let manager = one_manager(dir.path(), host(1));
    let (start, before) = (frame_start(&home), Usage::measure(&manager, &home));

    // A few bytes announce a frame of 4 GiB. The daemon refuses the frame at once and not after a
    // timeout.
    let mut stream = TcpStream::connect(at).expect("connected");
    stream.write_all(&[&start[..], &[0xff; 4], &[0; 8]].concat()).expect("sent");
    wait_closed(&mut stream);
    // A frame of an allowed length costs only the memory for the bytes that arrive, even for
    // several frames at the same time.
    let announce = || {
        let mut stream = TcpStream::connect(at).expect("connected");
        stream.write_all(&[&start[..], &(15_u32 << 20).to_be_bytes(), &[0; 8]].concat()).expect("sent");
        stream
    };
    let mut streams: Vec<TcpStream> = (0..8).map(|_| announce()).collect();
    streams.iter_mut().for_each(wait_closed);
    let announced = Usage::measure(&manager, &home);
    assert!(announced.peak_mb < before.peak_mb + 64, "{before:?} {announced:?}");
    assert!(announced.memory_mb < before.memory_mb + 16, "{before:?} {announced:?}");

    let mut crowd: Vec<TcpStream> = (0..1500).map(|_| TcpStream::connect(at).expect("connected")).collect();
    let crowded = Usage::measure(&manager, &home);
    assert!(crowded.descriptors <= before.descriptors + 64, "{before:?} {crowded:?}");
    crowd.iter_mut().for_each(wait_closed);

    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    for n in 0..20_000_usize {
        let datagram: &[u8] = if n % 2 == 0 { &[] } else { &start };
        socket.send_to(datagram, at).expect("sent");
    }
    let out = manager.ask(&["status"]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    // The pause lets the daemon process the datagrams that still wait.
    std::thread::sleep(Duration::from_secs(1));
    let after = Usage::measure(&manager, &home);
    assert!(after.log_lines < before.log_lines + 30, "{before:?} {after:?}");
    assert!(after.memory_mb < before.memory_mb + 16, "{before:?} {after:?}");

    // After the attack, peers can still reach the daemon.
    let _worker = join_worker(dir.path(), host);
    wait_until("the worker is present", || (presence(&manager) == "alive").then_some(()));
}

/// Joins the worker w1 with the address `host(2)`, and starts it in the folder `w1` of `dir`.
fn join_worker(dir: &Path, host: impl Fn(u8) -> Ipv4Addr) -> Daemon {
    let home = dir.join("w1");
    let mut join = remoor();
    join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(2).to_string(), "--dir"]);
    run_successfully(join.arg(&home).arg("--token-file").arg(dir.join("worker")));
    Daemon::start(&home)
}

/// The presence of w1 in the status of its manager.
fn presence(manager: &Daemon) -> String {
    let status = manager.json("status");
    let w1 = status["nodes"].as_array().and_then(|nodes| nodes.iter().find(|node| node["name"] == "w1"));
    w1.and_then(|w1| w1["presence"].as_str()).unwrap_or_default().to_owned()
}

/// A compromised worker knows the gossip key and all records. It raises the incarnation of w1 to
/// the highest number, sends messages that w1 failed, and invents 25,000 nodes.
#[test]
fn a_compromised_worker_marks_no_node_away_and_fills_no_table() {
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let (home, at) = (dir.path().join("m1"), [host(1), host(2)].map(|host| SocketAddr::from((host, GOSSIP))));
    let manager = one_manager(dir.path(), host(1));
    let mut worker = join_worker(dir.path(), host);
    wait_until("the worker is present", || (presence(&manager) == "alive").then_some(()));

    let credentials = Credentials::load(&home).expect("read").expect("credentials");
    let (cluster, key) = (credentials.cluster.clone(), credentials.gossip_key.0);
    let config = gossip::Config {
        cluster: cluster.clone(),
        name: "thief".into(),
        bind: SocketAddr::from((host(9), GOSSIP)),
        advertise: SocketAddr::from((host(9), GOSSIP)),
        key,
        signer: credentials.key().expect("a key").signing_key().clone(),
        verify: Arc::new(|_| KeyLookup::Unknown),
        timing: GossipTiming::default(),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (thief, _events) = runtime.block_on(gossip::start(config, Report::default())).expect("a member");
    let w1 = NodeName::from("w1");
    let record = wait_until("the record of w1 was stolen", || {
        let _ = runtime.block_on(thief.join(at[0]));
        thief.record(&w1)
    });
    runtime.block_on(thief.shutdown());

    let socket = UdpSocket::bind((host(9), 0)).expect("a socket");
    let send = |messages: &[Vec<u8>]| {
        let datagram = forge::datagram(&cluster, key, messages);
        at.iter().for_each(|at| assert!(socket.send_to(&datagram, at).is_ok()));
    };
    let before = Usage::measure(&manager, &home);
    for number in [u32::MAX, u32::MAX - 1, 1 << 31, 2, 1] {
        send(&[forge::alive(&w1, at[1], number, &record)]);
        send(&[forge::suspect(&w1, &"m1".into(), number), forge::dead(&w1, &"m1".into(), number)]);
        send(&[forge::dead(&w1, &w1, number)]);
    }
    for n in 0..25_000 {
        let addr = SocketAddr::from(([127, 99, (n >> 8) as u8, n as u8], GOSSIP));
        send(&[forge::alive(&NodeName(format!("invented-{n}")), addr, 1, b"")]);
        if n % 100 == 0 {
            // The daemons have time to receive the datagrams.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    for _ in 0..30 {
        assert_eq!(presence(&manager), "alive");
        std::thread::sleep(Duration::from_millis(500));
    }
    let after = Usage::measure(&manager, &home);
    assert!(after.log_lines < before.log_lines + 100, "{before:?} {after:?}");
    assert!(after.memory_mb < before.memory_mb + 16, "{before:?} {after:?}");
    assert!(after.descriptors < before.descriptors + 64, "{before:?} {after:?}");

    worker.kill();
    wait_until("the end of the worker is seen", || (presence(&manager) != "alive").then_some(()));
    let _worker = Daemon::start(&dir.path().join("w1"));
    wait_until("the worker is present again", || (presence(&manager) == "alive").then_some(()));
}
