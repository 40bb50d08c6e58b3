//! The fleet directory: `remoor.yml` and its Ansible inventory, read, checked and combined into a
//! `Fleet`.
//!
//! ```text
//! directory -> load -> FileSet -> typed (remoor.yml) -> FleetConfig --+
//!                  \-> inventory (file, directory, executable) -------+-> Fleet -> validate, vars, ssh_target
//! ```
//! The crate reads files and runs an executable inventory; it has no other side effects. It checks
//! that check files and playbooks exist, but does not read their content.
#![doc = include_str!("../README.md")]

mod fleet;
pub mod inventory;
mod load;
mod reader;
mod scalar;
mod schema;
mod settings;
mod ssh_args;
mod target;
mod tree;
mod typed;
mod validate;
mod windows;

pub use fleet::{Fleet, INVENTORY_FILE, MergedVars};
pub use inventory::{
    AnsibleInventory, GroupEntry, HostEntry, InventoryChange, Sources, extra_vars, load_inventory, load_sources,
};
pub use load::{BYTES_MAX, FILES_MAX};
pub use reader::FieldPosition;
pub use schema::schema;
pub use settings::{
    CONFIG_FILE, FleetConfig, GroupConfig, Notify, NotifyOn, NotifyTo, Provisioner, ServiceConfig, SshConfig,
};
pub use target::SshTarget;

/// Parses one YAML value with the rules of inventories, in which `yes` and `on` are booleans too.
/// An empty document becomes an empty text.
pub fn parse_value(text: &str) -> Result<serde_json::Value, String> {
    match tree::parse("the value", text) {
        Ok(Some(node)) => Ok(node.to_json()),
        Ok(None) => Ok(serde_json::Value::String(String::new())),
        Err(faults) => Err(faults.first().map(|fault| fault.message.clone()).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests;
