//! The executor's loop: frames in, frames out, one order after the other.
//!
//! ```text
//! stdin -> reader thread -> orders (one at a time) -> this thread -> outbox -> writer thread -> stdout
//!             |  Heartbeat: answered here                 |
//!             |  Cancel, end of stream: Cancel::stop  ->  the run looks between two tasks
//!          watchdog thread: 30 s of silence, an order's time over: Cancel::stop; a grace later Cancel::kill
//! ```
//! A task that was begun is let finish, whoever asked for the stop: half a task is harder to go on from than none. It is
//! ended when its manager says so (`Cancel` with `now`), when the order's time and a grace are over, or by the fence of
//! a newer attempt, which ends this whole process.
//!
//! A manager that is lost is noticed in three ways: the stream ends, nothing comes for 30 s, or nothing can be written.

use super::cancel::{Cancel, Stop};
use super::executor::{Executor, Outcome};
use super::host;
use super::outbox::Outbox;
use super::persist;
use super::wire::{Order, Reply, frame};
use super::work::Work;
use crate::systemd::Sockets;
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

/// Where the executor keeps its lock, fence, backups and logs, unless it is told otherwise.
pub const STATE_DIR: &str = "/var/lib/remoor";

/// What an executor waits for, and how long. The defaults are for nodes; tests are less patient.
#[derive(Debug, Clone)]
pub struct Tuning {
    /// A manager that sends nothing for so long is lost. It sends a heartbeat every 10 s.
    pub silence: Duration,
    /// From TERM to KILL when an older attempt is ended.
    pub grace: Duration,
    /// From the end of an order's time, when nothing further is begun, to the end of the task that still runs then.
    pub overtime: Duration,
    /// While it waits for somebody, it says so this often.
    pub alive_every: Duration,
    /// Where systemd is asked for the state of units.
    pub systemd: Sockets,
    /// The program that is asked where systemd does not answer.
    pub systemctl: PathBuf,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(30),
            grace: Duration::from_secs(5),
            overtime: Duration::from_secs(10),
            alive_every: Duration::from_secs(5),
            systemd: Sockets::default(),
            systemctl: PathBuf::from("systemctl"),
        }
    }
}

/// `remoor exec -`: an own session and process group, umask 077 (but for the commands of playbooks), no core dump, then [`serve`] on stdin and stdout.
/// Secrets pass through this process.
pub fn main(state_dir: &Path, work: &dyn Work) -> ExitCode {
    // Already the leader of a group, as under sshd: then that group is its own.
    let _leads_already = setsid();
    umask(Mode::from_raw_mode(0o077));
    let _not_essential = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    serve(std::io::stdin(), std::io::stdout(), state_dir, work)
}

/// Serves one session until the manager closes it or is lost. Blocks; the exit code is that of
/// the session's `Outcome`: 0 done, 10 a task failed, 11 plan refused or protocol error, 12 manager lost, 13 fenced off, 14 cancelled.
pub fn serve(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    state_dir: &Path,
    work: &dyn Work,
) -> ExitCode {
    ExitCode::from(serve_with(input, output, state_dir, work, &Tuning::default()))
}

/// As [`serve`], with other patience; returns the bare exit code. Threads that block on `input` or `output` are left to
/// the end of the process.
pub fn serve_with(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    state_dir: &Path,
    work: &dyn Work,
    tuning: &Tuning,
) -> u8 {
    let cancel = Arc::new(Cancel::default());
    let outbox = Outbox::start(output, Arc::clone(&cancel));
    outbox.send(&Reply::Hello(host::hello()));
    let outcome = match persist::private_dir(state_dir) {
        Ok(()) => {
            let watch = Arc::new(Watch::new());
            let orders = start_reader(input, outbox.clone(), Arc::clone(&cancel), Arc::clone(&watch));
            start_watchdog(Arc::downgrade(&watch), Arc::clone(&cancel), tuning);
            let mut executor = Executor::new(state_dir, tuning, work, Arc::clone(&cancel), outbox.clone());
            obey(&mut executor, &orders, &watch, &cancel, &outbox)
        }
        Err(e) => {
            let message = format!("state directory {}: {e}", state_dir.display());
            outbox.send(&Reply::Error { message });
            Outcome::PlanRefused
        }
    };
    outbox.flush(FLUSH_MAX);
    outcome.code()
}

enum Incoming {
    Order(Box<Order>),
    /// The stream ended between two frames.
    End,
    /// It can't be read further.
    Broken(String),
}

fn obey(
    executor: &mut Executor<'_>,
    orders: &Receiver<Incoming>,
    watch: &Watch,
    cancel: &Cancel,
    outbox: &Outbox,
) -> Outcome {
    loop {
        match orders.recv_timeout(TICK) {
            Ok(Incoming::Order(order)) => {
                if let Order::Run(run) = &*order {
                    watch.limit(Duration::from_millis(run.timeout_ms));
                }
                let reply = executor.perform(*order);
                watch.no_limit();
                outbox.send(&reply);
                if executor.closed {
                    return executor.outcome;
                }
            }
            Ok(Incoming::Broken(message)) => {
                outbox.send(&Reply::Error { message });
                return Outcome::PlanRefused;
            }
            // A session that only examined needs no goodbye.
            Ok(Incoming::End) | Err(RecvTimeoutError::Disconnected) if !executor.holds_the_node() => {
                return executor.outcome;
            }
            Ok(Incoming::End) | Err(RecvTimeoutError::Disconnected) => return Outcome::ManagerLost,
            Err(RecvTimeoutError::Timeout) if cancel.stopped() == Some(Stop::ManagerLost) && !watch.ended() => {
                return Outcome::ManagerLost;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The manager sends one order and waits, so the queue is as long as a manager that does not wait may get ahead before
/// it is cut off.
const ORDERS: usize = 4;

fn start_reader(
    mut input: impl Read + Send + 'static,
    outbox: Outbox,
    cancel: Arc<Cancel>,
    watch: Arc<Watch>,
) -> Receiver<Incoming> {
    let (queue, orders) = mpsc::sync_channel(ORDERS);
    thread::spawn(move || {
        let last = read_orders(&mut input, &queue, &outbox, &cancel, &watch);
        watch.end();
        // Before the word of it, so that a run which is under way stops. A manager that spoke nonsense is not lost:
        // it is told so.
        cancel.stop(if matches!(last, Incoming::End) { Stop::ManagerLost } else { Stop::Asked });
        // Nobody takes it any longer: then the session is over anyway.
        drop(queue.send(last));
    });
    orders
}

fn read_orders(
    input: &mut impl Read,
    queue: &SyncSender<Incoming>,
    outbox: &Outbox,
    cancel: &Cancel,
    watch: &Watch,
) -> Incoming {
    loop {
        let order = match frame::read(input) {
            Ok(Some(content)) => frame::decode::<Order>(&content),
            Ok(None) => return Incoming::End,
            Err(e) => Err(e),
        };
        watch.heard();
        match order {
            Ok(Order::Heartbeat) => outbox.send_if_room(&Reply::Alive { waiting_for: None }),
            Ok(Order::Cancel { now: false }) => cancel.stop(Stop::Asked),
            Ok(Order::Cancel { now: true }) => cancel.kill(Stop::Killed),
            Ok(Order::Go { play, lost }) => cancel.gate().open(play, &lost),
            Ok(order) => {
                if queue.try_send(Incoming::Order(Box::new(order))).is_err() {
                    return Incoming::Broken("orders came faster than they were answered".to_owned());
                }
            }
            Err(e) => return Incoming::Broken(format!("protocol error: {e}")),
        }
    }
}

/// When the manager was last heard, and until when the current order may last. Times in milliseconds since `from`.
struct Watch {
    from: Instant,
    heard: AtomicU64,
    /// `u64::MAX`: no limit.
    limit: AtomicU64,
    ended: AtomicBool,
}

impl Watch {
    fn new() -> Self {
        let (heard, limit) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        Self { from: Instant::now(), heard, limit, ended: AtomicBool::new(false) }
    }
    fn now(&self) -> u64 {
        u64::try_from(self.from.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
    fn heard(&self) {
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
    /// Its time has been over for so long.
    fn is_over(&self, by: Duration) -> bool {
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.now() > self.limit.load(Ordering::Relaxed).saturating_add(by)
    }
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
    /// The stream has ended; its last word is in the queue or about to be.
    fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

fn start_watchdog(watch: Weak<Watch>, cancel: Arc<Cancel>, tuning: &Tuning) {
    let (silence, overtime) = (tuning.silence, tuning.overtime);
    thread::spawn(move || {
        // Whoever serves the session holds the watch: so this lasts as long as the session matters, and goes on to watch
        // the time of a run whose manager is lost.
        while let Some(watch) = watch.upgrade() {
            if watch.silent_for() > silence {
                cancel.stop(Stop::ManagerLost);
            }
            if watch.is_over(Duration::ZERO) {
                cancel.stop(Stop::Timeout);
            }
            if watch.is_over(overtime) {
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
