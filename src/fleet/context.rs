//! The variables that the playbooks, templates and checks of one node see.

use remoor_config::Fleet;
use remoor_model::{ClusterContext, Fault};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// All inventory variables at top level, overridden by those of the job, and `inventory_hostname`,
/// `group_names`, `groups`, `hostvars`, `node`, `peers`.
///
/// A known address overrides `ansible_host` in `node.addr`, because a node may return with another
/// address (docs/design/scenarios.md, A10). Fails if the host has no group, or two.
pub fn context(fleet: &Fleet, host: &str, known: &ClusterContext) -> Result<Map<String, Value>, Fault> {
    let addresses = &known.addresses;
    let group = fleet.host_group(host)?;
    let (mut vars, _) = fleet.vars(host)?;
    vars.extend(known.vars.clone());
    let inventory = &fleet.inventory;
    let groups_of = |name: &str| inventory.hosts.get(name).map(|h| h.groups.clone()).unwrap_or_default();
    let members = fleet.hosts_of(group.as_str());
    let mut peers = Vec::new();
    for name in members.iter().map(remoor_model::NodeName::as_str) {
        peers.push(json!({"name": name, "addr": address(fleet, name, addresses)?}));
    }
    let mut groups: Map<String, Value> = inventory.groups.iter().map(|(n, g)| (n.clone(), json!(g.hosts))).collect();
    groups.insert("all".to_owned(), json!(inventory.hosts.keys().collect::<Vec<_>>()));
    let mut hostvars = Map::new();
    for name in inventory.hosts.keys() {
        let (mut other, _) = fleet.vars(name)?;
        other.insert("node_addr".to_owned(), json!(address(fleet, name, addresses)?));
        hostvars.insert(name.clone(), Value::Object(other));
    }
    let addr = address(fleet, host, addresses)?;
    let role = if known.managers.contains(host) { "manager" } else { "worker" };
    let node = json!({"name": host, "hostname": host, "addr": addr, "group": group.as_str(), "role": role});
    vars.insert("inventory_hostname".to_owned(), json!(host));
    vars.insert("inventory_hostname_short".to_owned(), json!(host.split('.').next().unwrap_or(host)));
    vars.insert("group_names".to_owned(), json!(groups_of(host)));
    vars.insert("groups".to_owned(), Value::Object(groups));
    vars.insert("hostvars".to_owned(), Value::Object(hostvars));
    vars.insert("node_addr".to_owned(), json!(addr));
    vars.insert("node".to_owned(), node);
    vars.insert("peers".to_owned(), Value::Array(peers));
    Ok(vars)
}

fn address(fleet: &Fleet, host: &str, addresses: &BTreeMap<String, String>) -> Result<String, Fault> {
    match addresses.get(host) {
        Some(known) => Ok(known.clone()),
        None => fleet.ssh_target(host).map(|target| target.host),
    }
}
