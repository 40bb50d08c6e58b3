//! Verifies that a cleanup left nothing behind. Changes nothing. A path or unit whose state cannot
//! be read counts as not clean.

use super::program;
use super::serve::Tuning;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use remoor_host::systemd::{BusDeadline, BusError, SystemdManager, unit_name};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const UNIT_MAX: Duration = Duration::from_secs(10);
/// Maximum number of leftovers that are reported.
const LEFTOVERS_MAX: usize = 200;
/// Maximum number of directory entries read for one declared path.
const WALK_MAX: usize = 200_000;
const DEPTH_MAX: usize = 64;

/// Returns one line for each unit that is not stopped and disabled. Also returns one line for each
/// existing declared file that no glob of `keep` matches. Empty directories within a managed
/// directory (its path ends in `/`) are not reported.
pub(super) fn leftovers(tuning: &Tuning, units: &[String], files: &[String], keep: &[String]) -> Vec<String> {
    let mut found = unit_leftovers(tuning, units);
    match globs(keep) {
        Ok(keep) => files.iter().for_each(|declared| file_leftovers(declared, &keep, &mut found)),
        Err(why) => found.push(why),
    }
    if found.len() > LEFTOVERS_MAX {
        let more = found.len() - LEFTOVERS_MAX;
        found.truncate(LEFTOVERS_MAX);
        found.push(format!("and {more} more"));
    }
    found
}

/// Queries systemd over one bus connection. If systemd is not reachable, runs `systemctl` instead.
fn unit_leftovers(tuning: &Tuning, units: &[String]) -> Vec<String> {
    if units.is_empty() {
        return Vec::new();
    }
    let patience = BusDeadline { until: None, answer: UNIT_MAX, stop: Box::new(|| false) };
    let mut manager = SystemdManager::open(&tuning.systemd, patience);
    let ask = |unit: &String| {
        let shown = match &mut manager {
            Ok(manager) => manager.show(&unit_name(unit)).map_err(|e| format!("systemd did not answer: {e}")),
            Err(BusError::Absent) => show_by_systemctl(&tuning.systemctl, unit),
            Err(e) => Err(format!("systemd did not answer: {e}")),
        };
        match shown {
            Ok(shown) => unit_leftover(unit, &shown),
            Err(why) => Some(format!("unit {unit}: {why}")),
        }
    };
    units.iter().filter_map(ask).collect()
}

fn show_by_systemctl(systemctl: &Path, unit: &str) -> Result<BTreeMap<String, String>, String> {
    let mut command = Command::new(systemctl);
    command.args(["show", "--property=LoadState,ActiveState,UnitFileState", "--", unit]);
    let out = program::capture_output(&mut command, UNIT_MAX).map_err(|e| format!("systemctl failed: {e}"))?;
    let pairs = out.stdout.lines().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn unit_leftover(unit: &str, shown: &BTreeMap<String, String>) -> Option<String> {
    let value = |name: &str| shown.get(name).map(String::as_str);
    match (value("LoadState"), value("ActiveState"), value("UnitFileState").unwrap_or("")) {
        (Some("not-found"), Some("inactive" | "failed"), _) => None,
        (Some(_), Some("inactive" | "failed"), file) if !is_enabled(file) => None,
        (Some(_), Some("inactive" | "failed"), file) => Some(format!("unit {unit}: stopped, but {file}")),
        (Some(_), Some(active), _) => Some(format!("unit {unit}: {active}")),
        _ => Some(format!("unit {unit}: systemd gave no state")),
    }
}

/// Whether the unit starts at boot. A unit in a state such as `static`, `indirect` or `generated`
/// cannot be disabled.
fn is_enabled(unit_file_state: &str) -> bool {
    matches!(unit_file_state, "enabled" | "enabled-runtime")
}

fn file_leftovers(declared: &str, keep: &GlobSet, found: &mut Vec<String>) {
    let mut walk = Walk { keep, wanted: None, left: WALK_MAX, found };
    if !declared.starts_with('/') {
        walk.found.push(format!("{declared}: not an absolute path"));
    } else if let Some(dir) = declared.strip_suffix('/') {
        walk.walk_dir(Path::new(dir), 0);
    } else if has_glob(declared) {
        match globs(&[declared.to_owned()]) {
            Ok(wanted) => {
                walk.wanted = Some(wanted);
                walk.walk_dir(&literal_part(declared), 0);
            }
            Err(why) => walk.found.push(why),
        }
    } else {
        match fs::symlink_metadata(declared) {
            Ok(_) if !keep.is_match(declared) => walk.found.push(format!("{declared}: still exists")),
            Ok(_) => {}
            Err(e) if is_absent(&e) => {}
            Err(e) => walk.found.push(format!("{declared}: could not be examined: {e}")),
        }
    }
}

struct Walk<'a> {
    keep: &'a GlobSet,
    /// Matches the paths that count as leftovers, both files and directories. None: all files
    /// count, but no directories.
    wanted: Option<GlobSet>,
    left: usize,
    found: &'a mut Vec<String>,
}

impl Walk<'_> {
    /// Counts symbolic links as leftovers and does not follow them.
    fn walk_dir(&mut self, dir: &Path, depth: usize) {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if is_absent(&e) => return,
            Err(e) => return self.found.push(format!("{}: could not be examined: {e}", dir.display())),
        };
        for entry in entries {
            if self.left == 0 || depth > DEPTH_MAX {
                return self.found.push(format!("{}: too many entries or levels to examine", dir.display()));
            }
            self.left -= 1;
            let Ok(entry) = entry else {
                return self.found.push(format!("{}: could not be listed", dir.display()));
            };
            let path = entry.path();
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let counts = match &self.wanted {
                Some(wanted) => wanted.is_match(&path),
                None => !is_dir,
            };
            if counts && !self.keep.is_match(&path) {
                self.found.push(format!("{}: still exists", path.display()));
            }
            if is_dir {
                self.walk_dir(&path, depth + 1);
            }
        }
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn has_glob(path: &str) -> bool {
    path.contains(['*', '?', '[', '{'])
}

/// The deepest directory that contains every match of the glob.
fn literal_part(glob: &str) -> PathBuf {
    let plain = Path::new(glob).components().take_while(|c| !has_glob(&c.as_os_str().to_string_lossy()));
    plain.collect()
}

/// Compiles globs. `*` matches within a directory, `**` across directories. A path that ends in `/`
/// covers everything below it.
fn globs(patterns: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let whole = if pattern.ends_with('/') { format!("{pattern}**") } else { pattern.clone() };
        let glob = GlobBuilder::new(&whole).literal_separator(true).build();
        set.add(glob.map_err(|e| format!("{pattern}: not a glob: {}", e.kind()))?);
    }
    set.build().map_err(|e| format!("globs could not be compiled: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Tuning with which systemd is not reachable, so that only `systemctl` is used.
    fn tuning_with_systemctl(systemctl: &Path) -> Tuning {
        let systemd = remoor_host::systemd::SystemdSockets::in_runtime_dir(Path::new("/nonexistent"));
        Tuning { systemctl: systemctl.to_owned(), systemd, ..Tuning::default() }
    }

    fn check(dir: &Path, files: &[&str], keep: &[&str], expected: &[&str]) {
        let here = |list: &[&str]| list.iter().map(|f| format!("{}/{f}", dir.display())).collect::<Vec<_>>();
        let mut found = leftovers(&tuning_with_systemctl(Path::new("systemctl")), &[], &here(files), &here(keep));
        found.sort();
        let expected: Vec<String> = expected.iter().map(|f| format!("{}/{f}: still exists", dir.display())).collect();
        assert_eq!(found, expected, "{files:?} without {keep:?}");
    }

    #[test]
    fn declared_files_must_be_absent_unless_kept() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path();
        fs::create_dir_all(dir.join("etc/conf.d/empty")).unwrap();
        for file in ["etc/a.conf", "etc/b.conf", "etc/conf.d/c.conf"] {
            fs::write(dir.join(file), b"x").unwrap();
        }
        symlink("/nowhere", dir.join("etc/link")).unwrap();

        check(dir, &["etc/gone", "gone/below/", "gone/*.conf"], &[], &[]);
        check(dir, &["etc/a.conf"], &[], &["etc/a.conf"]);
        check(dir, &["etc/link"], &[], &["etc/link"]);
        check(dir, &["etc/*.conf"], &[], &["etc/a.conf", "etc/b.conf"]);
        check(dir, &["etc/**/*.conf"], &["etc/b.conf"], &["etc/a.conf", "etc/conf.d/c.conf"]);
        check(dir, &["etc/conf.d/"], &[], &["etc/conf.d/c.conf"]);
        check(dir, &["etc/"], &["etc/*.conf", "etc/conf.d/"], &["etc/link"]);
        check(dir, &["etc/a.conf/not-a-dir"], &[], &[]);
    }

    #[test]
    fn invalid_or_unreadable_input_is_not_clean() {
        assert_eq!(leftovers(&tuning_with_systemctl(Path::new("x")), &[], &["relative".into()], &[]).len(), 1);
        assert_eq!(leftovers(&tuning_with_systemctl(Path::new("x")), &[], &[], &["[".into()]).len(), 1);
        let found =
            leftovers(&tuning_with_systemctl(Path::new("/nonexistent/systemctl")), &["a.service".into()], &[], &[]);
        assert!(found[0].contains("systemctl failed"), "{found:?}");
    }

    #[test]
    fn units_must_be_stopped_and_disabled() {
        let dir = tempfile::tempdir().unwrap();
        for (load, active, file, clean) in [
            ("loaded", "inactive", "disabled", true),
            ("loaded", "failed", "static", true),
            ("masked", "inactive", "masked", true),
            ("not-found", "inactive", "", true),
            ("loaded", "active", "disabled", false),
            ("loaded", "inactive", "enabled", false),
            ("not-found", "active", "", false),
            ("loaded", "deactivating", "disabled", false),
        ] {
            let script = format!(
                "#!/bin/sh\n[ \"$4\" = etcd.service ] && printf 'LoadState={load}\\nActiveState={active}\\nUnitFileState={file}\\n'\n"
            );
            let fake = program::script(dir.path(), "systemctl", &script);
            let found = leftovers(&tuning_with_systemctl(&fake), &["etcd.service".into()], &[], &[]);
            assert_eq!(found.is_empty(), clean, "{load} {active} {file}: {found:?}");
        }
        let fake = program::script(
            dir.path(),
            "systemctl",
            "#!/bin/sh\necho System has not been booted with systemd >&2\nexit 1\n",
        );
        assert_eq!(
            leftovers(&tuning_with_systemctl(&fake), &["a".into()], &[], &[]),
            ["unit a: systemd gave no state"]
        );
    }
}
