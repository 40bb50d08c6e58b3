//! Requests of a run to the controller. `run_once.rs` has those about tasks that one host runs for
//! all hosts. The others run one task of a plan on another host than that of the plan.
//!
//! ```text
//! run on host A ──request──> controller: plan_delegated ──plan of one task──> run on host B
//! run on host A <──answer─── controller <──────────────────RunEnd::answer─── run on host B
//! ```
//! The controller takes the task from its own copy of the plan of A. The request contains only the
//! number of the task and the values that the run on A has gathered. `judge` and everything that
//! follows happens on A. The controller, that is, the process of `remoor play`, keeps the sessions
//! in `src/solo/play/delegate.rs`.
//!
//! `background.rs` needs no controller: it runs one task of a plan in another process of the node.

mod background;
mod fetch_file;
mod include_chain;
mod incoming_file;
mod inventory_change;
mod lookups;
mod one_task;
mod reboot;
mod request_limits;
mod run_once;
mod sent_file;
mod shared_facts;
mod synchronize;
mod throttle;

use crate::filters;
use crate::modules::{ModuleResult, PYTHON_VARIABLE, TaskOutcome};
use crate::plan::delegation::INVENTORY_MODULES;
use crate::plan::{DelegatedRun, Plan, Play, Task};
use crate::run::Run;
use crate::template::expr;
use crate::vars::protected_names::is_protected_name;
use crate::vars::run_state::RunState;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::unknown;
use crate::vars::var_map::VarMap;
use crate::vars::variable_scope::{self, VariableScope};
pub(crate) use background::is_started;
pub use background::{BackgroundJob, BackgroundStarter, run_job};
use base64::Engine as _;
pub(crate) use fetch_file::FETCH;
pub use fetch_file::{FetchAnswer, FetchRequest, FetchTarget, plan_fetch};
use include_chain::TaskPath;
pub use incoming_file::IncomingFile;
pub use inventory_change::{PlannedChange, ValueOrigin, plan_inventory_change};
pub(crate) use lookups::{LookupLink, ValuesOfRun};
pub use lookups::{LookupRequest, PlannedLookup, plan_lookup};
pub use reboot::RebootRequest;
pub(crate) use reboot::{request_reboot, withdraw_reboot};
pub use request_limits::{RequestLimits, TaskOccurrence};
pub use run_once::OnceAnswer;
pub(crate) use run_once::OnceResult;
pub use sent_file::{ControllerFile, FileAnswer, SENT_MAX};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
pub(crate) use shared_facts::OtherHosts;
pub use shared_facts::{HostValues, OtherValues, SharedValues};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
pub use synchronize::{RsyncRoute, RsyncTransfer};

/// Sends a request to the controller and waits for its answer. The error says why there is none.
type Ask = dyn Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync;

/// The connection of a run to the controller that has started it. All clones are the same
/// connection.
#[derive(Clone)]
pub struct ControllerLink(Arc<Ask>);

impl ControllerLink {
    pub fn new(ask: impl Fn(&[u8]) -> Result<Vec<u8>, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    fn ask(&self, request: &Request) -> Result<Vec<u8>, String> {
        (self.0)(&serde_json::to_vec(request).unwrap_or_default())
    }
}

impl fmt::Debug for ControllerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerLink")
    }
}

/// A request of a run to the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    /// Run a task on another host.
    Delegate(DelegatedRequest),
    /// Which host runs the task with this number for all hosts (`run_once`)?
    Turn(u32),
    /// The result of a task that this run was chosen for.
    Result { task: u32, content: Value },
    /// Store a file of the host on the controller.
    Fetch(FetchRequest),
    /// The next part of the file, in base64.
    Part(String),
    /// May this run begin the task with this number (`throttle`)?
    Begin(u32),
    /// The run has ended the task that it could begin.
    End,
    /// The values of the run that other hosts may read, as `SharedValues`.
    Share(Value),
    /// The values of other hosts.
    Others,
    /// The values that hosts of the same play may read, after this task has set some of them.
    Publish { task: Option<u32>, values: Value },
    /// The values of the other hosts that this task reads, as soon as they have set them.
    Await(u32),
    /// Send a file of the controller.
    Read { task: u32, name: String },
    /// Send the next part of the file.
    More,
    /// Perform a lookup on the controller.
    Lookup(Box<LookupRequest>),
    /// The host is about to be restarted. None: it was restarted, or is not restarted any more.
    Reboot(Option<RebootRequest>),
    /// Change the inventory for later plays, by this task.
    Inventory(DelegatedRequest),
}

/// A request of a run, as the controller handles it.
#[derive(Debug)]
pub enum ControllerRequest<'p> {
    /// A delegated task, see `plan_delegated`.
    Delegate(DelegatedRequest),
    /// The run waits until it is chosen to run this task, or until another host has its result.
    /// The answer is an `OnceAnswer`.
    Turn(RequestedTask<'p>),
    /// The result of a task that the run was chosen for. The answer is null, or the reason why the
    /// task fails, as JSON.
    Result { requested: RequestedTask<'p>, content: Value },
    /// A file of the host, see `plan_fetch`. The answer is a `FetchAnswer`.
    Fetch(FetchRequest),
    /// The next part of the file that was requested last. The answer is a `FetchAnswer`.
    Part(Vec<u8>),
    /// The run waits until it may begin this task, of which not too many may run at the same time.
    /// The answer says nothing.
    Begin(RequestedTask<'p>),
    /// The run has ended the task that it could begin. The answer says nothing.
    End,
    /// Values that other hosts may read. The answer is null, or the reason why the run fails, as
    /// JSON.
    Share(SharedValues),
    /// The answer is `OtherValues`.
    Others,
    /// Values that hosts of the same play may read. The task has set some of them. The answer is
    /// null, or the reason why the run fails, as JSON.
    Publish { task: Option<u32>, values: SharedValues },
    /// The run waits until the other hosts of the play have passed the tasks that set what this
    /// task reads. The answer is a map from hosts to `HostValues`.
    Await(u32),
    /// A file of the controller. The answer is a `FileAnswer`.
    Read(ControllerFile<'p>),
    /// The next part of the file that was requested last. The answer is a `FileAnswer`.
    More,
    /// A lookup, see `plan_lookup`. The answer is a `LookupAnswer`.
    Lookup(Box<LookupRequest>),
    /// The host is about to be restarted, and the run must be continued with this checkpoint when
    /// its session ends. None: the session does not end for a reboot any more. The answer is null,
    /// or the reason why the host must not be restarted, as JSON.
    Reboot(Option<RebootRequest>),
    /// A change of the inventory, see `plan_inventory_change`.
    Inventory(DelegatedRequest),
}

/// The task that a request is about.
#[derive(Debug, Clone, Copy)]
pub struct RequestedTask<'p> {
    /// The index of the play of the task.
    pub play: u32,
    pub task: &'p Task,
}

impl<'p> RequestedTask<'p> {
    /// The task with this number, if `allowed` is true for it.
    fn find(plan: &'p Plan, id: u32, allowed: impl Fn(&Task) -> bool) -> Option<Self> {
        let TaskPath { play, task, .. } = TaskPath::find(plan, id)?;
        allowed(task).then_some(Self { play: play.index, task })
    }
}

/// Reads a request of a run of `plan`. A request that the plan does not allow is an error. The
/// caller checks whether the play of the task has begun. `check`: whether the run is in check mode.
pub fn read_request<'p>(plan: &'p Plan, check: bool, request: &[u8]) -> Result<ControllerRequest<'p>, DelegationError> {
    let unreadable = |e: serde_json::Error| DelegationError::Forbidden(format!("it is not readable: {e}"));
    let forbidden = || DelegationError::Forbidden("the task is not one that runs once".to_owned());
    let once = |id: u32| RequestedTask::find(plan, id, |task| task.hosts.once).ok_or_else(forbidden);
    // Only a predicted task has an unknown result. Other hosts would not run tasks that read one.
    let known = |mut content: Value| {
        if !check && !plan.predicts_a_task() {
            unknown::remove_from_wire(&mut content);
        }
        content
    };
    Ok(match serde_json::from_slice(request).map_err(unreadable)? {
        Request::Delegate(delegated) => ControllerRequest::Delegate(delegated),
        Request::Turn(id) => ControllerRequest::Turn(once(id)?),
        Request::Result { task, content } => {
            ControllerRequest::Result { requested: once(task)?, content: known(content) }
        }
        Request::Begin(id) => {
            let found = RequestedTask::find(plan, id, |task| task.hosts.throttle > 0);
            let why = || DelegationError::Forbidden("the task has no `throttle`".to_owned());
            ControllerRequest::Begin(found.ok_or_else(why)?)
        }
        Request::End => ControllerRequest::End,
        Request::Share(_) | Request::Others | Request::Publish { .. } | Request::Await(_) if plan.shares.is_none() => {
            return Err(DelegationError::Forbidden("no other host reads its values".to_owned()));
        }
        Request::Share(values) => {
            let mut values: SharedValues = serde_json::from_value(known(values)).map_err(unreadable)?;
            values.retain_allowed(plan);
            ControllerRequest::Share(values)
        }
        Request::Others => ControllerRequest::Others,
        Request::Publish { task, values } => {
            let mut values: SharedValues = serde_json::from_value(known(values)).map_err(unreadable)?;
            values.retain_allowed(plan);
            ControllerRequest::Publish { task, values }
        }
        Request::Await(task) => ControllerRequest::Await(task),
        Request::Read { task, name } => ControllerRequest::Read(ControllerFile::find(plan, task, name)?),
        Request::More => ControllerRequest::More,
        Request::Lookup(lookup) => ControllerRequest::Lookup(lookup),
        Request::Reboot(reboot) => ControllerRequest::Reboot(reboot::check_reboot(plan, reboot)?),
        Request::Inventory(change) => ControllerRequest::Inventory(change),
        Request::Fetch(fetch) => ControllerRequest::Fetch(fetch),
        Request::Part(part) => {
            let part = base64::engine::general_purpose::STANDARD.decode(part);
            let unreadable = |e: base64::DecodeError| DelegationError::Forbidden(format!("it is not readable: {e}"));
            ControllerRequest::Part(part.map_err(unreadable)?)
        }
    })
}

/// A request to run one task, or one item of its loop, on another host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DelegatedRequest {
    task: u32,
    /// The index and the value of the item.
    item: Option<(usize, Value)>,
    /// A `RunState` in the form of messages.
    state: Value,
}

/// A task that the controller may run for a host.
#[derive(Debug)]
pub struct DelegatedTask {
    pub limits: RequestLimits,
    /// The host that runs the task: a host of the inventory, or `localhost`.
    pub host: String,
    /// The plan for that host.
    pub plan: Plan,
    /// Set if the task is `synchronize` and connects to the host that has requested it. Its options
    /// are not yet part of the plan.
    pub rsync: Option<RsyncTransfer>,
}

/// The reason why the controller does not run a requested task.
#[derive(Debug, thiserror::Error)]
pub enum DelegationError {
    /// A correct executor sends no such request.
    #[error("a request that its plan does not allow: {0}")]
    Forbidden(String),
    /// The task could not be run on its host, and fails with this message.
    #[error("{0}")]
    Failed(String),
    /// Check mode cannot know whether the task runs, or where.
    #[error("it depends on tasks that were not run")]
    Unknown,
}

impl DelegationError {
    /// The answer to the run that delegated the task.
    pub fn answer(&self) -> Vec<u8> {
        match self {
            Self::Unknown => encode(&Ok(TaskOutcome::indeterminate(self.to_string()))),
            Self::Forbidden(_) | Self::Failed(_) => encode(&Err(self.to_string())),
        }
    }
}

/// What the controller knows about a run besides its plan.
pub struct ControllerView<'c> {
    /// Whether the run is in check mode.
    pub check: bool,
    /// The index of the last play that the host may run.
    pub through: u32,
    /// The hosts that failed in earlier plays.
    pub lost: &'c BTreeSet<String>,
    /// The inventory variables of a host, or None if the controller does not know the host.
    pub host_vars: &'c dyn Fn(&str) -> Option<Map<String, Value>>,
}

impl ControllerView<'_> {
    /// Whether the host may run this play of its plan now.
    fn check_begun(&self, plan: &Plan, play: &Play) -> Result<(), DelegationError> {
        match (plan.first_play()..=self.through).contains(&play.index) {
            true => Ok(()),
            false => Err(DelegationError::Forbidden("the play of the task has not begun, or is over".to_owned())),
        }
    }
}

/// The plan of the task that a run of `plan` requests.
///
/// The conditions, the items and the host are evaluated again, also those of the includes that lead
/// to the task, so that a compromised node cannot choose them freely. The node contributes only its
/// facts and the results of its tasks.
pub fn plan_delegated(
    plan: &Plan,
    request: DelegatedRequest,
    controller: &ControllerView,
) -> Result<DelegatedTask, DelegationError> {
    let failed = DelegationError::Failed;
    let runs_elsewhere = |task: &Task| task.runs_elsewhere();
    let EvaluatedTask { play, task, mut state, scope, layer, limits } =
        evaluate(plan, request.clone(), controller, (&runs_elsewhere, "the task is not delegated"))?;
    let rsync = RsyncTransfer::evaluate(plan, request, controller, (task, &scope))?;
    let delegation = task.hosts.delegation.clone().unwrap_or_default();
    let host = delegated_host(&scope, &delegation.to).map_err(failed)?.ok_or(DelegationError::Unknown)?;
    let unknown_host = || failed(format!("`delegate_to`: `{host}` is not a host of the inventory"));
    let vars = (controller.host_vars)(&host).ok_or_else(unknown_host)?;
    let mut one = one_task::plan_of(plan, play, &[&one_task::strip_rules(task)], &state);
    one_task::keep_needed_values(&one, &mut state);
    one_task::set_python(&mut one, vars.get(PYTHON_VARIABLE));
    let item = layer.map(|layer| layer.json());
    // The evaluation of the options reads the answers that the other host needs.
    let _options = variable_scope::args(&scope, task);
    one.extra.extend(filters::answers_read().map(|answers| (filters::LOOKUP_ANSWERS.to_owned(), answers)));
    let mut texts = one_task::texts_of(&one, &state);
    texts.extend(item.iter().filter_map(|item| serde_json::to_string(item).ok()));
    one.secrets = plan.secrets.restricted_to(&texts);
    one.delegated = Some(DelegatedRun { state: state.to_message(), item });
    Ok(DelegatedTask { limits, host, plan: one, rsync })
}

/// A requested task, as the controller sees it with the values of the run.
struct EvaluatedTask<'p> {
    play: &'p Play,
    task: &'p Task,
    /// The values of the run, without those that it cannot set.
    state: RunState,
    /// The scope of the task, with its item.
    scope: ExprScope,
    /// The variables of the item.
    layer: Option<VarMap>,
    limits: RequestLimits,
}

/// The values that a run has sent with a request.
struct ReceivedState<'p> {
    /// Without the values that the run cannot set, and without those of includes.
    state: RunState,
    /// The variables of the items of the includes that lead to the task.
    layers: Vec<Map<String, Value>>,
    /// The variables of the plan with `state`.
    frame: VariableScope<'p>,
}

impl<'p> ReceivedState<'p> {
    fn read(plan: &'p Plan, state: Value, controller: &ControllerView) -> Result<Self, DelegationError> {
        let unreadable = |e: serde_json::Error| DelegationError::Forbidden(format!("its state is not readable: {e}"));
        let mut state = RunState::from_message(state).map_err(unreadable)?;
        state.retain_settable(plan, controller.host_vars);
        state.lost.clone_from(controller.lost);
        let layers = std::mem::take(&mut state.params);
        let mut frame = VariableScope::new(plan, &state.facts);
        if controller.check {
            frame.check();
        }
        frame.restore(&state);
        Ok(Self { state, layers, frame })
    }
}

/// Evaluates the condition and the items of a requested task. Fails if the condition does not hold.
/// `allowed`: whether the run may request the task, and what it is if it may not.
fn evaluate<'p>(
    plan: &'p Plan,
    request: DelegatedRequest,
    controller: &ControllerView,
    (allowed, why): (&dyn Fn(&Task) -> bool, &str),
) -> Result<EvaluatedTask<'p>, DelegationError> {
    let forbidden = |why: &str| DelegationError::Forbidden(why.to_owned());
    let failed = DelegationError::Failed;
    let DelegatedRequest { task: id, item, state } = request;
    let ReceivedState { mut state, layers, mut frame } = ReceivedState::read(plan, state, controller)?;
    let path = TaskPath::find(plan, id).ok_or_else(|| forbidden("it names no task"))?;
    let (play, task) = (path.play, path.task);
    if !allowed(task) {
        return Err(forbidden(why));
    }
    controller.check_begun(plan, play)?;
    let opened = path.open(&mut frame, &layers)?;
    state.params = frame.state().params;
    let scope = frame.scope(play, task);
    let (layer, index) = match (&task.repeat, item) {
        (None, None) => (None, None),
        (Some(repeat), Some((index, item))) => {
            let (items, trace) = with_trace(|| variable_scope::items(&scope, repeat));
            if trace.unknown {
                return Err(DelegationError::Unknown);
            }
            let items = items.map_err(|e| failed(format!("loop: {e}")))?;
            if items.get(index) != Some(&item) {
                return Err(failed("the loop has other items on the controller than on the host".to_owned()));
            }
            (Some(variable_scope::item_layer(repeat, &items, index)), Some(index))
        }
        _ => return Err(forbidden("an item is missing, or the task has no loop")),
    };
    let inner = layer.clone().map_or_else(|| scope.clone(), |layer| scope.with_layer(layer));
    match unknown::all_hold(&inner, &task.when) {
        Ok(Some(true)) => {}
        Ok(None) => return Err(DelegationError::Unknown),
        Ok(Some(false)) => return Err(failed("the condition does not hold on the controller".to_owned())),
        Err((line, e)) => return Err(failed(format!("{}:{line}: when: {}", task.place.file, expr::explain(&e)))),
    }
    let limits = RequestLimits::new(&path, &inner, index, &opened);
    Ok(EvaluatedTask { play, task, state, scope: inner, layer, limits })
}

/// The name of the host that `delegate_to` means. None: check mode cannot know it.
fn delegated_host(scope: &ExprScope, to: &str) -> Result<Option<String>, String> {
    let (name, trace) = with_trace(|| expr::render_text(scope, to));
    if trace.unknown {
        return Ok(None);
    }
    match name.map_err(|e| format!("`delegate_to`: {}", expr::explain(&e)))? {
        name if name.trim().is_empty() => Err("`delegate_to` is empty".to_owned()),
        name => Ok(Some(name.trim().to_owned())),
    }
}

fn encode(answer: &ModuleResult) -> Vec<u8> {
    serde_json::to_vec(&answer_value(answer)).unwrap_or_default()
}

/// The answer in the form of messages.
fn answer_value(answer: &ModuleResult) -> Value {
    let mut value = serde_json::to_value(answer).unwrap_or_default();
    unknown::to_wire(&mut value);
    value
}

fn decode(answer: &[u8]) -> ModuleResult {
    let unreadable = |e: serde_json::Error| format!("the answer of the controller is not readable: {e}");
    let mut value: Value = serde_json::from_slice(answer).map_err(unreadable)?;
    unknown::from_wire(&mut value);
    serde_json::from_value::<ModuleResult>(value).map_err(unreadable)?
}

/// Removes the facts that the other host may not set, because that host may be compromised: those
/// of a module that gathers none, and those that would replace a variable of the inventory.
fn retain_facts(plan: &Plan, task: &Task, mut outcome: TaskOutcome) -> TaskOutcome {
    let gathers = plan.sets_facts(task);
    let of_inventory = |name: &str| plan.vars.contains_key(name) || plan.shared.contains_key(name);
    outcome.facts.retain(|name, _| gathers && !is_protected_name(name) && !of_inventory(name));
    outcome
}

impl<'a> Run<'a, '_> {
    /// Runs a delegated task on its host, or a task that changes the inventory on the controller.
    /// None: this run executes the task itself, because the task is not delegated, its module
    /// touches no host, or `delegate_to` names this host.
    pub(crate) fn delegate(&mut self, task: &'a Task, scope: &ExprScope) -> Option<ModuleResult> {
        if INVENTORY_MODULES.contains(&task.module.as_str()) {
            return Some(self.change_inventory(task));
        }
        let delegation = task.hosts.delegation.as_ref().filter(|_| task.runs_elsewhere())?;
        let plan = self.frame.plan();
        match delegated_host(scope, &delegation.to) {
            Ok(Some(host)) if host == plan.host => return None,
            Ok(Some(_)) => {}
            Ok(None) => return Some(Ok(TaskOutcome::indeterminate("its host depends on tasks that were not run"))),
            Err(message) => return Some(Err(message)),
        }
        let Some(link) = &self.options.controller else {
            return Some(Err("a task can be delegated only during `remoor play`".to_owned()));
        };
        let request = DelegatedRequest { task: task.id, item: self.item_for_request(), state: self.state_for(task) };
        let answer = link.ask(&Request::Delegate(request)).and_then(|answer| decode(&answer));
        Some(answer.map(|outcome| self.predict_transfer(task, scope, retain_facts(plan, task, outcome))))
    }

    /// The index and the value of the present item of the task's loop.
    fn item_for_request(&self) -> Option<(usize, Value)> {
        self.item.as_ref().map(|item| (item.index, item.value.clone()))
    }

    /// The values of this run that a task reads, in the form of messages. The controller also
    /// evaluates the includes that lead to the task, and compares all variables of their loops.
    fn state_for(&self, task: &Task) -> Value {
        let plan = self.frame.plan();
        let mut state = self.frame.state();
        if let Some(path) = TaskPath::find(plan, task.id) {
            let tasks: Vec<&Task> = [task].into_iter().chain(path.include_tasks()).collect();
            let needed = one_task::plan_of(plan, path.play, &tasks, &state);
            let layers = std::mem::take(&mut state.params);
            one_task::keep_needed_values(&needed, &mut state);
            state.params = layers;
        }
        state.to_message()
    }

    /// The host whose facts a task with `delegate_facts` sets. None: the host of this run.
    pub(crate) fn host_of_facts(&self, task: &Task, scope: &ExprScope) -> Option<String> {
        let delegation = task.hosts.delegation.as_ref().filter(|delegation| delegation.facts)?;
        let host = delegated_host(scope, &delegation.to).ok()??;
        (host != self.frame.plan().host).then_some(host)
    }

    /// Runs the task of a plan that was made for a delegated task. Returns the answer in the form
    /// of messages.
    pub(crate) fn run_delegated(
        &mut self,
        plan: &'a Plan,
        state: &RunState,
        item: Option<&Map<String, Value>>,
    ) -> Value {
        self.frame.restore(state);
        let mut found = None;
        for play in &plan.plays {
            play.each_task(&mut |task| found = found.or(Some((play, task))));
        }
        let Some((play, task)) = found else { return answer_value(&Err("the plan contains no task".to_owned())) };
        let scope = self.frame.scope(play, task);
        let layer = item.map(crate::vars::var_map::VarMap::from_untrusted);
        let scope = layer.map_or_else(|| scope.clone(), |layer| scope.with_layer(layer));
        answer_value(&self.run_attempt(task, &scope))
    }
}

impl Play {
    /// Whether the play has a task that another host runs.
    fn delegates(&self) -> bool {
        let mut any = false;
        self.each_task(&mut |task| any |= task.runs_elsewhere());
        any
    }
}

impl Plan {
    /// Whether a task may run in check mode although the run does not.
    fn predicts_a_task(&self) -> bool {
        let mut any = false;
        self.each_task(&mut |task| any |= task.modes.check_mode.is_some());
        any
    }

    /// Whether the plan has a task that another host runs.
    pub fn delegates(&self) -> bool {
        self.plays.iter().any(Play::delegates)
    }
}
