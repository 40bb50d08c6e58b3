//! Runs an executor on this machine as a child process: the same orders over pipes, without a
//! login. A crash or kill of that process ends the session but not the caller.

use super::channel::{Channel, Pace};
use super::error::SshError;
use super::remote::{HELLO_MAX, refused_by_sudo, speaks_ours};
use super::session::{Place, Session, Stderr};
use std::ffi::OsStr;
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;

/// Starts `program` (program and arguments) and waits for its greeting. The child leads its own
/// process group, so that Ctrl-C reaches only the caller. SUDO_UID is removed from its environment.
pub async fn here(program: &[impl AsRef<OsStr>]) -> Result<Session, SshError> {
    let Some((name, arguments)) = program.split_first() else {
        return Err(SshError::Local("no executor to start".to_owned()));
    };
    let mut command = Command::new(name);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .env_remove("SUDO_UID");
    let mut child = command.spawn().map_err(|e| SshError::Local(format!("{}: {e}", name.as_ref().display())))?;
    let (Some(output), Some(input), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(SshError::Local("no pipes to the executor".to_owned()));
    };
    let mut stderr = Stderr::collect(stderr);
    match timeout(HELLO_MAX, Channel::greet(input)).await {
        Ok(Ok((hello, input))) => {
            speaks_ours(&hello)?;
            Ok(Session::new(hello, Channel::start(input, output, Pace::default()), Place::Here(child), stderr))
        }
        Ok(Err(SshError::Lost(why))) => {
            drop(output);
            let _it_ended_already = timeout(HELLO_MAX, child.wait()).await;
            stderr.wait_for_end().await;
            Err(refused_by_sudo(&stderr.text()).unwrap_or_else(|| SshError::Local(stderr.explain(&why))))
        }
        Ok(Err(e)) => Err(e),
        Err(_) => Err(SshError::Timeout("waiting for the executor's greeting")),
    }
}
