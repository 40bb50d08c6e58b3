//! The `fail` module: fails with a message.

use super::{ModuleCall, ModuleResult};

pub fn fail(call: &mut ModuleCall) -> ModuleResult {
    Err(call.text(&["msg"]).unwrap_or_else(|| "Failed as requested from task".into()))
}
