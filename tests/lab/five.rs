//! The fleet of five hosts that the demo and the tests use: three masters and two workers, each
//! with etcd, contiv's network and nginx. Writes the fleet directory for a lab. Installs on the
//! hosts the programs that no playbook of the fleet installs.

use super::tool::find_program;
use super::{Host, Lab, Program};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

pub const HOSTS: [&str; 5] = ["m1", "m2", "m3", "w1", "w2"];
pub const MASTERS: [&str; 3] = ["m1", "m2", "m3"];
pub const WORKERS: [&str; 2] = ["w1", "w2"];

/// The systemd unit of the agent, as a user would install it.
const AGENT_UNIT: &str = include_str!("../../packaging/remoor.service");
/// The path of remoor on a host.
pub const REMOOR: &str = "/usr/local/bin/remoor";
/// The file in which every playbook of the fleet logs its runs.
pub const RUNS: &str = "/var/log/remoor-runs.log";

/// Writes the fleet into `dir` with the addresses of these hosts: `remoor.yml`, `inventory.yml`,
/// playbooks, templates, and the checks of the services that `remoor.yml` declares. `edit` may
/// change the text of each file, beginning with `remoor.yml`; it receives the path within the
/// fleet.
pub fn write(dir: &Path, hosts: &[Host], mut edit: impl FnMut(&str, String) -> String) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |from: &Path| fs::read_to_string(from).with_context(|| format!("reading {}", from.display()));
    let mut put = |name: &str, text: String| -> Result<String> {
        let (to, text) = (dir.join(name), edit(name, text));
        fs::create_dir_all(to.parent().context("a path within the fleet")?)?;
        fs::write(&to, &text).with_context(|| format!("writing {}", to.display()))?;
        Ok(text)
    };
    let five = source.join("tests/fleets/five");
    let config = put("remoor.yml", read(&five.join("remoor.yml"))?)?;
    put("inventory.yml", inventory(&read(&five.join("inventory.yml"))?, hosts)?)?;
    for folder in ["playbooks", "checks", "templates"] {
        for entry in fs::read_dir(source.join(folder))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let service = name.trim_end_matches(".yml");
            if folder != "checks" || config.contains(&format!("\n  {service}:")) {
                put(&format!("{folder}/{name}"), read(&entry.path())?)?;
            }
        }
    }
    Ok(())
}

/// The shipped services without a playbook. They are monitor-only.
pub const MONITORED: [&str; 3] = ["base", "chrony", "sshd"];

/// The text of the fleet's `remoor.yml`, with [`MONITORED`] in these groups.
pub fn with_monitored_services(config: &str, groups: &[&str]) -> String {
    let declared: String = MONITORED.iter().map(|name| format!("  {name}: {{provisioned: false}}\n")).collect();
    let mut config = config.replacen("\nservices:\n", &format!("\nservices:\n{declared}"), 1);
    for group in groups {
        let services = format!("\n  {group}:\n    services: [");
        assert!(config.contains(&services), "no services of {group} in {config}");
        config = config.replacen(&services, &format!("{services}{}, ", MONITORED.join(", ")), 1);
    }
    config
}

/// The shipped inventory, with its addresses replaced by those of `hosts`.
fn inventory(text: &str, hosts: &[Host]) -> Result<String> {
    let mut text = text.to_owned();
    // There are two steps, because a host's new address may be the old address of another host.
    for (at, name) in HOSTS.iter().enumerate() {
        text = text.replace(&format!("10.77.1.{}", 11 + at), &format!("<{name}>"));
    }
    for name in HOSTS {
        let host = hosts.iter().find(|host| host.name == name).with_context(|| format!("no host {name} given"))?;
        text = text.replace(&format!("<{name}>"), &host.ip.to_string());
    }
    Ok(text)
}

/// The hosts of a lab of five, with their current addresses.
pub fn hosts(lab: &Lab) -> Vec<Host> {
    HOSTS.iter().map(|name| lab.host(name)).collect()
}

/// The path of a program in the build directory of this program: `remoor`, or an example by its
/// name. `REMOOR_PROFILE=release` selects the program that users run, whatever the profile of this
/// program is.
pub fn built_program(name: &str) -> Result<PathBuf> {
    let program = std::env::current_exe().context("where this program is")?;
    // A test is in target/PROFILE/deps, and an example in target/PROFILE/examples.
    let profile = program.parent().and_then(Path::parent).context("this program is in no target directory")?;
    let profile = match std::env::var("REMOOR_PROFILE") {
        Ok(other) => profile.with_file_name(other),
        Err(_) => profile.to_owned(),
    };
    let places = [profile.join(name), profile.join("examples").join(name)];
    match places.iter().find(|place| place.is_file()) {
        Some(place) => Ok(place.clone()),
        None => bail!("{name} is not built (looked for {} and {})", places[0].display(), places[1].display()),
    }
}

/// Copies a program to a host. Returns an error if the program needs libraries that the host's
/// Debian lacks. On a newer distribution, the program must be linked statically (`-C
/// target-feature=+crt-static`).
pub fn install(lab: &Lab, host: &str, program: &Path, dest: &str) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    lab.push(host, &bytes, dest, 0o755)?;
    runs_there(lab, host, dest)
}

fn runs_there(lab: &Lab, host: &str, program: &str) -> Result<()> {
    let libraries = lab.exec(host, &["ldd", program])?;
    let message = format!("{}{}", libraries.text(), String::from_utf8_lossy(&libraries.stderr));
    ensure!(
        !message.contains("not found"),
        "{program} needs what the hosts' Debian does not have; link it with -C target-feature=+crt-static: {}",
        message.trim()
    );
    Ok(())
}

/// Starts the five hosts. Their disks have remoor and the stand-ins of contiv's programs. The
/// masters can log in to all hosts.
pub fn start(name: &str) -> Result<Lab> {
    let (remoor, contiv) = (built_program("remoor")?, built_program("contiv-standin")?);
    let programs: [Program<'_>; 3] = [
        (remoor.as_path(), REMOOR),
        (contiv.as_path(), "/usr/local/bin/netplugin"),
        (contiv.as_path(), "/usr/local/bin/netmaster"),
    ];
    let lab = Lab::start_with(name, &HOSTS, &programs)?;
    runs_there(&lab, HOSTS[0], REMOOR)?;
    lab.give_identity(&MASTERS)?;
    Ok(lab)
}

/// Installs the stand-ins of contiv's programs on every host.
pub fn install_contiv(lab: &Lab, standin: &Path) -> Result<()> {
    for host in HOSTS {
        install(lab, host, standin, "/usr/local/bin/netplugin")?;
        lab.shell(host, "ln -f /usr/local/bin/netplugin /usr/local/bin/netmaster")?;
    }
    Ok(())
}

/// Installs the agent and its unit on a host. The unit is neither started nor enabled.
pub fn install_agent(lab: &Lab, host: &str, remoor: &Path) -> Result<()> {
    install(lab, host, remoor, REMOOR)?;
    install_unit(lab, host)
}

/// Installs only the agent's unit, on a host that has the program already.
pub fn install_unit(lab: &Lab, host: &str) -> Result<()> {
    // The hosts have the program as `REMOOR`, and no package.
    let unit = AGENT_UNIT.replace("=/usr/bin/remoor ", &format!("={REMOOR} "));
    lab.push(host, unit.as_bytes(), "/etc/systemd/system/remoor.service", 0o644)?;
    lab.shell(host, "systemctl daemon-reload").map(drop)
}

/// One line of a host's log of playbook runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub time: String,
    pub phase: String,
    pub job: String,
    pub attempt: String,
    pub service: String,
}

/// The playbook runs on the host, oldest first, as the host itself logged them. This also works
/// while the host is cut off or switched off.
pub fn runs(lab: &Lab, host: &str) -> Result<Vec<Run>> {
    let text = lab.read(host, RUNS).unwrap_or_default();
    let line = |line: &str| -> Result<Run> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let [time, phase, job, attempt, service] =
            words.try_into().map_err(|_| anyhow::anyhow!("a line of {RUNS} on {host} reads {line:?}"))?;
        Ok(Run { time, phase, job, attempt, service })
    };
    String::from_utf8_lossy(&text).lines().map(line).collect()
}

/// The process id of a unit's main process on a host, or 0 if the unit does not run. A change shows
/// that the unit was restarted.
pub fn main_pid(lab: &Lab, host: &str, unit: &str) -> Result<u32> {
    let shown = lab.exec(host, &["systemctl", "show", "-p", "MainPID", "--value", unit])?;
    shown.require_success(&format!("systemctl show {unit} on {host}"))?.text().parse().context("a process id")
}

/// The user's own `ansible-playbook`, if this machine has one.
pub fn ansible() -> Option<PathBuf> {
    find_program("ansible-playbook")
}

#[test]
fn the_inventory_has_the_hosts_addresses() {
    let shipped =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleets/five/inventory.yml")).unwrap();
    // In this test, m2 gets the address that m1 has in the shipped inventory.
    let address = [[10, 77, 9, 50], [10, 77, 1, 11], [10, 77, 9, 13], [10, 77, 9, 14], [10, 77, 9, 15]];
    let hosts: Vec<Host> =
        HOSTS.iter().zip(address).map(|(name, ip)| Host { name: (*name).into(), ip: ip.into() }).collect();
    let text = inventory(&shipped, &hosts).unwrap();
    assert!(text.contains("m1: {ansible_host: 10.77.9.50}") && text.contains("{name: m1, addr: 10.77.9.50}"), "{text}");
    assert!(
        text.contains("m2: {ansible_host: 10.77.1.11}") && text.contains("w2: {ansible_host: 10.77.9.15}"),
        "{text}"
    );
    assert!(inventory(&shipped, &hosts[1..]).is_err());
}
