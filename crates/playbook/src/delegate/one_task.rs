//! The part of a plan that one of its tasks can use. The host of a delegated task receives only
//! this part, because the other variables of the plan may be secrets of another host.

use crate::compile;
use crate::filters::{LOOKUP_FILES, PLUGINS};
use crate::modules::PYTHON_VARIABLE;
use crate::plan::{Plan, PlanSecrets, PlanStep, Play, Task};
use crate::template::expr;
use crate::vars::run_state::RunState;
use crate::vars::variable_scope::VariableScope;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The functions of templates that read files of the playbook.
const LOOKUPS: [&str; 3] = ["lookup", "query", "q"];

/// The task as its host runs it: the condition, the loop and the judgement of the result belong to
/// the run that delegates it.
pub(super) fn strip_rules(task: &Task) -> Task {
    Task {
        when: Vec::new(),
        repeat: None,
        register: None,
        outcome: Default::default(),
        retry: Default::default(),
        notify: Vec::new(),
        tags: Vec::new(),
        hosts: Default::default(),
        ..task.clone()
    }
}

/// A plan that contains only `tasks`, with what they may use.
pub(super) fn plan_of(plan: &Plan, play: &Play, tasks: &[&Task], state: &RunState) -> Plan {
    let mut used: BTreeSet<u32> = [&play.defaults, &play.vars, &play.exports, &state.files]
        .into_iter()
        .chain([&state.exports.defaults, &state.exports.vars])
        .chain(tasks.iter().flat_map(|task| [&task.layers.defaults, &task.layers.vars, &task.layers.params]))
        .flatten()
        .copied()
        .collect();
    used.extend(state.included.iter().map(|(layer, _)| layer));
    let is_used = |index: usize| u32::try_from(index).is_ok_and(|index| used.contains(&index));
    let layer = |(index, layer): (usize, &Map<String, Value>)| if is_used(index) { layer.clone() } else { Map::new() };
    let uses = |name: &str| tasks.iter().any(|task| task.module == name || task.may_run_as(name));
    let modules: BTreeMap<_, _> =
        plan.modules.iter().filter(|(name, _)| uses(name)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let hashes: BTreeSet<&String> = tasks
        .iter()
        .flat_map(|task| task.files.assets.values().chain(task.files.parts.values()))
        .map(|asset| &asset.sha256)
        .chain(modules.values().map(|module| &module.sha256))
        .collect();
    let blobs = plan.blobs.iter().filter(|(hash, _)| hashes.contains(hash)).map(|(k, v)| (k.clone(), v.clone()));
    let one = Play {
        index: play.index,
        name: play.name.clone(),
        place: play.place.clone(),
        defaults: play.defaults.clone(),
        vars: play.vars.clone(),
        exports: play.exports.clone(),
        sections: vec![tasks.iter().map(|task| PlanStep::Task(Box::new((*task).clone()))).collect()],
        ..Play::default()
    };
    let mut out = Plan {
        version: plan.version,
        playbook: plan.playbook.clone(),
        host: plan.host.clone(),
        vars: Map::new(),
        shared: BTreeMap::new(),
        extra: plan.extra.clone(),
        layers: plan.layers.iter().enumerate().map(layer).collect(),
        plays: vec![one],
        blobs: blobs.collect(),
        modules,
        delegated: None,
        resumed: None,
        shares: None,
        secrets: PlanSecrets::default(),
    };
    keep_needed_layers(&mut out, &plan.vars);
    (out.vars, out.shared) = compile::needed_with_shared(&out, &plan.vars, &plan.shared);
    out
}

/// All texts of a plan and of the state with which it runs.
pub(super) fn texts_of(plan: &Plan, state: &RunState) -> Vec<String> {
    let plan_values = (&plan.vars, &plan.extra, &plan.layers, &plan.plays);
    let values = (plan_values, &state.facts, &state.registers, &state.params, &state.others);
    let shared = plan.shared.values().map(|value| value.json().to_string());
    let files = plan.blobs.values().filter_map(|blob| std::str::from_utf8(&blob.0).ok()).map(str::to_owned);
    [serde_json::to_string(&values).unwrap_or_default()].into_iter().chain(shared).chain(files).collect()
}

/// Removes the variables of layers that the task does not read. `inventory` has the variables of
/// the host, which may refer to those of layers.
fn keep_needed_layers(plan: &mut Plan, inventory: &Map<String, Value>) {
    let (layers, mut extra) = (std::mem::take(&mut plan.layers), std::mem::take(&mut plan.extra));
    plan.extra.extend(extra.remove_entry(PLUGINS));
    // A name stands for its values in all layers, because the search does not know precedence.
    let mut all: Map<String, Value> =
        LOOKUPS.iter().map(|name| ((*name).to_owned(), Value::Array(Vec::new()))).collect();
    for (name, value) in layers.iter().chain([&extra, inventory]).flatten().filter(|(name, _)| *name != LOOKUP_FILES) {
        match all.get_mut(name) {
            Some(Value::Array(values)) => values.push(value.clone()),
            _ => drop(all.insert(name.clone(), Value::Array(vec![value.clone()]))),
        }
    }
    let mut needed = compile::needed_vars(plan, &all);
    if let Some(files) = extra.remove(LOOKUP_FILES)
        && LOOKUPS.iter().any(|name| needed.contains_key(*name))
    {
        plan.extra.insert(LOOKUP_FILES.to_owned(), files);
        needed = compile::needed_vars(plan, &all);
    }
    let keep = |layer: Map<String, Value>| layer.into_iter().filter(|(name, _)| needed.contains_key(name));
    plan.layers = layers.into_iter().map(|layer| keep(layer).collect()).collect();
    plan.extra.extend(keep(extra));
}

/// Removes the values of `state` that the plan does not read.
pub(super) fn keep_needed_values(plan: &Plan, state: &mut RunState) {
    let all = std::mem::take(state);
    let needed = |values: &Map<String, Value>| compile::needed_vars(plan, values);
    *state = RunState {
        facts: needed(&all.facts),
        registers: needed(&all.registers),
        params: all.params.iter().map(needed).collect(),
        ..all
    };
    if !plan.shared.contains_key("hostvars") && !plan.vars.contains_key("hostvars") {
        state.others.clear();
    }
}

/// Replaces the Python of the delegating host by `own`, that of the host that runs the task, or by
/// that of the playbook. It is evaluated without values of the delegating host, which may be
/// compromised. No value of `state` names a Python (`RunState::retain_settable`).
pub(super) fn set_python(plan: &mut Plan, own: Option<&Value>) {
    plan.shared.remove(PYTHON_VARIABLE);
    plan.vars.remove(PYTHON_VARIABLE);
    plan.vars.extend(own.map(|own| (PYTHON_VARIABLE.to_owned(), own.clone())));
    let frame = VariableScope::new(plan, &Map::new());
    let first = plan.plays.first().and_then(|play| match play.sections.first()?.first()? {
        PlanStep::Task(task) => Some(frame.scope(play, task)),
        _ => None,
    });
    let text = format!("{{{{ {PYTHON_VARIABLE} | default('') }}}}");
    let python = first.and_then(|scope| expr::render_text(&scope, &text).ok()).filter(|python| !python.is_empty());
    plan.vars.remove(PYTHON_VARIABLE);
    plan.layers.iter_mut().for_each(|layer| drop(layer.remove(PYTHON_VARIABLE)));
    plan.extra.remove(PYTHON_VARIABLE);
    plan.vars.extend(python.map(|python| (PYTHON_VARIABLE.to_owned(), python.into())));
}
