//! Keeps the state of every path before its first change, in copies and in a manifest that `undo`
//! reads.

mod manifest;

use crate::os::atomic_fs::{self, Attributes, SafeError};
use crate::os::temp_files::TempFileNotes;
use manifest::{BackupEntry, BackupManifest, Was};
use rustix::fs::{FileType, Stat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum number of entries in a directory tree that is about to be removed.
const TREE_MAX: usize = 20_000;
/// Maximum number of bytes that one run copies into its backup.
const COPIED_MAX: u64 = 32 << 30;
/// Free space in bytes that must remain on the disk of the backup after a copy. If a tenth of the
/// disk is less, that tenth must remain.
const RESERVE_MAX: u64 = 1 << 30;
/// Number of bytes that one run may copy without checking free space. Configuration files are
/// small, and must be changeable on a full disk too.
const UNASKED_MAX: u64 = 64 << 20;
/// Largest size in bytes of a file that the backup copies when the content of the file is replaced.
/// For a larger file, the backup makes a second hard link.
const LINKED_MIN: u64 = 1 << 20;
const PRIVATE: Attributes = Attributes { mode: Some(0o600), uid: None, gid: None };

/// The backup directory of a run. If no directory is given, the run has no backup.
#[derive(Debug, Default)]
pub struct Backup {
    to: Option<(PathBuf, BackupManifest)>,
    /// Recorded paths. The value is `Some` for a path of which only mode, owner and group were
    /// kept.
    seen: BTreeMap<PathBuf, Option<Only>>,
    /// Number of entries in the manifest; it also numbers the copies under `files/`.
    entries: usize,
    /// Number of bytes that this run has copied into the backup.
    copied: u64,
}

/// Mode, owner and group of a file whose content the backup does not have.
type Only = (u32, u32, u32);

/// The value that `Backup::seen` had for a path before `park`; None: `seen` did not contain the
/// path.
#[derive(Debug, Default)]
pub struct PriorRecord(Option<Option<Only>>);

/// The change that is about to be made to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The path is created, or its attributes change.
    AttributesChange,
    /// The content of the file is replaced by a rename.
    ContentReplaced,
    /// The path is removed.
    Removed,
}

impl Backup {
    /// Opens the backup directory `dir` and continues the backup in it, because the phases of one
    /// attempt may share a directory.
    pub fn open(dir: Option<&Path>) -> Result<Self, SafeError> {
        let Some(dir) = dir else { return Ok(Self::default()) };
        let fail = |what| move |source| SafeError::Io { path: dir.to_owned(), what, source };
        std::fs::create_dir_all(dir.join("files")).map_err(fail("make the backup directory"))?;
        atomic_fs::set_attributes(dir, Attributes { mode: Some(0o700), ..Attributes::default() })?;
        let (manifest, entries) = BackupManifest::open(dir)?;
        let mut backup = Self { to: Some((dir.to_owned(), manifest)), ..Self::default() };
        let mut moved = BTreeSet::new();
        for entry in &entries {
            if let Was::Parked { to } = &entry.was
                && atomic_fs::stat_path(to)?.is_some()
            {
                moved.insert(entry.path.clone());
            }
        }
        backup.mark_recorded(entries);
        backup.seen.extend(moved.into_iter().map(|path| (path, None)));
        Ok(backup)
    }

    /// Keeps the current state of `path` in the backup; of a file only mode, owner and group. Must
    /// be called before `path` is created or its attributes change. Does nothing if the backup
    /// already has the path. The manifest entry is on disk when this returns.
    pub fn keep(&mut self, path: &Path) -> Result<(), SafeError> {
        let entry = self.entry(path, Fate::AttributesChange, 0)?;
        self.record(entry.into_iter().collect())
    }

    /// Like `keep`, for a file whose content is about to be replaced by a rename.
    pub fn keep_exchanged(&mut self, path: &Path) -> Result<(), SafeError> {
        let entry = self.entry(path, Fate::ContentReplaced, 0)?;
        self.record(entry.into_iter().collect())
    }

    /// Like `keep`, for a path that is about to be removed. With `tree`, everything in the
    /// directory is kept too.
    pub fn keep_leaving(&mut self, path: &Path, tree: bool) -> Result<(), SafeError> {
        if self.to.is_none() {
            return Ok(());
        }
        let mut entries: Vec<BackupEntry> = self.entry(path, Fate::Removed, 0)?.into_iter().collect();
        let inner = if tree { atomic_fs::walk(path, TREE_MAX)? } else { Vec::new() };
        for (inner, _) in inner {
            entries.extend(self.entry(&inner, Fate::Removed, entries.len())?);
        }
        self.record(entries)
    }

    /// Adds the move to the manifest on disk, then moves `path` to `to`. If the move fails, another
    /// call can still back up the path. Returns the value that `seen` had for the path.
    pub fn park(&mut self, path: &Path, to: &Path) -> Result<PriorRecord, SafeError> {
        let before = PriorRecord(self.seen.get(path).copied());
        if !matches!(before.0, Some(None)) {
            self.record(vec![BackupEntry { path: path.to_owned(), was: Was::Parked { to: to.to_owned() } }])?;
        }
        atomic_fs::rename(path, to, "park it (it is protected; nothing was removed)")?;
        self.seen.insert(path.to_owned(), None);
        Ok(before)
    }

    /// Undoes the change of `seen` that `park` made for a path; `before` is what `park` returned.
    /// Must be called after the file was moved back to `path`.
    pub fn not_parked(&mut self, path: &Path, before: PriorRecord) {
        match before.0 {
            Some(kept) => self.seen.insert(path.to_owned(), kept),
            None => self.seen.remove(path),
        };
    }

    /// Appends entries to the manifest. Their paths count as backed up only after the manifest is
    /// on disk.
    fn record(&mut self, entries: Vec<BackupEntry>) -> Result<(), SafeError> {
        let Some((_, manifest)) = self.to.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        manifest.append(&entries)?;
        self.mark_recorded(entries);
        Ok(())
    }

    fn mark_recorded(&mut self, entries: Vec<BackupEntry>) {
        self.entries += entries.len();
        for BackupEntry { path, was } in entries {
            match was {
                // A path that is to be moved to `park_dir` counts as backed up only after the move;
                // see `park`.
                Was::Parked { .. } => {}
                Was::Attributes { mode, uid, gid } => drop(self.seen.insert(path, Some((mode, uid, gid)))),
                _ => drop(self.seen.insert(path, None)),
            }
        }
    }

    /// Makes the manifest entry for a path, unless the backup already has the path. `after` is the
    /// number of entries that the same call makes before this one.
    fn entry(&mut self, path: &Path, fate: Fate, after: usize) -> Result<Option<BackupEntry>, SafeError> {
        let Some(dir) = self.to.as_ref().map(|(dir, _)| dir.clone()) else { return Ok(None) };
        let before = match self.seen.get(path) {
            None => None,
            Some(Some(only)) if fate != Fate::AttributesChange => Some(*only),
            Some(_) => return Ok(None),
        };
        let was = match atomic_fs::stat_path(path)? {
            None => Was::Absent,
            Some(stat) => match atomic_fs::kind(&stat) {
                FileType::Directory => {
                    Was::Directory { mode: atomic_fs::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                FileType::Symlink => Was::Link { target: atomic_fs::read_link(path)? },
                FileType::RegularFile if fate == Fate::AttributesChange => {
                    Was::Attributes { mode: atomic_fs::mode_of(&stat), uid: stat.st_uid, gid: stat.st_gid }
                }
                FileType::RegularFile => {
                    let copy = format!("files/{:06}", self.entries + after);
                    let to = dir.join(&copy);
                    // Content and attributes are read from one descriptor. Otherwise, if the file
                    // is exchanged meanwhile, the content of one file would be kept with the owner
                    // and mode of another.
                    let (file, stat) = atomic_fs::open(path)?;
                    self.keep_content(path, (&file, &stat), &to, fate)?;
                    let (mode, uid, gid) = before.unwrap_or((atomic_fs::mode_of(&stat), stat.st_uid, stat.st_gid));
                    Was::File { copy, mode, uid, gid }
                }
                // Sockets, pipes and devices are not kept, because the program that made them makes
                // them again.
                _ => return Ok(None),
            },
        };
        Ok(Some(BackupEntry { path: path.to_owned(), was }))
    }

    /// Keeps the content of a file at the path `copy`: as a second hard link, which takes no space,
    /// or as a copy. Fails if a copy would exceed `COPIED_MAX` or leave too little free space.
    fn keep_content(
        &mut self,
        path: &Path,
        (file, stat): (&File, &Stat),
        copy: &Path,
        fate: Fate,
    ) -> Result<(), SafeError> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // A small file whose content is replaced is copied, not linked, because some programs do
        // not accept a second hard link of their files. If the copy fails, the file is not changed.
        let linked = fate == Fate::Removed || size > LINKED_MIN;
        // A file with several hard links is not linked again, because a program that writes through
        // another name would change the kept content.
        if linked && stat.st_nlink == 1 && atomic_fs::second_name(&TempFileNotes::default(), path, copy).is_ok() {
            let same = |named: Stat| (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino);
            if atomic_fs::stat_path(copy)?.is_some_and(same) {
                return Ok(());
            }
            // The file was exchanged meanwhile, so the new link is to another file.
            atomic_fs::remove(copy, false)?;
        }
        let refuse = |why: String| {
            let what = format!(
                "is {} MiB and was not changed, because it cannot be kept for an undo: {why}; free space there, move \
                 the file away, or list it in `state` of its service, which is parked as a whole",
                size >> 20
            );
            SafeError::new_refused(path, what)
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
        atomic_fs::copy(&TempFileNotes::default(), file, copy, PRIVATE).map_err(|e| refuse(e.line()))?;
        self.copied = copied;
        Ok(())
    }
}

fn attributes(mode: u32, uid: u32, gid: u32) -> Attributes {
    Attributes { mode: Some(mode), uid: Some(uid), gid: Some(gid) }
}

/// A partial failure of `undo`: the paths in `restored` were put back, those in `failed` were not.
#[derive(Debug, thiserror::Error)]
#[error("{} of the paths could not be restored: {}", failed.len(), failed.join("; "))]
pub struct UndoError {
    pub restored: Vec<String>,
    pub failed: Vec<String>,
}

/// Puts back everything that a run kept in `backup_dir`, and returns the paths it changed. The call
/// can be repeated.
pub fn undo(backup_dir: &Path) -> Result<Vec<String>, UndoError> {
    let read = manifest::read(backup_dir);
    let (entries, _) = read.map_err(|e| UndoError { restored: Vec::new(), failed: vec![e.line()] })?;
    let (mut restored, mut failed) = (Vec::new(), Vec::new());
    // First remove the paths that the run created, innermost first. Then restore the others,
    // outermost first.
    for entry in entries.iter().rev().filter(|e| e.was == Was::Absent) {
        note(&entry.path, take_away(&entry.path), &mut restored, &mut failed);
    }
    let only = |e: &&BackupEntry| matches!(e.was, Was::Attributes { .. });
    for entry in entries.iter().filter(|e| e.was != Was::Absent && !only(e)) {
        note(&entry.path, put_back(backup_dir, entry), &mut restored, &mut failed);
    }
    // Attributes are restored last, so that files moved back from `park_dir` get theirs too. A file
    // whose content was restored already has its attributes.
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
    match atomic_fs::stat_path(path)? {
        None => Ok(false),
        Some(stat) if atomic_fs::kind(&stat) == FileType::Directory => match atomic_fs::remove(path, true) {
            // The directory contains files that the run did not create, so it stays.
            Err(SafeError::Io { source, .. })
                if source.raw_os_error() == Some(rustix::io::Errno::NOTEMPTY.raw_os_error()) =>
            {
                Ok(false)
            }
            other => other.map(|()| true),
        },
        Some(_) => atomic_fs::remove(path, false).map(|()| true),
    }
}

fn put_back(dir: &Path, entry: &BackupEntry) -> Result<bool, SafeError> {
    let path = &entry.path;
    let now = atomic_fs::stat_path(path)?;
    let same = |uid: u32, gid: u32, mode: u32| {
        now.is_some_and(|s| (s.st_uid, s.st_gid, atomic_fs::mode_of(&s)) == (uid, gid, mode))
    };
    match &entry.was {
        Was::Absent => Ok(false),
        Was::Directory { mode, uid, gid } => {
            let attributes = attributes(*mode, *uid, *gid);
            match &now {
                Some(stat) if atomic_fs::kind(stat) == FileType::Directory && same(*uid, *gid, *mode) => {
                    return Ok(false);
                }
                Some(stat) if atomic_fs::kind(stat) == FileType::Directory => {
                    atomic_fs::set_attributes(path, attributes)?
                }
                Some(_) => {
                    atomic_fs::remove(path, false)?;
                    atomic_fs::make_directory(&TempFileNotes::default(), path, attributes)?;
                }
                None => atomic_fs::make_directory(&TempFileNotes::default(), path, attributes)?,
            }
            Ok(true)
        }
        Was::File { copy, mode, uid, gid } => {
            let copy = dir.join(copy);
            let regular = now.is_some_and(|s| atomic_fs::kind(&s) == FileType::RegularFile);
            if regular && same(*uid, *gid, *mode) && atomic_fs::same_content(path, &copy)? {
                return Ok(false);
            }
            // The file in the backup is copied and not renamed to `path`, so that the undo can be
            // repeated.
            atomic_fs::copy(
                &TempFileNotes::default(),
                &atomic_fs::open(&copy)?.0,
                path,
                attributes(*mode, *uid, *gid),
            )?;
            Ok(true)
        }
        Was::Attributes { mode, uid, gid } => {
            if !now.is_some_and(|s| atomic_fs::kind(&s) == FileType::RegularFile) {
                return Err(SafeError::new_refused(
                    path,
                    "its mode and owner cannot be restored, because the file does not exist any more",
                ));
            }
            if same(*uid, *gid, *mode) {
                return Ok(false);
            }
            atomic_fs::set_attributes(path, attributes(*mode, *uid, *gid))?;
            Ok(true)
        }
        Was::Link { target } => {
            let link = now.is_some_and(|s| atomic_fs::kind(&s) == FileType::Symlink);
            if link && atomic_fs::read_link(path)? == *target {
                return Ok(false);
            }
            atomic_fs::link(&TempFileNotes::default(), path, target)?;
            Ok(true)
        }
        Was::Parked { to } => {
            let Some(parked) = atomic_fs::stat_path(to)? else { return Ok(false) };
            let file = |s: &rustix::fs::Stat| atomic_fs::kind(s) == FileType::RegularFile;
            if now.is_some_and(|s| !(file(&s) && file(&parked))) {
                return Err(SafeError::new_refused(
                    path,
                    format!("a new file or directory exists there; the parked one stays at {}", to.display()),
                ));
            }
            atomic_fs::rename(to, path, "move it back")?;
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests;
