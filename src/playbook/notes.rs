//! The name of what a run is making beside its place, before it is made: a run that is killed in between leaves it there, and
//! the next one takes it away.
//!
//! Not synced: a power cut may leave such a file, a killed process does not. Which names these are, `safe` decides.

use super::safe::{self, SafeError};
use rustix::fs::{FileType, FlockOperation, flock};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What all names begin with that are noted: nothing else is ever taken away.
pub const PREFIX: &str = ".remoor-";
/// A note: this many bytes, in hexadecimal, then the path, then a line break.
const HEAD: usize = 8;
/// No path is longer.
const PATH_MAX: usize = 4_096;
/// Notes of processes that live and have the same number, in containers.
const NAMES_MAX: u32 = 100;

/// The notes of one process; by default nothing is noted.
#[derive(Debug, Default)]
pub struct Notes {
    dir: PathBuf,
    /// Locked as long as this process lives, made with the first note.
    own: RefCell<Option<(PathBuf, File)>>,
}

impl Notes {
    /// Takes away what killed runs have noted in `dir`, and keeps the notes of this one there.
    pub fn open(dir: &Path) -> Self {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let file = OpenOptions::new().read(true).open(&path);
            // Of one that lives it is locked.
            if let Some(file) = file.ok().filter(|file| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok())
                && noted(&file).is_none_or(|left| take_away(&left).is_ok())
            {
                let _next_time = fs::remove_file(&path);
            }
        }
        Self { dir: dir.to_owned(), own: RefCell::default() }
    }

    /// `path` is about to be made. What was noted before has its name by now, or is gone.
    pub fn note(&self, path: &Path) -> io::Result<()> {
        if self.dir.as_os_str().is_empty() {
            return Ok(());
        }
        let mut own = self.own.borrow_mut();
        if own.is_none() {
            *own = Some(self.make()?);
        }
        let Some((_, file)) = &*own else { return Ok(()) };
        let name = path.as_os_str().as_bytes();
        let mut line = format!("{:0HEAD$x}", name.len()).into_bytes();
        line.extend_from_slice(name);
        line.push(b'\n');
        file.write_all_at(&line, 0)
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

impl Drop for Notes {
    fn drop(&mut self) {
        if let Some((path, _locked)) = self.own.take() {
            let _next_time = fs::remove_file(path);
        }
    }
}

/// None for what is no note, or a part of one.
fn noted(file: &File) -> Option<PathBuf> {
    let mut bytes = vec![0; HEAD + PATH_MAX + 1];
    let length = file.read_at(&mut bytes, 0).ok()?;
    let length_of_path = usize::from_str_radix(std::str::from_utf8(bytes.get(..HEAD)?).ok()?, 16).ok()?;
    let end = HEAD.checked_add(length_of_path).filter(|end| *end < length)?;
    (bytes[end] == b'\n').then(|| PathBuf::from(OsStr::from_bytes(&bytes[HEAD..end])))
}

/// Nothing there is fine.
fn take_away(path: &Path) -> Result<(), SafeError> {
    let ours = path.file_name().is_some_and(|name| name.as_bytes().starts_with(PREFIX.as_bytes()));
    match safe::look(path) {
        Ok(Some(stat)) if ours => safe::remove(path, safe::kind(&stat) == FileType::Directory),
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
        // As killed: the notes stay, their locks go.
        let killed = |name: &str, path: &Path| {
            let run = Notes::open(&at("elsewhere"));
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
        let lives = Notes::open(&notes);
        lives.note(&at(".remoor-lives-much-longer")).unwrap();
        lives.note(&at(".remoor-lives")).unwrap();
        let next = Notes::open(&notes);
        let left = |dir: &Path| {
            let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            all.sort();
            all
        };
        assert_eq!(left(&d), [".remoor-lives", "elsewhere", "notes", "precious"]);
        assert_eq!(left(&notes).len(), 1, "that of the one that lives");
        next.note(&at(".remoor-other")).unwrap();
        assert_eq!(left(&notes).len(), 2);
        drop((lives, next));
        assert!(left(&notes).is_empty() && at(".remoor-lives").exists());
    }
}
