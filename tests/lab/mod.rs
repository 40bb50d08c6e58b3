//! Real hosts on one machine, for the tests and the demo. Each host has its own systemd as PID 1,
//! sshd, disk, address, boot id and process tree (systemd-nspawn on an overlay of a small Debian).
//! The lab needs root.
//!
//! ```text
//!   operator ──┐                 one network namespace each
//!              ├── bridge (own namespace; nftables cuts here)
//!   m1 m2 .. ──┘                 console: enters a host's namespaces with the rights of its PID 1
//! ```
//!
//! The outer machine keeps its network, clock, devices and settings. Hosts have no CAP_SYS_TIME and
//! no device nodes of the outer machine. The lab kills only processes in its own control group. A
//! lab has a name: `start` first removes the remains of a crashed run with the same name. Dropping
//! the [`Lab`] removes everything except the image. This module does not depend on remoor.

#![allow(dead_code, reason = "the tests and the demo each use a part")]

pub mod cgroup;
pub mod cluster;
pub mod console;
pub mod five;
pub mod host;
pub mod image;
pub mod machine;
pub mod net;
pub mod selftest;
pub mod tool;

use anyhow::{Context, Result, bail, ensure};
use cgroup::Groups;
pub use host::Host;
pub use image::Release;
pub use net::Way;
use net::{Faults, Net, OPERATOR};
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
pub use tool::{Output, wait_for};

/// Maximum time of a command on a host's console, or of a command of the operator. Some commands
/// wait for a job of the fleet.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);
/// Maximum time of a boot on a busy machine, from power to sshd's banner.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// Number of root's inotify instances that a host holds: 3 of systemd, and 1 each of dbus, logind
/// and the agent.
pub const INOTIFY_PER_HOST: usize = 6;
/// A file from outside the lab that all hosts have from their first boot, and its path on the
/// hosts.
pub type Program<'a> = (&'a Path, &'a str);

/// Running hosts. They end when this value is dropped, unless [`Lab::keep`] was called.
pub struct Lab {
    name: String,
    dir: PathBuf,
    base: PathBuf,
    /// The layer between the image and each host's own layer: the programs that all hosts have.
    shared: Option<PathBuf>,
    net: Net,
    groups: Groups,
    hosts: Vec<String>,
    changing: Mutex<Changing>,
    keep: bool,
    _lock: File,
}

#[derive(Default)]
struct Changing {
    faults: Faults,
    addresses: std::collections::BTreeMap<String, Ipv4Addr>,
}

impl Lab {
    /// Returns an error with the reason if no real hosts can run on this machine.
    pub fn available() -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err("real hosts need root".into());
        }
        let wanted = [
            ("systemd-nspawn", "systemd-container"),
            ("ip", "iproute2"),
            ("nft", "nftables"),
            ("ssh", "openssh-client"),
            ("ssh-keygen", "openssh-client"),
            ("nsenter", "util-linux"),
            ("unshare", "util-linux"),
            ("setpriv", "util-linux"),
            ("mount", "mount"),
        ];
        for (program, package) in wanted {
            if tool::find_program(program).is_none() {
                return Err(format!("{program} is missing (package {package})"));
            }
        }
        if let Some(lack) = image::missing_requirement() {
            return Err(lack);
        }
        if let Some(kind) = ["cgroup", "ipc", "mnt", "net", "pid", "uts"]
            .iter()
            .find(|kind| !Path::new("/proc/self/ns").join(kind).exists())
        {
            return Err(format!("this kernel has no {kind} namespaces"));
        }
        let probe = Groups::find("remoor-lab-probe")?;
        let made = probe.make("");
        probe.remove("");
        made.map_err(|e| format!("control groups ({}) can't be made here: {e:#}", probe.kind()))?;
        host::overlay_works()
    }

    /// The kind of machine on which the hosts will run, in a few words for the first line of a log.
    pub fn describe() -> String {
        let groups = Groups::find("remoor-lab-probe").map_or("no cgroup2", |groups| groups.kind());
        let clock = if host::has_time_namespaces() { "own uptime" } else { "uptime shared with this machine" };
        format!("systemd-nspawn hosts, Debian {}, control groups {groups}, {clock}", Release::Bookworm.suite())
    }

    /// Starts hosts, and waits until the sshd of each host answers. Only one process at a time can
    /// hold the lab `name`.
    pub fn start(name: &str, hosts: &[&str]) -> Result<Lab> {
        Lab::start_with(name, hosts, &[])
    }

    /// Like [`Lab::start`], with programs on the hosts' disks. A program is stored once for all
    /// hosts. After a wipe, a disk does not have the programs.
    pub fn start_with(name: &str, hosts: &[&str], programs: &[Program<'_>]) -> Result<Lab> {
        Lab::start_release(Release::Bookworm, name, hosts, programs)
    }

    /// Like [`Lab::start_with`], with hosts of this Debian release.
    pub fn start_release(release: Release, name: &str, hosts: &[&str], programs: &[Program<'_>]) -> Result<Lab> {
        for word in hosts.iter().chain([&name]) {
            // p-NAME is the name of a network interface and may have at most 15 characters.
            let fits = word.len() <= 13 && word.starts_with(|c: char| c.is_ascii_lowercase()) && *word != OPERATOR;
            ensure!(
                fits && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
                "bad name {word:?}"
            );
        }
        ensure!(hosts.len() <= 200, "at most 200 hosts");
        Lab::available().map_err(anyhow::Error::msg)?;
        enough_inotify(hosts.len())?;
        let base = image::ensure_built(release)?;
        let root = image::lab_dir();
        let lock = File::create(root.join(format!("{name}.lock"))).context("opening the lab's lock")?;
        lock.try_lock().with_context(|| format!("a lab {name:?} is up in another process"))?;
        let groups = Groups::find(&format!("remoor-lab-{name}")).map_err(anyhow::Error::msg)?;
        let lab = Lab {
            name: name.to_owned(),
            dir: root.join("labs").join(name),
            base,
            shared: (!programs.is_empty()).then(|| root.join("labs").join(name).join("programs")),
            net: Net::new(name),
            groups,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            changing: Mutex::default(),
            keep: false,
            _lock: lock,
        };
        lab.remove_all().context("removing what an earlier run left")?;
        lab.build(programs)?;
        Ok(lab)
    }

    fn build(&self, programs: &[Program<'_>]) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("creating {}", self.dir.display()))?;
        self.fill_shared_layer(programs)?;
        for key in ["operator_key", "fleet_key"] {
            host::make_key(&self.dir.join(key), key)?;
        }
        self.groups.make("console")?;
        self.net.create()?;
        for (at, host) in self.hosts.iter().enumerate() {
            self.state().addresses.insert(host.clone(), self.net.address(11 + at as u8));
        }
        for host in &self.hosts {
            self.mount(host, self.shared.as_deref())?;
            self.seed(host)?;
        }
        self.write_access()?;
        self.hosts.iter().try_for_each(|host| self.power_on(host))?;
        self.hosts.iter().try_for_each(|host| self.wait_ssh(host))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Changing> {
        self.changing.lock().expect("no thread panics while it changes the lab")
    }

    pub fn names(&self) -> &[String] {
        &self.hosts
    }

    /// A host of this lab with its current address (see [`Lab::readdress`]).
    pub fn host(&self, name: &str) -> Host {
        let ip = *self.state().addresses.get(name).unwrap_or_else(|| panic!("the lab has no host {name}"));
        Host { name: name.to_owned(), ip }
    }

    /// The lab's own directory, for the files of one run. It is removed together with the lab.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    // --- the operator ---

    /// The operator's address on the lab's network.
    pub fn operator_ip(&self) -> Ipv4Addr {
        self.net.address(1)
    }

    /// The file for `ssh -F`. It has every host by name, strict host keys, and the operator's key.
    pub fn ssh_config(&self) -> PathBuf {
        self.dir.join("ssh_config")
    }

    pub fn operator_key(&self) -> PathBuf {
        self.dir.join("operator_key")
    }

    /// The key that [`Lab::give_identity`] gives to managers. Every host accepts it for root.
    pub fn fleet_key(&self) -> PathBuf {
        self.dir.join("fleet_key")
    }

    pub fn known_hosts(&self) -> PathBuf {
        self.dir.join("known_hosts")
    }

    /// A command in the operator's network namespace. The caller starts it.
    pub fn op_command(&self, argv: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.net.namespace(OPERATOR))).arg("--").args(argv);
        command
    }

    /// Runs a command in the operator's network namespace. Returns an error only if the command
    /// can't be run or exceeds the command limit.
    pub fn op(&self, argv: &[&str]) -> Result<Output> {
        tool::run(self.op_command(argv), None, COMMAND_LIMIT)
    }

    /// Runs a shell script on the host over the network, as the operator would. Exit code 255 means
    /// that there was no connection.
    pub fn ssh(&self, host: &str, script: &str) -> Result<Output> {
        let config = self.ssh_config();
        self.op(&["ssh", "-F", config.to_str().context("the lab's directory has a name in UTF-8")?, host, script])
    }

    /// Runs `call` on a thread in the operator's network namespace. Sockets that `call` makes are
    /// on the lab's network.
    pub fn in_net<T: Send>(&self, call: impl FnOnce() -> T + Send) -> Result<T> {
        let place =
            File::open(format!("/run/netns/{}", self.net.namespace(OPERATOR))).context("the lab's network is gone")?;
        std::thread::scope(|scope| {
            let run = || -> Result<T> {
                use rustix::thread::{LinkNameSpaceType::Network, move_into_link_name_space};
                use std::os::fd::AsFd;
                move_into_link_name_space(place.as_fd(), Some(Network)).context("entering the lab's network")?;
                Ok(call())
            };
            scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Whether the host's sshd sends its banner to the operator within two seconds.
    pub fn answers_ssh(&self, host: &str) -> bool {
        let to = SocketAddr::from((self.host(host).ip, 22));
        let short = Duration::from_secs(2);
        let ask = move || -> std::io::Result<bool> {
            let mut stream = TcpStream::connect_timeout(&to, short)?;
            stream.set_read_timeout(Some(short))?;
            let mut banner = [0; 4];
            stream.read_exact(&mut banner)?;
            Ok(&banner == b"SSH-")
        };
        matches!(self.in_net(ask), Ok(Ok(true)))
    }

    /// Waits until the host's sshd answers. The error contains the end of the host's console
    /// output.
    pub fn wait_ssh(&self, host: &str) -> Result<()> {
        wait_for(&format!("sshd of {host}"), BOOT_LIMIT, || self.answers_ssh(host).then_some(())).with_context(|| {
            let console = fs::read_to_string(self.disk(host).join("console.log")).unwrap_or_default();
            let from = console.len().saturating_sub(2000);
            format!("the console of {host} ends: {}", console.get(from..).unwrap_or_default())
        })
    }

    // --- faults of the network ---

    fn change(&self, change: impl FnOnce(&mut Faults)) -> Result<()> {
        let mut state = self.state();
        change(&mut state.faults);
        self.net.apply(&state.faults)
    }

    /// Cuts the host off in both directions. The host stays up, and its console still works.
    pub fn cut(&self, host: &str) -> Result<()> {
        self.change(|f| {
            f.deaf.insert(host.to_owned());
            f.mute.insert(host.to_owned());
        })
    }

    pub fn cut_one_way(&self, host: &str, way: Way) -> Result<()> {
        self.change(|f| {
            let lost = if way == Way::In { &mut f.deaf } else { &mut f.mute };
            lost.insert(host.to_owned());
        })
    }

    /// Separates the groups: hosts of different groups can't communicate. A host without a group
    /// reaches all hosts (the operator is `op`).
    pub fn partition(&self, groups: &[&[&str]]) -> Result<()> {
        self.change(|f| {
            for (at, group) in groups.iter().enumerate() {
                for other in groups.iter().enumerate().filter(|(i, _)| *i != at).flat_map(|(_, other)| other.iter()) {
                    group.iter().for_each(|host| f.block(host, other));
                }
            }
        })
    }

    /// Blocks the link between two hosts in both directions.
    pub fn block(&self, a: &str, b: &str) -> Result<()> {
        self.change(|f| {
            f.block(a, b);
            f.block(b, a);
        })
    }

    /// Loses frames of the host at random, `percent` in each direction.
    pub fn lose(&self, host: &str, percent: u8) -> Result<()> {
        self.change(|f| {
            f.loss.insert(host.to_owned(), percent.min(100));
        })
    }

    /// Ends every fault of the network.
    pub fn heal(&self) -> Result<()> {
        self.change(|f| *f = Faults::default())
    }

    /// Ends every fault of the network that names this host.
    pub fn heal_host(&self, host: &str) -> Result<()> {
        self.change(|f| f.heal(host))
    }

    // --- ending ---

    /// Leaves the hosts running after this process. A later [`Lab::start`] or [`Lab::remove`] with
    /// the same name ends them.
    pub fn keep(mut self) -> String {
        self.keep = true;
        let enter = format!("nsenter --net=/run/netns/{}", self.net.namespace(OPERATOR));
        let pull = format!("ip -n {} link set p-{}", self.net.bridge(), self.hosts.last().map_or("HOST", |h| h));
        format!(
            "a shell on a host:  {enter} ssh -F {} {}\ndisconnect a host:  {pull} down\nreconnect it:       {pull} up\n",
            self.ssh_config().display(),
            self.hosts.first().map_or("HOST", |h| h),
        )
    }

    /// Ends the kept or crashed lab of this name, and removes its files. It is no error if there is
    /// none.
    pub fn remove(name: &str) -> Result<()> {
        let root = image::lab_dir();
        if !root.exists() {
            return Ok(());
        }
        let lock = File::create(root.join(format!("{name}.lock"))).context("opening the lab's lock")?;
        lock.try_lock().with_context(|| format!("a lab {name:?} is up in another process"))?;
        let lab = Lab {
            name: name.to_owned(),
            dir: root.join("labs").join(name),
            base: PathBuf::new(),
            shared: None,
            net: Net::new(name),
            groups: Groups::find(&format!("remoor-lab-{name}")).map_err(anyhow::Error::msg)?,
            hosts: Vec::new(),
            changing: Mutex::default(),
            keep: false,
            _lock: lock,
        };
        lab.remove_all()
    }

    /// Removes everything that a lab of this name has on this machine, whichever process started
    /// it.
    fn remove_all(&self) -> Result<()> {
        self.groups.kill("")?;
        self.groups.remove("");
        self.net.remove();
        self.remove_disks()?;
        image::remove_tree(&self.dir)?;
        let _ = fs::remove_dir(image::lab_dir().join("labs"));
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(e) = self.remove_all() {
            eprintln!("lab: {} is not wholly gone: {e:#}", self.name);
        }
    }
}

/// Checks that this machine has enough inotify instances. The error names the command that raises
/// the limit, because raising the limit here would change the outer machine.
fn enough_inotify(hosts: usize) -> Result<()> {
    let need = hosts * INOTIFY_PER_HOST;
    match (machine::inotify_limit(), machine::inotify_used()) {
        (Some(limit), used) if limit < used + need => bail!(
            "{hosts} hosts need about {need} inotify instances, and of the {limit} that this machine allows {used} are in \
             use: sysctl fs.inotify.max_user_instances={}",
            used + need + 128
        ),
        _ => Ok(()),
    }
}

/// A hash (FNV-1a) that is the same on every machine and in every release. The standard library's
/// hasher is not.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
