//! Invariant I13 (docs/design/invariants.md): outside the operator's maintenance windows, nothing
//! begins automatically. Two kinds of work may begin outside them: the repair of a half-done node,
//! and an order with `--now`.

use super::*;

pub struct InWindow;

impl Law for InWindow {
    fn name(&self) -> &'static str {
        "I13"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Applied { applied: Applied::Job(job, _), before, entry } = fact else { return Ok(()) };
        if before.job(*job).is_some_and(|j| j.open_attempt().is_some()) {
            return Ok(()); // another leader continues a job that has already begun
        }
        let job = world.state.job(*job).expect("was just opened");
        let host = &world.hosts[world.host_of(job.node)];
        let half_done = before.node(job.node).is_some_and(Node::half_done);
        if job.spec.by.is_none() && !half_done && world.options.is_window_closed(host.group, entry.at) {
            return Err(format!("{} begins outside its windows", host.name));
        }
        Ok(())
    }
}
