//! The compiled cleanup and provisioning plans of one node.

use super::manifest::{Expected, manifest};
use super::module_archives::{NoStoredModules, StoredModules};
use super::{ClusterContext, NodeVariables, context};
use remoor_config::{Fleet, GroupConfig, Provisioner};
use remoor_model::{Fault, GenerationSeq, GroupName, JobVars, Phase, ServiceName};
use remoor_playbook::{self as playbook, CompileOptions, Compiled, HostContext, ModuleSource, Plan, VaultAccess};
use serde_json::{Map, Value};

/// The scope of a plan: the services to run, and additional variables.
#[derive(Debug, Clone, Default)]
pub struct PlanScope {
    /// The services to run. Empty: all services.
    pub services: Vec<ServiceName>,
    /// Variables with the highest precedence: the job's own variables, and `remoor_job`,
    /// `remoor_attempt`, `remoor_phase`, `remoor_services`.
    pub extra: Map<String, Value>,
}

/// Compiles the plan of `phase` (cleanup or provision) for `host`. Errors have their positions in
/// the files.
pub fn compile(
    fleet: &Fleet,
    host: &str,
    context: &NodeVariables,
    phase: Phase,
    scope: &PlanScope,
) -> Result<Plan, Vec<Fault>> {
    compile_stored(fleet, host, context, phase, scope).map(|compiled| compiled.plan)
}

/// Like `compile`, and also returns the warnings about the playbook.
pub(super) fn compile_stored(
    fleet: &Fleet,
    host: &str,
    context: &NodeVariables,
    phase: Phase,
    scope: &PlanScope,
) -> Result<Compiled, Vec<Fault>> {
    // A cleanup never contains Python modules; see `module_archives`.
    let stored;
    let modules: Option<&dyn ModuleSource> = match phase {
        Phase::Cleanup => None,
        _ => {
            stored = StoredModules::open(&fleet.files).map_err(|fault| vec![fault])?;
            Some(stored.as_ref().map_or(&NoStoredModules, |stored| stored as &dyn ModuleSource))
        }
    };
    compile_with(fleet, host, context, phase, scope, modules)
}

/// Compiles a plan with the modules of `modules`. None: only native modules.
pub(super) fn compile_with(
    fleet: &Fleet,
    host: &str,
    context: &NodeVariables,
    phase: Phase,
    scope: &PlanScope,
    modules: Option<&dyn ModuleSource>,
) -> Result<Compiled, Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let config = fleet.config.groups.get(&group);
    let playbook =
        config.and_then(|g| if phase == Phase::Cleanup { g.cleanup.as_deref() } else { g.provision.as_deref() });
    let Some(playbook) = playbook else { return Err(vec![no_playbook(fleet, &group, phase)]) };
    let tags = tags_of(fleet, &scope.services);
    if !fleet.may_stay_encrypted {
        match fleet.inventory.unopened_of(host) {
            unopened if unopened.is_empty() => {}
            unopened => return Err(unopened),
        }
    }
    let origins = fleet.inventory.hosts.get(host).map(|host| host.origins.clone()).unwrap_or_default();
    let (name, group) = (host.to_owned(), group.to_string());
    let host_context = HostContext { name, group, vars: context.vars.clone(), origins };
    let (tags, extra_vars, shared) = (&tags[..], scope.extra.clone(), context.shared.clone());
    let vault = Some(VaultAccess { vault: &fleet.vault, may_stay_encrypted: fleet.may_stay_encrypted });
    let prompts = playbook::vars_prompts(&fleet.files, playbook, &extra_vars, vault);
    if let Some(prompt) = prompts.iter().find(|prompt| prompt.default.is_none()) {
        let message = format!("`vars_prompt` asks for `{}`, but a fleet can ask nobody", prompt.name);
        let hint = "give it a `default`, or remove it and set the variable in the inventory";
        return Err(vec![Fault::error(playbook, 0, 0, message).hint(hint)]);
    }
    if let Some(prompt) = prompts.iter().find(|prompt| prompt.hash.is_some()) {
        let message = format!("`encrypt` of `{}` in `vars_prompt` is possible only with `remoor play`", prompt.name);
        return Err(vec![Fault::error(playbook, 0, 0, message).hint("use the filter password_hash with a salt")]);
    }
    let options = CompileOptions { tags, extra_vars, shared, modules, vault, ..CompileOptions::default() };
    playbook::compile(&fleet.files, playbook, &host_context, &options)
}

/// Whether remoor itself provisions a host by a playbook.
pub(super) fn provisions_natively(fleet: &Fleet, host: &str) -> bool {
    let native = |g: &GroupConfig| g.provisioner == Provisioner::Remoor && g.provision.is_some();
    fleet.host_group(host).is_ok_and(|group| fleet.config.groups.get(&group).is_some_and(native))
}

/// The playbook tags of the services. Empty: the whole group.
pub fn tags_of(fleet: &Fleet, services: &[ServiceName]) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for name in services {
        match fleet.config.services.get(name) {
            Some(service) if !service.tags.is_empty() => tags.extend(service.tags.iter().cloned()),
            _ => tags.push(name.to_string()),
        }
    }
    tags.sort();
    tags.dedup();
    tags
}

/// One phase of an attempt, ready to run.
#[derive(Debug)]
pub enum PhaseWork {
    Plan {
        plan: Plan,
        /// Paths that the plan must not delete.
        protect: Vec<String>,
        /// Globs of paths whose content must not appear in any output of the phase.
        secret: Vec<String>,
    },
    /// The group's own playbook, run by Ansible.
    Ansible { playbook: String, tags: Vec<String> },
}

/// The work of `phase` in an attempt on `host`. An attempt calls this before it removes anything,
/// and again when it runs the phase. Fails if the phase can't be run, if a provisioning has no
/// effect, or if one of its templates can never be rendered.
pub fn work(
    fleet: &Fleet,
    host: &str,
    known: &ClusterContext,
    phase: Phase,
    scope: &PlanScope,
) -> Result<PhaseWork, Vec<Fault>> {
    let one = |fault| vec![fault];
    let group = fleet.host_group(host).map_err(one)?;
    if let Some(config) = fleet.config.groups.get(&group).filter(|g| g.provisioner == Provisioner::Ansible) {
        let playbook = if phase == Phase::Cleanup { &config.cleanup } else { &config.provision };
        let playbook = playbook.clone().ok_or_else(|| vec![no_playbook(fleet, &group, phase)])?;
        return Ok(PhaseWork::Ansible { playbook, tags: tags_of(fleet, &scope.services) });
    }
    let context = context(fleet, host, known).map_err(one)?;
    let plan = compile(fleet, host, &context, phase, scope)?;
    if phase == Phase::Provision && !plan.does_something() {
        return Err(vec![nothing_provisioned(fleet, &group, host, &scope.services)]);
    }
    let (files, mut faults) = review_plan(fleet, &plan, &context, &Map::new());
    faults.retain(|fault| !fault.warning);
    if phase == Phase::Provision {
        // The tags of a refused role or import are not known, so the plan of the whole group
        // counts.
        let whole = PlanScope { services: Vec::new(), extra: scope.extra.clone() };
        faults.extend(compile(fleet, host, &context, phase, &whole)?.refused_tasks());
    }
    // The cleanup belongs to the generation that is installed now and can't be corrected anymore.
    // So the cleanup runs in spite of faults, and fails at the faulty task.
    if phase == Phase::Provision && !faults.is_empty() {
        return Err(faults);
    }
    let manifest = manifest(fleet, host, GenerationSeq(0), &context, &files)?;
    let mut secret: Vec<String> = manifest.services.into_iter().flat_map(|service| service.secret).collect();
    secret.extend(playbook::no_log_files(&plan, &Map::new()).iter().map(|path| globset::escape(path)));
    // A path that is invalid for this host belongs to a service of another group, so it is omitted.
    let state = fleet.config.services.values();
    let state = state.filter_map(|service| super::paths(host, &service.state, &context.vars).ok());
    Ok(PhaseWork::Plan { plan, protect: state.flatten().collect(), secret })
}

fn no_playbook(fleet: &Fleet, group: &GroupName, phase: Phase) -> Fault {
    let fault = fleet.config.fault(&format!("groups.{group}"), format!("group {group} has no {phase} playbook"));
    fault.hint(format!("groups: {group}: {phase}: playbooks/...yml"))
}

/// The error for a provisioning without a task for `host`. After a cleanup, the services would stay
/// down.
fn nothing_provisioned(fleet: &Fleet, group: &GroupName, host: &str, services: &[ServiceName]) -> Fault {
    let playbook = fleet.config.groups.get(group).and_then(|g| g.provision.as_deref()).unwrap_or_default();
    let tags = tags_of(fleet, services).join(", ");
    let (place, with) = match services {
        [] => (format!("groups.{group}.provision"), String::new()),
        [one] => (format!("services.{one}"), format!(" with the tags {tags}")),
        _ => (format!("groups.{group}.services"), format!(" with the tags {tags}")),
    };
    let message = format!("provisioning by {playbook} would set nothing up: no task of it is for {host}{with}");
    let hint = match services {
        [] => "add the tasks that undo its cleanup, or take `cleanup` out of the group",
        _ => "tag the tasks that set the service up, or name their tags in `tags` of the service",
    };
    fleet.config.fault(&place, message).hint(hint)
}

/// Warnings about services that a cleanup removes and no provisioning sets up. The whole group is
/// checked, and each service with its own tags. `cleanup` and `provision` are the plans of the
/// whole group.
pub(super) fn left_down(
    fleet: &Fleet,
    host: &str,
    context: &NodeVariables,
    cleanup: &Plan,
    provision: &Plan,
) -> Vec<Fault> {
    let Ok(group) = fleet.host_group(host) else { return Vec::new() };
    if !cleanup.does_something() {
        return Vec::new();
    }
    if !provision.does_something() {
        return vec![nothing_provisioned(fleet, &group, host, &[])];
    }
    let services = fleet.config.groups.get(&group).map(|g| g.summary.services.clone()).unwrap_or_default();
    let mut out = Vec::new();
    for service in services {
        let scope = PlanScope { services: vec![service], extra: Map::new() };
        let acts = |phase| compile(fleet, host, context, phase, &scope).is_ok_and(|plan| plan.does_something());
        let tags = tags_of(fleet, &scope.services);
        // If the group's provisioning plan has a task with the service's tags, the service is set
        // up. Only for the other services, separate plans are compiled.
        if !provision.has_tag(&tags) && acts(Phase::Cleanup) && !acts(Phase::Provision) {
            // The author may intend that a service has a cleanup and no provisioning, so this is
            // only a warning. An attempt for such a service is rejected before the attempt begins.
            out.push(Fault { warning: true, ..nothing_provisioned(fleet, &group, host, &scope.services) });
        }
    }
    out
}

/// The files that the provisioning of `host` writes with a content that is known beforehand.
/// `facts` are the facts of the node's last provisioning; content that depends on other facts is
/// omitted. `vars` are the variables of the job that set up the node. The result is empty for a
/// group that Ansible provisions, because its files are only recorded.
pub fn expected_files(
    fleet: &Fleet,
    host: &str,
    context: &NodeVariables,
    facts: &Map<String, Value>,
    vars: &JobVars,
) -> Result<Expected, Vec<Fault>> {
    fleet.host_group(host).map_err(|f| vec![f])?;
    if !provisions_natively(fleet, host) {
        return Ok(Expected::new());
    }
    let scope = PlanScope { extra: vars.clone().into_iter().collect(), ..PlanScope::default() };
    Ok(playbook::predict_files(&compile(fleet, host, context, Phase::Provision, &scope)?, facts))
}

/// The files that a plan creates, and the findings of lint about its templates.
pub(super) fn review_plan(
    fleet: &Fleet,
    plan: &Plan,
    context: &NodeVariables,
    facts: &Map<String, Value>,
) -> (Expected, Vec<Fault>) {
    let names: Vec<&str> = context.vars.keys().map(String::as_str).collect();
    playbook::review(plan, facts, &fleet.files, &names)
}
