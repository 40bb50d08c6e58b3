//! The addresses, ports and directories of the loopback hosts, and the programs of this machine
//! that the hosts run. This module creates the directories and starts nothing.
//!
//! Each host has two addresses. Its services listen on the back address. All clients use the front
//! address, on which the relay listens. So the relay is the only network between the hosts, and a
//! cut in the relay affects all traffic.

use crate::lab::five::{HOSTS, built_program};
use crate::lab::tool::{find_program, run_tool};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub const SSH: u16 = 20022;
pub const GOSSIP: u16 = 27946;
pub const API: u16 = 27947;
pub const ETCD: u16 = 22379;
pub const ETCD_PEER: u16 = 22380;
pub const NGINX: u16 = 28080;
/// The TCP ports that the relay forwards. Gossip uses UDP too.
pub const TCP: [u16; 6] = [SSH, GOSSIP, API, ETCD, ETCD_PEER, NGINX];

const CTL: &str = include_str!("ctl");

/// The set of hosts of one user. A user has at most one set at a time.
#[derive(Debug, Clone)]
pub struct Place {
    pub base: PathBuf,
    /// The third number of the hosts' IP addresses.
    pub net: u8,
}

/// The programs that the hosts run.
pub struct Programs {
    pub sshd: PathBuf,
    pub keygen: PathBuf,
    pub nginx: PathBuf,
    pub etcd: PathBuf,
    pub remoor: PathBuf,
}

impl Place {
    /// The base directory. It is in the directory for temporary files, because paths of sockets
    /// must be short.
    pub fn base() -> PathBuf {
        std::env::temp_dir().join(format!("remoor-demo-{}", rustix::process::getuid().as_raw()))
    }

    pub fn front_address(&self, host: &str) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.net, 11 + number(host))
    }

    pub fn back_address(&self, host: &str) -> Ipv4Addr {
        Ipv4Addr::new(127, 77, self.net, 111 + number(host))
    }

    pub fn dir(&self, host: &str) -> PathBuf {
        self.base.join(host)
    }

    /// The data directory of a host's agent.
    pub fn data(&self, host: &str) -> PathBuf {
        self.dir(host).join("remoor")
    }

    pub fn socket(&self, host: &str) -> PathBuf {
        self.dir(host).join("run/remoor.sock")
    }

    /// The socket on which the base process accepts orders.
    pub fn ground() -> PathBuf {
        Self::base().join("ground.sock")
    }

    /// Creates the base directory, which only this user may enter, and the directory tree of every
    /// host with its keys.
    pub fn make(&self, programs: &Programs) -> Result<()> {
        let mut private = fs::DirBuilder::new();
        private.mode(0o700).create(&self.base).with_context(|| format!("creating {}", self.base.display()))?;
        let operator = self.base.join("operator_key");
        key(programs, &operator)?;
        fs::copy(operator.with_extension("pub"), self.base.join("authorized_keys"))?;
        let mut config = String::new();
        let mut known = String::new();
        for host in HOSTS {
            let dir = self.dir(host);
            for part in ["etc/services", "log", "run", "ssh", "var"] {
                fs::create_dir_all(dir.join(part))?;
            }
            key(programs, &dir.join("ssh/ssh_host_ed25519_key"))?;
            fs::write(dir.join("ssh/sshd_config"), self.sshd_config(host))?;
            fs::write(dir.join("ctl"), CTL)?;
            fs::set_permissions(dir.join("ctl"), fs::Permissions::from_mode(0o755))?;
            let public = fs::read_to_string(dir.join("ssh/ssh_host_ed25519_key.pub"))?;
            known += &format!("[{}]:{SSH} {public}", self.front_address(host));
            config += &format!("Host {host}\n  HostName {}\n", self.front_address(host));
        }
        let base = self.base.display();
        config += &format!(
            "Host *\n  Port {SSH}\n  IdentityFile {base}/operator_key\n  IdentitiesOnly yes\n  \
             UserKnownHostsFile {base}/known_hosts\n  StrictHostKeyChecking yes\n"
        );
        fs::write(self.base.join("known_hosts"), known)?;
        fs::write(self.base.join("ssh_config"), config)?;
        Ok(())
    }

    fn sshd_config(&self, host: &str) -> String {
        format!(
            "ListenAddress {}:{SSH}\nHostKey {}\nAuthorizedKeysFile {}\nUsePAM no\nStrictModes no\nPidFile none\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\nPrintLastLog no\n\
             LogLevel VERBOSE\nSetEnv REMOOR_HOST={host}\n",
            self.back_address(host),
            self.dir(host).join("ssh/ssh_host_ed25519_key").display(),
            self.base.join("authorized_keys").display(),
        )
    }

    pub fn front_socket(&self, host: &str, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.front_address(host), port)
    }

    pub fn back_socket(&self, host: &str, port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(self.back_address(host), port)
    }
}

/// Removes the base directory of an earlier run. Returns an error if `base` belongs to another
/// user.
pub fn remove(base: &Path) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(base) else { return Ok(()) };
    let is_ours = found.is_dir() && found.uid() == rustix::process::getuid().as_raw();
    ensure!(is_ours, "{} exists and is not a directory of this user", base.display());
    fs::remove_dir_all(base).with_context(|| format!("removing {}", base.display()))
}

fn number(host: &str) -> u8 {
    HOSTS.iter().position(|name| *name == host).expect("one of the five") as u8
}

fn key(programs: &Programs, path: &Path) -> Result<()> {
    let path = path.to_str().context("a path in UTF-8")?;
    let program = programs.keygen.to_str().context("a path in UTF-8")?;
    run_tool(&[program, "-q", "-t", "ed25519", "-N", "", "-C", "remoor demo", "-f", path]).map(drop)
}

impl Programs {
    /// Finds the programs that the hosts run. The error names the missing packages.
    pub fn find() -> Result<Programs> {
        let mut missing = Vec::new();
        let mut find = |name: &str, package: &'static str| {
            program(name).unwrap_or_else(|| {
                missing.push(package);
                PathBuf::new()
            })
        };
        let sshd = find("sshd", "openssh-server");
        let keygen = find("ssh-keygen", "openssh-client");
        let _used_by_the_managers = find("ssh", "openssh-client");
        let (nginx, etcd) = (find("nginx", "nginx-light"), find("etcd", "etcd-server"));
        missing.dedup();
        ensure!(missing.is_empty(), "this machine lacks the packages {}: install them", missing.join(", "));
        Ok(Programs { sshd, keygen, nginx, etcd, remoor: built_program("remoor")? })
    }
}

/// The directory next to the build directory, into which `tests/tools.sh` downloads programs
/// without root.
pub fn tools() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let dir = program.ancestors().nth(3)?.join("tools/bin");
    dir.is_dir().then_some(dir)
}

fn program(name: &str) -> Option<PathBuf> {
    let fetched = tools().map(|dir| dir.join(name)).filter(|file| file.is_file());
    fetched.or_else(|| find_program(name))
}

/// The search path of the processes of the hosts.
pub fn search_path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let fetched = tools().map(|dir| format!("{}:", dir.display())).unwrap_or_default();
    format!("{fetched}{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}
