//! The state of a run that all tasks share: options, backups of changed files, and the rules for
//! protected paths. A task that would remove a protected path moves it to the parking directory
//! instead.

use super::python_runtime::PythonRuntime;
use super::reboot::RebootStep;
use crate::backup::{Backup, PriorRecord};
use crate::node::NodeAccess;
use crate::os::acting_user::{acting_user, as_root, env_var};
use crate::os::atomic_fs::{self, Attributes, SafeError};
use crate::os::temp_files::TempFileNotes;
use crate::run::event::{CancelToken, PlaybookRunOptions};
use crate::run::secrets::Secrets;
use globset::{Glob, GlobSet, GlobSetBuilder};
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat, accessat};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// System directories that no playbook may remove or replace, even if the path is a symbolic link.
const SYSTEM_PATHS: &[&str] = &[
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

/// The options, node access, backups and path rules of one run.
pub struct RunContext<'a> {
    pub options: &'a PlaybookRunOptions,
    pub node: NodeAccess,
    backup: Backup,
    /// The paths of secret files; diffs of these files are not reported.
    pub secrets: Secrets,
    protect: GlobSet,
    parked: u32,
    /// The node's Python and the archives of modules that were written for it.
    pub python: PythonRuntime,
    /// What the present task must do, if it is a reboot.
    pub reboot: Option<RebootStep>,
    /// Set if the run must end because the host is being restarted: the reason why the host is not
    /// ready yet.
    pub rebooting: Option<String>,
    /// Number of tasks that the run has started in the background.
    pub jobs: u32,
}

impl<'a> RunContext<'a> {
    pub fn open(options: &'a PlaybookRunOptions, cancel: &CancelToken) -> Result<Self, String> {
        let mut set = GlobSetBuilder::new();
        for pattern in &options.protect {
            let pattern = pattern.trim_end_matches('/');
            for pattern in [pattern.to_owned(), format!("{pattern}/**")] {
                set.add(Glob::new(&pattern).map_err(|e| format!("protected path `{pattern}`: {e}"))?);
            }
        }
        let protect = set.build().map_err(|e| format!("protected paths: {e}"))?;
        // The file of notes is in the directory of the run's journal file. Two runs that may run at
        // the same time have their journal files in different directories, so they never share this
        // file.
        let notes = match options.journal.parent().filter(|_| !options.check) {
            Some(dir) => TempFileNotes::open(&dir.join("half-made")),
            None => TempFileNotes::default(),
        };
        let backup = Backup::open(options.backup.as_deref().filter(|_| !options.check))?;
        Ok(Self {
            options,
            node: NodeAccess::new(options.check, notes, cancel.clone()),
            backup,
            secrets: Secrets::new(&options.secret),
            protect,
            parked: 0,
            python: PythonRuntime::default(),
            reboot: None,
            rebooting: None,
            jobs: 0,
        })
    }

    /// Whether a path or anything below it matches a protected pattern.
    fn protects(&self, path: &Path) -> Result<bool, SafeError> {
        if self.protect.is_empty() {
            return Ok(false);
        }
        if self.protect.is_match(path) {
            return Ok(true);
        }
        let directory = self.node.stat(path)?.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory);
        if !directory {
            return Ok(false);
        }
        Ok(self.node.walk(path, 1_000_000)?.iter().any(|(inner, _)| self.protect.is_match(inner)))
    }

    /// Moves a protected path to the parking directory. Returns the new path of the file, and the
    /// record that the backup had of it before.
    fn park(&mut self, path: &Path) -> Result<(PathBuf, PriorRecord), SafeError> {
        if self.node.is_check_mode() {
            match self.node.stat(path)?.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory) {
                true => self.node.remove_tree(path)?,
                false => self.node.remove(path, false)?,
            }
            return Ok((self.options.park_dir.clone(), PriorRecord::default()));
        }
        let to = self.parking_place(path)?;
        self.node.begin_change()?;
        let before = self.backup.park(path, &to)?;
        Ok((to, before))
    }

    /// Returns an unused path in the parking directory of this run. Creates the directory.
    fn parking_place(&mut self, path: &Path) -> Result<PathBuf, SafeError> {
        let flat = path.to_string_lossy().trim_matches('/').replace('/', "%");
        let dir = self.options.park_dir.join(if self.options.run_id.is_empty() { "run" } else { &self.options.run_id });
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|source| SafeError::Io {
            path: dir.clone(),
            what: "create the parking directory",
            source,
        })?;
        let mut to = dir.join(&flat);
        while atomic_fs::stat_path(&to)?.is_some() {
            self.parked += 1;
            to = dir.join(format!("{flat}.{}", self.parked));
        }
        Ok(to)
    }

    /// Moves a file from the parking directory back to `path`, because its replacement could not be
    /// created.
    fn restore_parked(&mut self, path: &Path, parked: &Path, before: PriorRecord) {
        if !self.node.is_check_mode() && atomic_fs::rename(parked, path, "move it back").is_ok() {
            self.backup.not_parked(path, before);
        }
    }

    /// Removes a path. If the path or something in it is protected, moves it to the parking
    /// directory instead. Returns the message for the result.
    pub fn remove_or_park(&mut self, path: &Path, stat: &Stat) -> Result<String, SafeError> {
        let directory = atomic_fs::kind(stat) == FileType::Directory;
        if directory && is_vital(path) {
            return Err(SafeError::new_refused(path, "is never removed"));
        }
        self.refuse_system_path(path)?;
        if self.protects(path)? {
            let (to, _) = self.park(path)?;
            return Ok(format!("protected: moved to {}", to.display()));
        }
        self.back_up_removed(path, directory)?;
        if directory {
            self.node.remove_tree(path)?;
        } else {
            self.node.remove(path, false)?;
        }
        Ok("removed".into())
    }

    /// Refuses to remove or replace a system path. Its file type does not matter: `/lib64`, for
    /// example, is a symbolic link if `/usr` is merged.
    fn refuse_system_path(&self, path: &Path) -> Result<(), SafeError> {
        let real = path.parent().and_then(|dir| Some(std::fs::canonicalize(dir).ok()?.join(path.file_name()?)));
        let never = |path: &Path| SYSTEM_PATHS.iter().any(|n| Path::new(n) == path);
        if (never(path) || real.is_some_and(|real| never(&real))) && self.node.stat(path)?.is_some() {
            return Err(SafeError::new_refused(path, "is never removed or replaced"));
        }
        Ok(())
    }

    /// Backs up a file, then replaces its content. A protected file that would become empty is
    /// moved to the parking directory instead of being copied. `check` validates the new file
    /// first. If the replacement fails, a moved file is moved back.
    pub fn write(
        &mut self,
        path: &Path,
        emptied: bool,
        content: &[u8],
        attributes: Attributes,
        check: &mut dyn FnMut(&Path) -> Result<(), String>,
    ) -> Result<(), SafeError> {
        if !emptied || self.node.is_check_mode() || !self.protects(path)? {
            self.back_up_replaced(path)?;
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
            self.restore_parked(path, &to, before);
        }
        done
    }

    /// Makes `name` a hard link to `path`. An existing file at `name` is backed up first or, if it
    /// is protected, moved to the parking directory.
    pub fn hard_link(&mut self, path: &Path, name: &Path) -> Result<(), SafeError> {
        self.refuse_system_path(name)?;
        let parked = match self.node.stat(name)?.is_some() && self.protects(name)? {
            true => Some(self.park(name)?),
            false => {
                self.back_up_removed(name, false)?;
                None
            }
        };
        let done = self.node.hard_link(path, name);
        if let (Err(_), Some((to, before))) = (&done, parked) {
            self.restore_parked(name, &to, before);
        }
        done
    }

    /// Only root can write to the backup.
    fn back_up_as_root(
        &mut self,
        path: &Path,
        keep: impl FnOnce(&mut Backup, &Path) -> Result<(), SafeError>,
    ) -> Result<(), SafeError> {
        let path = path_for_root(&self.node, path);
        // The change will fail, and a user must not choose what root backs up.
        if !may_change(&path) {
            return Ok(());
        }
        as_root(|| keep(&mut self.backup, &path))
    }

    /// Backs up the state that an undo needs if `path` is created or its attributes change. Does
    /// nothing if the run has already kept it.
    pub fn back_up(&mut self, path: &Path) -> Result<(), SafeError> {
        if self.node.is_check_mode() { Ok(()) } else { self.back_up_as_root(path, |backup, path| backup.keep(path)) }
    }

    /// Backs up a path whose content is about to be replaced.
    pub fn back_up_replaced(&mut self, path: &Path) -> Result<(), SafeError> {
        self.refuse_system_path(path)?;
        if self.node.is_check_mode() {
            Ok(())
        } else {
            self.back_up_as_root(path, |backup, path| backup.keep_exchanged(path))
        }
    }

    /// Backs up a path that is about to be removed. With `tree`, backs up everything in the
    /// directory too.
    pub fn back_up_removed(&mut self, path: &Path, tree: bool) -> Result<(), SafeError> {
        self.refuse_system_path(path)?;
        if self.node.is_check_mode() {
            Ok(())
        } else {
            self.back_up_as_root(path, |backup, path| backup.keep_leaving(path, tree))
        }
    }
}

/// Whether the user as whom this thread acts can change the path: the user owns it, or can write
/// its directory.
fn may_change(path: &Path) -> bool {
    let (Some(user), Some(dir)) = (acting_user(), path.parent()) else { return true };
    let owns = path.symlink_metadata().is_ok_and(|meta| meta.uid() == user.uid);
    owns || accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// The path without links, if this thread acts as a user: the run itself is root, and does not
/// follow links of that user.
fn path_for_root(node: &NodeAccess, path: &Path) -> PathBuf {
    let real = match (acting_user(), path.parent(), path.file_name()) {
        (Some(_), Some(dir), Some(name)) => node.follow_trusted(dir).ok().map(|(dir, _)| dir.join(name)),
        _ => None,
    };
    real.unwrap_or_else(|| path.to_owned())
}

/// Whether no playbook may remove this directory: a system directory or a home directory, by its
/// name or its real path.
pub fn is_vital(path: &Path) -> bool {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let home = env_var("HOME").map(PathBuf::from);
    let vital = |p: &Path| {
        SYSTEM_PATHS.iter().any(|n| Path::new(n) == p)
            || home.as_deref() == Some(p)
            || p.parent() == Some(Path::new("/home"))
    };
    vital(path) || vital(&real)
}
