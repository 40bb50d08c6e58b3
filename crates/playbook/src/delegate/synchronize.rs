//! The module `synchronize`. Its rsync runs on the controller or on the host of `delegate_to`, and
//! connects to the host of the plan.
//!
//! ```text
//! run ──Delegate: task, values──> controller: plan_delegated -> DelegatedTask with RsyncTransfer
//!                                 controller: finds the connection -> RsyncTransfer::connect
//! ```
//! The host may be compromised. So the options are evaluated on the controller, once with and once
//! without the values of the host. `by_host` names the options on which it has an influence. The
//! environment of the task counts as an option, because it decides which programs run.

use super::include_chain::TaskPath;
use super::{ControllerView, DelegatedRequest, DelegationError, ReceivedState};
use crate::modules::{CONNECTS, RSYNC_SHELL, SYNCHRONIZE, TaskOutcome};
use crate::plan::{Plan, PlanStep, Task, TaskPrivileges};
use crate::run::Run;
use crate::run::privileges;
use crate::template::expr;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::var_map::{self, has_markup};
use crate::vars::variable_scope::{self, VariableScope};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The name of the environment of a task, as in playbooks.
const ENVIRONMENT: &str = "environment";

/// What the task says about rsync, without templates.
#[derive(Debug)]
pub struct RsyncTransfer {
    options: Map<String, Value>,
    environment: Map<String, Value>,
    /// The options on whose values the host of the plan has an influence, and perhaps
    /// `environment`.
    by_host: BTreeSet<String>,
    privileges: TaskPrivileges,
    /// The file with the task, for relative paths.
    pub file: String,
}

/// The machine to which rsync connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RsyncRoute {
    /// None: both paths are on the machine that runs rsync.
    Here,
    /// The host of the plan, over the login that this run of `remoor play` has already.
    Login { socket: PathBuf, host: String, user: String },
    /// The host of the plan, over a login of the host that runs rsync.
    Ssh { host: String, port: u16, user: String },
}

impl RsyncTransfer {
    /// Evaluates the options of the task that `request` means. None: the task does not connect to
    /// the host of the plan.
    pub(super) fn evaluate(
        plan: &Plan,
        request: DelegatedRequest,
        controller: &ControllerView,
        (task, scope): (&Task, &ExprScope),
    ) -> Result<Option<Self>, DelegationError> {
        if task.module != SYNCHRONIZE || !task.args.contains_key(CONNECTS) {
            return Ok(None);
        }
        let ((options, environment, privileges), trace) = with_trace(|| {
            let environment = variable_scope::environment(scope, task);
            (variable_scope::args(scope, task), environment, privileges::evaluate(task, scope))
        });
        if trace.unknown {
            return Err(DelegationError::Unknown);
        }
        let failed = DelegationError::Failed;
        let (mut options, environment, privileges) =
            (options.map_err(failed)?, environment.map_err(failed)?, privileges.map_err(failed)?);
        options.remove(CONNECTS);
        let own = scope_without_host(plan, request, controller);
        let is_own_environment =
            own.as_ref().is_some_and(|own| variable_scope::environment(own, task).is_ok_and(|own| own == environment));
        let is_same = |value: &Value| {
            let render = |scope: &ExprScope| expr::render_json(scope, value).ok();
            own.as_ref().is_some_and(|own| render(own) == render(scope))
        };
        let is_literal = |value: &Value| !has_markup(&value.to_string());
        let by_host = task.args.iter().filter(|(_, value)| !is_literal(value) && !is_same(value));
        let by_host = by_host.map(|(name, _)| name.as_str());
        let by_host = by_host.chain((!environment.is_empty() && !is_own_environment).then_some(ENVIRONMENT));
        let by_host = by_host.map(str::to_owned).collect();
        let environment = environment.into_iter().map(|(name, text)| (name, text.into())).collect();
        Ok(Some(Self { options, environment, by_host, privileges, file: task.place.file.clone() }))
    }

    /// Whether rsync copies from the host of the plan.
    fn pulls(&self) -> bool {
        self.options.get("mode").and_then(Value::as_str) == Some("pull")
    }

    fn local_option(&self) -> &'static str {
        if self.pulls() { "dest" } else { "src" }
    }

    fn remote_option(&self) -> &'static str {
        if self.pulls() { "src" } else { "dest" }
    }

    fn text(&self, option: &str) -> &str {
        self.options.get(option).and_then(Value::as_str).unwrap_or_default()
    }

    /// The path on the machine that runs rsync.
    pub fn local_path(&self) -> &str {
        self.text(self.local_option())
    }

    /// Replaces the path on the machine that runs rsync.
    pub fn set_local_path(&mut self, path: String) {
        self.options.insert(self.local_option().to_owned(), path.into());
    }

    /// The error names an option on which the host has an influence, and that could run a program
    /// on the machine that runs rsync, or read or write a file there. `may_choose` says whether the
    /// host may choose this path on that machine.
    pub fn check_origin(&self, may_choose: impl Fn(&Path) -> bool) -> Result<(), String> {
        let (remote, local) = (self.remote_option(), self.local_option());
        let is_free = |name: &str| match name {
            _ if name == remote => !self.text(remote).contains(':'),
            _ if name == local => may_choose(Path::new(self.local_path())),
            _ => false,
        };
        match self.by_host.iter().find(|name| !is_free(name)) {
            None => Ok(()),
            Some(name) => Err(explain_origin(name)),
        }
    }

    /// Puts the options into the plan of the task.
    pub fn connect(self, plan: &mut Plan, route: &RsyncRoute) -> Result<(), String> {
        let (remote, elevated) = (self.remote_option(), self.privileges.elevated);
        let path = self.text(remote).to_owned();
        let mut options = self.options;
        if let RsyncRoute::Login { host, user, .. } | RsyncRoute::Ssh { host, user, .. } = route {
            let sets_user = options.get("set_remote_user").and_then(var_map::boolean).unwrap_or(true);
            let address = match path.split_once(':') {
                None => Some(format_address(host, user.as_str(), sets_user, &path)),
                // An rsync daemon needs no login.
                Some(("rsync", rest)) if rest.starts_with("//") => None,
                Some(_) => {
                    return Err(format!("`{remote}` `{path}` names a host; only the host of the play is possible"));
                }
            };
            if let Some(address) = address {
                options.insert(remote.to_owned(), address.into());
                options.insert(RSYNC_SHELL.to_owned(), shell(route, &options).into());
            }
            // As in Ansible, `become` concerns the other machine.
            let is_set = options.get("rsync_path").and_then(Value::as_str).is_some_and(|path| !path.is_empty());
            if elevated && !is_set && !(user == "root" && self.privileges.become_user.is_none()) {
                let user = self.privileges.become_user.as_deref().unwrap_or("root");
                options.insert("rsync_path".to_owned(), format!("sudo -n -u {user} rsync").into());
            }
        }
        // What was evaluated here is not evaluated again.
        let environment = Value::Object(self.environment);
        if let Some(option) = options
            .iter()
            .chain([(&ENVIRONMENT.to_owned(), &environment)])
            .find(|(_, value)| has_markup(&value.to_string()))
        {
            return Err(format!(
                "the value of `{}` must be plain text; remove `{{{{ }}}}` from the variable that it comes from",
                option.0
            ));
        }
        let connects = !matches!(route, RsyncRoute::Here);
        for play in &mut plan.plays {
            for step in play.sections.iter_mut().flatten() {
                let PlanStep::Task(task) = step else { continue };
                task.args.clone_from(&options);
                task.environment = vec![environment.clone()];
                task.privileges = if connects { TaskPrivileges::default() } else { self.privileges.clone() };
            }
        }
        Ok(())
    }
}

/// Says that only the playbook may choose the option.
fn explain_origin(option: &str) -> String {
    format!(
        "only the playbook and the inventory may choose `{option}`, because rsync runs on another machine; it depends \
         on facts, on results of tasks, or on variables that a task has set"
    )
}

fn format_address(host: &str, user: &str, sets_user: bool, path: &str) -> String {
    let user = if sets_user && !user.is_empty() { format!("{user}@") } else { String::new() };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("{user}{host}:{path}")
}

/// The command with which rsync connects.
fn shell(route: &RsyncRoute, options: &Map<String, Value>) -> String {
    let quote = |text: &str| crate::filters::shell_quote(text);
    match route {
        RsyncRoute::Here => String::new(),
        // Without the login, ssh would connect with settings that nobody has checked.
        RsyncRoute::Login { socket, .. } => {
            format!("ssh -F none -S {} -o BatchMode=yes -o ProxyCommand=false", quote(&socket.display().to_string()))
        }
        RsyncRoute::Ssh { port, .. } => {
            let text = |name: &str| match options.get(name) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Number(number)) => number.to_string(),
                _ => String::new(),
            };
            let flag = |name: &str| options.get(name).and_then(var_map::boolean).unwrap_or(false);
            let (key, given) = (text("private_key"), text("dest_port"));
            let port = if given.is_empty() { port.to_string() } else { given };
            let mut out = "ssh -o BatchMode=yes".to_owned();
            if !flag("ssh_connection_multiplexing") {
                out.push_str(" -S none");
            }
            if !key.is_empty() {
                out.push_str(&format!(" -i {}", quote(&key)));
            }
            if port != "0" {
                out.push_str(&format!(" -o {}", quote(&format!("Port={port}"))));
            }
            if !flag("verify_host") {
                out.push_str(" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null");
            }
            out
        }
    }
}

/// The scope of the task without values of the host. None: the controller alone does not reach the
/// task or its item.
fn scope_without_host(plan: &Plan, request: DelegatedRequest, controller: &ControllerView) -> Option<ExprScope> {
    let DelegatedRequest { task: id, item, state } = request;
    let ReceivedState { mut state, layers, .. } = ReceivedState::read(plan, state, controller).ok()?;
    state.facts.clear();
    state.registers.clear();
    state.others.clear();
    let mut frame = VariableScope::new(plan, &Map::new());
    frame.restore(&state);
    let path = TaskPath::find(plan, id)?;
    // A condition of an include may need values of the host. Only items are variables of the task.
    if path.include_tasks().any(|include| include.repeat.is_some()) {
        path.open(&mut frame, &layers).ok()?;
    }
    let scope = frame.scope(path.play, path.task);
    let (Some(repeat), Some((index, item))) = (&path.task.repeat, item) else { return Some(scope) };
    let items = variable_scope::items(&scope, repeat).ok()?;
    (items.get(index) == Some(&item)).then(|| scope.with_layer(variable_scope::item_layer(repeat, &items, index)))
}

impl<'a> Run<'a, '_> {
    /// Check mode: records that `synchronize` on another machine would change this host, and that a
    /// failure may be different after the changes of earlier tasks.
    pub(super) fn predict_transfer(&mut self, task: &Task, scope: &ExprScope, outcome: TaskOutcome) -> TaskOutcome {
        if task.module != SYNCHRONIZE {
            return outcome;
        }
        if outcome.failed && self.ground.node.has_predicted_changes() {
            let msg =
                outcome.extra_keys.get("msg").and_then(Value::as_str).unwrap_or(&outcome.msg).trim_end().to_owned();
            return TaskOutcome::indeterminate(format!("{msg}; tasks that check mode did not run may change that"));
        }
        let args = variable_scope::args(scope, task).unwrap_or_default();
        let pulls = args.get("mode") == Some(&json!("pull"));
        if outcome.changed
            && !pulls
            && let Some(would) = self.ground.node.predicted_state_mut()
            && let Some(dest) = args.get("dest").and_then(Value::as_str)
        {
            would.add_skipped_path(Path::new(dest.trim_end_matches('/')));
        }
        outcome
    }
}
