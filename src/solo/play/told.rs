//! What a run tells while it goes: the lines of `-o json`, whose fields are only ever added to. `docs/cli.md` lists them.

use super::tally::Recap;
use crate::playbook::AttributeChange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of these types.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Told {
    /// All hosts are compiled; nothing was touched so far.
    RunStart {
        playbook: String,
        hosts: Vec<String>,
        check: bool,
        diff: bool,
        forks: usize,
    },
    /// Its hosts begin with a play.
    PlayStart {
        play: u32,
        name: String,
        hosts: Vec<String>,
    },
    /// A session with the host begins.
    HostStart {
        host: String,
        connection: String,
    },
    TaskStart {
        host: String,
        i: u32,
        name: String,
        item: Option<String>,
    },
    Task(TaskView),
    /// A line that a command of this task printed.
    Output {
        host: String,
        i: u32,
        line: String,
    },
    /// The host's part is over.
    HostEnd {
        host: String,
        state: HostState,
        recap: Recap,
        /// Why, where it is not over as it should be.
        message: Option<String>,
        failure: Option<FailureView>,
        /// Handlers that were notified and did not run; the next run of the playbook runs them.
        owed: Vec<String>,
        took_ms: u64,
    },
    RunEnd(Summary),
}

/// The result of one item of a task, or of a handler: the executor's event, and whose it is. Statuses are words here: an
/// executor may know more of them than this side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskView {
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub handler: bool,
    /// The task's number in the host's plan.
    pub i: u32,
    /// How many tasks the host's run had begun with this one.
    #[serde(default)]
    pub turn: u32,
    pub name: String,
    pub module: String,
    pub item: Option<String>,
    /// `ok`, `changed`, `skipped`, `failed`, `ignored`; of a check also `would-run` and `unknown`.
    pub status: String,
    /// Of an ignored failure: something was changed all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    pub msg: String,
    pub rc: Option<i32>,
    /// The last lines of what a command printed.
    #[serde(default)]
    pub stdout_tail: String,
    /// With `--diff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// With `--diff`: what else of the file differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attributes: Vec<AttributeChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub took_ms: u64,
}

/// The failure that ended a host's run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FailureView {
    pub task: String,
    pub file: String,
    pub line: u32,
    pub rc: Option<i32>,
    pub message: String,
    /// The last 20 lines of its output.
    #[serde(default)]
    pub tail: Vec<String>,
}

/// How a host's part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    Done,
    /// A task failed.
    Failed,
    /// Nothing was run there.
    Unreachable,
    /// The host refused: somebody else holds it, or it is a fleet's. Nothing was run there.
    Refused,
    /// It was begun, and nobody knows how it ended.
    Unknown,
    /// Ended early because it was asked for, here or by the end of a play.
    Cancelled,
}

/// How all of it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub recap: BTreeMap<String, Recap>,
    pub states: BTreeMap<String, HostState>,
    /// By Ctrl-C.
    pub interrupted: bool,
    /// Why the rest was not begun, where that is so.
    pub stopped: Option<String>,
    pub took_ms: u64,
}

impl Summary {
    /// Whether any host ended so.
    pub fn any(&self, state: HostState) -> bool {
        self.states.values().any(|s| *s == state)
    }
}

/// A line as programs read it.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    version: u32,
    #[serde(flatten)]
    told: &'a Told,
}

impl Told {
    pub fn line(&self) -> Line<'_> {
        Line { version: VERSION, told: self }
    }
}
