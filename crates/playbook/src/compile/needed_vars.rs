//! Selects the inventory variables that a plan could read. Only these are part of the plan, so that
//! an unrelated change of the inventory does not change the desired state of the host.

use super::lookup;
use crate::modules::PYTHON_VARIABLE;
use crate::plan::{Plan, PlanStep, SourcePlace, Task};
use crate::template::lint;
use crate::vars::var_map::{self, SharedVar};
use remoor_model::Fault;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Reports variables that this plan reads and that only a task of another host sets. The fault is
/// at the place of that task.
pub fn missed_names(plan: &Plan, elsewhere: &[(String, SourcePlace)]) -> Vec<Fault> {
    if elsewhere.is_empty() {
        return Vec::new();
    }
    let mut words = BTreeSet::new();
    for play in &plan.plays {
        play.each_task(&mut |task| {
            if let Ok(value) = serde_json::to_value(task) {
                collect(&value, &mut words, &mut false);
            }
        });
    }
    plan.layers.iter().flat_map(Map::values).for_each(|value| collect(value, &mut words, &mut false));
    for text in plan.blobs.values().filter_map(|blob| std::str::from_utf8(&blob.0).ok()) {
        lint::collect_words(text, &mut words);
    }
    let missed = elsewhere.iter().filter(|(name, _)| words.contains(name));
    missed
        .map(|(name, place)| {
            let message =
                format!("`{name}` is set by a `run_once` task that another host runs, and this host reads it");
            Fault::error(&place.file, place.line, 1, message).hint(super::HINT_ANSIBLE)
        })
        .collect()
}

/// Adds the names of the variables that a task sets.
pub fn names_set_by(task: &Task, out: &mut Vec<String>) {
    out.extend(task.register.clone());
    if task.module == "set_fact" {
        out.extend(task.args.keys().filter(|name| !var_map::has_markup(name)).cloned());
    }
}

/// Adds the names of the variables that the tasks in `steps` set.
pub fn names_set(steps: &[PlanStep], out: &mut Vec<String>) {
    for step in steps {
        match step {
            PlanStep::Task(task) => names_set_by(task, out),
            PlanStep::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| names_set(part, out)),
            PlanStep::Include(include) => {
                names_set_by(&include.task, out);
                include.choices.values().for_each(|part| names_set(part, out));
            }
        }
    }
}

/// The facts that a plan could read, without the environment of the node, which may contain
/// secrets.
pub fn facts_read(plan: &Plan, facts: &Map<String, Value>) -> Map<String, Value> {
    let mut read = needed_vars(plan, facts);
    read.remove("ansible_env");
    if let Some(Value::Object(all)) = read.get_mut("ansible_facts") {
        all.remove("env");
    }
    read
}

/// The variables whose names occur in the plan, and those that they refer to. When in doubt,
/// selects too many rather than too few.
pub fn needed_vars(plan: &Plan, vars: &Map<String, Value>) -> Map<String, Value> {
    needed_with_shared(plan, vars, &BTreeMap::new()).0
}

/// Like `needed_vars`, and also selects from `shared` the variables that `plan` or the selected
/// `vars` could read.
pub fn needed_with_shared(
    plan: &Plan,
    vars: &Map<String, Value>,
    shared: &BTreeMap<String, SharedVar>,
) -> (Map<String, Value>, BTreeMap<String, SharedVar>) {
    let (mut words, mut whole) = words_of(plan);
    if whole {
        return (vars.clone(), shared.clone());
    }
    let mut out: BTreeSet<&String> = BTreeSet::new();
    loop {
        let fresh: Vec<(&String, &Value)> =
            vars.iter().filter(|(name, _)| words.contains(*name) && !out.contains(name)).collect();
        if fresh.is_empty() {
            let vars = vars.iter().filter(|(name, _)| out.contains(name)).map(|(k, v)| (k.clone(), v.clone()));
            let shared = shared.iter().filter(|(name, _)| words.contains(*name)).map(|(k, v)| (k.clone(), v.clone()));
            return (vars.collect(), shared.collect());
        }
        for (name, value) in fresh {
            out.insert(name);
            if !is_about_many(name) {
                collect(value, &mut words, &mut whole);
            }
        }
    }
}

/// Whether a variable contains values of many hosts.
fn is_about_many(name: &str) -> bool {
    matches!(name, "hostvars" | "groups" | "peers")
}

/// The words of the plan that could be names of variables, and whether the plan reads variables by
/// computed names.
pub fn words_of(plan: &Plan) -> (BTreeSet<String>, bool) {
    let mut words = BTreeSet::new();
    let mut whole = false;
    let mut needs_python = !plan.modules.is_empty();
    for play in &plan.plays {
        play.each_task(&mut |task| {
            needs_python |= task.module == "pip";
            // A template that the controller sends during the run may read any variable.
            whole |= task.module == "template" && !task.files.on_controller.is_empty();
            if task.module == "validate_argument_spec" {
                match task.args.get("argument_spec") {
                    Some(Value::Object(spec)) => words.extend(spec.keys().cloned()),
                    _ => whole = true,
                }
            }
            if let Ok(value) = serde_json::to_value(task) {
                collect(&value, &mut words, &mut whole);
            }
        });
    }
    if words.contains("inventory_hostnames") {
        words.insert("groups".to_owned());
    }
    if words.contains("password_hash") {
        words.insert("inventory_hostname".to_owned());
    }
    for layer in plan.layers.iter().chain([&plan.extra, &plan.vars]) {
        layer
            .iter()
            .filter(|(name, _)| !is_about_many(name))
            .for_each(|(_, value)| collect(value, &mut words, &mut whole));
    }
    for text in lookup::texts(&plan.extra) {
        whole |= names_all(&text);
        lint::collect_words(&text, &mut words);
    }
    for blob in plan.blobs.values() {
        if let Ok(text) = std::str::from_utf8(&blob.0) {
            whole |= names_all(text);
            lint::collect_words(text, &mut words);
        }
    }
    if needs_python || reads_python_facts(&words) {
        words.insert(PYTHON_VARIABLE.to_owned());
    }
    (words, whole)
}

/// Whether a plan with these words could read the facts about Python.
pub fn reads_python_facts(words: &BTreeSet<String>) -> bool {
    ["python", "python_version"].iter().any(|name| {
        words.contains(&format!("ansible_{name}")) || words.contains("ansible_facts") && words.contains(*name)
    })
}

fn collect(value: &Value, words: &mut BTreeSet<String>, whole: &mut bool) {
    match value {
        Value::String(text) => {
            *whole |= names_all(text);
            lint::collect_words(text, words);
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words, whole)),
        Value::Object(map) => map.values().for_each(|item| collect(item, words, whole)),
        _ => {}
    }
}

/// Whether a text reads variables by computed names.
fn names_all(text: &str) -> bool {
    text.contains("lookup('vars'")
        || text.contains("lookup(\"vars\"")
        || text.match_indices("vars[").any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}
