//! Runs an executor on this machine as a child process: the same orders over pipes, without a
//! login. A crash or kill of that process ends the session but not the caller.

use super::channel::{Channel, HeartbeatTiming};
use super::error::SshError;
use super::remote::{HELLO_MAX, check_protocol, sudo_refusal};
use super::session::{ExecutorLocation, Session, StderrTail};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use tokio::process::Command;
use tokio::time::timeout;

/// Starts `program` (program and arguments) in `working_dir` and waits for its greeting. The child
/// leads its own process group, so that Ctrl-C reaches only the caller. SUDO_UID is removed from
/// its environment.
pub async fn start_local(program: &[impl AsRef<OsStr>], working_dir: &Path) -> Result<Session, SshError> {
    let Some((name, arguments)) = program.split_first() else {
        return Err(SshError::Local("no executor to start".to_owned()));
    };
    let mut command = Command::new(name);
    command
        .args(arguments)
        .current_dir(working_dir)
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
    let mut stderr = StderrTail::collect(stderr);
    match timeout(HELLO_MAX, Channel::greet(input)).await {
        Ok(Ok((hello, input))) => {
            check_protocol(&hello)?;
            Ok(Session::new(
                hello,
                Channel::start(input, output, HeartbeatTiming::default()),
                ExecutorLocation::Local(child),
                stderr,
            ))
        }
        Ok(Err(SshError::Lost(why))) => {
            drop(output);
            let _it_ended_already = timeout(HELLO_MAX, child.wait()).await;
            stderr.wait_for_end().await;
            Err(sudo_refusal(&stderr.text()).unwrap_or_else(|| SshError::Local(stderr.explain(&why))))
        }
        Ok(Err(e)) => Err(e),
        Err(_) => Err(SshError::Timeout("waiting for the executor's greeting")),
    }
}
