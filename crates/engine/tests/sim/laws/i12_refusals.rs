//! Invariant I12 (docs/design/invariants.md): a refused command changes nothing; only its log index
//! is counted.

use super::*;

pub struct Refusals;

impl Law for Refusals {
    fn name(&self) -> &'static str {
        "I12"
    }

    fn check(&mut self, world: &World, fact: &Fact) -> Result<(), String> {
        let Fact::Applied { entry, applied: Applied::Refused(refusal), before } = fact else { return Ok(()) };
        let same = Inventory { applied: world.state.applied, ..(*before).clone() } == world.state;
        if same { Ok(()) } else { Err(format!("refused ({refusal}), and changed something: {:?}", entry.command)) }
    }
}
