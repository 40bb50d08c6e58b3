//! Data that strangers and workers can send costs a manager a bounded amount of memory. Strangers
//! and one worker attack real daemons on the loopback of this machine. The daemons answer all other
//! clients meanwhile. These tests need neither real hosts nor root.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully, three_managers, wait_until};
use crate::time_limit::BoundedCommand;
use remoor_cluster::rpc::client::Client;
use remoor_cluster::rpc::connect::testing::open;
use remoor_cluster::rpc::identity::Credentials;
use remoor_cluster::rpc::identity::NodeKey;
use remoor_cluster::rpc::join::testing::request;
use remoor_cluster::rpc::join::{JOIN_PATH, JoinRequest};
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::token::Token;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Maximum memory that an attack may add, in MB. At rest the test build uses about 80 MB, of which
/// most is the program itself.
const ADDED_MAX: u64 = 50;
/// Time within which others must be answered during an attack.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const CONNECTIONS: usize = 128;
/// Number of one-byte chunks that one connection sends.
const PIECES: usize = 100_000;

/// The managers m1, m2 and so on, and the credentials of the worker w1, which does not run.
struct Cluster {
    /// Declared before the folder, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in the folder.
    managers: Vec<Daemon>,
    dir: tempfile::TempDir,
    at: Ipv4Addr,
    runtime: Runtime,
}

impl Cluster {
    fn of_one() -> Self {
        let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
        let managers = vec![one_manager(dir.path(), host(1))];
        Self::with_worker(managers, dir, host)
    }

    fn of_three() -> Self {
        let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
        let managers: Vec<Daemon> = three_managers(dir.path(), host).into();
        wait_until("three voters", || {
            let status = managers[2].json("status");
            let votes = status["nodes"].as_array()?.iter().filter(|n| n["manager"] == "voter").count();
            (votes == 2 && status["as_of"]["stale"] == false).then_some(())
        });
        Self::with_worker(managers, dir, host)
    }

    fn with_worker(managers: Vec<Daemon>, dir: tempfile::TempDir, host: impl Fn(u8) -> Ipv4Addr) -> Self {
        let mut join = remoor();
        join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(9).to_string(), "--dir"]);
        run_successfully(join.arg(dir.path().join("w1")).arg("--token-file").arg(dir.path().join("worker")));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { managers, dir, at: host(1), runtime: runtime.expect("a runtime") }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn api(&self) -> String {
        format!("{}:7947", self.at)
    }

    /// The API addresses of all managers, which have adjacent IP addresses.
    fn apis(&self) -> Vec<String> {
        let [a, b, c, d] = self.at.octets();
        (0..self.managers.len() as u8).map(|n| format!("{}:7947", Ipv4Addr::new(a, b, c, d + n))).collect()
    }

    fn worker(&self) -> ClientTls {
        let credentials = Credentials::load(&self.folder("w1")).expect("read").expect("credentials");
        ClientTls::member(&credentials.tls()).expect("TLS")
    }

    fn stranger(&self) -> ClientTls {
        let token = fs::read_to_string(self.folder("worker")).expect("a token");
        ClientTls::joiner(Token::parse(token.trim()).expect("a token").ca_digest()).expect("TLS")
    }

    /// Whether an operator on another machine receives the status.
    fn operator_sees_status(&self) -> bool {
        let mut ask = remoor();
        ask.args(["status", "--manager", &self.api(), "--credentials"]).arg(self.folder("m1/operator.json"));
        ask.bounded_output().status.code() == Some(0)
    }

    /// Sends an order to the last manager, which forwards it to the leader. Returns whether a
    /// quorum decided it.
    fn decides(&self, round: usize) -> bool {
        let last = &self.managers[self.managers.len() - 1];
        let out = last.ask(&["maintenance", "w1", "--for", &format!("{}m", round + 1)]);
        out.status.code() == Some(0)
    }

    /// Waits until the attackers have ended, and returns the memory that they added to m1, in MB.
    /// Meanwhile it requests the status and gives orders. Each of these must succeed, at the latest
    /// after `ANSWER_MAX`: a machine with much other work may elect a new leader. After `rounds`
    /// requests, `over` makes the attackers end.
    fn attack(&self, attackers: Vec<JoinHandle<()>>, rounds: usize, over: &Arc<AtomicBool>) -> u64 {
        let before = memory_mb(&self.managers[0]);
        let (peak, ended) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let pid = self.managers[0].child.id();
        let watch = std::thread::spawn({
            let (peak, ended) = (peak.clone(), ended.clone());
            move || {
                while !ended.load(Ordering::Relaxed) {
                    peak.fetch_max(memory_of(pid), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let (mut asked, mut answered) = (0, 0);
        while !attackers.iter().all(JoinHandle::is_finished) || asked == 0 {
            asked += 1;
            let all_answer = || {
                let status = self.operator_sees_status() && self.managers[0].ask(&["status"]).status.code() == Some(0);
                status && self.decides(asked)
            };
            let begun = Instant::now();
            let mut is_answered = all_answer();
            while !is_answered && begun.elapsed() < ANSWER_MAX {
                is_answered = all_answer();
            }
            answered += usize::from(is_answered);
            over.fetch_or(asked >= rounds, Ordering::Relaxed);
        }
        ended.store(true, Ordering::Relaxed);
        watch.join().expect("no panic");
        let peak = peak.load(Ordering::Relaxed);
        eprintln!("memory {before} MB, at most {peak} MB; {answered} of {asked} questions answered");
        assert_eq!(answered, asked, "others are answered");
        peak - before
    }
}

fn memory_mb(daemon: &Daemon) -> u64 {
    memory_of(daemon.child.id())
}

/// Resident memory of a process in MB.
fn memory_of(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kb = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kb.unwrap_or_default() / 1024
}

/// The address of this machine from which attacker number `n` connects.
fn address(n: usize) -> IpAddr {
    Ipv4Addr::new(127, 99, (n / 250) as u8, (n % 250) as u8 + 1).into()
}

/// Sends a body in one-byte chunks for as long as the server accepts them. Then keeps the
/// connection until the server ends it.
async fn send_pieces(api: String, tls: ClientTls, from: IpAddr, path: &str) {
    let Ok(mut stream) = open(&api, &tls, from).await else { return };
    let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    let some = b"1\r\nx\r\n".repeat(500);
    for _ in 0..PIECES / 500 {
        if stream.write_all(&some).await.is_err() {
            return;
        }
    }
    let rest = tokio::time::timeout(Duration::from_secs(40), stream.read_to_end(&mut Vec::new())).await;
    drop(rest); // the request may be answered or not
}

#[test]
fn pieces_of_one_byte_cost_a_manager_no_more_than_their_bytes() {
    let cluster = Cluster::of_one();
    let added = [(cluster.stranger(), JOIN_PATH), (cluster.worker(), "/raft/append")].map(|(tls, path)| {
        let attacker = |n| cluster.runtime.spawn(send_pieces(cluster.api(), tls.clone(), address(n), path));
        cluster.attack((0..CONNECTIONS).map(attacker).collect(), 0, &Arc::default())
    });
    assert!(added.iter().all(|mb| *mb < ADDED_MAX), "{added:?} MB");
}

/// Opens connections one after the other until `over`, and sends nothing on them. If `tls` is
/// given, each connection first completes a TLS handshake.
async fn be_silent(
    (api, from): (String, IpAddr),
    tls: Option<ClientTls>,
    opened: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
) {
    /// Time after which a connection is replaced. It is shorter than the timeout of the server, so
    /// that there is always a connection.
    const WAIT: Duration = Duration::from_secs(8);
    while !over.load(Ordering::Relaxed) {
        match &tls {
            Some(tls) => {
                let Ok(mut stream) = open(&api, tls, from).await else { continue };
                opened.fetch_add(1, Ordering::Relaxed);
                drop(tokio::time::timeout(WAIT, stream.read_u8()).await);
            }
            None => {
                let socket = TcpSocket::new_v4().expect("a socket");
                socket.bind((from, 0).into()).expect("bound");
                let Ok(mut stream) = socket.connect(api.parse().expect("an address")).await else { continue };
                opened.fetch_add(1, Ordering::Relaxed);
                drop(tokio::time::timeout(WAIT, stream.read_u8()).await);
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn one_worker_with_512_connections_keeps_nobody_else_out() {
    let cluster = Cluster::of_three();
    let (opened, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let worker = cluster.worker();
    let attackers = cluster.apis().into_iter().flat_map(|api| (0..512).map(move |_| api.clone())).map(|api| {
        let from = Ipv4Addr::LOCALHOST.into();
        cluster.runtime.spawn(be_silent((api, from), Some(worker.clone()), opened.clone(), over.clone()))
    });
    let added = cluster.attack(attackers.collect(), 20, &over);
    let opened = opened.load(Ordering::Relaxed);
    assert!(opened >= 512 && added < ADDED_MAX, "{opened} connections, {added} MB");
}

#[test]
fn silent_connections_of_two_addresses_keep_nobody_else_out() {
    let cluster = Cluster::of_three();
    let (opened, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let attackers = cluster.apis().into_iter().flat_map(|api| (0..256).map(move |n| (api.clone(), address(n % 2))));
    let attackers = attackers.map(|at| cluster.runtime.spawn(be_silent(at, None, opened.clone(), over.clone())));
    let added = cluster.attack(attackers.collect(), 20, &over);
    let opened = opened.load(Ordering::Relaxed);
    assert!(opened >= 512 && added < ADDED_MAX, "{opened} connections, {added} MB");
}

/// Sends join requests of strangers, and returns one code for each: the refusal in the answer, or
/// the code of the error.
fn ask_to_join(cluster: &Cluster, requests: impl IntoIterator<Item = (IpAddr, JoinRequest)>) -> Vec<String> {
    let mut codes = Vec::new();
    for (from, request) in requests {
        let asked = post_from(cluster.api(), cluster.stranger(), from, serde_json::to_vec(&request).expect("JSON"));
        let answer = cluster.runtime.block_on(asked);
        let error: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        let error = &error["error"];
        let code = error["details"]["refusal"].as_str().or(error["code"].as_str()).expect("a code");
        codes.push(code.to_owned());
    }
    codes
}

/// Sends a join request from this address and returns the body of the answer.
async fn post_from(api: String, tls: ClientTls, from: IpAddr, body: Vec<u8>) -> String {
    let mut stream = open(&api, &tls, from).await.expect("a connection");
    let length = body.len();
    let head = format!("POST {JOIN_PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(&[head.into_bytes(), body].concat()).await.expect("sent");
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer).await); // the TLS close notification may be missing
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body")
}

/// A join request of a new machine.
fn machine(name: &str) -> JoinRequest {
    let key = NodeKey::generate().expect("a key");
    JoinRequest { name: name.into(), machine_id: format!("id of {name}"), boot: name.to_owned(), ..request(&key) }
}

#[test]
fn refused_strangers_leave_no_entry_in_the_log() {
    let mut cluster = Cluster::of_one();
    let entries = |cluster: &Cluster| {
        let client = Client::unix(cluster.folder("m1/s"));
        let state: serde_json::Value = cluster.runtime.block_on(client.get("/v1/raft/state")).expect("a state");
        state["applied"].as_u64().expect("an index")
    };
    // Eight machines of one network may wait at the same time.
    let waiting = (0..8).map(|n| (address(n), machine(&format!("a{n}"))));
    assert_eq!(ask_to_join(&cluster, waiting), ["pending"; 8]);
    let before = entries(&cluster);
    // 400 other requests are refused: machines of the same network, machines with the name of a
    // node, and machines with long texts.
    let long = |n: usize| JoinRequest { ssh_host_keys: vec!["k".repeat(4000); 16], ..machine(&format!("b{n}")) };
    let elsewhere = |n: usize| Ipv4Addr::new(127, 98, n as u8, 1).into();
    let refused = (0..200).map(|n| (address(n), machine(&format!("c{n}"))));
    let refused = refused.chain((0..100).map(|n| (elsewhere(n), machine("m1"))));
    let refused = refused.chain((0..100).map(|n| (elsewhere(n), long(n))));
    let codes = ask_to_join(&cluster, refused);
    let count = |code: &str| codes.iter().filter(|found| *found == code).count();
    let counts = [count("too-many-pending"), count("identity-conflict"), count("bad-request")];
    assert_eq!((counts, entries(&cluster)), ([200, 100, 100], before));

    // The manager is started again with a configuration that accepts no join requests.
    cluster.managers[0].kill();
    let node = cluster.folder("m1/node.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&node).expect("read")).expect("JSON");
    config["join_requests"] = false.into();
    fs::write(&node, config.to_string()).expect("written");
    cluster.managers[0] = Daemon::start(&cluster.folder("m1"));
    wait_until("m1 leads again", || (cluster.managers[0].ask(&["status"]).status.code() == Some(0)).then_some(()));
    let before = entries(&cluster);
    assert_eq!(ask_to_join(&cluster, [(elsewhere(7), machine("d1"))]), ["bad-token"]);
    assert_eq!(entries(&cluster), before);
}
