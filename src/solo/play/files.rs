//! Loads the files that a playbook may use: the files of a directory, within limits. An unreadable
//! file counts as missing; the error appears when the playbook uses it. Files of the version
//! control, such as `.git`, are omitted.

use crate::solo::project_dir::root_of;
use remoor_model::{Fault, FileSet};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Maximum number of files that are loaded.
const FILES_MAX: usize = 50_000;
/// Maximum size of all files together, in bytes.
const BYTES_MAX: u64 = 256 << 20;
/// Maximum size of a file, in bytes. A larger file is omitted, because it could not be sent.
const FILE_MAX: u64 = 16 << 20;
/// Maximum depth of directories.
const DEPTH_MAX: usize = 32;
/// How often a directory may be entered on the way to a file. Symlinks may form a cycle, such as
/// `roles/acme -> .`, by which roles are named `acme/web`.
const ENTERED_MAX: usize = 2;
/// Directories that contain nothing for a playbook.
const NO_DIRECTORIES: [&str; 2] = ["node_modules", "__pycache__"];
/// The playbook's files, and the playbook's name among them.
#[derive(Debug)]
pub struct Files {
    pub set: FileSet,
    /// The permission mode of each file, by name.
    pub modes: BTreeMap<String, u32>,
    pub playbook: String,
    /// The directory to which the names of the files are relative. Empty: the current directory.
    pub root: PathBuf,
    /// Files below `root` that were omitted because they are too large.
    left_out: Vec<PathBuf>,
}

/// Reads the files below `root`. If `root` is None, the project directory of the playbook is used:
/// the nearest directory with `ansible.cfg`, `roles` or `remoor.yml`. The search begins in the
/// playbook's own directory and ends three directories above it. If it finds nothing, the
/// playbook's own directory is used.
pub fn read(playbook: &Path, root: Option<&Path>) -> Result<Files, Vec<Fault>> {
    let shown = playbook.display().to_string();
    let fault = |message: String| vec![Fault::error(&shown, 0, 0, message)];
    let real = fs::canonicalize(playbook).map_err(|e| fault(format!("can't be read: {e}")))?;
    if !real.is_file() {
        return Err(fault("is not a file".to_owned()));
    }
    let own = real.parent().unwrap_or(Path::new("/")).to_owned();
    let root = match root {
        Some(root) => fs::canonicalize(root)
            .map_err(|e| vec![Fault::error(&root.display().to_string(), 0, 0, format!("can't be read: {e}"))])?,
        None => root_of(&own).to_owned(),
    };
    let Some(name) = real.strip_prefix(&root).ok().and_then(Path::to_str).map(str::to_owned) else {
        return Err(fault(format!("is not below {}", root.display())));
    };
    let mut load = Load {
        root: &root,
        set: FileSet::default(),
        modes: BTreeMap::new(),
        bytes: 0,
        left_out: Vec::new(),
        full: None,
        open: Vec::new(),
    };
    load.directory(&root);
    if let Some(why) = load.full {
        let fault = Fault::error(&root.display().to_string(), 0, 0, why);
        return Err(vec![fault.hint("name the directory with the playbook, its roles and files with --root DIR")]);
    }
    let Load { set, modes, left_out, .. } = load;
    Ok(Files { set, modes, playbook: name, root: from_here(&root), left_out })
}

/// `root` for messages. The path is relative if `root` is the current directory or is below it.
fn from_here(root: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(fs::canonicalize).unwrap_or_default();
    root.strip_prefix(&here).unwrap_or(root).to_owned()
}

impl Files {
    /// The fault with a file name relative to the current directory.
    pub fn with_shown_path(&self, mut fault: Fault) -> Fault {
        if self.set.get(&fault.file).is_some() {
            fault.file = self.root.join(&fault.file).display().to_string();
        }
        fault
    }

    /// Warnings about files that were omitted for their size, for a user whose playbook needs one
    /// of them.
    pub fn left_out(&self) -> impl Iterator<Item = Fault> {
        let message = format!("is omitted: larger than {} MiB, the maximum of a plan", FILE_MAX >> 20);
        self.left_out.iter().map(move |path| Fault::warn(&path.display().to_string(), 0, 0, message.clone()))
    }

    /// Whether any text file contains this word.
    pub fn contains_word(&self, word: &str) -> bool {
        // A search that compares each position takes seconds for a large repository in a debug
        // build.
        self.set.0.values().any(|bytes| std::str::from_utf8(bytes).is_ok_and(|text| text.contains(word)))
    }
}

struct Load<'a> {
    root: &'a Path,
    set: FileSet,
    modes: BTreeMap<String, u32>,
    bytes: u64,
    left_out: Vec<PathBuf>,
    full: Option<String>,
    /// The real paths of the directories above the one that is read, and of this one.
    open: Vec<PathBuf>,
}

impl Load<'_> {
    fn directory(&mut self, dir: &Path) {
        let (Ok(entries), Ok(real)) = (fs::read_dir(dir), fs::canonicalize(dir)) else { return };
        if self.open.len() > DEPTH_MAX || self.open.iter().filter(|open| **open == real).count() >= ENTERED_MAX {
            return;
        }
        self.open.push(real);
        self.entries(dir, entries);
        self.open.pop();
    }

    fn entries(&mut self, dir: &Path, entries: fs::ReadDir) {
        let mut names: Vec<_> = entries.take(FILES_MAX + 1).flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let path = dir.join(&name);
            let (Some(name), Ok(meta)) = (name.to_str(), fs::metadata(&path)) else { continue };
            if self.full.is_some() {
                return;
            }
            if meta.is_dir() {
                if !name.starts_with('.') && !NO_DIRECTORIES.contains(&name) {
                    self.directory(&path);
                }
            } else if meta.is_file() && !name.ends_with('~') && name != ".git" {
                match meta.len() > FILE_MAX {
                    true => self.leave_out(&path),
                    false => self.file(&path, meta.permissions().mode() & 0o7777),
                }
            }
        }
    }

    /// Records that the file at `path` is too large. If several symlinks lead to the file, it is
    /// recorded once.
    fn leave_out(&mut self, path: &Path) {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if !self.left_out.contains(&real) {
            self.left_out.push(real);
        }
    }

    fn file(&mut self, path: &Path, mode: u32) {
        let left = BYTES_MAX - self.bytes;
        let mut content = Vec::new();
        let read = File::open(path).and_then(|file| file.take(left + 1).read_to_end(&mut content));
        let Some(key) = path.strip_prefix(self.root).ok().and_then(Path::to_str) else { return };
        if read.is_err() {
            return;
        }
        if content.len() as u64 > left {
            self.full = Some(format!("the files below it have more than {} MiB", BYTES_MAX >> 20));
            return;
        }
        self.bytes += content.len() as u64;
        self.modes.insert(key.to_owned(), mode);
        self.set.0.insert(key.to_owned(), content);
        if self.set.0.len() > FILES_MAX {
            self.full = Some(format!("more than {FILES_MAX} files are below it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playbook_brings_what_it_belongs_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["p/plays/site.yml", "p/roles/a/tasks/main.yml", "p/.git/HEAD", "p/x~", "alone/site.yml"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), name).unwrap();
        }
        File::create(at("p/large")).unwrap().set_len(FILE_MAX + 1).unwrap();
        std::os::unix::fs::symlink("nowhere", at("p/broken")).unwrap();
        std::os::unix::fs::symlink("..", at("p/plays/up")).unwrap();
        let files = read(&at("p/plays/site.yml"), None).unwrap();
        assert_eq!(files.playbook, "plays/site.yml");
        assert!(files.set.get("roles/a/tasks/main.yml").is_some() && files.contains_word("roles/a"));
        assert!(files.set.get("plays/up/plays/site.yml").is_some(), "a cycle is followed once");
        assert!(files.set.paths_below("plays/up/plays/up/plays").next().is_none());
        assert!(files.set.get("x~").is_none() && files.set.paths_below(".git").next().is_none());
        assert!(files.set.get("large").is_none() && files.left_out().count() == 1);
        let alone = read(&at("alone/site.yml"), None).unwrap();
        assert_eq!((alone.playbook.as_str(), alone.set.0.len()), ("site.yml", 1));
        let root = read(&at("alone/site.yml"), Some(dir.path())).unwrap();
        assert_eq!(root.playbook, "alone/site.yml");
        for (playbook, root) in [("none.yml", None), ("p", None), ("alone/site.yml", Some(at("p")))] {
            assert!(read(&at(playbook), root.as_deref()).is_err(), "{playbook}");
        }
    }
}
