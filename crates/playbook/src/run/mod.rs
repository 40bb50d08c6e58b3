//! Runs a plan on the node: sections in order, handlers after each section, blocks and includes at
//! their place. The course of a run belongs here; the changes themselves belong in `modules`.
//!
//! A run blocks its thread and needs no async runtime. `task.rs` runs one task,
//! `dynamic_include.rs` selects includes, and `handlers.rs` runs handlers.

pub(crate) mod checkpoint;
pub(crate) mod dynamic_include;
pub(crate) mod event;
pub(crate) mod handlers;
pub(crate) mod loop_result;
pub(crate) mod output_throttle;
pub(crate) mod play_barrier;
pub(crate) mod privileges;
pub(crate) mod python_check;
pub(crate) mod secrets;
pub(crate) mod task;

use super::modules::RunContext;
use super::plan::{Block, HostRules, PLAN_VERSION, PYTHON_PLAN_VERSION, Plan, PlanStep, Play, Task};
use super::{compile, facts, rendered};
use crate::delegate::OtherHosts;
use crate::os::atomic_fs;
use crate::run::checkpoint::{BlockPart, BlockPosition, Checkpoint, Position, RunPlace};
use crate::run::event::{CancelToken, HIDDEN, PlaybookRunOptions, RunEnd, RunEvent, RunFailure, Status, TaskReport};
use crate::template::expr;
use crate::vars::run_state::RunState;
use crate::vars::unknown;
use crate::vars::var_map::VarMap;
use crate::vars::variable_scope::VariableScope;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Runs the plan to its end, to the first failure that is not rescued, or until it is cancelled.
///
/// Changes that were made stay. `RunEnd` and the run's journal file list the pending handlers.
pub fn run(plan: &Plan, options: &PlaybookRunOptions, cancel: &CancelToken, sink: &mut dyn FnMut(RunEvent)) -> RunEnd {
    let refuse = |message: String| RunEnd {
        failed: 1,
        failure: Some(RunFailure {
            task: "before the first task".into(),
            file: plan.playbook.clone(),
            message,
            ..RunFailure::default()
        }),
        pending_handlers: options.pending_handlers.clone(),
        ..RunEnd::default()
    };
    if ![PLAN_VERSION, PYTHON_PLAN_VERSION].contains(&plan.version) {
        return refuse(format!(
            "the plan has version {}, but this node supports the versions {PLAN_VERSION} and {PYTHON_PLAN_VERSION}",
            plan.version
        ));
    }
    let masks = secrets::SecretTexts::new(&plan.secrets);
    let mut sink = |event| sink(masks.mask_event(event));
    let sink: &mut dyn FnMut(RunEvent) = &mut sink;
    let mut ground = match RunContext::open(options, cancel) {
        Ok(ground) => ground,
        Err(message) => return refuse(message),
    };
    let resumed = match Checkpoint::of_plan(plan).transpose() {
        Ok(resumed) => resumed,
        Err(e) => return refuse(format!("the checkpoint could not be read: {e}")),
    };
    let mut owed = options.pending_handlers.clone();
    for name in read_journal(&options.journal) {
        if !owed.contains(&name) {
            owed.push(name);
        }
    }
    // The facts of a delegated task are those of the host that delegated it, as in Ansible.
    let delegated = plan.delegated.as_ref().map(|run| RunState::from_message(run.state.clone()));
    let delegated = match delegated.transpose() {
        Ok(state) => state,
        Err(e) => return refuse(format!("the state of the delegated task could not be read: {e}")),
    };
    let known = delegated.as_ref().or(resumed.as_ref().map(|(_, state)| state));
    let facts = known.map_or_else(|| facts::gather_for(plan, cancel), |state| state.facts.clone());
    ground.secrets.set_plan(&plan.secrets);
    rendered::no_log_files(plan, &facts).into_iter().for_each(|path| ground.secrets.add(path));
    let mut frame = VariableScope::new(plan, &facts);
    if options.check {
        frame.check();
    }
    if let Some(step) = rendered::find_refusals(plan, &facts, options.check).certain.first() {
        return masks.mask_end(refuse(format!("{}:{}: {}", step.place.file, step.place.line, step.message)));
    }
    if let Some((place, why)) = python_check::refusal(plan, &mut frame, &mut ground.python, cancel) {
        return refuse(format!("{}:{}: {why}", place.file, place.line));
    }
    let before = owed.clone();
    let mut run = Run {
        frame: frame.with_controller(options.controller.as_ref()),
        options,
        cancel,
        sink,
        ground,
        end: RunEnd { facts: compile::facts_read(plan, &facts), ..RunEnd::default() },
        notified: Vec::new(),
        pending_earlier: owed,
        possibly_notified: Vec::new(),
        flushing: Vec::new(),
        journaled: Vec::new(),
        notified_by_failed: Vec::new(),
        notified_by_items: Vec::new(),
        last_failed: None,
        early_end: None,
        roles_done: BTreeSet::new(),
        place: RunPlace::default(),
        turn: 0,
        item: None,
        others: OtherHosts::default(),
    };
    if let Some(state) = &delegated {
        let item = plan.delegated.as_ref().and_then(|run| run.item.as_ref());
        let answer = run.run_delegated(plan, state, item);
        return RunEnd { answer, cancelled: cancel.is_stopped(), ..RunEnd::default() };
    }
    if let Some((checkpoint, state)) = resumed {
        run.resume(plan, checkpoint, &state);
    }
    let flow = run.plays(plan);
    if run.end.rebooting.is_some() {
        return masks.mask_end(run.end);
    }
    run.finish(plan, &flow);
    // Check mode ran no handler, so the handlers that were pending before are still pending.
    let pending_handlers = if options.check { before } else { run.all_pending(&[]) };
    masks.mask_end(RunEnd { pending_handlers, ..run.end })
}

/// The run must end, after a failure or a cancel (see `Run::end` and `Run::cancel`).
pub(super) struct RunStopped;
pub(super) type Flow = Result<(), RunStopped>;

pub(super) struct Run<'a, 's> {
    pub frame: VariableScope<'a>,
    pub options: &'a PlaybookRunOptions,
    pub cancel: &'a CancelToken,
    pub sink: &'s mut dyn FnMut(RunEvent),
    pub ground: RunContext<'a>,
    pub end: RunEnd,
    /// Names by which handlers were notified that have not run yet.
    pub notified: Vec<String>,
    /// Names of handlers that earlier runs left pending. These handlers wait for the first task
    /// that may have notified them, or for the end of the play. They may depend on changes that
    /// this run has yet to make.
    pub pending_earlier: Vec<String>,
    /// In check mode: names of handlers of which it is unknown whether they would be notified.
    pub possibly_notified: Vec<String>,
    /// Notified names whose handlers are running or are about to run in the current flush.
    pub flushing: Vec<String>,
    pub journaled: Vec<String>,
    /// Names of handlers that a failed task has in `notify`, because the task may have changed
    /// something before it failed. They are pending unless the failure is rescued.
    pub notified_by_failed: Vec<String>,
    /// Names of handlers of those items of the current loop that have changed something. They are
    /// notified if no item fails.
    pub notified_by_items: Vec<String>,
    /// The last failed task and its registered result, for `rescue`.
    pub last_failed: Option<(&'a Task, Value)>,
    /// Set when a `meta` task ended the play or role early, which is not a failure.
    early_end: Option<Ending>,
    /// Roles that the play has run and must not run again.
    roles_done: BTreeSet<String>,
    pub place: RunPlace,
    /// Number of tasks, handlers and includes that were started.
    pub turn: u32,
    /// The item of a loop that is being run.
    pub item: Option<CurrentItem>,
    pub others: OtherHosts,
}

/// The item of a loop that is being run.
#[derive(Debug, Clone)]
pub(super) struct CurrentItem {
    pub index: usize,
    pub value: Value,
    /// The variables that the loop sets for this item.
    pub layer: VarMap,
    /// The error of the label of this item, which fails the item after its module has run.
    pub label_fault: Option<String>,
}

/// Which part of the run a `meta` task ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Play,
    Role,
}

impl<'a> Run<'a, '_> {
    /// Completes the end of the run after its last play.
    fn finish(&mut self, plan: &Plan, flow: &Flow) {
        if flow.is_ok() {
            // The names that are still notified belong to a play that ended early, or to a handler
            // that the plan does not contain any more.
            self.notified.clear();
            self.pending_earlier.retain(|name| plan.plays.iter().any(|play| play.means(name)));
        }
        if let Err(message) = self.write_journal()
            && self.end.failure.is_none()
        {
            self.end.failure =
                Some(RunFailure { task: "writing the journal of handlers".into(), message, ..RunFailure::default() });
        }
        self.end.cancelled = self.cancel.is_stopped() && flow.is_err();
        if self.others.failure.is_some() && flow.is_err() {
            // The failure is counted on the host that ran the task, as in Ansible.
            (self.end.failure, self.end.fatal, self.end.cancelled) = (None, false, true);
        }
    }

    fn plays(&mut self, plan: &'a Plan) -> Flow {
        let mut resumed = self.take_resumed(|position| match position {
            Position::Play(index) => Some((index, None)),
            Position::Forced(index, failure) => Some((index, Some(failure))),
            _ => None,
        })?;
        let from = resumed.as_ref().map_or(plan.first_play(), |(index, _)| *index);
        for play in plan.plays.iter().filter(|play| play.index >= from) {
            if let Some(gate) = &self.options.gate {
                match gate.pass(play.index) {
                    Some(lost) => self.frame.lose(&lost),
                    None => {
                        if plan.waits_for_inventory() {
                            let checkpoint = self.checkpoint_for_next_plan();
                            self.fail_unless(checkpoint, "continuing with the changed inventory")?;
                        }
                        self.cancel.stop();
                        return Err(RunStopped);
                    }
                }
            }
            let resumed = resumed.take();
            if resumed.is_none() {
                let received = self.receive_values();
                self.fail_unless(received, "receiving the variables of other hosts")?;
                self.frame.open_play(play);
                self.roles_done.clear();
            }
            let begun = self.begin_exchange(play);
            self.fail_unless(begun, "sending the variables for other hosts")?;
            let flow = match resumed.and_then(|(_, failure)| failure) {
                None => self.run_within(Position::Play(play.index), |run| run.play(play)),
                Some(failure) => {
                    self.end.failure = Some(failure);
                    Err(RunStopped)
                }
            };
            if self.early_end.take().is_some() {
                // The play ended early without a failure, so the handlers that would run at its end
                // are dropped.
                self.notified.retain(|name| !play.means(name));
                self.journal_or_stop()?;
                self.report_play_end(play)?;
                continue;
            }
            if flow.is_err() && play.force_handlers && !self.cancel.is_stopped() {
                let failure = self.end.failure.take();
                let position = Position::Forced(play.index, failure.clone().unwrap_or_default());
                let forced = self.run_within(position, |run| run.flush(play));
                self.end.failure = failure.or(self.end.failure.take());
                forced?;
            }
            flow?;
            self.report_play_end(play)?;
        }
        Ok(())
    }

    /// Reports the end of the play to the caller that coordinates the hosts.
    fn report_play_end(&mut self, play: &Play) -> Flow {
        let shared = self.share_values();
        self.fail_unless(shared, "sending the variables for other hosts")?;
        if self.options.gate.is_some() {
            (self.sink)(RunEvent::PlayEnd { play: play.index });
        }
        Ok(())
    }

    /// Ends the run with a failure that belongs to no task, if `outcome` is an error.
    fn fail_unless(&mut self, outcome: Result<(), String>, what: &str) -> Flow {
        outcome.map_err(|message| {
            self.end.failed += 1;
            self.end.failure = Some(RunFailure { task: what.to_owned(), message, ..RunFailure::default() });
            RunStopped
        })
    }

    fn play(&mut self, play: &'a Play) -> Flow {
        let resumed = self.take_resumed(|position| match position {
            Position::Section(at) => Some((at, false)),
            Position::Flush(at) => Some((at, true)),
            _ => None,
        })?;
        let (from, flushes) = resumed.unwrap_or((0, false));
        for (at, section) in play.sections.iter().enumerate().skip(from) {
            if !(flushes && at == from) {
                self.run_within(Position::Section(at), |run| run.steps(play, section))?;
                if at + 1 == play.sections.len() {
                    let (due, later) =
                        std::mem::take(&mut self.pending_earlier).into_iter().partition(|name| play.means(name));
                    self.pending_earlier = later;
                    self.notified = union([&self.notified, &due]);
                }
            }
            self.run_within(Position::Flush(at), |run| run.flush(play))?;
        }
        Ok(())
    }

    pub(super) fn steps(&mut self, play: &'a Play, steps: &'a [PlanStep]) -> Flow {
        let resumed = self.take_resumed(|position| match position {
            Position::Step(at) => Some(at),
            _ => None,
        })?;
        for (at, step) in steps.iter().enumerate().skip(resumed.unwrap_or_default()) {
            if self.cancel.is_stopped() {
                return Err(RunStopped);
            }
            self.run_within(Position::Step(at), |run| match step {
                PlanStep::Task(task) if task.module == "meta" => run.meta(play, task),
                PlanStep::Task(task) => run.single(play, task, false),
                PlanStep::Block(block) => run.block(play, block),
                PlanStep::Include(include) => {
                    run.include(play, &include.task, (&include.choices, &include.refused), false)
                }
            })?;
        }
        Ok(())
    }

    /// Runs a task or handler that is not an include.
    pub(super) fn single(&mut self, play: &'a Play, task: &'a Task, handler: bool) -> Flow {
        let read = self.read_of_others(task);
        self.fail_unless(read, "receiving the variables of other hosts")?;
        let flow = match &task.hosts {
            HostRules { once: true, .. } => self.run_once(play, task, handler),
            HostRules { throttle: 1.., .. } => self.run_throttled(play, task, handler),
            _ => self.task(play, task, handler),
        };
        if flow.is_ok() {
            self.release(play, task);
        }
        let told = self.publish_values(task);
        self.fail_unless(told, "sending the variables for other hosts")?;
        self.end.fatal |= flow.is_err() && task.outcome.fatal && !self.cancel.is_stopped();
        flow
    }

    pub(super) fn meta(&mut self, play: &'a Play, task: &'a Task) -> Flow {
        if self.place.is_resuming() {
            // Only a handler that this task flushes can have restarted the host.
            return self.flush(play);
        }
        let scope = self.frame.scope(play, task);
        // Check mode examines the handlers even if it cannot know whether this `flush_handlers`
        // task runs.
        let flushes = task.args.get("action").and_then(Value::as_str) == Some("flush_handlers");
        match unknown::all_hold(&scope, &task.when) {
            Ok(Some(true)) => {}
            Ok(None) if flushes => {}
            Ok(_) => return Ok(()),
            Err((line, e)) => return self.fail_task(task, line, &expr::explain(&e), false),
        }
        match task.args.get("action").and_then(Value::as_str).unwrap_or_default() {
            "flush_handlers" => return self.flush(play),
            "clear_facts" => self.frame.clear_facts(),
            "end_role" => self.early_end = Some(Ending::Role),
            "end_play" | "end_batch" | "end_host" => self.early_end = Some(Ending::Play),
            _ => {}
        }
        if self.early_end.is_some() { Err(RunStopped) } else { Ok(()) }
    }

    fn block(&mut self, play: &'a Play, block: &'a Block) -> Flow {
        let resumed = self.take_resumed(|position| match position {
            Position::Block(at) => Some(at),
            _ => None,
        })?;
        let once = block.role.as_ref().and_then(|role| role.once.as_ref());
        if resumed.is_none() {
            if let Some(exports) = &block.exports {
                self.frame.export(exports);
            }
            if once.is_some_and(|key| self.roles_done.contains(key)) {
                return Ok(());
            }
        }
        let begin = BlockPosition {
            part: BlockPart::Block,
            done_before: self.end.ok + self.end.changed,
            failed_before: self.end.failed,
            failed: false,
        };
        let at = resumed.unwrap_or(begin);
        let mut flow = if at.failed { Err(RunStopped) } else { Ok(()) };
        if at.part == BlockPart::Block {
            flow = self.run_within(Position::Block(at), |run| run.steps(play, &block.block));
            if block.role.is_some() && self.early_end == Some(Ending::Role) {
                self.early_end = None;
                flow = Ok(());
            }
            if flow.is_ok() && self.end.ok + self.end.changed > at.done_before {
                self.roles_done.extend(once.cloned());
            }
            if self.early_end.is_some() {
                return flow;
            }
        }
        let rescues = at.part == BlockPart::Block && flow.is_err() && !block.rescue.is_empty();
        if rescues && !self.cancel.is_stopped() {
            self.begin_rescue(at.failed_before);
        }
        if (rescues || at.part == BlockPart::Rescue) && !self.cancel.is_stopped() {
            let position = Position::Block(BlockPosition { part: BlockPart::Rescue, ..at });
            flow = self.run_within(position, |run| run.steps(play, &block.rescue));
        }
        if self.cancel.is_stopped() || self.early_end.is_some() {
            return Err(RunStopped);
        }
        let position = BlockPosition { part: BlockPart::Always, failed: flow.is_err(), ..at };
        let always = self.run_within(Position::Block(position), |run| run.steps(play, &block.always));
        flow.and(always)
    }

    /// Forgets the failure of a block that has a rescue, and sets the variables about it.
    fn begin_rescue(&mut self, failed_before: u32) {
        let failed = self.end.failure.take();
        self.others.failure = None;
        self.end.failed = failed_before;
        self.notified_by_failed.clear();
        self.end.fatal = false;
        let Some(failure) = failed else { return };
        let last = self.last_failed.as_ref();
        let shown = last.map(|(task, _)| *task).filter(|task| !task.no_log);
        let task = shown.map_or_else(
            || json!({"name": failure.task}),
            |Task { name, module, args, tags, .. }| {
                // A task without a name has the name of its module in reports only.
                let name = if name == module { "" } else { failure.task.as_str() };
                json!({"name": name, "action": module, "args": args, "tags": tags})
            },
        );
        let result = last.map(|(_, result)| result.clone()).unwrap_or_default();
        self.frame.set("ansible_failed_task", &task);
        self.frame.set("ansible_failed_result", &result);
    }

    pub(super) fn journal_or_stop(&mut self) -> Flow {
        let written = self.write_journal();
        self.fail_unless(written, "writing the journal of handlers")
    }

    /// Names of all pending handlers, of this run and earlier ones, including `more`.
    pub fn all_pending(&self, more: &[String]) -> Vec<String> {
        let (failed, items) = (&self.notified_by_failed, &self.notified_by_items);
        union([&self.pending_earlier, &self.flushing, &self.notified, failed, items, more])
    }

    /// Writes the names of the pending handlers to the run's journal file. The file is on disk when
    /// this returns.
    pub fn write_journal(&mut self) -> Result<(), String> {
        let (path, owed) = (&self.options.journal, self.all_pending(&[]));
        if path.as_os_str().is_empty()
            || self.options.check
            || self.journaled == owed && !(owed.is_empty() && path.exists())
        {
            return Ok(());
        }
        if owed.is_empty() {
            if path.exists() {
                atomic_fs::remove(path, false)?;
            }
        } else {
            let text = serde_json::to_vec(&owed).unwrap_or_default();
            let private = atomic_fs::Attributes { mode: Some(0o600), ..atomic_fs::Attributes::default() };
            atomic_fs::write(self.ground.node.notes(), path, &text, private, &mut |_| Ok(()))?;
        }
        self.journaled = owed;
        Ok(())
    }

    pub(super) fn send_event(&mut self, done: TaskReport, handler: bool) {
        (self.sink)(if handler { RunEvent::Handler(done) } else { RunEvent::Task(done) });
    }

    /// Must be called when the current task failed. The handlers that the journal file got before
    /// the task stay pending.
    pub fn break_off(&mut self) {
        let owed = self.all_pending(&[]);
        self.notified_by_failed.append(&mut self.notified_by_items);
        self.notified_by_failed.extend(self.journaled.iter().filter(|name| !owed.contains(name)).cloned());
    }

    /// Fails a task that could not be evaluated.
    pub fn fail_task(&mut self, task: &'a Task, line: u32, message: &str, handler: bool) -> Flow {
        let message = if task.no_log { HIDDEN.to_owned() } else { message.to_owned() };
        let msg = format!("{}:{line}: {message}", task.place.file);
        self.send_event(TaskReport { msg, ..TaskReport::for_task(task, self.turn, Status::Failed, "") }, handler);
        self.break_off();
        self.end.failed += 1;
        self.end.fatal |= task.outcome.fatal;
        self.last_failed = Some((task, json!({"changed": false, "failed": true, "msg": message})));
        self.end.failure = Some(RunFailure {
            task: task.name.clone(),
            file: task.place.file.clone(),
            line,
            rc: None,
            message,
            tail: Vec::new(),
        });
        Err(RunStopped)
    }
}

/// All names of the lists, each once.
pub(super) fn union<const N: usize>(lists: [&[String]; N]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in lists.into_iter().flatten() {
        if !out.contains(name) {
            out.push(name.clone());
        }
    }
    out
}

fn read_journal(path: &Path) -> Vec<String> {
    if path.as_os_str().is_empty() {
        return Vec::new();
    }
    // A journal file that cannot be read contributes no pending handlers.
    atomic_fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
