//! The hosts: sshds on fifty addresses of the loopback, with their own keys, configuration and
//! homes. Measures the cost of a command on this machine and behind the sshds.

use crate::{Cost, relay, run_tool};
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The numbers of hosts on which a playbook runs.
pub const COUNTS: [usize; 4] = [1, 5, 20, 50];
pub const HOSTS: usize = 50;
/// Number of addresses on which one sshd listens. The maximum of sshd is 16.
const HOSTS_OF_ONE: usize = 13;
/// The address of the first host over the slow link.
pub const FAR: &str = "127.0.1.2";
pub const ROUND_TRIP: Duration = Duration::from_millis(20);
/// The time in seconds after which a tool counts as hanging.
const RUN_MAX: &str = "600";
const SSHD: &str = "/usr/sbin/sshd";
/// The kernel's units of processor time, per second.
const TICKS: f64 = 100.0;
const SPOILT: &str = "port 0\n";
const LONG: Duration = Duration::from_secs(60);

pub struct Node {
    dir: tempfile::TempDir,
    sshds: Vec<Child>,
    pub port: u16,
}

/// The names of the first `count` hosts.
pub fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("n{n}")).collect()
}

/// The address of host number `n`, from 1.
pub fn address(n: usize) -> String {
    format!("127.0.0.{}", n + 1)
}

impl Node {
    pub fn start() -> Result<Self> {
        ensure!(Path::new(SSHD).exists(), "{SSHD} is missing (Debian: openssh-server)");
        let dir = tempfile::Builder::new().prefix("play").tempdir()?;
        let at = |name: &str| dir.path().join(name);
        for key in ["host", "user"] {
            run_tool(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key)))?;
        }
        fs::copy(at("user.pub"), at("authorized"))?;
        for name in ["home", "top", "masters"] {
            fs::create_dir(at(name))?;
        }
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").context("sshd needs it as root")?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut node = Self { sshds: Vec::new(), dir, port };
        for first in (1..=HOSTS).step_by(HOSTS_OF_ONE) {
            let hosts = first..=HOSTS.min(first + HOSTS_OF_ONE - 1);
            node.sshds.push(sshd(node.dir.path(), port, hosts)?);
        }
        node.configure()?;
        let begun = Instant::now();
        while (1..=HOSTS).any(|n| TcpStream::connect((address(n), port)).is_err()) {
            let mut ended = false;
            for sshd in &mut node.sshds {
                ended |= sshd.try_wait()?.is_some();
            }
            if begun.elapsed() > LONG || ended {
                bail!("sshd does not start: {}", fs::read_to_string(node.path("log"))?);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        relay::start(
            (FAR.parse::<std::net::IpAddr>()?, port).into(),
            (address(1).parse::<std::net::IpAddr>()?, port).into(),
            ROUND_TRIP / 2,
        )?;
        Ok(node)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self) -> Result<()> {
        let (dir, port) = (self.dir.path().display(), self.port);
        let key = fs::read_to_string(self.path("host.pub"))?;
        let user = run_tool(Command::new("id").arg("-un"))?;
        let mut hosts = String::new();
        let mut known = format!("[{FAR}]:{port} {key}");
        for n in 1..=HOSTS {
            hosts += &format!("Host n{n}\n  HostName {}\n", address(n));
            known += &format!("[{}]:{port} {key}", address(n));
        }
        let all = format!(
            "Host *\n  Port {port}\n  User {}\n  IdentityFile {dir}/user\n  IdentitiesOnly yes\n  BatchMode yes\n  \
             UserKnownHostsFile {dir}/known\n",
            user.trim()
        );
        fs::write(self.path("ssh_config"), format!("{hosts}{all}"))?;
        // ssh uses the first value that it reads, so `HostName` comes before the other settings.
        fs::write(self.path("ssh_config_far"), format!("Host n1\n  HostName {FAR}\n{all}"))?;
        fs::write(self.path("known"), known)?;
        crate::tools::write(self, user.trim())
    }

    /// A command with a clean environment: without user settings, and without a shell that starts
    /// slowly. A hanging command is ended after `RUN_MAX` seconds.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", RUN_MAX]).arg(program);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", self.path("home")).env("LC_ALL", "C.UTF-8");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Removes remoor from the first host.
    pub fn forget(&self) -> Result<()> {
        match fs::remove_dir_all(self.path("state/n1")) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    /// Gives all hosts the program remoor that the first host has. The files are hard links,
    /// because fifty copies would measure the disk.
    pub fn spread(&self) -> Result<()> {
        for host in names(HOSTS).iter().skip(1) {
            let bin = self.path("state").join(host).join("bin");
            fs::create_dir_all(&bin)?;
            for entry in fs::read_dir(self.path("state/n1/bin"))? {
                let entry = entry?;
                fs::hard_link(entry.path(), bin.join(entry.file_name()))?;
            }
        }
        Ok(())
    }

    /// Removes everything that the tools have made.
    pub fn empty(&self) -> Result<()> {
        fs::remove_dir_all(self.path("top"))?;
        Ok(fs::create_dir(self.path("top"))?)
    }

    /// Checks that the tool has completed all tasks on these hosts.
    pub fn check_done(&self, hosts: usize) -> Result<()> {
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

    /// Changes five files of each host, so that they differ from the playbook.
    pub fn spoil(&self, hosts: usize) -> Result<()> {
        for host in names(hosts) {
            for n in 1..=5 {
                fs::write(self.path("top").join(&host).join(format!("d{n}/template")), SPOILT)?;
            }
        }
        Ok(())
    }

    /// Checks that the changed files of [`Node::spoil`] are still changed.
    pub fn check_spoilt(&self, hosts: usize) -> Result<()> {
        for host in names(hosts) {
            for n in 1..=5 {
                let text = fs::read_to_string(self.path("top").join(&host).join(format!("d{n}/template")))?;
                ensure!(text == SPOILT, "{host}: template {n} has become {text:?}");
            }
        }
        Ok(())
    }

    /// Runs a command, and waits until the command and its SSH sessions have ended. Returns the
    /// cost and the output of the command.
    pub fn measure(&self, command: &mut Command) -> Result<(Cost, String)> {
        let (local, node) = (children("self")?, self.cpu()?);
        let begun = Instant::now();
        let text = run_tool(command)?;
        let wall = begun.elapsed().as_secs_f64();
        let local = children("self")? - local;
        self.end_connections()?;
        Ok((Cost { wall, local, node: self.cpu()? - node }, text))
    }

    /// Ends persistent SSH connections, and waits until no sshd has a child process. Then the
    /// processor time of all sessions is counted.
    fn end_connections(&self) -> Result<()> {
        for master in fs::read_dir(self.path("masters"))? {
            let control = format!("ControlPath={}", master?.path().display());
            let mut end = self.command("ssh");
            // The command fails if the connection has ended already, which is fine.
            let _gone = end.args(["-F", "none", "-O", "exit", "-o", &control, "none"]).output()?;
        }
        let begun = Instant::now();
        for sshd in &self.sshds {
            let children_file = format!("/proc/{0}/task/{0}/children", sshd.id());
            while !fs::read_to_string(&children_file)?.trim().is_empty() {
                ensure!(begun.elapsed() < LONG, "sessions do not end");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// Processor time of the sshds and of their ended children, in seconds.
    fn cpu(&self) -> Result<f64> {
        let of = |sshd: &Child| {
            let id = sshd.id().to_string();
            Ok(own_seconds(&id)? + children(&id)?)
        };
        self.sshds.iter().map(of).sum()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for sshd in &mut self.sshds {
            let _ended = sshd.kill();
            let _reaped = sshd.wait();
        }
    }
}

fn sshd(dir: &Path, port: u16, hosts: RangeInclusive<usize>) -> Result<Child> {
    let path = dir.display();
    let name = format!("sshd_config{}", hosts.start());
    let listen: String = hosts.map(|n| format!("ListenAddress {}\n", address(n))).collect();
    let config = format!(
        "Port {port}\n{listen}HostKey {path}/host\nAuthorizedKeysFile {path}/authorized\nUsePAM no\nStrictModes no\n\
         PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
         MaxStartups 100\nSubsystem sftp internal-sftp\nSetEnv HOME={path}/home PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
    );
    fs::write(dir.join(&name), config)?;
    let log = fs::File::options().create(true).append(true).open(dir.join("log"))?;
    let mut command = Command::new(SSHD);
    command.args(["-D", "-e", "-f"]).arg(dir.join(&name));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().context(SSHD)
}

/// Processor time of a process or of its ended children, in seconds: the sum of two fields of
/// `/proc/ID/stat`.
fn seconds(id: &str, fields: [usize; 2]) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // Field 2, the name of the process, may contain blanks. Field 3 follows after it.
    let (_, rest) = text.rsplit_once(") ").context("no state")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let ticks = |field: usize| -> Result<f64> { Ok(words.get(field - 3).context("no field")?.parse()?) };
    Ok((ticks(fields[0])? + ticks(fields[1])?) / TICKS)
}

fn own_seconds(id: &str) -> Result<f64> {
    seconds(id, [14, 15])
}

fn children(id: &str) -> Result<f64> {
    seconds(id, [16, 17])
}
