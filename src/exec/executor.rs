//! One session's state: the fence it holds, and what each order does. Knows no stream and no threads; see `serve`.

use super::cancel::{Cancel, Stop};
use super::clean;
use super::fence::{FenceError, FenceStore};
use super::fetch::Fetcher;
use super::host;
use super::lock::{LockError, Patience, RunLock};
use super::mark;
use super::outbox::Outbox;
use super::runs::{self, RunLog, RunPaths};
use super::serve::Tuning;
use super::wire::{Order, PlayOrder, Reply, RunOrder};
use super::work::Work;
use crate::model::{AttemptId, Exam, Fence, Manifest, NodeName, ServiceName, Sha256, Trees};
use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the session stands, as its exit code will tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    /// A task failed.
    Failed,
    /// A plan was refused before any task, or the manager did not speak the protocol.
    PlanRefused,
    /// The manager was lost before it closed.
    ManagerLost,
    /// An equal or newer run has the node.
    Fenced,
    Cancelled,
}

impl Outcome {
    /// Never 1, 2, 126, 127 or 255, which shells, sudo and ssh use for themselves.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Good => 0,
            Outcome::Failed => 10,
            Outcome::PlanRefused => 11,
            Outcome::ManagerLost => 12,
            Outcome::Fenced => 13,
            Outcome::Cancelled => 14,
        }
    }

    /// How the audit line of a run ends.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Good => "done",
            Outcome::Failed => "failed",
            Outcome::PlanRefused => "refused",
            Outcome::ManagerLost | Outcome::Fenced | Outcome::Cancelled => "stopped",
        }
    }
}

/// The node as this session has it.
struct Held {
    fence: Fence,
    lock: RunLock,
}

pub(super) struct Executor<'a> {
    state_dir: PathBuf,
    tuning: &'a Tuning,
    work: &'a dyn Work,
    cancel: Arc<Cancel>,
    outbox: Outbox,
    fences: FenceStore,
    held: Option<Held>,
    /// By the manifest of the last examination.
    fetcher: Option<Fetcher>,
    /// What the last examination did not send.
    trees: Trees,
    pub outcome: Outcome,
    pub closed: bool,
}

impl<'a> Executor<'a> {
    pub fn new(state_dir: &Path, tuning: &'a Tuning, work: &'a dyn Work, cancel: Arc<Cancel>, outbox: Outbox) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            tuning,
            work,
            cancel,
            outbox,
            fences: FenceStore::new(state_dir),
            held: None,
            fetcher: None,
            trees: Trees::default(),
            outcome: Outcome::Good,
            closed: false,
        }
    }

    /// An attempt was begun here and not closed.
    pub fn holds_the_node(&self) -> bool {
        self.held.is_some()
    }

    /// Carries one order out. The reply is its final one; events of a run go out before it.
    pub fn perform(&mut self, order: Order) -> Reply {
        match order {
            Order::Examine { manifest, digest_key, known } => self.examine(&manifest, &digest_key, known.as_ref()),
            Order::Branches { questions } => match self.trees.answer(&questions) {
                Ok(below) => Reply::Branches { below },
                Err(message) => Reply::Error { message },
            },
            Order::Fence { fence, node, timeout_ms, .. } => self.fence(fence, &node, Duration::from_millis(timeout_ms)),
            Order::Run(run) => self.run(&run),
            Order::Cleaned { fence, units, files, keep } => match self.refusal(&fence) {
                Some(refused) => refused,
                None => Reply::Cleaned { leftovers: clean::leftovers(self.tuning, &units, &files, &keep) },
            },
            Order::Fetch { paths } => self.fetch(&paths),
            Order::Backups => Reply::Backups { attempts: runs::backups(&self.state_dir) },
            Order::Undo { attempt } => self.undo(attempt),
            Order::Close { fence, done } => self.close(&fence, done),
            Order::Play(order) => self.play(&order),
            // The reader has dealt with these.
            Order::Cancel { .. } | Order::Heartbeat | Order::Go { .. } => Reply::Alive { waiting_for: None },
        }
    }

    fn examine(
        &mut self,
        manifest: &Manifest,
        digest_key: &[u8; 32],
        known: Option<&BTreeMap<ServiceName, Sha256>>,
    ) -> Reply {
        let started = Instant::now();
        // First, so that a run which ends meanwhile is not missed.
        let mut host = host::host_part(&self.state_dir);
        // Within an attempt, that is this one's own affair.
        if host.busy.is_none() && self.held.is_none() {
            host.busy = mark::running(&self.state_dir, &manifest.node);
        }
        let found = guarded("examining", || self.work.examine(manifest, digest_key));
        self.fetcher = Fetcher::new(manifest).ok();
        self.trees = Trees::default();
        let found = match found {
            Err(message) => return Reply::Error { message },
            Ok(found) => found,
        };
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let exam = Exam { checks: found.checks, took_ms, ..host };
        let Some(known) = known else { return Reply::Exam(Exam { digest: found.digest, ..exam }) };
        let (services, trees) = Trees::outlined(found.digest, known);
        self.trees = trees;
        Reply::Outlined { exam, services }
    }

    /// First the fence is stored, only then is anybody ended: whoever comes later with an older one is refused already.
    fn fence(&mut self, fence: Fence, node: &NodeName, wait: Duration) -> Reply {
        if self.held.as_ref().is_some_and(|held| held.fence == fence) {
            return Reply::Fenced { ended: None };
        }
        if self.held.is_some() {
            return refused(None, "this session has another attempt; one session, one attempt");
        }
        if let Err(e) = self.fences.advance(&fence) {
            return self.not_fenced(e);
        }
        let deadline = Instant::now() + wait;
        let mut told = Instant::now() - self.tuning.alive_every;
        let (cancel, outbox, every) = (&self.cancel, &self.outbox, self.tuning.alive_every);
        let mut pause = |waiting_for: &str| {
            if told.elapsed() >= every {
                told = Instant::now();
                outbox.send_if_room(&Reply::Alive { waiting_for: Some(waiting_for.to_owned()) });
            }
            if cancel.stopped().is_some() { Patience::GiveUp } else { Patience::Wait }
        };
        let taken = RunLock::take_for_attempt(&self.state_dir, &fence, self.tuning.grace, deadline, &mut pause);
        let (lock, ended) = match taken {
            Ok(taken) => taken,
            Err(e @ (LockError::Io(_) | LockError::Undying(_))) => return Reply::Error { message: chain(&e) },
            Err(e) => return refused(None, &e.to_string()),
        };
        let marked = match mark::end_older(&self.state_dir, node, &fence, self.tuning.grace) {
            Ok(marked) => marked,
            Err(left) => {
                return Reply::Error { message: chain(&LockError::Undying(left.iter().map(|id| id.pid).collect())) };
            }
        };
        let ended = ended.into_iter().chain(marked).reduce(|lock, marked| format!("{lock}; {marked}"));
        // While this one waited, a newer one may have come; it looks for the holder, so it must not be this one.
        match self.fences.current() {
            Ok(Some(now)) if now == fence => {
                self.held = Some(Held { fence, lock });
                Reply::Fenced { ended }
            }
            Ok(newer) => {
                self.outcome = Outcome::Fenced;
                refused(newer, "a newer attempt came meanwhile")
            }
            Err(e) => self.not_fenced(e),
        }
    }

    fn not_fenced(&mut self, error: FenceError) -> Reply {
        match &error {
            FenceError::NotNewer(seen) | FenceError::OtherCluster(seen) => {
                self.outcome = Outcome::Fenced;
                refused(Some(seen.clone()), &error.to_string())
            }
            FenceError::Damaged(..) | FenceError::Io(..) => Reply::Error { message: chain(&error) },
        }
    }

    /// None: this session fenced with exactly this fence, and no newer one has come since.
    fn refusal(&mut self, fence: &Fence) -> Option<Reply> {
        match &self.held {
            Some(held) if held.fence == *fence => {}
            Some(held) => return Some(refused(Some(held.fence.clone()), "this session holds another attempt")),
            None => return Some(refused(None, "this session has not fenced")),
        }
        match self.fences.current() {
            Ok(Some(now)) if now == *fence => None,
            Ok(newer) => {
                self.outcome = Outcome::Fenced;
                Some(refused(newer, "a newer attempt came"))
            }
            Err(e) => Some(self.not_fenced(e)),
        }
    }

    fn run(&mut self, order: &RunOrder) -> Reply {
        if let Some(refused) = self.refusal(&order.fence) {
            return refused;
        }
        if let Some(stop) = self.cancel.stopped() {
            return refused(None, stop.as_str());
        }
        let paths = match RunPaths::prepare(&self.state_dir, &order.fence) {
            Ok(paths) => paths,
            Err(e) => return Reply::Error { message: format!("no place for a backup: {e}") },
        };
        let audit = |what: &str| runs::audit(&self.state_dir, order.phase.as_str(), &order.fence, &order.tags, what);
        if let Err(e) = audit("started") {
            return Reply::Error { message: format!("no audit line could be written: {e}") };
        }
        let mut log = RunLog::open(&self.state_dir, order);
        if let Some(held) = &self.held {
            self.cancel.watch(Some(Box::new(held.lock.recorder())));
        }
        let outbox = &self.outbox;
        let end = guarded("running", || {
            self.work.run(order, &paths, &self.cancel, &mut |event| {
                log.line(&event);
                outbox.send(&Reply::Event { event });
            })
        });
        self.cancel.watch(None);
        let (reply, outcome) = match end {
            Err(message) => (Reply::Error { message }, Outcome::Failed),
            Ok(end) => {
                log.line(end.to_string().as_bytes());
                let outcome = outcome_of(&end, self.cancel.stopped());
                (Reply::RunEnd(end), outcome)
            }
        };
        self.outcome = outcome;
        // The run has happened; that its end could not be noted does not undo it.
        let _disk_full = audit(outcome.word());
        reply
    }

    fn play(&mut self, order: &PlayOrder) -> Reply {
        if self.held.is_some() {
            return refused(None, "this session has an attempt; a play is a session of its own");
        }
        let (reply, outcome) = super::play::play(order, &self.state_dir, self.work, &self.cancel, &self.outbox);
        self.outcome = outcome;
        reply
    }

    fn fetch(&self, paths: &[String]) -> Reply {
        let Some(fetcher) = &self.fetcher else {
            return refused(None, "only after an examination, whose manifest says what is secret");
        };
        match fetcher.fetch(paths) {
            Ok(files) => Reply::Fetched { files },
            Err(message) => Reply::Error { message },
        }
    }

    fn undo(&mut self, attempt: AttemptId) -> Reply {
        let Some(fence) = self.held.as_ref().map(|held| held.fence.clone()) else {
            return refused(None, "this session has not fenced");
        };
        if let Some(refused) = self.refusal(&fence) {
            return refused;
        }
        let Some(backup) = runs::backup_of(&self.state_dir, attempt) else {
            return Reply::Error { message: format!("no backup of attempt {attempt} is left on this node") };
        };
        let tags = [format!("attempt-{attempt}")];
        let audit = |what: &str| runs::audit(&self.state_dir, "undo", &fence, &tags, what);
        if let Err(e) = audit("started") {
            return Reply::Error { message: format!("no audit line could be written: {e}") };
        }
        let (reply, outcome) = match guarded("undoing", || self.work.undo(&backup)) {
            Ok(Ok(restored)) => (Reply::Undone { restored }, Outcome::Good),
            Ok(Err(message)) | Err(message) => (Reply::Error { message }, Outcome::Failed),
        };
        self.outcome = outcome;
        let _disk_full = audit(if outcome == Outcome::Good { "done" } else { "failed" });
        reply
    }

    fn close(&mut self, fence: &Fence, done: bool) -> Reply {
        match &self.held {
            Some(held) if held.fence == *fence => {}
            _ => return refused(None, "this session does not hold that attempt"),
        }
        // Without the note, what a playbook started without systemd is ended by the next attempt, before its cleanup.
        let _best_effort = mark::close(&self.state_dir, fence, done);
        self.held = None;
        self.closed = true;
        if !done && self.outcome == Outcome::Good {
            self.outcome = Outcome::Failed;
        }
        Reply::Closed
    }
}

pub(super) fn outcome_of(end: &serde_json::Value, stopped: Option<Stop>) -> Outcome {
    let has = |key: &str| end.get(key).is_some_and(|value| !value.is_null());
    match stopped {
        Some(Stop::ManagerLost) => Outcome::ManagerLost,
        Some(Stop::Asked | Stop::Killed | Stop::Timeout) => Outcome::Cancelled,
        None if has("refused") => Outcome::PlanRefused,
        None if has("failed") => Outcome::Failed,
        None => Outcome::Good,
    }
}

pub(super) fn refused(holder: Option<Fence>, why: &str) -> Reply {
    Reply::Refused { holder, why: why.to_owned() }
}

/// A panic is a defect, but the manager must still be answered and the lock kept until it closes.
pub(super) fn guarded<T>(doing: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| format!("defect while {doing}: {}", panic_text(&*panic)))
}

/// What a panic said.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
