//! Reads a fleet directory into a `FileSet` with limits. Skips version control and temporary files
//! of editors.

use remoor_model::{Fault, FileSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Maximum number of files of a fleet.
pub const FILES_MAX: usize = 10_000;
/// Maximum total bytes of the files of a fleet.
pub const BYTES_MAX: usize = 64 << 20;
/// Maximum depth of directories below the fleet directory.
const DEPTH_MAX: usize = 32;

/// Directories that are not part of a fleet. `.remoor` contains the resolved inventory.
const NO_DIRECTORIES: &[&str] = &[".git", ".hg", ".svn", ".remoor", "__pycache__"];
const NO_ENDINGS: &[&str] = &["~", ".bak", ".orig", ".swp", ".swo", ".pyc", ".retry"];

/// Reads the fleet directory `dir`. Links are followed, and their targets become files of the
/// result. A link that leads out of the directory causes a warning. Err: all faults, followed by
/// the warnings.
pub fn read(dir: &Path) -> Result<(FileSet, Vec<Fault>), Vec<Fault>> {
    let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let (set, way, faults, outside) = Default::default();
    let mut load = DirectoryReader { root: dir, real, set, bytes: 0, open_dirs: way, faults, outside };
    load.directory(dir);
    if load.faults.is_empty() {
        return Ok((load.set, load.outside));
    }
    load.faults.append(&mut load.outside);
    Err(load.faults)
}

struct DirectoryReader<'a> {
    root: &'a Path,
    /// `root` without symbolic links.
    real: PathBuf,
    set: FileSet,
    bytes: usize,
    /// Real paths of the directory that is being read and of the directories above it. A link to
    /// one of them forms a cycle.
    open_dirs: Vec<PathBuf>,
    faults: Vec<Fault>,
    /// Warnings about links that lead out of the fleet directory.
    outside: Vec<Fault>,
}

impl DirectoryReader<'_> {
    fn fault(&mut self, path: &Path, message: impl Into<String>) {
        self.faults.push(Fault::error(&self.relative_name(path), 0, 0, message));
    }

    fn relative_name(&self, path: &Path) -> String {
        let inner = path.strip_prefix(self.root).ok().filter(|rest| !rest.as_os_str().is_empty());
        inner.unwrap_or(path).display().to_string()
    }

    /// Records a warning if `path` itself is a link that leads out of the fleet directory.
    fn note_link(&mut self, path: &Path) {
        let link = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink());
        let Some(to) = link.then(|| fs::canonicalize(path).ok()).flatten() else { return };
        if !to.starts_with(&self.real) {
            let message = format!(
                "is a link out of the fleet directory; the current content of {} is part of the fleet",
                to.display()
            );
            let hint = "each apply reads the current content; copy the file here if it belongs to the fleet";
            self.outside.push(Fault::warn(&self.relative_name(path), 0, 0, message).hint(hint));
        }
    }

    /// Whether a limit was exceeded. Reading then ends, because more faults would only repeat the
    /// first.
    fn is_full(&self) -> bool {
        self.set.0.len() > FILES_MAX || self.bytes > BYTES_MAX || self.faults.len() > 100
    }

    fn directory(&mut self, dir: &Path) {
        let real = match fs::canonicalize(dir) {
            Ok(real) => real,
            Err(error) => return self.fault(dir, format!("could not be read: {error}")),
        };
        if self.open_dirs.contains(&real) || self.open_dirs.len() >= DEPTH_MAX {
            return self.fault(dir, format!("is part of a link cycle, or deeper than {DEPTH_MAX} directories"));
        }
        let mut names = Vec::new();
        let listing = fs::read_dir(dir).and_then(|entries| {
            // The limit on files also limits the names in one directory.
            entries.take(FILES_MAX + 1).try_for_each(|entry| entry.map(|entry| names.push(entry.file_name())))
        });
        if let Err(error) = listing {
            return self.fault(dir, format!("could not be read: {error}"));
        }
        names.sort();
        self.open_dirs.push(real);
        for name in names {
            if self.is_full() {
                break;
            }
            let path = dir.join(&name);
            let Some(name) = name.to_str() else {
                self.fault(&path, "has a name that is not UTF-8");
                continue;
            };
            self.entry(&path, name);
        }
        self.open_dirs.pop();
    }

    fn entry(&mut self, path: &Path, name: &str) {
        let leavings = NO_ENDINGS.iter().any(|ending| name.ends_with(ending))
            || name.starts_with(".#")
            || (name.starts_with('#') && name.ends_with('#'));
        let meta = match fs::metadata(path) {
            _ if leavings => return,
            Ok(meta) => meta,
            Err(error) => return self.fault(path, format!("could not be read: {error}")),
        };
        if !NO_DIRECTORIES.contains(&name) {
            self.note_link(path);
        }
        if meta.is_dir() {
            if !NO_DIRECTORIES.contains(&name) {
                self.directory(path);
            }
            return;
        }
        // In a worktree of git, `.git` is a file.
        if NO_DIRECTORIES.contains(&name) {
            return;
        }
        if !meta.is_file() {
            return self.fault(path, "is neither file nor directory");
        }
        let mut content = Vec::new();
        let left = BYTES_MAX.saturating_sub(self.bytes) as u64;
        let read = fs::File::open(path).and_then(|file| file.take(left + 1).read_to_end(&mut content));
        if let Err(error) = read {
            return self.fault(path, format!("could not be read: {error}"));
        }
        self.bytes += content.len();
        if self.bytes > BYTES_MAX {
            return self.fault(path, format!("with this file the fleet is larger than {} MiB", BYTES_MAX >> 20));
        }
        let Some(key) = path.strip_prefix(self.root).ok().and_then(Path::to_str) else { return };
        self.set.0.insert(key.to_owned(), content);
        if self.set.0.len() > FILES_MAX {
            self.fault(path, format!("with this file the fleet has more than {FILES_MAX} files"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FILES_MAX, read};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_of_the_fleet_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for sub in [".git", "playbooks/tasks", ".remoor"] {
            fs::create_dir_all(at(sub)).unwrap();
        }
        let files = [
            "remoor.yml",
            ".git/HEAD",
            "playbooks/tasks/a.yml",
            "a.yml~",
            ".a.swp",
            "#a#",
            ".#a",
            ".remoor/x",
            "empty",
        ];
        for name in files {
            fs::write(at(name), name.strip_prefix("empty").unwrap_or(name)).unwrap();
        }
        symlink(at("playbooks"), at("link")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("x.j2"), "outside").unwrap();
        symlink(elsewhere.path(), at("templates")).unwrap();
        symlink(elsewhere.path().join("x.j2"), at("playbooks/x.j2")).unwrap();
        let (set, outside) = read(dir.path()).unwrap();
        let warned: Vec<(&str, bool)> = outside.iter().map(|f| (f.file.as_str(), f.warning)).collect();
        assert_eq!(
            warned,
            [("link/x.j2", true), ("playbooks/x.j2", true), ("templates", true)],
            "each link once, none that stays inside"
        );
        assert_eq!((set.text("templates/x.j2"), set.text("playbooks/x.j2")), (Some("outside"), Some("outside")));
        let names: Vec<&str> = set.paths_below("").collect();
        assert_eq!(
            names,
            [
                "empty",
                "link/tasks/a.yml",
                "link/x.j2",
                "playbooks/tasks/a.yml",
                "playbooks/x.j2",
                "remoor.yml",
                "templates/x.j2",
            ]
        );
        assert_eq!(set.text("remoor.yml"), Some("remoor.yml"));
    }

    #[test]
    fn cycles_sockets_and_too_many_files_are_faults() {
        let dir = tempfile::tempdir().unwrap();
        symlink(dir.path(), dir.path().join("again")).unwrap();
        symlink("nowhere", dir.path().join("broken")).unwrap();
        let elsewhere = tempfile::NamedTempFile::new().unwrap();
        symlink(elsewhere.path(), dir.path().join("a-link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let mut faults = read(dir.path()).unwrap_err();
        let last = faults.pop().unwrap();
        assert_eq!((last.file.as_str(), last.warning), ("a-link", true), "{last}");
        let faults: Vec<String> = faults.iter().map(|fault| fault.to_string()).collect();
        assert_eq!(
            faults,
            [
                "again: is part of a link cycle, or deeper than 32 directories",
                "broken: could not be read: No such file or directory (os error 2)",
                "socket: is neither file nor directory",
            ]
        );
        let dir = tempfile::tempdir().unwrap();
        (0..=FILES_MAX).for_each(|n| fs::write(dir.path().join(n.to_string()), "").unwrap());
        let faults = read(dir.path()).unwrap_err();
        assert_eq!(
            (faults.len(), faults[0].message.as_str()),
            (1, "with this file the fleet has more than 10000 files")
        );
    }
}
