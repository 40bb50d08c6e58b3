//! The `pause` module: waits for a fixed time.

use super::{ModuleCall, ModuleResult, TaskOutcome, wait_for};
use serde_json::json;
use std::time::Duration;

pub fn pause(call: &mut ModuleCall) -> ModuleResult {
    let time = match (call.args.contains_key("minutes"), call.args.contains_key("seconds")) {
        (true, _) => call.seconds("minutes", 0.0)?.saturating_mul(60),
        (_, true) => call.seconds("seconds", 0.0)?,
        _ => {
            return Err(
                "`pause` needs `seconds` or `minutes`; waiting for a key press requires `provisioner: ansible`".into(),
            );
        }
    };
    let time = time.max(Duration::from_secs(1));
    if !call.ground.node.is_check_mode() && !wait_for::interruptible_sleep(call, time) {
        return Err("cancelled".into());
    }
    let mut out = TaskOutcome::ok(format!("Paused for {} seconds", time.as_secs()));
    out.extra_keys.insert("delta".into(), json!(time.as_secs()));
    Ok(out)
}
