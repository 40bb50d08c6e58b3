//! Cleanup and provisioning of one node, compiled.

use super::manifest::Expected;
use crate::config::{Fleet, GroupConfig, Provisioner};
use crate::model::{Fault, Phase, ServiceName};
use crate::playbook::{self, CompileOptions, HostContext, Plan};
use serde_json::{Map, Value};

/// What of a group's playbooks is run.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Empty: everything.
    pub services: Vec<ServiceName>,
    /// Strongest variables: `remoor_job`, `remoor_attempt`, `remoor_phase`, `remoor_services`.
    pub extra: Map<String, Value>,
}

/// The plan of `phase` (cleanup or provision) for `host`; faults with their places otherwise.
pub fn compile(
    fleet: &Fleet,
    host: &str,
    context: &Map<String, Value>,
    phase: Phase,
    scope: &Scope,
) -> Result<Plan, Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let config = fleet.config.groups.get(&group);
    let playbook =
        config.and_then(|g| if phase == Phase::Cleanup { g.cleanup.as_deref() } else { g.provision.as_deref() });
    let Some(playbook) = playbook else {
        let message = format!("group {group} names no {phase} playbook");
        return Err(vec![
            Fault::error("remoor.yml", 0, 0, message).hint(format!("groups: {group}: {phase}: playbooks/...yml")),
        ]);
    };
    let tags = tags_of(fleet, &scope.services);
    let host_context = HostContext { name: host.to_owned(), group: group.to_string(), vars: context.clone() };
    let options = CompileOptions { tags: &tags, extra_vars: scope.extra.clone() };
    playbook::compile(&fleet.files, playbook, &host_context, &options).map(|compiled| compiled.plan)
}

/// The playbook tags of services; empty for the whole group.
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

/// The files that the provisioning of `host` writes with a content known beforehand. `facts` of the node as its last
/// provisioning had them; what depends on others is left out.
/// Nothing of a group that Ansible provisions: its files are recorded only.
pub fn expected_files(
    fleet: &Fleet,
    host: &str,
    context: &Map<String, Value>,
    facts: &Map<String, Value>,
) -> Result<Expected, Vec<Fault>> {
    review(fleet, host, context, facts).map(|(expected, _)| expected)
}

/// The same, with warnings about files whose content can't be known though a template makes them. Err: also for names
/// in templates that nobody defines.
pub(super) fn review(
    fleet: &Fleet,
    host: &str,
    context: &Map<String, Value>,
    facts: &Map<String, Value>,
) -> Result<(Expected, Vec<Fault>), Vec<Fault>> {
    let group = fleet.host_group(host).map_err(|f| vec![f])?;
    let native = |g: &GroupConfig| g.provisioner == Provisioner::Remoor && g.provision.is_some();
    if !fleet.config.groups.get(&group).is_some_and(native) {
        return Ok((Expected::new(), Vec::new()));
    }
    let plan = compile(fleet, host, context, Phase::Provision, &Scope::default())?;
    let (expected, faults) = playbook::review(&plan, facts);
    if faults.iter().any(|f| !f.warning) { Err(faults) } else { Ok((expected, faults)) }
}
