//! Logging in: strict host keys, own known_hosts and control directory, the executor put where it is missing.

use super::binary;
use super::error::{SshError, of_openssh};
use super::session::Session;
use super::shell::Shell;
use crate::model::NodeName;
use openssh::{ControlPersist, KnownHosts, SessionBuilder, Stdio};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Longest path of a control directory that OpenSSH can make sockets in.
const CONTROL_DIR_MAX: usize = 61;
const UPLOAD_MAX: Duration = Duration::from_secs(120);
const HELLO_MAX: Duration = Duration::from_secs(15);
/// A master that was left behind by a killed manager ends by itself.
const IDLE_SECONDS: usize = 60;

/// Whom to log in to. `host_keys`: lines `type base64`; no other key is accepted.
#[derive(Debug, Clone)]
pub struct Target {
    pub node: NodeName,
    pub host: String,
    pub port: u16,
    pub user: String,
    pub identity: Option<PathBuf>,
    pub sudo: bool,
    pub host_keys: Vec<String>,
    /// The operator's own ssh_config, included behind the strict settings.
    pub config: Option<PathBuf>,
    pub connect_timeout: Duration,
}

/// Opens sessions; one for a daemon.
#[derive(Debug, Clone)]
pub struct Remote {
    dir: PathBuf,
    state_dir: String,
}

impl Remote {
    /// `dir` (0700) holds known_hosts files, configurations and control sockets. What an earlier run left there is removed.
    pub fn new(dir: PathBuf) -> Result<Self, SshError> {
        let local = |e: std::io::Error| SshError::Local(format!("{}: {e}", dir.display()));
        let control = dir.join("c");
        if control.as_os_str().len() > CONTROL_DIR_MAX {
            let text =
                format!("{} is longer than {CONTROL_DIR_MAX} bytes, too long for SSH's sockets", control.display());
            return Err(SshError::Local(text));
        }
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(local)?;
        }
        std::fs::create_dir_all(&control).map_err(local)?;
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).map_err(local)?;
        Ok(Self { dir, state_dir: crate::exec::STATE_DIR.to_owned() })
    }

    /// Keeps the executor's binary and state elsewhere on the nodes, as hosts without root need.
    pub fn with_state_dir(self, state_dir: &str) -> Self {
        Self { state_dir: state_dir.to_owned(), ..self }
    }

    /// One login; the executor has said hello. Nothing was ordered yet.
    pub async fn open(&self, target: &Target) -> Result<Session, SshError> {
        let ssh = self.connect(target).await?;
        let (bytes, hash) = binary::own().map_err(SshError::Local)?;
        let path = format!("{}/bin/{}", self.state_dir, binary::name(hash));
        match self.start(&ssh, target, &path).await {
            Err(SshError::Lost(_)) => {}
            other => return other,
        }
        upload(&ssh, target, &self.state_dir, &path, &hash.to_string(), bytes).await?;
        self.start(&ssh, target, &path).await
    }

    /// One login for single commands, on a machine that has no executor yet. Nothing was run.
    pub async fn shell(&self, target: &Target) -> Result<Shell, SshError> {
        Ok(Shell::new(self.connect(target).await?, target.sudo))
    }

    async fn connect(&self, target: &Target) -> Result<Arc<openssh::Session>, SshError> {
        check_words(target)?;
        let config = self.write_files(target)?;
        let mut builder = SessionBuilder::default();
        builder
            .user(target.user.clone())
            .port(target.port)
            .known_hosts_check(KnownHosts::Strict)
            .user_known_hosts_file(self.file(target, "known_hosts"))
            .control_directory(self.dir.join("c"))
            .control_persist(ControlPersist::IdleFor(IDLE_SECONDS.try_into().unwrap_or(std::num::NonZeroUsize::MIN)))
            .connect_timeout(target.connect_timeout)
            .server_alive_interval(Duration::from_secs(3))
            .config_file(config);
        if let Some(identity) = &target.identity {
            builder.keyfile(identity);
        }
        let connect = builder.connect_mux(&target.host);
        let patience = target.connect_timeout * 2 + Duration::from_secs(2);
        match tokio::time::timeout(patience, connect).await {
            Ok(Ok(ssh)) => Ok(Arc::new(ssh)),
            Ok(Err(error)) => Err(of_openssh(&error)),
            Err(_) => Err(SshError::Timeout(patience)),
        }
    }

    async fn start(&self, ssh: &Arc<openssh::Session>, target: &Target, path: &str) -> Result<Session, SshError> {
        let mut command = match target.sudo {
            true => {
                let mut command = ssh.clone().arc_command("sudo");
                command.args(["-n", "--", path]);
                command
            }
            false => ssh.clone().arc_command(path),
        };
        command.args(["exec", "-", "--state-dir", &self.state_dir]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().await.map_err(|e| of_openssh(&e))?;
        Session::greet(child, ssh.clone(), HELLO_MAX).await
    }

    fn file(&self, target: &Target, kind: &str) -> PathBuf {
        self.dir.join(format!("{}.{kind}", target.node))
    }

    /// known_hosts and configuration of this target, both 0600.
    fn write_files(&self, target: &Target) -> Result<PathBuf, SshError> {
        let host = if target.port == 22 { target.host.clone() } else { format!("[{}]:{}", target.host, target.port) };
        let known: String = target.host_keys.iter().map(|key| format!("{host} {key}\n")).collect();
        let mut config = "GlobalKnownHostsFile /dev/null\nStrictHostKeyChecking yes\nVerifyHostKeyDNS no\n\
                          UpdateHostKeys no\nBatchMode yes\nServerAliveCountMax 3\nLogLevel INFO\n"
            .to_owned();
        if target.identity.is_some() {
            config.push_str("IdentitiesOnly yes\n");
        }
        if let Some(own) = &target.config {
            config.push_str(&format!("Include {}\n", own.display()));
        }
        let path = self.file(target, "config");
        for (path, text) in [(self.file(target, "known_hosts"), known), (path.clone(), config)] {
            let written = crate::disk::atomic_write(&path, text.as_bytes(), 0o600);
            written.map_err(|e| SshError::Local(super::error::chain(&e)))?;
        }
        Ok(path)
    }
}

/// Words that ssh could take for options, or that no host or user is called, are never handed to it.
fn check_words(target: &Target) -> Result<(), SshError> {
    let good = |text: &str, more: &str| {
        text.len() <= 253
            && text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric() || c == ':' || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    for (what, text, more) in
        [("host", &target.host, ".-:_"), ("user", &target.user, ".-_"), ("node", &target.node.0, ".-_")]
    {
        if !good(text, more) {
            return Err(SshError::Local(format!("{text:?} is no {what} that may be dialled")));
        }
    }
    Ok(())
}

/// Writes the binary over the same connection, checks its hash there, and keeps the last two.
async fn upload(
    ssh: &Arc<openssh::Session>,
    target: &Target,
    state_dir: &str,
    path: &str,
    hash: &str,
    bytes: &[u8],
) -> Result<(), SshError> {
    let failed = |text: String| SshError::Upload(text);
    let uname = ssh.clone().arc_command("uname").arg("-sm").output().await.map_err(|e| of_openssh(&e))?;
    let machine = String::from_utf8_lossy(&uname.stdout).trim().to_owned();
    if machine != format!("Linux {}", std::env::consts::ARCH) {
        return Err(SshError::Unsupported(machine));
    }
    let script = "set -eu; umask 022; mkdir -p -m 0755 \"$1/bin\"; t=\"$2.$$\"; trap 'rm -f \"$t\"' EXIT; cat > \"$t\"; \
                  echo \"$3  $t\" | sha256sum -c --quiet -; chmod 0755 \"$t\"; mv \"$t\" \"$2\"; \
                  ls -t \"$1\"/bin/remoor-* | tail -n +3 | xargs -r rm -f --";
    let mut command = ssh.clone().arc_command(if target.sudo { "sudo" } else { "sh" });
    if target.sudo {
        command.args(["-n", "--", "sh"]);
    }
    command.args(["-c", script, "sh", state_dir, path, hash]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().await.map_err(|e| of_openssh(&e))?;
    let send = async {
        if let Some(mut stdin) = child.stdin().take() {
            stdin.write_all(bytes).await.map_err(|e| failed(e.to_string()))?;
            stdin.shutdown().await.map_err(|e| failed(e.to_string()))?;
        }
        let output = child.wait_with_output().await.map_err(|e| of_openssh(&e))?;
        if output.status.success() {
            Ok(())
        } else {
            Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
        }
    };
    tokio::time::timeout(UPLOAD_MAX, send).await.map_err(|_| SshError::Timeout(UPLOAD_MAX))?
}
