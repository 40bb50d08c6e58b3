//! Finds a missing Python before the first task: a node that cannot run the Python modules of its
//! plan is reported before anything is changed. If an earlier task may install the Python, the
//! tasks themselves find out, as in Ansible.

use crate::modules::{PythonRuntime, chooses_python, named_python};
use crate::plan::{Plan, SourcePlace, Task, is_idle};
use crate::run::event::CancelToken;
use crate::template::{expr, lint};
use crate::vars::scope::ExprScope;
use crate::vars::variable_scope::{self, VariableScope};
use crate::{compile, facts};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Directories of programs that have nothing to do with each other.
const SHARED_DIRS: [&str; 4] = ["/usr/bin", "/usr/local", "/usr/local/bin", "/usr/libexec"];

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
    let mut earlier = String::new();
    for play in plan.plays.iter().filter(|play| play.index >= plan.first_play()) {
        frame.open_play(play);
        let mut tasks = Vec::new();
        play.each_task(&mut |task| tasks.push(task));
        for task in tasks.into_iter().filter(|task| !task.runs_elsewhere()) {
            let scope = frame.scope(play, task);
            if is_left_out(task, &scope, &set) {
                continue;
            }
            let Some(module) = plan.modules.get(&task.module) else {
                if !is_idle(&task.module) {
                    add_texts(task, &scope, &mut earlier);
                }
                continue;
            };
            // The user of the task may own this program, so only the task itself starts it.
            if task.privileges.become_user.is_some() && chooses_python(&named_python(&scope)) {
                continue;
            }
            if let Err(why) = python.interpreter_for(module, &scope, cancel) {
                if provides_python(&earlier, &named_python(&scope)) {
                    return None;
                }
                return Some((task.place.clone(), format!("the module {} needs Python: {why}", task.module)));
            }
        }
    }
    None
}

/// Whether the facts and the inventory decide that the task does not run: its condition is false,
/// or its loop is empty.
fn is_left_out(task: &Task, scope: &ExprScope, set: &BTreeSet<String>) -> bool {
    let is_certain = |texts: &[&str]| {
        let mut words = BTreeSet::new();
        texts.iter().for_each(|text| lint::collect_words(text, &mut words));
        words.iter().all(|word| !set.contains(word))
    };
    if let Some(repeat) = &task.repeat {
        let items = repeat.items.as_str().filter(|text| is_certain(&[*text]));
        return items.is_some()
            && expr::render_json(scope, &repeat.items).is_ok_and(|items| items == Value::Array(vec![]));
    }
    let conditions: Vec<&str> = task.when.iter().map(|condition| condition.text.as_str()).collect();
    is_certain(&conditions) && matches!(variable_scope::all_hold(scope, &task.when), Ok(false))
}

/// Adds the texts of a task: its module, and its options and items, rendered as far as possible.
fn add_texts(task: &Task, scope: &ExprScope, out: &mut String) {
    let items = task.repeat.as_ref().map(|repeat| &repeat.items);
    out.push_str(&task.module);
    for value in task.args.values().chain(items) {
        let rendered = expr::render_json(scope, value);
        out.push_str(&format!(" {} ", rendered.as_ref().unwrap_or(value)));
    }
    out.push('\n');
}

/// Whether tasks with these texts may install the program that `named` selects: a text names
/// Python, the program, or a directory that the program is in, for example a virtual environment.
fn provides_python(texts: &str, named: &str) -> bool {
    let program = named.split_whitespace().next().filter(|_| chooses_python(named)).unwrap_or("python");
    let is_own =
        |dir: &&Path| dir.components().count() > 2 && !SHARED_DIRS.iter().any(|shared| dir == &Path::new(shared));
    let mut names = Path::new(program).ancestors().take_while(is_own).filter_map(Path::to_str);
    texts.to_ascii_lowercase().contains("python") || texts.contains(program) || names.any(|name| texts.contains(name))
}
