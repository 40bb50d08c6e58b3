//! A login for a person (`remoor play`): who it is, and so where the executor is, only the host can say. One script finds
//! out and starts it, so that this costs no round trip of its own.

use super::remote::{Command, UPLOAD};
use super::target::Target;
use crate::model::Sha256;
use std::sync::Arc;

/// Sets `$d`, where executors and state are, and `$s`, what becomes root. `$1` is not empty if root is needed; `$2` is root's
/// directory, `$3` the login's own, empty for the usual one.
const WHO: &str = r#"set -u
if [ "$(id -u)" = 0 ]; then d=$2 s=
elif [ -n "$1" ]; then d=$2 s="sudo -n --"
else d=${3:-${XDG_STATE_HOME:-${HOME:-/nonexistent}/.local/state}/remoor} s=
fi
"#;

/// `$4` is the build's hash.
const START: &str = r#"exec $s "$d/bin/remoor-$4" exec - --state-dir "$d"
"#;

/// `$5` is the script that takes the build.
const TAKE: &str = r#"exec $s sh -c "$5" sh "$d/bin" "$4"
"#;

/// Starts the executor of this build; 127 where it is not there.
pub(super) fn start(login: &Arc<openssh::Session>, target: &Target, root_dir: &str, sha256: &Sha256) -> Command {
    script(login, target, root_dir, sha256, START)
}

/// Takes a build on its input and puts it there.
pub(super) fn upload(login: &Arc<openssh::Session>, target: &Target, root_dir: &str, sha256: &Sha256) -> Command {
    let mut command = script(login, target, root_dir, sha256, TAKE);
    command.arg(UPLOAD);
    command
}

fn script(login: &Arc<openssh::Session>, target: &Target, root_dir: &str, sha256: &Sha256, then: &str) -> Command {
    let named = target.state_dir.as_ref().map(|dir| dir.display().to_string());
    let root = if target.sudo { "root" } else { "" };
    let mut command = Arc::clone(login).arc_command("sh");
    command.args(["-c", &format!("{WHO}{then}"), "sh", root, named.as_deref().unwrap_or(root_dir)]);
    command.args([named.as_deref().unwrap_or_default(), &sha256.to_string()]);
    command
}
