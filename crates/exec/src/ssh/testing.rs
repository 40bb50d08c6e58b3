//! A real sshd for tests: on a free port of the loopback, with its own host key, for the user who
//! runs the tests, without PAM.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SSHD: &str = "/usr/sbin/sshd";
/// The maximum time from the start of sshd until it answers, on a busy machine.
const START_MAX: Duration = Duration::from_secs(300);

/// A running sshd. Dropping it ends sshd. Its directory has the keys `host`, `user` and `stranger`
/// with their `.pub` files; `authorized`, which contains `user.pub`; `sshd_config`; and `log`.
pub struct TestSshd {
    dir: TempDir,
    port: u16,
    sshd: Child,
}

impl TestSshd {
    /// Returns None if sshd can't run here, with the reason on stderr.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| String::new())
    }

    /// Like [`Self::start`], with more lines of `sshd_config`. `settings` returns them for the
    /// directory of this sshd.
    pub fn start_with(settings: impl Fn(&Path) -> String) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            eprintln!("SKIPPED: {SSHD} is missing, so nothing was tried over SSH (Debian: openssh-server)");
            return None;
        }
        if rustix::process::geteuid().is_root() && fs::create_dir_all("/run/sshd").is_err() {
            eprintln!("SKIPPED: /run/sshd can't be made, which sshd needs as root");
            return None;
        }
        let dir = tempfile::tempdir().expect("a directory");
        for key in ["host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.path().join(key));
            assert!(keygen.status().expect("ssh-keygen").success());
        }
        fs::copy(dir.path().join("user.pub"), dir.path().join("authorized")).expect("a copy");
        // Another process may take the port between the search and the use of the port. Then sshd
        // ends, and another port is tried.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
            let mut sshd = spawn(dir.path(), port, &settings(dir.path()));
            let deadline = Instant::now() + START_MAX;
            while Instant::now() < deadline && sshd.try_wait().expect("a state").is_none() {
                if answers(port) {
                    return Some(Self { dir, port, sshd });
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ended = sshd.kill();
            let _reaped = sshd.wait();
        }
        panic!("sshd does not start: {}", fs::read_to_string(dir.path().join("log")).unwrap_or_default());
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path in the directory of this sshd.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// The text of a file in the directory of this sshd.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of sshd.
    pub fn pid(&self) -> u32 {
        self.sshd.id()
    }

    /// The name of the user who may log in.
    pub fn user(&self) -> String {
        let out = Command::new("id").arg("-un").output().expect("id");
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }

    /// The number of logins so far.
    pub fn logins(&self) -> usize {
        self.read("log").matches("Accepted publickey").count()
    }

    /// The number of commands so far.
    pub fn commands(&self) -> usize {
        self.read("log").matches("Starting session: command").count()
    }

    /// Ends sshd, so that its port refuses connections.
    pub fn stop(&mut self) {
        let _may_have_ended = self.sshd.kill();
        let _reaped = self.sshd.wait();
    }
}

impl Drop for TestSshd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(dir: &Path, port: u16, settings: &str) -> Child {
    let path = dir.display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nUsePAM no\n\
         StrictModes no\nPidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nLogLevel VERBOSE\n{settings}"
    );
    fs::write(dir.join("sshd_config"), config).expect("a configuration");
    let log = fs::File::create(dir.join("log")).expect("a log");
    let mut command = Command::new(SSHD);
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("sshd")
}

/// Whether an SSH server sends its banner.
fn answers(port: u16) -> bool {
    let banner = || -> std::io::Result<[u8; 4]> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut banner = [0; 4];
        stream.read_exact(&mut banner)?;
        Ok(banner)
    };
    banner().is_ok_and(|banner| &banner == b"SSH-")
}
