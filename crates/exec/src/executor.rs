//! State of one session: the fence that it holds, and the execution of each order. Contains no
//! streams and no threads; see `serve`.

use super::ansible_processes;
use super::cancel::{SessionCancel, Stop};
use super::clean;
use super::fence::{FenceError, FenceStore};
use super::fetch::Fetcher;
use super::host;
use super::lock::{LockError, RunLock, WaitDecision};
use super::reply_queue::ReplyQueue;
use super::runs::{self, RunEventLog, RunPaths};
use super::serve::Tuning;
use super::wire::{ExecutorOrder, PlayOrder, Reply, RunOrder};
use super::work::ExecutorWork;
use remoor_model::{
    AttemptId, DigestTrees, Exam, Fence, NodeManifest, NodeName, ServiceName, Sha256, error_with_causes,
};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Result of the session so far; it decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionOutcome {
    Good,
    /// A task failed.
    Failed,
    /// A plan was refused before its first task, or the manager did not follow the protocol.
    PlanRefused,
    /// The connection to the manager was lost before `Close`.
    ManagerLost,
    /// An attempt with an equal or higher fence has taken the node.
    Fenced,
    Cancelled,
}

impl SessionOutcome {
    /// Exit code. Never 1, 2, 126, 127 or 255, because shells, sudo and ssh use these themselves.
    pub fn code(self) -> u8 {
        match self {
            SessionOutcome::Good => 0,
            SessionOutcome::Failed => 10,
            SessionOutcome::PlanRefused => 11,
            SessionOutcome::ManagerLost => 12,
            SessionOutcome::Fenced => 13,
            SessionOutcome::Cancelled => 14,
        }
    }

    /// The last word of a run's audit line, which names the result.
    pub fn audit_word(self) -> &'static str {
        match self {
            SessionOutcome::Good => "done",
            SessionOutcome::Failed => "failed",
            SessionOutcome::PlanRefused => "refused",
            SessionOutcome::ManagerLost | SessionOutcome::Fenced | SessionOutcome::Cancelled => "stopped",
        }
    }
}

/// The attempt for which this session holds the node.
struct HeldNode {
    fence: Fence,
    lock: RunLock,
}

pub(super) struct Executor<'a> {
    state_dir: PathBuf,
    tuning: &'a Tuning,
    work: &'a dyn ExecutorWork,
    cancel: Arc<SessionCancel>,
    outbox: ReplyQueue,
    fences: FenceStore,
    held: Option<HeldNode>,
    /// Built from the manifest of the last examination in this session. None before the first
    /// examination.
    fetcher: Option<Fetcher>,
    /// Digest entries of the last examination that were not sent to the manager.
    trees: DigestTrees,
    pub outcome: SessionOutcome,
    pub closed: bool,
}

impl<'a> Executor<'a> {
    pub fn new(
        state_dir: &Path,
        tuning: &'a Tuning,
        work: &'a dyn ExecutorWork,
        cancel: Arc<SessionCancel>,
        outbox: ReplyQueue,
    ) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            tuning,
            work,
            cancel,
            outbox,
            fences: FenceStore::new(state_dir),
            held: None,
            fetcher: None,
            trees: DigestTrees::default(),
            outcome: SessionOutcome::Good,
            closed: false,
        }
    }

    /// Whether an attempt took the node in this session and was not closed yet.
    pub fn holds_the_node(&self) -> bool {
        self.held.is_some()
    }

    /// Executes one order and returns its final reply. Events of a run are sent before that reply.
    pub fn perform(&mut self, order: ExecutorOrder) -> Reply {
        match order {
            ExecutorOrder::Examine { manifest, digest_key, known } => {
                self.examine(&manifest, &digest_key, known.as_ref())
            }
            ExecutorOrder::Branches { questions } => match self.trees.answer(&questions) {
                Ok(below) => Reply::Branches { below },
                Err(message) => Reply::Error { message },
            },
            ExecutorOrder::Fence { fence, node, timeout_ms, .. } => {
                self.fence(fence, &node, Duration::from_millis(timeout_ms))
            }
            ExecutorOrder::CheckPlan { fence, plan } => self.check_plan(&fence, &plan),
            ExecutorOrder::Run(run) => self.run(&run),
            ExecutorOrder::Cleaned { fence, units, files, keep } => match self.refusal(&fence) {
                Some(refused) => refused,
                None => Reply::Cleaned { leftovers: clean::leftovers(self.tuning, &units, &files, &keep) },
            },
            ExecutorOrder::Fetch { paths } => self.fetch(&paths),
            ExecutorOrder::Backups => Reply::Backups { attempts: runs::backups(&self.state_dir) },
            ExecutorOrder::Undo { attempt } => self.undo(attempt),
            ExecutorOrder::Close { fence, done } => self.close(&fence, done),
            ExecutorOrder::Play(order) => self.play(&order),
            // The reader thread has already handled these orders.
            ExecutorOrder::Cancel { .. }
            | ExecutorOrder::Heartbeat
            | ExecutorOrder::Go { .. }
            | ExecutorOrder::Answer { .. } => Reply::Alive { waiting_for: None },
        }
    }

    fn examine(
        &mut self,
        manifest: &NodeManifest,
        digest_key: &[u8; 32],
        known: Option<&BTreeMap<ServiceName, Sha256>>,
    ) -> Reply {
        let started = Instant::now();
        // The state of the machine is read before the examination, so that the node is reported as
        // busy even if the run of another session ends during the examination.
        let mut host = host::host_part(&self.state_dir);
        // A session that holds the node does not report its own attempt as busy.
        if host.busy.is_none() && self.held.is_none() {
            host.busy = ansible_processes::running_ansible(&self.state_dir, &manifest.node);
        }
        let found = catch_panic("examining", || self.work.examine(manifest, digest_key));
        self.fetcher = Fetcher::new(manifest).ok();
        self.trees = DigestTrees::default();
        let found = match found {
            Err(message) => return Reply::Error { message },
            Ok(found) => found,
        };
        let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let exam = Exam { checks: found.checks, took_ms, ..host };
        let Some(known) = known else { return Reply::Exam(Exam { digest: found.digest, ..exam }) };
        let (services, trees) = DigestTrees::summarize(found.digest, known);
        self.trees = trees;
        Reply::Outlined { exam, services }
    }

    /// Takes the node for an attempt. Stores the fence first and kills older attempts after that,
    /// so that an older attempt that arrives meanwhile is already refused.
    fn fence(&mut self, fence: Fence, node: &NodeName, wait: Duration) -> Reply {
        if self.held.as_ref().is_some_and(|held| held.fence == fence) {
            return Reply::Fenced { ended: None };
        }
        if self.held.is_some() {
            return refusal_reply(None, "this session already holds another attempt");
        }
        if let Err(e) = self.fences.advance(&fence) {
            return self.not_fenced(e);
        }
        let deadline = Instant::now() + wait;
        let mut last_report = Instant::now() - self.tuning.alive_every;
        let (cancel, outbox, every) = (&self.cancel, &self.outbox, self.tuning.alive_every);
        let mut pause = |waiting_for: &str| {
            if last_report.elapsed() >= every {
                last_report = Instant::now();
                outbox.send_if_room(&Reply::Alive { waiting_for: Some(waiting_for.to_owned()) });
            }
            if cancel.stop_reason().is_some() { WaitDecision::GiveUp } else { WaitDecision::Wait }
        };
        let taken = RunLock::take_for_attempt(&self.state_dir, &fence, self.tuning.grace, deadline, &mut pause);
        let (lock, ended) = match taken {
            Ok(taken) => taken,
            Err(e @ (LockError::Io(_) | LockError::Undying(_))) => {
                return Reply::Error { message: error_with_causes(&e) };
            }
            Err(e) => return refusal_reply(None, &e.to_string()),
        };
        let marked = match ansible_processes::kill_older(&self.state_dir, node, &fence, self.tuning.grace) {
            Ok(marked) => marked,
            Err(left) => {
                return Reply::Error {
                    message: error_with_causes(&LockError::Undying(left.iter().map(|id| id.pid).collect())),
                };
            }
        };
        let ended = ended.into_iter().chain(marked).reduce(|lock, marked| format!("{lock}; {marked}"));
        // A newer attempt may have stored its fence while this attempt waited. The newer attempt
        // ends the holder of the lock, so this session must not become that holder.
        match self.fences.current() {
            Ok(Some(now)) if now == fence => {
                self.held = Some(HeldNode { fence, lock });
                Reply::Fenced { ended }
            }
            Ok(newer) => {
                self.outcome = SessionOutcome::Fenced;
                refusal_reply(newer, "a newer attempt took the node meanwhile")
            }
            Err(e) => self.not_fenced(e),
        }
    }

    fn not_fenced(&mut self, error: FenceError) -> Reply {
        match &error {
            FenceError::NotNewer(seen) | FenceError::OtherCluster(seen) => {
                self.outcome = SessionOutcome::Fenced;
                refusal_reply(Some(seen.clone()), &error.to_string())
            }
            FenceError::Damaged(..) | FenceError::Io(..) => Reply::Error { message: error_with_causes(&error) },
        }
    }

    /// The reason why an order with `fence` must be refused. None if this session holds exactly
    /// this fence, and no newer fence has been stored since.
    fn refusal(&mut self, fence: &Fence) -> Option<Reply> {
        match &self.held {
            Some(held) if held.fence == *fence => {}
            Some(held) => return Some(refusal_reply(Some(held.fence.clone()), "this session holds another attempt")),
            None => return Some(refusal_reply(None, "this session does not hold the node")),
        }
        match self.fences.current() {
            Ok(Some(now)) if now == *fence => None,
            Ok(newer) => {
                self.outcome = SessionOutcome::Fenced;
                Some(refusal_reply(newer, "a newer attempt took the node"))
            }
            Err(e) => Some(self.not_fenced(e)),
        }
    }

    fn check_plan(&mut self, fence: &Fence, plan: &[u8]) -> Reply {
        if let Some(refused) = self.refusal(fence) {
            return refused;
        }
        match catch_panic("checking a plan", || self.work.check_plan(plan, &self.cancel)) {
            Ok(refused) => {
                if refused.is_some() {
                    self.outcome = SessionOutcome::PlanRefused;
                }
                Reply::PlanChecked { refused }
            }
            Err(message) => Reply::Error { message },
        }
    }

    fn run(&mut self, order: &RunOrder) -> Reply {
        if let Some(refused) = self.refusal(&order.fence) {
            return refused;
        }
        if let Some(stop) = self.cancel.stop_reason() {
            return refusal_reply(None, stop.as_str());
        }
        let paths = match RunPaths::prepare(&self.state_dir, &order.fence) {
            Ok(paths) => paths,
            Err(e) => return Reply::Error { message: format!("the backup directory could not be made: {e}") },
        };
        let audit = |what: &str| runs::audit(&self.state_dir, order.phase.as_str(), &order.fence, &order.tags, what);
        if let Err(e) = audit("started") {
            return Reply::Error { message: format!("the audit line could not be written: {e}") };
        }
        let mut log = RunEventLog::open(&self.state_dir, order);
        if let Some(held) = &self.held {
            self.cancel.watch(Some(Box::new(held.lock.recorder())));
        }
        let outbox = &self.outbox;
        let end = catch_panic("running", || {
            self.work.run(order, &paths, &self.cancel, &mut |event| {
                log.write_line(&event);
                outbox.send(&Reply::Event { event });
            })
        });
        self.cancel.watch(None);
        let (reply, outcome) = match end {
            Err(message) => (Reply::Error { message }, SessionOutcome::Failed),
            Ok(end) => {
                log.write_line(end.to_string().as_bytes());
                let outcome = outcome_of(&end, self.cancel.stop_reason());
                (Reply::RunEnd(end), outcome)
            }
        };
        self.outcome = outcome;
        // The run is already over, so a failure to write its end to the audit log changes nothing.
        let _disk_full = audit(outcome.audit_word());
        reply
    }

    fn play(&mut self, order: &PlayOrder) -> Reply {
        if self.held.is_some() {
            return refusal_reply(None, "this session holds an attempt; a play needs its own session");
        }
        let (reply, outcome) = super::play::play(order, &self.state_dir, self.work, &self.cancel, &self.outbox);
        self.outcome = outcome;
        reply
    }

    fn fetch(&self, paths: &[String]) -> Reply {
        let Some(fetcher) = &self.fetcher else {
            return refusal_reply(None, "examine the node first; its manifest says which files are secret");
        };
        match fetcher.fetch(paths) {
            Ok(files) => Reply::Fetched { files },
            Err(message) => Reply::Error { message },
        }
    }

    fn undo(&mut self, attempt: AttemptId) -> Reply {
        let Some(fence) = self.held.as_ref().map(|held| held.fence.clone()) else {
            return refusal_reply(None, "this session does not hold the node");
        };
        if let Some(refused) = self.refusal(&fence) {
            return refused;
        }
        let Some(backup) = runs::find_backup(&self.state_dir, attempt) else {
            return Reply::Error { message: format!("this node has no backup of attempt {attempt} any more") };
        };
        let tags = [format!("attempt-{attempt}")];
        let audit = |what: &str| runs::audit(&self.state_dir, "undo", &fence, &tags, what);
        if let Err(e) = audit("started") {
            return Reply::Error { message: format!("the audit line could not be written: {e}") };
        }
        let (reply, outcome) = match catch_panic("undoing", || self.work.undo(&backup)) {
            Ok(Ok(restored)) => (Reply::Undone { restored }, SessionOutcome::Good),
            Ok(Err(message)) | Err(message) => (Reply::Error { message }, SessionOutcome::Failed),
        };
        self.outcome = outcome;
        let _disk_full = audit(if outcome == SessionOutcome::Good { "done" } else { "failed" });
        reply
    }

    fn close(&mut self, fence: &Fence, done: bool) -> Reply {
        match &self.held {
            Some(held) if held.fence == *fence => {}
            _ => return refusal_reply(None, "this session does not hold that attempt"),
        }
        // If the end of the attempt is not recorded, the next attempt also kills the daemons that
        // the playbook started without systemd. The next attempt kills them before its cleanup.
        let _best_effort = ansible_processes::close(&self.state_dir, fence, done);
        self.held = None;
        self.closed = true;
        if !done && self.outcome == SessionOutcome::Good {
            self.outcome = SessionOutcome::Failed;
        }
        Reply::Closed
    }
}

pub(super) fn outcome_of(end: &serde_json::Value, stopped: Option<Stop>) -> SessionOutcome {
    let has = |key: &str| end.get(key).is_some_and(|value| !value.is_null());
    match stopped {
        Some(Stop::ManagerLost) => SessionOutcome::ManagerLost,
        Some(Stop::Asked | Stop::Killed | Stop::Timeout) => SessionOutcome::Cancelled,
        None if has("refused") => SessionOutcome::PlanRefused,
        None if has("failed") => SessionOutcome::Failed,
        None => SessionOutcome::Good,
    }
}

pub(super) fn refusal_reply(holder: Option<Fence>, why: &str) -> Reply {
    Reply::Refused { holder, why: why.to_owned() }
}

/// Catches a panic of `work`. A panic is a defect, but the manager must still receive an answer,
/// and the lock must stay held until the manager closes the session.
pub(super) fn catch_panic<T>(doing: &str, work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| format!("defect while {doing}: {}", panic_text(&*panic)))
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
