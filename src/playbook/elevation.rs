//! Who a plan needs to be. A run is one process: root for all its tasks, or the login for all. Only commands are run as
//! others.

use super::plan::{Plan, Task};

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
        let mut found = None;
        self.each_task(&mut |task| found = found.or(Some(task).filter(|task| wanted(task))));
        found
    }
}
