//! What was there before a run: every path is kept once, before its first change, with a manifest that `undo` reads.

mod manifest;

use super::notes::Notes;
use super::safe::{self, Attributes, SafeError};
use manifest::{Entry, Manifest, Was};
use rustix::fs::{FileType, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Entries of one directory that is about to be removed.
const TREE_MAX: usize = 20_000;
/// Bytes that one run copies at most.
const COPIED_MAX: u64 = 32 << 30;
/// So much of a disk stays free at least; a tenth of it where that is less.
const RESERVE_MAX: u64 = 1 << 30;
/// Bytes that one run copies without a look at the reserve: configuration is changed on a full disk too.
const UNASKED_MAX: u64 = 64 << 20;
/// Files that get another content are copied up to this size, and larger ones get a second name.
const LINKED_MIN: u64 = 1 << 20;
const PRIVATE: Attributes = Attributes { mode: Some(0o600), uid: None, gid: None };

/// The directory that copies go to. Without one, nothing is kept.
#[derive(Debug, Default)]
pub struct Backup {
    to: Option<(PathBuf, Manifest)>,
    /// Paths on record; with mode, owner and group, if those are all that was kept.
    seen: BTreeMap<PathBuf, Option<Only>>,
    /// Entries on record: each has the copy of this number.
    entries: usize,
    /// Bytes that this run copied.
    copied: u64,
}

/// Mode, owner and group, where those are all that was kept of a file.
type Only = (u32, u32, u32);

/// What is on record of a path, if anything is.
#[derive(Debug, Default)]
pub struct Kept(Option<Option<Only>>);

/// What is about to happen to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is made, or gets other attributes.
    Stays,
    /// It gets another content, by rename.
    Exchanged,
    Leaves,
}

impl Backup {
    /// Goes on with what the directory already holds: the phases of one attempt may share it.
    pub fn open(dir: Option<&Path>) -> Result<Self, SafeError> {
        let Some(dir) = dir else { return Ok(Self::default()) };
        let fail = |what| move |source| SafeError::Io { path: dir.to_owned(), what, source };
        std::fs::create_dir_all(dir.join("files")).map_err(fail("make the backup directory"))?;
        safe::set_attributes(dir, Attributes { mode: Some(0o700), ..Attributes::default() })?;
        let (manifest, entries) = Manifest::open(dir)?;
        let mut backup = Self { to: Some((dir.to_owned(), manifest)), ..Self::default() };
        let mut moved = BTreeSet::new();
        for entry in &entries {
            if let Was::Parked { to } = &entry.was
                && safe::look(to)?.is_some()
            {
                moved.insert(entry.path.clone());
            }
        }
        backup.noted(entries);
        backup.seen.extend(moved.into_iter().map(|path| (path, None)));
        Ok(backup)
    }

    /// Before `path` is made, or gets other attributes: keeps what is there, of a file its attributes, unless that was done
    /// before. On disk when this returns.
    pub fn keep(&mut self, path: &Path) -> Result<(), SafeError> {
        let entry = self.entry(path, Fate::Stays, 0)?;
        self.record(entry.into_iter().collect())
    }

    /// The same for what is about to get another content, by rename.
    pub fn keep_exchanged(&mut self, path: &Path) -> Result<(), SafeError> {
        let entry = self.entry(path, Fate::Exchanged, 0)?;
        self.record(entry.into_iter().collect())
    }

    /// The same for what is about to be removed; of a directory, with everything in it.
    pub fn keep_leaving(&mut self, path: &Path, tree: bool) -> Result<(), SafeError> {
        if self.to.is_none() {
            return Ok(());
        }
        let mut entries: Vec<Entry> = self.entry(path, Fate::Leaves, 0)?.into_iter().collect();
        let inner = if tree { safe::walk(path, TREE_MAX)? } else { Vec::new() };
        for (inner, _) in inner {
            entries.extend(self.entry(&inner, Fate::Leaves, entries.len())?);
        }
        self.record(entries)
    }

    /// Moves `path` to `to`, noted before on the disk. If it could not be moved, what lies there may be kept yet. Gives what
    /// was on record of it before.
    pub fn park(&mut self, path: &Path, to: &Path) -> Result<Kept, SafeError> {
        let before = Kept(self.seen.get(path).copied());
        if !matches!(before.0, Some(None)) {
            self.record(vec![Entry { path: path.to_owned(), was: Was::Parked { to: to.to_owned() } }])?;
        }
        safe::rename(path, to, "park it (it is protected, and nothing was removed)")?;
        self.seen.insert(path.to_owned(), None);
        Ok(before)
    }

    /// What was parked lies at `path` again: of it is kept what was before.
    pub fn not_parked(&mut self, path: &Path, before: Kept) {
        match before.0 {
            Some(kept) => self.seen.insert(path.to_owned(), kept),
            None => self.seen.remove(path),
        };
    }

    /// Puts entries on record: not before they are on the disk is anything taken for kept.
    fn record(&mut self, entries: Vec<Entry>) -> Result<(), SafeError> {
        let Some((_, manifest)) = self.to.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        manifest.append(&entries)?;
        self.noted(entries);
        Ok(())
    }

    fn noted(&mut self, entries: Vec<Entry>) {
        self.entries += entries.len();
        for Entry { path, was } in entries {
            match was {
                // Not before it was moved.
                Was::Parked { .. } => {}
                Was::Attributes { mode, uid, gid } => drop(self.seen.insert(path, Some((mode, uid, gid)))),
                _ => drop(self.seen.insert(path, None)),
            }
        }
    }

    /// What is to be put on record of a path, as the one after so many others; None: nothing is.
    fn entry(&mut self, path: &Path, fate: Fate, after: usize) -> Result<Option<Entry>, SafeError> {
        let Some(dir) = self.to.as_ref().map(|(dir, _)| dir.clone()) else { return Ok(None) };
        let before = match self.seen.get(path) {
            None => None,
            Some(Some(only)) if fate != Fate::Stays => Some(*only),
            Some(_) => return Ok(None),
        };
        let was = match safe::look(path)? {
            None => Was::Absent,
            Some(stat) => match safe::kind(&stat) {
                FileType::Directory => {
                    Was::Directory { mode: safe::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                FileType::Symlink => Was::Link { target: safe::read_link(path)? },
                FileType::RegularFile if fate == Fate::Stays => {
                    Was::Attributes { mode: safe::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                FileType::RegularFile => {
                    let copy = format!("files/{:06}", self.entries + after);
                    let to = dir.join(&copy);
                    // By one descriptor, so that the content of one file never gets the owner and mode of another.
                    let (file, stat) = safe::open(path)?;
                    self.keep_content(path, (&file, &stat), &to, fate)?;
                    let (mode, uid, gid) = before.unwrap_or((safe::mode_of(&stat), stat.st_uid, stat.st_gid));
                    Was::File { copy, mode, uid, gid }
                }
                // Sockets, pipes and devices are made again by whoever made them.
                _ => return Ok(None),
            },
        };
        Ok(Some(Entry { path: path.to_owned(), was }))
    }

    /// A file that leaves keeps its content under a second name, which takes no room. Else it is copied, while there is room
    /// for that on the disk and in the bound of one run.
    fn keep_content(
        &mut self,
        path: &Path,
        (file, stat): (&File, &Stat),
        copy: &Path,
        fate: Fate,
    ) -> Result<(), SafeError> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // A small one that is exchanged is copied: if that fails, it stays, and some programs want no second name of theirs.
        let linked = fate == Fate::Leaves || size > LINKED_MIN;
        // With another name besides, whoever writes there would write into what was kept.
        if linked && stat.st_nlink == 1 && safe::second_name(&Notes::default(), path, copy).is_ok() {
            let same = |named: Stat| (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino);
            if safe::look(copy)?.is_some_and(same) {
                return Ok(());
            }
            // Another file was put in its place meanwhile.
            safe::remove(copy, false)?;
        }
        let refuse = |why: String| {
            let what = format!(
                "is {} MiB, and nothing was changed, since it can't be kept for an undo: {why}; make room there, move \
                 the file away, or name it in `state` of its service, which is moved aside as a whole",
                size >> 20
            );
            SafeError::refused(path, what)
        };
        let copied = self.copied.saturating_add(size);
        if copied > COPIED_MAX {
            return Err(refuse(format!("one run copies at most {} GiB", COPIED_MAX >> 30)));
        }
        if copied > UNASKED_MAX {
            let room = rustix::fs::statvfs(copy.parent().unwrap_or(copy)).map_err(|e| refuse(e.to_string()))?;
            let bytes = |blocks: u64| blocks.saturating_mul(room.f_frsize);
            if size.saturating_add(RESERVE_MAX.min(bytes(room.f_blocks) / 10)) > bytes(room.f_bavail) {
                return Err(refuse(format!("{} has {} MiB free", copy.display(), bytes(room.f_bavail) >> 20)));
            }
        }
        safe::copy(&Notes::default(), file, copy, PRIVATE).map_err(|e| refuse(e.line()))?;
        self.copied = copied;
        Ok(())
    }
}

fn attributes(mode: u32, uid: u32, gid: u32) -> Attributes {
    Attributes { mode: Some(mode), uid: Some(uid), gid: Some(gid) }
}

/// What `undo` did not get done; what stands in `restored` is done, the rest is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{} of the paths could not be restored: {}", failed.len(), failed.join("; "))]
pub struct UndoError {
    pub restored: Vec<String>,
    pub failed: Vec<String>,
}

/// Puts back everything that a run kept, and returns the paths it changed. May be repeated.
pub fn undo(backup_dir: &Path) -> Result<Vec<String>, UndoError> {
    let read = manifest::read(backup_dir);
    let (entries, _) = read.map_err(|e| UndoError { restored: Vec::new(), failed: vec![e.line()] })?;
    let (mut restored, mut failed) = (Vec::new(), Vec::new());
    // First what appeared goes away, innermost first; then what was there comes back, outermost first.
    for entry in entries.iter().rev().filter(|e| e.was == Was::Absent) {
        note(&entry.path, take_away(&entry.path), &mut restored, &mut failed);
    }
    let only = |e: &&Entry| matches!(e.was, Was::Attributes { .. });
    for entry in entries.iter().filter(|e| e.was != Was::Absent && !only(e)) {
        note(&entry.path, put_back(backup_dir, entry), &mut restored, &mut failed);
    }
    // In the end, for what was moved aside after them too. A file whose content was kept has them by that.
    let whole: BTreeSet<&Path> =
        entries.iter().filter(|e| matches!(e.was, Was::File { .. })).map(|e| e.path.as_path()).collect();
    for entry in entries.iter().filter(|e| only(e) && !whole.contains(e.path.as_path())) {
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
            let attributes = attributes(*mode, *uid, *gid);
            match &now {
                Some(stat) if safe::kind(stat) == FileType::Directory && same(*uid, *gid, *mode) => return Ok(false),
                Some(stat) if safe::kind(stat) == FileType::Directory => safe::set_attributes(path, attributes)?,
                Some(_) => {
                    safe::remove(path, false)?;
                    safe::make_directory(&Notes::default(), path, attributes)?;
                }
                None => safe::make_directory(&Notes::default(), path, attributes)?,
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
            safe::copy(&Notes::default(), &safe::open(&copy)?.0, path, attributes(*mode, *uid, *gid))?;
            Ok(true)
        }
        Was::Attributes { mode, uid, gid } => {
            if !now.is_some_and(|s| safe::kind(&s) == FileType::RegularFile) {
                return Err(SafeError::refused(path, "only its mode and owner were changed, and the file is gone"));
            }
            if same(*uid, *gid, *mode) {
                return Ok(false);
            }
            safe::set_attributes(path, attributes(*mode, *uid, *gid))?;
            Ok(true)
        }
        Was::Link { target } => {
            let link = now.is_some_and(|s| safe::kind(&s) == FileType::Symlink);
            if link && safe::read_link(path)? == *target {
                return Ok(false);
            }
            safe::link(&Notes::default(), path, target)?;
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
            safe::rename(to, path, "move it back")?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests;
