//! The variables of a plan in their order of precedence, and the items, options and environment
//! that a task makes of them. The run and `rendered` share this code, so both see the same values.

use crate::delegate::{ControllerLink, LookupLink, ValuesOfRun};
use crate::filters;
use crate::lang::python;
use crate::plan::elevation::octal_mode;
use crate::plan::{Exports, Plan, Play, REFUSED, Repeat, Task, TaskCondition};
use crate::template::expr;
pub use crate::vars::loops::{item_layer, items};
use crate::vars::protected_names::is_protected_name;
use crate::vars::run_state::RunState;
use crate::vars::scope::{ExprScope, HostLayers, plain_value, with_trace};
use crate::vars::var_map::{Var, VarMap, has_markup};
use minijinja::Error;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The value of `omit`: an option with this value is left out.
pub const OMIT: &str = "__omit_this_option__";
/// Variables that list the hosts of a play, or of a batch of it, that have not failed.
const PLAY_HOSTS: [&str; 3] = ["ansible_play_hosts", "ansible_play_batch", "play_hosts"];

pub struct VariableScope<'p> {
    layers: Vec<Arc<VarMap>>,
    inventory: Arc<VarMap>,
    facts: Arc<VarMap>,
    extra: Arc<VarMap>,
    /// Variables of `include_vars`. They are templates as in any file, and registered results take
    /// precedence over them.
    included: Arc<VarMap>,
    /// The layers of `included`, in order, each with the option `name`.
    included_layers: Vec<(u32, Option<String>)>,
    /// Variables of other hosts that tasks with `delegate_facts` have set, by host.
    others: Arc<BTreeMap<String, VarMap>>,
    /// Whether any value of another host may be known only during a run. Only before a run.
    pub others_change: bool,
    /// The hosts of `lose`.
    lost: BTreeSet<String>,
    registers: VarMap,
    /// Layers of those `vars_files` of the play that were selected at the start of the play.
    files: Vec<u32>,
    /// Variables that included roles export to the rest of the play.
    exports: Exports,
    /// Variables of the includes that are being run: loop items and parameters.
    pub params: Vec<Arc<VarMap>>,
    pub unknown: BTreeSet<String>,
    /// Variables whose values in the layers are hidden, because only a real run knows their current
    /// values.
    forgotten: BTreeSet<String>,
    /// The connection to the controller, which answers lookups.
    lookups: Option<LookupLink>,
    plan: &'p Plan,
}

/// Adds a fact to the map `ansible_facts` of `vars`, or all facts if the fact is `ansible_facts`.
fn add_gathered(vars: &mut VarMap, name: &str, value: &Value) {
    let mut all = match vars.get("ansible_facts") {
        Some(Var::Map(all)) => (**all).clone(),
        _ => VarMap::default(),
    };
    match (name, value) {
        ("ansible_facts", Value::Object(more)) => {
            more.iter().for_each(|(name, value)| all.set(name, Var::new(value, false)));
        }
        _ => all.set(name.strip_prefix("ansible_").unwrap_or(name), Var::new(value, false)),
    }
    vars.set("ansible_facts", Var::Map(Arc::new(all)));
}

impl<'p> VariableScope<'p> {
    pub fn new(plan: &'p Plan, facts: &Map<String, Value>) -> Self {
        let mut base = VarMap::from_untrusted(facts);
        base.set("omit", Var::Plain(Value::String(OMIT.into())));
        base.set("ansible_check_mode", Var::Plain(Value::Bool(false)));
        Self {
            layers: plan.layers.iter().map(|l| Arc::new(VarMap::from_trusted(l))).collect(),
            inventory: Arc::new(VarMap::from_trusted(&plan.vars).with_shared(&plan.shared)),
            facts: Arc::new(base),
            extra: Arc::new(VarMap::from_trusted(&plan.extra)),
            included: Arc::default(),
            included_layers: Vec::new(),
            others: Arc::default(),
            others_change: false,
            lost: BTreeSet::new(),
            registers: VarMap::default(),
            files: Vec::new(),
            exports: Exports::default(),
            params: Vec::new(),
            unknown: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            lookups: None,
            plan,
        }
    }

    /// Returns this scope, but `controller` answers the lookups that the run cannot answer itself.
    pub fn with_controller(mut self, controller: Option<&ControllerLink>) -> Self {
        self.lookups = controller.and_then(|controller| LookupLink::new(controller, self.plan));
        self
    }

    /// Sets `ansible_check_mode`.
    pub fn check(&mut self) {
        Arc::make_mut(&mut self.facts).set("ansible_check_mode", Var::Plain(Value::Bool(true)));
    }

    pub fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// Sets a registered result or a fact. It is data and never rendered.
    pub fn set(&mut self, name: &str, value: &Value) {
        self.unknown.remove(name);
        self.forgotten.remove(name);
        self.registers.set(name, Var::new(value, false));
    }

    /// Sets a fact of the node, also in `ansible_facts`. As in Ansible, variables of the play take
    /// precedence over it.
    pub fn learn(&mut self, name: &str, value: &Value) {
        let facts = Arc::make_mut(&mut self.facts);
        add_gathered(facts, name, value);
        if name != "ansible_facts" && !is_protected_name(name) {
            facts.set(name, Var::new(value, false));
            self.unknown.remove(name);
            self.forgotten.remove(name);
        }
    }

    /// Sets a variable of another host, which `hostvars` of that host then contains. A fact that a
    /// module has found becomes part of `ansible_facts` too.
    pub fn learn_about(&mut self, host: &str, name: &str, value: &Value, gathered: bool) {
        let vars = Arc::make_mut(&mut self.others).entry(host.to_owned()).or_default();
        if gathered {
            add_gathered(vars, name, value);
        }
        if name != "ansible_facts" {
            vars.set(name, Var::new(value, false));
        }
    }

    /// The values that the run has gathered so far.
    pub fn state(&self) -> RunState {
        RunState {
            facts: self.facts.json(),
            registers: self.registers.json(),
            params: self.params.iter().map(|layer| layer.json()).collect(),
            others: self.others.iter().map(|(host, vars)| (host.clone(), vars.json())).collect(),
            ..self.state_without_variables()
        }
    }

    /// The parts of `state` that are not maps of variables.
    fn state_without_variables(&self) -> RunState {
        RunState {
            included: self.included_layers.clone(),
            files: self.files.clone(),
            exports: self.exports.clone(),
            lost: self.lost.clone(),
            unknown: self.unknown.union(&self.forgotten).cloned().collect(),
            ..RunState::default()
        }
    }

    /// Continues with the values of another run of the same plan. The facts of `state` are those
    /// that `new` has got.
    pub fn restore(&mut self, state: &RunState) {
        self.registers = VarMap::from_untrusted(&state.registers);
        state.included.iter().for_each(|(layer, name)| self.include(*layer, name.as_deref()));
        self.files.clone_from(&state.files);
        self.exports = state.exports.clone();
        self.params = state.params.iter().map(|layer| Arc::new(VarMap::from_untrusted(layer))).collect();
        let others = state.others.iter().map(|(host, vars)| (host.clone(), VarMap::from_untrusted(vars)));
        self.others = Arc::new(others.collect());
        self.lose(&state.lost);
        state.unknown.iter().for_each(|name| self.forget(name));
    }

    /// Marks the value of `name` as unknown: from here on, only a real run knows it.
    pub fn forget(&mut self, name: &str) {
        self.unknown.insert(name.to_owned());
        self.forgotten.insert(name.to_owned());
    }

    /// Adds the variables that a role exports to the rest of the play.
    pub fn export(&mut self, exports: &Exports) {
        self.exports.defaults.extend(&exports.defaults);
        self.exports.vars.extend(&exports.vars);
    }

    /// Starts a play: drops the exports of the previous play and selects the play's `vars_files`.
    pub fn open_play(&mut self, play: &Play) {
        self.exports = Exports::default();
        self.files.clear();
        for file in &play.files {
            let scope = self.scope(play, &Task::default());
            let (found, trace) = with_trace(|| {
                file.names.iter().find_map(|name| match expr::render_text(&scope, name) {
                    Ok(name) => file.choices.get(&name).copied(),
                    // A name that cannot be rendered is treated as a file that does not exist.
                    Err(_) => None,
                })
            });
            match found {
                _ if trace.unknown => self.forget_layers(file.choices.values().copied().collect(), None),
                Some(layer) => self.files.push(layer),
                None => {}
            }
        }
    }

    /// Removes failed and unreachable hosts from the variables that list the hosts of a play.
    pub fn lose(&mut self, hosts: &BTreeSet<String>) {
        self.lost.extend(hosts.iter().cloned());
        let lost = |var: &Var| matches!(var, Var::Plain(Value::String(name)) if hosts.contains(name));
        for layer in self.layers.iter_mut().filter(|_| !hosts.is_empty()) {
            for name in PLAY_HOSTS {
                if let Some(Var::List(all)) = layer.get(name) {
                    let left = all.iter().filter(|var| !lost(var)).cloned().collect();
                    Arc::make_mut(layer).set(name, Var::List(Arc::new(left)));
                }
            }
        }
    }

    /// Adds the variables of a file for the rest of the run. With `name`, they become fields of
    /// that variable.
    pub fn include(&mut self, layer: u32, name: Option<&str>) {
        let Some(vars) = self.layers.get(layer as usize).cloned() else { return };
        self.included_layers.push((layer, name.map(str::to_owned)));
        let included = Arc::make_mut(&mut self.included);
        match name {
            Some(name) => included.set(name, Var::Map(vars.clone())),
            None => vars.iter().for_each(|(name, var)| included.set(name, var.clone())),
        }
        let known = |known: &String| name.map_or_else(|| vars.get(known).is_some(), |name| name == known);
        self.unknown.retain(|name| !known(name));
        self.forgotten.retain(|name| !known(name));
    }

    /// Marks all variables as unknown that any variable file of the task sets, because only a real
    /// run knows which file the task reads.
    pub fn forget_files(&mut self, task: &Task) {
        let name = task.args.get("name").and_then(Value::as_str);
        self.forget_layers(task.files.vars_files.values().copied().collect(), name);
    }

    fn forget_layers(&mut self, layers: Vec<u32>, name: Option<&str>) {
        let plan = self.plan;
        for layer in layers.into_iter().filter_map(|layer| plan.layers.get(layer as usize)) {
            match name {
                Some(name) => self.forget(name),
                None => layer.keys().for_each(|name| self.forget(name)),
            }
        }
    }

    /// Drops all facts (`meta: clear_facts`).
    pub fn clear_facts(&mut self) {
        let kept = ["omit", "ansible_check_mode"];
        let names =
            self.facts.iter().map(|(name, _)| name.to_string()).filter(|n| !kept.contains(&n.as_str())).collect();
        self.facts = Arc::new(self.facts.without_names(&names));
    }

    pub fn scope(&self, play: &Play, task: &Task) -> ExprScope {
        let pick = |list: &[u32]| list.iter().filter_map(|i| self.layers.get(*i as usize).cloned()).collect::<Vec<_>>();
        let registers = Arc::new(self.registers.clone());
        let mut own = vec![self.inventory.clone(), self.facts.clone(), self.included.clone(), registers.clone()];
        self.leave_out_forgotten(&mut own);
        let mut layers = pick(&play.defaults);
        layers.extend(pick(&self.exports.defaults));
        layers.extend(pick(&task.layers.defaults));
        layers.extend(own[..2].iter().cloned());
        layers.extend(pick(&play.vars));
        layers.extend(pick(&self.files));
        layers.extend(pick(&play.exports));
        layers.extend(pick(&self.exports.vars));
        layers.extend(pick(&task.layers.vars));
        layers.extend(own[2..].iter().cloned());
        self.leave_out_forgotten(&mut layers);
        layers.extend(pick(&task.layers.params));
        layers.extend(self.params.iter().cloned());
        layers.push(self.extra.clone());
        own.push(self.extra.clone());
        let (others, others_change) = (self.others.clone(), self.others_change);
        let place = filters::lookup_place(&task.place.file);
        let answers = self.lookups.as_ref().map(|link| {
            let values = ValuesOfRun {
                facts: self.facts.clone(),
                registers,
                params: self.params.clone(),
                others: self.others.clone(),
                rest: self.state_without_variables(),
                layers: layers.len(),
            };
            link.answers(task, values)
        });
        let own = HostLayers { name: self.plan.host.clone(), layers: own, others, others_change, place, answers };
        ExprScope::new(layers, self.unknown.clone()).with_host(Arc::new(own))
    }

    fn leave_out_forgotten(&self, layers: &mut [Arc<VarMap>]) {
        for layer in layers.iter_mut().filter(|layer| self.forgotten.iter().any(|name| layer.get(name).is_some())) {
            *layer = Arc::new(layer.without_names(&self.forgotten));
        }
    }
}

/// Whether all conditions hold. An error carries the line of the condition that could not be
/// evaluated.
pub fn all_hold(scope: &ExprScope, conditions: &[TaskCondition]) -> Result<bool, (u32, Error)> {
    for condition in conditions {
        if !expr::truth(scope, &condition.text).map_err(|e| (condition.line, e))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The label that events show for an item of a loop, and the error of a label that cannot be
/// rendered.
pub fn label(scope: &ExprScope, repeat: &Repeat, item: &Value) -> (String, Option<String>) {
    let (text, fault) = match &repeat.label {
        None => (item.as_str().map_or_else(|| item.to_string(), str::to_owned), None),
        Some(label) => match expr::render_text(scope, label) {
            Ok(text) => (text, None),
            // The item itself may contain what the label is to hide.
            Err(e) => (label.clone(), Some(format!("Failed to template loop_control.label: {}", expr::explain(&e)))),
        },
    };
    (text.chars().take(200).collect(), fault)
}

/// The rendered options of a task. Options that are expressions themselves are not rendered.
pub fn args(scope: &ExprScope, task: &Task) -> Result<Map<String, Value>, String> {
    let mut out = Map::new();
    for (name, value) in &task.args {
        out.extend(option(scope, task, name, value)?);
    }
    Ok(out)
}

/// The rendered options of a task that `scope` suffices for, and the names of the others.
pub fn known_args(scope: &ExprScope, task: &Task) -> (Map<String, Value>, Vec<String>) {
    let (mut known, mut unknown) = (Map::new(), Vec::new());
    for (name, value) in &task.args {
        match option(scope, task, name, value) {
            Ok(rendered) => known.extend(rendered),
            Err(_) => unknown.push(name.clone()),
        }
    }
    (known, unknown)
}

/// A rendered option of a task. None: the option is omitted.
fn option(scope: &ExprScope, task: &Task, name: &str, value: &Value) -> Result<Option<(String, Value)>, String> {
    let raw = matches!(
        (task.module.as_str(), name),
        ("assert", "that") | (REFUSED, _) | ("debug", "var") | ("command" | "script", "words")
    );
    if raw {
        return Ok(Some((name.to_owned(), value.clone())));
    }
    let name =
        if has_markup(name) { expr::render_text(scope, name).map_err(|e| expr::explain(&e))? } else { name.to_owned() };
    let rendered = expr::render_json(scope, value).map_err(|e| format!("`{name}`: {}", expr::explain(&e)))?;
    // A mode that a variable holds as a number is octal, as in Ansible.
    let octal = if name == "mode" && task.module != "set_fact" { octal_mode(&rendered) } else { None };
    let rendered = octal.map_or(rendered, Value::String);
    Ok((rendered.as_str() != Some(OMIT)).then_some((name, rendered)))
}

/// The rendered `environment` of a task.
pub fn environment(scope: &ExprScope, task: &Task) -> Result<Vec<(String, String)>, String> {
    let mut out = Vec::new();
    for value in &task.environment {
        match expr::render_json(scope, value).map_err(|e| format!("`environment`: {}", expr::explain(&e)))? {
            Value::Object(map) => {
                for (name, value) in map {
                    // As in Ansible, a value has the text of Python's `str`: `True`, `None`.
                    let text = python::text(&plain_value(&value)).map_err(|e| expr::explain(&e))?;
                    if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
                        return Err(format!("`environment`: `{name}` cannot be set"));
                    }
                    out.push((name, text));
                }
            }
            Value::Null => {}
            other => return Err(format!("`environment` takes a map, found {other}")),
        }
    }
    Ok(out)
}
