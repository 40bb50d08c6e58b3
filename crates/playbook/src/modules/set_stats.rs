//! The module `set_stats`. Ansible shows these statistics only if its configuration says so, so
//! they are part of the registered result and nothing else.

use super::{ModuleCall, ModuleResult, TaskOutcome};
use crate::compile;
use serde_json::{Map, Value, json};

pub fn set_stats(call: &mut ModuleCall) -> ModuleResult {
    let data = match call.args.get("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data.clone(),
        Some(_) => return Err("The 'data' option needs to be a dictionary/hash".to_owned()),
    };
    if let Some(name) = data.keys().find(|name| !compile::is_name(name)) {
        return Err(format!("Invalid variable name: '{name}'"));
    }
    let (aggregate, per_host) = (call.flag("aggregate", true), call.flag("per_host", false));
    let stats = json!({"aggregate": aggregate, "data": data, "per_host": per_host});
    Ok(TaskOutcome::ok("").with_result(json!({"ansible_stats": stats})))
}
