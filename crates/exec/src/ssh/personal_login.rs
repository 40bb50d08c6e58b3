//! A login for a person (`remoor play`). Only the host knows the login user and the directory of
//! the executor, which depends on that user. One script determines both and starts the executor, so
//! that no extra round trip is needed.

use super::remote::{RemoteCommand, UPLOAD};
use super::target::LoginTarget;
use remoor_model::Sha256;
use std::sync::Arc;

/// Sets `$d`, the directory of executors and state, and `$s`, the prefix that makes a command run
/// as root. `$1` is not empty if root is needed. `$2` is the directory for root. `$3` is the
/// directory for another login user; if it is empty, the default is used.
const SELECT_DIR: &str = r#"set -u
if [ "$(id -u)" = 0 ]; then d=$2 s=
elif [ -n "$1" ]; then d=$2 s="sudo -n --"
else d=${3:-${XDG_STATE_HOME:-${HOME:-/nonexistent}/.local/state}/remoor} s=
fi
"#;

/// Starts the executor. `$4` is the hash of the build, which is part of the file name.
const START: &str = r#"exec $s "$d/bin/remoor-$4" exec - --state-dir "$d"
"#;

/// Runs `$5`, the script that receives the build.
const TAKE: &str = r#"exec $s sh -c "$5" sh "$d/bin" "$4"
"#;

/// The command that starts the executor of the build with the hash `sha256`. It exits with 127 if
/// the host lacks this build.
pub(super) fn start(
    login: &Arc<openssh::Session>,
    target: &LoginTarget,
    root_dir: &str,
    sha256: &Sha256,
) -> RemoteCommand {
    run_script(login, target, root_dir, sha256, START)
}

/// The command that installs a build of remoor on the target. It reads the build from stdin.
pub(super) fn upload(
    login: &Arc<openssh::Session>,
    target: &LoginTarget,
    root_dir: &str,
    sha256: &Sha256,
) -> RemoteCommand {
    let mut command = run_script(login, target, root_dir, sha256, TAKE);
    command.arg(UPLOAD);
    command
}

fn run_script(
    login: &Arc<openssh::Session>,
    target: &LoginTarget,
    root_dir: &str,
    sha256: &Sha256,
    then: &str,
) -> RemoteCommand {
    let named = target.state_dir.as_ref().map(|dir| dir.display().to_string());
    let root = if target.sudo { "root" } else { "" };
    let mut command = Arc::clone(login).arc_command("sh");
    command.args(["-c", &format!("{SELECT_DIR}{then}"), "sh", root, named.as_deref().unwrap_or(root_dir)]);
    command.args([named.as_deref().unwrap_or_default(), &sha256.to_string()]);
    command
}
