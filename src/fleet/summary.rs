//! Everything of a generation that decisions need, and every fault of a fleet in one pass.

use super::{Known, Scope, compile, context, expected_files, manifest};
use crate::config::Fleet;
use crate::model::{Fault, FleetSummary, GenerationSeq, HostSummary, Phase, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Compiles and renders everything for every host: the faults and warnings, by file and line, each once.
pub fn lint(fleet: &Fleet) -> Vec<Fault> {
    let mut faults: BTreeSet<Fault> = fleet.validate().into_iter().collect();
    faults.extend(strangers(fleet));
    for host in fleet.inventory.hosts.keys() {
        if let Err(more) = desired(fleet, host, &Known::default()) {
            faults.extend(more);
        }
    }
    faults.into_iter().collect()
}

/// The summary that enters the Raft log.
pub fn summary(fleet: &Fleet, known: &Known) -> Result<FleetSummary, Vec<Fault>> {
    let mut faults: Vec<Fault> = fleet.validate().into_iter().filter(|f| !f.warning).collect();
    faults.extend(strangers(fleet));
    let mut hosts = BTreeMap::new();
    for host in fleet.inventory.hosts.keys() {
        match desired(fleet, host, known) {
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

fn desired(fleet: &Fleet, host: &str, known: &Known) -> Result<HostSummary, Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let context = context(fleet, host, known).map_err(|f| vec![f])?;
    let mut faults = Vec::new();
    let mut whole = Vec::new();
    let native = fleet.config.groups.get(&group).is_none_or(|g| g.provisioner == crate::config::Provisioner::Remoor);
    if native {
        let config = fleet.config.groups.get(&group);
        let has = |phase| match phase {
            Phase::Cleanup => config.is_some_and(|g| g.cleanup.is_some()),
            _ => config.is_some_and(|g| g.provision.is_some()),
        };
        // A group that is only watched names no playbooks; `validate` warns.
        for phase in [Phase::Cleanup, Phase::Provision].into_iter().filter(|phase| has(*phase)) {
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
    let expected = expected_files(fleet, host, &context)?;
    let manifest = manifest(fleet, host, GenerationSeq(0), &context, &expected)?;
    whole.extend(serde_json::to_vec(&manifest).unwrap_or_default());
    Ok(HostSummary { group, desired: Sha256::of(&whole) })
}

/// Check files of services that `remoor.yml` does not know: they would silently check nothing.
fn strangers(fleet: &Fleet) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in fleet.files.under("checks").filter(|f| f.ends_with(".yml") || f.ends_with(".yaml")) {
        let Some(Ok((header, _))) = fleet.files.text(file).map(|text| crate::check::header(file, text)) else {
            continue;
        };
        if !fleet.config.services.contains_key(&header.service) {
            let known: Vec<&str> = fleet.config.services.keys().map(|s| s.as_str()).collect();
            let message = format!("remoor.yml has no service {}", header.service);
            faults.push(Fault::error(file, 1, 1, message).hint(format!("its services: {}", known.join(", "))));
        }
    }
    faults
}
