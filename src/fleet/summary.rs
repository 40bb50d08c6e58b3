//! Everything of a generation that decisions need, and every fault of a fleet in one pass.

use super::{Scope, compile, context, expected_files, manifest};
use crate::config::Fleet;
use crate::model::{Fault, FleetSummary, GenerationSeq, HostSummary, Phase, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Compiles and renders everything for every host: the faults and warnings, by file and line, each once.
pub fn lint(fleet: &Fleet) -> Vec<Fault> {
    let mut faults: BTreeSet<Fault> = fleet.validate().into_iter().collect();
    for host in fleet.inventory.hosts.keys() {
        if let Err(more) = desired(fleet, host, &BTreeMap::new()) {
            faults.extend(more);
        }
    }
    faults.into_iter().collect()
}

/// The summary that enters the Raft log; `addresses` as in [`context`].
pub fn summary(fleet: &Fleet, addresses: &BTreeMap<String, String>) -> Result<FleetSummary, Vec<Fault>> {
    let mut faults: Vec<Fault> = fleet.validate().into_iter().filter(|f| !f.warning).collect();
    let mut hosts = BTreeMap::new();
    for host in fleet.inventory.hosts.keys() {
        match desired(fleet, host, addresses) {
            Ok(summary) => {
                hosts.insert(host.as_str().into(), summary);
            }
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        faults.sort();
        faults.dedup();
        return Err(faults);
    }
    Ok(FleetSummary {
        hosts,
        groups: fleet.config.groups.iter().map(|(n, g)| (n.clone(), g.summary.clone())).collect(),
        services: fleet.config.services.iter().map(|(n, s)| (n.clone(), s.summary.clone())).collect(),
        limits: fleet.config.limits.clone(),
    })
}

fn desired(fleet: &Fleet, host: &str, addresses: &BTreeMap<String, String>) -> Result<HostSummary, Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let context = context(fleet, host, addresses).map_err(|f| vec![f])?;
    let mut faults = Vec::new();
    let mut whole = Vec::new();
    let native = fleet.config.groups.get(&group).is_none_or(|g| g.provisioner == crate::config::Provisioner::Remoor);
    if native {
        for phase in [Phase::Cleanup, Phase::Provision] {
            match compile(fleet, host, &context, phase, &Scope::default()) {
                Ok(plan) => whole.extend(plan.sha256().0),
                Err(more) => faults.extend(more),
            }
        }
    } else {
        whole.extend(fleet.files.sha256().0);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let expected = if native { expected_files(fleet, host, &context)? } else { BTreeMap::new() };
    let manifest = manifest(fleet, host, GenerationSeq(0), &context, &expected)?;
    whole.extend(serde_json::to_vec(&manifest).unwrap_or_default());
    Ok(HostSummary { group, desired: Sha256::of(&whole) })
}
