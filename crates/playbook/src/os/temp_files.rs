//! Temporary files of a run. Their paths are noted on disk before they are created. If the run is
//! killed, the next run removes them.
//!
//! Notes are not synced. So a power failure may leave a temporary file behind, but a killed process
//! does not. `atomic_fs` chooses the names. For files that need not be in the directory of their
//! destination, a run has a private directory.

use crate::os::acting_user::{acting_user, as_root};
use crate::os::atomic_fs::{self, SafeError};
use crate::os::tree_removal;
use rustix::fs::{FileType, FlockOperation, flock};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The prefix of the names of all temporary files. Files without this prefix are never removed.
pub const PREFIX: &str = ".remoor-";
/// A note is the length of the path as this many hexadecimal digits, then the path and a newline.
const HEAD: usize = 8;
/// The maximum length of a path in bytes.
const PATH_MAX: usize = 4_096;
/// Number of notes in a file of notes: one for the file that is being created, and one for a file
/// that is kept while others are created.
const PLACES: usize = 2;
const PLACE: usize = HEAD + PATH_MAX + 1;
/// Maximum number of live processes with the same process id, which happens in containers.
const NAMES_MAX: u32 = 100;

/// The notes of one process about its temporary files. The default value notes nothing.
#[derive(Debug, Default)]
pub struct TempFileNotes {
    dir: PathBuf,
    /// The file of notes. It is created with the first note and locked while this process runs.
    own: RefCell<Option<(PathBuf, File)>>,
}

impl TempFileNotes {
    /// Removes the files that killed runs noted in `dir`, and keeps the notes of this run there.
    pub fn open(dir: &Path) -> Self {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                continue;
            }
            let file = OpenOptions::new().read(true).open(&path);
            // A live process keeps its file of notes locked, so a file that can be locked belongs
            // to a dead process.
            if let Some(file) = file.ok().filter(|file| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok())
                && (0..PLACES).all(|at| read_note(&file, at).is_none_or(|left| take_away(&left).is_ok()))
                && remove_private_dir(&room_of(&path)).is_ok()
            {
                let _next_time = fs::remove_file(&path);
            }
        }
        Self { dir: dir.to_owned(), own: RefCell::default() }
    }

    /// Notes that `path` is about to be created. This overwrites the previous note, because the
    /// file of that note has its final name by now or was removed.
    pub fn note(&self, path: &Path) -> io::Result<()> {
        self.note_at(0, path)
    }

    /// Like `note`, for a file that exists while other files are created. There is only one such
    /// note at a time.
    pub fn note_long(&self, path: &Path) -> io::Result<()> {
        self.note_at(1, path)
    }

    fn note_at(&self, at: usize, path: &Path) -> io::Result<()> {
        if self.dir.as_os_str().is_empty() {
            return Ok(());
        }
        let mut own = self.own.borrow_mut();
        if own.is_none() {
            *own = Some(as_root(|| self.make())?);
        }
        let Some((_, file)) = &*own else { return Ok(()) };
        let name = path.as_os_str().as_bytes();
        let mut line = format!("{:0HEAD$x}", name.len()).into_bytes();
        line.extend_from_slice(name);
        line.push(b'\n');
        file.write_all_at(&line, (at * PLACE) as u64)
    }

    /// Creates a private temporary directory in the directory of the notes. It is removed when the
    /// returned value is dropped, or by the next run if this one is killed. Without notes, and
    /// for another user than root, the directory is created in the system's temporary directory.
    pub fn private_dir(&self) -> io::Result<TempDir> {
        let make = tempfile::Builder::new().prefix(PREFIX).clone();
        // Only root can enter the directory of the notes.
        if self.dir.as_os_str().is_empty() || acting_user().is_some() {
            return make.tempdir();
        }
        let mut own = self.own.borrow_mut();
        if own.is_none() {
            *own = Some(self.make()?);
        }
        let Some((name, _)) = &*own else { return make.tempdir() };
        let room = room_of(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&room)?;
        make.tempdir_in(room)
    }

    fn make(&self) -> io::Result<(PathBuf, File)> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        for n in 0..NAMES_MAX {
            let path = self.dir.join(format!("{}-{n}", std::process::id()));
            let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok((path, file));
            }
        }
        Err(io::Error::other(format!("too many notes in {}", self.dir.display())))
    }
}

impl Drop for TempFileNotes {
    fn drop(&mut self) {
        if let Some((path, _locked)) = self.own.take()
            && remove_private_dir(&room_of(&path)).is_ok()
        {
            let _next_time = fs::remove_file(path);
        }
    }
}

/// The private directory of a run, derived from its file of notes.
fn room_of(notes: &Path) -> PathBuf {
    notes.with_extension("room")
}

/// Removes the private directory of a run. A directory that does not exist is no error.
fn remove_private_dir(room: &Path) -> Result<(), SafeError> {
    match atomic_fs::stat_path(room)? {
        Some(_) => tree_removal::remove(room),
        None => Ok(()),
    }
}

/// Reads the note at position `at`. None: no note, or an incomplete one.
fn read_note(file: &File, at: usize) -> Option<PathBuf> {
    let mut bytes = vec![0; PLACE];
    let length = file.read_at(&mut bytes, (at * PLACE) as u64).ok()?;
    let length_of_path = usize::from_str_radix(std::str::from_utf8(bytes.get(..HEAD)?).ok()?, 16).ok()?;
    let end = HEAD.checked_add(length_of_path).filter(|end| *end < length)?;
    (bytes[end] == b'\n').then(|| PathBuf::from(OsStr::from_bytes(&bytes[HEAD..end])))
}

/// Removes the file at a noted path. A file that does not exist is no error.
fn take_away(path: &Path) -> Result<(), SafeError> {
    let ours = path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
    match atomic_fs::stat_path(path) {
        Ok(Some(stat)) if ours => atomic_fs::remove(path, atomic_fs::kind(&stat) == FileType::Directory),
        Ok(_) => Ok(()),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_noted_is_taken_away_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().canonicalize().unwrap();
        let (notes, at) = (d.join("notes"), |name: &str| d.join(name));
        // Simulates a killed process: its notes stay, its locks are released.
        let killed = |name: &str, path: &Path| {
            let run = TempFileNotes::open(&at("elsewhere"));
            run.note(path).unwrap();
            let (own, file) = run.own.borrow_mut().take().unwrap();
            drop(file);
            fs::create_dir_all(&notes).unwrap();
            fs::rename(own, notes.join(name)).unwrap();
        };
        for name in [".remoor-1-0-x", "precious", ".remoor-lives"] {
            fs::write(at(name), "x").unwrap();
        }
        fs::create_dir(at(".remoor-2-0-dir")).unwrap();
        killed("1", &at(".remoor-1-0-x"));
        killed("2", &at(".remoor-2-0-dir"));
        killed("3", &at("precious"));
        killed("4", &at("nowhere/.remoor-gone"));
        fs::write(notes.join("5"), "0000ffff/half").unwrap();
        fs::write(notes.join("6"), "").unwrap();
        killed("8", &at("gone"));
        fs::create_dir_all(notes.join("8.room/.remoor-x/deep")).unwrap();
        let long = TempFileNotes::open(&at("elsewhere"));
        long.note_long(&at(".remoor-long")).unwrap();
        fs::write(at(".remoor-long"), "x").unwrap();
        let (own, file) = long.own.borrow_mut().take().unwrap();
        drop(file);
        fs::rename(own, notes.join("9")).unwrap();
        let lives = TempFileNotes::open(&notes);
        let room = lives.private_dir().unwrap();
        fs::write(room.path().join("f"), "x").unwrap();
        lives.note(&at(".remoor-lives-much-longer")).unwrap();
        lives.note(&at(".remoor-lives")).unwrap();
        let next = TempFileNotes::open(&notes);
        let left = |dir: &Path| {
            let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            all.sort();
            all
        };
        assert_eq!(left(&d), [".remoor-lives", "elsewhere", "notes", "precious"]);
        assert_eq!(left(&notes).len(), 2, "that of the one that lives, and its room");
        assert!(room.path().starts_with(&notes) && room.path().join("f").exists());
        next.note(&at(".remoor-other")).unwrap();
        assert_eq!(left(&notes).len(), 3);
        drop((lives, next));
        assert!(left(&notes).is_empty() && at(".remoor-lives").exists());
    }
}
