//! The user of a task: the keywords `become` and `become_user`, which may be templates.

use crate::plan::elevation::{self, MIXED};
use crate::plan::{Task, TaskPrivileges};
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::var_map;
use crate::vars::variable_scope::OMIT;
use serde_json::Value;

/// The privileges of a task without templates. The error says why the task cannot run as its user.
/// `login`: whether tasks without `become` run as the login user, because the run itself is root by
/// sudo.
pub(super) fn evaluate(task: &Task, scope: &ExprScope, login: bool) -> Result<TaskPrivileges, String> {
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
    let only_root = !elevation::runs_as_any_user(&task.module);
    match &become_user {
        Some(user) if only_root => Err(elevation::only_root_message(user, &task.module)),
        None if only_root && !elevated && login => Err(MIXED.to_owned()),
        _ => Ok(TaskPrivileges { elevated, elevated_if: None, become_user }),
    }
}
