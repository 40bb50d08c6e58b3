//! Confirmation before actions that can't be undone. Only this module makes a [`UserConfirmation`].

use super::error;
use super::out::Out;
use std::io::{BufRead, IsTerminal};

/// Proof that a person confirmed the action.
#[derive(Debug)]
pub struct UserConfirmation(pub ());

/// The host keys of a machine that are trusted. `offered` has the keys of the machine, each as
/// (fingerprint, key). With `given`, only the key with that fingerprint is trusted. Otherwise a
/// person must accept all offered keys at the terminal. Returns an error if no key is trusted.
pub fn confirm_host_keys(
    out: &Out,
    host: &str,
    offered: &[(String, String)],
    given: Option<&str>,
) -> anyhow::Result<Vec<String>> {
    if let Some(given) = given {
        let keys: Vec<String> = offered.iter().filter(|(print, _)| print == given).map(|(_, k)| k.clone()).collect();
        return if keys.is_empty() { Err(error::other_host_key(host, given, offered).into()) } else { Ok(keys) };
    }
    if !std::io::stdin().is_terminal() {
        return Err(error::host_key_not_confirmed(host, offered).into());
    }
    out.talk(&format!("{host} offers these SSH host keys:"));
    for (print, key) in offered {
        out.talk(&format!("  {print} ({})", key.split(' ').next().unwrap_or_default()));
    }
    out.talk(
        "compare them with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on its console; type yes if they match:",
    );
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "yes" => Ok(offered.iter().map(|(_, key)| key.clone()).collect()),
        _ => Err(error::host_key_not_confirmed(host, offered).into()),
    }
}

/// Returns the confirmation if `yes` is set, or if a person types yes at a terminal after reading
/// `effect`. Otherwise returns a refusal.
pub fn confirm_yes(out: &Out, what: &str, effect: &str, yes: bool) -> anyhow::Result<UserConfirmation> {
    if yes {
        return Ok(UserConfirmation(()));
    }
    out.talk(effect);
    if !std::io::stdin().is_terminal() {
        return Err(error::not_agreed(what).into());
    }
    out.talk("type yes to continue:");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(UserConfirmation(())) } else { Err(error::not_agreed(what).into()) }
}

/// Returns the confirmation if `given` (the value of `--confirm`) is `name`, or if a person types
/// `name` at a terminal. Otherwise returns a refusal.
pub fn confirm_name(
    out: &Out,
    what: &str,
    effect: &str,
    name: &str,
    given: Option<&str>,
    no_input: bool,
) -> anyhow::Result<UserConfirmation> {
    match given {
        Some(given) if given == name => return Ok(UserConfirmation(())),
        Some(_) => return Err(error::not_confirmed(what, name).into()),
        None if no_input || !std::io::stdin().is_terminal() => return Err(error::not_confirmed(what, name).into()),
        None => {}
    }
    out.talk(effect);
    out.talk(&format!("type {name} to continue:"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == name { Ok(UserConfirmation(())) } else { Err(error::not_confirmed(what, name).into()) }
}
