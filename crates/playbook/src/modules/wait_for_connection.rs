//! The `wait_for_connection` module. The run has a connection to its node, so only the `delay`
//! passes.

use super::{ModuleCall, ModuleResult, TaskOutcome, wait_for};
use serde_json::json;

pub fn wait_for_connection(call: &mut ModuleCall) -> ModuleResult {
    if call.ground.node.is_check_mode() {
        return Ok(TaskOutcome { skipped: true, keeps_msg_out: true, ..TaskOutcome::default() });
    }
    let delay = call.seconds("delay", 0.0)?;
    if !wait_for::interruptible_sleep(call, delay) {
        return Err("cancelled".into());
    }
    Ok(TaskOutcome::default().with_result(json!({"elapsed": delay.as_secs()})))
}
