//! The state of services on a machine where systemd does not run, such as a container: from init
//! scripts, as goss determines it. Where `systemctl` is installed, it tells which units are
//! enabled.

use super::super::spawn::run;
use super::package::is_in_path;
use super::service::{ServiceState, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The state of `units`, by the names that were requested. All calls together take at most `limit`.
pub(super) fn show(units: &BTreeSet<String>, limit: Duration) -> BTreeMap<String, ServiceState> {
    let until = Instant::now() + limit;
    let systemctl = is_in_path(Path::new("systemctl"));
    let state = |unit: &String| match systemctl {
        true => offline_unit(unit, until),
        false => init_script(Path::new("/etc"), unit.strip_suffix(".service").unwrap_or(unit), until),
    };
    units.iter().map(|unit| (unit.clone(), state(unit))).collect()
}

/// The state of a systemd unit that nothing can run. `systemctl` reads from the unit files whether
/// it is enabled.
fn offline_unit(unit: &str, until: Instant) -> ServiceState {
    let enabled = succeeds(Command::new("systemctl").args(["--quiet", "is-enabled", "--", unit]), until)?;
    Ok(Unit { running: false, enabled, runlevels: Vec::new() })
}

/// The state of a service with an init script. `etc` is the directory `/etc`.
fn init_script(etc: &Path, name: &str, until: Instant) -> ServiceState {
    let script = etc.join("init.d").join(name).exists();
    let running = script && succeeds(Command::new("service").args([name, "status"]), until)?;
    let runlevels = runlevels(etc, name);
    Ok(Unit { running, enabled: !runlevels.is_empty(), runlevels })
}

/// The runlevels in which the service is started: `rc3.d/S20NAME` of System V, or
/// `runlevels/default/NAME` of OpenRC on Alpine.
fn runlevels(etc: &Path, name: &str) -> Vec<String> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let is_start = |link: &String| {
        link.strip_prefix('S')
            .and_then(|rest| rest.split_at_checked(2))
            .is_some_and(|(order, rest)| rest == name && order.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_level = |level: &str| !level.is_empty() && level.bytes().all(|b| b.is_ascii_digit());
    let mut levels = Vec::new();
    if etc.join("alpine-release").exists() {
        let all = names(&etc.join("runlevels"));
        levels.extend(all.into_iter().filter(|level| etc.join("runlevels").join(level).join(name).exists()));
    } else {
        for dir in names(etc) {
            let level = dir.strip_prefix("rc").and_then(|rest| rest.strip_suffix(".d")).filter(|level| is_level(level));
            if let Some(level) = level.filter(|_| names(&etc.join(&dir)).iter().any(is_start)) {
                levels.push(level.to_owned());
            }
        }
    }
    levels.sort();
    levels
}

/// Whether the command ends with the exit status 0. Err if it does not end in time.
fn succeeds(command: &mut Command, until: Instant) -> Result<bool, String> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err("too many services were asked for; there was no time for this one".to_owned());
    }
    if !is_in_path(Path::new(command.get_program())) {
        return Ok(false);
    }
    Ok(run(command.env("LC_ALL", "C"), left)?.status == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runlevels_of_links() {
        let etc = tempfile::tempdir().unwrap();
        let place = |path: &str| {
            let path = etc.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        ["rc2.d/S03cron", "rc3.d/S20cron", "rc3.d/K01ssh", "rc4.d/S01cronies", "rcS.d/S01cron"]
            .into_iter()
            .for_each(place);
        assert_eq!(runlevels(etc.path(), "cron"), ["2", "3"]);
        assert!(runlevels(etc.path(), "ssh").is_empty());
        let unit = init_script(etc.path(), "cron", Instant::now()).unwrap();
        assert_eq!((unit.enabled, unit.running), (true, false), "there is no script that could be asked");
        ["alpine-release", "runlevels/default/cron"].into_iter().for_each(place);
        assert_eq!(runlevels(etc.path(), "cron"), ["default"]);
    }
}
