//! Which of the inventory's variables a plan could read: only those are part of it, so that an unrelated change of the
//! inventory does not change what the host is to be.

use super::lookup;
use crate::model::Fault;
use crate::playbook::plan::{Place, Plan, Play, Step, Task};
use crate::playbook::{data, lint};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Calls `f` with every task of a play, handlers last.
pub fn each_task(play: &Play, f: &mut dyn FnMut(&Task)) {
    fn steps(list: &[Step], f: &mut dyn FnMut(&Task)) {
        for step in list {
            match step {
                Step::Task(task) => f(task),
                Step::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| steps(part, f)),
                Step::Include(include) => {
                    f(&include.task);
                    include.choices.values().for_each(|part| steps(part, f));
                }
            }
        }
    }
    play.sections.iter().for_each(|section| steps(section, f));
    for handler in &play.handlers {
        f(&handler.task);
        handler.choices.values().for_each(|part| steps(part, f));
    }
}

/// Names that only another host sets and that something here reads, as faults at the place that would set them.
pub fn missed(plan: &Plan, elsewhere: &[(String, Place)]) -> Vec<Fault> {
    if elsewhere.is_empty() {
        return Vec::new();
    }
    let mut words = BTreeSet::new();
    for play in &plan.plays {
        each_task(play, &mut |task| {
            if let Ok(value) = serde_json::to_value(task) {
                collect(&value, &mut words, &mut false);
            }
        });
    }
    plan.layers.iter().flat_map(Map::values).for_each(|value| collect(value, &mut words, &mut false));
    for text in plan.blobs.values().filter_map(|blob| std::str::from_utf8(&blob.0).ok()) {
        lint::words(text, &mut words);
    }
    let missed = elsewhere.iter().filter(|(name, _)| words.contains(name));
    missed
        .map(|(name, place)| {
            let message = format!("`{name}` is set by a task that runs once, on another host, and is read on this one");
            Fault::error(&place.file, place.line, 1, message).hint(super::ELSEWHERE)
        })
        .collect()
}

/// Names of variables that a task sets.
pub fn names_set_by(task: &Task, out: &mut Vec<String>) {
    out.extend(task.register.clone());
    if task.module == "set_fact" {
        out.extend(task.args.keys().filter(|name| !data::has_markup(name)).cloned());
    }
}

/// Names of variables that tasks set.
pub fn names_set(steps: &[Step], out: &mut Vec<String>) {
    for step in steps {
        match step {
            Step::Task(task) => names_set_by(task, out),
            Step::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| names_set(part, out)),
            Step::Include(include) => {
                names_set_by(&include.task, out);
                include.choices.values().for_each(|part| names_set(part, out));
            }
        }
    }
}

/// Of the facts of a node, those that a plan could read; its environment is left out, which may hold secrets.
pub fn facts_read(plan: &Plan, facts: &Map<String, Value>) -> Map<String, Value> {
    let mut read = needed(plan, facts);
    read.remove("ansible_env");
    if let Some(Value::Object(all)) = read.get_mut("ansible_facts") {
        all.remove("env");
    }
    read
}

/// The variables whose names occur anywhere, and those that they in turn name. Takes too many rather than too few.
pub fn needed(plan: &Plan, vars: &Map<String, Value>) -> Map<String, Value> {
    let mut words = BTreeSet::new();
    let mut whole = false;
    for play in &plan.plays {
        each_task(play, &mut |task| {
            if let Ok(value) = serde_json::to_value(task) {
                collect(&value, &mut words, &mut whole);
            }
        });
    }
    let many = |name: &str| matches!(name, "hostvars" | "groups" | "peers");
    for layer in plan.layers.iter().chain([&plan.extra, &plan.vars]) {
        layer.iter().filter(|(name, _)| !many(name)).for_each(|(_, value)| collect(value, &mut words, &mut whole));
    }
    for text in lookup::texts(&plan.extra) {
        whole |= names_all(&text);
        lint::words(&text, &mut words);
    }
    for blob in plan.blobs.values() {
        if let Ok(text) = std::str::from_utf8(&blob.0) {
            whole |= names_all(text);
            lint::words(text, &mut words);
        }
    }
    if whole {
        return vars.clone();
    }
    let mut out: BTreeSet<&String> = BTreeSet::new();
    loop {
        let fresh: Vec<(&String, &Value)> =
            vars.iter().filter(|(name, _)| words.contains(*name) && !out.contains(name)).collect();
        if fresh.is_empty() {
            return vars.iter().filter(|(name, _)| out.contains(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
        }
        for (name, value) in fresh {
            out.insert(name);
            if !many(name) {
                collect(value, &mut words, &mut whole);
            }
        }
    }
}

fn collect(value: &Value, words: &mut BTreeSet<String>, whole: &mut bool) {
    match value {
        Value::String(text) => {
            *whole |= names_all(text);
            lint::words(text, words);
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
