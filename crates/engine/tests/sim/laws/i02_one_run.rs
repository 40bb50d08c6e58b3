//! Invariant I2 (docs/design/invariants.md): at most one run is in progress on a node at a time.

use super::*;

pub struct OneRun;

impl Law for OneRun {
    fn name(&self) -> &'static str {
        "I2"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Began { host, .. } if world.hosts[*host].executor.runs.len() > 1 => {
                let runs: Vec<_> = world.hosts[*host].executor.runs.iter().map(|r| (r.attempt, r.phase)).collect();
                Err(format!("{} runs {runs:?} at once", world.hosts[*host].name))
            }
            _ => Ok(()),
        }
    }
}
