//! The lines that `remoor play -o json` prints. Fields are only added, never renamed. They are
//! listed in `docs/reference/cli.md`.

use super::recap::Recap;
use remoor_playbook::AttributeChange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the types in this file.
pub const VERSION: u32 = 1;

/// An event of the run: one line of the output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum PlayRunEvent {
    /// All hosts are compiled, and no host was changed yet.
    RunStart {
        playbook: String,
        hosts: Vec<String>,
        check: bool,
        diff: bool,
        forks: usize,
    },
    /// A play begins on its hosts.
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
    Task(PlayTaskView),
    /// A line printed by a command of this task.
    Output {
        host: String,
        i: u32,
        line: String,
    },
    /// The host's run has ended.
    HostEnd {
        host: String,
        state: HostState,
        recap: Recap,
        /// The reason, if the run did not end normally.
        message: Option<String>,
        failure: Option<FailureView>,
        /// Handlers that were notified but did not run. The next run of the playbook runs them.
        owed: Vec<String>,
        took_ms: u64,
    },
    RunEnd(PlaySummary),
}

/// The result of a task, of one of its items, or of a handler: the fields of the executor's event,
/// and the name of the host. A status is text here, because an executor may have more statuses than
/// this version.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlayTaskView {
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub handler: bool,
    /// The task's number in the host's plan.
    pub i: u32,
    /// Number of tasks that the host's run had started, including this one.
    #[serde(default)]
    pub turn: u32,
    pub name: String,
    pub module: String,
    pub item: Option<String>,
    /// `ok`, `changed`, `skipped`, `failed` or `ignored`; in check mode also `would-run` or
    /// `unknown`.
    pub status: String,
    /// Whether a task whose failure was ignored changed something nevertheless.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub changed: bool,
    pub msg: String,
    pub rc: Option<i32>,
    /// The last lines that the task's command printed.
    #[serde(default)]
    pub stdout_tail: String,
    /// The diff of the contents of the file that the task changed; with `--diff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Differences of the file other than its content, such as owner and mode; with `--diff`.
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
    /// The last 20 lines that the failed task's command printed.
    #[serde(default)]
    pub tail: Vec<String>,
}

/// The way in which the run on a host ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    Done,
    /// A task failed.
    Failed,
    /// The connection to the host failed, and nothing was run on it.
    Unreachable,
    /// The host refused, because another run holds its lock or because it is a node of a fleet.
    /// Nothing was run on it.
    Refused,
    /// The run was started, and its end is unknown.
    Unknown,
    /// The run was stopped early, by the user or because a play stopped all hosts.
    Cancelled,
}

/// The result of the whole run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaySummary {
    pub recap: BTreeMap<String, Recap>,
    pub states: BTreeMap<String, HostState>,
    /// Whether the user interrupted the run, for example with Ctrl-C.
    pub interrupted: bool,
    /// The reason why some hosts or plays were not started. None: nothing stopped the run.
    pub stopped: Option<String>,
    pub took_ms: u64,
}

impl PlaySummary {
    /// Whether at least one host ended with this state.
    pub fn any_in_state(&self, state: HostState) -> bool {
        self.states.values().any(|s| *s == state)
    }
}

/// An event with the version, in the format for programs.
#[derive(Debug, Serialize)]
pub struct PlayRunLine<'a> {
    version: u32,
    #[serde(flatten)]
    told: &'a PlayRunEvent,
}

impl PlayRunEvent {
    pub fn line(&self) -> PlayRunLine<'_> {
        PlayRunLine { version: VERSION, told: self }
    }
}
