//! Runs one task: its condition, retries, result and events.

use crate::compile;
use crate::delegate::FETCH;
use crate::filters;
use crate::modules::{self, ModuleCall, ModuleResult, REBOOT, RebootStep, TaskOutcome};
use crate::node::{NodeAccess, WriteAheadFile};
use crate::os::temp_files::TempFileNotes;
use crate::plan::{Play, REFUSED, Task, TaskCondition};
use crate::run::event::{HIDDEN, RunEvent, RunFailure, Status, TaskReport};
use crate::run::handlers::NotifyChange;
use crate::run::output_throttle::OutputThrottle;
use crate::run::privileges;
use crate::run::{Flow, Run, RunStopped};
use crate::template::expr;
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::unknown;
use crate::vars::var_map;
use crate::vars::variable_scope;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Maximum number of tries of a task with `until` or `retries`.
const RETRIES_MAX: u64 = 10_000;

/// The result of one item of a task.
pub(crate) struct ItemResult {
    pub(crate) status: Status,
    pub(crate) result: Value,
    pub(crate) failure: Option<RunFailure>,
    pub(crate) facts: Map<String, Value>,
    /// The host whose facts these are. None: the host of the run.
    pub(crate) facts_of: Option<String>,
}

impl ItemResult {
    /// The result of an item whose condition does not hold.
    fn new_skipped() -> Self {
        let result =
            json!({"changed": false, "skipped": true, "failed": false, "skip_reason": "Conditional result was False"});
        Self { status: Status::Skipped, result, failure: None, facts: Map::new(), facts_of: None }
    }

    /// Whether the item notifies its handlers. A failed item notifies no handler, as in Ansible.
    pub(crate) fn change(&self) -> NotifyChange {
        let changed = &self.result["changed"];
        if *changed == true && self.result["failed"] != true {
            NotifyChange::Yes
        } else if self.status == Status::Unknown || unknown::is_unknown(changed) {
            NotifyChange::Unknown
        } else {
            NotifyChange::No
        }
    }
}

impl<'a> Run<'a, '_> {
    /// Runs one task or handler with all its items.
    pub fn task(&mut self, play: &'a Play, task: &'a Task, handler: bool) -> Flow {
        self.turn += 1;
        let scope = self.frame.scope(play, task);
        let Some(repeat) = &task.repeat else {
            let judged = self.item(task, &scope, None, handler)?;
            self.announce(task, &scope_with_result(&scope, task, &judged.result), judged.change())?;
            return self.conclude(task, &judged, judged.result.clone());
        };
        self.task_with_loop(play, task, &scope, repeat, handler)
    }

    /// Registers the result, and returns whether the run continues.
    pub(crate) fn conclude(&mut self, task: &'a Task, judged: &ItemResult, result: Value) -> Flow {
        for (name, value) in &judged.facts {
            self.learn(task, judged.facts_of.as_deref(), name, value);
        }
        if let Some(name) = &task.register {
            self.frame.set(name, &result);
        }
        if let Some(once) = &mut self.others.once {
            once.result.clone_from(&result);
        }
        if judged.status == Status::Failed {
            self.break_off();
        }
        self.settle(task)?;
        if judged.status != Status::Failed {
            return Ok(());
        }
        self.last_failed = Some((task, result));
        self.end.failure = judged.failure.clone();
        Err(RunStopped)
    }

    /// Stores a fact that a task has set for `host`, or for the host of the run. A fact that a
    /// module has found becomes a fact of that host, and so does one that `set_fact` sets with
    /// `cacheable`.
    pub(crate) fn learn(&mut self, task: &Task, host: Option<&str>, name: &str, value: &Value) {
        let cacheable = task.args.get("cacheable").is_some_and(|value| var_map::boolean(value) == Some(true));
        let is_fact = task.module != "set_fact" || cacheable;
        if let Some(once) = &mut self.others.once {
            once.facts.push((host.map(str::to_owned), name.to_owned(), value.clone()));
        }
        match host {
            Some(host) => {
                let given = self.others.given.entry(host.to_owned()).or_default();
                let values = if is_fact { &mut given.facts } else { &mut given.set };
                values.insert(name.to_owned(), value.clone());
                self.frame.learn_about(host, name, value, is_fact);
            }
            None if is_fact => self.frame.learn(name, value),
            None => {}
        }
        if host.is_none() && task.module == "set_fact" {
            self.frame.set(name, value);
        }
    }

    /// Runs a task for one item of its loop: evaluates the condition, makes the tries of `until`,
    /// reports events and counts the result.
    pub(crate) fn item(
        &mut self,
        task: &'a Task,
        scope: &ExprScope,
        item: Option<String>,
        handler: bool,
    ) -> Result<ItemResult, RunStopped> {
        let name = title(task, scope);
        let start = Instant::now();
        let say = |run: &mut Self, status: Status, outcome: &TaskOutcome, msg: String, changed: bool| {
            let shows = (outcome.diff.is_some() || !outcome.attributes.is_empty())
                && task.modes.diff.as_ref().and_then(|value| eval_bool(scope, value)) != Some(false);
            let tail = outcome.output.as_ref().map(|o| o.tail.join("\n")).unwrap_or_default();
            let done = TaskReport {
                name: name.clone(),
                item: hide_no_log(task, item.clone()),
                changed: status == Status::Ignored && changed,
                rc: outcome.rc,
                stdout_tail: if task.no_log { String::new() } else { tail },
                path: shows.then(|| outcome.path()).flatten(),
                diff: hide_no_log(task, outcome.diff.clone().filter(|_| shows)),
                attributes: if shows && !task.no_log { outcome.attributes.clone() } else { Vec::new() },
                took_ms: start.elapsed().as_millis() as u64,
                ..TaskReport::for_task(task, run.turn, status, msg)
            };
            run.send_event(done, handler);
        };
        let resumed = self.place.is_interrupted(task);
        match unknown::all_hold(scope, &task.when) {
            // The condition held before the reboot, which may have changed it.
            _ if resumed => {}
            Ok(Some(true)) => {}
            Ok(None) => {
                let why = "its condition depends on tasks that were not run";
                return Ok(self.report_indeterminate(task, item, handler, why));
            }
            Ok(Some(false)) => {
                if let Some(why) = self.label_fault() {
                    return Ok(self.fail_unevaluable(task, scope, item, (task.place.line, &why), handler));
                }
                self.report_skipped(task, scope, item, handler);
                return Ok(ItemResult::new_skipped());
            }
            Err((line, e)) => {
                let why = format!("when: {}", expr::explain(&e));
                return Ok(self.fail_unevaluable(task, scope, item, (line, &why), handler));
            }
        }
        if !resumed {
            (self.sink)(RunEvent::TaskStart { i: task.id, name: name.clone(), item: hide_no_log(task, item.clone()) });
        }
        let (outcome, mut result) = self.tries_with_label(task, scope, resumed);
        if let Some(why) = self.ground.rebooting.clone() {
            self.end.rebooting = Some(why);
            self.cancel.stop();
            return Err(RunStopped);
        }
        let failed = result["failed"] == true;
        let changed = result["changed"] == true;
        let ignore = failed && !self.cancel.is_cancelled() && ignores_errors(scope, task);
        let vague = outcome.unknown || unknown::is_unknown(&result["changed"]);
        // In check mode, a handler that would run is reported as such, because users of check mode
        // want to know it.
        let would_run = outcome.would_run || handler && self.options.check && changed;
        let status = match (failed, ignore, outcome.skipped, changed) {
            (true, true, ..) => Status::Ignored,
            (true, false, ..) => Status::Failed,
            (_, _, true, _) => Status::Skipped,
            _ if would_run => Status::WouldRun,
            _ if vague => Status::Unknown,
            (_, _, _, true) => Status::Changed,
            _ => Status::Ok,
        };
        self.end.would_run += u32::from(status == Status::WouldRun);
        match status {
            Status::Skipped => self.end.skipped += 1,
            Status::Failed => self.end.failed += 1,
            _ if vague => self.end.unknown += 1,
            Status::Changed | Status::WouldRun | Status::Ignored if changed => self.end.changed += 1,
            _ => self.end.ok += 1,
        }
        let message = match outcome.unknown {
            true => outcome.msg.clone(),
            false => result["msg"].as_str().unwrap_or(&outcome.msg).to_owned(),
        };
        say(self, status, &outcome, message.clone(), changed);
        let failure = (status == Status::Failed).then(|| RunFailure {
            task: name.clone(),
            file: task.place.file.clone(),
            line: task.place.line,
            rc: outcome.rc,
            message: if task.no_log { HIDDEN.to_owned() } else { message },
            tail: outcome.output.as_ref().filter(|_| !task.no_log).map(|o| o.tail.clone()).unwrap_or_default(),
        });
        if ignore {
            result["ignored"] = json!(true);
        }
        let facts_of = self.host_of_facts(task, scope);
        Ok(ItemResult { status, result, failure, facts: outcome.facts, facts_of })
    }

    /// Reports a task, or one item of it, as skipped.
    pub(crate) fn report_skipped(&mut self, task: &Task, scope: &ExprScope, item: Option<String>, handler: bool) {
        self.end.skipped += 1;
        let done = TaskReport::for_task(task, self.turn, Status::Skipped, "");
        self.send_event(TaskReport { name: title(task, scope), item: hide_no_log(task, item), ..done }, handler);
    }

    /// Fails a task, or one item of it, whose condition or options cannot be evaluated. The failure
    /// counts as if the task had run. `at` is the line of the expression and the error.
    pub(crate) fn fail_unevaluable(
        &mut self,
        task: &Task,
        scope: &ExprScope,
        item: Option<String>,
        at: (u32, &str),
        handler: bool,
    ) -> ItemResult {
        let (line, why) = at;
        let message = if task.no_log { HIDDEN } else { why };
        let ignore = !self.cancel.is_cancelled() && ignores_errors(scope, task);
        let status = if ignore { Status::Ignored } else { Status::Failed };
        *(if ignore { &mut self.end.ok } else { &mut self.end.failed }) += 1;
        let told = TaskReport::for_task(task, self.turn, status, format!("{}:{line}: {message}", task.place.file));
        self.send_event(TaskReport { name: title(task, scope), item: hide_no_log(task, item), ..told }, handler);
        let mut result = json!({"changed": false, "failed": true, "msg": why});
        if ignore {
            result["ignored"] = json!(true);
        }
        let failure = (!ignore).then(|| RunFailure {
            task: title(task, scope),
            file: task.place.file.clone(),
            line,
            message: message.to_owned(),
            ..RunFailure::default()
        });
        ItemResult { status, result, failure, facts: Map::new(), facts_of: None }
    }

    /// Reports an item whose effect is unknown in check mode: everything in its result is UNKNOWN.
    pub(crate) fn report_indeterminate(
        &mut self,
        task: &'a Task,
        item: Option<String>,
        handler: bool,
        why: &str,
    ) -> ItemResult {
        if let Some(would) = self.ground.node.predicted_state_mut() {
            would.mark_unknown();
        }
        self.end.unknown += 1;
        let done = TaskReport::for_task(task, self.turn, Status::Unknown, why);
        self.send_event(TaskReport { item: hide_no_log(task, item), ..done }, handler);
        let mut names = Vec::new();
        crate::compile::names_set_by(task, &mut names);
        let set = names.into_iter().filter(|name| task.module == "set_fact" && task.args.contains_key(name));
        let facts = set.map(|name| (name, unknown::mark())).collect();
        ItemResult { status: Status::Unknown, result: unknown::open(Map::new()), failure: None, facts, facts_of: None }
    }

    /// Like `tries`, but a label that cannot be rendered fails the item.
    fn tries_with_label(&mut self, task: &'a Task, scope: &ExprScope, resumed: bool) -> (TaskOutcome, Value) {
        let (outcome, mut result) = self.tries(task, scope, resumed);
        if let Some(why) = self.label_fault() {
            (result["failed"], result["msg"]) = (json!(true), json!(why));
        }
        (outcome, result)
    }

    /// Runs the module until the condition `until` holds or the allowed tries are used up.
    /// With `resumed`, the run continues at this task after a reboot, which is not repeated.
    fn tries(&mut self, task: &'a Task, scope: &ExprScope, resumed: bool) -> (TaskOutcome, Value) {
        let most = max_attempts(task, scope);
        let delay = seconds(scope, task.retry.delay.as_ref()).unwrap_or(Duration::from_secs(5));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let answer = self.run_attempt(task, scope);
            let (mut outcome, mut result) = judge(task, scope, answer);
            let holds = match &task.retry.until {
                _ if resumed || outcome.unevaluable || self.ground.rebooting.is_some() => return (outcome, result),
                None if most == 1 => return (outcome, result),
                // Without `until`, the task is repeated until it does not fail.
                None => Ok(Some(result["failed"] != true)),
                Some(until) => unknown::all_hold(&scope_with_result(scope, task, &result), until),
            };
            result["attempts"] = json!(attempt);
            match holds {
                Ok(Some(true) | None) => return (outcome, result),
                // In check mode, a repetition would give the same result, because the run changes
                // nothing in between. A task that is really run is repeated.
                Ok(Some(false)) if task.retry.until.is_some() && self.checks(task, scope) => {
                    outcome.unknown = true;
                    result["changed"] = unknown::mark();
                    return (outcome, result);
                }
                Ok(Some(false)) if attempt >= most || self.cancel.is_stopped() => {
                    result["attempts"] = json!((attempt - 1).max(1));
                    result["failed"] = json!(true);
                    let said = result["msg"].as_str().unwrap_or_default();
                    result["msg"] = json!(format!("not successful after {attempt} attempts {said}").trim_end());
                    outcome.failed = true;
                    return (outcome, result);
                }
                Ok(Some(false)) => self.interruptible_sleep(delay),
                Err((line, e)) => {
                    result["failed"] = json!(true);
                    result["msg"] = json!(format!("{}:{line}: until: {}", task.place.file, expr::explain(&e)));
                    return (outcome, result);
                }
            }
        }
    }

    /// Whether this task runs in check mode.
    fn checks(&self, task: &Task, scope: &ExprScope) -> bool {
        let own = task.modes.check_mode.as_ref().and_then(|value| eval_bool(scope, value));
        own.unwrap_or(self.options.check)
    }

    pub(crate) fn run_attempt(&mut self, task: &'a Task, scope: &ExprScope) -> ModuleResult {
        if task.module == REFUSED {
            return Err(compile::refusal_message(&task.args).to_owned());
        }
        // A run that continues after a reboot is complete again, even if the task fails before its
        // module runs.
        let interrupted = (task.module == REBOOT).then(|| self.place.take_interrupted()).flatten();
        let at = |message: String| format!("{}:{}: {message}", task.place.file, task.place.line);
        let (given, trace) =
            with_trace(|| (variable_scope::args(scope, task), variable_scope::environment(scope, task)));
        let (privileges, of_user) = with_trace(|| privileges::evaluate(task, scope));
        if trace.unknown || of_user.unknown {
            return Ok(self.options_unknown(task, scope));
        }
        let privileges = if task.runs_elsewhere() { task.privileges.clone() } else { privileges.map_err(at)? };
        if privileges.elevated && !task.runs_elsewhere() && !rustix::process::geteuid().is_root() {
            return Err("`become` requires a run as root, but this run is not root".into());
        }
        let (args, env) = match given {
            (Ok(args), Ok(env)) => (args, env),
            (Err(why), _) | (_, Err(why)) => return Ok(TaskOutcome::unevaluable(at(why))),
        };
        if let Some((one, other)) = compile::conflicting_options(&task.module, &|option| args.contains_key(option)) {
            return Err(at(format!("{} takes `{one}` or `{other}`, not both", task.module)));
        }
        if task.module == "include_vars" {
            return self.include_vars(task, &args).map_err(at);
        }
        if let Some(answer) = self.delegate(task, scope) {
            return answer;
        }
        let check = self.checks(task, scope);
        if task.module == FETCH {
            let _acting = privileges::act_as_user(task, &privileges, &self.ground, self.cancel)?;
            return self.fetch(task, check, &args);
        }
        if task.module == REBOOT && !check {
            let link = self.options.controller.clone();
            self.ground.reboot = Some(match interrupted {
                Some(interrupted) => RebootStep::Verify(link, interrupted),
                None => RebootStep::Begin(link, Box::new(self.checkpoint(Some(task)))),
            });
        }
        let sent = self.with_controller_file(task, &args)?;
        if let Some(limit) = self.background_limit(task, scope).filter(|_| !check) {
            return self.start_in_background(task, scope, &privileges, sent, limit);
        }
        // A task whose `check_mode` differs from that of the run sees the real node and leaves no
        // prediction behind.
        let kept = (check != self.ground.node.is_check_mode()).then(|| {
            std::mem::replace(
                &mut self.ground.node,
                NodeAccess::new(check, TempFileNotes::default(), self.cancel.clone()),
            )
        });
        let default = Some(Duration::from_millis(self.options.task_timeout_ms)).filter(|d| !d.is_zero());
        let timeout = seconds(scope, task.timeout.as_ref()).filter(|d| !d.is_zero()).or(default);
        let owed = if check { None } else { self.pending_if_changed(task, scope) };
        self.ground.node.set_write_ahead(owed.as_ref().map(|names| WriteAheadFile {
            path: self.options.journal.clone(),
            content: serde_json::to_vec(names).unwrap_or_default(),
        }));
        let mut faucet = OutputThrottle::default();
        let sink = &mut *self.sink;
        let mut emit = |line: &str| {
            if !task.no_log && faucet.allow_line(line) {
                sink(RunEvent::Output { i: task.id, line: line.to_owned() });
            }
        };
        let (plan, task) = sent.as_ref().map_or((self.frame.plan(), task), |(plan, task)| (plan, task));
        let mut call = ModuleCall {
            plan,
            task,
            args,
            scope,
            env,
            privileges,
            until: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            cancel: self.cancel,
            ground: &mut self.ground,
            emit: &mut emit,
        };
        let (answer, trace) = with_trace(|| modules::run_module(&mut call));
        if let Some(names) = owed
            && self.ground.node.set_write_ahead(None).is_none()
        {
            self.journaled = names;
        }
        let vague = self.ground.node.take_indeterminate() || trace.unknown;
        self.ground.node = kept.unwrap_or_else(|| std::mem::take(&mut self.ground.node));
        let answer = self.predict_background(task, scope, doubt_answer(task, answer, vague, trace.unknown));
        if let (Ok(TaskOutcome { unknown: true, .. }), Some(would)) = (&answer, self.ground.node.predicted_state_mut())
        {
            would.mark_unknown();
        }
        if faucet.dropped > 0 && !task.no_log {
            (self.sink)(RunEvent::Output { i: task.id, line: format!("[truncated: {} more lines]", faucet.dropped) });
        }
        answer
    }

    /// Waits for the `pause` of `loop_control`.
    pub fn pause(&self, scope: &ExprScope, pause: &Value) {
        self.interruptible_sleep(seconds(scope, Some(pause)).unwrap_or_default());
    }

    /// Handles a task with an UNKNOWN option. `set_fact` still sets the facts that are known.
    fn options_unknown(&mut self, task: &Task, scope: &ExprScope) -> TaskOutcome {
        if let Some(would) = self.ground.node.predicted_state_mut() {
            would.mark_unknown();
        }
        self.frame.forget_files(task);
        let mut out = TaskOutcome::indeterminate("its options depend on tasks that were not run");
        if task.module == "set_fact" {
            for (name, value) in &task.args {
                let (value, trace) = with_trace(|| expr::render_json(scope, value));
                match value {
                    Ok(value) if !trace.unknown => out.facts.insert(name.clone(), value),
                    _ => out.facts.insert(name.clone(), unknown::mark()),
                };
            }
        }
        out
    }

    pub(crate) fn interruptible_sleep(&self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time && !self.cancel.is_stopped() {
            std::thread::sleep(Duration::from_millis(50).min(time.saturating_sub(start.elapsed())));
        }
    }
}

/// Maximum number of times that a run tries a task.
pub(crate) fn max_attempts(task: &Task, scope: &ExprScope) -> u64 {
    // The first try does not count as one of the `retries`.
    match (&task.retry.until, &task.retry.retries) {
        (None, None) => 1,
        (_, Some(retries)) => seconds(scope, Some(retries)).map_or(1, |d| d.as_secs() + 1).min(RETRIES_MAX),
        (Some(_), None) => 4,
    }
}

/// A task's name as it is reported.
pub(crate) fn title(task: &Task, scope: &ExprScope) -> String {
    match task.no_log {
        true => task.name.clone(),
        false => expr::render_text(scope, &task.name).unwrap_or_else(|_| task.name.clone()),
    }
}

/// A text about a task as it is reported, or `HIDDEN` with `no_log`.
pub(crate) fn hide_no_log(task: &Task, text: Option<String>) -> Option<String> {
    text.map(|text| if task.no_log { HIDDEN.to_owned() } else { text })
}

/// Whether `failed_when` is false in any case.
fn never_fails(task: &Task) -> bool {
    task.outcome.failed_when.as_ref().is_some_and(|all| all.iter().any(TaskCondition::is_always_false))
}

/// The answer of a module that has read values that check mode cannot know. `vague`: a failure may
/// not happen in a real run. `unknown`: the whole answer depends on such a value. If a failure
/// counts as ok, it does not matter whether the task would fail in a run.
fn doubt_answer(task: &Task, answer: ModuleResult, vague: bool, unknown: bool) -> ModuleResult {
    match answer {
        Err(why) | Ok(TaskOutcome { failed: true, msg: why, .. }) if vague && (unknown || !never_fails(task)) => {
            Ok(TaskOutcome::indeterminate(format!("{why}; tasks that were not run may change that")))
        }
        Ok(_) if unknown => Ok(TaskOutcome::indeterminate("it depends on tasks that were not run")),
        other => other,
    }
}

/// Makes the registered result from the result of the module, `failed_when` and `changed_when`.
fn judge(task: &Task, scope: &ExprScope, answer: ModuleResult) -> (TaskOutcome, Value) {
    let outcome = answer.unwrap_or_else(|msg| TaskOutcome { failed: true, msg, ..TaskOutcome::default() });
    if outcome.unknown {
        let mut result = Map::from_iter(outcome.extra_keys.clone());
        result.insert("skipped".into(), json!(false));
        return (outcome, unknown::open(result));
    }
    let result = outcome.registered_result(&task.module);
    let mut result = if outcome.would_run { unknown::open(result) } else { Value::Object(result) };
    for (key, conditions) in [("failed", &task.outcome.failed_when), ("changed", &task.outcome.changed_when)] {
        let Some(conditions) = conditions else { continue };
        // A task whose options could not be evaluated has failed, and so has a command that was
        // stopped by its timeout or a cancel, whatever the conditions are.
        if outcome.unevaluable || outcome.output.as_ref().is_some_and(|o| o.timed_out || o.cancelled) {
            continue;
        }
        match unknown::all_hold(&scope_with_result(scope, task, &result), conditions) {
            Ok(None) => result[key] = unknown::mark(),
            Ok(Some(holds)) => {
                result[key] = json!(holds);
                if key == "failed" {
                    result["failed_when_result"] = json!(holds);
                }
                if key == "failed" && holds && result["msg"] == "" {
                    result["msg"] = json!("`failed_when` holds");
                }
            }
            Err((line, e)) => {
                result["failed"] = json!(true);
                let why = format!("{}:{line}: {key}_when: {}", task.place.file, expr::explain(&e));
                let before = result["msg"].as_str().filter(|msg| outcome.failed && !msg.is_empty());
                result["msg"] = json!(before.map_or_else(|| why.clone(), |msg| format!("{msg}; {why}")));
            }
        }
    }
    (outcome, result)
}

pub(crate) fn scope_with_result(scope: &ExprScope, task: &Task, result: &Value) -> ExprScope {
    let mut map = Map::new();
    if let Some(name) = &task.register {
        map.insert(name.clone(), result.clone());
    }
    scope.with_layer(crate::vars::var_map::VarMap::from_untrusted(&map))
}

fn ignores_errors(scope: &ExprScope, task: &Task) -> bool {
    match &task.outcome.ignore_errors {
        Some(value) => eval_bool(scope, value).unwrap_or(false),
        None => false,
    }
}

/// Evaluates a boolean that may be a template. None: it cannot be determined.
fn eval_bool(scope: &ExprScope, value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::String(text) => expr::native(scope, text).ok().map(|v| filters::truthy(&v)),
        _ => None,
    }
}

/// The value of an option that is a number of seconds or tries, and may be a template.
pub(crate) fn seconds(scope: &ExprScope, value: Option<&Value>) -> Option<Duration> {
    let value = expr::render_json(scope, value?).ok()?;
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    Duration::try_from_secs_f64(number).ok()
}
