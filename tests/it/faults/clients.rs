//! Clients that announce maintenance at any manager and read it. Each node is used as a register.
//! Each announcement has a unique length, by which it is recognized. Requests and answers are
//! recorded for the checker.

use super::Rng;
use super::cluster::{Cluster, NODES, name};
use super::linear::{self, Act, Op};
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::view::{HistoryView, OrderView, StatusView};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Number of registers, which are the first nodes. It is small, so that clients conflict.
const KEYS: usize = 3;
const CLIENTS: usize = 6;
/// The length of maintenance per unit of a register's value, in ms. It is larger than the time
/// between two readings of the clock, so that a value can be computed from times.
const UNIT_MS: u64 = 20_000;
/// The first value that is written to a register. The value 0 means no maintenance. A maintenance
/// of this length does not expire during the test.
const FIRST: u64 = 1_000;
const WITHIN: Duration = Duration::from_secs(4);
/// The pause between two requests of a client.
const PAUSE_MS: u64 = 25;

/// An acknowledged write: its register, its value, and the start of the maintenance by the clock of
/// the proposer.
struct Acked {
    key: usize,
    value: u64,
    from: u64,
}

#[derive(Default)]
struct Recorded {
    ops: Vec<(usize, Op)>,
    acked: Vec<Acked>,
    failures: BTreeMap<String, usize>,
}

struct Work {
    begun: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    recorded: Mutex<Recorded>,
}

/// The registers and the writes that may still take effect.
pub struct Registers {
    work: Arc<Work>,
    /// The value of each register at the last read without concurrent clients.
    held: [u64; KEYS],
    /// Unanswered writes of earlier rounds that no read has returned.
    loose: Vec<(usize, Op)>,
    running: Vec<JoinHandle<()>>,
    /// The log index at the start of the round.
    since: u64,
}

/// The numbers of the clients' requests in one round of faults.
#[derive(Debug, Default, Clone, Copy)]
pub struct RoundResult {
    pub writes: usize,
    pub reads: usize,
    pub unknown: usize,
    /// The longest time without an acknowledged write, in ms.
    pub gap_ms: u64,
}

impl Registers {
    pub fn new(cluster: &Cluster) -> Self {
        let work = Work {
            begun: Instant::now(),
            next: AtomicU64::new(FIRST),
            stop: AtomicBool::new(false),
            recorded: Mutex::default(),
        };
        let mut registers =
            Self { work: Arc::new(work), held: [0; KEYS], loose: Vec::new(), running: Vec::new(), since: 0 };
        registers.held = registers.read_registers(cluster);
        registers
    }

    /// Starts the clients.
    pub fn begin(&mut self, cluster: &Cluster, rng: &mut Rng) {
        self.since = cluster.wait_until("a state", |c| c.state(c.leader()?)).applied;
        self.work.stop.store(false, Ordering::SeqCst);
        for client in 0..CLIENTS {
            let managers = (0..NODES).map(|at| Client::unix(cluster.socket(at)).with_timeout(WITHIN)).collect();
            let work = self.work.clone();
            self.running.push(cluster.runtime.spawn(run(client, managers, work, Rng(rng.next()))));
        }
    }

    /// The number of acknowledged writes of this round so far.
    pub fn acknowledged_writes(&self) -> usize {
        self.work.recorded.lock().expect("no holder panics").acked.len()
    }

    /// Stops the clients and waits until they have ended.
    pub fn stop(&mut self, cluster: &Cluster) {
        self.work.stop.store(true, Ordering::SeqCst);
        for running in self.running.drain(..) {
            cluster.runtime.block_on(running).expect("no client panics");
        }
    }

    /// Reads the registers after the clients have stopped, and checks all answers that the clients
    /// received.
    pub fn judge(&mut self, cluster: &Cluster) -> RoundResult {
        let found = self.read_registers(cluster);
        let recorded = std::mem::take(&mut *self.work.recorded.lock().expect("no holder panics"));
        check_journal(cluster, self.since, &recorded.acked);
        let mut ops = std::mem::take(&mut self.loose);
        ops.extend(recorded.ops);
        // The last read of each register happens after all other operations.
        let (asked, answered) = (now(&self.work), Some(now(&self.work)));
        ops.extend((0..KEYS).map(|key| (key, Op { client: CLIENTS, act: Act::Read(found[key]), asked, answered })));
        let tally = tally(&ops);
        for key in 0..KEYS {
            let of: Vec<Op> = ops.iter().filter(|(k, _)| *k == key).map(|(_, op)| *op).collect();
            if let Err(why) = linear::check(self.held[key], &of) {
                panic!(
                    "{}: what the clients saw can't have happened one after the other: {why}\nrefused: {:?}",
                    name(key),
                    recorded.failures
                );
            }
        }
        let seen: HashSet<u64> =
            ops.iter().filter_map(|(_, op)| if let Act::Read(v) = op.act { Some(v) } else { None }).collect();
        let loose = |op: &Op| op.answered.is_none() && matches!(op.act, Act::Write(v) if !seen.contains(&v));
        self.loose = ops.into_iter().filter(|(_, op)| loose(op)).collect();
        self.held = found;
        tally
    }

    fn read_registers(&self, cluster: &Cluster) -> [u64; KEYS] {
        let status = cluster.wait_until("a status", |c| {
            let status: StatusView = c.get(c.leader()?, "/v1/status").ok()?;
            (!status.as_of.stale).then_some(status)
        });
        values(&status)
    }
}

fn now(work: &Work) -> u64 {
    u64::try_from(work.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

async fn run(client: usize, managers: Vec<Client>, work: Arc<Work>, mut rng: Rng) {
    while !work.stop.load(Ordering::SeqCst) {
        let manager = &managers[rng.up_to(NODES)];
        if rng.up_to(10) < 6 {
            write(client, manager, &work, rng.up_to(KEYS)).await;
        } else {
            read(client, manager, &work).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.next() % (2 * PAUSE_MS))).await;
    }
}

async fn write(client: usize, manager: &Client, work: &Work, key: usize) {
    let value = work.next.fetch_add(1, Ordering::SeqCst);
    let body = json!({"for_ms": value * UNIT_MS});
    let asked = now(work);
    let answer = manager.post::<OrderView>(&format!("/v1/nodes/{}/maintenance", name(key)), &body).await;
    let answered = now(work);
    let mut recorded = work.recorded.lock().expect("no holder panics");
    let answered = match answer {
        Ok(view) => {
            let until = view.text.rsplit(' ').next().and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let until = until.unwrap_or_else(|| panic!("no moment: {}", view.text)).as_millisecond() as u64;
            recorded.acked.push(Acked { key, value, from: until - value * UNIT_MS });
            Some(answered)
        }
        // The answer says that nothing was done, so no read may ever return the value.
        Err(error) if is_rejected(&error) => {
            *recorded.failures.entry(error.to_string()).or_default() += 1;
            return;
        }
        Err(error) => {
            *recorded.failures.entry(error.to_string()).or_default() += 1;
            None
        }
    };
    recorded.ops.push((key, Op { client, act: Act::Write(value), asked, answered }));
}

/// Whether the answer promises that nothing was changed (docs/reference/api.md).
fn is_rejected(error: &ApiError) -> bool {
    match error {
        ApiError::Status { code, .. } => !matches!(code.as_str(), "outcome-unknown" | "timeout" | "internal"),
        ApiError::Unreachable { .. } | ApiError::Identity { .. } => true,
        ApiError::Timeout { .. } | ApiError::Protocol { .. } => false,
    }
}

/// Reads all registers at once. A stale answer is ignored, because it promises nothing.
async fn read(client: usize, manager: &Client, work: &Work) {
    let asked = now(work);
    let status = manager.get::<StatusView>("/v1/status").await;
    let answered = Some(now(work));
    let Some(status) = status.ok().filter(|status| !status.as_of.stale) else { return };
    let mut recorded = work.recorded.lock().expect("no holder panics");
    for (key, value) in values(&status).into_iter().enumerate() {
        recorded.ops.push((key, Op { client, act: Act::Read(value), asked, answered }));
    }
}

fn values(status: &StatusView) -> [u64; KEYS] {
    std::array::from_fn(|key| {
        let node = status.nodes.iter().find(|node| node.name == name(key)).expect("a node");
        let length = node.operation.maintenance.as_ref().map_or(0, |m| m.until.0 - m.from.0);
        (length + UNIT_MS / 2) / UNIT_MS
    })
}

/// Checks that every acknowledged write has its own item in the journal.
fn check_journal(cluster: &Cluster, since: u64, acked: &[Acked]) {
    /// Maximum difference between the time that the answer to a write contains and the time of the
    /// resulting log entry. Both times are of one machine's clock.
    const LATER_MS: u64 = 5_000;
    for key in 0..KEYS {
        let path = format!("/v1/history?node={}&limit=1000", name(key));
        let history = cluster.wait_until("a journal", |c| c.get::<HistoryView>(c.leader()?, &path).ok());
        // After a long round, the answer to the history query contains only the thousand newest
        // items.
        let oldest_kept =
            history.items.first().filter(|_| history.items.len() >= 1_000).map_or(0, |oldest| oldest.at.0);
        let items = history.items.iter().filter(|item| item.index > since);
        let mut there: Vec<u64> =
            items.filter(|i| format!("{:?}", i.what).contains("maintenance")).map(|i| i.at.0).collect();
        there.sort_unstable();
        let mut wanted: Vec<(u64, u64)> =
            acked.iter().filter(|a| a.key == key && a.from > oldest_kept).map(|a| (a.from, a.value)).collect();
        wanted.sort_unstable();
        let mut there = there.into_iter().peekable();
        for (from, value) in wanted {
            while there.next_if(|at| *at < from).is_some() {}
            let found = there.next();
            assert!(
                found.is_some_and(|at| at < from + LATER_MS),
                "{}: {value} was acknowledged and is not in the journal",
                name(key)
            );
        }
    }
}

fn tally(ops: &[(usize, Op)]) -> RoundResult {
    let mut tally = RoundResult::default();
    let mut answered: Vec<u64> = Vec::new();
    for (_, op) in ops {
        match (op.act, op.answered) {
            (Act::Write(_), Some(at)) => {
                tally.writes += 1;
                answered.push(at);
            }
            (Act::Write(_), None) => tally.unknown += 1,
            (Act::Read(_), _) => tally.reads += 1,
        }
    }
    answered.sort_unstable();
    tally.gap_ms = answered.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).max().unwrap_or(0);
    tally
}
