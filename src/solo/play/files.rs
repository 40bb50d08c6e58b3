//! The files that a playbook may name: those of a directory, bounded. What can't be read is not there, and whoever names it
//! is told so; a checkout's own leavings stay out.

use crate::model::{Fault, FileSet};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Most files, and most bytes of all together.
const FILES_MAX: usize = 10_000;
const BYTES_MAX: u64 = 64 << 20;
/// A file that is larger is left out: it could not be sent.
const FILE_MAX: u64 = 16 << 20;
/// Directories in directories, at most; links can lead round in a circle.
const DEPTH_MAX: usize = 32;
/// Directories of which nothing is for a playbook.
const NO_DIRECTORIES: [&str; 2] = ["node_modules", "__pycache__"];
/// Names that tell that everything below a directory belongs together.
const SIGNS: [&str; 3] = ["ansible.cfg", "roles", "remoor.yml"];
/// So many directories above the playbook may be that one.
const CLIMB_MAX: usize = 3;

/// The playbook's files, and the name that the playbook has among them.
#[derive(Debug)]
pub struct Files {
    pub set: FileSet,
    /// Modes of all of them.
    pub modes: BTreeMap<String, u32>,
    pub playbook: String,
    /// The directory that names are relative to; empty for the current one.
    pub root: PathBuf,
    /// Below it, and too large to be among them.
    left_out: Vec<PathBuf>,
}

/// Reads what lies below `root`, or below the directory that the playbook seems to belong to: its own, or one of three above
/// it that has `ansible.cfg`, `roles` or `remoor.yml`.
pub fn read(playbook: &Path, root: Option<&Path>) -> Result<Files, Vec<Fault>> {
    let shown = playbook.display().to_string();
    let fault = |message: String| vec![Fault::error(&shown, 0, 0, message)];
    let real = fs::canonicalize(playbook).map_err(|e| fault(format!("can't be read: {e}")))?;
    if !real.is_file() {
        return Err(fault("is no file".to_owned()));
    }
    let own = real.parent().unwrap_or(Path::new("/")).to_owned();
    let root = match root {
        Some(root) => fs::canonicalize(root)
            .map_err(|e| vec![Fault::error(&root.display().to_string(), 0, 0, format!("can't be read: {e}"))])?,
        None => root_of(&own).to_owned(),
    };
    let Some(name) = real.strip_prefix(&root).ok().and_then(Path::to_str).map(str::to_owned) else {
        return Err(fault(format!("does not lie below {}", root.display())));
    };
    let mut load = Load {
        root: &root,
        set: FileSet::default(),
        modes: BTreeMap::new(),
        bytes: 0,
        left_out: Vec::new(),
        full: None,
    };
    load.directory(&root, 0);
    if let Some(why) = load.full {
        let fault = Fault::error(&root.display().to_string(), 0, 0, why);
        return Err(vec![fault.hint("name the directory with the playbook, its roles and files by --root DIR")]);
    }
    let Load { set, modes, left_out, .. } = load;
    Ok(Files { set, modes, playbook: name, root: from_here(&root), left_out })
}

/// The directory that a playbook in `own` seems to belong to.
pub fn root_of(own: &Path) -> &Path {
    let signed = |dir: &&Path| SIGNS.iter().any(|sign| dir.join(sign).exists());
    own.ancestors().take(1 + CLIMB_MAX).find(signed).unwrap_or(own)
}

/// `root` as it is shown: relative where it is below the current directory, or is it.
fn from_here(root: &Path) -> PathBuf {
    let here = std::env::current_dir().and_then(fs::canonicalize).unwrap_or_default();
    root.strip_prefix(&here).unwrap_or(root).to_owned()
}

impl Files {
    /// A fault with its file named as from the current directory.
    pub fn shown(&self, mut fault: Fault) -> Fault {
        if self.set.get(&fault.file).is_some() {
            fault.file = self.root.join(&fault.file).display().to_string();
        }
        fault
    }

    /// Warnings about files that are not among them for their size, for whoever misses one.
    pub fn left_out(&self) -> impl Iterator<Item = Fault> {
        let message = format!("is left out: larger than {} MiB, which no plan takes", FILE_MAX >> 20);
        self.left_out.iter().map(move |path| Fault::warn(&path.display().to_string(), 0, 0, message.clone()))
    }

    /// Whether any text has this word.
    pub fn say(&self, word: &str) -> bool {
        self.set.0.values().any(|bytes| bytes.windows(word.len()).any(|part| part == word.as_bytes()))
    }
}

struct Load<'a> {
    root: &'a Path,
    set: FileSet,
    modes: BTreeMap<String, u32>,
    bytes: u64,
    left_out: Vec<PathBuf>,
    full: Option<String>,
}

impl Load<'_> {
    fn directory(&mut self, dir: &Path, depth: usize) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        let mut names: Vec<_> = entries.take(FILES_MAX + 1).flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let path = dir.join(&name);
            let (Some(name), Ok(meta)) = (name.to_str(), fs::metadata(&path)) else { continue };
            if self.full.is_some() {
                return;
            }
            if meta.is_dir() {
                if depth < DEPTH_MAX && !name.starts_with('.') && !NO_DIRECTORIES.contains(&name) {
                    self.directory(&path, depth + 1);
                }
            } else if meta.is_file() && !name.ends_with('~') && name != ".git" {
                match meta.len() > FILE_MAX {
                    true => self.leave_out(&path),
                    false => self.file(&path, meta.permissions().mode() & 0o7777),
                }
            }
        }
    }

    /// Once, however many links lead to it.
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
            self.full = Some(format!("more than {FILES_MAX} files lie below it"));
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
        assert!(files.set.get("roles/a/tasks/main.yml").is_some() && files.say("roles/a"));
        assert!(files.set.get("x~").is_none() && files.set.under(".git").next().is_none());
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
