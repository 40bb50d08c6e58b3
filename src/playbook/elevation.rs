//! Who a plan needs to be. A run is one process: root for all its tasks, or the login for all. Only commands are run as
//! others.

use super::plan::{Plan, Step, Task};

/// What is wrong with a plan of which one part is for root and another for the login.
pub const MIXED: &str = "this task has no `become`, and the run is root by sudo for others: only command, shell, raw and \
     script are then run as the login; give it or the play `become: true` (or -b), log in as root, or use ansible-playbook for it";

/// Modules that only run a command, which can be another user's.
pub(super) const COMMANDS: [&str; 4] = ["command", "shell", "raw", "script"];

/// Modules that touch nothing, as whomever they run.
pub(super) const ANYBODY: [&str; 9] =
    ["assert", "debug", "fail", "meta", "set_fact", "include_tasks", "include_vars", "include_role", "pause"];

impl Plan {
    /// Whether any task is for root.
    pub fn needs_root(&self) -> bool {
        self.find(&|task| task.elevated).is_some()
    }

    /// The first task that changes or reads the host, is not for root, and can't be done by another than who runs the plan.
    pub fn unelevated(&self) -> Option<&Task> {
        let fits = |task: &Task| [&ANYBODY[..], &COMMANDS].iter().any(|list| list.contains(&task.module.as_str()));
        self.find(&|task| !task.elevated && !fits(task))
    }

    fn find(&self, wanted: &dyn Fn(&Task) -> bool) -> Option<&Task> {
        fn any<'a>(steps: &'a [Step], wanted: &dyn Fn(&Task) -> bool) -> Option<&'a Task> {
            steps.iter().find_map(|step| match step {
                Step::Task(task) => Some(&**task).filter(|task| wanted(task)),
                Step::Block(b) => [&b.block, &b.rescue, &b.always].into_iter().find_map(|part| any(part, wanted)),
                Step::Include(include) => include.choices.values().find_map(|part| any(part, wanted)),
            })
        }
        self.plays.iter().find_map(|play| {
            let tasks = play.sections.iter().find_map(|section| any(section, wanted));
            tasks.or_else(|| {
                play.handlers.iter().find_map(|handler| {
                    let own = Some(&handler.task).filter(|task| wanted(task));
                    own.or_else(|| handler.choices.values().find_map(|part| any(part, wanted)))
                })
            })
        })
    }
}
