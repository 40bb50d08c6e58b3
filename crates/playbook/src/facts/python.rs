//! Facts about the Python of the node. They are gathered only for a plan that reads them, because a
//! node needs no Python otherwise. A node without Python does not have these facts.

use crate::modules::find_python;
use crate::os::process::{self, CommandSpec, Finished};
use crate::run::event::CancelToken;
use serde_json::{Map, Value, json};
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
