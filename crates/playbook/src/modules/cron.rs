//! The `cron` module: a cron job or a variable in the crontab of a user or in a file of
//! `/etc/cron.d`. A comment line with the name of the cron job marks it.

use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message, write_file};
use crate::os::acting_user::acting_user;
use crate::os::process::CommandSpec;
use crate::os::{atomic_fs, process};
use serde_json::json;
use std::path::{Path, PathBuf};

const MARK: &str = "#Ansible: ";

pub fn cron(call: &mut ModuleCall) -> ModuleResult {
    let name = call.text(&["name"]).unwrap_or_default();
    let present = call.text(&["state"]).as_deref() != Some("absent");
    let env = call.flag("env", false);
    if name.contains('\n') || name.is_empty() && (present || call.text(&["cron_file"]).is_none()) {
        return Err("`name` is missing or has more than one line".into());
    }
    let table = table(call)?;
    let old = read(call, &table)?;
    if !present && name.is_empty() {
        let Crontab::File(path) = &table else { return Err("`name` is missing".into()) };
        return match call.ground.node.stat(path)? {
            None => Ok(TaskOutcome::ok("does not exist")),
            Some(stat) => Ok(TaskOutcome::change(call.ground.remove_or_park(path, &stat)?)),
        };
    }
    let mut lines: Vec<String> = old.lines().map(str::to_owned).collect();
    if env {
        variable(call, &mut lines, &name, present)?;
    } else {
        job(call, &mut lines, &name, present, matches!(table, Crontab::File(_)))?;
    }
    let mut new = lines.join("\n");
    if !new.is_empty() {
        new.push('\n');
    }
    let mut out = if new == old { TaskOutcome::default() } else { write(call, &table, &old, &new)? };
    let names = |marked: bool| -> Vec<&str> {
        let jobs = lines.iter().filter_map(|l| l.strip_prefix(MARK));
        let variables = lines.iter().filter(|l| !l.starts_with('#')).filter_map(|l| l.split_once('=')).map(|(n, _)| n);
        if marked { jobs.collect() } else { variables.filter(|n| !n.contains(' ')).collect() }
    };
    out.extra_keys.insert("jobs".into(), json!(names(true)));
    out.extra_keys.insert("envs".into(), json!(names(false)));
    Ok(out)
}

enum Crontab {
    File(PathBuf),
    /// The crontab of this user. None: the crontab of the user who runs the task.
    User(Option<String>),
}

fn table(call: &ModuleCall) -> Result<Crontab, String> {
    let user = call.text(&["user"]).filter(|u| !u.is_empty()).or_else(acting_name);
    if let Some(bad) = user.as_ref().filter(|u| u.starts_with('-')) {
        return Err(format!("`{bad}` is not a valid user name"));
    }
    let Some(file) = call.text(&["cron_file"]) else { return Ok(Crontab::User(user)) };
    let path = if file.starts_with('/') { PathBuf::from(&file) } else { Path::new("/etc/cron.d").join(&file) };
    if path.components().any(|c| c == std::path::Component::ParentDir) {
        return Err(format!("`cron_file` must not contain `..`: {file}"));
    }
    Ok(Crontab::File(path))
}

/// The name of the user as whom the task acts. None: the user of this process.
fn acting_name() -> Option<String> {
    acting_user().map(|user| user.name.clone())
}

/// Only root may name a user, so the user of the task does not name itself.
fn crontab_command<'u>(user: Option<&'u str>, more: &[&'u str]) -> Vec<&'u str> {
    let mut argv = vec!["crontab"];
    let own = acting_name();
    argv.extend(user.filter(|user| own.as_deref() != Some(*user)).into_iter().flat_map(|u| ["-u", u]));
    argv.extend(more);
    argv
}

fn read(call: &ModuleCall, table: &Crontab) -> Result<String, String> {
    let key = |user: &Option<String>| format!("crontab {}", user.as_deref().unwrap_or_default());
    match table {
        Crontab::File(path) => Ok(call.read_text(path)?.1),
        Crontab::User(user) => {
            if let Some(text) = call.predicted_text(&key(user)) {
                return Ok(text);
            }
            let done = call.run_quietly(&crontab_command(user.as_deref(), &["-l"]))?;
            match done.success() {
                true if done.partial => Err("the crontab is not UTF-8 or is too long; it was left unchanged".into()),
                true => Ok(done.stdout),
                // The user has no crontab yet.
                false if done.stderr.contains("no crontab") => Ok(String::new()),
                false => Err(failure_message("crontab -l", &done)),
            }
        }
    }
}

fn write(call: &mut ModuleCall, table: &Crontab, old: &str, new: &str) -> ModuleResult {
    match table {
        Crontab::File(path) => {
            let path = path.clone();
            let old = call.ground.node.stat(&path)?.map(|_| old.as_bytes().to_vec());
            write_file::update_file(call, &path, old, new.as_bytes().to_vec(), "cron")
        }
        Crontab::User(user) => {
            let mut out = TaskOutcome::change("the crontab changed");
            out.diff =
                Some(super::diff::unified_diff(Some(old.as_bytes()), new.as_bytes(), Path::new("crontab"), "cron"));
            out.extra_keys.insert("path".into(), json!("crontab"));
            if call.flag("backup", false) && !old.is_empty() && !call.ground.node.is_check_mode() {
                let file = tempfile::Builder::new().prefix("crontab").tempfile().map_err(|e| e.to_string())?;
                let (_, path) = file.keep().map_err(|e| e.to_string())?;
                let private = atomic_fs::Attributes { mode: Some(0o600), ..atomic_fs::Attributes::default() };
                call.ground.node.write(&path, old.as_bytes(), private, &mut |_| Ok(()))?;
                out.extra_keys.insert("backup_file".into(), json!(path.display().to_string()));
            }
            if let Some(would) = call.ground.node.predicted_state_mut() {
                would.set_text(&format!("crontab {}", user.as_deref().unwrap_or_default()), new);
                return Ok(out);
            }
            let argv = crontab_command(user.as_deref(), &["-"]).into_iter().map(str::to_owned).collect();
            let stdin = Some(new.as_bytes().to_vec());
            let job =
                CommandSpec { argv, env: call.env.clone(), stdin, timeout: call.time_left(), ..CommandSpec::default() };
            call.ground.node.begin_change()?;
            let done = process::run(&job, call.cancel, call.emit).map_err(|e| super::spawn_failure(&e))?;
            if done.success() { Ok(out) } else { Err(failure_message("crontab", &done)) }
        }
    }
}

fn variable(call: &ModuleCall, lines: &mut Vec<String>, name: &str, present: bool) -> Result<(), String> {
    let of = |name: &str, l: &String| l.split_once('=').is_some_and(|(n, _)| n == name);
    let at = lines.iter().position(|l| of(name, l));
    if !present {
        lines.retain(|l| !of(name, l));
        return Ok(());
    }
    let line = format!("{name}=\"{}\"", call.required_text(&["job", "value"])?);
    if let Some(at) = at {
        lines[at] = line;
        return Ok(());
    }
    let near = |option: &str| -> Result<Option<usize>, String> {
        let Some(other) = call.text(&[option]) else { return Ok(None) };
        let at = lines.iter().position(|l| of(&other, l));
        at.map(Some).ok_or_else(|| format!("the crontab has no variable `{other}`"))
    };
    let at = match (near("insertafter")?, near("insertbefore")?) {
        (Some(at), _) => at + 1,
        (_, Some(at)) => at,
        _ => 0,
    };
    lines.insert(at, line);
    Ok(())
}

fn job(call: &ModuleCall, lines: &mut Vec<String>, name: &str, present: bool, with_user: bool) -> Result<(), String> {
    let mark = format!("{MARK}{name}");
    let at = lines.iter().position(|l| *l == mark);
    if !present {
        if let Some(at) = at {
            lines.drain(at..(at + 2).min(lines.len()));
        }
        return Ok(());
    }
    let what = call.required_text(&["job", "value"])?;
    if what.contains('\n') {
        return Err("`job` must be one line".into());
    }
    let user = match (with_user, call.text(&["user"])) {
        (true, user) => format!("{} ", user.unwrap_or_else(|| "root".into())),
        (false, _) => String::new(),
    };
    let when = match call.text(&["special_time"]) {
        Some(special) => format!("@{special}"),
        None => {
            let fields: [&[&str]; 5] = [&["minute"], &["hour"], &["day", "dom"], &["month"], &["weekday", "dow"]];
            fields.map(|names| call.text(names).unwrap_or_else(|| "*".into())).join(" ")
        }
    };
    let off = if call.flag("disabled", false) { "#" } else { "" };
    let line = format!("{off}{when} {user}{what}");
    match at {
        Some(at) if at + 1 < lines.len() => lines[at + 1] = line,
        Some(_) => lines.push(line),
        None => lines.extend([mark, line]),
    }
    Ok(())
}
