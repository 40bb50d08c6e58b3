//! The `package` module: calls the module of the node's package manager with all options except
//! `use`.

use super::{ModuleCall, ModuleResult, apt, dnf};
use crate::compile::module_specs;
use std::path::Path;

pub fn package(call: &mut ModuleCall) -> ModuleResult {
    let there = |program: &str| ["/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(program).exists());
    match call.text(&["use"]).as_deref() {
        Some("apt") => run_with_manager("apt", apt::apt, call),
        Some("dnf" | "dnf4" | "dnf5" | "yum") => run_with_manager("dnf", dnf::dnf, call),
        None | Some("auto") if there("apt-get") => run_with_manager("apt", apt::apt, call),
        None | Some("auto") if there("dnf") || there("yum") => run_with_manager("dnf", dnf::dnf, call),
        None | Some("auto") => Err("this node has neither apt-get nor dnf nor yum".into()),
        Some(other) => Err(format!("the package manager `{other}` is not supported")),
    }
}

/// Calls the module of the package manager. Rejects options that only another package manager has,
/// as Ansible does.
fn run_with_manager(manager: &str, module: fn(&mut ModuleCall) -> ModuleResult, call: &mut ModuleCall) -> ModuleResult {
    let known = module_specs::find(manager).map_or(&[][..], |spec| spec.options);
    match call.args.keys().find(|option| *option != "use" && !known.contains(&option.as_str())) {
        None => module(call),
        Some(option) => Err(format!("`{option}` is not an option of {manager}, the package manager of this node")),
    }
}
