//! Invariant I15 (docs/design/invariants.md): a job about some services changes the record of only
//! these services. A node counts as set up with a generation only if each of its services was
//! provisioned from that generation or adopted with it.

use super::super::host::services;
use super::*;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct JobServices {
    /// For each service of a node: the desired state from which the service was provisioned, or
    /// with which it was adopted.
    made: BTreeMap<(NodeId, &'static str), Sha256>,
}

impl JobServices {
    fn job_done(&mut self, world: &World, job: &Job, before: &Inventory) -> Result<(), String> {
        let host = &world.hosts[world.host_of(job.node)];
        let baseline = |state: &Inventory| state.node(job.node).and_then(|n| n.setup.baseline.clone());
        let Some(is) = baseline(&world.state).filter(|_| job.kind() == JobKind::Resetup) else { return Ok(()) };
        let recorded = |of: &Baseline| world.blobs.get(&of.blob).cloned().unwrap_or_default();
        let was = baseline(before).map(|was| recorded(&was));
        // A monitor-only service belongs to no generation, because no job provisions it.
        let names = || services(host.group).iter().filter(|name| !host.is_monitor_only(name));
        for name in names() {
            if job.spec.services.is_empty() || job.spec.services.iter().any(|s| s.as_str() == *name) {
                // The service's file may have been deleted since the provisioning. Its version is
                // then None, and the desired state is recorded instead.
                self.made.insert((job.node, name), host.parts[name].version.unwrap_or(is.desired));
            } else if was.as_ref().is_some_and(|was| was.services.get(*name) != recorded(&is).services.get(*name)) {
                let text = format!("job {} does not include {name} of {}", job.id, host.name);
                return Err(format!("{text}, and what is recorded of it changed"));
            }
        }
        let made = names().find(|name| self.made.get(&(job.node, *name)) != Some(&is.desired));
        match made {
            Some(name) => Err(format!("{} is called what it is to be, and its {name} is not", host.name)),
            None => Ok(()),
        }
    }
}

impl Law for JobServices {
    fn name(&self) -> &'static str {
        "I15"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Applied { entry, applied: Applied::Done, before } = fact else { return Ok(()) };
        match &entry.command {
            Command::Adopt { node, baseline, .. } => {
                let names = services(world.hosts[world.host_of(*node)].group);
                self.made.extend(names.iter().map(|name| ((*node, *name), baseline.desired)));
                Ok(())
            }
            Command::CloseAttempt { job, outcome: AttemptOutcome::Done, .. } => {
                self.job_done(world, world.state.job(*job).expect("was just closed"), before)
            }
            _ => Ok(()),
        }
    }
}
