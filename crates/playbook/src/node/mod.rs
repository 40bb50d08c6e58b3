//! Access to the node for all modules: they read and change the node only through [`NodeAccess`].
//!
//! In a real run the calls go to `os::atomic_fs` and the system's own tools. In check mode the same
//! calls read and change a prediction (`overlay`, `predicted_state`). Check mode writes nothing,
//! except for archives that are unpacked into a temporary directory for inspection. So each module
//! has a single code path. In check mode, a later task sees the predicted changes of earlier tasks.

mod overlay;
mod predicted_state;

use crate::os::accounts;
use crate::os::acting_user::as_root;
use crate::os::atomic_fs::{self, Attributes, SafeError};
use crate::os::temp_files::TempFileNotes;
use crate::os::tree_removal;
use crate::run::event::CancelToken;
use overlay::Overlay;
pub use predicted_state::PredictedState;
use rustix::fs::{FileType, Stat};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

type Accounts = BTreeMap<(bool, String), Option<Vec<String>>>;
type Result<T> = std::result::Result<T, SafeError>;

/// The node, or its predicted state in check mode.
#[derive(Debug, Default)]
pub struct NodeAccess {
    /// The predicted files, and the predicted units, packages and accounts. None: this is not check
    /// mode.
    prediction: Option<Box<(Overlay, PredictedState)>>,
    notes: TempFileNotes,
    /// A file that must be on disk before the next change of the node.
    write_ahead: Option<WriteAheadFile>,
    /// Whether something was missing in check mode that a task which was not run may create.
    indeterminate: Cell<bool>,
    /// Cached passwd entries (true) and group entries (false), by the name or id that was looked
    /// up.
    accounts: RefCell<Accounts>,
    cancel: CancelToken,
}

/// The path and content of a file that is written with mode 0600.
#[derive(Debug)]
pub struct WriteAheadFile {
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl NodeAccess {
    /// `check` selects check mode, which writes nothing. Otherwise `notes` records each temporary
    /// file before it is created. `cancel` ends account lookups.
    pub fn new(check: bool, notes: TempFileNotes, cancel: CancelToken) -> Self {
        Self { prediction: check.then(Box::default), notes, cancel, ..Self::default() }
    }

    pub fn notes(&self) -> &TempFileNotes {
        &self.notes
    }

    /// Sets the file to write before the next change. Returns the previous file if it was not
    /// written.
    pub fn set_write_ahead(&mut self, ahead: Option<WriteAheadFile>) -> Option<WriteAheadFile> {
        std::mem::replace(&mut self.write_ahead, ahead)
    }

    /// Writes the file of `set_write_ahead`. Must be called before each change of the node; the
    /// methods of this type call it themselves.
    pub fn begin_change(&mut self) -> Result<()> {
        let Some(WriteAheadFile { path, content }) = &self.write_ahead else { return Ok(()) };
        let private = Attributes { mode: Some(0o600), ..Attributes::default() };
        as_root(|| atomic_fs::write(&self.notes, path, content, private, &mut |_| Ok(())))?;
        self.write_ahead = None;
        Ok(())
    }

    /// Whether earlier tasks of a run in check mode would have changed the node.
    pub fn has_predicted_changes(&self) -> bool {
        let changes = |would: &(Overlay, PredictedState)| !would.0.is_empty() || would.1 != PredictedState::default();
        self.prediction.as_deref().is_some_and(changes)
    }

    /// Whether this is check mode.
    pub fn is_check_mode(&self) -> bool {
        self.prediction.is_some()
    }

    /// The metadata of a path; a link is not followed. None: the path does not exist.
    pub fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        match &self.prediction {
            None => atomic_fs::stat_path(path),
            Some(would) => would.0.stat(path),
        }
    }

    /// Follows all links to the real path. None: the target does not exist or cannot be read. The
    /// result is for inspection only. The target must not be changed or passed on, because an
    /// untrusted user may control the links.
    pub fn follow(&self, path: &Path) -> Option<(PathBuf, Stat)> {
        match &self.prediction {
            None => {
                let real = std::fs::canonicalize(path).ok()?;
                let stat = rustix::fs::lstat(&real).ok()?;
                Some((real, stat))
            }
            Some(would) => would.0.follow(path),
        }
    }

    /// Follows links to a target that will be changed or read. Fails on links that a user other
    /// than root may have created.
    pub fn follow_trusted(&self, path: &Path) -> Result<(PathBuf, Option<Stat>)> {
        match &self.prediction {
            None => atomic_fs::lead(path),
            Some(would) => would.0.follow_trusted(path),
        }
    }

    /// Like `follow_trusted`, but None if the target or one of its parent directories does not
    /// exist.
    pub fn find_trusted(&self, path: &Path) -> Result<Option<(PathBuf, Stat)>> {
        match self.follow_trusted(path) {
            Ok((real, stat)) => Ok(stat.map(|stat| (real, stat))),
            Err(SafeError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    pub fn is_directory(&self, path: &Path) -> bool {
        self.follow(path).is_some_and(|(_, stat)| atomic_fs::kind(&stat) == FileType::Directory)
    }

    /// The content of a regular file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.note_not_found(match &self.prediction {
            None => atomic_fs::read(path),
            Some(would) => would.0.read(path),
        })
    }

    /// Opens a regular file for reading.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Read>> {
        Ok(match &self.prediction {
            None => Box::new(atomic_fs::open(path)?.0),
            Some(would) => would.0.open(path)?,
        })
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        match &self.prediction {
            None => atomic_fs::read_link(path),
            Some(would) => would.0.read_link(path),
        }
    }

    /// The sorted names in a directory.
    pub fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        match &self.prediction {
            None => atomic_fs::list(path).map(|mut names| {
                names.sort();
                names
            }),
            Some(would) => would.0.list(path),
        }
    }

    /// Everything below a directory, parents first. Links are not followed. Fails at another file
    /// system and at more than `most` entries.
    pub fn walk(&self, path: &Path, most: usize) -> Result<Vec<(PathBuf, Stat)>> {
        match &self.prediction {
            None => atomic_fs::walk(path, most),
            Some(would) => would.0.walk(path, most),
        }
    }

    /// Replaces the file at `path` atomically. `check` validates the new file before it is renamed;
    /// check mode does not call it.
    pub fn write(
        &mut self,
        path: &Path,
        content: &[u8],
        attributes: Attributes,
        check: &mut dyn FnMut(&Path) -> std::result::Result<(), String>,
    ) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::write(&self.notes, path, content, attributes, check),
            Some(would) => would.0.write(path, content, attributes),
        };
        self.note_not_found(done)
    }

    /// Copies a file of any size.
    pub fn copy(&mut self, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::copy(&self.notes, &atomic_fs::open(from)?.0, path, attributes),
            Some(would) => would.0.copy(from, path, attributes),
        };
        self.note_not_found(done)
    }

    /// Renames a temporary file of this run, whose content is already on disk, to `path`.
    pub fn adopt(&mut self, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::adopt(&self.notes, from, path, attributes),
            Some(would) => would.0.adopt(from, path, attributes),
        };
        self.note_not_found(done)
    }

    /// Whether two files of any size have the same content.
    pub fn same_content(&self, one: &Path, other: &Path) -> Result<bool> {
        atomic_fs::same_bytes((one, &mut self.open(one)?), (other, &mut self.open(other)?))
    }

    /// Sets mode, owner and group of an existing file or directory.
    pub fn set_attributes(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::set_attributes(path, attributes),
            Some(would) => would.0.set_attributes(path, attributes),
        };
        self.note_not_found(done)
    }

    /// Sets times in seconds since 1970. None: unchanged.
    pub fn set_times(&mut self, path: &Path, accessed: Option<i64>, modified: Option<i64>) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::set_times(path, accessed, modified),
            Some(would) => would.0.set_times(path, accessed, modified),
        };
        self.note_not_found(done)
    }

    /// Creates a directory. Fails if it exists or if its parent does not.
    pub fn make_directory(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::make_directory(&self.notes, path, attributes),
            Some(would) => would.0.make_directory(path, attributes),
        };
        self.note_not_found(done)
    }

    /// Removes a file, a link or an empty directory.
    pub fn remove(&mut self, path: &Path, directory: bool) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::remove(path, directory),
            Some(would) => would.0.remove(path, directory),
        };
        self.note_not_found(done)
    }

    /// Removes a directory with everything in it. Fails if a file system is mounted below it.
    pub fn remove_tree(&mut self, path: &Path) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => tree_removal::remove(path),
            Some(would) => {
                let (overlay, would) = &mut **would;
                let gone = |point: &str| {
                    would.has_unknown_effects()
                        || would.text(&format!("mount {point}")).is_some_and(|told| told == "unmounted")
                };
                overlay
                    .follow_trusted(path)
                    .and_then(|(real, _)| tree_removal::check_unmounted(&real, &gone))
                    .and_then(|()| overlay.remove_tree(path))
            }
        };
        self.note_not_found(done)
    }

    /// Creates a symbolic link atomically, replacing a file or link.
    pub fn link(&mut self, path: &Path, target: &Path) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::link(&self.notes, path, target),
            Some(would) => would.0.link(path, target),
        };
        self.note_not_found(done)
    }

    /// Makes `name` a hard link to `path`.
    pub fn hard_link(&mut self, path: &Path, name: &Path) -> Result<()> {
        self.begin_change()?;
        let done = match &mut self.prediction {
            None => atomic_fs::second_name(&self.notes, path, name),
            Some(would) => would.0.hard_link(path, name),
        };
        self.note_not_found(done)
    }

    /// If a path does not exist, notes this with `note_missing`. In check mode, a task that was not
    /// run may create the path.
    fn note_not_found<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(SafeError::Io { source, .. }) = &done
            && source.kind() == std::io::ErrorKind::NotFound
        {
            self.note_missing(String::new());
        }
        done
    }

    /// The predicted units, packages and accounts. None: not in check mode.
    pub fn predicted_state(&self) -> Option<&PredictedState> {
        self.prediction.as_ref().map(|would| &would.1)
    }

    pub fn predicted_state_mut(&mut self) -> Option<&mut PredictedState> {
        self.prediction.as_mut().map(|would| &mut would.1)
    }

    /// The passwd entry (name:x:uid:gid:comment:home:shell) by name or id.
    pub fn user(&self, key: &str) -> Option<Vec<String>> {
        self.predicted_state().and_then(|w| w.user(key)).unwrap_or_else(|| self.cached_account(true, key))
    }

    /// The group entry (name:x:gid:members) by name or id.
    pub fn group(&self, key: &str) -> Option<Vec<String>> {
        self.predicted_state().and_then(|w| w.group(key)).unwrap_or_else(|| self.cached_account(false, key))
    }

    /// Looks up an account. The result is cached until `forget_accounts`, because a directory tree
    /// may hold many files of one owner.
    fn cached_account(&self, user: bool, key: &str) -> Option<Vec<String>> {
        let mut accounts = self.accounts.borrow_mut();
        let ask = || if user { accounts::user(key, &self.cancel) } else { accounts::group(key, &self.cancel) };
        accounts.entry((user, key.to_owned())).or_insert_with(ask).clone()
    }

    /// Clears the account cache, because users and groups may have changed.
    pub fn forget_accounts(&self) {
        self.accounts.borrow_mut().clear();
    }

    /// The id of a user name or of a number. Fails if the user does not exist.
    pub fn uid(&self, name: &str) -> std::result::Result<u32, String> {
        if let Ok(id) = name.parse() {
            return check_id(id);
        }
        let id = self.user(name).and_then(|e| e.get(2)?.parse().ok());
        id.ok_or_else(|| self.note_missing(format!("there is no user `{name}`")))
    }

    /// The id of a group name or of a number. Fails if the group does not exist.
    pub fn gid(&self, name: &str) -> std::result::Result<u32, String> {
        if let Ok(id) = name.parse() {
            return check_id(id);
        }
        let id = self.group(name).and_then(|e| e.get(2)?.parse().ok());
        id.ok_or_else(|| self.note_missing(format!("there is no group `{name}`")))
    }

    /// Notes that something is missing, and returns `message` for the error. In check mode, after
    /// tasks with unknown effects, the result of the task is then unknown instead of failed.
    pub fn note_missing(&self, message: String) -> String {
        if self.predicted_state().is_some_and(PredictedState::has_unknown_effects) {
            self.indeterminate.set(true);
        }
        message
    }

    /// Whether something was missing that a task with unknown effects may create in a real run.
    /// Clears the note of `note_missing`.
    pub fn take_indeterminate(&self) -> bool {
        self.indeterminate.take()
    }
}

/// Rejects the id 4294967295 (-1): chown takes it as "leave unchanged".
fn check_id(id: u32) -> std::result::Result<u32, String> {
    if id == u32::MAX { Err(format!("{id} is not a valid user or group id")) } else { Ok(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_cached_until_forgotten() {
        let node = NodeAccess::default();
        for _ in 0..3 {
            assert_eq!(node.user("0").unwrap()[0], "root");
            assert_eq!(node.user("4123456789"), None);
            assert_eq!(node.group("4123456789"), None);
        }
        assert_eq!(node.accounts.borrow().len(), 3, "missing accounts are cached too");
        node.forget_accounts();
        assert!(node.accounts.borrow().is_empty());
    }
}
