//! The user of a task: the keywords `become` and `become_user`, which may be templates.

use crate::modules::RunContext;
use crate::os::acting_user::{self, ActingGuard, ActingUser};
use crate::os::process::{self, CommandSpec};
use crate::plan::elevation::ANYBODY;
use crate::plan::{Task, TaskPrivileges};
use crate::run::event::CancelToken;
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::var_map;
use crate::vars::variable_scope::OMIT;
use serde_json::Value;
use std::time::Duration;

/// Maximum time to look up the groups of a user, which may need a directory service.
const GROUPS_TIMEOUT: Duration = Duration::from_secs(30);

/// The privileges of a task without templates. The error says which template cannot be evaluated.
pub(crate) fn evaluate(task: &Task, scope: &ExprScope) -> Result<TaskPrivileges, String> {
    let TaskPrivileges { elevated, elevated_if, become_user } = &task.privileges;
    let elevated = match elevated_if {
        None => *elevated,
        Some(text) => {
            let value = expr::render_text(scope, text).map_err(|e| format!("`become`: {}", expr::explain(&e)))?;
            let value = if value.trim() == OMIT { "false".to_owned() } else { value };
            let invalid = || format!("`become` takes yes or no, found `{value}`");
            var_map::boolean(&Value::String(value.trim().to_owned())).ok_or_else(invalid)?
        }
    };
    let become_user = match become_user.as_ref().filter(|_| elevated) {
        Some(text) if var_map::has_markup(text) => {
            let user = expr::render_text(scope, text).map_err(|e| format!("`become_user`: {}", expr::explain(&e)))?;
            Some(user.trim().to_owned()).filter(|user| !matches!(user.as_str(), "" | "root" | OMIT))
        }
        known => known.cloned(),
    };
    Ok(TaskPrivileges { elevated, elevated_if: None, become_user })
}

/// The user as whom the module of the task must act: `become_user`, or the login user of the run if
/// the task has no `become`. None: the user of this process.
fn find_acting_user(
    task: &Task,
    privileges: &TaskPrivileges,
    ground: &RunContext,
    cancel: &CancelToken,
) -> Result<Option<ActingUser>, String> {
    let key = match (&privileges.become_user, ground.options.login) {
        _ if ANYBODY.contains(&task.module.as_str()) => return Ok(None),
        (Some(name), _) => name.clone(),
        (None, Some(login)) if !privileges.elevated => login.to_string(),
        _ => return Ok(None),
    };
    let node = &ground.node;
    let entry = node.user(&key).filter(|entry| privileges.become_user.is_none() || entry[0] == key);
    let entry = entry.ok_or_else(|| node.note_missing(format!("`become_user`: there is no user `{key}`")))?;
    let user = ActingUser::from_entry(&entry, Vec::new())?;
    let groups = list_groups(&entry[0], cancel).ok_or_else(|| {
        // Check mode predicts users that an earlier task would create.
        node.note_missing(format!("the groups of the user `{key}` cannot be read: `id -G` fails"))
    });
    Ok(Some(ActingUser { groups: groups?, ..user }))
}

/// Lets this thread act as the user of the task, if it is not the user of this process, until the
/// returned value is dropped.
pub(crate) fn act_as_user(
    task: &Task,
    privileges: &TaskPrivileges,
    ground: &RunContext,
    cancel: &CancelToken,
) -> Result<Option<ActingGuard>, String> {
    let Some(user) = find_acting_user(task, privileges, ground, cancel)? else { return Ok(None) };
    let (uid, acting) = (user.uid, acting_user::act_as(user));
    acting.map(Some).map_err(|e| format!("this run cannot act as the user with the id {uid}: {e}"))
}

/// The ids of all groups of a user. None: they cannot be read.
fn list_groups(name: &str, cancel: &CancelToken) -> Option<Vec<u32>> {
    let argv = ["id", "-G", "--", name].map(str::to_owned).to_vec();
    let job = CommandSpec { argv, timeout: Some(GROUPS_TIMEOUT), ..CommandSpec::default() };
    let done = process::run(&job, cancel, &mut |_| {}).ok().filter(process::Finished::success)?;
    done.stdout.split_whitespace().map(|id| id.parse().ok()).collect()
}
