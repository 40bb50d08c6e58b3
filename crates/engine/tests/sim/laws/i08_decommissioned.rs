//! Invariant I8 (docs/design/invariants.md): a decommissioned node is not provisioned until an
//! operator commissions it again. A drained node is not provisioned until it is resumed.

use super::*;
use std::collections::BTreeSet;

#[derive(Default)]
pub struct Decommissioned {
    out: BTreeSet<NodeId>,
    drained: BTreeSet<NodeId>,
}

impl Decommissioned {
    fn record_order(&mut self, order: &Command, before: &Inventory) {
        match order {
            Command::RequestResetup { node, want } if want.spec.decommission => {
                self.out.insert(*node);
            }
            Command::RequestResetup { node, want } if want.commission => {
                self.out.remove(node);
            }
            // The request to decommission the node was dropped before any work began, so the node
            // stays in service.
            Command::DropRequest { node, .. }
                if before.node(*node).and_then(|n| n.pending_resetup.as_ref()).is_some_and(|w| w.spec.decommission) =>
            {
                self.out.remove(node);
                self.drained.remove(node);
            }
            Command::Adopt { node, .. } => {
                self.out.remove(node);
            }
            Command::Drain { node, .. } => {
                self.drained.insert(*node);
                if before.node(*node).is_some_and(|n| before.may_contain_services(n)) {
                    self.out.insert(*node);
                }
            }
            Command::ResumeNode { node } => {
                self.drained.remove(node);
                // If the cleanup of a drained node was only requested and has not begun, the node
                // is unchanged. So it is in service again after the resume.
                let drained = |n: &Node| n.availability == Availability::Drain;
                if before
                    .node(*node)
                    .is_some_and(|n| drained(n) && n.pending_resetup.as_ref().is_some_and(|w| w.spec.decommission))
                {
                    self.out.remove(node);
                }
            }
            _ => {}
        }
    }
}

impl Law for Decommissioned {
    fn name(&self) -> &'static str {
        "I8"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Applied { applied: Applied::Done, entry, before } => match &entry.command {
                Command::Batch(orders) => orders.iter().for_each(|order| self.record_order(order, before)),
                order => self.record_order(order, before),
            },
            Fact::Applied { applied: Applied::Job(job, _), .. } => {
                let job = world.state.job(*job).expect("was just opened");
                if (self.out.contains(&job.node) || self.drained.contains(&job.node)) && !job.spec.decommission {
                    return Err(format!(
                        "a job opens on {}, which was ordered out",
                        world.hosts[world.host_of(job.node)].name
                    ));
                }
            }
            Fact::Began { host, phase: Phase::Provision, .. } if self.out.contains(&world.hosts[*host].id) => {
                return Err(format!("{} is provisioned, and was ordered out", world.hosts[*host].name));
            }
            _ => {}
        }
        Ok(())
    }
}
