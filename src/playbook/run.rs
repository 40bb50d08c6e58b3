//! Runs a plan on the node: sections in order, handlers after each, blocks and includes where they stand.
//!
//! Blocking, no runtime. What one task does stands in `step.rs`; which changes its module makes, in `modules`.

use super::event::{Cancel, Event, Failure, RunEnd, RunOptions, Status};
use super::frame::{self, Frame};
use super::modules::{Answer, Ground, Outcome};
use super::plan::{self, Block, Handler, PLAN_VERSION, Plan, Play, Step, Task};
use super::{compile, expr, facts, rendered, safe};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Rounds of handlers that notify handlers.
const ROUNDS_MAX: usize = 20;
/// Includes inside includes.
const INCLUDES_MAX: usize = 30;

/// Runs the plan to its end, to the first failure that nothing rescues, or until it is cancelled.
///
/// Whatever was done stays done; `RunEnd` says which handlers are owed, and so does the journal file.
pub fn run(plan: &Plan, options: &RunOptions, cancel: &Cancel, sink: &mut dyn FnMut(Event)) -> RunEnd {
    let refuse = |message: String| RunEnd {
        failed: 1,
        failure: Some(Failure {
            task: "before the first task".into(),
            file: plan.playbook.clone(),
            message,
            ..Failure::default()
        }),
        pending_handlers: options.pending_handlers.clone(),
        ..RunEnd::default()
    };
    if plan.version != PLAN_VERSION {
        return refuse(format!("the plan has version {}, this node understands {PLAN_VERSION}", plan.version));
    }
    if options.check {
        return refuse("check mode is not known to this node".into());
    }
    let mut ground = match Ground::open(options) {
        Ok(ground) => ground,
        Err(message) => return refuse(message),
    };
    let mut notified = options.pending_handlers.clone();
    for name in read_journal(&options.journal) {
        if !notified.contains(&name) {
            notified.push(name);
        }
    }
    let facts = facts::facts();
    rendered::hidden(plan, &facts).into_iter().for_each(|path| ground.secrets.add(path));
    let mut run = Run {
        frame: Frame::new(plan, &facts),
        options,
        cancel,
        sink,
        ground,
        end: RunEnd { facts: compile::facts_read(plan, &facts), ..RunEnd::default() },
        notified,
        journaled: Vec::new(),
        last_failure: Value::Null,
        ending: None,
        roles_done: BTreeSet::new(),
        depth: 0,
    };
    let flow = run.plays(plan);
    if flow.is_ok() {
        // Owed to a handler that the plan no longer has.
        run.notified.clear();
    }
    if let Err(message) = run.write_journal()
        && run.end.failure.is_none()
    {
        run.end.failure =
            Some(Failure { task: "writing the journal of handlers".into(), message, ..Failure::default() });
    }
    run.end.cancelled = cancel.stopped() && flow.is_err();
    RunEnd { pending_handlers: run.notified, ..run.end }
}

/// A failure or a cancel; which one, the run knows.
pub(super) struct Stop;
pub(super) type Flow = Result<(), Stop>;

pub(super) struct Run<'a, 's> {
    pub frame: Frame<'a>,
    pub options: &'a RunOptions,
    pub cancel: &'a Cancel,
    pub sink: &'s mut dyn FnMut(Event),
    pub ground: Ground<'a>,
    pub end: RunEnd,
    /// Names that were notified and whose handlers have not run.
    pub notified: Vec<String>,
    journaled: Vec<String>,
    /// Registered result of the last failed task, for `rescue`.
    pub last_failure: Value,
    /// A stop that is no failure: `meta` asked for it.
    ending: Option<Ending>,
    /// Roles that the play has run and does not run again.
    roles_done: BTreeSet<String>,
    /// Includes that are open.
    depth: usize,
}

/// What a `meta` task ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Play,
    Role,
}

impl<'a> Run<'a, '_> {
    fn plays(&mut self, plan: &'a Plan) -> Flow {
        for play in &plan.plays {
            if self.options.gate.as_ref().is_some_and(|gate| !gate.pass(play.index)) {
                self.cancel.stop();
                return Err(Stop);
            }
            self.frame.open_play();
            self.roles_done.clear();
            let flow = self.play(play);
            if self.ending.take().is_some() {
                // Ended early, not failed: what was notified for its end has no end to wait for.
                self.notified.retain(|name| !(0..play.handlers.len()).any(|i| play.answers(i, name)));
                self.journal_or_stop()?;
                self.played(play);
                continue;
            }
            if flow.is_err() && play.force_handlers && !self.cancel.stopped() {
                let failure = self.end.failure.take();
                let forced = self.flush(play);
                self.end.failure = failure.or(self.end.failure.take());
                forced?;
            }
            flow?;
            self.played(play);
        }
        Ok(())
    }

    /// Says so to whoever begins the next play with others.
    fn played(&mut self, play: &Play) {
        if self.options.gate.is_some() {
            (self.sink)(Event::PlayEnd { play: play.index });
        }
    }

    fn play(&mut self, play: &'a Play) -> Flow {
        for section in &play.sections {
            self.steps(play, section)?;
            self.flush(play)?;
        }
        Ok(())
    }

    fn steps(&mut self, play: &'a Play, steps: &'a [Step]) -> Flow {
        for step in steps {
            if self.cancel.stopped() {
                return Err(Stop);
            }
            match step {
                Step::Task(task) if task.module == "meta" => self.meta(play, task)?,
                Step::Task(task) => self.single(play, task, false)?,
                Step::Block(block) => self.block(play, block)?,
                Step::Include(include) => self.include(play, &include.task, &include.choices)?,
            }
        }
        Ok(())
    }

    /// A task or handler that is no include.
    fn single(&mut self, play: &'a Play, task: &'a Task, handler: bool) -> Flow {
        let flow = self.task(play, task, handler);
        self.end.fatal |= flow.is_err() && task.fatal && !self.cancel.stopped();
        flow
    }

    fn meta(&mut self, play: &'a Play, task: &'a Task) -> Flow {
        let scope = self.frame.scope(play, task);
        match frame::all_hold(&scope, &task.when) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err((line, e)) => return self.broken(task, line, &expr::explain(&e), false),
        }
        match task.args.get("action").and_then(Value::as_str).unwrap_or_default() {
            "flush_handlers" => return self.flush(play),
            "clear_facts" => self.frame.clear_facts(),
            "end_role" => self.ending = Some(Ending::Role),
            "end_play" | "end_batch" | "end_host" => self.ending = Some(Ending::Play),
            _ => {}
        }
        if self.ending.is_some() { Err(Stop) } else { Ok(()) }
    }

    fn block(&mut self, play: &'a Play, block: &'a Block) -> Flow {
        if let Some(exports) = &block.exports {
            self.frame.export(exports);
        }
        let once = block.role.as_ref().and_then(|role| role.once.as_ref());
        if once.is_some_and(|key| self.roles_done.contains(key)) {
            return Ok(());
        }
        let before = self.end.ok + self.end.changed;
        let mut flow = self.steps(play, &block.block);
        if block.role.is_some() && self.ending == Some(Ending::Role) {
            self.ending = None;
            flow = Ok(());
        }
        if flow.is_ok() && self.end.ok + self.end.changed > before {
            self.roles_done.extend(once.cloned());
        }
        if self.ending.is_some() {
            return flow;
        }
        if flow.is_err() && !block.rescue.is_empty() && !self.cancel.stopped() {
            let failed = self.end.failure.take();
            self.end.failed = self.end.failed.saturating_sub(1);
            self.end.fatal = false;
            if let Some(failure) = failed {
                self.frame.set("ansible_failed_task", &json!({"name": failure.task}));
                let result = self.last_failure.clone();
                self.frame.set("ansible_failed_result", &result);
            }
            flow = self.steps(play, &block.rescue);
        }
        if self.cancel.stopped() || self.ending.is_some() {
            return Err(Stop);
        }
        let always = self.steps(play, &block.always);
        flow.and(always)
    }

    /// What `include_vars` reads, with which everything that follows is rendered.
    pub fn include_vars(&mut self, task: &Task, args: &Map<String, Value>) -> Answer {
        let name = args.get("file").and_then(Value::as_str).unwrap_or_default();
        let Some(layer) = task.vars_files.get(name) else {
            let known = task.vars_files.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!("`{name}` is not among the files of this plan: {known}"));
        };
        self.frame.include(*layer, args.get("name").and_then(Value::as_str));
        let mut outcome = Outcome::ok("");
        let vars = self.frame.plan().layers.get(*layer as usize).cloned().unwrap_or_default();
        outcome.more.insert("ansible_facts".into(), Value::Object(vars));
        outcome.more.insert("ansible_included_var_files".into(), json!([name]));
        Ok(outcome)
    }

    fn include(&mut self, play: &'a Play, task: &'a Task, choices: &'a BTreeMap<String, Vec<Step>>) -> Flow {
        if self.depth >= INCLUDES_MAX {
            return self.broken(task, task.place.line, "includes are nested too deep", false);
        }
        let scope = self.frame.scope(play, task);
        let items = match &task.repeat {
            None => Vec::new(),
            Some(repeat) => match frame::items(&scope, repeat) {
                Ok(items) => items,
                Err(_) if matches!(frame::all_hold(&scope, &task.when), Ok(false)) => Vec::new(),
                Err(message) => return self.broken(task, task.place.line, &message, false),
            },
        };
        let rounds = if task.repeat.is_some() { items.len() } else { 1 };
        for index in 0..rounds {
            if let Some(pause) = task.repeat.as_ref().and_then(|r| r.pause.as_ref()).filter(|_| index > 0) {
                self.pause(&scope, pause);
            }
            let layer = task.repeat.as_ref().map(|repeat| frame::item_layer(repeat, &items, index));
            let scope = match layer.clone() {
                Some(layer) => scope.with(layer),
                None => scope.clone(),
            };
            match frame::all_hold(&scope, &task.when) {
                Ok(true) => {}
                Ok(false) => {
                    self.end.skipped += 1;
                    continue;
                }
                Err((line, e)) => return self.broken(task, line, &expr::explain(&e), false),
            }
            let name = match frame::args(&scope, task) {
                Ok(args) => plan::choice(&task.module, &args),
                Err(message) => return self.broken(task, task.place.line, &message, false),
            };
            let plain = name.strip_prefix("./").unwrap_or(&name);
            let Some(steps) = choices.get(&name).or(choices.get(plain)) else {
                let known = choices.keys().cloned().collect::<Vec<_>>().join(", ");
                let message = format!("`{name}` is not among what this plan holds: {known}");
                return self.broken(task, task.place.line, &message, false);
            };
            let depth = self.frame.params.len();
            self.frame.params.extend(layer.map(Arc::new));
            self.depth += 1;
            let flow = self.steps(play, steps);
            self.depth -= 1;
            self.frame.params.truncate(depth);
            flow?;
            let Some(repeat) = task.repeat.as_ref().filter(|repeat| !repeat.break_when.is_empty()) else { continue };
            match frame::all_hold(
                &self.frame.scope(play, task).with(frame::item_layer(repeat, &items, index)),
                &repeat.break_when,
            ) {
                Ok(true) => break,
                Ok(false) => {}
                Err((line, e)) => return self.broken(task, line, &expr::explain(&e), false),
            }
        }
        Ok(())
    }

    /// One handler that is due.
    fn handler(&mut self, play: &'a Play, handler: &'a Handler) -> Flow {
        match handler.task.module.as_str() {
            "meta" => self.meta(play, &handler.task),
            "include_tasks" => self.include(play, &handler.task, &handler.choices),
            _ => self.single(play, &handler.task, true),
        }
    }

    /// Runs every notified handler once, in the order they are defined in.
    fn flush(&mut self, play: &'a Play) -> Flow {
        for _ in 0..ROUNDS_MAX {
            let due: Vec<usize> =
                (0..play.handlers.len()).filter(|i| self.notified.iter().any(|name| play.answers(*i, name))).collect();
            if due.is_empty() {
                return Ok(());
            }
            self.journal_or_stop()?;
            let meant = |name: &str| (0..play.handlers.len()).any(|i| play.answers(i, name));
            let names: Vec<String> = self.notified.iter().filter(|name| meant(name)).cloned().collect();
            self.notified.retain(|name| !names.contains(name));
            for (at, i) in due.iter().enumerate() {
                let flow = if self.cancel.stopped() { Err(Stop) } else { self.handler(play, &play.handlers[*i]) };
                // Until the last handler that a name means has run, the name is owed.
                let rest = &due[if flow.is_ok() { at + 1 } else { at }..];
                let owed = names.iter().filter(|name| rest.iter().any(|i| play.answers(*i, name)));
                let mut all: Vec<String> = owed.cloned().collect();
                all.extend(self.notified.iter().filter(|n| !names.contains(n)).cloned());
                if flow.is_err() {
                    self.notified = all;
                    self.journal_or_stop()?;
                    return flow;
                }
                let fresh = std::mem::replace(&mut self.notified, all);
                let written = self.journal_or_stop();
                self.notified = fresh;
                written?;
            }
            self.journal_or_stop()?;
        }
        Ok(())
    }

    fn journal_or_stop(&mut self) -> Flow {
        self.write_journal().map_err(|message| {
            self.end.failed += 1;
            self.end.failure =
                Some(Failure { task: "writing the journal of handlers".into(), message, ..Failure::default() });
            Stop
        })
    }

    /// Brings the journal up to date; on disk when this returns.
    pub fn write_journal(&mut self) -> Result<(), String> {
        let path = &self.options.journal;
        if path.as_os_str().is_empty()
            || self.journaled == self.notified && !(self.notified.is_empty() && path.exists())
        {
            return Ok(());
        }
        if self.notified.is_empty() {
            if path.exists() {
                safe::remove(path, false)?;
            }
        } else {
            let text = serde_json::to_vec(&self.notified).unwrap_or_default();
            let private = safe::Attributes { mode: Some(0o600), ..safe::Attributes::default() };
            safe::write(path, &text, private, &mut |_| Ok(()))?;
        }
        self.journaled = self.notified.clone();
        Ok(())
    }

    /// A task that could not even be evaluated.
    pub fn broken(&mut self, task: &Task, line: u32, message: &str, handler: bool) -> Flow {
        let message = if task.no_log { "hidden by no_log".to_owned() } else { message.to_owned() };
        let done = super::event::Done {
            i: task.id,
            name: task.name.clone(),
            module: task.module.clone(),
            item: None,
            status: Status::Failed,
            msg: format!("{}:{line}: {message}", task.place.file),
            rc: None,
            stdout_tail: String::new(),
            diff: None,
            path: None,
            took_ms: 0,
        };
        (self.sink)(if handler { Event::Handler(done) } else { Event::Task(done) });
        self.end.failed += 1;
        self.end.failure = Some(Failure {
            task: task.name.clone(),
            file: task.place.file.clone(),
            line,
            rc: None,
            message,
            tail: Vec::new(),
        });
        Err(Stop)
    }
}

fn read_journal(path: &Path) -> Vec<String> {
    if path.as_os_str().is_empty() {
        return Vec::new();
    }
    // A journal that cannot be read owes nothing that we could name.
    safe::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
