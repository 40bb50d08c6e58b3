//! The includes through which a run reaches a task. The controller evaluates them again. Otherwise
//! a compromised node could request a task that the playbook does not run, or choose the variables
//! of a loop freely.

use super::DelegationError;
use crate::plan::{Choices, Plan, PlanStep, Play, RejectedChoices, Task};
use crate::run::dynamic_include::{Chosen, choose_steps};
use crate::vars::scope::with_trace;
use crate::vars::variable_scope::{self, VariableScope};
use serde_json::{Map, Value};
use std::sync::Arc;

/// A task, and the includes that lead to it, the outermost first.
pub(super) struct TaskPath<'p> {
    pub play: &'p Play,
    pub task: &'p Task,
    /// Whether the task is a handler, or is reached through one.
    pub in_handler: bool,
    includes: Vec<OpenedInclude<'p>>,
}

/// An include, and the one of its choices that leads to the task.
#[derive(Clone, Copy)]
struct OpenedInclude<'p> {
    task: &'p Task,
    choices: &'p Choices,
    refused: &'p RejectedChoices,
    chosen: &'p [PlanStep],
}

impl<'p> TaskPath<'p> {
    /// Like `find`, but the task may also be an include.
    pub fn find_with_includes(plan: &'p Plan, id: u32) -> Option<Self> {
        Self::find_any(plan, id, Includes::Found)
    }

    /// The path to the task with this number, which is no include.
    pub fn find(plan: &'p Plan, id: u32) -> Option<Self> {
        Self::find_any(plan, id, Includes::Passed)
    }

    fn find_any(plan: &'p Plan, id: u32, which: Includes) -> Option<Self> {
        plan.plays.iter().find_map(|play| {
            let mut includes = Vec::new();
            let sections = play.sections.iter().find_map(|steps| find_in_steps(steps, (id, which), &mut includes));
            let in_handler = sections.is_none();
            let task = sections.or_else(|| {
                play.handlers.iter().find_map(|handler| match handler.task.id == id {
                    true => Some(&handler.task),
                    false => {
                        let choices = (&handler.choices, &handler.refused);
                        find_in_choices(&handler.task, choices, (id, which), &mut includes)
                    }
                })
            })?;
            Some(Self { play, task, in_handler, includes })
        })
    }

    /// The tasks of the includes.
    pub fn include_tasks(&self) -> impl Iterator<Item = &'p Task> {
        self.includes.iter().map(|include| include.task)
    }

    /// Opens the includes in `frame`, as the run has done that requests the task. `layers` are the
    /// variables of their loops as the node sent them. They must be those of an item of the loop.
    ///
    /// The includes are evaluated with the present values. If a task of an include changes a value
    /// that the include itself depends on, the task fails.
    ///
    /// Returns, for each include with a loop, the index of the first item with these variables, and
    /// the number of such items.
    pub fn open(
        &self,
        frame: &mut VariableScope,
        layers: &[Map<String, Value>],
    ) -> Result<Vec<(usize, usize)>, DelegationError> {
        let mut layers = layers.iter();
        let mut opened = Vec::new();
        for include in &self.includes {
            let task = include.task;
            let place = format!("{}:{}", task.place.file, task.place.line);
            let failed =
                |why: &str| DelegationError::Failed(format!("the include at {place}, on the controller: {why}"));
            let scope = frame.scope(self.play, task);
            let layer = match &task.repeat {
                None => None,
                Some(repeat) => {
                    let missing = || DelegationError::Forbidden("the item of an include is missing".to_owned());
                    let layer = layers.next().ok_or_else(missing)?;
                    let (items, trace) = with_trace(|| variable_scope::items(&scope, repeat));
                    if trace.unknown {
                        return Err(DelegationError::Unknown);
                    }
                    let items = items.map_err(|e| failed(&format!("loop: {e}")))?;
                    let same = |index: &usize| items.get(*index) == layer.get(&repeat.var);
                    let mut known = (0..items.len())
                        .filter(same)
                        .map(|index| (index, variable_scope::item_layer(repeat, &items, index)));
                    let known = known.find(|(_, known)| known.json() == *layer);
                    let (index, known) = known.ok_or_else(|| failed("its loop has other items than on the host"))?;
                    // These keywords make the variables of equal items different.
                    let differ = repeat.index_var.is_some() || repeat.extended;
                    opened.push((index, if differ { 1 } else { (0..items.len()).filter(same).count() }));
                    Some(known)
                }
            };
            let inner = layer.clone().map_or_else(|| scope.clone(), |layer| scope.with_layer(layer));
            match choose_steps(task, &inner, include.choices, include.refused) {
                Ok(Chosen::Steps(_, steps)) if std::ptr::eq(steps, include.chosen) => {}
                Ok(Chosen::Steps(name, _)) => return Err(failed(&format!("it selects `{name}`"))),
                Ok(Chosen::Skipped) => return Err(failed("its condition does not hold")),
                Ok(Chosen::Unknown(_)) => return Err(DelegationError::Unknown),
                Err((_, why)) => return Err(failed(&why)),
            }
            frame.params.extend(layer.map(Arc::new));
        }
        match layers.next() {
            None => Ok(opened),
            Some(_) => {
                Err(DelegationError::Forbidden("it has items of includes that do not lead to the task".to_owned()))
            }
        }
    }
}

/// Whether a search finds the tasks of includes themselves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Includes {
    Found,
    Passed,
}

fn find_in_steps<'p>(
    steps: &'p [PlanStep],
    id: (u32, Includes),
    includes: &mut Vec<OpenedInclude<'p>>,
) -> Option<&'p Task> {
    steps.iter().find_map(|step| match step {
        PlanStep::Task(task) => (task.id == id.0).then_some(&**task),
        PlanStep::Block(b) => {
            [&b.block, &b.rescue, &b.always].into_iter().find_map(|part| find_in_steps(part, id, includes))
        }
        PlanStep::Include(i) if i.task.id == id.0 && id.1 == Includes::Found => Some(&i.task),
        PlanStep::Include(i) => find_in_choices(&i.task, (&i.choices, &i.refused), id, includes),
    })
}

fn find_in_choices<'p>(
    task: &'p Task,
    (choices, refused): (&'p Choices, &'p RejectedChoices),
    id: (u32, Includes),
    includes: &mut Vec<OpenedInclude<'p>>,
) -> Option<&'p Task> {
    choices.values().find_map(|chosen| {
        includes.push(OpenedInclude { task, choices, refused, chosen });
        let found = find_in_steps(chosen, id, includes);
        if found.is_none() {
            includes.pop();
        }
        found
    })
}
