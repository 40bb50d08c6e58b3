//! Asking before what can't be taken back. Only here is a `Confirmed` made.

use super::error;
use super::out::Out;
use std::io::{BufRead, IsTerminal};

/// Somebody said yes, by name.
#[derive(Debug)]
pub struct Confirmed(pub ());

/// Confirmed by `--confirm NAME`, or by typing the name at a terminal. Anything else is a refusal.
pub fn confirm(
    out: &Out,
    what: &str,
    effect: &str,
    name: &str,
    given: Option<&str>,
    no_input: bool,
) -> anyhow::Result<Confirmed> {
    match given {
        Some(given) if given == name => return Ok(Confirmed(())),
        Some(_) => return Err(error::not_confirmed(what, name).into()),
        None if no_input || !std::io::stdin().is_terminal() => return Err(error::not_confirmed(what, name).into()),
        None => {}
    }
    out.talk(effect);
    out.talk(&format!("type {name} to go on:"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == name { Ok(Confirmed(())) } else { Err(error::not_confirmed(what, name).into()) }
}
