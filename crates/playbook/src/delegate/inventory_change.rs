//! Tasks that change the inventory for later plays: `add_host` and `group_by`. The controller
//! evaluates their options itself, so a compromised host contributes only its facts and the results
//! of its tasks. Such values are data: they set no template and no encrypted value. They set no
//! variables except the address, port and user of a new host, because later plays trust the
//! variables of the inventory: in lookups, paths and programs of the controller.

use super::{
    ControllerView, DelegatedRequest, DelegationError, EvaluatedTask, ReceivedState, Request, RequestLimits, TaskPath,
    decode, encode, evaluate,
};
use crate::lang::hosts::LOCAL;
use crate::modules::{ModuleResult, TaskOutcome};
use crate::plan::delegation::INVENTORY_MODULES;
use crate::plan::{Plan, PlanSecrets, Task};
use crate::run::Run;
use crate::vars::run_state::RunState;
use crate::vars::scope::with_trace;
use crate::vars::var_map::has_markup;
use crate::vars::variable_scope;
use remoor_vault::sealed_part;
use serde_json::{Map, Value, json};

/// Maximum length of the name of a host or group.
const NAME_MAX: usize = 253;
/// Maximum size in bytes of the variables of one task.
const VARS_MAX: usize = 256 << 10;
const HOST_NAMES: [&str; 3] = ["name", "hostname", "host"];
const GROUP_NAMES: [&str; 3] = ["groupname", "groups", "group"];
/// Variables that values of a host may set for a new host.
const ADDRESS: [&str; 6] =
    ["ansible_host", "ansible_port", "ansible_user", "ansible_ssh_host", "ansible_ssh_port", "ansible_ssh_user"];
const BY_HOST: &str = "it depends on facts, on results of tasks, or on variables that a task has set";

/// Where the values come from that a run may have gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The run has used no other machine than that of the controller.
    ThisMachine,
    /// They may come from a compromised host.
    Hosts,
}

/// A change of the inventory that a task requests.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedChange {
    pub limits: RequestLimits,
    pub host: String,
    pub groups: Vec<String>,
    /// Whether values of a host have chosen the name.
    pub named_by_host: bool,
    /// Groups that contain each of `groups`.
    pub parents: Vec<String>,
    /// The variables that the task sets for the host, as values of an inventory.
    pub vars: Map<String, Value>,
    /// The texts in `vars` that no output may show.
    pub secrets: PlanSecrets,
    /// What the task registers.
    result: Value,
}

impl PlannedChange {
    /// The answer to the run. `changed`: whether the inventory did not contain this before.
    pub fn answer(&self, changed: bool) -> Vec<u8> {
        encode(&Ok(TaskOutcome { changed, ..TaskOutcome::default() }.with_result(self.result.clone())))
    }
}

/// The change of the inventory that a run of `plan` requests.
pub fn plan_inventory_change(
    plan: &Plan,
    request: DelegatedRequest,
    controller: &ControllerView,
    origin: ValueOrigin,
) -> Result<PlannedChange, DelegationError> {
    let changes = |task: &Task| INVENTORY_MODULES.contains(&task.module.as_str());
    let copy = request.clone();
    let EvaluatedTask { task, scope, limits, .. } =
        evaluate(plan, request, controller, (&changes, "the task does not change the inventory"))?;
    let (args, trace) = with_trace(|| variable_scope::args(&scope, task));
    if trace.unknown {
        return Err(DelegationError::Unknown);
    }
    let failed = DelegationError::Failed;
    let args = args.map_err(failed)?;
    let mut change = match task.module.as_str() {
        "add_host" => added_host(args.clone()),
        _ => group_of_host(plan, &args),
    }
    .map_err(failed)?;
    if task.module == "add_host" && origin == ValueOrigin::Hosts {
        let of_playbook = options_of_playbook(plan, copy, controller);
        let by_host = |name: &str| args.get(name).is_some_and(|value| of_playbook.get(name) != Some(value));
        let known = (controller.host_vars)(&change.host).is_some();
        check_origin(&change, known, &by_host).map_err(failed)?;
        change.named_by_host = HOST_NAMES.iter().any(|name| by_host(name));
    }
    change.limits = limits;
    change.secrets = plan.secrets.restricted_to(&[Value::Object(change.vars.clone()).to_string()]);
    Ok(change)
}

/// The options that have the same value whatever the host has sent.
fn options_of_playbook(plan: &Plan, request: DelegatedRequest, controller: &ControllerView) -> Map<String, Value> {
    let evaluate = || {
        let DelegatedRequest { task: id, item, state } = request;
        let own = RunState::from_message(state).ok()?;
        let without =
            RunState { facts: Map::new(), registers: Map::new(), others: Default::default(), ..own }.to_message();
        let ReceivedState { layers, mut frame, .. } = ReceivedState::read(plan, without, controller).ok()?;
        let path = TaskPath::find(plan, id)?;
        // Without the variables of an include, the options that read them have no value.
        let _opened = path.open(&mut frame, &layers);
        let mut scope = frame.scope(path.play, path.task);
        if let (Some(repeat), Some((index, item))) = (&path.task.repeat, item) {
            let items = variable_scope::items(&scope, repeat).unwrap_or_default();
            if items.get(index) == Some(&item) {
                scope = scope.with_layer(variable_scope::item_layer(repeat, &items, index));
            }
        }
        let mut options = Map::new();
        for (name, value) in &path.task.args {
            let one = Task { args: [(name.clone(), value.clone())].into_iter().collect(), ..path.task.clone() };
            options.extend(variable_scope::args(&scope, &one).unwrap_or_default());
        }
        Some(options)
    };
    evaluate().unwrap_or_default()
}

/// Refuses what values of a host may not choose. `by_host`: whether an option depends on them.
fn check_origin(change: &PlannedChange, known: bool, by_host: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let host = &change.host;
    let named_by_host = HOST_NAMES.iter().any(|name| by_host(name));
    if named_by_host && LOCAL.contains(&host.as_str()) {
        return Err(format!("only the playbook may name this machine, `{host}`: {BY_HOST}"));
    }
    for name in change.vars.keys() {
        if known && named_by_host {
            return Err(format!("`{name}` cannot be set for the known host `{host}`, because of its name: {BY_HOST}"));
        }
        if by_host(name) && (known || !ADDRESS.contains(&name.as_str())) {
            return Err(format!("only the playbook may choose `{name}` of the host `{host}`: {BY_HOST}"));
        }
        if by_host(name) {
            check_address(name, &change.vars[name])?;
        }
    }
    Ok(())
}

/// Refuses a value that is no address, because programs of the controller may get it as an
/// argument.
fn check_address(name: &str, value: &Value) -> Result<(), String> {
    let text = text_of(value.clone());
    let valid = match name.ends_with("port") {
        true => text.parse::<u16>().is_ok_and(|port| port > 0),
        false => !text.starts_with('-') && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-:@%".contains(c)),
    };
    if valid { Ok(()) } else { Err(format!("`{text}` cannot be the value of `{name}`")) }
}

fn added_host(mut args: Map<String, Value>) -> Result<PlannedChange, String> {
    let mut take = |names: [&str; 3]| names.map(|name| args.remove(name)).into_iter().flatten().find(|v| !v.is_null());
    let (host, groups) = (take(HOST_NAMES), take(GROUP_NAMES));
    let host = host.map(text_of).unwrap_or_default();
    let mut vars = args;
    // A name may end with a port. An address of IPv6 has several colons.
    let host = match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.parse::<u16>().is_ok() => {
            vars.insert("ansible_ssh_port".to_owned(), json!(port.parse::<u16>().unwrap_or_default()));
            name.to_owned()
        }
        _ => host,
    };
    let host = valid_name(host.trim())?;
    let mut names: Vec<String> = Vec::new();
    for name in names_of(groups, Split::AtCommas)? {
        let name = valid_name(&name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let result = json!({"add_host": {"host_name": host, "groups": names, "host_vars": vars}});
    let size = Value::Object(vars.clone()).to_string().len();
    if size > VARS_MAX {
        return Err(format!("the variables of `{host}` are larger than {} KiB", VARS_MAX >> 10));
    }
    if let Some(name) = vars.iter().find_map(|(name, value)| sealed_part(value).map(|_| name)) {
        return Err(format!("`{name}` is an encrypted value, which a task cannot set"));
    }
    let vars = vars.into_iter().map(|(name, value)| (name, escape_markup(value))).collect();
    Ok(PlannedChange { host, groups: names, vars, ..PlannedChange::new(result) })
}

fn group_of_host(plan: &Plan, args: &Map<String, Value>) -> Result<PlannedChange, String> {
    let named = |name: &str| valid_name(&name.replace(' ', "-"));
    let group = named(&args.get("key").cloned().map(text_of).unwrap_or_default())?;
    let parents = match args.get("parents") {
        None => vec!["all".to_owned()],
        Some(given) => {
            names_of(Some(given.clone()), Split::No)?.iter().map(|name| named(name)).collect::<Result<_, _>>()?
        }
    };
    let result = json!({"add_group": group, "parent_groups": parents});
    Ok(PlannedChange { host: plan.host.clone(), groups: vec![group], parents, ..PlannedChange::new(result) })
}

impl PlannedChange {
    fn new(result: Value) -> Self {
        Self {
            limits: RequestLimits::default(),
            host: String::new(),
            named_by_host: false,
            groups: Vec::new(),
            parents: Vec::new(),
            vars: Map::new(),
            secrets: PlanSecrets::default(),
            result,
        }
    }
}

/// Whether a text is a list of names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Split {
    AtCommas,
    No,
}

fn names_of(value: Option<Value>, split: Split) -> Result<Vec<String>, String> {
    Ok(match value {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items.into_iter().map(|item| text_of(item).trim().to_owned()).collect(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(Value::String(text)) if split == Split::No => vec![text],
        Some(Value::String(text)) => text.split(',').map(|name| name.trim().to_owned()).collect(),
        Some(other) => return Err(format!("a list of groups is expected, found {other}")),
    })
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Refuses a name that no host or group may have. The name may come from a compromised host. It
/// becomes part of patterns of hosts, of the paths of `group_vars` and `host_vars`, and of commands
/// of lookups.
fn valid_name(name: &str) -> Result<String, String> {
    let valid = !name.is_empty()
        && name.len() <= NAME_MAX
        && !name.starts_with(['-', '.', '@'])
        && name.chars().all(|c| c.is_alphanumeric() || "._-:@%+=".contains(c));
    valid.then(|| name.to_owned()).ok_or_else(|| format!("`{name}` cannot be the name of a host or group"))
}

/// A value whose texts are data, as a value of an inventory, whose texts are templates.
fn escape_markup(value: Value) -> Value {
    let text = |text: String| if has_markup(&text) { text.replace('{', "{{ '{' }}") } else { text };
    match value {
        Value::String(own) => Value::String(text(own)),
        Value::Array(items) => items.into_iter().map(escape_markup).collect(),
        Value::Object(map) => map.into_iter().map(|(name, item)| (text(name), escape_markup(item))).collect(),
        other => other,
    }
}

impl<'a> Run<'a, '_> {
    /// Lets the controller change the inventory for later plays.
    pub(crate) fn change_inventory(&mut self, task: &'a Task) -> ModuleResult {
        let Some(link) = &self.options.controller else {
            return Err(format!("`{}` works only during `remoor play`", task.module));
        };
        let request = DelegatedRequest { task: task.id, item: self.item_for_request(), state: self.state_for(task) };
        decode(&link.ask(&Request::Inventory(request))?)
    }
}
