//! Invariant I4 (docs/design/invariants.md): after a newer attempt has begun on a node, an older
//! attempt changes nothing on this node.

use super::*;
use std::collections::BTreeMap;

#[derive(Default)]
pub struct LateRuns {
    newest: BTreeMap<usize, AttemptId>,
}

impl Law for LateRuns {
    fn name(&self) -> &'static str {
        "I4"
    }

    fn check(&mut self, _: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Began { host, attempt, phase: Phase::Fence, .. } => {
                let newest = self.newest.entry(*host).or_default();
                *newest = (*newest).max(*attempt);
            }
            Fact::Touches { host, attempt, phase: Phase::Cleanup | Phase::Provision | Phase::Undo, .. } => {
                if let Some(newest) = self.newest.get(host).filter(|n| *n > attempt) {
                    return Err(format!("attempt {attempt} continues although {newest} has begun"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
