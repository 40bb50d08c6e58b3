//! The `setup` module: gathers the facts of the node again.

use super::{ModuleCall, ModuleResult, TaskOutcome};
use crate::facts;
use globset::GlobBuilder;

pub fn setup(call: &mut ModuleCall) -> ModuleResult {
    let globs = call.list(&["filter"]);
    let globs: Vec<_> = globs
        .iter()
        .filter(|g| *g != "*")
        .map(|g| GlobBuilder::new(g).build().map(|g| g.compile_matcher()).map_err(|e| e.to_string()))
        .collect::<Result<_, _>>()?;
    let all = facts::gather_for(call.plan, call.cancel);
    let fits = |name: &str| {
        let short = name.strip_prefix("ansible_").unwrap_or(name);
        name == "ansible_facts" || globs.is_empty() || globs.iter().any(|g| g.is_match(name) || g.is_match(short))
    };
    Ok(TaskOutcome { facts: all.into_iter().filter(|(name, _)| fits(name)).collect(), ..TaskOutcome::default() })
}
