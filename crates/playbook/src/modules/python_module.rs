//! Modules that are not native: their own Python runs them, as Ansible does. The arguments go as
//! JSON to standard input, and the JSON on standard output becomes the result of the task.

use super::diff::unified_diff;
use super::{ModuleCall, ModuleResult, TaskOutcome, UMASK, spawn_failure};
use crate::filters;
use crate::os::acting_user::acting_user;
use crate::os::process::{self, CommandSpec, Finished};
use crate::plan::PythonModule;
use crate::template::expr;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The program that starts the module in its archive.
const RUNNER: &str = include_str!("python_runner.py");
/// Keys of a result that `TaskOutcome` has as fields, and `invocation`, which Ansible does not
/// register. It repeats the arguments, which may be secret.
const INTERNAL: [&str; 5] = ["ansible_facts", "changed", "failed", "invocation", "skipped"];
/// Maximum number of warnings of one task that are shown.
const WARNINGS_MAX: usize = 20;
/// File systems for which modules change files in place, as in Ansible's default configuration.
const SPECIAL_FILE_SYSTEMS: [&str; 6] = ["fuse", "nfs", "vboxsf", "ramfs", "9p", "vfat"];

/// Runs the Python module `name` of the plan.
pub fn python_module(call: &mut ModuleCall, name: &str) -> ModuleResult {
    let module = call.plan.modules.get(name).ok_or_else(|| format!("the plan does not contain the module {name}"))?;
    let user = acting_user();
    let interpreter = call
        .ground
        .python
        .interpreter_for(module, call.scope, call.cancel)
        .map_err(|why| format!("the module {name} needs Python: {why}"))?;
    let notes = call.ground.node.notes();
    let archive = call.ground.python.archive(call.plan, module, user.as_deref(), notes)?;
    let scratch = match user {
        None => call.ground.python.private_dir(notes)?.to_owned(),
        Some(_) => std::env::temp_dir(),
    };
    let params = params(call, (name, module), &scratch);
    // Another user cannot write to the private directory, so nothing is unpacked there.
    let shared = if user.is_none() { scratch.join("modules").display().to_string() } else { String::new() };
    let words = [&shared, &module.entry, &module.profile, &module.min_python, &module.core].map(String::as_str);
    let archive = archive.display().to_string();
    let argv = ["-c", RUNNER, &archive].into_iter().chain(words).map(str::to_owned);
    let job = CommandSpec {
        argv: interpreter.into_iter().chain(argv).collect(),
        env: call.env.clone(),
        stdin: Some(params.to_string().into_bytes()),
        timeout: call.time_left(),
        umask: Some(UMASK),
        ..CommandSpec::default()
    };
    let check = call.ground.node.is_check_mode();
    if !check {
        call.ground.node.begin_change()?;
    }
    let done = process::run(&job, call.cancel, &mut |_| {}).map_err(|e| spawn_failure(&e));
    call.ground.node.forget_accounts();
    let mut out = match outcome(&done?) {
        Ok(out) => out,
        Err(why) => return Err(format!("the module {name} {why}")),
    };
    show_warnings(call, &out);
    out.diff = diff(call, &mut out);
    if check { Ok(predict(call, out)) } else { Ok(out) }
}

/// The arguments as the module reads them, with the internal ones that its ansible-core knows.
fn params(call: &ModuleCall, (name, module): (&str, &PythonModule), scratch: &Path) -> Value {
    let mut args = call.args.clone();
    let name = name.split('@').next().unwrap_or_default();
    for internal in &module.internals {
        let value = match internal.as_str() {
            "check_mode" => json!(call.ground.node.is_check_mode()),
            "no_log" => json!(call.task.no_log),
            "diff" => json!(shows_diff(call)),
            "debug" | "keep_remote_files" | "ignore_unknown_opts" => json!(false),
            "module_name" => json!(name),
            "remote_tmp" => json!(scratch),
            "selinux_special_fs" => json!(SPECIAL_FILE_SYSTEMS),
            "shell_executable" => json!("/bin/sh"),
            "syslog_facility" => json!("LOG_USER"),
            "tracebacks_for" => json!([]),
            "verbosity" => json!(0),
            "version" => json!(module.core),
            "socket" | "tmpdir" | "target_log_info" => Value::Null,
            _ => continue,
        };
        args.insert(format!("_ansible_{internal}"), value);
    }
    json!({"ANSIBLE_MODULE_ARGS": args})
}

fn shows_diff(call: &ModuleCall) -> bool {
    match &call.task.modes.diff {
        Some(Value::Bool(shows)) => *shows,
        Some(Value::String(text)) => expr::native(call.scope, text).is_ok_and(|value| filters::truthy(&value)),
        _ => true,
    }
}

/// The outcome that the output of a module means. The error says how the module failed to give one.
fn outcome(done: &Finished) -> Result<TaskOutcome, String> {
    if done.timed_out {
        return Err("was stopped: it ran longer than the `timeout` of the task".into());
    }
    if done.cancelled {
        return Err("was cancelled".into());
    }
    let Some(mut result) = find_result(&done.stdout) else { return Err(no_result(done)) };
    simplify_messages(&mut result);
    let is = |key: &str| result.get(key).is_some_and(is_true);
    let rc = result.get("rc").and_then(Value::as_i64);
    let failed = is("failed") || !result.contains_key("failed") && rc.is_some_and(|rc| rc != 0);
    let mut out = TaskOutcome {
        changed: is("changed"),
        failed,
        skipped: is("skipped"),
        keeps_msg_out: true,
        ..TaskOutcome::default()
    };
    out.rc = rc.and_then(|rc| i32::try_from(rc).ok());
    if let Some(Value::Object(facts)) = result.remove("ansible_facts") {
        out.facts = facts;
    }
    match result.get("msg") {
        Some(Value::String(text)) => out.msg.clone_from(text),
        Some(Value::Null) | None => {}
        Some(other) => out.msg = other.to_string(),
    }
    if failed && out.msg.is_empty() {
        let last = result
            .get("exception")
            .and_then(Value::as_str)
            .and_then(|text| text.lines().rfind(|line| !line.trim().is_empty()));
        out.msg = last.unwrap_or("the module failed without a message").chars().take(500).collect();
    }
    // A list named `results` is what a loop registers, so another value gets another name.
    if result.get("results").is_some_and(|results| !results.is_array())
        && let Some(results) = result.remove("results")
    {
        result.insert("ansible_module_results".into(), results);
    }
    for stream in ["stdout", "stderr"] {
        let lines = format!("{stream}_lines");
        if let Some(text) = result.get(stream).and_then(Value::as_str).filter(|_| !result.contains_key(&lines)) {
            let split: Vec<&str> = text.lines().collect();
            let split = json!(split);
            result.insert(lines, split);
        }
    }
    result.retain(|key, _| !key.starts_with("_ansible_") && !INTERNAL.contains(&key.as_str()));
    out.extra_keys = result;
    Ok(out)
}

/// Replaces the messages of ansible-core 2.19, which are objects, by what Ansible registers.
fn simplify_messages(result: &mut Map<String, Value>) {
    fn simple(value: &mut Value) {
        let event = &value["event"];
        let text = |key: &str| event[key].as_str().map(str::to_owned);
        *value = match value["__ansible_type"].as_str() {
            Some("WarningSummary") => json!(text("msg").unwrap_or_default()),
            Some("ErrorSummary") => json!(text("formatted_traceback").or_else(|| text("msg")).unwrap_or_default()),
            Some("DeprecationSummary") => {
                json!({"msg": text("msg"), "version": value["version"], "date": value["date"]})
            }
            _ => return,
        };
    }
    for key in ["warnings", "deprecations", "exception"] {
        match result.get_mut(key) {
            Some(Value::Array(items)) => items.iter_mut().for_each(simple),
            Some(value @ Value::Object(_)) => simple(value),
            _ => {}
        }
    }
}

/// The JSON object that a module printed. Libraries may print other lines before and after it.
fn find_result(stdout: &str) -> Option<Map<String, Value>> {
    let mut at = 0;
    for line in stdout.split_inclusive('\n') {
        if line.trim_start().starts_with('{') {
            let mut values = serde_json::Deserializer::from_str(&stdout[at..]).into_iter::<Map<String, Value>>();
            if let Some(Ok(map)) = values.next() {
                return Some(map);
            }
        }
        at += line.len();
    }
    None
}

fn no_result(done: &Finished) -> String {
    if done.partial {
        return "printed more than 4 MiB or bytes that are not UTF-8, and no complete result".into();
    }
    let how = match done.rc {
        Some(rc) if rc < 0 => format!("was killed by signal {}", -rc),
        Some(rc) => format!("exited with code {rc}"),
        None => "was killed".to_owned(),
    };
    let last = [&done.stderr, &done.stdout].into_iter().find_map(|text| text.lines().rfind(|l| !l.trim().is_empty()));
    let last: String = last.unwrap_or("no output").chars().take(500).collect();
    format!("{how} without a result: {last}")
}

/// Whether Python would take the value as true, except that the texts for false are false.
fn is_true(value: &Value) -> bool {
    crate::vars::var_map::boolean(value).unwrap_or(!value.is_null())
}

fn show_warnings(call: &mut ModuleCall, out: &TaskOutcome) {
    let warnings = out.extra_keys.get("warnings").and_then(Value::as_array);
    for warning in warnings.into_iter().flatten().take(WARNINGS_MAX) {
        if let Some(text) = warning.as_str() {
            (call.emit)(&format!("warning: {text}"));
        }
    }
}

/// The diff that the module returned, as one text. The outcome then names the path of the file.
/// None if the content may be that of a secret file.
fn diff(call: &ModuleCall, out: &mut TaskOutcome) -> Option<String> {
    let given = out.extra_keys.get("diff")?;
    let parts = given.as_array().map_or(std::slice::from_ref(given), Vec::as_slice);
    let header = parts.iter().find_map(|part| part["before_header"].as_str().or(part["after_header"].as_str()));
    let named = [out.extra_keys.get("path"), out.extra_keys.get("dest"), call.args.get("path"), call.args.get("dest")];
    let path = named.into_iter().flatten().find_map(Value::as_str).or(header).unwrap_or_default();
    let path = path.strip_suffix(" (content)").unwrap_or(path).to_owned();
    let secrets = &call.ground.secrets;
    let is_path = path.starts_with('/');
    if !secrets.is_empty() && (!is_path || secrets.is_secret(Path::new(&path))) {
        return None;
    }
    let text: Vec<String> = parts.iter().filter_map(|part| diff_text(part, &path)).collect();
    if text.is_empty() {
        return None;
    }
    out.diff_path = Some(path).filter(|_| is_path);
    Some(text.concat())
}

fn diff_text(part: &Value, path: &str) -> Option<String> {
    if let Some(prepared) = part["prepared"].as_str() {
        return Some(prepared.to_owned());
    }
    let side = |name: &str| {
        Some(match part.get(name)? {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => serde_json::to_string_pretty(other).unwrap_or_default() + "\n",
        })
    };
    let (before, after) = (side("before")?, side("after")?);
    if before == after {
        return None;
    }
    let name = |key: &str| part[key].as_str().filter(|name| !name.is_empty()).unwrap_or(path).to_owned();
    let from = PathBuf::from(name("before_header"));
    Some(unified_diff(Some(before.as_bytes()), after.as_bytes(), &from, &name("after_header")))
}

/// Check mode: the module saw the node without the predicted changes of earlier tasks, and its own
/// changes are not predicted for later tasks.
fn predict(call: &mut ModuleCall, out: TaskOutcome) -> TaskOutcome {
    if out.failed && call.ground.node.has_predicted_changes() && !is_about_options(&out.msg) {
        let why = format!("{}; tasks that check mode did not run may change that", out.msg);
        return TaskOutcome::indeterminate(why);
    }
    if let Some(would) = call.ground.node.predicted_state_mut()
        && (out.changed || out.skipped)
    {
        would.mark_unknown();
    }
    out
}

/// Whether a module failed because of its options alone, so the state of the node does not matter.
fn is_about_options(message: &str) -> bool {
    let begins = ["missing required arguments:", "Unsupported parameters for ", "value of "];
    begins.iter().any(|begin| message.starts_with(begin)) && !message.contains('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_printed(stdout: &str) -> Result<TaskOutcome, String> {
        outcome(&Finished { rc: Some(0), stdout: stdout.to_owned(), ..Finished::default() })
    }

    #[test]
    fn a_result_is_found_among_other_lines() {
        let out = parse_printed("noise\n{broken\n{\"changed\": true, \"a\": 1, \"_ansible_x\": 2}\nmore\n").unwrap();
        assert!(out.changed && !out.failed);
        assert_eq!(Value::Object(out.extra_keys), json!({"a": 1}));
        let out = parse_printed("{\"rc\": 2, \"stdout\": \"a\\nb\", \"results\": {}, \"ansible_facts\": {\"x\": 1}}")
            .unwrap();
        assert!(out.failed && out.rc == Some(2) && out.facts["x"] == 1);
        assert_eq!(out.extra_keys["stdout_lines"], json!(["a", "b"]));
        assert!(out.extra_keys.contains_key("ansible_module_results"));
    }

    #[test]
    fn output_without_a_result_is_a_failure_that_says_how() {
        assert!(parse_printed("hello\n").unwrap_err().contains("exited with code 0 without a result: hello"));
        assert!(parse_printed("[1]").unwrap_err().contains("without a result"));
        let cut = Finished { rc: Some(0), stdout: "{\"a\": \"".to_owned(), partial: true, ..Finished::default() };
        assert!(outcome(&cut).unwrap_err().contains("4 MiB"));
        let killed = Finished { rc: Some(-9), ..Finished::default() };
        assert!(outcome(&killed).unwrap_err().contains("signal 9"));
    }
}
