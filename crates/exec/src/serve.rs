//! The main loop of the executor: it reads frames and answers them, one order after the other.
//!
//! ```text
//! stdin -> reader thread -> orders (one at a time) -> this thread -> queue -> writer thread -> stdout
//!             |  Heartbeat: answered here                 |
//!             |  Cancel, end of stream: stop  ->  the run checks between two tasks
//!          watchdog thread: 30 s of silence or an order's timeout: stop; after a grace: kill
//! ```
//! A task that has begun may finish after every stop, because it is harder to continue after half a
//! task than after none. Such a task is killed in three cases: the manager sends `Cancel` with
//! `now`; the order's timeout and a grace period are over; or a newer attempt kills this process.
//!
//! A lost manager is noticed in three ways: the stream ends, nothing arrives for 30 s, or a write
//! fails.

use super::cancel::{SessionCancel, Stop};
use super::executor::{Executor, SessionOutcome};
use super::host;
use super::persist;
use super::reply_queue::ReplyQueue;
use super::wire::{ExecutorOrder, Reply, frame};
use super::work::ExecutorWork;
use remoor_host::systemd::SystemdSockets;
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, set_dumpable_behavior, setsid, umask};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

const FLUSH_MAX: Duration = Duration::from_secs(5);
const TICK: Duration = Duration::from_millis(100);

/// Default directory for the lock, fence, backups and logs of the executor.
pub const STATE_DIR: &str = "/var/lib/remoor";

/// Timeouts of an executor, and the location of systemd. The defaults are for nodes; tests use
/// shorter times.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// A manager that sends nothing for this long is lost. Managers send a heartbeat every 10 s.
    pub silence: Duration,
    /// Time between TERM and KILL when an older attempt is killed.
    pub grace: Duration,
    /// Time after an order's timeout until the task that still runs is killed. No task begins after
    /// the timeout.
    pub overtime: Duration,
    /// Interval in which an executor that waits for the node tells the manager that it still waits.
    pub alive_every: Duration,
    /// The sockets on which systemd is queried for the state of units.
    pub systemd: SystemdSockets,
    /// The program `systemctl`, which is used if systemd does not answer on its sockets.
    pub systemctl: PathBuf,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            overtime: Duration::from_secs(10),
            alive_every: Duration::from_secs(5),
            systemd: SystemdSockets::default(),
            systemctl: PathBuf::from("systemctl"),
        }
    }
}

/// `remoor exec -`: starts its own session and process group, sets umask 077 (except for commands
/// of playbooks) and disables core dumps, because secrets pass through this process. Then runs
/// [`serve`] on stdin and stdout.
pub fn main(state_dir: &Path, work: &dyn ExecutorWork) -> ExitCode {
    // This call fails if the process already leads a group, as under sshd. It then needs no new
    // group.
    let _leads_already = setsid();
    umask(Mode::from_raw_mode(0o077));
    let _not_essential = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    serve(std::io::stdin(), std::io::stdout(), state_dir, work)
}

/// Serves one session until the manager closes it or is lost. Blocks. The exit code is that of
/// `SessionOutcome`: 0 done, 10 a task failed, 11 plan refused or protocol error, 12 manager lost,
/// 13 fenced off, 14 cancelled.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    state_dir: &Path,
    work: &dyn ExecutorWork,
) -> ExitCode {
    ExitCode::from(serve_with(input, output, state_dir, work, &Tuning::default()))
}

/// Like [`serve`], with the timeouts of `tuning`. Returns the exit code as a number. Threads that
/// block on `input` or `output` remain until the process ends.
pub fn serve_with(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    state_dir: &Path,
    work: &dyn ExecutorWork,
    tuning: &Tuning,
) -> u8 {
    let cancel = Arc::new(SessionCancel::default());
    let outbox = ReplyQueue::start(output, Arc::clone(&cancel));
    outbox.send(&Reply::Hello(host::hello()));
    let outcome = match persist::private_dir(state_dir) {
        Ok(()) => {
            let watch = Arc::new(SessionWatch::new());
            let orders = start_reader(input, outbox.clone(), Arc::clone(&cancel), Arc::clone(&watch));
            start_watchdog(Arc::downgrade(&watch), Arc::clone(&cancel), tuning);
            let mut executor = Executor::new(state_dir, tuning, work, Arc::clone(&cancel), outbox.clone());
            run_orders(&mut executor, &orders, &watch, &cancel, &outbox)
        }
        Err(e) => {
            let message = format!("state directory {}: {e}", state_dir.display());
            outbox.send(&Reply::Error { message });
            SessionOutcome::PlanRefused
        }
    };
    outbox.flush(FLUSH_MAX);
    outcome.code()
}

enum ReaderItem {
    Order(Box<ExecutorOrder>),
    /// The manager's stream ended between two frames.
    End,
    /// The manager's stream cannot be read further.
    Broken(String),
}

fn run_orders(
    executor: &mut Executor<'_>,
    orders: &Receiver<ReaderItem>,
    watch: &SessionWatch,
    cancel: &SessionCancel,
    outbox: &ReplyQueue,
) -> SessionOutcome {
    loop {
        match orders.recv_timeout(TICK) {
            Ok(ReaderItem::Order(order)) => {
                if let ExecutorOrder::Run(run) = &*order {
                    watch.limit(Duration::from_millis(run.timeout_ms));
                }
                let reply = executor.perform(*order);
                watch.no_limit();
                outbox.send(&reply);
                if executor.closed {
                    return executor.outcome;
                }
            }
            Ok(ReaderItem::Broken(message)) => {
                outbox.send(&Reply::Error { message });
                return SessionOutcome::PlanRefused;
            }
            // A session that has only examined the node may end without `Close`.
            Ok(ReaderItem::End) | Err(RecvTimeoutError::Disconnected) if !executor.holds_the_node() => {
                return executor.outcome;
            }
            Ok(ReaderItem::End) | Err(RecvTimeoutError::Disconnected) => return SessionOutcome::ManagerLost,
            Err(RecvTimeoutError::Timeout) if cancel.stop_reason() == Some(Stop::ManagerLost) && !watch.has_ended() => {
                return SessionOutcome::ManagerLost;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Maximum number of queued orders. The manager sends one order and waits. If the manager sends
/// more orders than this without waiting, the session ends.
const ORDERS_MAX: usize = 4;

fn start_reader(
    mut input: impl Read + Send + 'static,
    outbox: ReplyQueue,
    cancel: Arc<SessionCancel>,
    watch: Arc<SessionWatch>,
) -> Receiver<ReaderItem> {
    let (queue, orders) = mpsc::sync_channel(ORDERS_MAX);
    thread::spawn(move || {
        let last = read_orders(&mut input, &queue, &outbox, &cancel, &watch);
        watch.end();
        // The stop comes before the last item is queued, so that a run in progress stops. After a
        // protocol error the manager is not lost: it receives an error.
        cancel.stop(if matches!(last, ReaderItem::End) { Stop::ManagerLost } else { Stop::Asked });
        // If nothing receives the item any longer, the session is over anyway.
        drop(queue.send(last));
    });
    orders
}

fn read_orders(
    input: &mut impl Read,
    queue: &SyncSender<ReaderItem>,
    outbox: &ReplyQueue,
    cancel: &SessionCancel,
    watch: &SessionWatch,
) -> ReaderItem {
    loop {
        let order = match frame::read(input) {
            Ok(Some(content)) => frame::decode::<ExecutorOrder>(&content),
            Ok(None) => return ReaderItem::End,
            Err(e) => Err(e),
        };
        watch.record_frame();
        match order {
            Ok(ExecutorOrder::Heartbeat) => outbox.send_if_room(&Reply::Alive { waiting_for: None }),
            Ok(ExecutorOrder::Cancel { now: false }) => cancel.stop(Stop::Asked),
            Ok(ExecutorOrder::Cancel { now: true }) => cancel.kill(Stop::Killed),
            Ok(ExecutorOrder::Go { play, lost }) => cancel.gate().open(play, &lost),
            Ok(ExecutorOrder::Answer { id, content }) => cancel.asks().answer(id, content),
            Ok(order) => {
                if queue.try_send(ReaderItem::Order(Box::new(order))).is_err() {
                    return ReaderItem::Broken("the manager sent orders without waiting for the answers".to_owned());
                }
            }
            Err(e) => return ReaderItem::Broken(format!("protocol error: {e}")),
        }
    }
}

/// The time of the last frame from the manager, and the deadline of the current order. Times are in
/// milliseconds since `from`.
struct SessionWatch {
    from: Instant,
    heard: AtomicU64,
    /// The deadline of the current order; `u64::MAX` means no limit.
    limit: AtomicU64,
    ended: AtomicBool,
}

impl SessionWatch {
    fn new() -> Self {
        let (heard, limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { from: Instant::now(), heard, limit, ended: AtomicBool::new(false) }
    }
    fn now(&self) -> u64 {
        u64::try_from(self.from.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
    fn record_frame(&self) {
        self.heard.store(self.now(), Ordering::Relaxed);
    }
    fn silent_for(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.heard.load(Ordering::Relaxed)))
    }
    fn limit(&self, at_most: Duration) {
        let at_most = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        self.limit.store(self.now().saturating_add(at_most), Ordering::Relaxed);
    }
    fn no_limit(&self) {
        self.limit.store(u64::MAX, Ordering::Relaxed);
    }
    /// Whether the order's deadline passed at least `by` ago.
    fn is_past_deadline(&self, by: Duration) -> bool {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.now() > self.limit.load(Ordering::Relaxed).saturating_add(by)
    }
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
    /// Whether the stream has ended. The item that reports the end is in the queue, or about to be
    /// queued.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

fn start_watchdog(watch: Weak<SessionWatch>, cancel: Arc<SessionCancel>, tuning: &Tuning) {
    let (silence, overtime) = (tuning.silence, tuning.overtime);
    thread::spawn(move || {
        // The session holds the only strong reference to the `SessionWatch`. So this thread lives
        // as long as the session, and it still enforces the timeout of a run whose manager is lost.
        while let Some(watch) = watch.upgrade() {
            if watch.silent_for() > silence {
                cancel.stop(Stop::ManagerLost);
            }
            if watch.is_past_deadline(Duration::ZERO) {
                cancel.stop(Stop::Timeout);
            }
            if watch.is_past_deadline(overtime) {
                cancel.kill(Stop::Timeout);
            }
            drop(watch);
            thread::sleep(TICK.min(silence / 4));
        }
    });
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
