//! Finds the resources of this machine that belong to one service: its unit, processes, ports,
//! files, package and user.

use super::observe::ObserveError;
use super::spawn::run;
use remoor_host::files::Names;
use remoor_host::systemd::unit_name;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Timeout of one call of systemd or of the package manager.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of processes that are examined, and of resources of one type that are found.
const PROCESSES_MAX: usize = 1000;
const EACH_MAX: usize = 20;

/// The types and ids of the resources of the service `name`, in the order of a check file. Each
/// exists now. Err if there is none.
pub fn discover(name: &str) -> Result<Vec<(&'static str, String)>, ObserveError> {
    let unit = Unit::read(name);
    let pids = unit.pids(name);
    let package = package(name, unit.file.as_deref());
    let files: BTreeSet<String> = unit.file.iter().cloned().chain(package.iter().flat_map(|p| conffiles(p))).collect();
    let mut found: Vec<(&'static str, String)> = Vec::new();
    let mut extend = |kind: &'static str, ids: BTreeSet<String>| {
        found.extend(ids.into_iter().take(EACH_MAX).map(|id| (kind, id)));
    };
    extend("file", files.into_iter().filter(|path| Path::new(path).exists()).collect());
    extend("package", package.into_iter().collect());
    extend("port", ports(&pids));
    extend(
        "process",
        pids.iter().filter_map(|pid| read_proc(*pid, "comm")).map(|comm| comm.trim().to_owned()).collect(),
    );
    extend("service", if unit.loaded { BTreeSet::from([name.to_owned()]) } else { BTreeSet::new() });
    extend("user", user(&unit, &pids).into_iter().collect());
    if found.is_empty() {
        let message = format!("this machine has no unit, process or package `{name}`");
        return Err(ObserveError::Wrong(message));
    }
    Ok(found)
}

/// What systemd knows of the service. Empty where systemd does not run.
#[derive(Default)]
struct Unit {
    loaded: bool,
    file: Option<String>,
    user: Option<String>,
    cgroup: Option<String>,
}

impl Unit {
    fn read(name: &str) -> Self {
        let mut command = Command::new("systemctl");
        command.args(["show", "-p", "LoadState,FragmentPath,User,ControlGroup", "--", &unit_name(name)]);
        let Ok(output) = run(command.env("LC_ALL", "C"), LIMIT) else { return Self::default() };
        let text = output.stdout.text();
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let loaded = field("LoadState").as_deref() == Some("loaded");
        Self { loaded, file: field("FragmentPath"), user: field("User"), cgroup: field("ControlGroup") }
    }

    /// The processes of the unit, or without a unit those with the name of the service.
    fn pids(&self, name: &str) -> Vec<u32> {
        let list = self.cgroup.as_ref().map(|group| PathBuf::from(format!("/sys/fs/cgroup{group}/cgroup.procs")));
        if let Some(text) = list.and_then(|path| fs::read_to_string(path).ok()) {
            return text.lines().filter_map(|line| line.parse().ok()).take(PROCESSES_MAX).collect();
        }
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| read_proc(*pid, "comm").is_some_and(|comm| comm.trim() == name)).take(PROCESSES_MAX).collect()
    }
}

fn read_proc(pid: u32, file: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).ok()
}

/// The ports on which the processes listen. Only root can see the sockets of other users.
fn ports(pids: &[u32]) -> BTreeSet<String> {
    let mut inodes = BTreeSet::new();
    for pid in pids {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy();
            inodes.extend(target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')).map(str::to_owned));
        }
    }
    let mut found = BTreeSet::new();
    for (table, state) in [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")] {
        let text = fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, socket_state, ..] = fields[..] else { continue };
            let own = fields.get(9).is_some_and(|inode| inodes.contains(*inode));
            let port = local.rsplit_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
            if let Some(port) = port.filter(|_| own && socket_state == state) {
                found.insert(format!("{table}:{port}"));
            }
        }
    }
    found
}

/// The package that installed the unit, or the installed package with the name of the service.
fn package(name: &str, unit_file: Option<&str>) -> Option<String> {
    let ask = |arguments: &[&str]| {
        let output = run(Command::new(arguments[0]).args(&arguments[1..]).env("LC_ALL", "C"), LIMIT).ok()?;
        (output.status == 0).then(|| output.stdout.text())
    };
    if let Some(file) = unit_file {
        // On a system with a merged /usr, dpkg knows the file by its older path.
        for path in [file, file.strip_prefix("/usr").unwrap_or(file)] {
            if let Some(owner) =
                ask(&["dpkg-query", "-S", path]).and_then(|text| text.split([':', ',']).next().map(str::to_owned))
            {
                return Some(owner);
            }
        }
        if let Some(owner) = ask(&["rpm", "-qf", "--qf", "%{NAME}", file]) {
            return Some(owner);
        }
    }
    let is_installed = ask(&["dpkg-query", "-W", "-f", "${Status}", name])
        .is_some_and(|text| text.ends_with(" installed"))
        || ask(&["rpm", "-q", name]).is_some();
    is_installed.then(|| name.to_owned())
}

/// The configuration files of a Debian package.
fn conffiles(package: &str) -> Vec<String> {
    let read = |name: String| fs::read_to_string(Path::new("/var/lib/dpkg/info").join(name)).ok();
    let text = read(format!("{package}.conffiles")).unwrap_or_default();
    text.lines().filter(|line| line.starts_with("/etc/")).map(str::to_owned).collect()
}

/// The user of the unit, or of its first process that does not belong to root.
fn user(unit: &Unit, pids: &[u32]) -> Option<String> {
    let owner = |pid: &u32| fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid()).filter(|uid| *uid != 0);
    unit.user.clone().or_else(|| pids.iter().find_map(owner).map(|uid| Names::load().owner(uid).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_ports_of_a_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(ports(&[std::process::id()]).contains(&format!("tcp:{port}")));
        assert!(discover("no-such-service").is_err());
    }
}
