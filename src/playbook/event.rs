//! What a run says while it goes and when it ends: the executor sends these on as they are.

use super::plan::Task;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest message of a task that is told, in bytes: a result that was registered may be of any size.
const MSG_MAX: usize = 256 << 10;

/// What is told in the place of what `no_log` hides.
pub(super) const HIDDEN: &str = "hidden by no_log";

/// Told of each command of a run that begins (true) or has ended, by its process id; each leads a group of its own.
type Watcher = dyn Fn(u32, bool) + Send + Sync;

/// Asks a run to end early: after its current task, or at once. Clones are the same one; what was asked stays asked.
#[derive(Clone, Default)]
pub struct Cancel {
    stopped: Arc<AtomicBool>,
    cancelled: Arc<AtomicBool>,
    children: Option<Arc<Watcher>>,
}

impl Cancel {
    pub fn new() -> Self {
        Self::default()
    }
    /// With somebody who keeps account of the commands that are running.
    pub fn watched(children: impl Fn(u32, bool) + Send + Sync + 'static) -> Self {
        Self { children: Some(Arc::new(children)), ..Self::default() }
    }
    /// The command in flight goes on to its end, or to its time limit; pauses end; nothing further is begun.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
    /// The command in flight is ended with its whole process group, nothing further is begun.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        self.stop();
    }
    /// Nothing further may be begun.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
    /// What is under way is to end too.
    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }
    pub(super) fn began(&self, pid: u32) {
        if let Some(watcher) = &self.children {
            watcher(pid, true);
        }
    }
    pub(super) fn ended(&self, pid: u32) {
        if let Some(watcher) = &self.children {
            watcher(pid, false);
        }
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cancel(stopped {}, cancelled {})", self.stopped(), self.cancelled())
    }
}

/// Which part of a re-setup a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// What is to be gone may be gone already: stopping a unit that is not there is no failure.
    Cleanup,
    Provision,
    #[default]
    Play,
}

/// How to run a plan.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    pub run_id: String,
    /// Asked before each play; the end of each is an event then. None: one play after the other.
    pub gate: Option<super::Gate>,
    /// Handlers that an earlier run owes.
    pub pending_handlers: Vec<String>,
    /// Where owed handlers are kept while a run goes; read at the start, removed when none is owed.
    pub journal: PathBuf,
    /// Every file is copied here once before its first change, for `undo`.
    pub backup: Option<PathBuf>,
    /// Longest task without a `timeout` of its own; 0: no limit.
    pub task_timeout_ms: u64,
    pub phase: Phase,
    /// Globs of paths that are never deleted or emptied but moved to `park_dir`.
    pub protect: Vec<String>,
    pub park_dir: PathBuf,
    /// Globs of files whose content is never shown.
    pub secret: Vec<String>,
    /// Nothing is changed; the events say what would be.
    pub check: bool,
    /// Where systemd is asked.
    pub systemd: crate::systemd::Sockets,
    /// Where this is root by sudo, the number of the user who logged in: commands of tasks without `become` are theirs.
    pub login: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    Ok,
    Changed,
    Skipped,
    Failed,
    /// Failed, and `ignore_errors` let it pass.
    Ignored,
    /// Check mode: a command that was not run, or a handler that would be.
    WouldRun,
    /// Check mode: it depends on what was not run.
    Unknown,
}

/// Unit: one item of one task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    TaskStart {
        i: u32,
        name: String,
        item: Option<String>,
    },
    Task(Done),
    Handler(Done),
    /// A line of a running command, at most 16 KiB; so many per task, then one that says so.
    Output {
        i: u32,
        line: String,
    },
    /// A play is through, its handlers too; only where there is a gate.
    PlayEnd {
        play: u32,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The task's number in the plan.
    pub i: u32,
    /// How many tasks the run had begun with this one: a task that is included twice has two, its items have one.
    #[serde(default)]
    pub turn: u32,
    pub name: String,
    pub module: String,
    pub item: Option<String>,
    pub status: Status,
    /// Of a failure that was ignored: something was changed all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    pub msg: String,
    pub rc: Option<i32>,
    /// The last lines of what a command printed.
    pub stdout_tail: String,
    /// Of contents: unified, at most 256 KiB; of binary and long ones sizes and sums; None for secrets.
    pub diff: Option<String>,
    /// What else differs of the file: mode, owner, group, what it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeChange>,
    /// The file that `diff` is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub took_ms: u64,
}

impl Done {
    /// Of a task, or one item of it, without anything that a module tells; what is said is hidden by `no_log`.
    pub fn of(task: &Task, turn: u32, status: Status, msg: impl Into<String>) -> Self {
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

/// One attribute of a file, before and after, as people write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// `mode`, `owner`, `group`, `state`, `target`.
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

/// How a run ended. Without a failure and not cancelled: everything was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    pub ok: u32,
    pub changed: u32,
    pub skipped: u32,
    pub failed: u32,
    /// Check mode: of so many items it is not known what they would do.
    #[serde(default)]
    pub unknown: u32,
    /// Check mode: so many commands and handlers were not run. Each is also counted as what it would be (changed, ok,
    /// unknown).
    #[serde(default)]
    pub would_run: u32,
    pub failure: Option<Failure>,
    /// Notified and not run: the next run is to be given these.
    pub pending_handlers: Vec<String>,
    pub cancelled: bool,
    /// It failed by a task that ends the play for all hosts (`any_errors_fatal`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fatal: bool,
    /// Those facts of the node that the plan could read, as this run had them: with them the manager renders the same.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub facts: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub task: String,
    pub file: String,
    pub line: u32,
    pub rc: Option<i32>,
    pub message: String,
    /// The last 20 lines of its output.
    pub tail: Vec<String>,
}

/// Longest line that is passed on, in bytes.
const LINE_MAX: usize = 16 << 10;
/// Lines kept for the tail.
const TAIL_LINES: usize = 20;

/// Cuts a stream of bytes into lines of bounded length and keeps the last of them.
#[derive(Debug, Default)]
pub struct Lines {
    open: Vec<u8>,
    cut: bool,
    tail: VecDeque<String>,
}

impl Lines {
    /// Takes bytes, hands out finished lines.
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

    /// Hands out the last line if it had no end.
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
