//! The parts of the `user` module that only root may see: the shadow entry (password, expiry) and
//! the user's private SSH key.

use super::{ModuleCall, TaskOutcome, UMASK, authorized_key, require_success, spawn_failure};
use crate::os::process::{self, CommandSpec};
use rustix::fs::FileType;
use serde_json::json;
use std::path::{Path, PathBuf};

/// The file with password hashes and expiry dates.
const SHADOW: &str = "/etc/shadow";
const DAY: i64 = 86_400;

/// A field of a user's shadow entry. None: the file or the entry cannot be read.
fn shadow_field(name: &str, field: usize) -> Option<String> {
    let text = std::fs::read_to_string(SHADOW).ok()?;
    let mut line = text.lines().map(|line| line.split(':')).find(|line| line.clone().next() == Some(name))?;
    line.nth(field).map(str::to_owned)
}

/// The expiry date for useradd and usermod. None: no change is needed. A negative `expires` means
/// that the account never expires. The date is then empty.
pub fn expiry_change(call: &ModuleCall, name: &str) -> Result<Option<String>, String> {
    let Some(text) = call.text(&["expires"]) else { return Ok(None) };
    let seconds: f64 = text.parse().map_err(|_| format!("`expires` is not a number of seconds: {text}"))?;
    let have = shadow_field(name, 7).unwrap_or_default();
    if seconds < 0.0 {
        return Ok((!have.is_empty()).then(String::new));
    }
    let day = (seconds as i64).div_euclid(DAY);
    let at = jiff::Timestamp::from_second(day * DAY).map_err(|e| format!("`expires`: {e}"))?;
    Ok((have != day.to_string()).then(|| at.strftime("%Y-%m-%d").to_string()))
}

/// Sets the password hash, and locks or unlocks the password. The hash is passed on standard input,
/// because all users can read process arguments.
pub fn set_password(call: &mut ModuleCall, created: bool, out: &mut TaskOutcome) -> Result<(), String> {
    let name = super::account::name(call)?;
    let always = call.text(&["update_password"]).is_none_or(|when| when != "on_create");
    let have = shadow_field(&name, 1).unwrap_or_default();
    let bare = |hash: &str| hash.trim_start_matches('!').to_owned();
    let want = call.text(&["password"]).filter(|want| created || always && bare(want) != bare(&have));
    let mut locked = have.starts_with('!');
    if let Some(hash) = want {
        if hash.contains([':', '\n']) {
            return Err("`password` must be a password hash, as from the filter `password_hash`".into());
        }
        let argv = ["chpasswd", "--encrypted"].map(str::to_owned).to_vec();
        let stdin = Some(format!("{name}:{hash}\n").into_bytes());
        run(call, CommandSpec { argv, stdin, ..CommandSpec::default() })?;
        locked = hash.starts_with('!');
        *out = TaskOutcome { changed: true, msg: append_message(&out.msg, "password set"), ..std::mem::take(out) };
    }
    if let Some(lock) = call.given_flag("password_lock").filter(|lock| *lock != locked && (!created || !*lock)) {
        let flag = if lock { "--lock" } else { "--unlock" };
        let argv = ["usermod", flag, "--", &name].map(str::to_owned).to_vec();
        run(call, CommandSpec { argv, ..CommandSpec::default() })?;
        *out = TaskOutcome { changed: true, msg: append_message(&out.msg, flag), ..std::mem::take(out) };
    }
    Ok(())
}

/// Creates an SSH key without a passphrase as the user, unless the key file exists.
pub fn create_ssh_key(call: &mut ModuleCall, out: &mut TaskOutcome) -> Result<(), String> {
    let name = super::account::name(call)?;
    let entry = call.ground.node.user(&name).ok_or_else(|| format!("there is no user `{name}`"))?;
    let kind = call.text(&["ssh_key_type"]).unwrap_or_else(|| "rsa".into());
    let file = call.text(&["ssh_key_file"]).unwrap_or_else(|| format!(".ssh/id_{kind}"));
    let path = Path::new(&entry[5]).join(file);
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(format!("`ssh_key_file` must not contain `..`: {}", path.display()));
    }
    let there =
        call.ground.node.stat(&path)?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Symlink);
    if !there {
        let dir = path.parent().unwrap_or(&path).to_owned();
        if !call.ground.node.is_check_mode() {
            authorized_key::directory(call, &dir, &(entry[2].clone(), entry[3].clone()))?;
        }
        let comment = call.text(&["ssh_key_comment"]).unwrap_or_else(|| {
            format!("ansible-generated on {}", rustix::system::uname().nodename().to_string_lossy())
        });
        let ids = ["setpriv", "--reuid", &entry[2], "--regid", &entry[3], "--init-groups", "--"];
        let shown = path.display().to_string();
        let make = ["ssh-keygen", "-q", "-t", &kind, "-C", &comment, "-N", "", "-f", &shown];
        let mut argv: Vec<String> = ids.iter().chain(&make).map(|word| (*word).to_owned()).collect();
        let bits = call.text(&["ssh_key_bits"]).filter(|bits| bits != "0");
        argv.extend(bits.into_iter().flat_map(|bits| ["-b".to_owned(), bits]));
        run(call, CommandSpec { argv, ..CommandSpec::default() })?;
        *out = TaskOutcome { changed: true, msg: append_message(&out.msg, "SSH key created"), ..std::mem::take(out) };
    }
    out.extra_keys.insert("ssh_key_file".into(), json!(path.display().to_string()));
    let public = PathBuf::from(format!("{}.pub", path.display()));
    if let Ok(text) = call.ground.node.read(&public) {
        out.extra_keys.insert("ssh_public_key".into(), json!(String::from_utf8_lossy(&text).trim_end()));
    }
    Ok(())
}

fn append_message(said: &str, more: &str) -> String {
    format!("{said}, {more}").trim_start_matches(", ").to_owned()
}

/// Runs a program that changes the account. Does nothing in check mode.
fn run(call: &mut ModuleCall, job: CommandSpec) -> Result<(), String> {
    if call.ground.node.is_check_mode() {
        return Ok(());
    }
    call.ground.node.begin_change()?;
    let program = job.argv.first().cloned().unwrap_or_default();
    let job = CommandSpec { env: call.env.clone(), timeout: call.time_left(), umask: Some(UMASK), ..job };
    let done = process::run(&job, call.cancel, call.emit).map_err(|e| spawn_failure(&e))?;
    require_success(&program, &done)
}
