//! What others may send costs a manager a bounded amount of memory. Real daemons on the loopback of
//! this machine are attacked by strangers and by one worker, and answer everybody else meanwhile.
//! Needs neither the lab nor root.

use crate::local::{Daemon, net, one_manager, remoor, run_successfully};
use crate::time_limit::BoundedCommand;
use remoor_cluster::rpc::connect::testing::open;
use remoor_cluster::rpc::identity::Credentials;
use remoor_cluster::rpc::join::JOIN_PATH;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::token::Token;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Most memory that an attack adds, in MB. At rest the test build uses about 80 MB, of which most is
/// the program itself.
const ADDED_MAX: u64 = 50;
const CONNECTIONS: usize = 128;
/// Pieces of one byte that one connection sends.
const PIECES: usize = 100_000;

/// m1, and the credentials of the worker w1, which does not run.
struct Cluster {
    /// Declared before the folder, because the drop of the daemon may print a log in it.
    m1: Daemon,
    dir: tempfile::TempDir,
    at: Ipv4Addr,
    runtime: Runtime,
}

impl Cluster {
    fn start() -> Self {
        let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
        let m1 = one_manager(dir.path(), host(1));
        let mut join = remoor();
        join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(2).to_string(), "--dir"]);
        run_successfully(join.arg(dir.path().join("w1")).arg("--token-file").arg(dir.path().join("worker")));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        Self { m1, dir, at: host(1), runtime: runtime.expect("a runtime") }
    }

    fn folder(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn api(&self) -> String {
        format!("{}:7947", self.at)
    }

    fn worker(&self) -> ClientTls {
        let credentials = Credentials::load(&self.folder("w1")).expect("read").expect("credentials");
        ClientTls::member(&credentials.tls()).expect("TLS")
    }

    fn stranger(&self) -> ClientTls {
        let token = fs::read_to_string(self.folder("worker")).expect("a token");
        ClientTls::joiner(Token::parse(token.trim()).expect("a token").ca_digest()).expect("TLS")
    }

    /// Whether an operator elsewhere gets the status.
    fn operator_sees_status(&self) -> bool {
        let mut ask = remoor();
        ask.args(["status", "--manager", &self.api(), "--credentials"]).arg(self.folder("m1/operator.json"));
        ask.bounded_output().status.code() == Some(0)
    }

    /// Runs an attack and returns what it added to the manager's memory, in MB. Status is answered
    /// on the socket and to an operator meanwhile.
    fn attack(&self, attackers: Vec<JoinHandle<()>>) -> u64 {
        let before = memory_mb(&self.m1);
        let (peak, over) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let pid = self.m1.child.id();
        let watch = std::thread::spawn({
            let (peak, over) = (peak.clone(), over.clone());
            move || {
                while !over.load(Ordering::Relaxed) {
                    peak.fetch_max(memory_of(pid), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        let (mut asked, mut answered) = (0, 0);
        loop {
            let over = attackers.iter().all(JoinHandle::is_finished);
            asked += 1;
            answered += usize::from(self.operator_sees_status() && self.m1.ask(&["status"]).status.code() == Some(0));
            if over {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
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

/// An address of this machine for each attacker.
fn address(n: usize) -> IpAddr {
    Ipv4Addr::new(127, 99, (n / 250) as u8, (n % 250) as u8 + 1).into()
}

/// Sends a body in pieces of one byte for as long as the server takes them, then keeps the connection
/// until the server ends it.
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
    drop(rest); // with or without an answer
}

#[test]
fn pieces_of_one_byte_cost_a_manager_no_more_than_their_bytes() {
    let cluster = Cluster::start();
    let added = [(cluster.stranger(), JOIN_PATH), (cluster.worker(), "/raft/append")].map(|(tls, path)| {
        let attacker = |n| cluster.runtime.spawn(send_pieces(cluster.api(), tls.clone(), address(n), path));
        cluster.attack((0..CONNECTIONS).map(attacker).collect())
    });
    assert!(added.iter().all(|mb| *mb < ADDED_MAX), "{added:?} MB");
}
