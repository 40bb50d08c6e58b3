//! The variables of each host for a playbook, with the names that Ansible uses.

use super::PlayRequest;
use super::files::Files;
use crate::module_packer;
use remoor_config::{AnsibleInventory, Sources};
use remoor_playbook::{HostContext, SharedVar};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The values that are the same for all hosts.
pub(super) struct HostVariables<'a> {
    inventory: &'a AnsibleInventory,
    common: Map<String, Value>,
    shared: BTreeMap<String, SharedVar>,
}

impl<'a> HostVariables<'a> {
    /// Collects the common variables. `hostvars` is created only if something reads it, because it
    /// contains all variables of all hosts.
    pub fn new(sources: &'a Sources, files: &Files, request: &PlayRequest) -> Self {
        let inventory = &sources.inventory;
        let mut common = Map::new();
        let mut set = |name: &str, value: Value| common.insert(name.to_owned(), value);
        let groups = groups(sources);
        set("ansible_check_mode", json!(request.check));
        set("ansible_diff_mode", json!(request.diff));
        set("ansible_forks", json!(request.forks));
        set(
            "ansible_run_tags",
            json!(if request.tags.is_empty() { vec!["all".to_owned()] } else { request.tags.clone() }),
        );
        set("ansible_skip_tags", json!(request.skip_tags));
        if !request.limit.is_empty() {
            set("ansible_limit", json!(request.limit.join(",")));
        }
        let absolute = |path: &str| std::path::absolute(path).unwrap_or_default().display().to_string();
        let place = |source: &String| if source.contains(',') { source.clone() } else { absolute(source) };
        set("ansible_inventory_sources", request.inventory.iter().map(place).collect());
        let config = files.root.join("ansible.cfg");
        if config.is_file() {
            set("ansible_config_file", json!(absolute(&config.display().to_string())));
        }
        if files.contains_word("ansible_playbook_python") {
            let python = module_packer::find_python();
            set("ansible_playbook_python", json!(python.first().map(|program| program.to_string_lossy())));
        }
        if let Some(source) = request.inventory.first().filter(|source| !source.contains(',')) {
            let path = std::path::absolute(source).unwrap_or_default();
            let dir = if path.is_dir() { Some(path.as_path()) } else { path.parent() };
            set("inventory_dir", json!(dir.map(|dir| dir.display().to_string())));
            set("inventory_file", json!(path.display().to_string()));
        }
        let mut shared = BTreeMap::from([("groups".to_owned(), SharedVar::new(json!(groups)))]);
        let reads = |value: &Value| value.to_string().contains("hostvars");
        let mut values = inventory.hosts.values().flat_map(|host| host.vars.values()).chain(request.extra.values());
        if files.contains_word("hostvars") || values.any(reads) {
            let all = inventory.hosts.keys().map(|name| (name.clone(), Value::Object(host_vars(inventory, name))));
            shared.insert("hostvars".to_owned(), SharedVar::new(Value::Object(all.collect())));
        }
        Self { inventory, common, shared }
    }

    /// The large variables, which are the same for all hosts and are created once.
    pub fn shared_values(&self) -> &BTreeMap<String, SharedVar> {
        &self.shared
    }

    /// The context of the host `name`: its own variables, and all variables that are common to all
    /// hosts, except the large ones of [`Self::shared_values`]. If the inventory does not contain
    /// `name`, the host is this machine.
    pub fn context(&self, name: &str) -> HostContext {
        let mut vars = host_vars(self.inventory, name);
        vars.extend(self.common.clone());
        let host = self.inventory.hosts.get(name);
        let group = host.and_then(|host| host.groups.first());
        let group = group.cloned().unwrap_or_else(|| "ungrouped".to_owned());
        let origins = host.map(|host| host.origins.clone()).unwrap_or_default();
        HostContext { name: name.to_owned(), group, vars, origins }
    }
}

/// The inventory variables of one host, and the variables with its name and its groups.
fn host_vars(inventory: &AnsibleInventory, name: &str) -> Map<String, Value> {
    let host = inventory.hosts.get(name);
    let mut vars = host.map(|host| host.vars.clone()).unwrap_or_default();
    let groups = host.map(|host| host.groups.clone()).unwrap_or_default();
    vars.insert("inventory_hostname".to_owned(), json!(name));
    vars.insert("inventory_hostname_short".to_owned(), json!(name.split('.').next().unwrap_or(name)));
    vars.insert("group_names".to_owned(), json!(groups));
    if host.is_none() {
        vars.insert("ansible_connection".to_owned(), json!("local"));
    }
    vars
}

/// Each group with all its hosts, including those of its children, in the order of the inventory.
pub(in crate::solo) fn groups(sources: &Sources) -> BTreeMap<String, Vec<String>> {
    let names = sources.inventory.groups.keys().map(|name| (name.clone(), Vec::new()));
    let mut groups: BTreeMap<String, Vec<String>> = names.collect();
    for name in &sources.order {
        let own = sources.inventory.hosts.get(name).map(|host| host.groups.as_slice()).unwrap_or_default();
        for group in own.iter().map(String::as_str).chain(["all"]) {
            groups.entry(group.to_owned()).or_default().push(name.clone());
        }
    }
    groups
}
