//! I15: a job about some services changes what is recorded of these, and nothing that is recorded of others.

use super::*;

pub struct Parts;

impl Law for Parts {
    fn name(&self) -> &'static str {
        "I15"
    }

    fn hear(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Applied { entry, applied: Applied::Done, before } = fact else { return Ok(()) };
        let Command::CloseAttempt { job, outcome: Outcome::Done, .. } = &entry.command else { return Ok(()) };
        let job = world.state.job(*job).expect("was just closed");
        let recorded = |state: &Inventory| {
            let blob = state.node(job.node).and_then(|n| n.baseline.as_ref()).map(|b| b.blob);
            blob.and_then(|blob| world.blobs.get(&blob)).cloned()
        };
        let (Some(was), Some(is)) = (recorded(before), recorded(&world.state)) else { return Ok(()) };
        let others = was.services.keys().filter(|name| !job.services.is_empty() && !job.services.contains(name));
        match others.clone().find(|name| was.services.get(*name) != is.services.get(*name)) {
            Some(name) => {
                let host = world.hosts[world.host_of(job.node)].name;
                Err(format!("job {} is not about {name} of {host}, and what is recorded of it changed", job.id))
            }
            None => Ok(()),
        }
    }
}
