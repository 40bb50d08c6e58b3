//! Invariant I3 (docs/design/invariants.md): provisioning begins only after the verified cleanup of
//! the same attempt.

use super::*;
use std::collections::BTreeSet;

#[derive(Default)]
pub struct CleanFirst {
    cleaned: BTreeSet<(usize, AttemptId)>,
    cleaned_up: BTreeSet<(usize, AttemptId)>,
}

impl Law for CleanFirst {
    fn name(&self) -> &'static str {
        "I3"
    }

    fn check(&mut self, _: &World, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Ended { host, attempt, phase: Phase::Cleanup, well: true } => {
                self.cleaned_up.insert((*host, *attempt));
            }
            Fact::Ended { host, attempt, phase: Phase::Cleaned, well: true } => {
                self.cleaned.insert((*host, *attempt));
            }
            Fact::Began { host, attempt, phase: Phase::Provision, .. } => {
                let key = (*host, *attempt);
                if !self.cleaned_up.contains(&key) || !self.cleaned.contains(&key) {
                    return Err(format!("attempt {attempt} provisions without its own verified cleanup"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
