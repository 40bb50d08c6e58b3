//! Modules that neither look at the node nor change it: `assert`, `debug`, `fail`, `set_fact`.

use super::{Answer, Call, Outcome};
use crate::playbook::scope::traced;
use crate::playbook::{expr, unknown};
use serde_json::{Value, json};

pub fn assert(call: &mut Call) -> Answer {
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
                let mut out = Outcome { failed: true, ..Outcome::default() };
                out.msg = own.unwrap_or_else(|| format!("does not hold: {text}"));
                out.more.insert("assertion".into(), condition);
                out.more.insert("evaluated_to".into(), json!(false));
                return Ok(out);
            }
        }
    }
    if !certain {
        return Ok(Outcome::unknown("it depends on what was not run"));
    }
    Ok(Outcome::ok(call.args.get("success_msg").map_or_else(|| "all hold".into(), said)))
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

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
            return Ok(Outcome::unknown(format!("{name} is not known in check mode")));
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

pub fn fail(call: &mut Call) -> Answer {
    Err(call.text(&["msg"]).unwrap_or_else(|| "Failed as requested from task".into()))
}

pub fn set_fact(call: &mut Call) -> Answer {
    let mut facts = call.args.clone();
    facts.remove("cacheable");
    Ok(Outcome { facts, ..Outcome::default() })
}
