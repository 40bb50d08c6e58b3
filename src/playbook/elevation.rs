//! Who a plan needs to be. A run is one process: root for all its tasks, or the login for all.

use super::plan::{Plan, Step, Task};

/// What is wrong with a plan of which one part is for root and another for the login.
pub const MIXED: &str = "this task has no `become`, and the run is root by sudo for others: remoor runs all tasks of a host as one user; \
     give the play `become: true` (or -b), log in as root, or use ansible-playbook for it";

/// Modules that touch nothing, as whomever they run.
const ANYBODY: [&str; 9] =
    ["assert", "debug", "fail", "meta", "set_fact", "include_tasks", "include_vars", "include_role", "pause"];

impl Plan {
    /// Whether any task is for root.
    pub fn needs_root(&self) -> bool {
        self.find(&|task| task.elevated).is_some()
    }

    /// The first task that changes or reads the host and is not for root.
    pub fn unelevated(&self) -> Option<&Task> {
        self.find(&|task| !task.elevated && !ANYBODY.contains(&task.module.as_str()))
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
