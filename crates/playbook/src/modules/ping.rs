//! The `ping` module: answers without using the node.

use super::{ModuleCall, ModuleResult, TaskOutcome};
use serde_json::json;

pub fn ping(call: &mut ModuleCall) -> ModuleResult {
    let data = call.text(&["data"]).unwrap_or_else(|| "pong".into());
    if data == "crash" {
        return Err("boom".into());
    }
    let mut out = TaskOutcome::default();
    out.extra_keys.insert("ping".into(), json!(data));
    Ok(out)
}
