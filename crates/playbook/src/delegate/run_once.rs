//! Tasks that one host runs for all hosts of its batch (`run_once`).
//!
//! ```text
//! run on host A ──Turn──> controller ──Run───> run on host A runs the task
//! run on host B ──Turn──> controller waits
//!                         controller <─Result─ run on host A
//! run on host B <─Known── controller
//! ```
//! The controller chooses the host. The result is data on the other hosts. It can set only what the
//! task could set on that host, because the host that ran the task may be compromised.

use super::{ControllerLink, Request};
use crate::plan::{Plan, Play, Task};
use crate::run::event::{HIDDEN, RunFailure};
use crate::run::{Flow, Run, RunStopped};
use crate::vars::protected_names::is_protected_name;
use crate::vars::unknown;
use crate::vars::var_map::has_markup;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The answer of the controller to a run that asks for its turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnceAnswer {
    /// This run runs the task, and sends the result.
    Run,
    /// Another host has run the task.
    Known { host: String, content: Value },
    /// The run ends.
    Stopped,
}

impl OnceAnswer {
    /// The answer in the form of messages.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// What the hosts that did not run the task need to know of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct OnceResult {
    /// The registered result.
    pub result: Value,
    /// The facts that the task has set: the host if it is not the own one, the name and the value.
    pub facts: Vec<(Option<String>, String, Value)>,
    /// The files of `include_vars`, as the task names them, each with the option `name`.
    pub included: Vec<(String, Option<String>)>,
    /// Whether the task failed, and the failure is not ignored.
    pub failed: bool,
}

impl OnceResult {
    fn into_message(self) -> Value {
        let mut message = serde_json::to_value(self).unwrap_or_default();
        unknown::to_wire(&mut message);
        message
    }

    fn from_message(mut message: Value) -> Result<Self, String> {
        unknown::from_wire(&mut message);
        serde_json::from_value(message).map_err(|e| format!("the result of a `run_once` task is not readable: {e}"))
    }
}

/// Whether a task may set this variable: `set_fact` those that it names, a module that gathers
/// facts those that the inventory does not have.
fn may_set(plan: &Plan, task: &Task, name: &str) -> bool {
    if task.module == "set_fact" {
        return task.args.keys().any(|key| key == name || has_markup(key));
    }
    let of_inventory = plan.vars.contains_key(name) || plan.shared.contains_key(name);
    plan.sets_facts(task) && !is_protected_name(name) && !of_inventory
}

impl<'a> Run<'a, '_> {
    /// Runs a task for all hosts of the batch, or waits for the result of the host that does.
    pub(crate) fn run_once(&mut self, play: &'a Play, task: &'a Task, handler: bool) -> Flow {
        let Some(link) = self.options.controller.clone() else { return self.task(play, task, handler) };
        if self.place.is_resuming() {
            return self.run_for_all(play, task, handler, &link);
        }
        let answer = link.ask(&Request::Turn(task.id)).and_then(|answer| {
            serde_json::from_slice(&answer).map_err(|e| format!("the answer of the controller is not readable: {e}"))
        });
        let taken = match answer {
            Ok(OnceAnswer::Run) => return self.run_for_all(play, task, handler, &link),
            Ok(OnceAnswer::Stopped) => {
                self.cancel.stop();
                return Err(RunStopped);
            }
            Ok(OnceAnswer::Known { host, content }) => OnceResult::from_message(content).map(|known| (host, known)),
            Err(why) => Err(why),
        };
        if self.cancel.is_stopped() {
            return Err(RunStopped);
        }
        match taken {
            Ok((host, known)) => self.take_result(task, &host, known),
            Err(why) => {
                self.turn += 1;
                self.fail_task(task, task.place.line, &why, handler)
            }
        }
    }

    fn run_for_all(&mut self, play: &'a Play, task: &'a Task, handler: bool, link: &ControllerLink) -> Flow {
        self.others.once = Some(OnceResult::default());
        let flow = self.task(play, task, handler);
        let mut result = self.others.once.take().unwrap_or_default();
        if flow.is_err() && self.cancel.is_stopped() {
            return flow;
        }
        if flow.is_err() {
            result.failed = true;
            result.result = self.last_failed.as_ref().map(|(_, result)| result.clone()).unwrap_or_default();
        }
        let sent = link.ask(&Request::Result { task: task.id, content: result.into_message() });
        let refused =
            sent.and_then(|answer| serde_json::from_slice::<Option<String>>(&answer).map_err(|e| e.to_string()));
        match refused.and_then(|why| why.map_or(Ok(()), Err)) {
            Err(why) if flow.is_ok() && !self.cancel.is_stopped() => {
                let why = format!("the other hosts cannot get the result of this task: {why}");
                self.fail_task(task, task.place.line, &why, handler)
            }
            _ => flow,
        }
    }

    /// Continues as if this host had run the task, without reporting it again.
    fn take_result(&mut self, task: &'a Task, host: &str, known: OnceResult) -> Flow {
        let OnceResult { result, facts, included, failed } = known;
        let plan = self.frame.plan();
        // The host may be compromised, so its result sets only what this task can set.
        let own = task.args.get("name").and_then(Value::as_str);
        let of_others = task.hosts.delegation.as_ref().is_some_and(|delegation| delegation.facts);
        for (of, name, value) in &facts {
            let of = of.as_deref().filter(|of| *of != plan.host);
            if may_set(plan, task, name) && (of.is_none() || of_others) {
                self.learn(task, of, name, value);
            }
        }
        for (file, name) in included.iter().filter(|(_, name)| own.is_some_and(has_markup) || name.as_deref() == own) {
            if let Some(layer) = task.files.vars_files.get(file) {
                self.frame.include(*layer, name.as_deref());
            }
        }
        if let Some(name) = &task.register {
            self.frame.set(name, &result);
        }
        if !failed {
            return Ok(());
        }
        let said = result["msg"].as_str().filter(|_| !task.no_log).unwrap_or(HIDDEN);
        let why = format!("the task ran once, on {host}, and failed there: {said}");
        self.last_failed = Some((task, result));
        self.end.failure = Some(RunFailure {
            task: task.name.clone(),
            file: task.place.file.clone(),
            line: task.place.line,
            message: why.clone(),
            ..RunFailure::default()
        });
        self.others.failure = Some(why);
        Err(RunStopped)
    }
}
