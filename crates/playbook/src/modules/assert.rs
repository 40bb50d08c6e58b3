//! The `assert` module: fails if a condition is false.

use super::{ModuleCall, ModuleResult, TaskOutcome, text_of};
use crate::template::expr;
use crate::vars::unknown;
use serde_json::{Value, json};

pub fn assert(call: &mut ModuleCall) -> ModuleResult {
    let that = match call.task.args.get("that") {
        Some(Value::Array(items)) => items.clone(),
        Some(other) => vec![other.clone()],
        None => return Err("`that` is missing".into()),
    };
    let said = |value: &Value| match value {
        Value::Array(lines) => lines.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        other => text_of(other),
    };
    let mut certain = true;
    for condition in that {
        let text = match &condition {
            Value::Bool(b) => b.to_string(),
            other => text_of(other),
        };
        match unknown::holds(call.scope, &text).map_err(|e| expr::explain(&e))? {
            Some(true) => {}
            None => certain = false,
            Some(false) => {
                let own = call.args.get("fail_msg").or(call.args.get("msg")).map(said);
                let mut out = TaskOutcome { failed: true, ..TaskOutcome::default() };
                out.msg = own.unwrap_or_else(|| format!("assertion failed: {text}"));
                out.extra_keys.insert("assertion".into(), condition);
                out.extra_keys.insert("evaluated_to".into(), json!(false));
                return Ok(out);
            }
        }
    }
    if !certain {
        return Ok(TaskOutcome::indeterminate("it depends on a result that is unknown in check mode"));
    }
    Ok(TaskOutcome::ok(call.args.get("success_msg").map_or_else(|| "all assertions hold".into(), said)))
}
