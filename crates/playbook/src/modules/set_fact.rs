//! The `set_fact` module: sets variables.

use super::{Answer, Call, Outcome};

pub fn set_fact(call: &mut Call) -> Answer {
    let mut facts = call.args.clone();
    facts.remove("cacheable");
    Ok(Outcome { facts, ..Outcome::default() })
}
