//! Reads and resolves Ansible inventories as Ansible does. Never writes them.
//!
//! ```text
//! path -> source (file, directory, executable) -> yaml | ini | script -> Draft
//!      -> + group_vars, host_vars -> AnsibleInventory -> open_files (encrypted files)
//! ```
//! Configuration files of plugins (`plugin: ...`), encrypted sources and TOML are refused with a
//! hint. Templates in values stay unchanged. Encrypted values stay encrypted.

mod draft;
mod encrypted;
mod extra;
mod ini;
mod inventory_change;
mod list;
mod literal;
mod pattern;
mod script;
mod shell_words;
mod source;
mod sources;
mod vars_files;
mod yaml;

pub use extra::extra_vars;
pub use inventory_change::InventoryChange;
pub(super) use shell_words::split as split_words;
pub(super) use sources::load_below;
pub use sources::{Sources, load_sources};

use remoor_model::Fault;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of hosts of one inventory.
pub const HOSTS_MAX: usize = 10_000;
/// Maximum number of groups of one inventory.
pub const GROUPS_MAX: usize = 10_000;

/// A resolved inventory: every host with its groups and its merged variables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AnsibleInventory {
    pub hosts: BTreeMap<String, HostEntry>,
    pub groups: BTreeMap<String, GroupEntry>,
    /// Warnings about content that Ansible accepts but that is probably a mistake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Fault>,
    /// The encrypted text of each wholly encrypted file of variables, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub encrypted: BTreeMap<String, String>,
    /// The files of `encrypted` that `open_files` could not open.
    #[serde(skip)]
    pub unopened: BTreeMap<String, Fault>,
}

/// A resolved host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostEntry {
    /// All groups sorted by name, including parents, without `all`; only `ungrouped` if the host is
    /// in no group.
    pub groups: Vec<String>,
    /// The variables, merged by Ansible's precedence and sorted by name.
    pub vars: Map<String, Value>,
    /// The origin of each variable: `group_vars/web.yml`, `inventory.yml: host w1`.
    pub origins: BTreeMap<String, String>,
    /// The wholly encrypted files with variables of the host, in ascending order of precedence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encrypted: Vec<EncryptedVars>,
}

/// A wholly encrypted file of variables, from the view of one host. Only its password tells which
/// variables it sets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EncryptedVars {
    /// The name of the file, a key of `AnsibleInventory::encrypted`.
    pub file: String,
    /// The variables that files and sources of higher precedence set.
    pub overridden: std::collections::BTreeSet<String>,
}

/// A resolved group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// Hosts that are direct members of the group.
    pub hosts: Vec<String>,
    /// Groups that are direct children of the group.
    pub children: Vec<String>,
    /// The group's own variables: those of the inventory, overridden by `group_vars`.
    pub vars: Map<String, Value>,
}

/// Reads the inventory at `path`: a file, a directory of sources, or an executable, with the
/// `group_vars` and `host_vars` next to it (for a directory: in it). Faults and origins name files
/// relative to the parent directory of `path`. Runs an executable.
pub fn load_inventory(path: &Path) -> Result<AnsibleInventory, Vec<Fault>> {
    load_below(path.parent().unwrap_or(Path::new("")), &[path.to_owned()], None)
}

#[cfg(test)]
mod tests;
