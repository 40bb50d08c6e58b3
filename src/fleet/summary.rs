//! The summary of a generation, which contains all that decisions need; and all faults of a fleet
//! in one pass.

use super::cleanup_coverage::left_behind;
use super::manifest::check_files;
use super::module_archives::{MODULES_DIR, stored_module_faults};
use super::plans::{compile_stored, left_down, review_plan};
use super::{ClusterContext, Expected, FleetVariables, PlanScope, manifest};
use remoor_config::Fleet;
use remoor_model::{
    ClusterRole, Fault, FleetSummary, GenerationSeq, GroupName, HostSummary, Phase, ServiceName, ServiceSummary, Sha256,
};
use remoor_playbook::{Compiled, downgrade_undefined, merge_refusal_notes};
use std::collections::{BTreeMap, BTreeSet};

/// Compiles and renders everything for every host. Returns each fault and warning once, sorted by
/// file and line.
pub fn lint(fleet: &Fleet) -> Vec<Fault> {
    lint_as(fleet, false)
}

/// Like `lint`, but a task that cannot be compiled is an error even if no run may reach it.
pub fn lint_strictly(fleet: &Fleet) -> Vec<Fault> {
    lint_as(fleet, true)
}

fn lint_as(fleet: &Fleet, strict: bool) -> Vec<Fault> {
    let mut faults: BTreeSet<Fault> = fleet.validate().into_iter().collect();
    faults.extend(unknown_services_and_roles(fleet));
    faults.extend(dependencies(fleet).1);
    faults.extend(stored_module_faults(&fleet.files));
    let known = ClusterContext::default();
    let variables = FleetVariables::new(fleet, &known);
    for host in fleet.inventory.hosts.keys() {
        faults.extend(faults_of(fleet, host, &variables, ClusterRole::Worker, strict));
    }
    let promoted = as_managers(fleet, &variables, &faults, strict);
    let faults: BTreeSet<Fault> = faults.into_iter().chain(promoted).collect();
    merge_refusal_notes(faults.into_iter().collect())
}

fn faults_of(fleet: &Fleet, host: &str, variables: &FleetVariables, role: ClusterRole, strict: bool) -> Vec<Fault> {
    match summarize_host(fleet, host, variables, role, strict) {
        Ok((_, warnings)) => warnings,
        Err(faults) => faults,
    }
}

/// Faults that occur only if a host is a manager. The fleet directory does not say which hosts are
/// managers. So a problem of every host is a fault, and a problem of some hosts is a warning.
fn as_managers(fleet: &Fleet, variables: &FleetVariables, known: &BTreeSet<Fault>, strict: bool) -> Vec<Fault> {
    let mut found: Vec<Fault> = Vec::new();
    let mut hosts = BTreeMap::<_, usize>::new();
    let place = |fault: &Fault| (fault.file.clone(), fault.line, fault.column);
    for host in fleet.inventory.hosts.keys() {
        let more = faults_of(fleet, host, variables, ClusterRole::Manager, strict);
        let more: Vec<Fault> = more.into_iter().filter(|f| !known.contains(f)).collect();
        let places: BTreeSet<_> = more.iter().map(place).collect();
        places.into_iter().for_each(|place| *hosts.entry(place).or_default() += 1);
        found.extend(more);
    }
    let all = fleet.inventory.hosts.len();
    for fault in &mut found {
        fault.warning |= hosts.get(&place(fault)).is_none_or(|count| *count < all);
        fault.message = format!("on a manager: {}", fault.message);
    }
    found
}

/// The summary that is written to the Raft log.
pub fn summary(fleet: &Fleet, known: &ClusterContext) -> Result<FleetSummary, Vec<Fault>> {
    let mut faults: Vec<Fault> = fleet.validate().into_iter().filter(|f| !f.warning).collect();
    faults.extend(unknown_services_and_roles(fleet).into_iter().filter(|fault| !fault.warning));
    faults.extend(stored_module_faults(&fleet.files));
    let (services, circles) = dependencies(fleet);
    faults.extend(circles);
    let mut hosts = BTreeMap::new();
    let variables = FleetVariables::new(fleet, known);
    for host in fleet.inventory.hosts.keys() {
        match summarize_host(fleet, host, &variables, variables.role_of(host), false) {
            Ok((summary, _)) => {
                hosts.insert(host.as_str().into(), summary);
            }
            Err(more) => faults.extend(more.into_iter().filter(|fault| !fault.warning)),
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
        services,
        limits: fleet.config.limits.clone(),
    })
}

/// The summary of one host, and the warnings about its playbooks. With `strict`, a task that cannot
/// be compiled is an error.
fn summarize_host(
    fleet: &Fleet,
    host: &str,
    variables: &FleetVariables,
    role: ClusterRole,
    strict: bool,
) -> Result<(HostSummary, Vec<Fault>), Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let context = variables.of_host(host, role).map_err(|f| vec![f])?;
    let mut faults = Vec::new();
    let mut whole = Vec::new();
    let mut expected = Expected::new();
    let native = fleet.config.groups.get(&group).is_none_or(|g| g.provisioner == remoor_config::Provisioner::Remoor);
    if native {
        let config = fleet.config.groups.get(&group);
        let has = |phase| match phase {
            Phase::Cleanup => config.is_some_and(|g| g.cleanup.is_some()),
            _ => config.is_some_and(|g| g.provision.is_some()),
        };
        // A monitor-only group has no playbooks; `validate` warns about it.
        let mut plans = Vec::new();
        for phase in [Phase::Cleanup, Phase::Provision].into_iter().filter(|phase| has(*phase)) {
            match compile_stored(fleet, host, &context, phase, &PlanScope::default()) {
                Ok(compiled) => {
                    let Compiled { plan, refused, unknown, unopened, .. } = compiled;
                    let encrypted = unopened.into_iter().chain(unopened_names(fleet, host)).collect();
                    faults.extend(unknown);
                    // A cleanup can't be corrected once its generation is installed on a node.
                    if phase == Phase::Cleanup {
                        faults.extend(plan.refused_tasks());
                    } else {
                        faults.extend(refused.into_iter().map(|fault| Fault { warning: !strict, ..fault }));
                        faults.extend(plan.python_warnings("the machine of `remoor apply`"));
                    }
                    whole.extend(plan.sha256().0);
                    let (files, more) = review_plan(fleet, &plan, &context, &serde_json::Map::new());
                    faults.extend(downgrade_undefined(more, &encrypted));
                    if phase == Phase::Provision {
                        expected = files;
                    }
                    plans.push(plan);
                }
                Err(more) => faults.extend(more),
            }
        }
        if let [cleanup, provision] = &plans[..] {
            faults.extend(left_down(fleet, host, &context, cleanup, provision));
            faults.extend(left_behind(fleet, host, &context.vars, cleanup, provision));
        }
    } else {
        // Ansible does not use the packed modules.
        whole.extend(fleet.files.sha256_without(MODULES_DIR).0);
    }
    if faults.iter().any(|fault| !fault.warning) {
        return Err(faults);
    }
    let manifest = manifest(fleet, host, GenerationSeq(0), &context, &expected)?;
    let texts = manifest.services.iter().flat_map(|service| service.checks.iter().map(move |file| (service, file)));
    faults.extend(texts.flat_map(|(service, file)| remoor_check::warnings(&file.file, &service.name, &file.text)));
    whole.extend(serde_json::to_vec(&manifest).unwrap_or_default());
    if fleet.may_stay_encrypted {
        faults.extend(fleet.inventory.unopened_of(host).into_iter().map(|fault| Fault { warning: true, ..fault }));
    }
    Ok((HostSummary { group, desired: Sha256::digest(&whole) }, faults))
}

/// The encrypted files of variables of a host that could not be opened.
fn unopened_names(fleet: &Fleet, host: &str) -> Vec<String> {
    fleet.inventory.unopened_of(host).into_iter().map(|fault| fault.file).collect()
}

/// The services with the dependencies that check files add. A cycle is a fault.
fn dependencies(fleet: &Fleet) -> (BTreeMap<ServiceName, ServiceSummary>, Vec<Fault>) {
    let mut all: BTreeMap<ServiceName, ServiceSummary> =
        fleet.config.services.iter().map(|(name, service)| (name.clone(), service.summary.clone())).collect();
    let mut faults = Vec::new();
    for file in check_files(fleet) {
        let Some(Ok((header, _))) = fleet.files.text(file).map(|text| remoor_check::header(file, text)) else {
            continue;
        };
        for on in &header.depends_on {
            if !all.contains_key(on) {
                let fault = Fault::error(file, 1, 1, format!("`depends-on`: remoor.yml has no service {on}"));
                let known: Vec<&str> = all.keys().map(ServiceName::as_str).collect();
                faults.push(fault.hint(format!("its services: {}", known.join(", "))));
                continue;
            }
            let mut reached = BTreeSet::from([on.clone()]);
            let mut todo = vec![on.clone()];
            while let Some(next) = todo.pop() {
                let more = all.get(&next).map(|s| s.depends_on.clone()).unwrap_or_default();
                todo.extend(more.into_iter().filter(|name| reached.insert(name.clone())));
            }
            if reached.contains(&header.service) {
                let message = format!("`depends-on`: {on} depends on {} already", header.service);
                faults.push(Fault::error(file, 1, 1, message));
            } else if let Some(service) = all.get_mut(&header.service)
                && !service.depends_on.contains(on)
            {
                service.depends_on.push(on.clone());
            }
        }
    }
    (all, faults)
}

/// The faults of check files for services or roles that `remoor.yml` does not contain. Such a file
/// would silently check nothing. An unknown role is only a warning if the file also has a known
/// role. Such a file is perhaps shared with other fleets.
fn unknown_services_and_roles(fleet: &Fleet) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in check_files(fleet) {
        let Some(Ok((header, _))) = fleet.files.text(file).map(|text| remoor_check::header(file, text)) else {
            continue;
        };
        if !fleet.config.services.contains_key(&header.service) {
            let known: Vec<&str> = fleet.config.services.keys().map(|s| s.as_str()).collect();
            let message = format!("remoor.yml has no service {}", header.service);
            faults.push(Fault::error(file, 1, 1, message).hint(format!("its services: {}", known.join(", "))));
        }
        let roles = || fleet.config.groups.keys().map(GroupName::as_str).chain(["manager", "worker"]);
        let (mine, other): (Vec<&String>, Vec<&String>) =
            header.roles.iter().partition(|role| roles().any(|known| known == role.as_str()));
        for role in other {
            let message = format!("`roles`: remoor.yml has no group {role}");
            let hint = remoor_model::suggest_or_list(role, roles().collect::<Vec<_>>());
            faults.push(Fault { hint, warning: !mine.is_empty(), ..Fault::error(file, 1, 1, message) });
        }
    }
    faults
}
