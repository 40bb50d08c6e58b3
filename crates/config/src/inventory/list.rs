//! Writes an inventory in the format of `--list` and `--host` of an executable inventory.

use super::AnsibleInventory;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl AnsibleInventory {
    /// The JSON that Ansible reads from `--list`: groups with members, and in `_meta.hostvars` each
    /// host's merged variables, overridden by `extra_hostvars`.
    pub fn to_list_json(&self, extra_hostvars: &BTreeMap<String, Map<String, Value>>) -> Value {
        let hostvars: Map<String, Value> = self
            .hosts
            .keys()
            .filter_map(|name| Some((name.clone(), self.host_json(name, extra_hostvars.get(name))?)))
            .collect();
        let mut list = Map::from_iter([("_meta".to_owned(), json!({ "hostvars": hostvars }))]);
        for (name, group) in &self.groups {
            let mut out = Map::new();
            // In Ansible every host belongs to `all`, so `all` needs no list of hosts.
            if !group.hosts.is_empty() && name != "all" {
                out.insert("hosts".into(), json!(group.hosts));
            }
            if !group.children.is_empty() {
                out.insert("children".into(), json!(group.children));
            }
            // Ansible would take a group without `hosts`, `children` and `vars` for a host.
            if out.is_empty() {
                out.insert("hosts".into(), json!([]));
            }
            list.insert(name.clone(), Value::Object(out));
        }
        Value::Object(list)
    }

    /// The JSON that Ansible reads from `--host NAME`: the merged variables, overridden by `extra`.
    /// None for an unknown host.
    pub fn host_json(&self, name: &str, extra: Option<&Map<String, Value>>) -> Option<Value> {
        let mut vars = self.hosts.get(name)?.vars.clone();
        // Ansible opens single encrypted values itself, but knows no references to files.
        vars.retain(|_, value| !remoor_vault::is_file_variable(value));
        vars.extend(extra.into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        Some(Value::Object(vars))
    }
}
