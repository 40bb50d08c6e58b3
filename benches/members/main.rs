//! The figures of managers. The first is the time without an answer when the leader dies or leaves.
//! The second is the number of decisions per second, compared with Debian's etcd in the same run.
//! The third is the time in which the thousandth node joins. The managers are real processes on the
//! loopback of this machine. Any user can run the bench with `make bench-members`.
//! `REMOOR_BENCH_ROUNDS` (15) is the number of leader failures, `REMOOR_BENCH_ONLY=failover,writes`
//! selects measurements.

mod etcd;
#[path = "../figures.rs"]
mod figures;
mod joins;
mod load;
#[path = "../../tests/it/local.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod local;
#[path = "../../tests/it/time_limit.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
mod time_limit;

use anyhow::{Context, Result, ensure};
use figures::Figure;
use load::{Http, Load, Request, Target};
use local::{Daemon, net, three_managers, wait_until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const COMMAND: &str = "make bench-members";
const NAMES: [&str; 3] = ["m1", "m2", "m3"];
/// The difference between two successive values of a [`Writer`], in ms.
const UNIT_MS: u64 = 20_000;

fn main() -> Result<()> {
    let rounds: usize = match std::env::var("REMOOR_BENCH_ROUNDS") {
        Ok(text) => text.parse().context("REMOOR_BENCH_ROUNDS is a number")?,
        Err(_) => 15,
    };
    let only = std::env::var("REMOOR_BENCH_ONLY").unwrap_or_default();
    let wanted = |part: &str| only.is_empty() || only.split(',').any(|one| one == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut figures = Vec::new();
    if wanted("failover") {
        figures.push(fail_over(&runtime, rounds)?);
    }
    if wanted("transfer") {
        figures.push(transfer(&runtime, rounds.min(5))?);
    }
    if wanted("writes") {
        figures.extend(writes(&runtime)?);
    }
    if wanted("joins") {
        figures.push(joins::measure_thousandth_join(&runtime)?);
    }
    figures::publish("members", &figures);
    Ok(())
}

struct Managers {
    dir: tempfile::TempDir,
    daemons: [Daemon; 3],
}

impl Managers {
    fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let daemons = three_managers(dir.path(), net());
        let managers = Self { dir, daemons };
        managers.all_vote();
        Ok(managers)
    }

    fn folder(&self, at: usize) -> PathBuf {
        self.dir.path().join(NAMES[at])
    }

    fn target(&self, at: usize) -> Target {
        Target::Unix(self.folder(at).join("s"))
    }

    fn status(&self) -> Option<Value> {
        let status = self.daemons.iter().map(|d| d.json("status")).find(|status| status["as_of"]["stale"] == false);
        status.filter(|status| status["nodes"].is_array())
    }

    fn all_vote(&self) {
        wait_until("three are voters", || {
            let status = self.status()?;
            let votes = |n: &&Value| {
                matches!(n["manager_state"].as_str(), Some("leader" | "voter")) && n["presence"] == "alive"
            };
            (status["nodes"].as_array()?.iter().filter(votes).count() == 3).then_some(())
        });
    }

    fn leader(&self) -> usize {
        wait_until("a leader", || {
            let status = self.status()?;
            NAMES.iter().position(|name| status["as_of"]["leader"] == *name)
        })
    }
}

/// A client that announces a longer maintenance with each write. The writes follow each other and
/// go to any manager that accepts them.
struct Writer {
    targets: Vec<Target>,
    open: Option<Http>,
    at: usize,
    /// The last value that the client tried to write. `acked` is the last value that a manager
    /// acknowledged.
    tried: u64,
    acked: u64,
}

impl Writer {
    fn new(targets: Vec<Target>) -> Self {
        Self { targets, open: None, at: 0, tried: 1_000, acked: 0 }
    }

    /// Writes larger and larger values until a manager acknowledges a value.
    async fn write(&mut self) {
        loop {
            self.tried += 1;
            let body = format!("{{\"for_ms\":{}}}", self.tried * UNIT_MS);
            if self.attempt(&Request::json("POST", "/v1/nodes/m1/maintenance", &body)).await.is_ok() {
                self.acked = self.tried;
                return;
            }
            self.at = (self.at + 1) % self.targets.len();
            self.open = None;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn attempt(&mut self, request: &Request) -> Result<()> {
        let mut http = match self.open.take() {
            Some(http) => http,
            None => Http::connect(&self.targets[self.at]).await?,
        };
        http.ask(request).await?;
        self.open = Some(http);
        Ok(())
    }
}

/// Kills the leader while one client writes. Measures the time until another manager acknowledges
/// the client's next write.
fn fail_over(runtime: &Runtime, rounds: usize) -> Result<Figure> {
    let mut managers = Managers::start()?;
    let (mut took, mut lost) = (Vec::new(), 0);
    let mut tried = 1_000;
    for round in 0..rounds {
        let leader = managers.leader();
        let others = (0..3).filter(|at| *at != leader).map(|at| managers.target(at)).collect();
        let mut writer = Writer { tried, ..Writer::new(others) };
        runtime.block_on(async {
            for _ in 0..50 {
                writer.write().await;
            }
        });
        let acked = writer.acked;
        managers.daemons[leader].kill();
        let killed = Instant::now();
        // After the kill, a value can be acknowledged only when the other managers have elected a
        // new leader.
        runtime.block_on(writer.write());
        took.push(killed.elapsed());
        let held = wait_until("the new leader answers", || register_value(&managers.status()?));
        lost += usize::from(held < acked.max(writer.acked) || held > writer.tried);
        println!("fail-over {}: {} ms, held {held}, acknowledged {}", round + 1, took[round].as_millis(), writer.acked);
        tried = writer.tried;
        let folder = managers.folder(leader);
        managers.daemons[leader] = Daemon::start(&folder);
        managers.all_vote();
    }
    took.sort_unstable();
    let median = took[took.len() / 2];
    let seconds = |d: Duration| d.as_secs_f64();
    Ok(Figure {
        what: "fail-over after kill -9 of the leader, until the next decision is acknowledged",
        wanted: "2 s, none acknowledged is lost",
        found: format!(
            "{:.2} s ({:.2} to {:.2}, {rounds} rounds), {lost} lost",
            seconds(median),
            seconds(took[0]),
            seconds(took[took.len() - 1])
        ),
        met: median <= Duration::from_secs(2) && lost == 0,
        command: COMMAND,
    })
}

/// The value that the client wrote last: the length of the maintenance of m1.
fn register_value(status: &Value) -> Option<u64> {
    let node = status["nodes"].as_array()?.iter().find(|n| n["name"] == "m1")?;
    let (from, until) = (node["maintenance"]["from"].as_u64()?, node["maintenance"]["until"].as_u64()?);
    Some((until - from + UNIT_MS / 2) / UNIT_MS)
}

/// Demotes the leader while one client writes at another manager. Measures the client's longest
/// wait for an acknowledgement.
fn transfer(runtime: &Runtime, rounds: usize) -> Result<Figure> {
    let managers = Managers::start()?;
    let mut gaps = Vec::new();
    for round in 0..rounds {
        let leader = managers.leader();
        let stays = (leader + 1) % 3;
        let target = managers.target(stays);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let writing = runtime.spawn(async move {
            let mut writer = Writer::new(vec![target]);
            let (mut stopped, mut acked) = (stopped, vec![Instant::now()]);
            while stopped.try_recv().is_err() {
                writer.write().await;
                acked.push(Instant::now());
            }
            acked
        });
        std::thread::sleep(Duration::from_secs(2));
        let ordered = Instant::now();
        let out = managers.daemons[stays].ask(&["demote", NAMES[leader], "--no-wait"]);
        ensure!(out.status.success(), "{out:?}");
        wait_until("another manager leads and the old one has left", || {
            let status = managers.status()?;
            let node = status["nodes"].as_array()?.iter().find(|n| n["name"] == NAMES[leader])?;
            (node["manager_state"] == "worker").then_some(())
        });
        std::thread::sleep(Duration::from_secs(1));
        let _ = stop.send(()); // the receiver may have ended
        let acked = runtime.block_on(writing)?;
        let longest = |after: bool| {
            let pairs = acked.windows(2).filter(|pair| (pair[1] >= ordered) == after);
            pairs.map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
        };
        let (before, during) = (longest(false), longest(true));
        println!(
            "transfer {}: longest gap {} ms, before the order {} ms",
            round + 1,
            during.as_millis(),
            before.as_millis()
        );
        gaps.push(during);
        let out = managers.daemons[stays].ask(&["promote", NAMES[leader]]);
        ensure!(out.status.success(), "{out:?}");
        managers.all_vote();
    }
    gaps.sort_unstable();
    let (median, longest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    Ok(Figure {
        what: "leader demoted: longest wait of a client that writes",
        wanted: "100 ms",
        found: format!("{} ms (median {} ms, {rounds} rounds)", longest.as_millis(), median.as_millis()),
        met: longest <= Duration::from_millis(100),
        command: COMMAND,
    })
}

/// Measures the decisions per second at remoor's leader and the puts per second at etcd's leader.
/// Both run alternately on the same disk.
fn writes(runtime: &Runtime) -> Result<Vec<Figure>> {
    const TURNS: usize = 3;
    const LASTS: Duration = Duration::from_secs(5);
    let managers = Managers::start()?;
    let ours = managers.target(managers.leader());
    let order = Request::json("POST", "/v1/nodes/m1/maintenance", "{\"for_ms\":3600000}");
    let beside = measure_etcd(runtime, managers.dir.path())?;
    let mut figures = Vec::new();
    for (clients, what, wanted, times) in [
        (1, "acknowledged decisions, 3 managers, fsync on, 1 client", "not below etcd, p99 not above", 1.0),
        (64, "the same with 64 clients", "1.5 times etcd, p99 not above", 1.5),
    ] {
        let (mut found, mut others) = (Vec::new(), vec![Vec::new(); beside.puts.len()]);
        for turn in 0..TURNS {
            let load = runtime.block_on(load::run(&ours, &order, clients, LASTS))?;
            println!("{clients} clients, turn {}: remoor {load}", turn + 1);
            found.push(load);
            for ((name, put), loads) in beside.puts.iter().zip(&mut others) {
                let load = runtime.block_on(load::run(&beside.leader, put, clients, LASTS))?;
                println!("{clients} clients, turn {}: {name} {load}", turn + 1);
                loads.push(load);
            }
        }
        let found = middle(found);
        let others: Vec<Load> = others.into_iter().map(middle).collect();
        let load_notes = beside.puts.iter().zip(&others).map(|((name, _), load)| format!("; {name} {load}"));
        let against = if others.is_empty() { "; etcd is NOT INSTALLED HERE".to_owned() } else { load_notes.collect() };
        // The comparison uses the faster of etcd's two APIs, even if that API is not enabled by
        // default.
        let best = others.into_iter().max_by(|a, b| a.per_second.total_cmp(&b.per_second));
        let met = best.is_some_and(|best| found.per_second >= times * best.per_second && found.p99 <= best.p99);
        figures.push(Figure { what, wanted, found: format!("{found}{against}"), met, command: COMMAND });
    }
    Ok(figures)
}

fn middle(mut loads: Vec<Load>) -> Load {
    loads.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
    loads[loads.len() / 2]
}

struct EtcdComparison {
    _etcd: Option<etcd::Etcd>,
    leader: Target,
    /// The name of each API of etcd with a put request for it.
    puts: Vec<(&'static str, Request)>,
}

fn measure_etcd(runtime: &Runtime, dir: &Path) -> Result<EtcdComparison> {
    let Some(program) = etcd::Etcd::program() else {
        println!("NOT INSTALLED HERE, LEFT OUT: etcd (Debian's package etcd-server)");
        return Ok(EtcdComparison { _etcd: None, leader: Target::Tcp(0), puts: Vec::new() });
    };
    let etcd = etcd::Etcd::start(&program, dir)?;
    let leader = runtime.block_on(etcd.leader())?;
    // The body is `{"key": "m1", "value": ..}` in base64, with a value of 256 bytes. The older API
    // takes a form.
    let v3 = format!("{{\"key\":\"bTE=\",\"value\":\"{}\"}}", "YWFh".repeat(85));
    let v2 = format!("value={}", "a".repeat(256));
    let puts = vec![
        ("etcd v3", Request::json("POST", "/v3/kv/put", &v3)),
        ("etcd v2", Request::new("PUT", "/v2/keys/m1", "application/x-www-form-urlencoded", &v2)),
    ];
    Ok(EtcdComparison { _etcd: Some(etcd), leader, puts })
}
