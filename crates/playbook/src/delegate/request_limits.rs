//! How often a run may request the same task. A node that lies could otherwise repeat a task of its
//! plan without end on another host.

use super::include_chain::TaskPath;
use crate::plan::{PlanStep, Play, Task};
use crate::run::handlers::ROUNDS_MAX;
use crate::run::task::max_attempts;
use crate::vars::scope::ExprScope;

/// What the controller needs to decide whether a run may request a task now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestLimits {
    pub occurrence: TaskOccurrence,
    /// Maximum number of requests for the same occurrence: the retries of the task, and the number
    /// of times that a run may notify its handler. `u32::MAX` if the plan sets no limit.
    pub times_max: u32,
    /// Whether the run must have been chosen to run the task (`run_once`).
    pub once: bool,
    /// Whether the run must have been allowed to begin the task (`throttle`).
    pub throttled: bool,
}

/// A task, or one item of its loop, with the items of the loops of the includes that lead to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskOccurrence {
    pub task: u32,
    pub item: Option<usize>,
    /// For each include with a loop: the index of the first item with this value.
    pub include_items: Vec<usize>,
}

impl RequestLimits {
    /// `opened`: see `TaskPath::open`.
    pub(super) fn new(path: &TaskPath, scope: &ExprScope, item: Option<usize>, opened: &[(usize, usize)]) -> Self {
        let task = path.task;
        let equal_items = opened.iter().map(|(_, equal)| u32::try_from(*equal).unwrap_or(u32::MAX));
        let attempts = u32::try_from(max_attempts(task, scope)).unwrap_or(u32::MAX);
        let runs = if path.in_handler { max_runs_of_handler(path.play) } else { 1 };
        // As in `Run::single`, a task that runs once needs no permit.
        let (once, throttled) = (task.hosts.once, task.hosts.throttle > 0 && !task.hosts.once);
        Self {
            occurrence: TaskOccurrence {
                task: task.id,
                item,
                include_items: opened.iter().map(|(index, _)| *index).collect(),
            },
            times_max: equal_items.fold(attempts.saturating_mul(runs), u32::saturating_mul),
            once,
            throttled,
        }
    }
}

/// Maximum number of times that a handler of the play runs: once in each round of each flush.
fn max_runs_of_handler(play: &Play) -> u32 {
    let mut in_handlers = play.handlers.iter().flat_map(|handler| handler.choices.values());
    if play.handlers.iter().any(|handler| is_flush(&handler.task))
        || in_handlers.any(|steps| count_flushes(steps) != Some(0))
    {
        return u32::MAX;
    }
    let flushes: Option<u32> = play.sections.iter().map(|steps| count_flushes(steps)).sum();
    // Each section ends with a flush, and the play with one more if a failure forces the handlers.
    let ends = u32::try_from(play.sections.len() + 1).unwrap_or(u32::MAX);
    let rounds = u32::try_from(ROUNDS_MAX).unwrap_or(u32::MAX);
    flushes.map_or(u32::MAX, |flushes| flushes.saturating_add(ends).saturating_mul(rounds))
}

/// The number of times that these steps flush the handlers. None: a loop decides the number.
fn count_flushes(steps: &[PlanStep]) -> Option<u32> {
    let count = |step: &PlanStep| match step {
        PlanStep::Task(task) => Some(u32::from(is_flush(task))),
        PlanStep::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().map(|part| count_flushes(part)).sum(),
        PlanStep::Include(include) => {
            let inner: Option<u32> = include.choices.values().map(|part| count_flushes(part)).sum();
            inner.filter(|flushes| *flushes == 0 || include.task.repeat.is_none())
        }
    };
    steps.iter().map(count).sum()
}

fn is_flush(task: &Task) -> bool {
    task.module == "meta" && task.args.get("action").is_some_and(|action| action == "flush_handlers")
}
