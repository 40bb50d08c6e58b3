//! Tasks that a run does not wait for (`async` with `poll: 0`). Another process of the node runs
//! the task, so that the task outlives the run and its session. The result is stored where
//! `async_status` reads it.
//!
//! ```text
//! run ──BackgroundJob──> process with the module ──result──> ~/.ansible_async/JID
//! ```
//! The process has no connection to the controller.

use super::include_chain::TaskPath;
use super::{decode, one_task};
use crate::modules::{JOB_RESULT_MAX, ModuleResult, PYTHON_VARIABLE, TaskOutcome, job_dir, write_job_result};
use crate::os::acting_user::{self, ActingUser};
use crate::plan::{DelegatedRun, Plan, Task, TaskModes, TaskPrivileges};
use crate::run::event::{CancelToken, PlaybookRunOptions, ResetupPhase};
use crate::run::task::seconds;
use crate::run::{Run, privileges};
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::var_map::has_markup;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Maximum number of tasks that one run starts in the background.
const JOBS_MAX: u32 = 1_000;
/// Time between the end of a job's time limit and the end of its process. The command of the job
/// gets TERM and, before this time is over, KILL.
const GRACE: Duration = Duration::from_secs(10);
/// The key of a result with the number of the job.
const JOB_ID: &str = "ansible_job_id";

/// Starts the process of a job. The error says why it could not be started.
type Start = dyn Fn(&BackgroundJob) -> Result<(), String> + Send + Sync;

/// Starts jobs in processes of their own. All clones are the same.
#[derive(Clone)]
pub struct BackgroundStarter(Arc<Start>);

impl BackgroundStarter {
    pub fn new(start: impl Fn(&BackgroundJob) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(start))
    }
}

impl fmt::Debug for BackgroundStarter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BackgroundStarter")
    }
}

/// Everything that the process of a job needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackgroundJob {
    /// A plan of one task, as for a delegated task.
    plan: Plan,
    /// The file that gets the result.
    result: PathBuf,
    limit_ms: u64,
    /// The user who owns the file. None: the user of the process.
    owner: Option<ActingUser>,
    login: Option<u32>,
    run_id: String,
    phase: ResetupPhase,
    protect: Vec<String>,
    park_dir: PathBuf,
    secret: Vec<String>,
}

impl BackgroundJob {
    fn options(&self) -> PlaybookRunOptions {
        PlaybookRunOptions {
            run_id: self.run_id.clone(),
            phase: self.phase,
            protect: self.protect.clone(),
            park_dir: self.park_dir.clone(),
            secret: self.secret.clone(),
            login: self.login,
            ..PlaybookRunOptions::default()
        }
    }

    /// Runs the task. Returns the result of its module.
    fn run(&self, cancel: &CancelToken) -> Map<String, Value> {
        let end = crate::run(&self.plan, &self.options(), cancel, &mut |_| {});
        let answer = match end.failure {
            Some(failure) => Err(failure.message),
            None => decode(end.answer.to_string().as_bytes()),
        };
        let mut module = "";
        self.plan.each_task(&mut |task| module = &task.module);
        let outcome = answer.unwrap_or_else(|msg| TaskOutcome { failed: true, msg, ..TaskOutcome::default() });
        outcome.registered_result(module)
    }
}

/// Runs a job to its end or its time limit, and stores the result. After the time limit, the
/// process must end, because a part of the job may still run in it.
pub fn run_job(job: BackgroundJob) -> Result<(), String> {
    let (limit, owner, path) = (Duration::from_millis(job.limit_ms), job.owner.clone(), job.result.clone());
    let cancel = CancelToken::new();
    let (send, receive) = mpsc::channel();
    let stop = cancel.clone();
    std::thread::spawn(move || send.send(job.run(&stop)));
    let result = match receive.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            cancel.cancel();
            // The result of a task that ends now is that of its cancellation.
            let _cancelled = receive.recv_timeout(GRACE);
            failed_result("Timeout exceeded", &[("child_pid", json!(std::process::id()))])
        }
        Err(RecvTimeoutError::Disconnected) => failed_result("defect of remoor", &[]),
    };
    let _acting = owner.map(acting_user::act_as).transpose().map_err(|e| e.to_string())?;
    let mut text = serde_json::to_vec(&result).unwrap_or_default();
    if text.len() > JOB_RESULT_MAX {
        let why = format!("the result of the job has more than {} MiB", JOB_RESULT_MAX >> 20);
        text = serde_json::to_vec(&failed_result(&why, &[])).unwrap_or_default();
    }
    write_job_result(&path, &text)
}

fn failed_result(msg: &str, more: &[(&str, Value)]) -> Map<String, Value> {
    let own = [("failed", json!(true)), ("msg", json!(msg))];
    own.iter().chain(more).map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

/// Whether the outcome is that of a task that was started in the background.
pub(crate) fn is_started(outcome: &TaskOutcome) -> bool {
    outcome.extra_keys.contains_key(JOB_ID)
}

/// The answer of a task in check mode that a real run would start in the background. The real run
/// does not wait for the result, and only the real run knows the number of the job.
fn predict_start(answer: ModuleResult) -> ModuleResult {
    let outcome = match answer {
        Ok(outcome) if outcome.unknown || outcome.unevaluable => return Ok(outcome),
        Ok(outcome) => outcome,
        Err(msg) => TaskOutcome { msg, ..TaskOutcome::default() },
    };
    let (diff, diff_path, attributes) = (outcome.diff, outcome.diff_path, outcome.attributes);
    let msg = outcome.msg;
    Ok(TaskOutcome { changed: true, would_run: true, msg, diff, diff_path, attributes, ..TaskOutcome::default() })
}

impl<'a> Run<'a, '_> {
    /// The time limit of a task that runs in the background. None: the run waits for the task.
    pub(crate) fn background_limit(&self, task: &Task, scope: &ExprScope) -> Option<Duration> {
        let poll = seconds(scope, Some(task.modes.poll.as_ref()?))?;
        seconds(scope, task.timeout.as_ref()).filter(|limit| poll.is_zero() && !limit.is_zero())
    }

    /// The answer of a task in check mode, if the real run would start the task in the background.
    pub(crate) fn predict_background(&self, task: &Task, scope: &ExprScope, answer: ModuleResult) -> ModuleResult {
        match self.background_limit(task, scope) {
            Some(_) => predict_start(answer),
            None => answer,
        }
    }

    /// Starts the task in another process, and returns the number of the job. `sent`: the task with
    /// a file of the controller.
    pub(crate) fn start_in_background(
        &mut self,
        task: &'a Task,
        scope: &ExprScope,
        privileges: &TaskPrivileges,
        sent: Option<(Plan, Task)>,
        limit: Duration,
    ) -> ModuleResult {
        let Some(BackgroundStarter(start)) = self.options.background.clone() else {
            return Err("this run can start no task in the background".to_owned());
        };
        // Each delegated task is a run of its own, so the bound below would not hold.
        if self.frame.plan().delegated.is_some() {
            return Err("a delegated task cannot run in the background (`poll: 0`)".to_owned());
        }
        if self.ground.jobs >= JOBS_MAX {
            return Err(format!("a run starts at most {JOBS_MAX} tasks in the background"));
        }
        let plan = self.plan_for_job(task, scope, privileges, sent)?;
        self.ground.node.begin_change()?;
        let acting = privileges::act_as_user(task, privileges, &self.ground, self.cancel)?;
        let owner = acting_user::acting_user().map(|user| (*user).clone());
        let random = getrandom::u64().map_err(|e| format!("no random numbers: {e}"))? % 1_000_000_000_000;
        let id = format!("j{random}.{}", std::process::id());
        let dir = job_dir();
        let result = dir.join(&id);
        let begun = json!({"started": true, "finished": false, JOB_ID: id});
        write_job_result(&result, begun.to_string().as_bytes())?;
        drop(acting);
        let options = self.options;
        let job = BackgroundJob {
            plan,
            result: result.clone(),
            limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            owner,
            login: options.login,
            run_id: options.run_id.clone(),
            phase: options.phase,
            protect: options.protect.clone(),
            park_dir: options.park_dir.clone(),
            secret: options.secret.clone(),
        };
        if let Err(why) = start(&job) {
            let _acting = privileges::act_as_user(task, privileges, &self.ground, self.cancel)?;
            let _left_behind = std::fs::remove_file(&result);
            return Err(why);
        }
        self.ground.jobs += 1;
        let keys = json!({"started": true, "finished": false, JOB_ID: id, "results_file": result});
        Ok(TaskOutcome::change("").with_result(keys))
    }

    /// A plan that contains only the task, and the values that it reads.
    fn plan_for_job(
        &self,
        task: &Task,
        scope: &ExprScope,
        privileges: &TaskPrivileges,
        sent: Option<(Plan, Task)>,
    ) -> Result<Plan, String> {
        let plan = self.frame.plan();
        let path = TaskPath::find(plan, task.id).ok_or("the plan does not contain the task")?;
        let (files, task) = match &sent {
            Some((files, task)) => (Some(files), task),
            None => (None, task),
        };
        let own = Task {
            privileges: privileges.clone(),
            modes: TaskModes { diff: task.modes.diff.clone(), ..TaskModes::default() },
            // The process that runs the job has the time limit.
            timeout: None,
            ..one_task::strip_rules(task)
        };
        let mut state = self.frame.state();
        let mut one = one_task::plan_of(plan, path.play, &[&own], &state);
        one_task::keep_needed_values(&one, &mut state);
        one.blobs.extend(files.into_iter().flat_map(|files| files.blobs.clone()));
        let python = expr::render_text(scope, &format!("{{{{ {PYTHON_VARIABLE} | default('') }}}}"));
        let python = python.ok().filter(|python| !python.is_empty() && !has_markup(python));
        one.extra.extend(python.map(|python| (PYTHON_VARIABLE.to_owned(), python.into())));
        let item = self.item.as_ref().map(|item| item.layer.json());
        one.delegated = Some(DelegatedRun { state: state.to_message(), item });
        Ok(one)
    }
}
