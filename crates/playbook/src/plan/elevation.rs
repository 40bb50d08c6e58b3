//! The user that a plan needs. A run is one process, which runs all its tasks either as root or as
//! the login user. Only commands and Python modules can run as another user.

use crate::plan::{Plan, REFUSED, Task};

/// Error for a plan in which some tasks are for root and others for the login user.
pub const MIXED: &str = "this task has no `become`, but other tasks need root by sudo, and then only command, shell, raw and \
     script run as the login user; add `become: true` to the task or the play (or use -b), log in as root, or use ansible-playbook";

/// Modules that only run a command, which can run as another user.
pub(crate) const COMMANDS: [&str; 4] = ["command", "shell", "raw", "script"];

/// Modules that do not touch the host, so any user can run them.
pub(crate) const ANYBODY: [&str; 14] = [
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
    "validate_argument_spec",
    "wait_for_connection",
];

/// The octal digits of a file mode that is a number. None: it is not a number.
pub(crate) fn octal_mode(mode: &serde_json::Value) -> Option<String> {
    mode.as_u64().map(|mode| format!("0{mode:o}"))
}

/// Whether a module can run as a user other than root in a run as root. Names with a dot are those
/// of Python modules.
pub(crate) fn runs_as_any_user(module: &str) -> bool {
    ANYBODY.contains(&module) || COMMANDS.contains(&module) || module.contains('.')
}

/// The reason why a module cannot run as a user other than root.
pub(crate) fn only_root_message(user: &str, module: &str) -> String {
    format!("`become_user` `{user}` works only with command, shell, raw and script; {module} runs as root")
}

impl Plan {
    /// Whether any task must run as root.
    pub fn needs_root(&self) -> bool {
        self.find(&|task| task.privileges.elevated).is_some()
    }

    /// The first task that is not for root and can run only as the user of the run. Tasks that only
    /// run a command, or that do not touch the host, can run as another user.
    pub fn first_unelevated_task(&self) -> Option<&Task> {
        self.find(&|task| !task.privileges.elevated && !runs_as_any_user(&task.module))
    }

    fn find(&self, wanted: &dyn Fn(&Task) -> bool) -> Option<&Task> {
        let mut found = None;
        // A delegated task needs the rights on another host.
        let here = |task: &&Task| !task.runs_elsewhere() && wanted(task);
        self.each_task(&mut |task| found = found.or(Some(task).filter(here)));
        found
    }
}
