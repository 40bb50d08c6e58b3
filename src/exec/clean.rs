//! Whether cleanup left anything: it is verified, never trusted. Looks only, and what can't be looked at is not clean.

use super::program;
use super::serve::Tuning;
use crate::systemd::{Fault, Manager, Patience, unit_name};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const UNIT_MAX: Duration = Duration::from_secs(10);
/// So many leftovers are named.
const LEFTOVERS_MAX: usize = 200;
/// So many directory entries are looked at for one declared path.
const WALK_MAX: usize = 200_000;
const DEPTH_MAX: usize = 64;

/// One line for each unit that is not stopped and disabled and each declared file that exists and that no glob of `keep`
/// covers. Of a managed directory (its path ends in `/`) the files count, not the emptied directories.
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

/// In one connection, and where systemd does not answer, by the program.
fn unit_leftovers(tuning: &Tuning, units: &[String]) -> Vec<String> {
    if units.is_empty() {
        return Vec::new();
    }
    let patience = Patience { until: None, answer: UNIT_MAX, stop: Box::new(|| false) };
    let mut manager = Manager::open(&tuning.systemd, patience);
    let ask = |unit: &String| {
        let shown = match &mut manager {
            Ok(manager) => manager.show(&unit_name(unit)).map_err(|e| format!("systemd could not be asked: {e}")),
            Err(Fault::Absent) => by_program(&tuning.systemctl, unit),
            Err(e) => Err(format!("systemd could not be asked: {e}")),
        };
        match shown {
            Ok(shown) => unit_leftover(unit, &shown),
            Err(why) => Some(format!("unit {unit}: {why}")),
        }
    };
    units.iter().filter_map(ask).collect()
}

fn by_program(systemctl: &Path, unit: &str) -> Result<BTreeMap<String, String>, String> {
    let mut command = Command::new(systemctl);
    command.args(["show", "--property=LoadState,ActiveState,UnitFileState", "--", unit]);
    let out = program::output(&mut command, UNIT_MAX).map_err(|e| format!("systemctl could not be asked: {e}"))?;
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
        _ => Some(format!("unit {unit}: systemd does not answer")),
    }
}

/// Starts at boot. `static`, `indirect`, `generated` and such units have nothing of their own to disable.
fn is_enabled(unit_file_state: &str) -> bool {
    matches!(unit_file_state, "enabled" | "enabled-runtime")
}

fn file_leftovers(declared: &str, keep: &GlobSet, found: &mut Vec<String>) {
    let mut walk = Walk { keep, wanted: None, left: WALK_MAX, found };
    if !declared.starts_with('/') {
        walk.found.push(format!("{declared}: not an absolute path"));
    } else if let Some(dir) = declared.strip_suffix('/') {
        walk.below(Path::new(dir), 0);
    } else if has_glob(declared) {
        match globs(&[declared.to_owned()]) {
            Ok(wanted) => {
                walk.wanted = Some(wanted);
                walk.below(&literal_part(declared), 0);
            }
            Err(why) => walk.found.push(why),
        }
    } else {
        match fs::symlink_metadata(declared) {
            Ok(_) if !keep.is_match(declared) => walk.found.push(format!("{declared}: still there")),
            Ok(_) => {}
            Err(e) if is_absent(&e) => {}
            Err(e) => walk.found.push(format!("{declared}: could not be looked at: {e}")),
        }
    }
}

struct Walk<'a> {
    keep: &'a GlobSet,
    /// Matching paths only, directories too; without it, every file.
    wanted: Option<GlobSet>,
    left: usize,
    found: &'a mut Vec<String>,
}

impl Walk<'_> {
    /// Links are leftovers themselves and not followed.
    fn below(&mut self, dir: &Path, depth: usize) {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if is_absent(&e) => return,
            Err(e) => return self.found.push(format!("{}: could not be looked at: {e}", dir.display())),
        };
        for entry in entries {
            if self.left == 0 || depth > DEPTH_MAX {
                return self.found.push(format!("{}: too much to look at", dir.display()));
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
                self.found.push(format!("{}: still there", path.display()));
            }
            if is_dir {
                self.below(&path, depth + 1);
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

/// The deepest directory above every match of a glob.
fn literal_part(glob: &str) -> PathBuf {
    let plain = Path::new(glob).components().take_while(|c| !has_glob(&c.as_os_str().to_string_lossy()));
    plain.collect()
}

/// `*` stays within a directory, `**` does not; a path that ends in `/` covers all below it.
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

    /// No systemd answers, only the program.
    fn by(systemctl: &Path) -> Tuning {
        let systemd = crate::systemd::Sockets::below(Path::new("/nonexistent"));
        Tuning { systemctl: systemctl.to_owned(), systemd, ..Tuning::default() }
    }

    fn check(dir: &Path, files: &[&str], keep: &[&str], expected: &[&str]) {
        let here = |list: &[&str]| list.iter().map(|f| format!("{}/{f}", dir.display())).collect::<Vec<_>>();
        let mut found = leftovers(&by(Path::new("systemctl")), &[], &here(files), &here(keep));
        found.sort();
        let expected: Vec<String> = expected.iter().map(|f| format!("{}/{f}: still there", dir.display())).collect();
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
    fn what_can_not_be_understood_is_not_clean() {
        assert_eq!(leftovers(&by(Path::new("x")), &[], &["relative".into()], &[]).len(), 1);
        assert_eq!(leftovers(&by(Path::new("x")), &[], &[], &["[".into()]).len(), 1);
        let found = leftovers(&by(Path::new("/nonexistent/systemctl")), &["a.service".into()], &[], &[]);
        assert!(found[0].contains("could not be asked"), "{found:?}");
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
            let found = leftovers(&by(&fake), &["etcd.service".into()], &[], &[]);
            assert_eq!(found.is_empty(), clean, "{load} {active} {file}: {found:?}");
        }
        let fake = program::script(
            dir.path(),
            "systemctl",
            "#!/bin/sh\necho System has not been booted with systemd >&2\nexit 1\n",
        );
        assert_eq!(leftovers(&by(&fake), &["a".into()], &[], &[]), ["unit a: systemd does not answer"]);
    }
}
