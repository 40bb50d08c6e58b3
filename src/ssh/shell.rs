//! A login for single commands: to put remoor on a machine that is no node yet. Attempts never use it.

use super::error::{SshError, of_openssh};
use openssh::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const CLOSE_MAX: Duration = Duration::from_secs(3);

/// Close it, so that the login ends at once; dropped, it ends after the idle time.
pub struct Shell {
    ssh: Arc<openssh::Session>,
    sudo: bool,
}

/// What a command printed, and whether it ended with 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Shell {
    pub(super) fn new(ssh: Arc<openssh::Session>, sudo: bool) -> Self {
        Self { ssh, sudo }
    }

    /// Runs `script` by sh as root, with `args` as `$1` and on, and `stdin` as its input. Secrets belong into `stdin`. On
    /// a timeout the command may still run.
    pub async fn run(&self, script: &str, args: &[&str], stdin: &[u8], within: Duration) -> Result<Said, SshError> {
        let mut command = self.ssh.clone().arc_command(if self.sudo { "sudo" } else { "sh" });
        if self.sudo {
            command.args(["-n", "--", "sh"]);
        }
        command.args(["-c", script, "sh"]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let talk = async {
            let mut child = command.spawn().await.map_err(|e| of_openssh(&e))?;
            let input = child.stdin().take();
            let feed = async {
                if let Some(mut input) = input {
                    // A command that ends without reading has its say in its output.
                    let _ = input.write_all(stdin).await;
                    let _ = input.shutdown().await;
                }
            };
            let (output, ()) = tokio::join!(child.wait_with_output(), feed);
            let output = output.map_err(|e| of_openssh(&e))?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
            Ok(Said { ok: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
        };
        tokio::time::timeout(within, talk).await.map_err(|_| SshError::Timeout(within))?
    }

    pub async fn close(self) {
        if let Ok(ssh) = Arc::try_unwrap(self.ssh) {
            let _ = tokio::time::timeout(CLOSE_MAX, ssh.close()).await; // it ends by itself, only later
        }
    }
}
