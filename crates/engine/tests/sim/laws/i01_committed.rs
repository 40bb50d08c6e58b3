//! Invariant I1 (docs/design/invariants.md): a phase runs on a node only during its committed, open
//! attempt, and only if the attempt is in this phase.

use super::*;
use std::collections::BTreeSet;

#[derive(Default)]
pub struct Committed {
    phases: BTreeSet<(AttemptId, Phase)>,
}

impl Law for Committed {
    fn name(&self) -> &'static str {
        "I1"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Applied { applied: Applied::Job(_, attempt), .. } => {
                self.phases.insert((*attempt, Phase::Fence));
            }
            Fact::Applied { entry, applied: Applied::Done, .. } => {
                if let Command::Phase { attempt, phase, .. } = &entry.command {
                    self.phases.insert((*attempt, *phase));
                }
            }
            Fact::Ordered { job, attempt, phase, node, view, current } => {
                let seen = view.unwrap_or(&world.state).job(*job);
                let open = seen.filter(|j| j.node == *node).and_then(Job::open_attempt);
                if !open.is_some_and(|a| a.id == *attempt && a.phase == *phase) {
                    let who = if *current { "the leader" } else { "a deposed leader" };
                    return Err(format!("{who} orders {phase} of attempt {attempt}, which is not open in it"));
                }
            }
            Fact::Began { attempt, phase, .. } if !self.phases.contains(&(*attempt, *phase)) => {
                return Err(format!("{phase} of attempt {attempt} begins and was never committed"));
            }
            _ => {}
        }
        Ok(())
    }
}
