//! The values that a run has gathered so far, without those of its plan. A delegated task needs
//! them, because its templates see the variables of the host that delegated it.

use crate::plan::{Exports, Plan, PlanStep, Task};
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

    /// Removes everything that no run of `plan` can set. The state may come from a compromised node.
    /// It must not replace a variable of the playbook or the inventory, because a delegated task
    /// would use the replaced value on another host.
    pub fn retain_settable(&mut self, plan: &Plan) {
        let settable = SettableNames::find(plan);
        self.facts.retain(|name, _| settable.may_be_fact(name));
        self.registers.retain(|name, _| settable.may_be_set(name));
        for vars in self.others.values_mut() {
            vars.retain(|name, _| settable.may_be_set(name));
        }
        for layer in &mut self.params {
            layer.retain(|name, _| settable.loop_vars.contains(name));
        }
        self.included.retain(|(layer, name)| settable.includes(*layer, name.as_deref()));
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
    loop_vars: BTreeSet<String>,
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
        tasks.into_iter().for_each(|task| found.add_task(task));
        found.computed |= plan.sets_unknown_facts();
        for play in &plan.plays {
            found.files.extend(play.files.iter().flat_map(|file| file.choices.values()));
            play.sections.iter().for_each(|steps| found.add_steps(steps));
            for handler in &play.handlers {
                if !handler.choices.is_empty() {
                    found.add_loop(&handler.task);
                }
                handler.choices.values().for_each(|steps| found.add_steps(steps));
            }
        }
        found
    }

    fn add_task(&mut self, task: &'p Task) {
        let mut names = Vec::new();
        crate::compile::names_set_by(task, &mut names);
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
                    self.add_loop(&include.task);
                    include.choices.values().for_each(|part| self.add_steps(part));
                }
            }
        }
    }

    fn add_loop(&mut self, task: &Task) {
        let Some(repeat) = &task.repeat else { return };
        let fixed = ["ansible_loop_var", "ansible_index_var", "ansible_loop"].map(str::to_owned);
        self.loop_vars.extend(fixed.into_iter().chain([repeat.var.clone()]).chain(repeat.index_var.clone()));
    }

    /// Gathered facts begin with `ansible_`. A variable of the inventory with such a name, for
    /// example `ansible_host`, is none.
    fn may_be_fact(&self, name: &str) -> bool {
        matches!(name, "omit") || name.starts_with("ansible_") && !self.defined.contains(name)
    }

    fn may_be_set(&self, name: &str) -> bool {
        self.names.contains(name) || !self.defined.contains(name) && (self.computed || name.starts_with("ansible_"))
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
