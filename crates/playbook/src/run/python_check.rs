//! Finds a missing Python before the first task: a node that cannot run the Python modules of its
//! plan is reported before anything is changed.

use crate::modules::PythonRuntime;
use crate::plan::{Plan, SourcePlace, Task};
use crate::run::event::CancelToken;
use crate::template::lint;
use crate::vars::variable_scope::{self, VariableScope};
use crate::{compile, facts};
use std::collections::BTreeSet;

/// The reason why this machine cannot run a plan, because a task needs a Python that the machine
/// does not have. None: no task needs one. Changes nothing. The plan may be without its blobs.
pub fn check_python(plan: &Plan, cancel: &CancelToken) -> Option<String> {
    if plan.modules.is_empty() {
        return None;
    }
    let facts = facts::gather(cancel);
    refusal(plan, &mut VariableScope::new(plan, &facts), &mut PythonRuntime::default(), cancel)
        .map(|(place, why)| format!("{}:{}: {why}", place.file, place.line))
}

/// The first task that will need a Python that the node does not have, and the reason.
///
/// Tasks that do not run on this node according to its facts and inventory are left out.
pub(crate) fn refusal(
    plan: &Plan,
    frame: &mut VariableScope,
    python: &mut PythonRuntime,
    cancel: &CancelToken,
) -> Option<(SourcePlace, String)> {
    if plan.modules.is_empty() {
        return None;
    }
    let mut set = Vec::new();
    plan.each_task(&mut |task| compile::names_set_by(task, &mut set));
    let set: BTreeSet<String> = set.into_iter().collect();
    for play in plan.plays.iter().filter(|play| play.index >= plan.first_play()) {
        frame.open_play(play);
        let mut tasks = Vec::new();
        play.each_task(&mut |task| tasks.push(task));
        for task in tasks.into_iter().filter(|task| !task.runs_elsewhere()) {
            let Some(module) = plan.modules.get(&task.module) else { continue };
            let scope = frame.scope(play, task);
            if is_certain(task, &set) && matches!(variable_scope::all_hold(&scope, &task.when), Ok(false)) {
                continue;
            }
            if let Err(why) = python.check_interpreter(module, &scope, cancel) {
                return Some((task.place.clone(), format!("the module {} needs Python: {why}", task.module)));
            }
        }
    }
    None
}

/// Whether the condition of a task reads only names that no task sets.
fn is_certain(task: &Task, set: &BTreeSet<String>) -> bool {
    let mut words = BTreeSet::new();
    task.when.iter().for_each(|condition| lint::collect_words(&condition.text, &mut words));
    task.repeat.is_none() && words.iter().all(|word| !set.contains(word))
}
