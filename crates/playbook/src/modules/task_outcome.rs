//! The result of a module.

use crate::delegate;
use crate::os::process::Finished;
use crate::run::event::AttributeChange;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The result of one execution of a task.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOutcome {
    pub changed: bool,
    pub failed: bool,
    pub skipped: bool,
    /// Whether check mode cannot predict the effect of the task.
    pub unknown: bool,
    /// Whether the task would have run a command, which check mode did not run.
    pub would_run: bool,
    pub msg: String,
    pub rc: Option<i32>,
    /// Exit status and output of a command, if the module ran one.
    pub output: Option<Finished>,
    /// Whether the registered result keeps the trailing newlines of the output.
    pub keep_trailing_newlines: bool,
    pub diff: Option<String>,
    /// The path of the file in `diff`. None: the key `path` of the result has it.
    pub diff_path: Option<String>,
    pub attributes: Vec<AttributeChange>,
    /// Variables that the module sets for the host without `register`, by name.
    pub facts: Map<String, Value>,
    /// Additional keys of the registered result.
    pub extra_keys: Map<String, Value>,
    /// Whether the registered result gets no `msg` if the module returned none.
    pub keeps_msg_out: bool,
    /// Whether the task failed before its module ran, because an option could not be evaluated. No
    /// condition judges such a result.
    pub unevaluable: bool,
}

impl TaskOutcome {
    /// The outcome of a task that had nothing to change.
    pub fn ok(msg: impl Into<String>) -> Self {
        Self { msg: msg.into(), ..Self::default() }
    }
    /// The outcome of a task that changed the node, or would change it in a real run.
    pub fn change(msg: impl Into<String>) -> Self {
        Self { changed: true, msg: msg.into(), ..Self::default() }
    }
    /// The path of the file that the diff is about.
    pub fn path(&self) -> Option<String> {
        self.diff_path.clone().or_else(|| self.extra_keys.get("path")?.as_str().map(str::to_owned))
    }

    /// The outcome with exactly these keys in the registered result, in addition to `changed` and
    /// `failed`. `keys` is a map.
    pub fn with_result(self, keys: Value) -> Self {
        let extra_keys = keys.as_object().cloned().unwrap_or_default();
        Self { diff_path: self.path(), extra_keys, msg: String::new(), keeps_msg_out: true, ..self }
    }

    /// The outcome of a task with an option that cannot be evaluated.
    pub fn unevaluable(msg: String) -> Self {
        Self { failed: true, unevaluable: true, msg, ..Self::default() }
    }

    /// The outcome of a task whose effect check mode cannot predict. `msg` is the reason.
    pub fn indeterminate(msg: impl Into<String>) -> Self {
        Self { unknown: true, msg: msg.into(), ..Self::default() }
    }

    /// The registered result of a module, before the conditions of the task judge it.
    pub(crate) fn registered_result(&self, module: &str) -> Map<String, Value> {
        let mut result = Map::from_iter(self.extra_keys.clone());
        // It is not known whether an interrupted command changed something. Ansible reports no
        // change.
        let whole = self.output.as_ref().is_none_or(|o| !o.timed_out && !o.cancelled);
        result.insert("changed".into(), json!(self.changed && whole));
        result.entry("failed").or_insert(json!(self.failed));
        if !(self.keeps_msg_out && self.msg.is_empty()) {
            result.entry("msg").or_insert(json!(self.msg));
        }
        if self.skipped {
            result.insert("skipped".into(), json!(true));
        }
        if let Some(rc) = self.rc {
            result.insert("rc".into(), json!(rc));
        }
        if self.would_run {
            result.insert("skipped".into(), json!(false));
        } else if self.output.is_some() || matches!(module, "command" | "shell") && !delegate::is_started(self) {
            let (stdout, stderr) =
                self.output.as_ref().map(|o| (o.stdout.as_str(), o.stderr.as_str())).unwrap_or_default();
            for (name, text) in [("stdout", stdout), ("stderr", stderr)] {
                let text = if self.keep_trailing_newlines { text } else { text.trim_end_matches(['\r', '\n']) };
                result.insert(name.into(), json!(text));
                result.insert(format!("{name}_lines"), json!(text.lines().collect::<Vec<_>>()));
            }
        }
        if !self.facts.is_empty() {
            result.insert("ansible_facts".into(), json!(self.facts));
        }
        result
    }
}

/// The result of a module. The error is the message of the failed task.
pub type ModuleResult = Result<TaskOutcome, String>;
