//! An executor on this machine, in a process of its own: the same orders over pipes, without a login. What happens to that
//! process, a defect or a kill, happens to the session and not to the caller.

use super::channel::{Channel, Pace};
use super::error::SshError;
use super::remote::{HELLO_MAX, refused_by_sudo, speaks_ours};
use super::session::{Place, Session, Stderr};
use std::ffi::OsStr;
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;

/// Starts `program` (itself and its arguments) and waits for its greeting. It leads a process group of its own, so that a
/// Ctrl-C of the terminal is for the caller alone; and it does not hear of a sudo that the caller was started by.
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
