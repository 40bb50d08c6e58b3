//! Custom facts of the node: the files `/etc/ansible/facts.d/*.fact`. Each file is JSON, INI, or a
//! program that prints one of the two.
//!
//! A program is run only if no user but root and the user of this process can have written it. Each
//! program has a timeout and an output limit.

use super::FactsRoot;
use crate::os::process::{self, CommandSpec};
use crate::run::event::CancelToken;
use serde_json::{Map, Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

const DIR: &str = "/etc/ansible/facts.d";
/// Maximum number of fact files that are read.
const FILES_MAX: usize = 100;
/// Timeout of one program in `facts.d`.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of all programs in `facts.d` together.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60);

/// `ansible_local`: the content of each file under its name. The value of an invalid file is the
/// error text, as in Ansible.
pub fn gather_local(root: &FactsRoot, cancel: &CancelToken) -> Value {
    let (mut out, until) = (Map::new(), Instant::now() + TOTAL_TIMEOUT);
    for name in root.names(DIR).into_iter().filter(|n| n.ends_with(".fact")).take(FILES_MAX) {
        let short = name.trim_end_matches(".fact").to_owned();
        let path = root.full_path(&format!("{DIR}/{name}"));
        let text = match is_program(&path) {
            Ok(true) => run(&path, until, cancel),
            Ok(false) => Ok(root.read(&format!("{DIR}/{name}"))),
            Err(message) => Err(message),
        };
        out.insert(short, text.and_then(|text| read(&text, &path)).unwrap_or_else(|message| json!(message)));
    }
    Value::Object(out)
}

/// Whether a file is a program. Fails if a user other than root and the user of this process can
/// write the file or its directory.
fn is_program(path: &Path) -> Result<bool, String> {
    let about = |e: std::io::Error| format!("Could not stat fact ({}): {e}", path.display());
    let stat = std::fs::metadata(path).map_err(about)?;
    if stat.permissions().mode() & 0o100 == 0 {
        return Ok(false);
    }
    let own = rustix::process::geteuid().as_raw();
    let dir = path.parent().map(std::fs::metadata).transpose().map_err(about)?;
    let sure = |m: &std::fs::Metadata| (m.uid() == 0 || m.uid() == own) && m.permissions().mode() & 0o022 == 0;
    match sure(&stat) && dir.as_ref().is_none_or(sure) {
        true => Ok(true),
        false => Err(format!("{} is not run: users other than root can write it", path.display())),
    }
}

fn run(path: &Path, until: Instant, cancel: &CancelToken) -> Result<String, String> {
    let patience = PROGRAM_TIMEOUT.min(until.saturating_duration_since(Instant::now()));
    let job = CommandSpec { argv: vec![path.display().to_string()], timeout: Some(patience), ..CommandSpec::default() };
    let failed = |why: String| format!("Failure executing fact script ({}), {why}", path.display());
    if cancel.is_stopped() || patience.is_zero() {
        let why =
            if cancel.is_stopped() { "the run was stopped" } else { "the timeout of all fact programs was reached" };
        return Err(failed(format!("it was not run: {why}")));
    }
    let done = process::run(&job, cancel, &mut |_| {}).map_err(|e| failed(e.to_string()))?;
    if done.timed_out {
        return Err(failed(format!("timed out after {} s", patience.as_secs())));
    }
    if done.rc != Some(0) {
        let rc = done.rc.map_or_else(|| "by a signal".to_owned(), |rc| rc.to_string());
        return Err(failed(format!("rc: {rc}, err: {}", done.stderr.chars().take(500).collect::<String>())));
    }
    Ok(done.stdout)
}

fn read(text: &str, path: &Path) -> Result<Value, String> {
    if let Ok(json) = serde_json::from_str(text) {
        return Ok(json);
    }
    ini(text).ok_or_else(|| format!("error loading facts as JSON or ini - please check content: {}", path.display()))
}

/// Parses INI sections of `name = value` lines; an indented line continues the previous value.
/// None: not valid INI.
fn ini(text: &str) -> Option<Value> {
    let mut out: Map<String, Value> = Map::new();
    let mut section: Option<String> = None;
    let mut last: Option<String> = None;
    for line in text.lines() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = bare.strip_prefix('[').and_then(|l| l.strip_suffix(']')).filter(|_| !line.starts_with(' '))
        {
            if out.insert(name.to_owned(), json!({})).is_some() {
                return None;
            }
            (section, last) = (Some(name.to_owned()), None);
            continue;
        }
        let map = out.get_mut(section.as_ref()?)?.as_object_mut()?;
        if line.starts_with([' ', '\t'])
            && let Some(Value::String(value)) = last.as_ref().and_then(|key| map.get_mut(key))
        {
            value.push('\n');
            value.push_str(bare);
            continue;
        }
        let at = bare.find(['=', ':'])?;
        let key = bare[..at].trim().to_lowercase();
        map.insert(key.clone(), json!(bare[at + 1..].trim()));
        last = Some(key);
    }
    Some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn local_facts_from_files_and_programs() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("etc/ansible/facts.d");
        fs::create_dir_all(&at).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        let put = |name: &str, text: &str, mode: u32| {
            fs::write(at.join(name), text).unwrap();
            fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        put("a.fact", r#"{"x": [1, 2]}"#, 0o644);
        put("b.fact", "# of us\n[general]\nRole = web\nlist: one\n  two\n\n[empty]\n", 0o644);
        put("c.fact", "#!/bin/sh\necho '{\"run\": true}'\n", 0o755);
        put("d.fact", "#!/bin/sh\necho bad >&2; exit 3\n", 0o755);
        put("e.fact", "no facts here", 0o644);
        put("f.fact", "#!/bin/sh\necho 1\n", 0o757);
        put("g.txt", "5", 0o644);
        let got = gather_local(&FactsRoot(dir.path().to_owned()), &CancelToken::new());
        assert_eq!(got["a"], json!({"x": [1, 2]}));
        assert_eq!(got["b"], json!({"general": {"role": "web", "list": "one\ntwo"}, "empty": {}}));
        assert_eq!(got["c"], json!({"run": true}));
        assert!(got["d"].as_str().unwrap().contains("rc: 3, err: bad"), "{}", got["d"]);
        assert!(got["e"].as_str().unwrap().contains("JSON or ini"), "{}", got["e"]);
        assert!(got["f"].as_str().unwrap().contains("is not run"), "{}", got["f"]);
        assert_eq!(got.as_object().unwrap().len(), 6);
        let stopped = CancelToken::new();
        stopped.stop();
        let got = gather_local(&FactsRoot(dir.path().to_owned()), &stopped);
        assert_eq!(got["a"], json!({"x": [1, 2]}));
        assert!(got["c"].as_str().unwrap().contains("not run: the run was stopped"), "{}", got["c"]);
        let late = run(&at.join("c.fact"), Instant::now(), &CancelToken::new());
        assert!(late.unwrap_err().contains("the timeout of all fact programs was reached"));
    }
}
