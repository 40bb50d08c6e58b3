//! Two versions of the program in one cluster. Three managers and a worker are upgraded from the
//! version that was published last to the present version. The processes are upgraded one after the
//! other, while decisions are made. This test needs neither real hosts nor root.
//!
//! The previous program takes minutes to build, so `make test` builds it only if a format has
//! changed since that version (`formats/types.rs`). `make previous` always builds it. `make
//! long-versions` builds it and runs this test. A built program is kept in the target directory for
//! later runs.

use crate::formats::types;
use crate::local::{Daemon, LONG, PROGRAM, net, program_command, run_successfully, three_managers_of, wait_until};
use remoor_cluster::rpc::client::Client;
use remoor_cluster::rpc::view::{HistoryView, OrderView, RaftStateView};
use remoor_host::disk::DATA_FORMAT;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

const MANAGERS: usize = 3;
/// The pause between two decisions. It limits their number, so that one answer of `remoor history`
/// contains all of them.
const PAUSE: Duration = Duration::from_millis(200);
/// Number of decisions that are made with each mixture of program versions before the next process
/// is upgraded.
const EACH: usize = 10;

/// The program of the previous version. None: it is not needed or can't be built, and the reason
/// was printed in capitals.
fn previous() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tools");
    let (program, (commit, _)) = (tools.join("remoor-previous"), types::previous());
    let built = || {
        let of = fs::read_to_string(tools.join("remoor-previous.commit")).unwrap_or_default();
        program.exists() && of.trim() == commit
    };
    if built() {
        return Some(program);
    }
    let changed = types::changed_formats();
    if changed.is_empty() {
        eprintln!(
            "SKIPPED: TWO VERSIONS IN ONE CLUSTER: no format has changed since {commit}; next: make long-versions"
        );
        return None;
    }
    let some: Vec<&str> = changed.iter().map(String::as_str).take(8).collect();
    eprintln!("{} formats differ from those of {commit}: {} ..", changed.len(), some.join(", "));
    let target = tools.parent().expect("the target directory");
    let made = Command::new("tests/previous.sh")
        .arg(&commit)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", target)
        .status();
    assert!(made.is_ok_and(|status| status.success()), "tests/previous.sh {commit} failed");
    // If the script could not build the program, it has printed the reason in capitals.
    built().then_some(program)
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    since.as_millis() as u64
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Announces maintenance of w1 at each manager in turn, one order at a time. The writer runs until
/// it is ended or dropped.
struct Writer {
    stop: Arc<AtomicBool>,
    /// Whether orders are sent only to the leader. A later version writes forwarded orders in a
    /// form that an earlier version can't read.
    at_leader: Arc<AtomicBool>,
    acked: Arc<Mutex<Vec<Acked>>>,
    running: Option<JoinHandle<()>>,
}

/// An acknowledged decision: the time of the request and the time of the answer.
#[derive(Debug, Clone, Copy)]
struct Acked {
    asked: u64,
    answered: u64,
}

impl Writer {
    fn begin(sockets: Vec<PathBuf>) -> Self {
        let (stop, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let at_leader = Arc::new(AtomicBool::new(false));
        let (ended, noted, alone) = (stop.clone(), acked.clone(), at_leader.clone());
        let running = std::thread::spawn(move || {
            let mut at = 0;
            while !ended.load(Ordering::SeqCst) {
                at = (at + 1) % sockets.len();
                let client = Client::unix(&sockets[at]).with_timeout(Duration::from_secs(4));
                let asks = !alone.load(Ordering::SeqCst) || {
                    let status = wait(client.get::<Value>("/v1/status")).unwrap_or_default();
                    status["as_of"]["leader"] == format!("m{}", at + 1)
                };
                if !asks {
                    continue;
                }
                let asked = wall_ms();
                let order = json!({"for_ms": 3_600_000});
                if wait(client.post::<OrderView>("/v1/nodes/w1/maintenance", &order)).is_ok() {
                    noted
                        .lock()
                        .expect("no thread panics while it holds the lock")
                        .push(Acked { asked, answered: wall_ms() });
                }
                std::thread::sleep(PAUSE);
            }
        });
        Self { stop, at_leader, acked, running: Some(running) }
    }

    fn acknowledged_count(&self) -> usize {
        self.acked.lock().expect("no thread panics while it holds the lock").len()
    }

    /// Waits until [`EACH`] more decisions were acknowledged.
    fn wait_for_decisions(&self, what: &str) {
        let before = self.acknowledged_count();
        wait_until(&format!("decisions while {what}"), || (self.acknowledged_count() >= before + EACH).then_some(()));
    }

    fn end(mut self) -> Vec<Acked> {
        self.stop.store(true, Ordering::SeqCst);
        self.running.take().expect("once").join().expect("the writer does not panic");
        std::mem::take(&mut *self.acked.lock().expect("no thread panics while it holds the lock"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

struct Cluster {
    managers: Vec<Daemon>,
    /// The program of each manager.
    programs: [PathBuf; MANAGERS],
    /// Declared after the daemons, because fields are dropped in the order of their declaration.
    /// When a test fails, a dropped daemon prints its log, which is in this folder.
    dir: tempfile::TempDir,
}

impl Cluster {
    fn home(&self, at: usize) -> PathBuf {
        self.dir.path().join(format!("m{}", at + 1))
    }

    /// Waits until all managers are voters and know the same leader, and until w1 is alive. Returns
    /// the leader.
    fn wait_until_all_alive(&self) -> usize {
        wait_until("all three managers vote, and w1 is alive", || {
            let views: Vec<Value> = self.managers.iter().map(|m| m.json("status")).collect();
            let whole = |view: &Value| {
                let nodes = view["nodes"].as_array().cloned().unwrap_or_default();
                let votes = |n: &&Value| matches!(n["manager"].as_str(), Some("voter" | "leader"));
                let there = nodes.iter().all(|n| n["presence"] == "alive");
                there
                    && nodes.len() == 4
                    && nodes.iter().filter(votes).count() == MANAGERS
                    && view["as_of"]["stale"] == false
            };
            let leader = views[0]["as_of"]["leader"].as_str()?.strip_prefix('m')?.parse::<usize>().ok()?;
            (views.iter().all(whole) && views.iter().all(|v| v["as_of"]["leader"] == views[0]["as_of"]["leader"]))
                .then_some(leader - 1)
        })
    }

    /// Stops a manager as systemd stops a service, and starts it with `program`.
    fn restart(&mut self, at: usize, program: &Path) {
        stop(&mut self.managers[at]);
        self.managers[at] = Daemon::start_program(program, &self.home(at));
        self.programs[at] = program.to_owned();
    }

    /// Makes a manager with `program` the leader. A leader with the other program is stopped until
    /// the other managers have elected a new leader, and is then started again. If it were started
    /// at once, it would be elected again.
    fn make_leader_run(&mut self, program: &Path) {
        /// Maximum number of tries. Several may be needed, because the newly elected manager may
        /// run the other program too.
        const TRIES: usize = 8;
        for _ in 0..TRIES {
            let leader = self.wait_until_all_alive();
            if self.programs[leader] == program {
                return;
            }
            stop(&mut self.managers[leader]);
            let (name, others) = (format!("m{}", leader + 1), (0..MANAGERS).filter(|at| *at != leader));
            let others: Vec<usize> = others.collect();
            wait_until("another manager leads", || {
                let leads = |at: &usize| {
                    let as_of = self.managers[*at].json("status")["as_of"].clone();
                    as_of["stale"] == false && as_of["leader"].is_string() && as_of["leader"] != name.as_str()
                };
                others.iter().any(leads).then_some(())
            });
            self.managers[leader] = Daemon::start_program(&self.programs[leader], &self.home(leader));
        }
        panic!("no manager that runs {} leads", program.display());
    }

    fn state(&self, at: usize) -> Option<RaftStateView> {
        wait(Client::unix(self.home(at).join("s")).get("/v1/raft/state")).ok()
    }
}

fn stop(daemon: &mut Daemon) {
    kill_process(Pid::from_child(&daemon.child), Signal::TERM).expect("it runs");
    let status = wait_until("it ends", || daemon.child.try_wait().expect("a status"));
    assert!(status.success(), "{status:?}");
}

#[test]
fn managers_of_two_versions_work_together_until_all_are_upgraded() {
    let Some(before) = previous() else { return };
    let now = Path::new(PROGRAM);
    let (dir, host) = (tempfile::tempdir().expect("a folder"), net());
    let managers = three_managers_of(&before, dir.path(), host).into();
    let home = dir.path().join("w1");
    let mut join = program_command(&before);
    join.args(["join", &format!("{}:7947", host(1)), "--name", "w1", "--advertise", &host(4).to_string(), "--dir"]);
    run_successfully(join.arg(&home).arg("--token-file").arg(dir.path().join("worker")));
    let mut w1 = Daemon::start_program(&before, &home);
    let programs = std::array::from_fn(|_| before.clone());
    let mut cluster = Cluster { dir, managers, programs };
    cluster.wait_until_all_alive();
    let writer = Writer::begin((0..MANAGERS).map(|at| cluster.home(at).join("s")).collect());
    writer.wait_for_decisions("all run the previous version");

    // The order is that of docs/guides/upgrades.md: workers, followers, the leader.
    stop(&mut w1);
    w1 = Daemon::start(&home);
    let leader = cluster.wait_until_all_alive();
    cluster.restart((leader + 1) % MANAGERS, now);
    cluster.make_leader_run(&before);
    writer.wait_for_decisions("the previous version leads, and the new one follows");
    let second = (0..MANAGERS).find(|at| cluster.programs[*at] == before && *at != cluster.wait_until_all_alive());
    // docs/guides/upgrades.md requires orders to be sent only to the leader. An order in progress
    // ends before the next manager is restarted.
    writer.at_leader.store(true, Ordering::SeqCst);
    writer.wait_for_decisions("orders are sent to the leader");
    cluster.restart(second.expect("one of the two follows"), now);
    cluster.make_leader_run(now);
    writer.wait_for_decisions("the new version leads, and the previous one follows");
    let last = (0..MANAGERS).find(|at| cluster.programs[*at] == before).expect("the last one");
    cluster.restart(last, now);
    cluster.wait_until_all_alive();
    writer.at_leader.store(false, Ordering::SeqCst);
    writer.wait_for_decisions("all run the new version");

    let acked = writer.end();
    wait_until("all have the same state", || {
        let states = (0..MANAGERS).map(|at| cluster.state(at)).collect::<Option<Vec<_>>>()?;
        let same = states.iter().all(|s| (s.applied, s.sha256) == (states[0].applied, states[0].sha256));
        same.then_some(())
    });
    let client = Client::unix(cluster.home(0).join("s")).with_timeout(LONG);
    let history: HistoryView = wait(client.get("/v1/history?node=w1&limit=1000")).expect("a journal");
    assert!(history.items.len() < 1_000, "the history does not fit in one answer");
    let announced = history.items.iter().filter(|item| format!("{:?}", item.what).contains("maintenance announced"));
    let mut there = announced.map(|item| item.at.0).peekable();
    for decision in &acked {
        while there.next_if(|at| *at < decision.asked).is_some() {}
        let found = there.next_if(|at| *at <= decision.answered);
        assert!(found.is_some(), "acknowledged but not in the journal: {decision:?}");
    }
    assert!(acked.len() >= 4 * EACH);
    for at in 0..MANAGERS {
        let bytes = fs::read(cluster.home(at).join("identity.json")).expect("an identity");
        assert_eq!(serde_json::from_slice::<Value>(&bytes).expect("JSON")["version"], DATA_FORMAT);
    }
    assert_eq!(w1.json("status")["node"]["name"], "w1");
}
