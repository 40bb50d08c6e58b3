//! What outlives a task, and what of a node may leave its place: copies of what was, protected paths that are parked, and what
//! nobody removes.

use crate::playbook::backup::{Backup, Kept};
use crate::playbook::event::{Cancel, RunOptions};
use crate::playbook::node::Node;
use crate::playbook::notes::Notes;
use crate::playbook::safe::{self, Attributes, SafeError};
use crate::playbook::secrets::Secrets;
use globset::{Glob, GlobSet, GlobSetBuilder};
use rustix::fs::{FileType, Stat};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What nobody removes or replaces by a playbook, whatever it says: a directory of the system, or a link in its place.
const NEVER: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/spool",
];

/// What outlives a task: options, copies of what was, the rules of what may not go.
pub struct Ground<'a> {
    pub options: &'a RunOptions,
    pub node: Node,
    backup: Backup,
    /// What diffs are not made of.
    pub secrets: Secrets,
    protect: GlobSet,
    parked: u32,
}

impl<'a> Ground<'a> {
    pub fn open(options: &'a RunOptions, cancel: &Cancel) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for pattern in &options.protect {
            let pattern = pattern.trim_end_matches('/');
            for pattern in [pattern.to_owned(), format!("{pattern}/**")] {
                set.add(Glob::new(&pattern).map_err(|e| format!("protected path `{pattern}`: {e}"))?);
            }
        }
        let protect = set.build().map_err(|e| format!("protected paths: {e}"))?;
        // Beside the journal, so that no two runs have it that may not run at once.
        let notes = match options.journal.parent().filter(|_| !options.check) {
            Some(dir) => Notes::open(&dir.join("half-made")),
            None => Notes::default(),
        };
        let backup = Backup::open(options.backup.as_deref().filter(|_| !options.check))?;
        Ok(Self {
            options,
            node: Node::new(options.check, notes, cancel.clone()),
            backup,
            secrets: Secrets::new(&options.secret),
            protect,
            parked: 0,
        })
    }

    /// Whether a path, or anything below it, is protected.
    fn protects(&self, path: &Path) -> Result<bool, SafeError> {
        if self.protect.is_empty() {
            return Ok(false);
        }
        if self.protect.is_match(path) {
            return Ok(true);
        }
        let directory = self.node.look(path)?.is_some_and(|s| safe::kind(&s) == FileType::Directory);
        if !directory {
            return Ok(false);
        }
        Ok(self.node.walk(path, 1_000_000)?.iter().any(|(inner, _)| self.protect.is_match(inner)))
    }

    /// Moves a protected path aside; where to, and what was on record of it before.
    fn park(&mut self, path: &Path) -> Result<(PathBuf, Kept), SafeError> {
        if self.node.checks() {
            match self.node.look(path)?.is_some_and(|s| safe::kind(&s) == FileType::Directory) {
                true => self.node.remove_tree(path)?,
                false => self.node.remove(path, false)?,
            }
            return Ok((self.options.park_dir.clone(), Kept::default()));
        }
        let to = self.parking_place(path)?;
        self.node.begin()?;
        let before = self.backup.park(path, &to)?;
        Ok((to, before))
    }

    /// Where a path is parked, which is nowhere else yet.
    fn parking_place(&mut self, path: &Path) -> Result<PathBuf, SafeError> {
        let flat = path.to_string_lossy().trim_matches('/').replace('/', "%");
        let dir = self.options.park_dir.join(if self.options.run_id.is_empty() { "run" } else { &self.options.run_id });
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|source| SafeError::Io {
            path: dir.clone(),
            what: "make the parking directory",
            source,
        })?;
        let mut to = dir.join(&flat);
        while safe::look(&to)?.is_some() {
            self.parked += 1;
            to = dir.join(format!("{flat}.{}", self.parked));
        }
        Ok(to)
    }

    /// Back from where it was parked, since what was to take its place could not be made.
    fn put_back(&mut self, path: &Path, parked: &Path, before: Kept) {
        if !self.node.checks() && safe::rename(parked, path, "move it back").is_ok() {
            self.backup.not_parked(path, before);
        }
    }

    /// Takes a path away: removed, or parked if it or something in it is protected. What to say of it.
    pub fn take_away(&mut self, path: &Path, stat: &Stat) -> Result<String, SafeError> {
        let directory = safe::kind(stat) == FileType::Directory;
        if directory && is_vital(path) {
            return Err(SafeError::refused(path, "is never removed"));
        }
        self.may_leave(path)?;
        if self.protects(path)? {
            let (to, _) = self.park(path)?;
            return Ok(format!("protected: parked as {}", to.display()));
        }
        self.keep_leaving(path, directory)?;
        if directory {
            self.node.remove_tree(path)?;
        } else {
            self.node.remove(path, false)?;
        }
        Ok("removed".into())
    }

    /// Refuses what the system needs at its place, of whatever kind it is: where `/usr` holds all programs, `/lib64` is a link.
    fn may_leave(&self, path: &Path) -> Result<(), SafeError> {
        let real = path.parent().and_then(|dir| Some(std::fs::canonicalize(dir).ok()?.join(path.file_name()?)));
        let never = |path: &Path| NEVER.iter().any(|n| Path::new(n) == path);
        if (never(path) || real.is_some_and(|real| never(&real))) && self.node.look(path)?.is_some() {
            return Err(SafeError::refused(path, "is never removed or replaced"));
        }
        Ok(())
    }

    /// Exchanges a file's content: keeps it before, or parks it if it is protected and would be emptied. `check` sees the new
    /// file first, and what was parked comes back should the new one not get its name.
    pub fn write(
        &mut self,
        path: &Path,
        emptied: bool,
        content: &[u8],
        attributes: Attributes,
        check: &mut dyn FnMut(&Path) -> Result<(), String>,
    ) -> Result<(), SafeError> {
        if !emptied || self.node.checks() || !self.protects(path)? {
            self.keep_exchanged(path)?;
            return self.node.write(path, content, attributes, check);
        }
        let to = self.parking_place(path)?;
        let (node, backup, mut parked) = (&mut self.node, &mut self.backup, None);
        let done = node.write(path, content, attributes, &mut |temp| {
            check(temp)?;
            parked = Some(backup.park(path, &to)?);
            Ok(())
        });
        if let (Err(_), Some(before)) = (&done, parked) {
            self.put_back(path, &to, before);
        }
        done
    }

    /// Gives the file at `path` a second name in the place of what is there, which is kept, or parked if it is protected.
    pub fn second_name(&mut self, path: &Path, name: &Path) -> Result<(), SafeError> {
        self.may_leave(name)?;
        let parked = match self.node.look(name)?.is_some() && self.protects(name)? {
            true => Some(self.park(name)?),
            false => {
                self.keep_leaving(name, false)?;
                None
            }
        };
        let done = self.node.second_name(path, name);
        if let (Err(_), Some((to, before))) = (&done, parked) {
            self.put_back(name, &to, before);
        }
        done
    }

    /// Before `path` is made, or gets other attributes: keeps what an undo of that takes, unless that was done before.
    pub fn keep(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.node.checks() { Ok(()) } else { self.backup.keep(path) }
    }

    /// The same for what is about to get another content.
    pub fn keep_exchanged(&mut self, path: &Path) -> Result<(), SafeError> {
        self.may_leave(path)?;
        if self.node.checks() { Ok(()) } else { self.backup.keep_exchanged(path) }
    }

    /// The same for what is about to go; of a directory, with everything in it.
    pub fn keep_leaving(&mut self, path: &Path, tree: bool) -> Result<(), SafeError> {
        self.may_leave(path)?;
        if self.node.checks() { Ok(()) } else { self.backup.keep_leaving(path, tree) }
    }
}

/// Whether nobody removes a directory by a playbook, by what it is called or by where it really is.
pub fn is_vital(path: &Path) -> bool {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let vital = |p: &Path| {
        NEVER.iter().any(|n| Path::new(n) == p) || home.as_deref() == Some(p) || p.parent() == Some(Path::new("/home"))
    };
    vital(path) || vital(&real)
}
