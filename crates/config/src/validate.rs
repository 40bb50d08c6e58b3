//! Checks that need the whole fleet: missing files, unknown names, cycles, hosts without a group.

use super::fleet::Fleet;
use super::settings::Provisioner;
use super::target::split_origin;
use remoor_model::{Fault, Policy, ServiceName, Trigger};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of faults about hosts that are listed. Of any further ones, only the number is
/// reported.
const HOST_FAULTS_MAX: usize = 20;

impl Fleet {
    /// All faults of the fleet that `load` does not report, including warnings, sorted by file.
    pub fn validate(&self) -> Vec<Fault> {
        let mut faults = self.validate_alone();
        faults.extend(self.inventory.warnings.iter().cloned());
        faults.extend(self.outside.iter().cloned());
        self.check_groups(&mut faults);
        self.check_hosts(&mut faults);
        faults.sort_by(|a, b| (&a.file, a.line, a.column, &a.message).cmp(&(&b.file, b.line, b.column, &b.message)));
        faults.dedup();
        faults
    }

    /// Checks that do not need the inventory.
    pub(super) fn validate_alone(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.check_files(&mut faults);
        self.check_keys(&mut faults);
        self.check_services(&mut faults);
        faults
    }

    fn check_files(&self, faults: &mut Vec<Fault>) {
        let ssh = [("ssh.identity", &self.config.ssh.identity), ("ssh.config", &self.config.ssh.config)];
        let playbooks = self.config.groups.iter().flat_map(|(name, group)| {
            [(format!("groups.{name}.provision"), &group.provision), (format!("groups.{name}.cleanup"), &group.cleanup)]
        });
        for (path, file) in ssh.map(|(path, file)| (path.to_owned(), file)).into_iter().chain(playbooks) {
            let Some(file) = file.as_deref().filter(|file| !file.starts_with('/')) else { continue };
            if self.files.get(file).is_some() {
                continue;
            }
            let mut fault = self.config.fault(&path, format!("there is no file `{file}` in the fleet directory"));
            fault.hint = remoor_model::did_you_mean(file, self.files.paths_below(""));
            faults.push(fault);
        }
    }

    /// Warns about private keys, because every manager keeps every generation.
    fn check_keys(&self, faults: &mut Vec<Fault>) {
        for file in self.files.paths_below("") {
            let Some(text) = self.files.text(file) else { continue };
            let key = |line: &str| line.contains("-----BEGIN ") && line.contains("PRIVATE KEY-----");
            if let Some(at) = text.lines().position(key) {
                let line = u32::try_from(at + 1).unwrap_or(u32::MAX);
                let fault =
                    Fault::warn(file, line, 1, "looks like a private key, and every manager keeps every generation");
                faults.push(
                    fault.hint(
                        "keep it out of the fleet directory; playbooks can create it on the node, or read it there",
                    ),
                );
            }
        }
    }

    fn check_services(&self, faults: &mut Vec<Fault>) {
        let services = &self.config.services;
        let unknown = |path: String, name: &ServiceName, faults: &mut Vec<Fault>| {
            let mut fault = self.config.fault(&path, format!("there is no service `{name}`"));
            fault.hint = remoor_model::suggest_or_list(name.as_str(), services.keys().map(ServiceName::as_str));
            faults.push(fault);
        };
        for (name, group) in &self.config.groups {
            for (n, service) in group.summary.services.iter().enumerate() {
                if !services.contains_key(service) {
                    unknown(format!("groups.{name}.services.{n}"), service, faults);
                }
            }
        }
        for (name, service) in services {
            for (n, on) in service.summary.depends_on.iter().enumerate() {
                if !services.contains_key(on) {
                    unknown(format!("services.{name}.depends-on.{n}"), on, faults);
                }
            }
            if !self.config.groups.values().any(|group| group.summary.services.contains(name)) {
                let message = format!("no group has the service `{name}`");
                faults.push(Fault { warning: true, ..self.config.fault(&format!("services.{name}"), message) });
            }
        }
        for cycle in self.find_cycles() {
            let path = format!("services.{}.depends-on", cycle[0]);
            let names: Vec<&str> = cycle.iter().map(ServiceName::as_str).chain([cycle[0].as_str()]).collect();
            faults.push(self.config.fault(&path, format!("services that depend on themselves: {}", names.join(" > "))));
        }
    }

    /// One cycle for each set of services that depend on each other. A cycle begins with its first
    /// name in the alphabet.
    fn find_cycles(&self) -> Vec<Vec<ServiceName>> {
        let services = &self.config.services;
        let mut named: BTreeSet<&ServiceName> = BTreeSet::new();
        let mut out = Vec::new();
        for start in services.keys() {
            if named.contains(start) {
                continue;
            }
            // A breadth-first search from `start` until it reaches `start` again finds the shortest
            // cycle.
            let mut from: BTreeMap<&ServiceName, &ServiceName> = BTreeMap::new();
            let mut todo = std::collections::VecDeque::from([start]);
            while let Some(at) = todo.pop_front() {
                for on in services.get(at).into_iter().flat_map(|service| &service.summary.depends_on) {
                    if !from.contains_key(on) {
                        from.insert(on, at);
                        todo.push_back(on);
                    }
                }
            }
            let Some(mut at) = from.get(start).copied() else { continue };
            let mut way = Vec::new();
            while at != start {
                way.push(at);
                at = from[at];
            }
            way.push(start);
            way.reverse();
            named.extend(&way);
            out.push(way.into_iter().cloned().collect());
        }
        out
    }

    fn check_groups(&self, faults: &mut Vec<Fault>) {
        let occasions =
            [Trigger::Network, Trigger::Reboot, Trigger::Agent, Trigger::Left, Trigger::Live, Trigger::Apply];
        if self.config.groups.is_empty() {
            faults.push(Fault {
                warning: true,
                ..self.config.fault("groups", "there are no groups, so remoor manages no host")
            });
        }
        for (name, group) in &self.config.groups {
            let path = format!("groups.{name}");
            let mut left_down = None;
            let mut warn = |path: &str, message: String, hint: Option<String>| {
                faults.push(Fault { warning: true, hint, ..self.config.fault(path, message) });
            };
            if !self.inventory.groups.contains_key(name.as_str()) {
                let known = self
                    .inventory
                    .groups
                    .keys()
                    .map(String::as_str)
                    .filter(|name| !matches!(*name, "all" | "ungrouped"));
                warn(
                    &path,
                    format!("the inventory has no group `{name}`"),
                    remoor_model::suggest_or_list(name.as_str(), known),
                );
            } else if !self.inventory.hosts.values().any(|host| host.groups.iter().any(|group| group == name.as_str()))
            {
                warn(&path, format!("the group `{name}` has no hosts"), None);
            }
            if !group.summary.windows.ever_open() {
                let message =
                    format!("the windows of the group `{name}` never open: nothing would be repaired automatically");
                warn(&format!("{path}.windows"), message, Some("deny wins over allow".to_owned()));
            }
            let repairs = occasions.iter().any(|occasion| group.summary.policy(*occasion) != Policy::Report);
            // A playbook that is named but invalid was already reported.
            let unnamed = group.provision.is_none() && !self.config.places.contains_key(&format!("{path}.provision"));
            if unnamed && group.cleanup.is_some() {
                let message = format!(
                    "the group `{name}` has a `cleanup` and no `provision` playbook: its hosts would be cleaned up and not set up again"
                );
                let hint = format!("add `provision: playbooks/...yml` to the group {name}, or remove `cleanup`");
                let fault = self.config.fault(&format!("{path}.cleanup"), message).hint(hint);
                // The fault is only a warning if no policy repairs the hosts: perhaps they are only
                // ever decommissioned, which needs no `provision` playbook.
                left_down = Some(Fault { warning: !repairs, ..fault });
            } else if group.provision.is_none() && repairs {
                let hint = "name a playbook, or set every policy to report".to_owned();
                warn(
                    &path,
                    format!("the group `{name}` has no `provision` playbook, so it can be examined but not repaired"),
                    Some(hint),
                );
            }
            if group.provision.is_some() && group.cleanup.is_none() && group.provisioner == Provisioner::Remoor {
                let message =
                    format!("the group `{name}` has no `cleanup` playbook, and remoor provisions nothing without one");
                warn(
                    &path,
                    message,
                    Some("name a playbook that removes everything that `provision` sets up".to_owned()),
                );
            }
            faults.extend(left_down);
        }
    }

    fn check_hosts(&self, faults: &mut Vec<Fault>) {
        let mut of_hosts = Vec::new();
        for name in self.inventory.hosts.keys() {
            of_hosts.extend(self.host_group(name).err());
            of_hosts.extend(self.ssh_target(name).err());
            for (origin, message) in self.ssh_warnings(name) {
                let (file, place) = split_origin(&origin);
                // A variable of a group is reported once, not for each host.
                of_hosts.push(Fault::warn(file, 0, 0, format!("{message}{place}")));
            }
            for var in self.inventory.hosts[name].vars.keys().filter(|var| !super::typed::is_variable(var)) {
                let origin = self.inventory.hosts[name].origins.get(var).map_or("", String::as_str);
                let (file, place) = split_origin(origin);
                of_hosts.push(Fault::warn(
                    file,
                    0,
                    0,
                    format!("`{var}` is not a variable name, so nothing can refer to it{place}"),
                ));
            }
        }
        of_hosts.sort();
        of_hosts.dedup();
        let more = of_hosts.len().saturating_sub(HOST_FAULTS_MAX);
        if more > 0 {
            let warning = of_hosts[HOST_FAULTS_MAX..].iter().all(|fault| fault.warning);
            of_hosts.truncate(HOST_FAULTS_MAX);
            of_hosts.push(Fault {
                warning,
                ..Fault::error(self.config.first_inventory(), 0, 0, format!("and {more} more about hosts"))
            });
        }
        faults.extend(of_hosts);
    }
}
