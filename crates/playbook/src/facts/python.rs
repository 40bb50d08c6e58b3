//! Facts about the Python of the node. They are gathered only for a plan that reads them, because a
//! node needs no Python otherwise. A node without Python does not have these facts.

use crate::modules::{chooses_python, find_python};
use crate::os::process::{self, CommandSpec, Finished};
use crate::run::event::CancelToken;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// Time limit for asking Python about itself.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Prints the version, the path and the kind of the interpreter as JSON.
const PROGRAM: &str = "\
import json, platform, sys
try:
    import ssl
    tls = hasattr(ssl, 'SSLContext')
except ImportError:
    tls = False
kind = getattr(sys, 'implementation', None)
print(json.dumps([list(sys.version_info), sys.executable, tls, kind and kind.name, platform.python_version()]))
";

/// The facts `python` and `python_version` of the Python that `named` selects; `named` is a value
/// of `ansible_python_interpreter`.
pub fn gather_python(named: &str, cancel: &CancelToken) -> Option<Map<String, Value>> {
    let argv = find_python(named, cancel).ok()?.into_iter().chain(["-c", PROGRAM].map(str::to_owned));
    let job = CommandSpec { argv: argv.collect(), timeout: Some(TIMEOUT), ..CommandSpec::default() };
    let done = process::run(&job, cancel, &mut |_| {}).ok().filter(Finished::success)?;
    let (info, executable, tls, kind, version): (Vec<Value>, String, bool, Option<String>, String) =
        serde_json::from_str(done.stdout.trim()).ok()?;
    let executable = match (chooses_python(named), &info[..]) {
        (false, [major, minor, ..]) => versioned_path(&executable, &format!("python{major}.{minor}")),
        _ => executable,
    };
    let parts = ["major", "minor", "micro", "releaselevel", "serial"].map(str::to_owned);
    let python = json!({
        "version": parts.into_iter().zip(info.iter().cloned()).collect::<Map<_, _>>(),
        "version_info": info,
        "executable": executable,
        "has_sslcontext": tls,
        "type": kind,
    });
    Some([("python".to_owned(), python), ("python_version".to_owned(), json!(version))].into_iter().collect())
}

/// The path of the same program under its name with the version. Ansible's search tries these
/// names first, so its facts have this path.
fn versioned_path(executable: &str, name: &str) -> String {
    let versioned = Path::new(executable).with_file_name(name);
    match (versioned.canonicalize(), Path::new(executable).canonicalize()) {
        (Ok(one), Ok(other)) if one == other => versioned.display().to_string(),
        _ => executable.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_found_python_has_the_path_with_its_version_as_in_ansible() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(at("python3.11"), "").unwrap();
        std::os::unix::fs::symlink("python3.11", at("python3")).unwrap();
        std::fs::write(at("python3.12"), "").unwrap();
        assert_eq!(versioned_path(&at("python3"), "python3.11"), at("python3.11"));
        assert_eq!(versioned_path(&at("python3"), "python3.12"), at("python3"), "another program");
        assert_eq!(versioned_path(&at("python3"), "python3.9"), at("python3"), "no such file");
    }
}
