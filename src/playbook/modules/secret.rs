//! What of an account stands in shadow, and its key for SSH: the parts of `user` that nobody else may see.

use super::{Call, Outcome, UMASK, complaint, keys, started};
use crate::playbook::process::{self, Job};
use rustix::fs::FileType;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Passwords, and days of expiry.
const SHADOW: &str = "/etc/shadow";
const DAY: i64 = 86_400;

/// One field of a user's line in shadow; None: there is no line that can be read.
fn shadow(name: &str, field: usize) -> Option<String> {
    let text = std::fs::read_to_string(SHADOW).ok()?;
    let mut line = text.lines().map(|line| line.split(':')).find(|line| line.clone().next() == Some(name))?;
    line.nth(field).map(str::to_owned)
}

/// The date that useradd and usermod are to set; None: it is as it should be. Before 1970 means never, which is no date.
pub fn expiry(call: &Call, name: &str) -> Result<Option<String>, String> {
    let Some(text) = call.text(&["expires"]) else { return Ok(None) };
    let seconds: f64 = text.parse().map_err(|_| format!("`expires` is no number of seconds: {text}"))?;
    let have = shadow(name, 7).unwrap_or_default();
    if seconds < 0.0 {
        return Ok((!have.is_empty()).then(String::new));
    }
    let day = (seconds as i64).div_euclid(DAY);
    let at = jiff::Timestamp::from_second(day * DAY).map_err(|e| format!("`expires`: {e}"))?;
    Ok((have != day.to_string()).then(|| at.strftime("%Y-%m-%d").to_string()))
}

/// Sets the password, which is given as its hash, and locks or unlocks it. It never stands in an argument, which anybody
/// on the node could read.
pub fn password(call: &mut Call, created: bool, out: &mut Outcome) -> Result<(), String> {
    let name = super::account::name(call)?;
    let always = call.text(&["update_password"]).is_none_or(|when| when != "on_create");
    let have = shadow(&name, 1).unwrap_or_default();
    let bare = |hash: &str| hash.trim_start_matches('!').to_owned();
    let want = call.text(&["password"]).filter(|want| created || always && bare(want) != bare(&have));
    let mut locked = have.starts_with('!');
    if let Some(hash) = want {
        if hash.contains([':', '\n']) {
            return Err("`password` is the hash of one, as `password_hash` gives it".into());
        }
        let argv = ["chpasswd", "--encrypted"].map(str::to_owned).to_vec();
        let stdin = Some(format!("{name}:{hash}\n").into_bytes());
        run(call, Job { argv, stdin, ..Job::default() })?;
        locked = hash.starts_with('!');
        *out = Outcome { changed: true, msg: join(&out.msg, "password set"), ..std::mem::take(out) };
    }
    if let Some(lock) = call.given_flag("password_lock").filter(|lock| *lock != locked && (!created || !*lock)) {
        let flag = if lock { "--lock" } else { "--unlock" };
        let argv = ["usermod", flag, "--", &name].map(str::to_owned).to_vec();
        run(call, Job { argv, ..Job::default() })?;
        *out = Outcome { changed: true, msg: join(&out.msg, flag), ..std::mem::take(out) };
    }
    Ok(())
}

/// Makes a key for SSH without a passphrase, by the user, unless there is one.
pub fn key(call: &mut Call, out: &mut Outcome) -> Result<(), String> {
    let name = super::account::name(call)?;
    let entry = call.ground.node.user(&name).ok_or_else(|| format!("there is no user `{name}`"))?;
    let kind = call.text(&["ssh_key_type"]).unwrap_or_else(|| "rsa".into());
    let file = call.text(&["ssh_key_file"]).unwrap_or_else(|| format!(".ssh/id_{kind}"));
    let path = Path::new(&entry[5]).join(file);
    if path.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(format!("`ssh_key_file`: `..` is not followed: {}", path.display()));
    }
    let there =
        call.ground.node.look(&path)?.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Symlink);
    if !there {
        let dir = path.parent().unwrap_or(&path).to_owned();
        if !call.ground.node.checks() {
            keys::directory(call, &dir, &(entry[2].clone(), entry[3].clone()))?;
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
        run(call, Job { argv, ..Job::default() })?;
        *out = Outcome { changed: true, msg: join(&out.msg, "key made"), ..std::mem::take(out) };
    }
    out.more.insert("ssh_key_file".into(), json!(path.display().to_string()));
    let public = PathBuf::from(format!("{}.pub", path.display()));
    if let Ok(text) = call.ground.node.read(&public) {
        out.more.insert("ssh_public_key".into(), json!(String::from_utf8_lossy(&text).trim_end()));
    }
    Ok(())
}

fn join(said: &str, more: &str) -> String {
    format!("{said}, {more}").trim_start_matches(", ").to_owned()
}

/// Runs a program that changes the account; in check mode it is not run.
fn run(call: &mut Call, job: Job) -> Result<(), String> {
    if call.ground.node.checks() {
        return Ok(());
    }
    call.ground.node.begin()?;
    let program = job.argv.first().cloned().unwrap_or_default();
    let job = Job { env: call.env.clone(), timeout: call.left(), umask: Some(UMASK), ..job };
    let done = process::run(&job, call.cancel, call.emit).map_err(|e| started(&e))?;
    if done.success() { Ok(()) } else { Err(complaint(&program, &done)) }
}
