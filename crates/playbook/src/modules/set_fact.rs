//! The `set_fact` module: sets variables.

use super::{ModuleCall, ModuleResult, TaskOutcome};

pub fn set_fact(call: &mut ModuleCall) -> ModuleResult {
    let mut facts = call.args.clone();
    facts.remove("cacheable");
    Ok(TaskOutcome { facts, ..TaskOutcome::default() })
}
