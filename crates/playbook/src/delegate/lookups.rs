//! Lookups that a run asks the controller for, such as `password` and `pipe`, and calls of filters
//! and tests in Python.
//!
//! ```text
//! run ──Lookup: task, values, item, call──> controller: plan_lookup -> PlannedLookup
//! run <──LookupAnswer────────────────────── controller performs the lookup
//! ```
//! The host may be compromised. So the controller evaluates the task with its own copy of the plan,
//! and performs the call only if this evaluation makes it. The values of the host are data: they
//! can be part of an argument only where the playbook uses facts or results there. A filter or test
//! gets them as its input, so the host chooses this input, but never the plugin.

use super::include_chain::TaskPath;
use super::{ControllerLink, ControllerView, DelegationError, ReceivedState, Request};
use crate::compile;
use crate::filters::{self, AnswersLookups, LookupAnswer, LookupCall, PluginKind, PluginSet};
use crate::modules;
use crate::plan::{Plan, Play, RepeatKind, Task, TaskCondition};
use crate::run::task::scope_with_result;
use crate::template::{expr, lint};
use crate::vars::run_state::RunState;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::unknown;
use crate::vars::var_map::{VarMap, has_markup};
use crate::vars::variable_scope::{self, VariableScope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The variable with the name of the loop variable, which only the variables of an item contain.
const LOOP_VAR: &str = "ansible_loop_var";
/// Variables besides those that begin with `ansible_` that plugins receive.
const PLUGIN_VARIABLES: [&str; 6] =
    ["group_names", "groups", "inventory_dir", "inventory_hostname", "playbook_dir", "role_path"];

/// A request for a lookup.
#[derive(Debug, Serialize, Deserialize)]
pub struct LookupRequest {
    task: u32,
    /// A `RunState` in the form of messages.
    state: Value,
    /// The variables of the item, if the task has a loop.
    item: Option<Map<String, Value>>,
    /// The result of the task, in conditions that judge it.
    result: Option<Value>,
    call: LookupCall,
}

/// A lookup that the controller performs.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedLookup {
    pub call: LookupCall,
    /// Directories below the root of the playbook's files, in order: those in which a lookup
    /// searches, or those with the plugins of filters and tests.
    pub places: Vec<String>,
    /// Variables of the inventory and the playbook for a plugin. The host has no influence on them.
    pub variables: Map<String, Value>,
    /// Whether the arguments depend on facts or results of the host, which may be compromised.
    /// False for filters and tests, whose input may always be a value of the host.
    pub depends_on_host: bool,
}

/// The lookup that a run of `plan` requests. It must be called within `with_lookup_answers`.
pub fn plan_lookup(
    plan: &Plan,
    request: LookupRequest,
    controller: &ControllerView,
) -> Result<PlannedLookup, DelegationError> {
    let forbidden = |why: &str| DelegationError::Forbidden(why.to_owned());
    let LookupRequest { task: id, state, item, result, call } = request;
    let ReceivedState { mut state, layers, mut frame } = ReceivedState::read(plan, state, controller)?;
    let path = TaskPath::find_with_includes(plan, id).ok_or_else(|| forbidden("it names no task"))?;
    let (play, task) = (path.play, path.task);
    controller.check_begun(plan, play)?;
    let mut outcome = Ok(());
    let made = filters::makes_call(&call, || {
        outcome = path.open(&mut frame, &layers).and_then(|_| {
            if filters::has_found() {
                return Ok(());
            }
            TaskSearch { plan, task, scope: frame.scope(play, task) }.run(item.as_ref(), result.as_ref())
        });
    });
    match (made, outcome) {
        (true, _) => {}
        (false, Err(error)) => return Err(error),
        (false, Ok(())) => {
            let (kind, name) = (call.plugin.as_word(), &call.name);
            let why = format!("the controller's evaluation does not make this call of the {kind} `{name}`");
            return Err(DelegationError::Failed(format!("{why} with its own variables")));
        }
    }
    let variables = variables_for_plugin(plan, play, task, controller);
    if matches!(call.plugin, PluginKind::Filter | PluginKind::Test) {
        let places = PluginSet::of_plan(&plan.extra).dirs;
        return Ok(PlannedLookup { call, places, variables, depends_on_host: false });
    }
    let places = filters::search_places(&task.place.file, &plan.playbook);
    state.facts.clear();
    state.registers.clear();
    state.others.clear();
    let mut frame = VariableScope::new(plan, &Map::new());
    frame.restore(&state);
    // The items of includes must not come from the host either.
    let has_loops = path.include_tasks().any(|include| include.repeat.is_some());
    let opened = !has_loops || path.open(&mut frame, &layers).is_ok();
    let search = TaskSearch { plan, task, scope: frame.scope(play, task) };
    let depends_on_host = !opened || !filters::makes_call(&call, || search.run_without_host(item.as_ref(), &call.name));
    Ok(PlannedLookup { call, places, variables, depends_on_host })
}

/// The variables of the inventory and the playbook for a plugin.
fn variables_for_plugin(plan: &Plan, play: &Play, task: &Task, controller: &ControllerView) -> Map<String, Value> {
    let mut variables = plugin_variables(plan, play, task);
    let of_inventory = (controller.host_vars)(&plan.host).unwrap_or_default();
    let plain = |value: &Value| !value.as_str().is_some_and(has_markup);
    let of_inventory = of_inventory.into_iter().filter(|(name, value)| is_for_plugins(name) && plain(value));
    for (name, value) in of_inventory {
        variables.entry(name).or_insert(value);
    }
    variables.insert("inventory_hostname".to_owned(), plan.host.clone().into());
    variables
}

fn is_for_plugins(name: &str) -> bool {
    name.starts_with("ansible_") || PLUGIN_VARIABLES.contains(&name)
}

/// The variables of the plan that a plugin may read as its settings.
fn plugin_variables(plan: &Plan, play: &Play, task: &Task) -> Map<String, Value> {
    let frame = VariableScope::new(plan, &Map::new());
    let scope = frame.scope(play, task);
    let names = scope.names();
    let names = names.iter().filter(|name| is_for_plugins(name));
    let value = |name: &Arc<str>| {
        let value = expr::to_json(&scope.value(name, scope.get(name)?)).ok()?;
        Some((name.to_string(), value))
    };
    names.filter_map(value).collect()
}

/// Evaluates the texts of a task until the wanted lookup is called.
struct TaskSearch<'p> {
    plan: &'p Plan,
    task: &'p Task,
    scope: ExprScope,
}

impl TaskSearch<'_> {
    /// The error says why the controller would not reach the lookup.
    fn run(&self, item: Option<&Map<String, Value>>, result: Option<&Value>) -> Result<(), DelegationError> {
        let failed = |why: String| DelegationError::Failed(why);
        let layer = match &self.task.repeat {
            None => None,
            Some(repeat) => {
                let (items, trace) = with_trace(|| variable_scope::items(&self.scope, repeat));
                if filters::has_found() || item.is_none() {
                    return Ok(());
                }
                if trace.unknown {
                    return Err(DelegationError::Unknown);
                }
                let items = items.map_err(|e| failed(format!("loop: {e}")))?;
                let layers = (0..items.len()).map(|index| variable_scope::item_layer(repeat, &items, index));
                let known = layers.into_iter().find(|layer| Some(&layer.json()) == item);
                let other = || failed("the loop has other items on the controller than on the host".to_owned());
                Some(known.ok_or_else(other)?)
            }
        };
        let scope = layer.map_or_else(|| self.scope.clone(), |layer| self.scope.with_layer(layer));
        match unknown::all_hold(&scope, &self.task.when) {
            _ if filters::has_found() => return Ok(()),
            Ok(Some(true)) => {}
            Ok(Some(false)) => return Err(failed("the condition does not hold on the controller".to_owned())),
            // Check mode evaluates no further texts of such a task.
            Ok(None) => return Err(DelegationError::Unknown),
            Err((line, e)) => {
                return Err(failed(format!("{}:{line}: when: {}", self.task.place.file, expr::explain(&e))));
            }
        }
        self.options(&scope);
        if !filters::has_found() {
            self.rules(&scope, result);
        }
        Ok(())
    }

    /// Like `run`, without values of the host. So conditions that need them count as true.
    fn run_without_host(&self, item: Option<&Map<String, Value>>, name: &str) {
        let mut scope = self.scope.clone();
        if let (Some(repeat), Some(item)) = (&self.task.repeat, item) {
            let items = variable_scope::items(&scope, repeat).unwrap_or_default();
            let mut layers = (0..items.len()).map(|index| variable_scope::item_layer(repeat, &items, index));
            scope = layers.find(|layer| layer.json() == *item).map_or_else(|| scope.clone(), |l| scope.with_layer(l));
        } else if let Some(repeat) = &self.task.repeat {
            let _items = variable_scope::items(&scope, repeat);
        }
        self.task.when.iter().for_each(|condition| drop(unknown::holds(&scope, &condition.text)));
        self.options(&scope);
        self.rules(&scope, None);
        self.calls(&scope, name);
    }

    /// Evaluates each call of the lookup `name` for itself. Another part of the text around it may
    /// need values of the host.
    fn calls(&self, scope: &ExprScope, name: &str) {
        let mut texts = Vec::new();
        let conditions = self.task.when.iter().chain(self.task.outcome.changed_when.iter().flatten());
        let conditions = conditions.chain(self.task.outcome.failed_when.iter().flatten());
        texts.extend(conditions.map(|TaskCondition { text, .. }| format!("{{{{ {text} }}}}")));
        let task = serde_json::to_value(self.task).unwrap_or_default();
        each_text(&task, &mut |text| texts.push(text.to_owned()));
        let files = self.task.files.assets.values().chain(self.task.files.parts.values());
        let files = files.filter_map(|asset| modules::asset_content(self.plan, asset).ok());
        texts.extend(files.filter_map(|content| std::str::from_utf8(content).ok()).map(str::to_owned));
        let names = scope.names();
        for variable in names.iter().filter(|name| !matches!(&***name, "groups" | "hostvars" | "peers")) {
            if let Some(var) = scope.get(variable) {
                each_text(&var.json(), &mut |text| texts.push(text.to_owned()));
            }
        }
        for lookup in texts.iter().filter(|text| has_markup(text)).flat_map(|text| lint::lookups(text)) {
            if filters::has_found() {
                return;
            }
            if filters::short_name(&lookup.name) == name {
                let arguments: String = lookup.arguments.iter().map(|argument| format!(", {argument}")).collect();
                drop(expr::eval(scope, &format!("query('{name}'{arguments})")));
            }
        }
    }

    /// The options, and the content of templates.
    fn options(&self, scope: &ExprScope) {
        let task = self.task;
        for (name, value) in &task.args {
            match (task.module.as_str(), name.as_str()) {
                ("assert", "that") | ("debug", "var") => each_text(value, &mut |text| drop(expr::truth(scope, text))),
                _ => render_texts(scope, value),
            }
            if has_markup(name) {
                drop(expr::native(scope, name));
            }
        }
        task.environment.iter().for_each(|value| render_texts(scope, value));
        if task.module == "template"
            && !filters::has_found()
            && let Ok(args) = variable_scope::args(scope, task)
        {
            drop(modules::content_of(self.plan, task, &args, scope));
        }
    }

    /// The name of the task, its loop control, and the conditions that judge its result.
    fn rules(&self, scope: &ExprScope, result: Option<&Value>) {
        let task = self.task;
        let texts = [Some(&task.name), task.repeat.as_ref().and_then(|repeat| repeat.label.as_ref())];
        texts.into_iter().flatten().filter(|text| has_markup(text)).for_each(|text| drop(expr::native(scope, text)));
        let values = [&task.retry.retries, &task.retry.delay, &task.outcome.ignore_errors, &task.timeout];
        let modes = [&task.modes.check_mode, &task.modes.diff];
        values.into_iter().chain(modes).flatten().for_each(|value| render_texts(scope, value));
        if let Some(delegation) = &task.hosts.delegation {
            drop(expr::native(scope, &delegation.to));
        }
        let judged = result.map(|result| scope_with_result(scope, task, result));
        let judged = judged.as_ref().unwrap_or(scope);
        let breaks = task.repeat.as_ref().map(|repeat| &repeat.break_when);
        let conditions = [&task.outcome.failed_when, &task.outcome.changed_when, &task.retry.until];
        let conditions = conditions.into_iter().flatten().chain(breaks);
        conditions.flatten().for_each(|TaskCondition { text, .. }| drop(unknown::holds(judged, text)));
    }
}

/// Renders each text of a value for itself, because one that fails must not hide the others.
fn render_texts(scope: &ExprScope, value: &Value) {
    each_text(value, &mut |text| {
        if has_markup(text) && !filters::has_found() {
            drop(expr::native(scope, text));
        }
    });
}

fn each_text(value: &Value, f: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => f(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, f)),
        Value::Object(map) => map.iter().for_each(|(name, item)| {
            if has_markup(name) {
                f(name);
            }
            each_text(item, f);
        }),
        _ => {}
    }
}

/// The connection of a run to the controller, for lookups.
#[derive(Debug, Clone)]
pub(crate) struct LookupLink {
    link: ControllerLink,
    /// The names that the plan may read. None: it reads computed names.
    names: Option<Arc<BTreeSet<String>>>,
}

impl LookupLink {
    /// None: the plan calls no lookup, no plugin and no test of files.
    pub fn new(link: &ControllerLink, plan: &Plan) -> Option<Self> {
        let (words, whole) = compile::words_of(plan);
        let calls = ["lookup", "query", "q"].iter().any(|name| words.contains(*name));
        let mut loops = false;
        plan.each_task(&mut |task| {
            loops |= task.repeat.as_ref().is_some_and(|repeat| repeat.kind == RepeatKind::Lookup);
        });
        let plugins = plan.extra.contains_key(filters::PLUGINS);
        let tests = filters::names_of_file_tests().any(|name| words.contains(name));
        (calls || loops || whole || plugins || tests)
            .then(|| Self { link: link.clone(), names: (!whole).then(|| Arc::new(words)) })
    }

    /// The answers for a task that begins with these values.
    pub fn answers(&self, task: &Task, values: ValuesOfRun) -> Arc<dyn AnswersLookups> {
        Arc::new(TaskLookups { link: self.clone(), task: task.id, register: task.register.clone(), values })
    }
}

/// The values of a run when it evaluates a task, as `VariableScope` has them.
#[derive(Debug)]
pub(crate) struct ValuesOfRun {
    pub facts: Arc<VarMap>,
    pub registers: Arc<VarMap>,
    pub params: Vec<Arc<VarMap>>,
    pub others: Arc<BTreeMap<String, VarMap>>,
    /// The other fields of the state.
    pub rest: RunState,
    /// Number of layers of the scope. Further layers are those of an item or a result.
    pub layers: usize,
}

#[derive(Debug)]
struct TaskLookups {
    link: LookupLink,
    task: u32,
    register: Option<String>,
    values: ValuesOfRun,
}

impl AnswersLookups for TaskLookups {
    fn answer(&self, scope: &ExprScope, call: &LookupCall) -> LookupAnswer {
        let values = &self.values;
        let needed = |mut all: Map<String, Value>| {
            if let Some(names) = &self.link.names {
                all.retain(|name, _| names.contains(name) || matches!(name.as_str(), "omit" | "ansible_check_mode"));
            }
            all
        };
        let state = RunState {
            facts: needed(values.facts.json()),
            registers: needed(values.registers.json()),
            params: values.params.iter().map(|layer| layer.json()).collect(),
            others: values.others.iter().map(|(host, vars)| (host.clone(), vars.json())).collect(),
            ..values.rest.clone()
        };
        let added = scope.layers().iter().skip(values.layers);
        let item = added.clone().find(|layer| layer.get(LOOP_VAR).is_some()).map(|layer| layer.json());
        let result = self.register.as_ref().and_then(|name| added.rev().find_map(|layer| layer.get(name)));
        let request = LookupRequest {
            task: self.task,
            state: state.to_message(),
            item,
            result: result.map(|result| result.json()),
            call: call.clone(),
        };
        let answer = self.link.link.ask(&Request::Lookup(Box::new(request)));
        let unreadable = |e: serde_json::Error| format!("the answer of the controller is not readable: {e}");
        let answer = answer.and_then(|answer| serde_json::from_slice(&answer).map_err(unreadable));
        answer.unwrap_or_else(LookupAnswer::Failed)
    }
}

impl LookupAnswer {
    /// The answer in the form of messages.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The answer to a request that the controller does not perform.
    pub fn of_error(error: &DelegationError) -> Self {
        match error {
            DelegationError::Unknown => Self::Unknown,
            DelegationError::Failed(_) | DelegationError::Forbidden(_) => Self::Failed(error.to_string()),
        }
    }
}
