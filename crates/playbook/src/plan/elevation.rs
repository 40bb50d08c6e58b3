//! The user of a task: the modules for which it matters, and whether a plan needs root.

use crate::plan::{Plan, REFUSED, Task};

/// Modules that only run a command.
pub(crate) const COMMANDS: [&str; 4] = ["command", "shell", "raw", "script"];

/// Modules that do not touch the host, so the user of their task does not matter.
pub(crate) const ANYBODY: [&str; 15] = [
    "add_host",
    "assert",
    "debug",
    "fail",
    "group_by",
    "include_role",
    "include_tasks",
    "include_vars",
    "meta",
    "pause",
    REFUSED,
    "set_fact",
    "set_stats",
    "validate_argument_spec",
    "wait_for_connection",
];

/// The octal digits of a file mode that is a number. None: it is not a number.
pub(crate) fn octal_mode(mode: &serde_json::Value) -> Option<String> {
    mode.as_u64().map(|mode| format!("0{mode:o}"))
}

impl Plan {
    /// Whether any task must run as root.
    pub fn needs_root(&self) -> bool {
        // A delegated task needs the rights on another host.
        let mut needs = false;
        self.each_task(&mut |task: &Task| needs |= !task.runs_elsewhere() && task.privileges.elevated);
        needs
    }
}
