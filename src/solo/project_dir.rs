//! The project directory of a playbook, and its `ansible.cfg`.
//!
//! The directory may contain roles that run as root on hosts, and `ansible.cfg` may name a program
//! that this machine runs. So remoor uses neither if another user can change them, as Ansible
//! ignores `ansible.cfg` in a directory that all users can write to.

use remoor_host::files::Names;
use remoor_model::Fault;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Names that mark the root directory of a project.
const SIGNS: [&str; 3] = ["ansible.cfg", "roles", "remoor.yml"];
/// Maximum number of directories above the playbook that are searched for the names in `SIGNS`.
const CLIMB_MAX: usize = 3;
/// Maximum depth of the directories of an inventory that are searched for programs. It is larger
/// than the depth to which inventories are read.
const PROGRAMS_DEPTH_MAX: usize = 32;
/// Maximum size of `ansible.cfg` in bytes.
const CONFIG_MAX: u64 = 1 << 20;

/// The project directory of a playbook that is in `own`: `own`, or a directory above it.
pub fn root_of(own: &Path) -> &Path {
    climb(own, &Names::load()).0
}

/// Like `root_of`, with a warning if a directory was not used because other users can change it.
pub fn checked_root_of(own: &Path) -> (PathBuf, Option<Fault>) {
    let (root, ignored) = climb(own, &Names::load());
    let warning = ignored.map(|(dir, sign, why)| {
        let message = format!("is not used as the project directory of the playbook, although it has `{sign}`: {why}");
        let hint =
            format!("name the directory with --root {}, or see to it that only you can change it", dir.display());
        Fault::warn(&dir.display().to_string(), 0, 0, message).hint(hint)
    });
    (root.to_owned(), warning)
}

/// The project directory, and the nearest directory above `own` that was not used, with its sign
/// and the reason.
fn climb<'p>(own: &'p Path, names: &Names) -> (&'p Path, Option<(&'p Path, &'static str, String)>) {
    let sign_of = |dir: &Path| SIGNS.into_iter().find(|sign| dir.join(sign).exists());
    if sign_of(own).is_some() {
        return (own, None);
    }
    let above: Vec<&Path> = own.ancestors().skip(1).take(CLIMB_MAX).collect();
    for (at, dir) in above.iter().enumerate() {
        if let Some(why) = change_by_others(dir, names) {
            let ignored = above[at..].iter().find_map(|dir| Some((*dir, sign_of(dir)?, why.clone())));
            return (own, ignored);
        }
        if sign_of(dir).is_some() {
            return (dir, None);
        }
    }
    (own, None)
}

/// The reason why a user other than the caller and root can change a file or directory. None: no
/// other user can.
fn change_by_others(path: &Path, names: &Names) -> Option<String> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) => return Some(format!("{} can't be examined: {error}", path.display())),
    };
    let path = path.display();
    if meta.uid() != 0 && !callers().contains(&Some(meta.uid())) {
        return Some(format!("{path} belongs to the user {}", names.owner(meta.uid())));
    }
    let by_group = meta.mode() & 0o020 != 0 && !names.is_private_group(meta.gid(), meta.uid());
    let writers = match meta.mode() & 0o002 != 0 {
        true => "all users".to_owned(),
        false if by_group => format!("the group {}", names.group(meta.gid())),
        false => return None,
    };
    Some(format!("{writers} can write to {path} (mode {:04o})", meta.mode() & 0o7777))
}

/// The reason why a program in `path` must not be run: a user other than the caller and root can
/// change it. `path` is a program, or a directory with programs, which the directory `dir` names.
/// None: no such program exists.
pub fn program_of_others(dir: &Path, path: &Path) -> Option<String> {
    let names = Names::load();
    let between = path.ancestors().skip(1).take_while(|above| above.starts_with(dir));
    let all = [dir].into_iter().chain(path.parent()).chain(between);
    let mut named = all.filter(|above| !above.as_os_str().is_empty());
    let above = named.find_map(|above| change_by_others(above, &names));
    find_program_of_others(path, above, &names, 0)
}

/// `above`: the reason why another user can replace `path`.
fn find_program_of_others(path: &Path, above: Option<String>, names: &Names, depth: usize) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let why = above.or_else(|| change_by_others(path, names));
    if !meta.is_dir() {
        return why.filter(|_| meta.is_file() && meta.mode() & 0o111 != 0 && begins_as_program(path));
    }
    let entries = fs::read_dir(path).ok().filter(|_| depth < PROGRAMS_DEPTH_MAX)?;
    entries.flatten().find_map(|entry| find_program_of_others(&entry.path(), why.clone(), names, depth + 1))
}

/// Whether a file begins as those that are run as an inventory. On some file systems, each file is
/// executable.
fn begins_as_program(path: &Path) -> bool {
    let mut first = [0; 4];
    let read = fs::File::open(path).and_then(|file| file.take(4).read(&mut first));
    read.is_ok() && (first.starts_with(b"#!") || first == *b"\x7fELF")
}

/// The user of this process, and the user who called sudo.
fn callers() -> [Option<u32>; 2] {
    let user = rustix::process::geteuid().as_raw();
    let behind_sudo = std::env::var("SUDO_UID").ok().filter(|_| user == 0).and_then(|uid| uid.parse().ok());
    [Some(user), behind_sudo]
}

/// The settings in the section `defaults` of `ansible.cfg` in `dir`. Of a setting that occurs
/// twice, the first counts. There are no settings if another user can change the file, and then
/// there is a warning.
pub fn ansible_defaults(dir: &Path) -> (BTreeMap<String, String>, Option<Fault>) {
    let path = dir.join("ansible.cfg");
    let Ok(meta) = fs::metadata(&path) else { return (BTreeMap::new(), None) };
    let names = Names::load();
    let shown = path.display().to_string();
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    if let Some(why) = change_by_others(dir, &names).or_else(|| change_by_others(&path, &names)) {
        let hint = "see to it that only you can change the file and its directory (chmod go-w), or give its settings \
            as options, such as --vault-password-file";
        return (BTreeMap::new(), Some(Fault::warn(&shown, 0, 0, format!("is ignored, because {why}")).hint(hint)));
    }
    if !meta.is_file() || meta.len() > CONFIG_MAX {
        let message = format!("is ignored, because it is no file of at most {} MiB", CONFIG_MAX >> 20);
        return (BTreeMap::new(), Some(Fault::warn(&shown, 0, 0, message)));
    }
    (parse_defaults(&fs::read_to_string(&path).unwrap_or_default()), None)
}

fn parse_defaults(text: &str) -> BTreeMap<String, String> {
    let (mut section, mut out) = ("", BTreeMap::new());
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        }
        if let Some((key, value)) = line.split_once('=').filter(|_| section == "defaults") {
            out.entry(key.trim().to_owned()).or_insert_with(|| value.trim().to_owned());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_search_for_the_project_ends_at_a_directory_that_others_can_change() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        let own = top.join("mid/plays");
        fs::create_dir_all(&own).unwrap();
        [&top, &top.join("mid"), &own].into_iter().for_each(|path| set_mode(path, 0o755));
        fs::write(top.join("ansible.cfg"), "").unwrap();
        assert_eq!(checked_root_of(&own), (top.clone(), None));
        for (open, mode) in [("top", 0o777), ("top/mid", 0o1777), ("top", 0o757)] {
            let open = dir.path().join(open);
            set_mode(&open, mode);
            let (root, warning) = checked_root_of(&own);
            assert_eq!((root.as_path(), root_of(&own)), (own.as_path(), own.as_path()));
            let warning = warning.unwrap().to_string();
            assert!(
                warning.contains("`ansible.cfg`: all users can write to") && warning.contains("--root"),
                "{warning}"
            );
            assert!(warning.contains(&open.display().to_string()), "{warning}");
            set_mode(&open, 0o755);
        }
        // The directory of the playbook needs no climb.
        set_mode(&own, 0o777);
        assert_eq!(checked_root_of(&own), (top, None));
    }

    #[test]
    fn settings_that_others_can_change_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let (own, config) = (dir.path().join("own"), dir.path().join("own/ansible.cfg"));
        fs::create_dir(&own).unwrap();
        fs::write(&config, "x=0\n[defaults]\n;y=1\nvault_password_file = pw\nvault_password_file=b\n").unwrap();
        set_mode(&own, 0o755);
        set_mode(&config, 0o644);
        let (settings, warning) = ansible_defaults(&own);
        assert_eq!((settings.len(), settings["vault_password_file"].as_str(), warning), (1, "pw", None));
        for (open, mode) in [(&own, 0o777), (&config, 0o666)] {
            let before = fs::metadata(open).unwrap().permissions();
            set_mode(open, mode);
            let (settings, warning) = ansible_defaults(&own);
            assert!(settings.is_empty() && warning.unwrap().message.contains("is ignored, because all users"));
            fs::set_permissions(open, before).unwrap();
        }
        assert!(ansible_defaults(dir.path()).1.is_none(), "no file, no warning");
    }

    #[test]
    fn programs_that_others_can_change_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let sources = dir.path().join("inventory");
        fs::create_dir(&sources).unwrap();
        let (program, text) = (sources.join("run.sh"), sources.join("hosts"));
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::write(&text, "w1\n").unwrap();
        set_mode(&sources, 0o755);
        set_mode(&program, 0o755);
        set_mode(&text, 0o666);
        assert_eq!(program_of_others(dir.path(), &sources), None);
        let all = [(dir.path(), 0o777, 0o700), (&sources, 0o777, 0o755), (&program, 0o757, 0o755)];
        for (open, mode, before) in all {
            set_mode(open, mode);
            for path in [&sources, &program] {
                let why = program_of_others(dir.path(), path);
                assert!(why.is_some_and(|why| why.contains("all users can write to")), "{open:?} {path:?}");
            }
            set_mode(open, before);
        }
        set_mode(dir.path(), 0o777);
        set_mode(&text, 0o777);
        assert_eq!(program_of_others(dir.path(), &text), None, "it is no program");
    }

    #[test]
    fn a_group_of_several_users_counts_as_others() {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o775);
        let meta = fs::metadata(dir.path()).unwrap();
        let names = |members: &str| {
            let (uid, gid) = (meta.uid(), meta.gid());
            Names::parse(&format!("me:x:{uid}:{gid}::/:/x\n"), &format!("me:x:{gid}:{members}\n"))
        };
        assert_eq!(change_by_others(dir.path(), &names("me")), None);
        assert!(change_by_others(dir.path(), &names("me,you")).unwrap().contains("the group me can write"));
    }
}
