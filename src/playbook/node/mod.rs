//! The node as a run sees it and changes it: all modules look and change through here, and only here.
//!
//! In a run that does things these are the functions of `safe` and the system's own tools; in check mode the same calls
//! look at, and change, what would be (`overlay`, `would`), and nothing is written but an archive that is unpacked aside to be
//! looked into. So each module has one way only, and a later task of a check sees what an earlier one would have made.

mod overlay;
mod would;

use super::event::Cancel;
use super::notes::Notes;
use super::owner;
use super::safe::{self, Attributes, SafeError};
use super::tree;
use overlay::Overlay;
use rustix::fs::{FileType, Stat};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
pub use would::Would;

type Accounts = BTreeMap<(bool, String), Option<Vec<String>>>;
type Result<T> = std::result::Result<T, SafeError>;

/// The node, or what it would be.
#[derive(Debug, Default)]
pub struct Node {
    /// In check mode.
    would: Option<Box<(Overlay, Would)>>,
    notes: Notes,
    /// What is to be on disk before anything is changed.
    ahead: Option<Ahead>,
    /// Something was looked for in vain that what was not run may make.
    vague: Cell<bool>,
    /// Lines of users (true) and groups that were asked for, by what they were asked by.
    accounts: RefCell<Accounts>,
    cancel: Cancel,
}

/// A file and its content, private.
#[derive(Debug)]
pub struct Ahead {
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl Node {
    /// `check`: everything is looked at, nothing of it is written. Otherwise what is made is noted first. `cancel` ends questions.
    pub fn new(check: bool, notes: Notes, cancel: Cancel) -> Self {
        Self { would: check.then(Box::default), notes, cancel, ..Self::default() }
    }

    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// What is to be written before the next change; None: nothing. Gives back what was to be, and was not needed.
    pub fn set_ahead(&mut self, ahead: Option<Ahead>) -> Option<Ahead> {
        std::mem::replace(&mut self.ahead, ahead)
    }

    /// The node is about to be changed. Whoever changes it otherwise than by this type says so here.
    pub fn begin(&mut self) -> Result<()> {
        let Some(Ahead { path, content }) = &self.ahead else { return Ok(()) };
        let private = Attributes { mode: Some(0o600), ..Attributes::default() };
        safe::write(&self.notes, path, content, private, &mut |_| Ok(()))?;
        self.ahead = None;
        Ok(())
    }

    pub fn checks(&self) -> bool {
        self.would.is_some()
    }

    /// What lies at a path, a link itself and not its target; None: nothing.
    pub fn look(&self, path: &Path) -> Result<Option<Stat>> {
        match &self.would {
            None => safe::look(path),
            Some(would) => would.0.look(path),
        }
    }

    /// Where all links lead, and what is there; None: nothing, or it can't be told. For looking, never to be changed, nor to be
    /// read for others.
    pub fn follow(&self, path: &Path) -> Option<(PathBuf, Stat)> {
        match &self.would {
            None => {
                let real = std::fs::canonicalize(path).ok()?;
                let stat = rustix::fs::lstat(&real).ok()?;
                Some((real, stat))
            }
            Some(would) => would.0.follow(path),
        }
    }

    /// Where a link leads whose target is to be changed or read, and what is there; only links that none but root can have put
    /// there are followed.
    pub fn lead(&self, path: &Path) -> Result<(PathBuf, Option<Stat>)> {
        match &self.would {
            None => safe::lead(path),
            Some(would) => would.0.lead(path),
        }
    }

    /// What is there where a path is led over such links; None: nothing, or nothing on the way to it.
    pub fn lead_to(&self, path: &Path) -> Result<Option<(PathBuf, Stat)>> {
        match self.lead(path) {
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
        self.follow(path).is_some_and(|(_, stat)| safe::kind(&stat) == FileType::Directory)
    }

    /// Content of a regular file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.noted(match &self.would {
            None => safe::read(path),
            Some(would) => would.0.read(path),
        })
    }

    /// A regular file, to be read piece by piece.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Read>> {
        Ok(match &self.would {
            None => Box::new(safe::open(path)?.0),
            Some(would) => would.0.open(path)?,
        })
    }

    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        match &self.would {
            None => safe::read_link(path),
            Some(would) => would.0.read_link(path),
        }
    }

    /// Names in a directory, sorted.
    pub fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        match &self.would {
            None => safe::list(path).map(|mut names| {
                names.sort();
                names
            }),
            Some(would) => would.0.list(path),
        }
    }

    /// Everything below a directory, parents first, links not followed, other file systems not entered.
    pub fn walk(&self, path: &Path, most: usize) -> Result<Vec<(PathBuf, Stat)>> {
        match &self.would {
            None => safe::walk(path, most),
            Some(would) => would.0.walk(path, most),
        }
    }

    /// Puts `content` at `path` in one step. `check` sees the new file before it gets its name; in check mode there is none.
    pub fn write(
        &mut self,
        path: &Path,
        content: &[u8],
        attributes: Attributes,
        check: &mut dyn FnMut(&Path) -> std::result::Result<(), String>,
    ) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::write(&self.notes, path, content, attributes, check),
            Some(would) => would.0.write(path, content, attributes),
        };
        self.noted(done)
    }

    /// The content of one file, of whatever size, at another path.
    pub fn copy(&mut self, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::copy(&self.notes, &safe::open(from)?.0, path, attributes),
            Some(would) => would.0.copy(from, path, attributes),
        };
        self.noted(done)
    }

    /// A file of this run's own, whose content is on the disk already, in the place of what is at another path.
    pub fn adopt(&mut self, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::adopt(&self.notes, from, path, attributes),
            Some(would) => would.0.adopt(from, path, attributes),
        };
        self.noted(done)
    }

    /// Whether two files have the same content, of whatever size.
    pub fn same_content(&self, one: &Path, other: &Path) -> Result<bool> {
        safe::same_bytes((one, &mut self.open(one)?), (other, &mut self.open(other)?))
    }

    pub fn set_attributes(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::set_attributes(path, attributes),
            Some(would) => would.0.set_attributes(path, attributes),
        };
        self.noted(done)
    }

    /// Sets times, in seconds since 1970; None leaves.
    pub fn set_times(&mut self, path: &Path, accessed: Option<i64>, modified: Option<i64>) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::set_times(path, accessed, modified),
            Some(would) => would.0.set_times(path, accessed, modified),
        };
        self.noted(done)
    }

    pub fn make_directory(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::make_directory(&self.notes, path, attributes),
            Some(would) => would.0.make_directory(path, attributes),
        };
        self.noted(done)
    }

    /// One file, link or empty directory.
    pub fn remove(&mut self, path: &Path, directory: bool) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::remove(path, directory),
            Some(would) => would.0.remove(path, directory),
        };
        self.noted(done)
    }

    pub fn remove_tree(&mut self, path: &Path) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => tree::remove(path),
            Some(would) => {
                let (overlay, would) = &mut **would;
                let gone = |point: &str| {
                    would.blurred() || would.text(&format!("mount {point}")).is_some_and(|told| told == "unmounted")
                };
                overlay
                    .lead(path)
                    .and_then(|(real, _)| tree::unmounted(&real, &gone))
                    .and_then(|()| overlay.remove_tree(path))
            }
        };
        self.noted(done)
    }

    /// Makes a symbolic link in one step, in the place of a file or link.
    pub fn link(&mut self, path: &Path, target: &Path) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::link(&self.notes, path, target),
            Some(would) => would.0.link(path, target),
        };
        self.noted(done)
    }

    pub fn second_name(&mut self, path: &Path, name: &Path) -> Result<()> {
        self.begin()?;
        let done = match &mut self.would {
            None => safe::second_name(&self.notes, path, name),
            Some(would) => would.0.second_name(path, name),
        };
        self.noted(done)
    }

    /// In check mode, what is not there may come with what was not run.
    fn noted<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(SafeError::Io { source, .. }) = &done
            && source.kind() == std::io::ErrorKind::NotFound
        {
            self.missing(String::new());
        }
        done
    }

    /// What would be of units, packages and accounts; None where things are done.
    pub fn would(&self) -> Option<&Would> {
        self.would.as_ref().map(|would| &would.1)
    }

    pub fn would_mut(&mut self) -> Option<&mut Would> {
        self.would.as_mut().map(|would| &mut would.1)
    }

    /// name:x:uid:gid:comment:home:shell, by name or number.
    pub fn user(&self, key: &str) -> Option<Vec<String>> {
        self.would().and_then(|w| w.user(key)).unwrap_or_else(|| self.account(true, key))
    }

    /// name:x:gid:members, by name or number.
    pub fn group(&self, key: &str) -> Option<Vec<String>> {
        self.would().and_then(|w| w.group(key)).unwrap_or_else(|| self.account(false, key))
    }

    /// Each is asked for once, until somebody may have changed them: a directory may hold any number of files of one owner.
    fn account(&self, user: bool, key: &str) -> Option<Vec<String>> {
        let mut accounts = self.accounts.borrow_mut();
        let ask = || if user { owner::user(key, &self.cancel) } else { owner::group(key, &self.cancel) };
        accounts.entry((user, key.to_owned())).or_insert_with(ask).clone()
    }

    /// Users and groups may be others from now on.
    pub fn forget_accounts(&self) {
        self.accounts.borrow_mut().clear();
    }

    pub fn uid(&self, name: &str) -> std::result::Result<u32, String> {
        if let Ok(id) = name.parse() {
            return numbered(id);
        }
        let id = self.user(name).and_then(|e| e.get(2)?.parse().ok());
        id.ok_or_else(|| self.missing(format!("there is no user `{name}`")))
    }

    pub fn gid(&self, name: &str) -> std::result::Result<u32, String> {
        if let Ok(id) = name.parse() {
            return numbered(id);
        }
        let id = self.group(name).and_then(|e| e.get(2)?.parse().ok());
        id.ok_or_else(|| self.missing(format!("there is no group `{name}`")))
    }

    /// Notes that something is not there, and gives the message back: in a check after something was not run, that is no
    /// failure yet.
    pub fn missing(&self, message: String) -> String {
        if self.would().is_some_and(Would::blurred) {
            self.vague.set(true);
        }
        message
    }

    /// Whether the last failure may be none when the run is real; asked once.
    pub fn take_vague(&self) -> bool {
        self.vague.take()
    }
}

/// The last number is nobody's: for the kernel it means that nothing is to be changed.
fn numbered(id: u32) -> std::result::Result<u32, String> {
    if id == u32::MAX { Err(format!("{id} is no number of a user or group")) } else { Ok(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_asked_for_once_until_it_may_be_another() {
        let node = Node::default();
        for _ in 0..3 {
            assert_eq!(node.user("0").unwrap()[0], "root");
            assert_eq!(node.user("4123456789"), None);
            assert_eq!(node.group("4123456789"), None);
        }
        assert_eq!(node.accounts.borrow().len(), 3, "those that are not there too");
        node.forget_accounts();
        assert!(node.accounts.borrow().is_empty());
    }
}
