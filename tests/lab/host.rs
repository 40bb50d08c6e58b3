//! One host: its disk, the files that an installer writes on it, its power, and its removal.

use super::net::OPERATOR;
use super::tool::{attempt, run_tool, wait_for};
use super::{BOOT_LIMIT, Lab, Program, image};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A host's name, and its address on the lab's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    pub ip: Ipv4Addr,
}

/// The way in which a host is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// An orderly shutdown, as by `systemctl reboot` or `poweroff`.
    Orderly,
    /// The power is cut. No process and no connection ends in an orderly way.
    Cut,
}

/// One process of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The process id on this machine.
    pub outer: i32,
    /// The process id on the host.
    pub pid: i32,
    /// The name that the kernel has for the process, at most 15 characters.
    pub comm: String,
    pub command: String,
}

impl Lab {
    pub(super) fn disk(&self, host: &str) -> PathBuf {
        self.dir.join("hosts").join(host)
    }

    fn root(&self, host: &str) -> PathBuf {
        self.disk(host).join("root")
    }

    fn machine(&self, host: &str) -> String {
        format!("remoor-lab-{}-{host}", self.name)
    }

    /// Copies the programs of all hosts into the layer that the hosts share.
    pub(super) fn fill_shared_layer(&self, programs: &[Program<'_>]) -> Result<()> {
        let Some(shared) = &self.shared else { return Ok(()) };
        for (program, dest) in programs {
            let to = shared.join(dest.trim_start_matches('/'));
            fs::create_dir_all(to.parent().context("a path below the root")?)?;
            fs::copy(program, &to).with_context(|| format!("copying {} to the lab", program.display()))?;
        }
        Ok(())
    }

    /// Mounts a host's disk: the image, the shared layer if `shared` is given, and the host's own
    /// layer.
    pub(super) fn mount(&self, host: &str, shared: Option<&Path>) -> Result<()> {
        let disk = self.disk(host);
        for part in ["upper", "work", "root"] {
            fs::create_dir_all(disk.join(part))?;
        }
        let layers: Vec<&Path> = shared.into_iter().chain([self.base.as_path()]).collect();
        mount_overlay(&layers, &disk)
    }

    /// Writes the files that an installer writes on a new disk: names, keys, permitted logins.
    pub(super) fn seed(&self, host: &str) -> Result<()> {
        let root = self.root(host);
        let put = |path: &str, text: &str, mode: u32| -> Result<()> {
            let file = root.join(path);
            fs::create_dir_all(file.parent().context("a path below the root")?)?;
            fs::write(&file, text).with_context(|| format!("writing {path} of {host}"))?;
            Ok(fs::set_permissions(&file, fs::Permissions::from_mode(mode))?)
        };
        put("etc/hostname", &format!("{host}\n"), 0o644)?;
        let id = fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', "");
        put("etc/machine-id", &id, 0o444)?;
        // Inotify instances of the outer machine are scarce. So the units that watch for password
        // questions are masked, because nobody would answer. A login only starts its session, so
        // root's own service manager is masked too.
        for unit in ["user@.service", "systemd-ask-password-console.path", "systemd-ask-password-wall.path"] {
            let file = root.join("etc/systemd/system").join(unit);
            let _ = fs::remove_file(&file);
            std::os::unix::fs::symlink("/dev/null", &file).with_context(|| format!("masking {unit}"))?;
        }
        let addresses = self.state().addresses.clone();
        let mut hosts = format!("127.0.0.1 localhost\n{} {OPERATOR}\n", self.operator_ip());
        addresses.iter().for_each(|(name, ip)| hosts += &format!("{ip} {name}\n"));
        put("etc/hosts", &hosts, 0o644)?;
        let key = root.join("etc/ssh/ssh_host_ed25519_key");
        make_key(&key, host)?;
        fs::copy(key.with_extension("pub"), self.disk(host).join("host_key.pub"))?;
        let keys = [self.operator_key(), self.fleet_key()].map(|key| fs::read_to_string(key.with_extension("pub")));
        let keys = keys.into_iter().collect::<Result<String, _>>()?;
        put("root/.ssh/authorized_keys", &keys, 0o600)?;
        fs::set_permissions(root.join("root/.ssh"), fs::Permissions::from_mode(0o700))?;
        fs::write(self.disk(host).join("address"), addresses[host].to_string())?;
        Ok(())
    }

    /// Writes the operator's `ssh_config` and `known_hosts` for the current hosts.
    pub(super) fn write_access(&self) -> Result<()> {
        let mut known = String::new();
        let mut config = format!(
            "Host *\n User root\n IdentityFile {}\n IdentitiesOnly yes\n BatchMode yes\n UserKnownHostsFile {}\n \
             GlobalKnownHostsFile none\n StrictHostKeyChecking yes\n ConnectTimeout 5\n ServerAliveInterval 2\n LogLevel ERROR\n",
            self.operator_key().display(),
            self.known_hosts().display()
        );
        for name in &self.hosts {
            let ip = self.host(name).ip;
            known += &format!("{name},{ip} {}\n", self.host_key(name)?);
            config += &format!("Host {name}\n HostName {ip}\n");
        }
        fs::write(self.known_hosts(), known)?;
        fs::write(self.ssh_config(), config)?;
        Ok(())
    }

    /// The host's SSH key from the creation of its disk, as type and base64.
    pub fn host_key(&self, host: &str) -> Result<String> {
        let line = fs::read_to_string(self.disk(host).join("host_key.pub"))?;
        Ok(line.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
    }

    /// Enables these hosts to log in to all other hosts as root. Every manager must be able to do
    /// so.
    pub fn give_identity(&self, hosts: &[&str]) -> Result<()> {
        let (key, known) = (fs::read(self.fleet_key())?, fs::read(self.known_hosts())?);
        for host in hosts {
            self.push(host, &key, "/root/.ssh/id_ed25519", 0o600)?;
            self.push(host, &known, "/root/.ssh/known_hosts", 0o600)?;
        }
        Ok(())
    }

    // --- power ---

    /// Switches the host on. Returns before the host has booted.
    pub(super) fn power_on(&self, host: &str) -> Result<()> {
        if !self.groups.pids(&format!("power/{host}")).is_empty() {
            return Ok(());
        }
        for part in [format!("power/{host}"), format!("host/{host}")] {
            self.groups.make(&part)?;
        }
        let disk = self.disk(host);
        fs::write(disk.join("order"), "on")?;
        fs::write(disk.join("power.sh"), self.power_script(host))?;
        let log = File::options().create(true).append(true).open(disk.join("console.log"))?;
        let mut supply = Command::new("sh");
        supply.arg(disk.join("power.sh")).current_dir("/").process_group(0);
        supply.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut supply = supply.spawn().context("starting a host's power supply")?;
        // This wait only prevents a zombie. If the lab is kept, the process of the power supply
        // runs longer than this process.
        std::thread::spawn(move || supply.wait());
        Ok(())
    }

    /// The script of the host's power supply. It boots the host, also after every reboot (nspawn's
    /// exit code 133). Each boot gets a new network namespace, so no socket, address or route
    /// outlives the host.
    fn power_script(&self, host: &str) -> String {
        let at = self.hosts.iter().position(|name| name == host).unwrap_or(0) as u8;
        let disk = self.disk(host);
        let (own_namespace, machine) = (self.net.namespace(host), self.machine(host));
        let clock = if has_time_namespaces() { "unshare --time --boottime=-$up --monotonic=-$up --" } else { "" };
        format!(
            "set -eu\ntrap '' HUP INT\ncd '{disk}'\n{enter_power}\
             while :; do\n\
             ip netns del {own_namespace} 2>/dev/null || :\n\
             ip netns add {own_namespace}\n\
             {plug}\
             up=$(cut -d. -f1 /proc/uptime)\nrc=0\necho \"-- boot of {host}\"\n\
             (\n{enter_host}\
             exec {clock} env SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --settings=no --keep-unit --register=no \
             --boot --machine={machine} --hostname={host} --directory='{disk}/root' --network-namespace-path=/run/netns/{own_namespace} \
             --capability=CAP_NET_ADMIN --drop-capability=CAP_MKNOD,CAP_SYS_TIME --console=pipe --link-journal=no \
             --resolv-conf=off --timezone=off\n) || rc=$?\n\
             ip -n {bridge} link del p-{host} 2>/dev/null || :\n\
             ip netns del {own_namespace} 2>/dev/null || :\n\
             rmdir /run/systemd/nspawn/propagate/{machine} 2>/dev/null || :\n\
             echo \"-- end of {host}: $rc\"\n\
             case $(cat order) in\n off) exit 0;;\n cycle) echo on > order;;\n *) [ $rc = 133 ] || exit 0;;\nesac\ndone\n",
            disk = disk.display(),
            enter_power = self.groups.enter(&format!("power/{host}")),
            enter_host = self.groups.enter(&format!("host/{host}")),
            plug = self.net.plug(host, 11 + at, "$(cat address)"),
            bridge = self.net.bridge(),
        )
    }

    pub fn is_on(&self, host: &str) -> bool {
        self.first_process(host).is_some()
    }

    /// The process id of the host's PID 1 on this machine.
    pub(super) fn first_process(&self, host: &str) -> Option<i32> {
        self.processes(host).into_iter().find(|p| p.pid == 1 && p.comm == "systemd").map(|p| p.outer)
    }

    /// Restarts the host, and waits until its sshd answers. If the host is cut off, waits until it
    /// has booted.
    pub fn reboot(&self, host: &str, how: Power) -> Result<()> {
        let old = self.first_process(host).with_context(|| format!("{host} is off"))?;
        let order = if how == Power::Cut { "cycle" } else { "on" };
        fs::write(self.disk(host).join("order"), order)?;
        self.go_down(host, how, old, "reboot")?;
        wait_for(&format!("{host} to boot"), BOOT_LIMIT, || self.first_process(host).filter(|pid| *pid != old))?;
        let cut = self.state().faults.deaf.contains(host) || self.state().faults.mute.contains(host);
        if cut { self.wait_console(host) } else { self.wait_ssh(host) }
    }

    /// Switches the host off. Its disk stays and can be read and written.
    pub fn poweroff(&self, host: &str, how: Power) -> Result<()> {
        fs::write(self.disk(host).join("order"), "off")?;
        if let Some(pid) = self.first_process(host) {
            self.go_down(host, how, pid, "poweroff")?;
        }
        let supply = format!("power/{host}");
        wait_for(&format!("{host} to be off"), BOOT_LIMIT, || self.groups.pids(&supply).is_empty().then_some(()))
    }

    /// Switches the host on and waits until its sshd answers.
    pub fn poweron(&self, host: &str) -> Result<()> {
        self.power_on(host)?;
        self.wait_ssh(host)
    }

    fn go_down(&self, host: &str, how: Power, pid: i32, verb: &str) -> Result<()> {
        if how == Power::Orderly {
            self.resume(host)?;
            self.exec(host, &["systemctl", "--no-block", verb])?
                .require_success(&format!("systemctl {verb} on {host}"))?;
        } else {
            self.net.unplug(host);
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
            self.resume(host)?;
        }
        wait_for(&format!("{host} to go down"), BOOT_LIMIT, || (self.first_process(host) != Some(pid)).then_some(()))
    }

    /// Freezes every process of the host. Its kernel still answers pings and TCP handshakes.
    pub fn pause(&self, host: &str) -> Result<()> {
        self.groups.freeze(&format!("host/{host}"), true)
    }

    pub fn resume(&self, host: &str) -> Result<()> {
        self.groups.freeze(&format!("host/{host}"), false)
    }

    /// Gives the host a new disk and boots it. Nothing of the old disk remains. The machine id and
    /// the SSH host key are new.
    pub fn wipe(&self, host: &str) -> Result<()> {
        self.poweroff(host, Power::Cut)?;
        run_tool(&["umount", &self.root(host).display().to_string()])?;
        for part in ["upper", "work"] {
            image::remove_tree(&self.disk(host).join(part))?;
        }
        self.mount(host, None)?;
        self.seed(host)?;
        self.write_access()?;
        self.poweron(host)
    }

    /// Gives the host another address, for now and for later boots. No other host is informed.
    pub fn readdress(&self, host: &str, ip: Ipv4Addr) -> Result<()> {
        let old = self.host(host).ip;
        self.state().addresses.insert(host.to_owned(), ip);
        fs::write(self.disk(host).join("address"), ip.to_string())?;
        if self.is_on(host) {
            let space = self.net.namespace(host);
            run_tool(&["ip", "-n", &space, "addr", "del", &format!("{old}/24"), "dev", "eth0"])?;
            run_tool(&["ip", "-n", &space, "addr", "add", &format!("{ip}/24"), "dev", "eth0"])?;
        }
        self.write_access()
    }

    /// The address `last` of the lab's network, for [`Lab::readdress`]. Hosts have the numbers 11
    /// and higher.
    pub fn address(&self, last: u8) -> Ipv4Addr {
        self.net.address(last)
    }

    pub(super) fn remove_disks(&self) -> Result<()> {
        let hosts = self.dir.join("hosts");
        for entry in fs::read_dir(&hosts).into_iter().flatten().flatten() {
            let (root, host) = (entry.path().join("root"), entry.file_name().to_string_lossy().into_owned());
            if let Ok(meta) = fs::metadata(&root) {
                // A killed nspawn leaves these files outside the lab's directory.
                let _ = fs::remove_file(format!("/run/systemd/nspawn/locks/inode-{}:{}", meta.dev(), meta.ino()));
            }
            let _ = fs::remove_dir(format!("/run/systemd/nspawn/propagate/{}", self.machine(&host)));
            unmount(&root)?;
        }
        Ok(())
    }
}

fn mount_overlay(lower: &[&Path], disk: &Path) -> Result<()> {
    let lower: Vec<String> = lower.iter().map(|layer| layer.display().to_string()).collect();
    let layers = format!("lowerdir={0},upperdir={1}/upper,workdir={1}/work", lower.join(":"), disk.display());
    let root = disk.join("root").display().to_string();
    run_tool(&["mount", "-t", "overlay", "remoor-lab", "-o", &layers, &root])?;
    Ok(())
}

/// Unmounts `root` if it is a mount. The unmount is repeated, because a process that ended a moment
/// ago may still use the mount.
fn unmount(root: &Path) -> Result<()> {
    let place = root.display().to_string();
    wait_for(&format!("{place} to be free"), Duration::from_secs(60), || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = mounts.lines().any(|line| line.split(' ').nth(1) == Some(&place));
        if mounted {
            attempt(&["umount", &place]);
        }
        (!mounted).then_some(())
    })
}

/// Tries an overlay in the lab's directory. The root file system of a container often does not
/// support a second overlay.
pub(super) fn overlay_works() -> Result<(), String> {
    let dir = image::lab_dir();
    let attempt = || -> Result<()> {
        fs::create_dir_all(&dir)?;
        let probe = tempfile::tempdir_in(&dir)?;
        let disk = probe.path();
        for part in ["base", "upper", "work", "root"] {
            fs::create_dir(disk.join(part))?;
        }
        mount_overlay(&[&disk.join("base")], disk)?;
        let written = fs::write(disk.join("root/probe"), "");
        unmount(&disk.join("root"))?;
        Ok(written?)
    };
    attempt().map_err(|e| format!("no overlay mounts in {} (REMOOR_LAB_DIR names another place): {e:#}", dir.display()))
}

pub(super) fn has_time_namespaces() -> bool {
    Path::new("/proc/self/ns/time").exists()
}

pub(super) fn make_key(file: &Path, comment: &str) -> Result<()> {
    let path = file.to_str().context("the lab's directory has a name in UTF-8")?;
    let _ = fs::remove_file(file);
    run_tool(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])?;
    ensure!(file.exists(), "ssh-keygen made no {path}");
    Ok(())
}
