//! The `reboot` module. It runs twice: before the reboot it sends the checkpoint of the run to the
//! controller and restarts the host, and after the reboot it verifies that the host is ready.

use super::{ModuleCall, ModuleResult, TaskOutcome, UMASK};
use crate::delegate::{ControllerLink, RebootRequest, request_reboot, withdraw_reboot};
use crate::os::process::{CommandSpec, Finished};
use crate::run::checkpoint::{Checkpoint, Interrupted};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The name of the module.
pub(crate) const REBOOT: &str = "reboot";
/// The directories in which Ansible finds the command.
const SEARCH_PATHS: [&str; 5] = ["/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin"];
const BOOT_TIME_COMMAND: &str = "cat /proc/sys/kernel/random/boot_id";

/// What a task that restarts the host must do.
pub(crate) enum RebootStep {
    /// Restart the host. Without a controller, this is not possible.
    Begin(Option<ControllerLink>, Box<Checkpoint>),
    /// Verify that the host was restarted.
    Verify(Option<ControllerLink>, Interrupted),
}

pub fn reboot(call: &mut ModuleCall) -> ModuleResult {
    if call.ground.node.is_check_mode() {
        return Ok(TaskOutcome::change("").with_result(json!({"elapsed": 0, "rebooted": true})));
    }
    let post_reboot_delay = seconds(call, "post_reboot_delay", 0)?;
    let reboot_timeout = seconds(call, "reboot_timeout", 600)?;
    let connect_timeout = call.text(&["connect_timeout"]).map(|_| seconds(call, "connect_timeout", 0)).transpose()?;
    let link_missing = || "a host can be restarted only during `remoor play`".to_owned();
    match call.ground.reboot.take() {
        Some(RebootStep::Verify(link, interrupted)) => {
            verify(call, &link.ok_or_else(link_missing)?, &interrupted, reboot_timeout)
        }
        Some(RebootStep::Begin(link, mut checkpoint)) => {
            let link = link.ok_or_else(link_missing)?;
            checkpoint.boot_time = boot_time(call)?;
            let command = reboot_command(call)?;
            let request = RebootRequest {
                task: call.task.id,
                checkpoint: serde_json::to_string(&checkpoint).map_err(|e| format!("the checkpoint: {e}"))?,
                post_reboot_delay,
                reboot_timeout,
                connect_timeout,
            };
            begin(call, &link, request, &command)
        }
        None => Err(link_missing()),
    }
}

/// An option in whole seconds. A negative number counts as 0, as in Ansible.
fn seconds(call: &ModuleCall, name: &str, default: u64) -> Result<u64, String> {
    let Some(text) = call.text(&[name]) else { return Ok(default) };
    let value: f64 = text.trim().parse().map_err(|_| format!("`{name}` is not a number: {text}"))?;
    Ok(value.max(0.0) as u64)
}

/// Sends the checkpoint and restarts the host. Fails if the host cannot be restarted.
fn begin(call: &mut ModuleCall, link: &ControllerLink, request: RebootRequest, command: &str) -> ModuleResult {
    let not_restarted = |msg: String| {
        let failed = TaskOutcome { failed: true, ..TaskOutcome::default() };
        Ok(failed.with_result(json!({"elapsed": 0, "rebooted": false, "msg": msg})))
    };
    if let Err(why) = request_reboot(link, request) {
        return not_restarted(why);
    }
    let done = match run_shell(call, command) {
        Ok(done) => done,
        Err(why) => {
            withdraw_reboot(link)?;
            return not_restarted(why);
        }
    };
    // The shutdown may end this process and the command. Then the controller finds out whether the
    // host was restarted.
    if !done.success() && !done.cancelled && done.rc.is_none_or(|rc| rc > 0) {
        withdraw_reboot(link)?;
        let (stdout, stderr) = (done.stdout.trim(), done.stderr.trim());
        return not_restarted(format!("the reboot command failed: {stdout} {stderr}").trim().to_owned());
    }
    call.ground.rebooting = Some("the host has not shut down yet".to_owned());
    Ok(TaskOutcome::change(""))
}

/// Verifies that the host was restarted and is ready. If it is not, the run ends, and the
/// controller tries again later.
fn verify(call: &mut ModuleCall, link: &ControllerLink, interrupted: &Interrupted, limit: u64) -> ModuleResult {
    let elapsed = interrupted.elapsed;
    let Err((what, why)) = require_ready(call, &interrupted.boot_time) else {
        withdraw_reboot(link)?;
        return Ok(TaskOutcome::change("").with_result(json!({"elapsed": elapsed, "rebooted": true})));
    };
    if !interrupted.expired {
        call.ground.rebooting = Some(why);
        return Ok(TaskOutcome::default());
    }
    withdraw_reboot(link)?;
    let msg = format!("timed out after {limit} s while waiting for {what}: {why}");
    let failed = TaskOutcome { failed: true, ..TaskOutcome::default() };
    Ok(failed.with_result(json!({"elapsed": elapsed, "rebooted": true, "msg": msg})))
}

/// Fails with the condition that does not hold, and the reason.
fn require_ready(call: &ModuleCall, before: &str) -> Result<(), (&'static str, String)> {
    let boot = boot_time(call).map_err(|why| ("the reboot", why))?;
    if boot.is_empty() || boot == before {
        return Err(("the reboot", "the boot time has not changed".to_owned()));
    }
    let test = call.text(&["test_command"]).unwrap_or_else(|| "whoami".to_owned());
    let done = run_shell(call, &test).map_err(|why| ("the test command", why))?;
    match done.success() {
        true => Ok(()),
        false => Err(("the test command", format!("`{test}` failed: {} {}", done.stderr.trim(), done.stdout.trim()))),
    }
}

/// The boot time of the host, as a command prints it.
fn boot_time(call: &ModuleCall) -> Result<String, String> {
    let command = call.text(&["boot_time_command"]).filter(|text| !text.is_empty());
    let done = run_shell(call, &command.unwrap_or_else(|| BOOT_TIME_COMMAND.to_owned()))?;
    match done.success() {
        true => Ok(done.stdout.trim().to_owned()),
        false => Err(format!("the boot time of the host is not known: {}", done.stderr.trim())),
    }
}

/// The command that restarts the host, with the path of its program.
fn reboot_command(call: &ModuleCall) -> Result<String, String> {
    let own = call.text(&["reboot_command"]).filter(|text| !text.is_empty());
    let (program, arguments) = match &own {
        Some(command) => command.split_once(' ').unwrap_or((command, "")),
        None => ("shutdown", ""),
    };
    let arguments = match own {
        Some(_) => arguments.to_owned(),
        None => {
            let minutes = seconds(call, "pre_reboot_delay", 0)? / 60;
            let message = call.text(&["msg"]).unwrap_or_else(|| "Reboot initiated by remoor".to_owned());
            // The message is one word of the shell, whatever it contains.
            format!("-r +{minutes} '{}'", message.replace('\'', "'\\''"))
        }
    };
    if program.starts_with('/') {
        return Ok(format!("{program} {arguments}"));
    }
    let given = call.list(&["search_paths"]);
    let paths = if given.is_empty() { SEARCH_PATHS.map(str::to_owned).to_vec() } else { given };
    let is_program = |path: &std::path::PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = paths.iter().map(|dir| Path::new(dir).join(program)).find(is_program);
    let found = found.ok_or_else(|| format!("there is no program `{program}` in {}", paths.join(", ")))?;
    Ok(format!("{} {arguments}", found.display()))
}

/// Runs a command in a shell.
fn run_shell(call: &ModuleCall, command: &str) -> Result<Finished, String> {
    let argv = ["/bin/sh", "-c", command].map(str::to_owned).to_vec();
    call.run_spec_quietly(CommandSpec { argv, umask: Some(UMASK), ..CommandSpec::default() })
}
