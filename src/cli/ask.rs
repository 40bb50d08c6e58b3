//! Confirmation before actions that can't be undone. Only this module makes a [`UserConfirmation`].

use super::drivers::{PlayPrompter, VarsPrompt};
use super::error;
use super::out::Out;
use remoor_model::sanitize;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
use std::io::{BufRead, IsTerminal, Read, Write};

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

/// Number of times that a value may be entered if its repetition differs.
const REPETITIONS_MAX: u32 = 3;
/// Maximum length of an entered value in bytes.
const VALUE_MAX: usize = 4096;
/// The byte of Ctrl-C.
const INTERRUPT: u8 = 3;

/// How the variables of `vars_prompt` get their values: from a person if there is a terminal.
pub fn prompter() -> PlayPrompter {
    match std::io::stdin().is_terminal() {
        true => PlayPrompter::Terminal(ask_variable),
        false => PlayPrompter::NoTerminal,
    }
}

/// Asks for a variable of a playbook at the terminal. The error is a message.
fn ask_variable(prompt: &VarsPrompt) -> Result<String, String> {
    let default = prompt.default.as_ref().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let text =
        sanitize::line(&prompt.text).into_owned() + &default.map_or_else(String::new, |value| format!(" [{value}]"));
    let failed = |e: std::io::Error| format!("the value of `{}` can't be read: {e}", prompt.name);
    for _ in 0..REPETITIONS_MAX {
        let value = read_value(&format!("{text}: "), prompt.private).map_err(failed)?;
        if !prompt.confirm || read_value(&format!("confirm {text}: "), prompt.private).map_err(failed)? == value {
            return Ok(value);
        }
        eprintln!("the two values differ");
    }
    Err(format!("the values for `{}` differ", prompt.name))
}

/// Reads one line from the terminal. A hidden line is not shown.
fn read_value(text: &str, hidden: bool) -> std::io::Result<String> {
    let show = || std::io::stderr().write_all(text.as_bytes());
    let stdin = std::io::stdin();
    if !hidden {
        show()?;
        let mut line = String::new();
        stdin.lock().take(VALUE_MAX as u64).read_line(&mut line)?;
        return ended_line(line);
    }
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    // Ctrl-C ends the line instead of this program. Otherwise the terminal would stay silent.
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    silent.local_modes.insert(LocalModes::ECHONL);
    silent.special_codes[SpecialCodeIndex::VEOL] = INTERRUPT;
    tcsetattr(&stdin, OptionalActions::Now, &silent)?;
    let mut line = [0; VALUE_MAX];
    let read = show().and_then(|()| stdin.lock().read(&mut line));
    tcsetattr(&stdin, OptionalActions::Now, &before)?;
    let line = &line[..read?];
    if line.contains(&INTERRUPT) {
        return Err(std::io::ErrorKind::Interrupted.into());
    }
    ended_line(String::from_utf8_lossy(line).into_owned())
}

/// The line without its end. A line without an end is the end of the input.
fn ended_line(line: String) -> std::io::Result<String> {
    match line.strip_suffix('\n') {
        Some(value) => Ok(value.to_owned()),
        None => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
