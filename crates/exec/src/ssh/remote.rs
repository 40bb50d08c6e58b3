//! Logs in and starts the executor. If the node lacks the manager's build of remoor, the build is
//! first uploaded over the same login. The file name of a build is its hash, so a running program
//! is never overwritten.

use super::channel::{Channel, HeartbeatTiming};
use super::error::{self, SshError};
use super::host_key;
use super::personal_login;
use super::session::{ExecutorLocation, Session, StderrTail, end_login, is_up};
use super::shell::Shell;
use super::target::{self, LoginTarget};
use crate::wire::{Hello, PROTO};
use openssh::{ControlPersist, KnownHosts, SessionBuilder, Stdio};
use remoor_model::Sha256;
use std::fs::{self, DirBuilder};
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::time::timeout;

/// Maximum length of the control directory's path in bytes. With a longer path the control socket
/// would not fit into a socket address.
const CONTROL_DIR_MAX: usize = 61;
/// Idle seconds after which the ssh master exits by itself, in case this process dies.
const IDLE_SECONDS: NonZeroUsize = NonZeroUsize::new(60).expect("not zero");
const SERVER_ALIVE: Duration = Duration::from_secs(10);
/// Maximum time from the start of the program to its greeting.
pub(super) const HELLO_MAX: Duration = Duration::from_secs(20);
const UNAME_MAX: Duration = Duration::from_secs(20);
const UPLOAD_MAX: Duration = Duration::from_secs(600);

/// A build of remoor: its program file for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The machine type, as `uname -m` prints it.
    pub arch: String,
    pub path: PathBuf,
    pub sha256: Sha256,
}

impl Build {
    /// Hashes the file in chunks, because daemons hash their own large program when they start.
    pub fn from_file(arch: &str, path: &Path) -> std::io::Result<Self> {
        use sha2::Digest;
        let mut file = fs::File::open(path)?;
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => hasher.update(&buffer[..n]),
            }
        }
        Ok(Self { arch: arch.to_owned(), path: path.to_owned(), sha256: Sha256(hasher.finalize().into()) })
    }

    /// The running program, even if its file was replaced after the start.
    pub fn of_this_program() -> std::io::Result<Self> {
        Self::from_file(std::env::consts::ARCH, Path::new("/proc/self/exe"))
    }
}

/// The program that is started on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launch {
    /// `STATE_DIR/bin/remoor-SHA256` of the first build. If that program is missing or damaged,
    /// the program of the build for the node's architecture, which is uploaded if necessary.
    Upload,
    /// The program at this path on the node, which is never uploaded. For example, a package
    /// installed it there. It must use the same protocol as this process.
    Installed(String),
    /// The program for a person instead of a manager. It is uploaded as with `Upload` if the login
    /// is root or becomes root, otherwise into a directory of the login user. Host keys come from
    /// the person's `known_hosts`. ssh's own configuration supplies the user (if empty) and the
    /// port (if 0).
    Personal,
}

/// The settings of this manager for its connections to nodes.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// Directory for control sockets and known_hosts files, made with mode 0700. The path has at
    /// most 61 bytes. No other process may use the directory.
    pub control_dir: PathBuf,
    /// Programs for the nodes. The first one is the running program, and is tried first.
    pub builds: Vec<Build>,
    pub launch: Launch,
    /// State directory on the node, unless the target names another; builds are in its `bin`.
    pub state_dir: String,
    /// Arguments with which the program is started on the node.
    pub arguments: Vec<String>,
}

/// Opens sessions to nodes. The whole daemon uses one value of this type.
#[derive(Debug, Clone)]
pub struct Remote {
    config: RemoteConfig,
}

impl Remote {
    /// Makes the control directory.
    pub fn new(config: RemoteConfig) -> Result<Self, SshError> {
        target::check_path(&config.control_dir)?;
        target::check_path(Path::new(&config.state_dir))?;
        let length = config.control_dir.as_os_str().len();
        if length > CONTROL_DIR_MAX {
            let dir = config.control_dir.display();
            return Err(SshError::Local(format!(
                "the path {dir} has {length} bytes, the maximum is {CONTROL_DIR_MAX}"
            )));
        }
        let local = |e: std::io::Error| SshError::Local(format!("{}: {e}", config.control_dir.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&config.control_dir).map_err(local)?;
        fs::set_permissions(&config.control_dir, fs::Permissions::from_mode(0o700)).map_err(local)?;
        Ok(Self { config })
    }

    /// Logs in once and starts the executor. Nothing is sent to a host whose key is not the
    /// recorded one.
    pub async fn open(&self, target: &LoginTarget) -> Result<Session, SshError> {
        let login = Arc::new(self.log_in(target).await?);
        match self.start(&login, target).await {
            Ok(session) => Ok(session),
            Err(e) => {
                end_login(login).await;
                Err(e)
            }
        }
    }

    /// Logs in for single commands on a machine that need not have an executor. Runs nothing yet.
    pub async fn shell(&self, target: &LoginTarget) -> Result<Shell, SshError> {
        Ok(Shell::new(Arc::new(self.log_in(target).await?), target.clone()))
    }

    /// The host keys that the node offers now, requested over the same route as a login. They are
    /// not trusted; see [`super::scan_host_keys`].
    pub async fn host_keys(&self, target: &LoginTarget, at_most: Duration) -> Result<Vec<String>, SshError> {
        if target.uses_another_route() {
            return host_key::scan_by_login(target, &self.config.control_dir, at_most).await;
        }
        host_key::scan_host_keys(&target.host, target.port, at_most).await
    }

    async fn log_in(&self, target: &LoginTarget) -> Result<openssh::Session, SshError> {
        let personal = self.config.launch == Launch::Personal;
        // The files are read only during the login and deleted at the end of this function.
        let (known_hosts, config) = if personal {
            target.check_personal()?;
            (None, self.write_temp_file(&target.personal_config()?)?)
        } else {
            target.check()?;
            (Some(self.write_temp_file(&target.known_hosts()?)?), self.write_temp_file(&target.config()?)?)
        };
        let mut builder = SessionBuilder::default();
        if let Some(known_hosts) = &known_hosts {
            builder.user_known_hosts_file(known_hosts.path());
        }
        builder
            .known_hosts_check(KnownHosts::Strict)
            .config_file(config.path())
            .control_directory(&self.config.control_dir)
            .control_persist(ControlPersist::IdleFor(IDLE_SECONDS))
            .connect_timeout(target.connect_timeout.max(Duration::from_secs(1)))
            .server_alive_interval(SERVER_ALIVE);
        if !target.user.is_empty() {
            builder.user(target.user.clone());
        }
        if target.port > 0 {
            builder.port(target.port);
        }
        if let Some(identity) = &target.identity {
            builder.keyfile(identity);
        }
        // ssh's own timeout covers connection and banner. Key exchange and login get the same time
        // again.
        let at_most = target.connect_timeout * 2 + Duration::from_secs(1);
        match timeout(at_most, builder.connect_mux(&target.host)).await {
            Ok(Ok(login)) => Ok(login),
            Ok(Err(e)) => Err(error::login_error(&e, &target.host_keys)),
            Err(_) => Err(SshError::Timeout("logging in")),
        }
    }

    fn write_temp_file(&self, text: &str) -> Result<NamedTempFile, SshError> {
        let local = |e: std::io::Error| SshError::Local(format!("{}: {e}", self.config.control_dir.display()));
        let mut file = NamedTempFile::new_in(&self.config.control_dir).map_err(local)?;
        file.write_all(text.as_bytes()).and_then(|()| file.flush()).map_err(local)?;
        Ok(file)
    }

    async fn start(&self, login: &Arc<openssh::Session>, target: &LoginTarget) -> Result<Session, SshError> {
        let build = match (&self.config.launch, self.config.builds.first()) {
            (Launch::Installed(path), _) => {
                let session =
                    self.run(self.executor_start(login, target, path)).await.map_err(StartFailure::into_error)?;
                return require_protocol(session);
            }
            (Launch::Upload | Launch::Personal, None) => {
                return Err(SshError::Local("this manager has no build for nodes".to_owned()));
            }
            (Launch::Upload | Launch::Personal, Some(build)) => build,
        };
        if let Some(session) = self.try_build(login, target, build).await? {
            return Ok(session);
        }
        let build = self.build_for(login, target).await?;
        if build.sha256 != self.config.builds[0].sha256
            && let Some(session) = self.try_build(login, target, build).await?
        {
            return Ok(session);
        }
        self.upload(login, target, build).await?;
        let session = self.run(self.build_start(login, target, build)).await.map_err(StartFailure::into_error)?;
        if session.hello().exe_sha256 != build.sha256 {
            return Err(SshError::Protocol("the node runs another binary than the uploaded one".to_owned()));
        }
        require_protocol(session)
    }

    /// Starts `build` on the node. None: the node lacks this build or has a damaged copy.
    async fn try_build(
        &self,
        login: &Arc<openssh::Session>,
        target: &LoginTarget,
        build: &Build,
    ) -> Result<Option<Session>, SshError> {
        match self.run(self.build_start(login, target, build)).await {
            Ok(session) if session.hello().exe_sha256 == build.sha256 => require_protocol(session).map(Some),
            Ok(_) | Err(StartFailure::Missing(_)) => Ok(None),
            Err(StartFailure::Failed(e)) => Err(e),
        }
    }

    fn path_of(&self, target: &LoginTarget, build: &Build) -> String {
        format!("{}/remoor-{}", self.bin_of(target), build.sha256)
    }

    /// The directory of builds on the node `target`.
    fn bin_of(&self, target: &LoginTarget) -> String {
        let dir = target.state_dir.as_ref().map(|dir| dir.display().to_string());
        format!("{}/bin", dir.as_ref().unwrap_or(&self.config.state_dir))
    }

    /// The command that starts `build` from the directory of builds on the node.
    fn build_start(&self, login: &Arc<openssh::Session>, target: &LoginTarget, build: &Build) -> ExecutorStart {
        if self.config.launch == Launch::Personal {
            let command = personal_login::start(login, target, &self.config.state_dir, &build.sha256);
            return ExecutorStart { command, login: Arc::clone(login) };
        }
        self.executor_start(login, target, &self.path_of(target, build))
    }

    fn executor_start(&self, login: &Arc<openssh::Session>, target: &LoginTarget, program: &str) -> ExecutorStart {
        let mut command = as_root(login, target, program);
        command.args(&self.config.arguments);
        if let Some(dir) = &target.state_dir {
            command.arg("--state-dir").arg(dir.display().to_string());
        }
        ExecutorStart { command, login: Arc::clone(login) }
    }

    /// Starts a program and waits for its greeting.
    async fn run(&self, starting: ExecutorStart) -> Result<Session, StartFailure> {
        let lost = |e: openssh::Error| StartFailure::Failed(SshError::Lost(error::chain(&e)));
        let ExecutorStart { mut command, login } = starting;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().await.map_err(lost)?;
        let (Some(output), Some(input), Some(stderr)) =
            (child.stdin().take(), child.stdout().take(), child.stderr().take())
        else {
            return Err(StartFailure::Failed(SshError::Local("no pipes to ssh".to_owned())));
        };
        let mut stderr = StderrTail::collect(stderr);
        match timeout(HELLO_MAX, Channel::greet(input)).await {
            Ok(Ok((hello, input))) => {
                let channel = Channel::start(input, output, HeartbeatTiming::default());
                Ok(Session::new(hello, channel, ExecutorLocation::Remote { child: Some(child), login }, stderr))
            }
            Ok(Err(SshError::Lost(why))) => {
                drop(output);
                let status = timeout(HELLO_MAX, child.wait()).await;
                stderr.wait_for_end().await;
                Err(why_not_started(status.ok(), &login, &stderr, &why).await)
            }
            // A damaged program may start and print any text. So a program without a valid greeting
            // counts as missing.
            Ok(Err(SshError::Protocol(why))) => Err(StartFailure::Missing(why)),
            Ok(Err(e)) => Err(StartFailure::Failed(e)),
            Err(_) => Err(StartFailure::Failed(SshError::Timeout("waiting for the executor's greeting"))),
        }
    }

    /// The build for the node's architecture.
    async fn build_for(&self, login: &Arc<openssh::Session>, target: &LoginTarget) -> Result<&Build, SshError> {
        let shell = Shell::new(Arc::clone(login), target.clone());
        let text = shell.run_as_user("uname -sm", &[], UNAME_MAX).await?.stdout;
        // A login shell may have printed lines before the output of `uname`.
        let system = text.lines().last().unwrap_or_default();
        let arch = system.strip_prefix("Linux ");
        let build = arch.and_then(|arch| self.config.builds.iter().find(|build| build.arch == arch));
        build.ok_or_else(|| SshError::Unsupported(error::clip(system)))
    }

    async fn upload(&self, login: &Arc<openssh::Session>, target: &LoginTarget, build: &Build) -> Result<(), SshError> {
        let mut file = tokio::fs::File::open(&build.path)
            .await
            .map_err(|e| SshError::Local(format!("{}: {e}", build.path.display())))?;
        let mut command = if self.config.launch == Launch::Personal {
            personal_login::upload(login, target, &self.config.state_dir, &build.sha256)
        } else {
            let mut command = as_root(login, target, "sh");
            command.args(["-c", UPLOAD, "sh", &self.bin_of(target), &build.sha256.to_string()]);
            command
        };
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let upload = async {
            let mut child = command.spawn().await.map_err(|e| SshError::Lost(error::chain(&e)))?;
            let mut stderr = child.stderr().take().map(StderrTail::collect).unwrap_or_default();
            if let Some(mut stdin) = child.stdin().take() {
                // If the script ended early, its exit code and stderr show the reason.
                let _see_below = tokio::io::copy(&mut file, &mut stdin).await;
            }
            let status = child.wait().await;
            stderr.wait_for_end().await;
            match status {
                Ok(status) if status.success() => Ok(()),
                Ok(_) => Err(SshError::Upload(stderr.explain("the upload script failed"))),
                Err(e) => Err(SshError::Upload(stderr.explain(&error::chain(&e)))),
            }
        };
        timeout(UPLOAD_MAX, upload).await.map_err(|_| SshError::Timeout("uploading"))?
    }
}

/// Removes files of earlier processes from a control directory. A daemon calls this once at its
/// start, because later the directory also contains sockets of its own sessions. ssh masters that
/// still run exit by themselves.
pub fn clean_control_dir(dir: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(".ssh-connection") && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else if name.starts_with(".tmp") && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Receives a binary on stdin; arguments are directory and hash. The directory must belong to the
/// caller and be no symbolic link. The file gets its name only after its hash was verified and its
/// content is on the disk. The two newest builds stay.
pub(super) const UPLOAD: &str = r#"set -eu
umask 077
dir=$1 sha=$2
mkdir -p -- "$dir"
if [ -L "$dir" ] || [ ! -O "$dir" ]; then echo "$dir is not owned by the login user" >&2; exit 10; fi
chmod 0755 -- "$dir"
new="$dir/.new.$sha.$$"
trap 'rm -f -- "$new"' EXIT
trap 'exit 10' HUP INT TERM
cat >"$new"
echo "$sha  $new" | sha256sum -c - >/dev/null || exit 11
chmod 0755 -- "$new"
sync "$new" 2>/dev/null || sync
mv -f -- "$new" "$dir/remoor-$sha"
find "$dir" -name '.new.*' -mmin +60 -exec rm -f -- {} + 2>/dev/null || :
ls -1t -- "$dir" | grep '^remoor-[0-9a-f]*$' | tail -n +3 | while read -r old; do rm -f -- "$dir/$old"; done
"#;

pub(super) type RemoteCommand = openssh::OwningCommand<Arc<openssh::Session>>;

/// Runs sudo without a prompt. `--` ensures that no argument is taken for an option of sudo.
pub(super) fn as_root(login: &Arc<openssh::Session>, target: &LoginTarget, program: &str) -> RemoteCommand {
    let login = Arc::clone(login);
    if target.sudo {
        let mut command = login.arc_command("sudo");
        command.args(["-n", "--", program]);
        command
    } else {
        login.arc_command(program.to_owned())
    }
}

/// A command that is about to start an executor over this login.
struct ExecutorStart {
    command: RemoteCommand,
    login: Arc<openssh::Session>,
}

enum StartFailure {
    /// No greeting: the file is missing, damaged, or for another architecture.
    Missing(String),
    Failed(SshError),
}

impl StartFailure {
    fn into_error(self) -> SshError {
        match self {
            StartFailure::Missing(why) => SshError::Protocol(why),
            StartFailure::Failed(e) => e,
        }
    }
}

/// The error for stderr of sudo if sudo does not permit root without a password. None for other
/// text.
pub(super) fn sudo_refusal(stderr: &str) -> Option<SshError> {
    let texts = ["a password is required", "is not allowed to", "not in the sudoers", "a terminal is required"];
    texts.iter().any(|text| stderr.contains(text)).then(|| SshError::Auth(stderr.to_owned()))
}

async fn why_not_started(
    status: Option<Result<std::process::ExitStatus, openssh::Error>>,
    login: &openssh::Session,
    stderr: &StderrTail,
    why: &str,
) -> StartFailure {
    if let Some(refused) = sudo_refusal(&stderr.text()) {
        return StartFailure::Failed(refused);
    }
    match status {
        Some(Err(openssh::Error::Remote(_)) | Ok(_)) => StartFailure::Missing(stderr.explain(why)),
        // There is no exit status in two cases: the connection ended, or a signal killed the
        // program. A program in a truncated file is killed in this way too.
        Some(Err(_)) if is_up(login).await => {
            StartFailure::Missing(stderr.explain("killed by a signal before the greeting"))
        }
        Some(Err(e)) => StartFailure::Failed(SshError::Lost(stderr.explain(&error::chain(&e)))),
        None => StartFailure::Failed(SshError::Timeout("waiting for the executor's end")),
    }
}

fn require_protocol(session: Session) -> Result<Session, SshError> {
    check_protocol(session.hello()).map(|()| session)
}

/// Refuses an executor with another protocol version, before any order is sent.
pub(super) fn check_protocol(hello: &Hello) -> Result<(), SshError> {
    let Hello { version, proto, .. } = hello;
    if *proto == PROTO {
        return Ok(());
    }
    let text = format!("the node's remoor {version} uses protocol {proto}, this manager uses {PROTO}");
    Err(SshError::Protocol(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executors_with_the_same_protocol_are_accepted() {
        let older = Hello { version: "0.0.9".into(), proto: PROTO, ..Hello::default() };
        assert!(check_protocol(&older).is_ok());
        let error = check_protocol(&Hello { proto: PROTO + 1, ..older }).expect_err("another protocol");
        let text = error.to_string();
        assert!(matches!(error, SshError::Protocol(_)), "{text}");
        assert!(text.contains("remoor 0.0.9 uses protocol 2, this manager uses 1"), "{text}");
    }
}
