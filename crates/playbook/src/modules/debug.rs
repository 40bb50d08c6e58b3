//! The `debug` module: prints a message or a variable.

use super::{Answer, Call, Outcome, text_of};
use crate::expr;
use crate::scope::traced;
use serde_json::{Value, json};

pub fn debug(call: &mut Call) -> Answer {
    if call.seconds("verbosity", 0.0)?.as_secs() > 0 {
        let mut out = Outcome { skipped: true, ..Outcome::default() };
        out.more.insert("skipped_reason".into(), json!("Verbosity threshold not met."));
        return Ok(out);
    }
    if let Some(name) = call.task.args.get("var").and_then(Value::as_str) {
        let name = expr::inner_expression(name).unwrap_or(name);
        let (value, trace) = traced(|| expr::eval(call.scope, name).and_then(|v| expr::to_json(&v)));
        if trace.unknown {
            return Ok(Outcome::unknown(format!("{name} is unknown in check mode")));
        }
        let value = value.unwrap_or_else(|e| json!(expr::explain(&e)));
        let mut out = Outcome::ok(format!("{name} = {value}"));
        out.more.insert(name.to_owned(), value);
        return Ok(out);
    }
    let msg = call.args.get("msg").cloned().unwrap_or_else(|| json!("Hello world!"));
    let mut out = Outcome::ok(text_of(&msg));
    out.more.insert("msg".into(), msg);
    Ok(out)
}
