//! Dynamic includes: task files and roles that are selected on the node, and files of variables.
//!
//! Only files and roles in the plan can be selected. In check mode, an include that depends on
//! tasks that were not run is not opened.

use crate::compile;
use crate::modules::{ModuleResult, TaskOutcome};
use crate::plan::{self, Choices, PlanStep, Play, RejectedChoices, Task};
use crate::run::checkpoint::{IncludePosition, Position};
use crate::run::event::{Status, TaskReport};
use crate::run::task::{hide_no_log, title};
use crate::run::{Flow, Run};
use crate::template::expr;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::unknown;
use crate::vars::variable_scope;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum nesting depth of includes.
const INCLUDES_MAX: usize = 30;

/// What an include selects for one item of its loop.
pub(crate) enum Chosen<'a> {
    /// The steps to run, with the name that they have in `choices`.
    Steps(String, &'a [PlanStep]),
    Skipped,
    Unknown(&'static str),
}

impl<'a> Run<'a, '_> {
    /// Runs an include. Each item of its loop is a task of its own. As in Ansible, all items are
    /// selected before the first included task runs.
    pub(crate) fn include(
        &mut self,
        play: &'a Play,
        task: &'a Task,
        (choices, refused): (&'a Choices, &RejectedChoices),
        handler: bool,
    ) -> Flow {
        let resumed = self.take_resumed(|position| match position {
            Position::Include(include) => Some(include),
            _ => None,
        })?;
        if let Some(include) = resumed {
            return self.include_rounds(play, task, choices, include, handler);
        }
        self.turn += 1;
        if self.place.include_depth() >= INCLUDES_MAX {
            return self.fail_task(task, task.place.line, "includes are nested too deeply", handler);
        }
        let read = self.read_of_others(task);
        self.fail_unless(read, "receiving the variables of other hosts")?;
        let scope = self.frame.scope(play, task);
        let skips = || matches!(unknown::all_hold(&scope, &task.when), Ok(Some(false)));
        let items = match &task.repeat {
            None => Vec::new(),
            Some(repeat) => match with_trace(|| variable_scope::items(&scope, repeat)) {
                (_, trace) if trace.unknown && !skips() => {
                    self.include_unknown(task, choices, "its loop depends on tasks that were not run", handler);
                    return Ok(());
                }
                (Ok(items), trace) if !trace.unknown => items,
                (Ok(_), _) => Vec::new(),
                (Err(_), _) if skips() => Vec::new(),
                (Err(message), _) => {
                    let why = format!("loop: {message}");
                    return self.not_opened(task, &scope, None, (task.place.line, &why), handler);
                }
            },
        };
        if task.repeat.is_some() && items.is_empty() {
            self.report_skipped(task, &scope, None, handler);
            return Ok(());
        }
        let layer = |index| task.repeat.as_ref().map(|repeat| variable_scope::item_layer(repeat, &items, index));
        let mut rounds = Vec::new();
        for index in 0..items.len().max(1) {
            if let Some(pause) = task.repeat.as_ref().and_then(|r| r.pause.as_ref()).filter(|_| index > 0) {
                self.pause(&scope, pause);
            }
            let inner = layer(index).map_or_else(|| scope.clone(), |layer| scope.with_layer(layer));
            let looped = task.repeat.as_ref().zip(items.get(index));
            let item = looped.map(|(repeat, item)| variable_scope::label(&inner, repeat, item).0);
            match choose_steps(task, &inner, choices, refused) {
                Ok(Chosen::Steps(name, _)) => {
                    self.end.ok += 1;
                    let told = TaskReport::for_task(task, self.turn, Status::Ok, name.clone());
                    self.send_event(
                        TaskReport { name: title(task, &inner), item: hide_no_log(task, item), ..told },
                        handler,
                    );
                    rounds.push((index, Ok(name)));
                }
                Ok(Chosen::Skipped) => self.report_skipped(task, &inner, item, handler),
                Ok(Chosen::Unknown(why)) => rounds.push((index, Err(why.to_owned()))),
                Err((line, message)) => self.not_opened(task, &inner, item, (line, &message), handler)?,
            }
            let breaks = task.repeat.as_ref().map(|repeat| repeat.break_when.as_slice()).unwrap_or_default();
            match unknown::all_hold(&inner, breaks) {
                Ok(Some(true)) if !breaks.is_empty() => break,
                Ok(_) => {}
                Err((line, e)) => {
                    let why = format!("break_when: {}", expr::explain(&e));
                    return self.not_opened(task, &inner, None, (line, &why), handler);
                }
            }
        }
        self.include_rounds(play, task, choices, IncludePosition { items, rounds, at: 0 }, handler)
    }

    /// Runs the selected targets of an include, from the round `include.at` on.
    fn include_rounds(
        &mut self,
        play: &'a Play,
        task: &'a Task,
        choices: &'a Choices,
        include: IncludePosition,
        handler: bool,
    ) -> Flow {
        let (from, count) = (include.at, include.rounds.len());
        self.run_within(Position::Include(include), |run| {
            for at in from..count {
                let Some(include) = run.place.include() else { return Ok(()) };
                include.at = at;
                let (index, target) = &include.rounds[at];
                let layer = task.repeat.as_ref().map(|r| variable_scope::item_layer(r, &include.items, *index));
                let steps = match target {
                    Ok(name) => find_choice(choices, name).map(Vec::as_slice).unwrap_or_default(),
                    Err(why) => {
                        let why = why.clone();
                        run.include_unknown(task, choices, &why, handler);
                        continue;
                    }
                };
                let open = run.frame.params.len();
                run.frame.params.extend(layer.map(Arc::new));
                let flow = run.steps(play, steps);
                run.frame.params.truncate(open);
                flow?;
            }
            Ok(())
        })
    }

    /// Fails the include, or one item of it, because its target cannot be determined. The failure
    /// counts like that of any task.
    fn not_opened(
        &mut self,
        task: &'a Task,
        scope: &ExprScope,
        item: Option<String>,
        at: (u32, &str),
        handler: bool,
    ) -> Flow {
        let judged = self.fail_unevaluable(task, scope, item, at, handler);
        let flow = self.conclude(task, &judged, judged.result.clone());
        self.end.fatal |= flow.is_err() && task.outcome.fatal;
        flow
    }

    /// Runs `include_vars`: all later tasks see the variables.
    pub(crate) fn include_vars(&mut self, task: &Task, args: &Map<String, Value>) -> ModuleResult {
        let name = args.get("file").and_then(Value::as_str).unwrap_or_default();
        let Some(layer) = task.files.vars_files.get(name) else {
            let known = task.files.vars_files.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!("`{name}` is not a file of this plan; its files are: {known}"));
        };
        let variable = args.get("name").and_then(Value::as_str);
        self.frame.include(*layer, variable);
        if let Some(once) = &mut self.others.once {
            once.included.push((name.to_owned(), variable.map(str::to_owned)));
        }
        let mut outcome = TaskOutcome::ok("");
        let vars = self.frame.plan().layers.get(*layer as usize).cloned().unwrap_or_default();
        outcome.extra_keys.insert("ansible_facts".into(), Value::Object(vars));
        outcome.extra_keys.insert("ansible_included_var_files".into(), json!([name]));
        Ok(outcome)
    }

    /// Reports an include whose target is unknown in check mode. All variables that the include
    /// could set become unknown.
    fn include_unknown(&mut self, task: &Task, choices: &Choices, why: &str, handler: bool) {
        self.say_unknown(task, handler, why);
        let mut set = Vec::new();
        choices.values().for_each(|steps| compile::names_set(steps, &mut set));
        set.iter().for_each(|name| self.frame.forget(name));
    }

    /// Reports a whole task as UNKNOWN.
    pub(crate) fn say_unknown(&mut self, task: &Task, handler: bool, why: &str) {
        if let Some(would) = self.ground.node.predicted_state_mut() {
            would.mark_unknown();
        }
        self.end.unknown += 1;
        self.send_event(TaskReport::for_task(task, self.turn, Status::Unknown, why), handler);
    }
}

/// Selects the steps of an include with these variables. An error carries its line in the playbook.
pub(crate) fn choose_steps<'a>(
    task: &Task,
    scope: &ExprScope,
    choices: &'a Choices,
    refused: &RejectedChoices,
) -> Result<Chosen<'a>, (u32, String)> {
    match unknown::all_hold(scope, &task.when) {
        Ok(Some(true)) => {}
        Ok(Some(false)) => return Ok(Chosen::Skipped),
        Ok(None) => return Ok(Chosen::Unknown("its condition depends on tasks that were not run")),
        Err((line, e)) => return Err((line, expr::explain(&e))),
    }
    let (args, trace) = with_trace(|| variable_scope::args(scope, task));
    if trace.unknown {
        return Ok(Chosen::Unknown("the name of its file depends on tasks that were not run"));
    }
    let name = plan::choice(task, &args.map_err(|message| (task.place.line, message))?);
    if let Some(steps) = find_choice(choices, &name) {
        return Ok(Chosen::Steps(name, steps));
    }
    let message = match find_choice(refused, &name) {
        Some(why) => format!("`{name}` cannot be run: {why}"),
        None => {
            let known = choices.keys().cloned().collect::<Vec<_>>().join(", ");
            format!("`{name}` is not in this plan; it holds: {known}")
        }
    };
    Err((task.place.line, message))
}

/// The target with this name, which an include may write as `./name` too.
fn find_choice<'c, T>(choices: &'c BTreeMap<String, T>, name: &str) -> Option<&'c T> {
    choices.get(name).or_else(|| choices.get(name.strip_prefix("./").unwrap_or(name)))
}
