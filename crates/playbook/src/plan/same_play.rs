//! The variables that hosts of a play read of each other (`hostvars`) in the play that sets them,
//! and the tasks of a plan that set and read them.
//!
//! As in Ansible, a host reads such a variable after all hosts have passed the earlier tasks that
//! set it. The controller makes the host wait for them.

use super::{Plan, PlanStep, Play, SharedNames, SourcePlace, Task};
use crate::compile;
use crate::template::lint;
use crate::vars::hostvars;
use crate::vars::protected_names::is_protected_name;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The tasks of one play, in the plan of one host, that exchange variables with other hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlayExchange {
    /// The names of the variables.
    pub names: BTreeSet<String>,
    /// The tasks that set them, with their places, in the order of the plan.
    pub setters: Vec<(u32, SourcePlace)>,
    /// The tasks that read those of other hosts, with the number of `setters` before each.
    pub readers: BTreeMap<u32, usize>,
}

/// The words of all texts of these plans that read variables of other hosts.
fn words_near_hostvars(plans: &[&Plan]) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for plan in plans.iter().filter(|plan| plan.shared.contains_key(hostvars::NAME)) {
        let mut add = |text: &str| {
            if text.contains(hostvars::NAME) {
                lint::collect_words(text, &mut words);
            }
        };
        plan.each_task(&mut |task| each_text(&serde_json::to_value(task).unwrap_or_default(), &mut add));
        variables(plan).for_each(|(_, value)| each_text(value, &mut add));
        plan.blobs.values().filter_map(|blob| std::str::from_utf8(&blob.0).ok()).for_each(&mut add);
    }
    words
}

/// The variables of a plan, without those that have the values of many hosts.
fn variables(plan: &Plan) -> impl Iterator<Item = (&String, &Value)> {
    let layers = plan.layers.iter().chain([&plan.extra, &plan.vars]).flat_map(Map::iter);
    let shared = plan.shared.iter().map(|(name, value)| (name, value.json()));
    layers.chain(shared).filter(|(name, _)| !matches!(name.as_str(), hostvars::NAME | "groups"))
}

fn each_text(value: &Value, f: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => f(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, f)),
        Value::Object(map) => map.values().for_each(|item| each_text(item, f)),
        _ => {}
    }
}

/// Whether a name may be that of a gathered fact, and not that of a connection variable.
fn is_fact(name: &str) -> bool {
    name.starts_with("ansible_") && !is_protected_name(name)
}

/// For each play, the names that a host may set in it and that another host may read in it.
pub(super) fn names_in_plays(plans: &[&Plan]) -> BTreeMap<u32, BTreeSet<String>> {
    let words = words_near_hostvars(plans);
    let mut out: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for play in plans.iter().flat_map(|plan| &plan.plays).filter(|_| !words.is_empty()) {
        let mut names = Vec::new();
        play.each_task(&mut |task| compile::names_set_by(task, &mut names));
        // The facts of a host are known when its first play begins.
        let facts = words.iter().filter(|name| is_fact(name));
        let known = names.iter().filter(|name| words.contains(*name)).chain(facts).cloned();
        out.entry(play.index).or_default().extend(known);
    }
    out.retain(|_, names| !names.is_empty());
    out
}

/// Finds the texts that read variables of other hosts, also through other variables.
struct Readers<'p> {
    names: &'p BTreeSet<String>,
    /// Variables of which the value reads those of other hosts.
    through: BTreeSet<String>,
}

impl<'p> Readers<'p> {
    fn new(plan: &'p Plan, names: &'p BTreeSet<String>) -> Self {
        let mut readers = Self { names, through: BTreeSet::new() };
        loop {
            let more = variables(plan).filter(|(name, value)| !readers.through.contains(*name) && readers.reads(value));
            let more: Vec<String> = more.map(|(name, _)| name.clone()).collect();
            if more.is_empty() {
                return readers;
            }
            readers.through.extend(more);
        }
    }

    fn reads(&self, value: &Value) -> bool {
        let mut reads = false;
        each_text(value, &mut |text| reads |= self.is_reader(text));
        reads
    }

    fn is_reader(&self, text: &str) -> bool {
        if self.through.is_empty() && !text.contains(hostvars::NAME) {
            return false;
        }
        let mut words = BTreeSet::new();
        lint::collect_words(text, &mut words);
        let near = words.contains(hostvars::NAME) && words.iter().any(|word| self.names.contains(word));
        near || words.iter().any(|word| self.through.contains(word))
    }

    fn is_reading_task(&self, plan: &Plan, task: &Task) -> bool {
        let files = task.files.assets.values().chain(task.files.parts.values());
        let mut texts = files.filter_map(|asset| std::str::from_utf8(&plan.blobs.get(&asset.sha256)?.0).ok());
        self.reads(&serde_json::to_value(task).unwrap_or_default()) || texts.any(|text| self.is_reader(text))
    }
}

impl Plan {
    /// The tasks of `play` that exchange variables with other hosts. None: there are none.
    pub fn exchange_of(&self, play: &Play) -> Option<PlayExchange> {
        let names = self.shares.as_ref()?.names_in_play(play.index)?;
        let readers = Readers::new(self, names);
        let mut out = PlayExchange { names: names.clone(), ..PlayExchange::default() };
        let mut add = |task: &Task| {
            if readers.is_reading_task(self, task) {
                out.readers.insert(task.id, out.setters.len());
            }
            let mut set = Vec::new();
            compile::names_set_by(task, &mut set);
            if set.iter().any(|name| names.contains(name)) {
                out.setters.push((task.id, task.place.clone()));
            }
        };
        // A handler has no fixed place among the tasks, so no host waits for one.
        play.sections.iter().for_each(|steps| each_in_order(steps, &mut add));
        Some(out)
    }
}

/// Calls `f` with the tasks in the order of the plan.
fn each_in_order(steps: &[PlanStep], f: &mut dyn FnMut(&Task)) {
    for step in steps {
        match step {
            PlanStep::Task(task) => f(task),
            PlanStep::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().for_each(|part| each_in_order(part, f)),
            PlanStep::Include(include) => {
                f(&include.task);
                include.choices.values().for_each(|part| each_in_order(part, f));
            }
        }
    }
}

impl SharedNames {
    /// The names that hosts may set and others read in this play.
    pub fn names_in_play(&self, play: u32) -> Option<&BTreeSet<String>> {
        self.in_play.get(&play)
    }

    /// Whether hosts read what others set in the same play.
    pub fn has_exchange(&self) -> bool {
        !self.in_play.is_empty()
    }
}
