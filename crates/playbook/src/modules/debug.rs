//! The `debug` module: prints a message or a variable.

use super::{ModuleCall, ModuleResult, TaskOutcome, text_of};
use crate::template::expr;
use crate::vars::scope::with_trace;
use serde_json::{Value, json};

pub fn debug(call: &mut ModuleCall) -> ModuleResult {
    if call.seconds("verbosity", 0.0)?.as_secs() > 0 {
        let mut out = TaskOutcome { skipped: true, ..TaskOutcome::default() };
        out.extra_keys.insert("skipped_reason".into(), json!("Verbosity threshold not met."));
        return Ok(out);
    }
    if let Some(name) = call.task.args.get("var").and_then(Value::as_str) {
        let name = expr::inner_expression(name).unwrap_or(name);
        let (value, trace) = with_trace(|| expr::eval(call.scope, name).and_then(|v| expr::to_json(&v)));
        if trace.unknown {
            return Ok(TaskOutcome::indeterminate(format!("{name} is unknown in check mode")));
        }
        let value = value.unwrap_or_else(|e| json!(expr::explain(&e)));
        let mut out = TaskOutcome::ok(format!("{name} = {value}"));
        out.extra_keys.insert(name.to_owned(), value);
        return Ok(out);
    }
    let msg = call.args.get("msg").cloned().unwrap_or_else(|| json!("Hello world!"));
    let mut out = TaskOutcome::ok(text_of(&msg));
    out.extra_keys.insert("msg".into(), msg);
    Ok(out)
}
