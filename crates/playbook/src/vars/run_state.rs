//! The values that a run has gathered so far, without those of its plan. A delegated task needs
//! them, because its templates see the variables of the host that delegated it.

use crate::plan::{Exports, Plan, PlanStep, Task};
use crate::vars::protected_names::is_protected_name;
use crate::vars::unknown;
use crate::vars::var_map::has_markup;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The state of a run. `VariableScope::state` makes it, and `VariableScope::restore` reads it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunState {
    pub facts: Map<String, Value>,
    /// Registered results and the values of `set_fact`.
    pub registers: Map<String, Value>,
    /// The layers of `include_vars`, in order, each with the option `name`.
    pub included: Vec<(u32, Option<String>)>,
    /// The layers of the play's `vars_files` that were selected on the node.
    pub files: Vec<u32>,
    pub exports: Exports,
    /// The variables of the includes that are being run.
    pub params: Vec<Map<String, Value>>,
    /// Variables of other hosts that tasks with `delegate_facts` have set.
    pub others: BTreeMap<String, Map<String, Value>>,
    /// Hosts that failed or were unreachable in earlier plays.
    pub lost: BTreeSet<String>,
    /// Variables whose values only a real run knows.
    pub unknown: BTreeSet<String>,
}

impl RunState {
    /// The state in the form of messages.
    pub fn to_message(&self) -> Value {
        let mut message = serde_json::to_value(self).unwrap_or_default();
        unknown::to_wire(&mut message);
        message
    }

    /// Reads a state in the form of messages.
    pub fn from_message(mut message: Value) -> Result<Self, serde_json::Error> {
        unknown::from_wire(&mut message);
        serde_json::from_value(message)
    }

    /// Removes everything that no run of `plan` can set. The state may come from a compromised
    /// node. It must not replace a variable of the playbook or the inventory, because a delegated
    /// task would use the replaced value on another host. `inventory_of`: the inventory variables
    /// of a host, or None if the host is not known.
    ///
    /// The items of includes (`params`) stay; `TaskPath::open` compares them.
    pub fn retain_settable(&mut self, plan: &Plan, inventory_of: &dyn Fn(&str) -> Option<Map<String, Value>>) {
        let settable = SettableNames::find(plan);
        self.facts.retain(|name, _| settable.may_be_fact(name));
        self.registers.retain(|name, _| settable.may_be_set(name));
        if settable.sets_facts_of_others {
            for (host, vars) in &mut self.others {
                let own = inventory_of(host).unwrap_or_default();
                vars.retain(|name, _| settable.may_be_set_elsewhere(name, &own));
            }
        } else {
            self.others.clear();
        }
        // Only the last of several inclusions of the same variables counts.
        let mut seen = BTreeSet::new();
        self.included.reverse();
        self.included
            .retain(|(layer, name)| settable.includes(*layer, name.as_deref()) && seen.insert((*layer, name.clone())));
        self.included.reverse();
        self.files.retain(|layer| settable.files.contains(layer));
        self.exports.defaults.retain(|layer| settable.exports.contains(layer));
        self.exports.vars.retain(|layer| settable.exports.contains(layer));
    }
}

/// The names and layers that a run of a plan can set.
#[derive(Default)]
struct SettableNames<'p> {
    /// Names that tasks of the plan register or set.
    names: BTreeSet<String>,
    /// Names that the inventory, the playbook or the command line defines.
    defined: BTreeSet<&'p str>,
    /// Whether a task may set a fact whose name the plan does not contain.
    computed: bool,
    /// Whether a task has `delegate_facts`, and the names that such tasks set.
    sets_facts_of_others: bool,
    names_elsewhere: BTreeSet<String>,
    included: Vec<(u32, Option<&'p str>)>,
    files: BTreeSet<u32>,
    exports: BTreeSet<u32>,
}

impl<'p> SettableNames<'p> {
    fn find(plan: &'p Plan) -> Self {
        let mut found = Self::default();
        let layers = plan.layers.iter().chain([&plan.vars, &plan.extra]);
        found.defined.extend(layers.flat_map(|layer| layer.keys().map(String::as_str)));
        found.defined.extend(plan.shared.keys().map(String::as_str));
        let mut tasks = Vec::new();
        plan.each_task(&mut |task| tasks.push(task));
        for task in tasks {
            found.computed |= plan.sets_facts(task);
            found.add_task(task);
        }
        for play in &plan.plays {
            found.files.extend(play.files.iter().flat_map(|file| file.choices.values()));
            play.sections.iter().for_each(|steps| found.add_steps(steps));
            for handler in &play.handlers {
                handler.choices.values().for_each(|steps| found.add_steps(steps));
            }
        }
        found
    }

    fn add_task(&mut self, task: &'p Task) {
        let mut names = Vec::new();
        crate::compile::names_set_by(task, &mut names);
        if task.hosts.delegation.as_ref().is_some_and(|delegation| delegation.facts) {
            self.sets_facts_of_others = true;
            self.names_elsewhere.extend(names.iter().cloned());
        }
        self.names.extend(names);
        self.computed |= task.module == "set_fact" && task.args.keys().any(|name| has_markup(name));
        let name = task.args.get("name").and_then(Value::as_str);
        self.included.extend(task.files.vars_files.values().map(|layer| (*layer, name)));
    }

    fn add_steps(&mut self, steps: &'p [PlanStep]) {
        for step in steps {
            match step {
                PlanStep::Task(_) => {}
                PlanStep::Block(block) => {
                    if let Some(exports) = &block.exports {
                        self.exports.extend(exports.defaults.iter().chain(&exports.vars));
                    }
                    [&block.block, &block.rescue, &block.always].into_iter().for_each(|part| self.add_steps(part));
                }
                PlanStep::Include(include) => {
                    include.choices.values().for_each(|part| self.add_steps(part));
                }
            }
        }
    }

    /// Gathered facts begin with `ansible_`, those of some modules have other names. A variable of
    /// the inventory or the playbook with such a name is none.
    fn may_be_fact(&self, name: &str) -> bool {
        matches!(name, "omit") || self.is_free_name(name) && !self.defined.contains(name)
    }

    fn may_be_set(&self, name: &str) -> bool {
        self.names.contains(name) && !is_protected_name(name) || !self.defined.contains(name) && self.is_free_name(name)
    }

    /// Whether a task may set this variable of another host, whose inventory variables are `own`.
    fn may_be_set_elsewhere(&self, name: &str, own: &Map<String, Value>) -> bool {
        self.names_elsewhere.contains(name) && !is_protected_name(name)
            || !own.contains_key(name) && self.is_free_name(name)
    }

    /// Whether a task may set a fact with this name, which no task contains.
    fn is_free_name(&self, name: &str) -> bool {
        (self.computed || name.starts_with("ansible_")) && !is_protected_name(name)
    }

    fn includes(&self, layer: u32, name: Option<&str>) -> bool {
        self.included.iter().any(|(known, written)| {
            let same = match written {
                Some(written) if has_markup(written) => name.is_some_and(|name| !self.defined.contains(name)),
                written => *written == name,
            };
            *known == layer && same
        })
    }
}
