//! Invariant I16 (docs/design/invariants.md): no job is about a monitor-only service, and no job
//! changes the record of such a service. Only an adoption records its drift.

use super::super::host::services;
use super::*;

pub struct MonitorOnly;

impl Law for MonitorOnly {
    fn name(&self) -> &'static str {
        "I16"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Applied { entry, applied, before } = fact else { return Ok(()) };
        let host = |job: &Job| &world.hosts[world.host_of(job.node)];
        match (&entry.command, applied) {
            (_, Applied::Job(job, _)) => {
                let job = world.state.job(*job).expect("was just opened");
                match job.spec.services.iter().find(|service| host(job).is_monitor_only(service.as_str())) {
                    Some(service) => Err(format!("job {} names {service}, which is monitor-only", job.id)),
                    None => Ok(()),
                }
            }
            (Command::CloseAttempt { job, outcome: AttemptOutcome::Done, .. }, Applied::Done) => {
                let job = world.state.job(*job).expect("was just closed");
                let recorded = |state: &Inventory| {
                    let blob = state.node(job.node).and_then(|n| n.setup.baseline.as_ref()).map(|b| b.blob);
                    blob.and_then(|blob| world.blobs.get(&blob))
                };
                let (Some(was), Some(is)) = (recorded(before), recorded(&world.state)) else { return Ok(()) };
                let mut of_watched = services(host(job).group).iter().filter(|name| host(job).is_monitor_only(name));
                match of_watched.find(|name| was.services.get(**name) != is.services.get(**name)) {
                    Some(name) => {
                        Err(format!("job {} takes over what differs of {name} on {}", job.id, host(job).name))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
