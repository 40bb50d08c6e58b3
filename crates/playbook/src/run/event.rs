//! Events of a run and its result. The executor forwards them unchanged.

use crate::plan::Task;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum length in bytes of the message of a reported task, because a registered result may be of
/// any size.
const MSG_MAX: usize = 256 << 10;

/// The text that replaces everything that `no_log` hides.
pub(crate) const HIDDEN: &str = "hidden by no_log";

/// Called with the process id of a command when it begins (true) and when it has ended (false).
/// Each command of a run leads its own process group.
type Watcher = dyn Fn(u32, bool) + Send + Sync;

/// A request to end a run early: after its current task, or at once. All clones share the request.
/// It cannot be withdrawn.
#[derive(Clone, Default)]
pub struct CancelToken {
    stopped: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    children: Option<Arc<Watcher>>,
}

impl CancelToken {
    pub fn new() -> Self {
        Self::default()
    }
    /// Makes a token that calls `children` when a command begins and when it ends.
    pub fn with_watcher(children: impl Fn(u32, bool) + Send + Sync + 'static) -> Self {
        Self { children: Some(Arc::new(children)), ..Self::default() }
    }
    /// Ends the run when the current command has ended or reached its time limit. Pauses end early,
    /// and nothing further is started.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
    /// Kills the current command with its process group. Nothing further is started.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.stop();
    }
    /// Whether `stop` or `cancel` was called, so that nothing further may be started.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
    /// Whether `cancel` was called, so that the current command must be killed.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
    pub(crate) fn report_started(&self, pid: u32) {
        if let Some(watcher) = &self.children {
            watcher(pid, true);
        }
    }
    pub(crate) fn report_ended(&self, pid: u32) {
        if let Some(watcher) = &self.children {
            watcher(pid, false);
        }
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cancel(stopped {}, cancelled {})", self.is_stopped(), self.is_cancelled())
    }
}

/// The phase of a re-setup that a run performs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResetupPhase {
    /// The objects to remove may be absent already. For example, to stop a unit that does not exist
    /// is no failure.
    Cleanup,
    Provision,
    #[default]
    Play,
}

/// Options of the run of a plan.
#[derive(Debug, Clone, Default)]
pub struct PlaybookRunOptions {
    pub run_id: String,
    /// The barrier at which the run waits before each play. If it is set, the run also reports the
    /// end of each play as an event. None: plays run without waiting.
    pub gate: Option<crate::PlayBarrier>,
    /// Names of the handlers that an earlier run left pending.
    pub pending_handlers: Vec<String>,
    /// The run's journal file, which holds the pending handlers. It is read at the start of the
    /// run, and removed when no handler is pending. If the path is empty, the run has no journal
    /// file.
    pub journal: PathBuf,
    /// The backup directory, which gets the state of every path before the run first changes it,
    /// for `undo`.
    pub backup: Option<PathBuf>,
    /// Maximum duration in milliseconds of a task without its own `timeout`; 0: no limit.
    pub task_timeout_ms: u64,
    pub phase: ResetupPhase,
    /// Globs of paths that are never deleted or emptied but moved to `park_dir`.
    pub protect: Vec<String>,
    pub park_dir: PathBuf,
    /// Globs of files whose content is never shown.
    pub secret: Vec<String>,
    /// Whether this is check mode: nothing is changed, and the events report what would change.
    pub check: bool,
    /// The sockets at which systemd is called.
    pub systemd: remoor_host::systemd::SystemdSockets,
    /// The user id of the login user, if sudo has made this process root. Tasks without `become`
    /// run as this user.
    pub login: Option<u32>,
    /// The controller, which runs delegated tasks. None: a delegated task fails.
    pub controller: Option<crate::ControllerLink>,
    /// Starts the tasks that the run does not wait for (`poll: 0`). None: such a task fails.
    pub background: Option<crate::BackgroundStarter>,
    /// The directory in which relative paths are resolved. None: a relative path is an error,
    /// because the run does not know the working directory of Ansible on this machine.
    pub working_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Ok,
    Changed,
    Skipped,
    Failed,
    /// The task failed, but `ignore_errors` is set.
    Ignored,
    /// Check mode: a command that was not run, or a handler that would run.
    WouldRun,
    /// Check mode: the result depends on tasks that were not run.
    Unknown,
}

/// An event of a run. One `Task` or `Handler` event reports one item of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum RunEvent {
    TaskStart {
        i: u32,
        name: String,
        item: Option<String>,
    },
    Task(TaskReport),
    Handler(TaskReport),
    /// A line of a running command, at most 16 KiB long. The number of lines of one task is
    /// limited. One more line reports how many were left out.
    Output {
        i: u32,
        line: String,
    },
    /// A play and its handlers have ended. This event is sent only if `PlaybookRunOptions::gate` is
    /// set.
    PlayEnd {
        play: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The task's number in the plan.
    pub i: u32,
    /// Number of tasks that the run had started, including this one. A task that is included twice
    /// has two numbers, and all items of one task have the same number.
    #[serde(default)]
    pub turn: u32,
    pub name: String,
    pub module: String,
    pub item: Option<String>,
    pub status: Status,
    /// Whether the task changed something although it failed and the failure is ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    pub msg: String,
    pub rc: Option<i32>,
    /// The last lines that the command of the task printed.
    pub stdout_tail: String,
    /// The difference between the old and the new content of a file: a unified diff of at most 256
    /// KiB. For binary and long files it lists sizes and checksums. None for secret files.
    pub diff: Option<String>,
    /// Changes of the file apart from its content: mode, owner, group, type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeChange>,
    /// The file that `diff` describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub took_ms: u64,
}

impl TaskReport {
    /// Makes the report of a task, or of one item of it, without values that only some modules
    /// have. If the task has `no_log`, the message is hidden.
    pub fn for_task(task: &Task, turn: u32, status: Status, msg: impl Into<String>) -> Self {
        let mut msg = msg.into();
        if msg.len() > MSG_MAX {
            let all = msg.len();
            msg.truncate(msg.floor_char_boundary(MSG_MAX));
            msg.push_str(&format!(" [cut: {all} bytes]"));
        }
        Self {
            i: task.id,
            turn,
            name: task.name.clone(),
            module: task.module.clone(),
            item: None,
            status,
            changed: false,
            msg: if task.no_log && !msg.is_empty() { HIDDEN.to_owned() } else { msg },
            rc: None,
            stdout_tail: String::new(),
            diff: None,
            attributes: Vec::new(),
            path: None,
            took_ms: 0,
        }
    }
}

/// A change of one attribute of a file, in the notation that users write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// The attribute: `mode`, `owner`, `group`, `state` or `target`.
    pub name: String,
    pub before: String,
    pub after: String,
}

impl AttributeChange {
    pub fn new(name: &str, before: impl Into<String>, after: impl Into<String>) -> Self {
        Self { name: name.to_owned(), before: before.into(), after: after.into() }
    }
}

impl std::fmt::Display for AttributeChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} -> {}", self.name, self.before, self.after)
    }
}

/// The result of a run of a plan. The whole plan was run if `failure` is None and `cancelled` is
/// false.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    pub ok: u32,
    pub changed: u32,
    pub skipped: u32,
    pub failed: u32,
    /// In check mode: number of items of tasks whose effect is not known.
    #[serde(default)]
    pub unknown: u32,
    /// In check mode: number of commands and handlers that were not run. Each is also counted in
    /// `changed`, `ok` or `unknown`, by its expected status in a real run.
    #[serde(default)]
    pub would_run: u32,
    pub failure: Option<RunFailure>,
    /// Names of the handlers that were notified but not run. Pass them to the next run.
    pub pending_handlers: Vec<String>,
    pub cancelled: bool,
    /// Whether the failed task ends the play for all hosts (`any_errors_fatal`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fatal: bool,
    /// The facts that the plan could read, with their values on the node in this run. With these
    /// values, the manager renders the same texts as the run.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Set if the host is being restarted, and the controller must continue the run with its
    /// checkpoint: the reason why the host is not ready yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebooting: Option<String>,
    /// Set if the run has ended before a play, because the inventory may have changed: everything
    /// with which another run continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// The answer to the host that delegated the task, if the plan was made for a delegated task.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub answer: serde_json::Value,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunFailure {
    pub task: String,
    pub file: String,
    pub line: u32,
    pub rc: Option<i32>,
    pub message: String,
    /// The last 20 lines of the output of the failed command.
    pub tail: Vec<String>,
}

/// Maximum length in bytes of a line of output that is reported.
const LINE_MAX: usize = 16 << 10;
/// Number of last output lines that are kept for `RunFailure::tail`.
const TAIL_LINES: usize = 20;

/// Splits a stream of bytes into lines of limited length and keeps the last lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    open: Vec<u8>,
    cut: bool,
    tail: VecDeque<String>,
}

impl LineSplitter {
    /// Adds bytes and passes each complete line to `emit`.
    pub fn push(&mut self, bytes: &[u8], emit: &mut dyn FnMut(&str)) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            let (body, end) = match part.strip_suffix(b"\n") {
                Some(body) => (body, true),
                None => (part, false),
            };
            let room = LINE_MAX - self.open.len();
            self.open.extend_from_slice(&body[..body.len().min(room)]);
            self.cut |= body.len() > room;
            if end {
                self.finish(emit);
            }
        }
    }

    /// Passes the last line to `emit` if it did not end with a newline.
    pub fn close(&mut self, emit: &mut dyn FnMut(&str)) {
        if !self.open.is_empty() {
            self.finish(emit);
        }
    }

    pub fn tail(&self) -> Vec<String> {
        self.tail.iter().cloned().collect()
    }

    fn finish(&mut self, emit: &mut dyn FnMut(&str)) {
        let mut line = String::from_utf8_lossy(&self.open).into_owned();
        if self.cut {
            line.push_str(" [line cut]");
        }
        emit(&line);
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
        self.open.clear();
        self.cut = false;
    }
}
