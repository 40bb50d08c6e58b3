//! The module `async_status`: the state and the result of a job in the background. Each job has a
//! file in `~/.ansible_async` of its user, as in Ansible.

use super::{ModuleCall, ModuleResult, TaskOutcome};
use crate::os::acting_user::home_dir;
use crate::os::atomic_fs::{self, Attributes};
use crate::os::temp_files::TempFileNotes;
use serde_json::{Map, Value, json};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Maximum size of the result of a job in bytes.
pub(crate) const JOB_RESULT_MAX: usize = 16 << 20;

/// The directory with the results of the jobs of the user as whom this thread acts.
pub(crate) fn job_dir() -> PathBuf {
    home_dir().join(".ansible_async")
}

/// Stores the result of a job. Only the user as whom this thread acts can read it.
pub(crate) fn write_job_result(path: &Path, text: &[u8]) -> Result<(), String> {
    if let Some(dir) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|e| format!("could not create directory: {} - {e}", dir.display()))?;
    }
    let private = Attributes { mode: Some(0o600), ..Attributes::default() };
    Ok(atomic_fs::write(&TempFileNotes::default(), path, text, private, &mut |_| Ok(()))?)
}

pub fn async_status(call: &mut ModuleCall) -> ModuleResult {
    let id = call.required_text(&["jid"])?;
    let path = job_dir().join(&id);
    let erases = call.text(&["mode"]).as_deref() == Some("cleanup");
    let mut keys = json!({"started": !erases, "finished": false, "stdout": "", "stderr": "", "stdout_lines": [],
        "stderr_lines": [], "ansible_job_id": id, if erases { "erased" } else { "results_file" }: path});
    // The file of a job has no directory in its name.
    let found = if id.contains('/') || id.starts_with('.') { None } else { open(&path)? };
    let Some(file) = found else {
        (keys["started"], keys["finished"]) = (json!(true), json!(true));
        let missing = TaskOutcome { failed: true, ..TaskOutcome::default() }.with_result(keys);
        return Ok(TaskOutcome { msg: "could not find job".to_owned(), ..missing });
    };
    if erases {
        if !call.ground.node.is_check_mode() {
            std::fs::remove_file(&path).map_err(|e| format!("{} could not be removed: {e}", path.display()))?;
        }
        return Ok(TaskOutcome::ok("").with_result(keys));
    }
    let mut text = Vec::new();
    let read = file.take(JOB_RESULT_MAX as u64 + 1).read_to_end(&mut text);
    read.map_err(|e| format!("{} could not be read: {e}", path.display()))?;
    if text.len() > JOB_RESULT_MAX {
        return Err(format!("{} has more than {} MiB", path.display(), JOB_RESULT_MAX >> 20));
    }
    // A file that is not complete yet belongs to a job that runs.
    let Ok(result) = serde_json::from_slice::<Map<String, Value>>(&text) else {
        return Ok(TaskOutcome::ok("").with_result(keys));
    };
    if result.contains_key("started") {
        return Ok(TaskOutcome::ok("").with_result(keys));
    }
    keys["finished"] = json!(true);
    Ok(outcome_of_job(result, keys))
}

/// The file of a job. None: it does not exist, or it is no file.
fn open(path: &Path) -> Result<Option<File>, String> {
    // Without these flags, a named pipe would block this run, and a link could lead elsewhere.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = match OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{} could not be read: {e}", path.display())),
    };
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    Ok(Some(file).filter(|_| is_file))
}

/// The outcome of a job that has ended. `keys`: the keys that each answer of `async_status` has.
fn outcome_of_job(mut result: Map<String, Value>, keys: Value) -> TaskOutcome {
    let is = |key: &str| result.get(key).and_then(Value::as_bool);
    let rc = result.get("rc").and_then(Value::as_i64);
    let out = TaskOutcome {
        changed: is("changed") == Some(true),
        failed: is("failed").unwrap_or(rc.is_some_and(|rc| rc != 0)),
        skipped: is("skipped") == Some(true),
        rc: rc.and_then(|rc| i32::try_from(rc).ok()),
        ..TaskOutcome::default()
    };
    let msg = result.get("msg").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Value::Object(mut all) = keys else { return out };
    for stream in ["stdout", "stderr"] {
        if let Some(text) = result.get(stream).and_then(Value::as_str) {
            let lines: Vec<&str> = text.lines().collect();
            all.insert(format!("{stream}_lines"), json!(lines));
        }
    }
    // The keys about the job itself are not those of its result.
    for own in ["started", "finished", "ansible_job_id", "results_file", "changed", "failed", "skipped", "invocation"] {
        result.remove(own);
    }
    all.extend(result);
    TaskOutcome { msg, ..out.with_result(Value::Object(all)) }
}
