//! A host's console: commands, files and processes without the network. On real machines, a serial
//! line or a management board provides this.

use super::host::Process;
use super::tool::{Output, command, run, wait_for};
use super::{BOOT_LIMIT, COMMAND_LIMIT, Lab};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Lab {
    /// Runs a command as root on the host, even while the host is cut off. Returns an error only if
    /// the command exceeds the command limit or can't be started.
    pub fn exec(&self, host: &str, argv: &[&str]) -> Result<Output> {
        self.exec_with(host, argv, None)
    }

    /// Like [`Lab::exec`], with a shell script that must succeed. Returns the output of the script.
    pub fn shell(&self, host: &str, script: &str) -> Result<String> {
        Ok(self.exec(host, &["sh", "-c", script])?.require_success(&format!("{host}: {script}"))?.text())
    }

    fn exec_with(&self, host: &str, argv: &[&str], stdin: Option<&[u8]>) -> Result<Output> {
        let pid = self.first_process(host).with_context(|| format!("{host} is off"))?;
        // A process that enters from outside would keep all capabilities of the outer root,
        // including CAP_SYS_TIME. Then `date -s` on a host would set the clock of this machine. So
        // the process gets only the capabilities that the host's own PID 1 may have.
        let bound = capabilities(pid)?;
        let pid = pid.to_string();
        let enter = format!("set -e\n{}exec \"$@\"", self.groups.enter("console"));
        let mut all = vec!["sh", "-c", &enter, "sh", "setpriv", &bound, "--inh-caps=-all", "nsenter", "-t", &pid];
        all.extend(["-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"]);
        if super::host::has_time_namespaces() {
            all.push("-T");
        }
        all.extend(["--", "env", "-i", "HOME=/root", "TERM=dumb", "LANG=C.UTF-8", PATH]);
        all.extend(argv);
        run(command(&all), stdin, COMMAND_LIMIT)
    }

    /// Runs a command on the host's disk, even if the host is switched off.
    fn on_disk(&self, host: &str, argv: &[&str], stdin: Option<&[u8]>) -> Result<Output> {
        if self.is_on(host) {
            return self.exec_with(host, argv, stdin);
        }
        let root = self.disk(host).join("root");
        let mut all = vec!["chroot", root.to_str().context("the lab's directory has a name in UTF-8")?];
        all.extend(argv);
        run(command(&all), stdin, COMMAND_LIMIT)
    }

    /// Writes a file on the host atomically, with the owner root, and creates its folders. This
    /// also works while the host is switched off.
    pub fn push(&self, host: &str, bytes: &[u8], dest: &str, mode: u32) -> Result<()> {
        let script = "set -e; mkdir -p \"$(dirname \"$1\")\"; cat > \"$1.lab\"; chmod \"$2\" \"$1.lab\"; mv -f \"$1.lab\" \"$1\"";
        let argv = ["sh", "-c", script, "sh", dest, &format!("{mode:o}")];
        self.on_disk(host, &argv, Some(bytes))?.require_success(&format!("putting {dest} on {host}"))?;
        Ok(())
    }

    /// The content of a file of the host. This also works while the host is switched off.
    pub fn read(&self, host: &str, path: &str) -> Result<Vec<u8>> {
        Ok(self.on_disk(host, &["cat", path], None)?.require_success(&format!("reading {path} of {host}"))?.stdout)
    }

    pub fn boot_id(&self, host: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(host, "/proc/sys/kernel/random/boot_id")?).trim().to_owned())
    }

    /// Every process of the host, PID 1 first. Processes of the console are not included.
    pub fn processes(&self, host: &str) -> Vec<Process> {
        let mut all: Vec<Process> =
            self.groups.pids(&format!("host/{host}")).into_iter().filter_map(read_process).collect();
        all.sort_by_key(|process| process.pid);
        all
    }

    /// Sends a signal to every process of the host with this name, except PID 1. The kernel keeps
    /// only 15 characters of a name. Returns the number of processes.
    pub fn kill(&self, host: &str, name: &str, signal: Signal) -> Result<usize> {
        let hit: Vec<Process> = self
            .processes(host)
            .into_iter()
            .filter(|p| p.pid != 1 && p.comm == name.get(..15).unwrap_or(name))
            .collect();
        for process in &hit {
            let _ = Pid::from_raw(process.outer).map(|pid| kill_process(pid, signal));
        }
        Ok(hit.len())
    }

    /// Waits until the host's systemd accepts commands.
    pub fn wait_console(&self, host: &str) -> Result<()> {
        wait_for(&format!("the console of {host}"), BOOT_LIMIT, || {
            let answer = self.exec(host, &["systemctl", "is-active", "ssh.service"]).ok()?;
            (answer.text() == "active").then_some(())
        })
    }
}

/// The bounding set of a process's capabilities, in the syntax of `setpriv`.
fn capabilities(pid: i32) -> Result<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mask =
        status.lines().find_map(|line| line.strip_prefix("CapBnd:")).context("no CapBnd in a process's status")?;
    let mask = u64::from_str_radix(mask.trim(), 16)?;
    const SYS_TIME: u64 = 1 << 25;
    ensure!(mask & SYS_TIME == 0, "a host that could set this machine's clock");
    let held: String = (0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| format!(",+cap_{bit}")).collect();
    Ok(format!("--bounding-set=-all{held}"))
}

/// Reads a process of a host. Such a process has an additional process id in a second namespace.
/// The nspawn process above it has none, so the result is None.
fn read_process(outer: i32) -> Option<Process> {
    let status = fs::read_to_string(format!("/proc/{outer}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if matches!(field("State:")?.chars().next(), Some('Z' | 'X')) {
        return None;
    }
    let outside = fs::read_to_string("/proc/self/status").ok()?;
    let depth = outside.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().count();
    let pid = field("NSpid:")?.split_whitespace().nth(depth)?.parse().ok()?;
    let command = fs::read(format!("/proc/{outer}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    Some(Process { outer, pid, comm: field("Name:")?.to_owned(), command })
}
