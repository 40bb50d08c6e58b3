//! What was there before a run: every path is copied aside once, before its first change, with a manifest that `undo` reads.

use super::safe::{self, Attributes, SafeError};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Entries of one directory that is about to be removed.
const TREE_MAX: usize = 20_000;
/// Bytes of files over `safe::READ_MAX` that one run copies at most.
const COPIED_MAX: u64 = 32 << 30;
/// So much of a disk stays free at least; a tenth of it where that is less.
const RESERVE_MAX: u64 = 1 << 30;
const PRIVATE: Attributes = Attributes { mode: Some(0o600), uid: None, gid: None };

/// What lay at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "was")]
pub enum Was {
    Absent,
    File {
        copy: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Link {
        target: PathBuf,
    },
    Directory {
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// Moved aside because it is protected.
    Parked {
        to: PathBuf,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    #[serde(flatten)]
    was: Was,
}

/// The directory that copies go to. Without one, nothing is kept.
#[derive(Debug, Default)]
pub struct Backup {
    dir: Option<PathBuf>,
    entries: Vec<Entry>,
    seen: BTreeSet<PathBuf>,
    /// Bytes of large files that this run copied.
    copied: u64,
}

/// What is about to happen to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It may be changed where it is.
    Stays,
    Leaves,
}

impl Backup {
    /// Goes on with what the directory already holds: the phases of one attempt may share it.
    pub fn open(dir: Option<&Path>) -> Result<Self, SafeError> {
        let Some(dir) = dir else { return Ok(Self::default()) };
        let fail = |what| move |source| SafeError::Io { path: dir.to_owned(), what, source };
        std::fs::create_dir_all(dir.join("files")).map_err(fail("make the backup directory"))?;
        safe::set_attributes(dir, Attributes { mode: Some(0o700), ..Attributes::default() })?;
        let entries = read(dir)?;
        let seen = entries.iter().map(|e| e.path.clone()).collect();
        Ok(Self { dir: Some(dir.to_owned()), entries, seen, copied: 0 })
    }

    /// Keeps what is at `path` now, unless that was done before. On disk when this returns.
    pub fn keep(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.keep_one(path, Fate::Stays)? { self.save() } else { Ok(()) }
    }

    /// The same for what is about to go from `path`, or to get another content by rename.
    pub fn keep_leaving(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.keep_one(path, Fate::Leaves)? { self.save() } else { Ok(()) }
    }

    /// Keeps a directory with everything in it.
    pub fn keep_tree(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.dir.is_none() {
            return Ok(());
        }
        self.keep_one(path, Fate::Leaves)?;
        for (inner, _) in safe::walk(path, TREE_MAX)? {
            self.keep_one(&inner, Fate::Leaves)?;
        }
        self.save()
    }

    /// Notes that `path` was moved to `to`.
    pub fn parked(&mut self, path: &Path, to: &Path) -> Result<(), SafeError> {
        if self.dir.is_none() || !self.seen.insert(path.to_owned()) {
            return Ok(());
        }
        self.entries.push(Entry { path: path.to_owned(), was: Was::Parked { to: to.to_owned() } });
        self.save()
    }

    fn keep_one(&mut self, path: &Path, fate: Fate) -> Result<bool, SafeError> {
        let Some(dir) = self.dir.clone() else { return Ok(false) };
        if self.seen.contains(path) {
            return Ok(false);
        }
        let was = match safe::look(path)? {
            None => Was::Absent,
            Some(stat) => match safe::kind(&stat) {
                FileType::Directory => {
                    Was::Directory { mode: safe::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                FileType::Symlink => Was::Link { target: safe::read_link(path)? },
                FileType::RegularFile => {
                    let copy = format!("files/{:06}", self.entries.len());
                    let size = u64::try_from(stat.st_size).unwrap_or(0);
                    if size > safe::READ_MAX {
                        self.keep_large(path, &dir.join(&copy), size, fate)?;
                    } else {
                        safe::write(&dir.join(&copy), &safe::read(path)?, PRIVATE, &mut |_| Ok(()))?;
                    }
                    Was::File { copy, mode: safe::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                // Sockets, pipes and devices are made again by whoever made them.
                _ => return Ok(false),
            },
        };
        self.seen.insert(path.to_owned());
        self.entries.push(Entry { path: path.to_owned(), was });
        Ok(true)
    }

    /// A large file that leaves keeps its content under a second name, which takes no room. Else it is copied, while
    /// there is room for that on the disk and in the bound of one attempt.
    fn keep_large(&mut self, path: &Path, copy: &Path, size: u64, fate: Fate) -> Result<(), SafeError> {
        // With another name besides, whoever writes there would write into what was kept.
        let only = || safe::look(path).ok().flatten().is_some_and(|stat| stat.st_nlink == 1);
        if fate == Fate::Leaves && only() && safe::second_name(path, copy).is_ok() {
            return Ok(());
        }
        let refuse = |why: String| {
            let what = format!(
                "is {} MiB, and nothing was changed, since it can't be kept for an undo: {why}; make room there, move \
                 the file away, or name it in `state` of its service, which is moved aside as a whole",
                size >> 20
            );
            SafeError::refused(path, what)
        };
        if self.copied.saturating_add(size) > COPIED_MAX {
            return Err(refuse(format!("one attempt copies at most {} GiB of large files", COPIED_MAX >> 30)));
        }
        let room = rustix::fs::statvfs(copy.parent().unwrap_or(copy)).map_err(|e| refuse(e.to_string()))?;
        let (free, all) = (room.f_bavail.saturating_mul(room.f_frsize), room.f_blocks.saturating_mul(room.f_frsize));
        if size.saturating_add(RESERVE_MAX.min(all / 10)) > free {
            return Err(refuse(format!("{} has {} MiB free", copy.display(), free >> 20)));
        }
        safe::copy(path, copy, PRIVATE).map_err(|e| refuse(e.line()))?;
        self.copied += size;
        Ok(())
    }

    fn save(&self) -> Result<(), SafeError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let text = serde_json::to_vec_pretty(&self.entries).unwrap_or_default();
        safe::write(
            &dir.join("manifest.json"),
            &text,
            Attributes { mode: Some(0o600), ..Attributes::default() },
            &mut |_| Ok(()),
        )
    }
}

fn read(dir: &Path) -> Result<Vec<Entry>, SafeError> {
    let path = dir.join("manifest.json");
    if safe::look(&path)?.is_none() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&safe::read(&path)?).map_err(|e| SafeError::refused(&path, format!("is no manifest: {e}")))
}

/// What `undo` did not get done; what stands in `restored` is done, the rest is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{} of the paths could not be restored: {}", failed.len(), failed.join("; "))]
pub struct UndoError {
    pub restored: Vec<String>,
    pub failed: Vec<String>,
}

/// Puts back everything that a run copied aside, and returns the paths it changed. May be repeated.
pub fn undo(backup_dir: &Path) -> Result<Vec<String>, UndoError> {
    let entries = read(backup_dir).map_err(|e| UndoError { restored: Vec::new(), failed: vec![e.line()] })?;
    let (mut restored, mut failed) = (Vec::new(), Vec::new());
    // First what appeared goes away, innermost first; then what was there comes back, outermost first.
    for entry in entries.iter().rev().filter(|e| e.was == Was::Absent) {
        note(&entry.path, take_away(&entry.path), &mut restored, &mut failed);
    }
    for entry in entries.iter().filter(|e| e.was != Was::Absent) {
        note(&entry.path, put_back(backup_dir, entry), &mut restored, &mut failed);
    }
    if failed.is_empty() { Ok(restored) } else { Err(UndoError { restored, failed }) }
}

fn note(path: &Path, done: Result<bool, SafeError>, restored: &mut Vec<String>, failed: &mut Vec<String>) {
    match done {
        Ok(true) => restored.push(path.display().to_string()),
        Ok(false) => {}
        Err(e) => failed.push(e.line()),
    }
}

fn take_away(path: &Path) -> Result<bool, SafeError> {
    match safe::look(path)? {
        None => Ok(false),
        Some(stat) if safe::kind(&stat) == FileType::Directory => match safe::remove(path, true) {
            // Somebody else's files are in it by now: it stays.
            Err(SafeError::Io { source, .. })
                if source.raw_os_error() == Some(rustix::io::Errno::NOTEMPTY.raw_os_error()) =>
            {
                Ok(false)
            }
            other => other.map(|()| true),
        },
        Some(_) => safe::remove(path, false).map(|()| true),
    }
}

fn put_back(dir: &Path, entry: &Entry) -> Result<bool, SafeError> {
    let path = &entry.path;
    let now = safe::look(path)?;
    let same = |uid: u32, gid: u32, mode: u32| {
        now.is_some_and(|s| (s.st_uid, s.st_gid, safe::mode_of(&s)) == (uid, gid, mode))
    };
    match &entry.was {
        Was::Absent => Ok(false),
        Was::Directory { mode, uid, gid } => {
            let attributes = Attributes { mode: Some(*mode), uid: Some(*uid), gid: Some(*gid) };
            match &now {
                Some(stat) if safe::kind(stat) == FileType::Directory && same(*uid, *gid, *mode) => return Ok(false),
                Some(stat) if safe::kind(stat) == FileType::Directory => safe::set_attributes(path, attributes)?,
                Some(_) => {
                    safe::remove(path, false)?;
                    safe::make_directory(path, attributes)?;
                }
                None => safe::make_directory(path, attributes)?,
            }
            Ok(true)
        }
        Was::File { copy, mode, uid, gid } => {
            let copy = dir.join(copy);
            let regular = now.is_some_and(|s| safe::kind(&s) == FileType::RegularFile);
            if regular && same(*uid, *gid, *mode) && safe::same_content(path, &copy)? {
                return Ok(false);
            }
            // Never by the copy's own name: an undo may be repeated.
            safe::copy(&copy, path, Attributes { mode: Some(*mode), uid: Some(*uid), gid: Some(*gid) })?;
            Ok(true)
        }
        Was::Link { target } => {
            let link = now.is_some_and(|s| safe::kind(&s) == FileType::Symlink);
            if link && safe::read_link(path)? == *target {
                return Ok(false);
            }
            safe::link(path, target)?;
            Ok(true)
        }
        Was::Parked { to } => {
            let Some(parked) = safe::look(to)? else { return Ok(false) };
            let file = |s: &rustix::fs::Stat| safe::kind(s) == FileType::RegularFile;
            if now.is_some_and(|s| !(file(&s) && file(&parked))) {
                return Err(SafeError::refused(
                    path,
                    format!("something new is there; what was parked stays at {}", to.display()),
                ));
            }
            std::fs::rename(to, path).map_err(|source| SafeError::Io {
                path: path.clone(),
                what: "move it back",
                source,
            })?;
            Ok(true)
        }
    }
}
