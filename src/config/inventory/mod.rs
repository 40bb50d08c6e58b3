//! Ansible inventories, read and resolved as Ansible does it; never written.
//!
//! ```text
//! path -> source (file, directory, executable) -> yaml | ini | script -> Draft -> + group_vars, host_vars -> AnsibleInventory
//! ```
//! Plugins' configuration files (`plugin: ...`), vaults and TOML are refused with a hint. Markup in values stays as it is.

mod draft;
mod extra;
mod ini;
mod list;
mod literal;
mod pattern;
mod script;
mod source;
mod sources;
mod varfiles;
mod words;
mod yaml;

pub use extra::extra_vars;
pub use sources::{Sources, load_sources};
pub(super) use words::split as split_words;

use crate::model::Fault;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Most hosts of one inventory.
pub const HOSTS_MAX: usize = 10_000;
/// Most groups of one inventory.
pub const GROUPS_MAX: usize = 10_000;

/// A resolved inventory: every host with its groups and its merged variables.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AnsibleInventory {
    pub hosts: BTreeMap<String, HostEntry>,
    pub groups: BTreeMap<String, GroupEntry>,
    /// What Ansible accepts but is probably not meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Fault>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostEntry {
    /// All groups in order of name, parents too, without `all`; `ungrouped` if there is no other.
    pub groups: Vec<String>,
    /// Merged by Ansible's precedence, in order of name.
    pub vars: Map<String, Value>,
    /// For each variable what gave it its value: `group_vars/web.yml`, `inventory.yml: host w1`.
    pub origins: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupEntry {
    /// Direct members.
    pub hosts: Vec<String>,
    /// Direct children.
    pub children: Vec<String>,
    /// The group's own variables: those of the inventory, over them those of `group_vars`.
    pub vars: Map<String, Value>,
}

/// Reads the inventory at `path`: a file, a directory of sources, or an executable, with the `group_vars` and `host_vars`
/// beside (in a directory: in it). Faults and origins name files relative to the directory of `path`. Runs an executable.
pub fn load_inventory(path: &Path) -> Result<AnsibleInventory, Vec<Fault>> {
    load_below(path.parent().unwrap_or(Path::new("")), path)
}

/// As `load_inventory`, with files named relative to `root` where they are below it.
pub fn load_below(root: &Path, path: &Path) -> Result<AnsibleInventory, Vec<Fault>> {
    let mut draft = draft::Draft::default();
    source::read(root, path, &mut draft);
    if draft.faults.is_empty() {
        let base = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
        varfiles::read(root, base, varfiles::Beside::Inventory, &mut draft);
    }
    draft.resolve()
}

#[cfg(test)]
mod tests;
