//! Executable inventories: runs `PROGRAM --list` (and `--host NAME` if the list lacks `_meta`) with
//! limits of time and output, and parses the JSON. The program belongs to the operator and runs
//! with the rights of this process, in the program's own directory.

use super::draft::{Draft, SourcePosition};
use super::pattern;
use remoor_model::Fault;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Limits of one executable inventory, for all its runs together.
#[derive(Debug, Clone, Copy)]
pub struct ScriptLimits {
    pub time: Duration,
    pub output_bytes: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(60), output_bytes: 16 << 20 }
    }
}

/// Maximum bytes of a program's stderr in a message.
const COMPLAINT_BYTES: usize = 2000;

/// Runs the program and reads its groups into `draft`; also records faults there.
pub fn read(file: &str, program: &Path, bounds: ScriptLimits, draft: &mut Draft) {
    let at = SourcePosition::new(file, 0, 0);
    let deadline = Instant::now() + bounds.time;
    let run = |arguments: &[&str]| -> Result<Value, Fault> {
        let output = run(program, arguments, deadline, bounds).map_err(|why| at.fault(why))?;
        let command = format!("`{} {}`", file, arguments.join(" "));
        if output.iter().all(u8::is_ascii_whitespace) && arguments[0] == "--host" {
            return Ok(Value::Object(Map::new()));
        }
        serde_json::from_slice(&output).map_err(|error| {
            let place = format!("{command} does not print JSON: {error}");
            at.fault(place).hint(
                "an executable inventory answers `--list` with JSON on standard output and writes messages to standard error",
            )
        })
    };
    match run(&["--list"]) {
        Ok(list) => match groups(&list, &at, draft) {
            Ok(has_meta) => host_vars(list, has_meta, &run, &at, draft),
            Err(message) => draft.faults.push(at.fault(message)),
        },
        Err(fault) => draft.faults.push(fault),
    }
}

/// Reads the groups from the output of `--list`. Returns true if the output contains the variables
/// of hosts.
fn groups(list: &Value, at: &SourcePosition, draft: &mut Draft) -> Result<bool, String> {
    let mut has_meta = false;
    let list = list.as_object().ok_or("`--list` does not print a JSON object")?;
    let origin = format!("{}: --list", at.file);
    for (name, group) in list {
        if name == "_meta" {
            if group.get("hostvars").is_some_and(|vars| !vars.is_object()) {
                return Err("`_meta.hostvars` is not an object".into());
            }
            has_meta = group.get("hostvars").is_some();
            continue;
        }
        draft.group(name, at);
        let (hosts, children, vars) = match group {
            Value::Array(hosts) => (hosts.clone(), Vec::new(), None),
            // An object without any of these keys is a host. `name` is the name of the host, and
            // the fields of the object are its variables.
            Value::Object(vars) if !["hosts", "children", "vars"].iter().any(|key| vars.contains_key(*key)) => {
                (vec![Value::from(name.as_str())], Vec::new(), Some(vars))
            }
            Value::Object(group) => {
                let names = |key: &str| match group.get(key) {
                    None | Some(Value::Null) => Ok(Vec::new()),
                    Some(Value::Array(names)) => Ok(names.clone()),
                    Some(_) => Err(format!("`{key}` of the group `{name}` is not a list")),
                };
                let vars = match group.get("vars") {
                    None | Some(Value::Null) => None,
                    Some(Value::Object(vars)) => Some(vars),
                    Some(_) => return Err(format!("`vars` of the group `{name}` is not an object")),
                };
                (names("hosts")?, names("children")?, vars)
            }
            _ => return Err(format!("the group `{name}` is neither list nor object")),
        };
        let text = |value: &Value| {
            value.as_str().map(str::to_owned).ok_or(format!("the group `{name}` has a name that is not text: {value}"))
        };
        for host in &hosts {
            let host = text(host)?;
            match pattern::check_name(&host) {
                Ok(()) => draft.add_host(name, &host, at),
                Err(why) => draft.faults.push(at.fault(why)),
            }
        }
        for child in &children {
            draft.add_child(name, &text(child)?, at);
        }
        for (key, value) in vars.into_iter().flatten() {
            draft.set_group(name, key, value.clone(), &origin, at);
        }
    }
    Ok(has_meta)
}

fn host_vars(
    mut list: Value,
    has_meta: bool,
    run: &dyn Fn(&[&str]) -> Result<Value, Fault>,
    at: &SourcePosition,
    draft: &mut Draft,
) {
    let mine: Vec<String> = mentioned_hosts(&list).into_iter().filter(|host| draft.hosts.contains_key(host)).collect();
    let mut meta = list["_meta"]["hostvars"].take();
    for host in mine {
        let (vars, origin) = if has_meta {
            (meta.get_mut(&host).map(Value::take).unwrap_or_default(), format!("{}: host {host}", at.file))
        } else {
            match run(&["--host", &host]) {
                Ok(vars) => (vars, format!("{}: --host {host}", at.file)),
                Err(fault) => {
                    draft.faults.push(fault);
                    // The variables of the remaining hosts are not requested, because these
                    // requests would probably fail in the same way.
                    return;
                }
            }
        };
        match vars {
            Value::Null => {}
            Value::Object(vars) => {
                for (name, value) in vars {
                    draft.set_host(&host, &name, value, &origin);
                }
            }
            _ => draft.faults.push(at.fault(format!("the variables of the host `{host}` are not an object"))),
        }
    }
}

/// All hosts in the output of `--list`, without duplicates.
fn mentioned_hosts(list: &Value) -> BTreeSet<String> {
    let groups = list.as_object().into_iter().flatten().filter(|(name, _)| *name != "_meta");
    let mut out = BTreeSet::new();
    for (name, group) in groups {
        let hosts = group.as_array().or_else(|| group.get("hosts").and_then(Value::as_array));
        out.extend(hosts.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        if group
            .as_object()
            .is_some_and(|group| !["hosts", "children", "vars"].iter().any(|key| group.contains_key(*key)))
        {
            out.insert(name.clone());
        }
    }
    out
}

/// Runs the program once and returns its standard output. The whole process group is killed at the
/// deadline, after too much output, and at the end.
fn run(program: &Path, arguments: &[&str], deadline: Instant, bounds: ScriptLimits) -> Result<Vec<u8>, String> {
    // The path is made absolute, because the program runs in its own directory.
    let program = &std::path::absolute(program).map_err(|error| format!("could not be run: {error}"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    if let Some(directory) = program.parent() {
        command.current_dir(directory);
    }
    let command_text = arguments.join(" ");
    let mut child = KillOnDrop(command.spawn().map_err(|error| format!("could not be run: {error}"))?);
    let stdout = read_pipe(child.0.stdout.take(), bounds.output_bytes);
    let stderr = read_pipe(child.0.stderr.take(), COMPLAINT_BYTES);
    let late = || format!("`{command_text}` did not end within {:?}", bounds.time);
    let output = match stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(output) => output,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(late()),
    };
    if output.len() > bounds.output_bytes {
        return Err(format!("`{command_text}` printed more than {} MiB", bounds.output_bytes >> 20));
    }
    let status = child.wait(deadline).ok_or_else(late)?;
    if !status.success() {
        let left = deadline.saturating_duration_since(Instant::now()).min(Duration::from_secs(1));
        let mut complaint = stderr.recv_timeout(left).unwrap_or_default();
        complaint.truncate(COMPLAINT_BYTES);
        let complaint = String::from_utf8_lossy(&complaint).trim().replace('\n', "; ");
        let separator = if complaint.is_empty() { "" } else { ": " };
        return Err(format!("`{command_text}` ended with {status}{separator}{complaint}"));
    }
    Ok(output)
}

/// A child whose process group is killed when this value is dropped.
struct KillOnDrop(Child);

impl KillOnDrop {
    fn wait(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            // The program has closed its output, so it will exit soon.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// Reads a pipe to its end in another thread. Sends at most `most` + 1 bytes; the rest is read and
/// dropped.
fn read_pipe(pipe: Option<impl Read + Send + 'static>, most: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let Some(mut pipe) = pipe else { return };
        let _ = pipe.by_ref().take(most as u64 + 1).read_to_end(&mut bytes);
        let full = bytes.len() > most;
        let sent = sender.send(bytes);
        if full && sent.is_ok() {
            // The receiver now decides whether to kill the program. Until then the program must not
            // block on a full pipe.
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::{Draft, ScriptLimits, read};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    fn faults(body: &str, bounds: ScriptLimits) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inv");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut draft = Draft::default();
        read("inv", &path, bounds, &mut draft);
        draft.faults.iter().map(|fault| fault.to_string()).collect()
    }

    #[test]
    fn programs_that_hang_print_too_much_or_fail_are_faults() {
        let short = ScriptLimits { time: Duration::from_millis(300), ..ScriptLimits::default() };
        let started = std::time::Instant::now();
        // A child that keeps the pipe open must not block the reader.
        assert_eq!(faults("sleep 600 & sleep 600", short), ["inv: `--list` did not end within 300ms"]);
        assert_eq!(faults("exec >&- 2>&-; sleep 600", short), ["inv: `--list` did not end within 300ms"]);
        assert!(started.elapsed() < Duration::from_secs(60));
        let small = ScriptLimits { output_bytes: 1 << 20, ..ScriptLimits::default() };
        assert_eq!(faults("yes", small), ["inv: `--list` printed more than 1 MiB"]);
        let whole = ScriptLimits::default();
        assert_eq!(faults("echo no luck >&2; exit 3", whole), ["inv: `--list` ended with exit status: 3: no luck"]);
        assert!(
            faults("echo hello", whole)[0]
                .starts_with("inv: `inv --list` does not print JSON: expected value at line 1")
        );
        assert_eq!(faults("echo []", whole), ["inv: `--list` does not print a JSON object"]);
        assert_eq!(
            faults(r#"echo '{"web": {"hosts": "w1"}}'"#, whole),
            ["inv: `hosts` of the group `web` is not a list"]
        );
        assert_eq!(
            faults(r#"echo '{"web": ["w1"], "_meta": {"hostvars": []}}'"#, whole),
            ["inv: `_meta.hostvars` is not an object"]
        );
    }
}
