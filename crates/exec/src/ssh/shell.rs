//! A login for single commands, to install remoor on a machine that is not a node yet. Attempts
//! never use it.

use super::error::{self, SshError};
use super::remote::{RemoteCommand, as_root};
use super::session::{StderrTail, end_login};
use super::target::LoginTarget;
use openssh::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Maximum output of a command in bytes; after that its pipe is closed.
const OUTPUT_MAX: u64 = 256 * 1024;

/// A login for commands. [`Shell::close`] ends the login immediately.
pub struct Shell {
    login: Arc<openssh::Session>,
    target: LoginTarget,
}

/// Output of a command, and whether the command exited with 0. `stderr` has only the last part of
/// the text, on one line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellOutput {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Shell {
    pub(super) fn new(login: Arc<openssh::Session>, target: LoginTarget) -> Self {
        Self { login, target }
    }

    /// Runs `script` by sh as root, with `args` as `$1` and so on, and `stdin` as its input. Pass
    /// secrets by `stdin`, because arguments are visible in the process list. After a timeout the
    /// command may still run.
    pub async fn run(
        &self,
        script: &str,
        args: &[&str],
        stdin: &[u8],
        within: Duration,
    ) -> Result<ShellOutput, SshError> {
        self.run_command(as_root(&self.login, &self.target, "sh"), script, args, stdin, within).await
    }

    /// Like [`Self::run`], but as the login user, without sudo and without input.
    pub(super) async fn run_as_user(
        &self,
        script: &str,
        args: &[&str],
        within: Duration,
    ) -> Result<ShellOutput, SshError> {
        self.run_command(Arc::clone(&self.login).arc_command("sh"), script, args, b"", within).await
    }

    async fn run_command(
        &self,
        mut command: RemoteCommand,
        script: &str,
        args: &[&str],
        stdin: &[u8],
        within: Duration,
    ) -> Result<ShellOutput, SshError> {
        command.args(["-c", script, "sh"]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let talk = async {
            let mut child = command.spawn().await.map_err(|e| SshError::Lost(error::chain(&e)))?;
            let (input, output) = (child.stdin().take(), child.stdout().take());
            let mut stderr = child.stderr().take().map(StderrTail::collect).unwrap_or_default();
            let feed = async {
                if let Some(mut input) = input {
                    // If a command ends without reading its input, its output shows the reason.
                    let _see_below = input.write_all(stdin).await;
                }
            };
            let listen = async {
                let mut bytes = Vec::new();
                if let Some(output) = output {
                    let _see_below = output.take(OUTPUT_MAX).read_to_end(&mut bytes).await;
                }
                String::from_utf8_lossy(&bytes).trim().to_owned()
            };
            let ((), stdout) = tokio::join!(feed, listen);
            let status = child.wait().await;
            stderr.wait_for_end().await;
            match status {
                Ok(status) => Ok(ShellOutput { ok: status.success(), stdout, stderr: stderr.text() }),
                // Code 127: sudo or a program of the script is missing.
                Err(e @ openssh::Error::Remote(_)) => {
                    Ok(ShellOutput { ok: false, stdout, stderr: stderr.explain(&error::chain(&e)) })
                }
                Err(e) => Err(SshError::Lost(stderr.explain(&error::chain(&e)))),
            }
        };
        timeout(within, talk).await.map_err(|_| SshError::Timeout("waiting for the end of a command"))?
    }

    /// Ends the login; takes at most 5 s.
    pub async fn close(self) {
        end_login(self.login).await;
    }
}
