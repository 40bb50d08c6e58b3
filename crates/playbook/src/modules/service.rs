//! The modules `service` and `systemd`. They query the state of the unit once, and then change only
//! properties that differ. They use D-Bus. `systemctl` is the fallback if D-Bus does not answer or
//! does not offer the operation.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success};
use crate::os::acting_user::env_var;
use remoor_host::systemd::{BusDeadline, BusError, SystemdManager, SystemdSockets, UnitFileChange, UnitJob, unit_name};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of lines of systemd's journal that are reported for a unit that failed.
const LAST_LINES: &str = "10";
/// Timeout of the query of systemd's journal.
const JOURNAL_MAX: Duration = Duration::from_secs(5);

/// A unit while the module brings it to the desired state.
struct UnitInProgress<'a> {
    name: String,
    manager: Option<SystemdManager<'a>>,
    /// The properties of the unit from the last query of systemd.
    properties: BTreeMap<String, String>,
    /// The active state that the unit is expected to have after the operations so far.
    active_state: String,
    masked: bool,
    enabled: bool,
    /// The operations that the task has performed so far, in the words of its message.
    operations: Vec<String>,
}

impl UnitInProgress<'_> {
    fn property(&self, key: &str) -> &str {
        self.properties.get(key).map(String::as_str).unwrap_or_default()
    }

    fn exists(&self) -> bool {
        !matches!(self.property("LoadState"), "not-found" | "") || self.active_state == "active"
    }

    fn is_up(&self) -> bool {
        matches!(self.active_state.as_str(), "active" | "activating" | "reloading")
    }

    fn perform(
        &mut self,
        call: &mut ModuleCall,
        operation: ServiceOperation,
        set: &[(&str, &str)],
    ) -> Result<(), String> {
        perform(call, &mut self.manager, operation, &self.name, set)
    }
}

pub fn service(call: &mut ModuleCall) -> ModuleResult {
    if let Some(other) = call.text(&["use"]).filter(|u| !matches!(u.as_str(), "auto" | "systemd")) {
        return Err(format!("the service manager `{other}` is not supported, only systemd"));
    }
    let mut manager = manager_for_task(call)?;
    if call.flag("daemon_reload", call.flag("daemon-reload", false)) {
        perform(call, &mut manager, ServiceOperation::Reload, "", &[])?;
    }
    if call.flag("daemon_reexec", call.flag("daemon-reexec", false)) {
        // A re-exec of systemd closes all connections, so a new one is opened.
        systemctl(call, &["daemon-reexec"])?;
        manager = manager_for_task(call)?;
    }
    let Some(name) = call.text(&["name", "service", "unit"]) else {
        return Ok(TaskOutcome::ok(""));
    };
    if name.starts_with('-') || name.is_empty() || name.contains(['*', '?', '[', '/']) {
        return Err(format!("`{name}` is not a valid unit name"));
    }
    let mut unit = query_unit(call, manager, name)?;
    let state = call.text(&["state"]);
    if !unit.exists() {
        let gone = state.as_deref().is_none_or(|s| s == "stopped") && call.given_flag("enabled") != Some(true);
        if call.is_cleanup() && gone {
            return Ok(TaskOutcome::ok("the unit does not exist, as wanted"));
        }
        // A unit that is not installed can be masked, so that it never starts.
        if call.given_flag("masked") != Some(true) || state.is_some() || call.given_flag("enabled").is_some() {
            // Playbooks compare the words of Ansible's message.
            let message = format!("Could not find the requested service {}: host", unit.name);
            return Err(call.ground.node.note_missing(message));
        }
    }
    apply_masked(call, &mut unit)?;
    apply_enabled(call, &mut unit)?;
    apply_state(call, &mut unit, state.as_deref())?;
    let is_up = unit.is_up();
    let mut out =
        TaskOutcome { changed: !unit.operations.is_empty(), msg: unit.operations.join(", "), ..TaskOutcome::default() };
    out.extra_keys.insert("name".into(), json!(unit.name));
    if state.is_some() {
        out.extra_keys.insert("state".into(), json!(if is_up { "started" } else { "stopped" }));
    }
    if call.given_flag("enabled").is_some() {
        out.extra_keys.insert("enabled".into(), json!(unit.enabled));
    }
    out.extra_keys.insert("status".into(), json!(unit.properties));
    Ok(out)
}

/// Queries the unit before the operations of the task.
fn query_unit<'a>(
    call: &ModuleCall,
    mut manager: Option<SystemdManager<'a>>,
    name: String,
) -> Result<UnitInProgress<'a>, String> {
    let properties = show_unit(call, &mut manager, &name)?;
    let active_state = properties.get("ActiveState").cloned().unwrap_or_default();
    let operations = Vec::new();
    let mut unit =
        UnitInProgress { name, manager, properties, active_state, masked: false, enabled: false, operations };
    unit.masked = unit.property("LoadState") == "masked" || unit.property("UnitFileState").starts_with("masked");
    Ok(unit)
}

/// Masks or unmasks the unit.
fn apply_masked(call: &mut ModuleCall, unit: &mut UnitInProgress) -> Result<(), String> {
    let Some(want) = call.given_flag("masked").filter(|want| *want != unit.masked) else { return Ok(()) };
    let set = [
        ("UnitFileState", if want { "masked" } else { "disabled" }),
        ("LoadState", if want { "masked" } else { "loaded" }),
    ];
    let change = if want { UnitFileChange::Mask } else { UnitFileChange::Unmask };
    unit.perform(call, ServiceOperation::Files(change), &set)?;
    unit.operations.push(if want { "masked" } else { "unmasked" }.into());
    unit.masked = want;
    // The properties are read again, because the mask hid those of the unit file.
    unit.properties = show_unit(call, &mut unit.manager, &unit.name)?;
    Ok(())
}

/// Enables or disables the unit, as the task wants. A masked unit, or one that cannot be disabled,
/// is not disabled.
fn apply_enabled(call: &mut ModuleCall, unit: &mut UnitInProgress) -> Result<(), String> {
    let file = unit.property("UnitFileState");
    // A unit with one of these file states counts as enabled and cannot be disabled.
    let fixed = matches!(file, "static" | "generated" | "transient");
    unit.enabled = fixed || matches!(file, "enabled" | "enabled-runtime");
    let Some(want) = call.given_flag("enabled").filter(|want| *want != unit.enabled) else { return Ok(()) };
    if !want && (fixed || unit.masked) {
        return Ok(());
    }
    let force = call.flag("force", false);
    let change = if want { UnitFileChange::Enable { force } } else { UnitFileChange::Disable };
    if scope_flag(call)?.is_none() && has_init_script(Path::new("/etc/init.d"), &unit.name) {
        // For an init script, also one beside a unit file, `systemctl` calls systemd-sysv-install,
        // which creates and removes the links of the script in /etc/rc?.d. D-Bus does not do so.
        unit.manager = None;
    }
    let word = if want { "enabled" } else { "disabled" };
    unit.perform(call, ServiceOperation::Files(change), &[("UnitFileState", word)])?;
    unit.operations.push(word.into());
    unit.enabled = want;
    Ok(())
}

/// Starts, stops, restarts or reloads the unit.
fn apply_state(call: &mut ModuleCall, unit: &mut UnitInProgress, state: Option<&str>) -> Result<(), String> {
    let runs = unit.is_up();
    let job = match state {
        None => None,
        Some("started") => (!runs).then_some(UnitJob::Start),
        Some("stopped") => (runs || unit.active_state == "deactivating").then_some(UnitJob::Stop),
        Some("restarted") => Some(UnitJob::Restart),
        Some("reloaded") => Some(if runs { UnitJob::Reload } else { UnitJob::Start }),
        Some(other) => return Err(format!("`{other}` is not a valid service state")),
    };
    let Some(job) = job else { return Ok(()) };
    if unit.masked && job != UnitJob::Stop {
        return Err(format!("`{}` is masked; set `masked: false` to allow starting it", unit.name));
    }
    let (active, sub) = if job == UnitJob::Stop { ("inactive", "dead") } else { ("active", "running") };
    unit.perform(call, ServiceOperation::Job(job), &[("ActiveState", active), ("SubState", sub)])?;
    unit.active_state = active.into();
    unit.operations.push(match job {
        UnitJob::Stop => "stopped".into(),
        UnitJob::Reload => "reloaded".into(),
        job => format!("{}ed", verb(ServiceOperation::Job(job))),
    });
    Ok(())
}

/// An operation that systemd performs on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServiceOperation {
    Reload,
    Files(UnitFileChange),
    Job(UnitJob),
}

/// The `systemctl` subcommand of an operation.
fn verb(order: ServiceOperation) -> &'static str {
    match order {
        ServiceOperation::Reload => "daemon-reload",
        ServiceOperation::Files(UnitFileChange::Enable { .. }) => "enable",
        ServiceOperation::Files(UnitFileChange::Disable) => "disable",
        ServiceOperation::Files(UnitFileChange::Mask) => "mask",
        ServiceOperation::Files(UnitFileChange::Unmask) => "unmask",
        ServiceOperation::Job(UnitJob::Start) => "start",
        ServiceOperation::Job(UnitJob::Stop) => "stop",
        ServiceOperation::Job(UnitJob::Restart) => "restart",
        ServiceOperation::Job(UnitJob::Reload) => "reload",
    }
}

/// Connects to the systemd of the task's `scope`. None: `systemctl` must be used.
fn manager_for_task<'a>(call: &ModuleCall<'a, '_>) -> Result<Option<SystemdManager<'a>>, String> {
    let sockets = match scope_flag(call)? {
        None => call.ground.options.systemd.clone(),
        Some("--user") => {
            let given = call.env.iter().find(|(name, _)| name == "XDG_RUNTIME_DIR").map(|(_, dir)| PathBuf::from(dir));
            match given.or_else(|| env_var("XDG_RUNTIME_DIR").map(PathBuf::from)) {
                Some(dir) => SystemdSockets::in_runtime_dir(&dir),
                None => return Ok(None),
            }
        }
        Some(_) => return Ok(None),
    };
    connect(call, &sockets)
}

/// Connects to systemd at these sockets, limited by the task's deadline. None: systemd does not
/// answer.
pub(super) fn connect<'a>(
    call: &ModuleCall<'a, '_>,
    sockets: &SystemdSockets,
) -> Result<Option<SystemdManager<'a>>, String> {
    let cancel = call.cancel;
    let patience = BusDeadline {
        until: call.until,
        answer: SystemdManager::ANSWER_MAX,
        stop: Box::new(move || cancel.is_cancelled()),
    };
    match SystemdManager::open(sockets, patience) {
        Ok(manager) => Ok(Some(manager)),
        Err(BusError::Absent) => Ok(None),
        Err(fault) => Err(format!("cannot connect to systemd: {}", describe_fault(&fault))),
    }
}

/// The error with its source, as one line.
pub(super) fn describe_fault(fault: &BusError) -> String {
    match std::error::Error::source(fault) {
        Some(source) => format!("{fault}: {source}"),
        None => fault.to_string(),
    }
}

/// Whether the service has a System V init script in the directory `scripts`.
fn has_init_script(scripts: &Path, name: &str) -> bool {
    scripts.join(name.strip_suffix(".service").unwrap_or(name)).is_file()
}

/// The properties of a unit; in check mode with the predicted changes.
fn show_unit(
    call: &ModuleCall,
    way: &mut Option<SystemdManager>,
    name: &str,
) -> Result<BTreeMap<String, String>, String> {
    if let Some(manager) = way {
        let shown = manager.show(&unit_name(name));
        let shown =
            shown.map_err(|fault| format!("cannot query unit `{name}` from systemd: {}", describe_fault(&fault)))?;
        return Ok(call.ground.node.predicted_unit(name, shown));
    }
    let mut argv = vec!["systemctl", "show", "--no-pager"];
    argv.extend(scope_flag(call)?);
    argv.extend(["--", name]);
    let done = call.run_quietly(&argv).map_err(|e| format!("{e}; this node has no systemd"))?;
    require_success("systemctl show", &done)?;
    let told = done.stdout.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    Ok(call.ground.node.predicted_unit(name, told.collect()))
}

/// Performs the operation. In check mode records the properties `set` in the predicted state
/// instead.
fn perform(
    call: &mut ModuleCall,
    way: &mut Option<SystemdManager>,
    order: ServiceOperation,
    name: &str,
    set: &[(&str, &str)],
) -> Result<(), String> {
    if let Some(would) = call.ground.node.predicted_state_mut() {
        set.iter().for_each(|(key, value)| would.set_unit(name, key, value));
        return Ok(());
    }
    let Some(manager) = way else {
        let force =
            matches!(order, ServiceOperation::Files(UnitFileChange::Enable { force: true })).then_some("--force");
        let unit = if name.is_empty() { [None, None] } else { [Some("--"), Some(name)] };
        let argv: Vec<&str> = [Some(verb(order)), force].into_iter().chain(unit).flatten().collect();
        return systemctl(call, &argv);
    };
    call.ground.node.begin_change()?;
    let unit = unit_name(name);
    let done = match order {
        ServiceOperation::Reload => manager.reload().map(|()| None),
        ServiceOperation::Files(what) => manager.set_unit_files(what, &unit).map(|()| None),
        ServiceOperation::Job(job) => manager.run(job, &unit, !call.flag("no_block", false)),
    };
    let why = match done {
        Ok(None) => return Ok(()),
        Ok(Some(result)) if matches!(result.as_str(), "done" | "skipped") => return Ok(()),
        Ok(Some(result)) => job_failure(call, manager, &unit, &result),
        Err(fault) => describe_fault(&fault),
    };
    Err(match order {
        ServiceOperation::Reload => format!("{}: {why}", verb(order)),
        _ => format!("{} {unit}: {why}", verb(order)),
    })
}

/// The reason why a systemd job failed: the job's result, the state of the unit, and the unit's
/// last lines in systemd's journal.
fn job_failure(call: &ModuleCall, manager: &mut SystemdManager, unit: &str, result: &str) -> String {
    let mut why = match result {
        "dependency" => "a required unit failed".to_owned(),
        "timeout" => "the job timed out".to_owned(),
        "canceled" => "the job was cancelled".to_owned(),
        other => format!("the job ended as `{other}`"),
    };
    // If systemd stops answering now, only the result of the systemd job is reported.
    let unit_is = manager.show(unit).unwrap_or_default();
    let of = |key: &str| unit_is.get(key).map(String::as_str).unwrap_or_default();
    if !matches!(of("Result"), "" | "success") {
        why.push_str(&format!(", result {}", of("Result")));
    }
    match (of("ExecMainCode"), of("ExecMainStatus")) {
        ("1", status) => why.push_str(&format!(", main process exited with code {status}")),
        ("2" | "3", signal) => why.push_str(&format!(", main process was killed by signal {signal}")),
        _ => {}
    }
    let tool = super::Tool { deadline: Some(Instant::now() + JOURNAL_MAX), ..call.tool() };
    let mut argv = vec!["journalctl"];
    argv.extend(scope_flag(call).ok().flatten());
    argv.extend(["--no-pager", "-q", "-o", "cat", "-n", LAST_LINES, "-u", unit]);
    if let Ok(done) = tool.run(&argv)
        && done.success()
        && !done.stdout.trim().is_empty()
    {
        why.push_str(&format!("; its last lines:\n{}", done.stdout.trim_end()));
    }
    why.chars().take(4000).collect()
}

/// Runs `systemctl` in the task's scope.
fn systemctl(call: &mut ModuleCall, args: &[&str]) -> Result<(), String> {
    let mut argv = vec!["systemctl"];
    argv.extend(scope_flag(call)?);
    if call.flag("no_block", false) {
        argv.push("--no-block");
    }
    argv.extend(args);
    let done = call.run_or_predict(&argv, |_| {})?;
    require_success(&argv.join(" "), &done)
}

/// The `systemctl` flag for the task's `scope`. None: the system manager.
fn scope_flag(call: &ModuleCall) -> Result<Option<&'static str>, String> {
    match call.text(&["scope"]).as_deref() {
        None | Some("system") => Ok(None),
        Some("user") => Ok(Some("--user")),
        Some("global") => Ok(Some("--global")),
        Some(other) => Err(format!("`{other}` is not a valid scope")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_init_script_of_a_service_has_its_name() {
        let scripts = tempfile::tempdir().unwrap();
        std::fs::write(scripts.path().join("cron"), "").unwrap();
        for (name, has) in [("cron", true), ("cron.service", true), ("cron.timer", false), ("ssh", false)] {
            assert_eq!(has_init_script(scripts.path(), name), has, "{name}");
        }
    }
}
