//! Divides the hosts into the groups of `remoor.yml`: all hosts of a group have the same services,
//! and each host is in one group. A host of the inventory that no play sets up is in a group
//! without services.

use super::ImportSource;
use super::work::ServiceParts;
use std::collections::{BTreeMap, BTreeSet};

/// Names that a group of `remoor.yml` must not have.
const RESERVED: [&str; 4] = ["all", "ungrouped", "manager", "worker"];

pub(super) struct ImportedGroup {
    pub name: String,
    pub hosts: Vec<String>,
    pub services: BTreeSet<String>,
    /// Whether the inventory has no such group, so that one has to be added.
    pub added: bool,
}

/// Takes groups of the inventory, large ones first. Hosts that remain are put into new groups.
pub(super) fn divide(source: &ImportSource, work: &ServiceParts) -> Vec<ImportedGroup> {
    let none = BTreeSet::new();
    let services = |host: &String| work.of_hosts.get(host).unwrap_or(&none);
    let mut left: BTreeSet<String> = source.hosts().cloned().collect();
    let mut candidates: Vec<(String, BTreeSet<String>)> = source
        .groups()
        .into_iter()
        .filter(|(name, hosts)| {
            let alike = || hosts.iter().map(&services).collect::<BTreeSet<_>>().len() == 1;
            !RESERVED.contains(&name.as_str()) && !hosts.is_empty() && alike() && hosts.is_subset(&left)
        })
        .collect();
    candidates.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then_with(|| a.0.cmp(&b.0)));
    let mut out: Vec<ImportedGroup> = Vec::new();
    for (name, hosts) in candidates {
        if hosts.is_subset(&left) {
            left = &left - &hosts;
            let services = hosts.first().map(&services).cloned().unwrap_or_default();
            out.push(ImportedGroup { name, hosts: hosts.into_iter().collect(), services, added: false });
        }
    }
    let mut others: BTreeMap<BTreeSet<String>, Vec<String>> = BTreeMap::new();
    for host in left {
        others.entry(services(&host).clone()).or_default().push(host);
    }
    let taken: BTreeSet<String> = source.groups().into_keys().collect();
    let mut number = 0;
    for (services, hosts) in others {
        let name = loop {
            number += 1;
            let name = format!("remoor_{number}");
            if !taken.contains(&name) {
                break name;
            }
        };
        out.push(ImportedGroup { name, hosts, services, added: true });
    }
    out
}
