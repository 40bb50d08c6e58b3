//! The hosts: an sshd on five addresses of the loopback, with keys, a configuration and a home of its own; and what a command
//! costs here and behind that sshd.

use crate::{Cost, well};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const HOSTS: usize = 5;
const SSHD: &str = "/usr/sbin/sshd";
/// In which the kernel counts processor time, a second.
const TICKS: f64 = 100.0;
const LONG: Duration = Duration::from_secs(60);

pub struct Node {
    dir: tempfile::TempDir,
    sshd: Child,
    pub port: u16,
}

/// The first so many hosts.
pub fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("n{n}")).collect()
}

/// The address of host number `n`, from 1.
pub fn address(n: usize) -> String {
    format!("127.0.0.{}", n + 1)
}

impl Node {
    pub fn up() -> Result<Self> {
        ensure!(Path::new(SSHD).exists(), "{SSHD} is missing (Debian: openssh-server)");
        let dir = tempfile::Builder::new().prefix("play").tempdir()?;
        let at = |name: &str| dir.path().join(name);
        for key in ["host", "user"] {
            well(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key)))?;
        }
        fs::copy(at("user.pub"), at("authorized"))?;
        for name in ["home", "top", "masters"] {
            fs::create_dir(at(name))?;
        }
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").context("sshd needs it as root")?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut node = Self { sshd: sshd(dir.path(), port)?, dir, port };
        node.configure()?;
        let begun = Instant::now();
        while (1..=HOSTS).any(|n| TcpStream::connect((address(n), port)).is_err()) {
            if begun.elapsed() > LONG || node.sshd.try_wait()?.is_some() {
                bail!("sshd does not start: {}", fs::read_to_string(node.path("log"))?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(node)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self) -> Result<()> {
        let (dir, port) = (self.dir.path().display(), self.port);
        let key = fs::read_to_string(self.path("host.pub"))?;
        let user = well(Command::new("id").arg("-un"))?;
        let mut config = String::new();
        let mut known = String::new();
        for n in 1..=HOSTS {
            config += &format!("Host n{n}\n  HostName {}\n", address(n));
            known += &format!("[{}]:{port} {key}", address(n));
        }
        config += &format!(
            "Host *\n  Port {port}\n  User {}\n  IdentityFile {dir}/user\n  IdentitiesOnly yes\n  BatchMode yes\n  \
             UserKnownHostsFile {dir}/known\n",
            user.trim()
        );
        fs::write(self.path("ssh_config"), config)?;
        fs::write(self.path("known"), known)?;
        crate::tools::write(self, user.trim())
    }

    /// A command with a clean environment: nobody's settings, and no slow start of a shell.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.path("home")).env("LC_ALL", "C.UTF-8");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Takes away what the tools have made.
    pub fn empty(&self) -> Result<()> {
        fs::remove_dir_all(self.path("top"))?;
        Ok(fs::create_dir(self.path("top"))?)
    }

    /// That the tool has done its work on so many hosts, all of it.
    pub fn made(&self, hosts: usize) -> Result<()> {
        for host in names(hosts) {
            for n in 1..=5 {
                let text = fs::read_to_string(self.path("top").join(&host).join(format!("d{n}/template")))?;
                ensure!(text == format!("port {n}\n"), "{host}: template {n} is {text:?}");
                ensure!(self.path("top").join(&host).join(format!("d{n}/copy")).exists(), "{host}: copy {n}");
            }
            let lines = fs::read_to_string(self.path("top").join(&host).join("d1/copy"))?;
            ensure!(lines.lines().count() == 4, "{host}: {lines:?}");
        }
        Ok(())
    }

    /// Runs it to its end and to that of its sessions.
    pub fn timed(&self, command: &mut Command) -> Result<Cost> {
        let (local, node) = (children("self")?, self.cpu()?);
        let begun = Instant::now();
        well(command)?;
        let wall = begun.elapsed().as_secs_f64();
        let local = children("self")? - local;
        self.quiet()?;
        Ok(Cost { wall, local, node: self.cpu()? - node })
    }

    /// Ends connections that are kept for later, and waits until sshd has accounted for all of them.
    fn quiet(&self) -> Result<()> {
        for master in fs::read_dir(self.path("masters"))? {
            let control = format!("ControlPath={}", master?.path().display());
            let mut end = self.command("ssh");
            // One that has ended by itself is as good.
            let _gone = end.args(["-F", "none", "-O", "exit", "-o", &control, "none"]).output()?;
        }
        let own = format!("/proc/{0}/task/{0}/children", self.sshd.id());
        let begun = Instant::now();
        while !fs::read_to_string(&own)?.trim().is_empty() {
            ensure!(begun.elapsed() < LONG, "sessions do not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Of sshd and all that it started and that has ended.
    fn cpu(&self) -> Result<f64> {
        let id = self.sshd.id().to_string();
        Ok(own(&id)? + children(&id)?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ended = self.sshd.kill();
        let _reaped = self.sshd.wait();
    }
}

fn sshd(dir: &Path, port: u16) -> Result<Child> {
    let path = dir.display();
    let listen: String = (1..=HOSTS).map(|n| format!("ListenAddress {}\n", address(n))).collect();
    let config = format!(
        "Port {port}\n{listen}HostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nUsePAM no\nStrictModes no\n\
         PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         MaxStartups 100\nSubsystem sftp internal-sftp\nSetEnv HOME={path}/home PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
    );
    fs::write(dir.join("sshd_config"), config)?;
    let log = fs::File::create(dir.join("log"))?;
    let mut command = Command::new(SSHD);
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context(SSHD)
}

/// Seconds of a process and of its ended children, by two fields of its state.
fn seconds(id: &str, fields: [usize; 2]) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The name may hold blanks; behind it comes field 3.
    let (_, rest) = text.rsplit_once(") ").context("no state")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let ticks = |field: usize| -> Result<f64> { Ok(words.get(field - 3).context("no field")?.parse()?) };
    Ok((ticks(fields[0])? + ticks(fields[1])?) / TICKS)
}

fn own(id: &str) -> Result<f64> {
    seconds(id, [14, 15])
}

fn children(id: &str) -> Result<f64> {
    seconds(id, [16, 17])
}
