//! The variables of one node, which its playbooks, templates and checks can read.

use remoor_config::Fleet;
use remoor_model::{ClusterContext, ClusterRole, Fault, GroupName};
use remoor_playbook::SharedVar;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The variables whose size grows with the number of hosts.
const LARGE: [&str; 3] = ["groups", "hostvars", "peers"];

/// The variables of one node.
#[derive(Debug, Clone)]
pub struct NodeVariables {
    /// All variables by name. A large variable is null here, and its value is in `shared`.
    pub vars: Map<String, Value>,
    /// The values of the large variables, which the nodes of a fleet share.
    pub shared: BTreeMap<String, SharedVar>,
}

impl NodeVariables {
    /// The value of a variable, which may be a large one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.shared.get(name).map(SharedVar::json).or_else(|| self.vars.get(name))
    }
}

/// The large variables of a fleet. They are made once for all nodes and not once for each node.
#[derive(Debug)]
pub struct LargeVariables {
    groups: SharedVar,
    hostvars: Result<SharedVar, Fault>,
    peers: BTreeMap<GroupName, Result<SharedVar, Fault>>,
}

impl LargeVariables {
    /// Makes the large variables. `known` has the address of each host that the cluster knows. If a
    /// host has a fault, each large variable that needs the host contains the fault.
    pub fn new(fleet: &Fleet, known: &BTreeMap<String, String>) -> Self {
        let inventory = &fleet.inventory;
        let mut groups: Map<String, Value> =
            inventory.groups.iter().map(|(n, g)| (n.clone(), json!(g.hosts))).collect();
        groups.insert("all".to_owned(), json!(inventory.hosts.keys().collect::<Vec<_>>()));
        let addresses: BTreeMap<&str, Result<String, Fault>> =
            inventory.hosts.keys().map(|name| (name.as_str(), address(fleet, name, known))).collect();
        let mut members: BTreeMap<GroupName, Vec<&str>> = BTreeMap::new();
        for name in inventory.hosts.keys() {
            if let Ok(group) = fleet.host_group(name) {
                members.entry(group).or_default().push(name);
            }
        }
        let peer = |name: &&str| Ok(json!({"name": name, "addr": addresses[*name].clone()?}));
        let list = |names: Vec<&str>| {
            let peers = names.iter().map(peer).collect::<Result<_, Fault>>();
            peers.map(|peers| SharedVar::new(Value::Array(peers)))
        };
        let peers = members.into_iter().map(|(group, names)| (group, list(names))).collect();
        let one = |name: &String| {
            let (mut vars, _) = fleet.vars(name)?;
            vars.insert("node_addr".to_owned(), json!(addresses[name.as_str()].clone()?));
            Ok((name.clone(), Value::Object(vars)))
        };
        let hostvars = inventory.hosts.keys().map(one).collect::<Result<_, Fault>>();
        let hostvars = hostvars.map(|all| SharedVar::new(Value::Object(all)));
        Self { groups: SharedVar::new(Value::Object(groups)), hostvars, peers }
    }
}

/// The variables of all nodes of a fleet.
pub struct FleetVariables<'a> {
    fleet: &'a Fleet,
    known: &'a ClusterContext,
    large: Arc<LargeVariables>,
}

impl<'a> FleetVariables<'a> {
    /// Makes the large variables of the fleet. `known` is the cluster's knowledge of the hosts.
    pub fn new(fleet: &'a Fleet, known: &'a ClusterContext) -> Self {
        Self::with_large(fleet, known, Arc::new(LargeVariables::new(fleet, &known.addresses)))
    }

    /// Uses `large`, which must have been made from `fleet` and from the addresses in `known`.
    pub fn with_large(fleet: &'a Fleet, known: &'a ClusterContext, large: Arc<LargeVariables>) -> Self {
        Self { fleet, known, large }
    }

    /// All inventory variables of `host` at top level, overridden by the variables of the job; and
    /// `inventory_hostname`, `group_names`, `groups`, `hostvars`, `node`, `peers`.
    ///
    /// In `node.addr`, a known address overrides `ansible_host`, because a node may return with
    /// another address (docs/design/scenarios.md, A10). Fails if the host has no group or two
    /// groups.
    pub fn of_host(&self, host: &str, role: ClusterRole) -> Result<NodeVariables, Fault> {
        let fleet = self.fleet;
        let group = fleet.host_group(host)?;
        let (mut vars, _) = fleet.vars(host)?;
        vars.extend(self.known.vars.clone());
        // The index can't fail: a host that has a group is a member of the group.
        let peers = self.large.peers[&group].clone()?;
        let hostvars = self.large.hostvars.clone()?;
        let addr = address(fleet, host, &self.known.addresses)?;
        let group_names = fleet.inventory.hosts.get(host).map(|h| h.groups.clone()).unwrap_or_default();
        let node =
            json!({"name": host, "hostname": host, "addr": addr, "group": group.as_str(), "role": role.as_str()});
        vars.insert("inventory_hostname".to_owned(), json!(host));
        vars.insert("inventory_hostname_short".to_owned(), json!(host.split('.').next().unwrap_or(host)));
        vars.insert("group_names".to_owned(), json!(group_names));
        vars.insert("groups".to_owned(), Value::Null);
        vars.insert("hostvars".to_owned(), Value::Null);
        vars.insert("node_addr".to_owned(), json!(addr));
        vars.insert("node".to_owned(), node);
        vars.insert("peers".to_owned(), Value::Null);
        let shared = LARGE.map(str::to_owned).into_iter().zip([self.large.groups.clone(), hostvars, peers]).collect();
        Ok(NodeVariables { vars, shared })
    }

    /// The cluster role of a host, as far as the cluster knows the role.
    pub fn role_of(&self, host: &str) -> ClusterRole {
        if self.known.managers.contains(host) { ClusterRole::Manager } else { ClusterRole::Worker }
    }
}

/// The variables of one host, for a caller that needs no other host.
pub fn context(fleet: &Fleet, host: &str, known: &ClusterContext) -> Result<NodeVariables, Fault> {
    let all = FleetVariables::new(fleet, known);
    all.of_host(host, all.role_of(host))
}

fn address(fleet: &Fleet, host: &str, known: &BTreeMap<String, String>) -> Result<String, Fault> {
    match known.get(host) {
        Some(known) => Ok(known.clone()),
        None => fleet.ssh_target(host).map(|target| target.host),
    }
}
