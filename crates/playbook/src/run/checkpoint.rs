//! The point at which a run continues after its host was restarted, or with another plan because
//! the inventory has changed.
//!
//! The run keeps the path of its present task in the plan: `place.path`. Before the reboot, the
//! run sends a `Checkpoint` to the controller. After the reboot, a new run of the same plan follows
//! the path to the task without running anything before it. The controller does not read the
//! checkpoint and returns it only to the host that has sent it.

use crate::delegate::HostValues;
use crate::plan::{Plan, Task};
use crate::run::event::{RunEnd, RunFailure};
use crate::run::{Flow, Run, RunStopped, read_journal};
use crate::vars::run_state::RunState;
use crate::vars::unknown;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size in bytes of a checkpoint in the end of a run. The reply with it has 4 MiB.
const CHECKPOINT_MAX: usize = 3 << 20;

/// One part of the path to the present task, from the play to the task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Position {
    /// The play with this index.
    Play(u32),
    /// The handlers that run although the play with this index has failed (`force_handlers`).
    Forced(u32, RunFailure),
    /// The section of the play with this index.
    Section(usize),
    /// The handlers after the section with this index.
    Flush(usize),
    Step(usize),
    Block(BlockPosition),
    Include(IncludePosition),
    Handler(HandlerPosition),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BlockPart {
    Block,
    Rescue,
    Always,
}

/// A part of a block, with the counts from before the block.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct BlockPosition {
    pub part: BlockPart,
    pub done_before: u32,
    pub failed_before: u32,
    /// Whether the parts before `always` have failed.
    pub failed: bool,
}

/// An include whose targets are being run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct IncludePosition {
    /// The items of the loop. Empty if there is no loop.
    pub items: Vec<Value>,
    /// For each round, the index of its item and the name of its target. Err: the reason why check
    /// mode does not know the target.
    pub rounds: Vec<(usize, Result<String, String>)>,
    /// The index of the present round.
    pub at: usize,
}

/// A handler in one round of a flush.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HandlerPosition {
    /// The indices of the handlers of this round.
    pub due: Vec<usize>,
    /// The index in `due` of the present handler.
    pub at: usize,
    /// The notified names to which the handlers answer.
    pub names: Vec<String>,
    /// Pending handlers of the outer flush.
    pub outer: Vec<String>,
    pub rounds: usize,
}

/// The place of a run in its plan.
#[derive(Debug, Default)]
pub(crate) struct RunPlace {
    path: Vec<Position>,
    /// The rest of the path to the task at which the run continues, the innermost part first.
    resumed: Vec<Position>,
    /// The task at which the run continues. None after the run has reached it.
    interrupted: Option<Interrupted>,
}

/// The task that restarts the host, as the run knows it after the reboot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupted {
    task: u32,
    /// The boot time before the reboot, as a command has printed it.
    pub boot_time: String,
    /// Seconds since the reboot began.
    pub elapsed: u64,
    /// Whether the controller waits no longer, so that the task fails if the host is not ready.
    pub expired: bool,
}

impl RunPlace {
    /// Whether the run follows the path to the task at which it continues.
    pub fn is_resuming(&self) -> bool {
        self.interrupted.is_some()
    }

    /// Whether the run continues at this task.
    pub fn is_interrupted(&self, task: &Task) -> bool {
        self.resumed.is_empty() && self.interrupted.as_ref().is_some_and(|interrupted| interrupted.task == task.id)
    }

    /// The reboot after which the run continues. From here on, everything is run.
    pub fn take_interrupted(&mut self) -> Option<Interrupted> {
        self.interrupted.take()
    }

    /// Number of nested includes that are being run.
    pub fn include_depth(&self) -> usize {
        self.path.iter().filter(|position| matches!(position, Position::Include(_))).count()
    }

    /// The include that is being run. None: the innermost part of the path is no include.
    pub fn include(&mut self) -> Option<&mut IncludePosition> {
        match self.path.last_mut() {
            Some(Position::Include(include)) => Some(include),
            _ => None,
        }
    }
}

/// Everything that a run must know to continue after a reboot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// The task that restarts the host. None: the run continues with the next play of another
    /// plan.
    task: Option<u32>,
    pub boot_time: String,
    path: Vec<Position>,
    /// A `RunState` in the form of messages.
    state: Value,
    end: RunEnd,
    notified: Vec<String>,
    pending_earlier: Vec<String>,
    flushing: Vec<String>,
    notified_by_failed: Vec<String>,
    /// The number and the result of the last failed task.
    last_failed: Option<(u32, Value)>,
    roles_done: BTreeSet<String>,
    turn: u32,
    given: BTreeMap<String, HostValues>,
}

impl Checkpoint {
    /// The checkpoint with which a run of `plan` continues, and its variables. None: the run begins
    /// at the first task.
    pub fn of_plan(plan: &Plan) -> Option<Result<(Self, RunState), serde_json::Error>> {
        let resumed = plan.resumed.as_ref()?;
        let read = serde_json::from_str::<Self>(&resumed.checkpoint);
        Some(read.and_then(|mut checkpoint| {
            let mut state = RunState::from_message(checkpoint.state.take())?;
            if let Some(replaced) = resumed.replaced {
                for (layer, _) in &mut state.included {
                    *layer = layer.saturating_add(replaced.layers_from);
                }
                // They belong to the play before.
                (state.files, state.exports) = Default::default();
            }
            Ok((checkpoint, state))
        }))
    }
}

impl<'a> Run<'a, '_> {
    /// Runs a part of the plan, with `position` as its place.
    pub(super) fn run_within(&mut self, position: Position, part: impl FnOnce(&mut Self) -> Flow) -> Flow {
        self.place.path.push(position);
        let flow = part(self);
        self.place.path.pop();
        flow
    }

    /// The next part of the path on which the run continues. None: the run does not continue after
    /// a reboot, or has already reached its task.
    pub(super) fn take_resumed<T>(
        &mut self,
        part: impl FnOnce(Position) -> Option<T>,
    ) -> Result<Option<T>, RunStopped> {
        if !self.place.is_resuming() {
            return Ok(None);
        }
        match self.place.resumed.pop().and_then(part) {
            Some(found) => Ok(Some(found)),
            None => {
                let why = "the checkpoint does not fit the plan".to_owned();
                self.fail_unless(Err(why), "continuing after a reboot").map(|()| None)
            }
        }
    }

    /// The checkpoint for a reboot by `task`, or for another plan.
    pub(crate) fn checkpoint(&self, task: Option<&Task>) -> Checkpoint {
        let mut state = self.frame.state();
        // The includes on the path add the variables of their loops again.
        state.params.clear();
        let to_message = |value: &Value| {
            let mut value = value.clone();
            unknown::to_wire(&mut value);
            value
        };
        Checkpoint {
            task: task.map(|task| task.id),
            boot_time: String::new(),
            path: self.place.path.clone(),
            state: state.to_message(),
            end: RunEnd { facts: Default::default(), ..self.end.clone() },
            notified: self.notified.clone(),
            pending_earlier: self.pending_earlier.clone(),
            flushing: self.flushing.clone(),
            notified_by_failed: self.notified_by_failed.clone(),
            last_failed: self.last_failed.as_ref().map(|(task, result)| (task.id, to_message(result))),
            roles_done: self.roles_done.clone(),
            // The task counts again when the run continues.
            turn: self.turn.saturating_sub(u32::from(task.is_some())),
            given: self.others.given.clone(),
        }
    }

    /// Puts the checkpoint for another plan into the end of the run.
    pub(super) fn checkpoint_for_next_plan(&mut self) -> Result<(), String> {
        let checkpoint = serde_json::to_string(&self.checkpoint(None)).map_err(|e| e.to_string())?;
        if checkpoint.len() > CHECKPOINT_MAX {
            let most = CHECKPOINT_MAX >> 20;
            return Err(format!("the facts, results and variables are larger than {most} MiB; `register` less"));
        }
        self.end.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// Prepares a run that has not begun to continue at the task of the checkpoint.
    pub(super) fn resume(&mut self, plan: &'a Plan, checkpoint: Checkpoint, state: &RunState) {
        let Some(resumed) = &plan.resumed else { return };
        self.frame.restore(state);
        let facts = std::mem::take(&mut self.end.facts);
        self.end = RunEnd { facts, ..checkpoint.end };
        self.notified = checkpoint.notified;
        self.pending_earlier = checkpoint.pending_earlier;
        self.flushing = checkpoint.flushing;
        self.journaled = read_journal(&self.options.journal);
        self.notified_by_failed = checkpoint.notified_by_failed;
        self.last_failed = checkpoint.last_failed.and_then(|(id, mut result)| {
            unknown::from_wire(&mut result);
            let mut found = None;
            plan.each_task(&mut |task| found = found.or((task.id == id).then_some(task)));
            Some((found?, result))
        });
        self.roles_done = checkpoint.roles_done;
        self.turn = checkpoint.turn;
        self.others.given = checkpoint.given;
        let mut path = checkpoint.path;
        path.reverse();
        self.place = RunPlace {
            path: Vec::new(),
            resumed: path,
            interrupted: checkpoint.task.map(|task| Interrupted {
                task,
                boot_time: checkpoint.boot_time,
                elapsed: resumed.elapsed,
                expired: resumed.expired,
            }),
        };
    }
}
