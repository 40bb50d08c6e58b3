//! The predicted file tree of check mode: files that a run would have written, over those on disk.
//! Nothing is written.
//!
//! Paths are resolved as in `os::atomic_fs` and `os::symlink_safe_path`, including predicted links.
//! So a prediction fails where the run would fail.

use crate::os::atomic_fs::{self, Attributes, SafeError};
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::io::{Cursor, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Maximum number of links in one path resolution, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Maximum total size in bytes of the contents held in memory. A write beyond it is refused.
const HELD_MAX: usize = 512 << 20;

type Result<T> = std::result::Result<T, SafeError>;

#[derive(Debug, Clone)]
enum Content {
    InMemory(Arc<[u8]>),
    /// The content of the file on disk at this path.
    Disk(PathBuf),
}

#[derive(Debug, Clone)]
enum OverlayEntry {
    Absent,
    File {
        stat: Stat,
        content: Content,
    },
    Link {
        stat: Stat,
        target: PathBuf,
    },
    /// If `opaque`, the entries of the directory on disk are hidden.
    Directory {
        stat: Stat,
        opaque: bool,
    },
    Other(Stat),
}

impl OverlayEntry {
    fn stat(&self) -> Option<&Stat> {
        match self {
            Self::Absent => None,
            Self::File { stat, .. } | Self::Link { stat, .. } | Self::Directory { stat, .. } | Self::Other(stat) => {
                Some(stat)
            }
        }
    }
    fn stat_mut(&mut self) -> Option<&mut Stat> {
        match self {
            Self::Absent => None,
            Self::File { stat, .. } | Self::Link { stat, .. } | Self::Directory { stat, .. } | Self::Other(stat) => {
                Some(stat)
            }
        }
    }
}

/// Predicted files by their real paths, which contain no links.
#[derive(Debug, Default)]
pub struct Overlay {
    entries: BTreeMap<PathBuf, OverlayEntry>,
    created_count: u32,
    held_bytes: usize,
}

/// Which symbolic links the resolution of a path follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkTrust {
    /// Only links that no user but root can have created.
    Safe,
    /// All links. Only for inspection.
    All,
}

impl Overlay {
    /// Whether no file would be changed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        require_absolute(path)?;
        match self.locate(path) {
            Ok((_, stat)) => Ok(stat),
            Err(ResolveError::Errno(Errno::NOENT | Errno::NOTDIR)) => Ok(None),
            Err(stray) => Err(stray.error(path, "read its metadata")),
        }
    }

    /// Follows all links. None: the target does not exist.
    pub fn follow(&self, path: &Path) -> Option<(PathBuf, Stat)> {
        let (real, stat) = self.resolve(path, LinkTrust::All).ok()?;
        Some((real, stat?))
    }

    /// Follows links that only root can have created. The target need not exist.
    pub fn follow_trusted(&self, path: &Path) -> Result<(PathBuf, Option<Stat>)> {
        require_absolute(path)?;
        self.resolve(path, LinkTrust::Safe).map_err(|stray| stray.error(path, "follow the link"))
    }

    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        match self.content(path)? {
            Content::InMemory(bytes) => Ok(bytes.to_vec()),
            Content::Disk(at) => atomic_fs::read(&at),
        }
    }

    /// Opens a regular file for reading.
    pub fn open(&self, path: &Path) -> Result<Box<dyn Read>> {
        Ok(match self.content(path)? {
            Content::InMemory(bytes) => Box::new(Cursor::new(bytes)),
            Content::Disk(at) => Box::new(atomic_fs::open(&at)?.0),
        })
    }

    fn content(&self, path: &Path) -> Result<Content> {
        let (real, stat) = self.require_existing(path, "read it")?;
        match atomic_fs::kind(&stat) {
            FileType::RegularFile => {}
            FileType::Symlink => return Err(SafeError::new_refused(path, "is a symbolic link")),
            _ => return Err(SafeError::new_refused(path, "is not a regular file")),
        }
        Ok(match self.entries.get(&real) {
            Some(OverlayEntry::File { content, .. }) => content.clone(),
            _ => Content::Disk(real),
        })
    }

    pub fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let (real, _) = self.require_existing(path, "read the link")?;
        match self.entries.get(&real) {
            Some(OverlayEntry::Link { target, .. }) => Ok(target.clone()),
            Some(_) => Err(io(path, "read the link", Errno::INVAL)),
            None => atomic_fs::read_link(&real),
        }
    }

    /// The sorted names in a directory.
    pub fn list(&self, path: &Path) -> Result<Vec<OsString>> {
        let (real, stat) = self.require_existing(path, "open the directory")?;
        if atomic_fs::kind(&stat) != FileType::Directory {
            return Err(io(path, "open the directory", Errno::NOTDIR));
        }
        let mut names = BTreeSet::new();
        if self.shows_disk(&real) {
            names.extend(atomic_fs::list(&real)?);
        }
        for (inner, thing) in self.entries.range(real.clone()..).take_while(|(p, _)| p.starts_with(&real)) {
            if inner.parent() == Some(&real)
                && let Some(name) = inner.file_name()
            {
                match thing {
                    OverlayEntry::Absent => drop(names.remove(name)),
                    _ => drop(names.insert(name.to_owned())),
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    pub fn walk(&self, path: &Path, most: usize) -> Result<Vec<(PathBuf, Stat)>> {
        let mut out = Vec::new();
        let mut open = VecDeque::from([path.to_owned()]);
        let device = self.stat(path)?.map(|s| s.st_dev);
        while let Some(dir) = open.pop_back() {
            for name in self.list(&dir)? {
                let inner = dir.join(name);
                let Some(stat) = self.stat(&inner)? else { continue };
                if Some(stat.st_dev) != device {
                    return Err(SafeError::new_refused(&inner, "is another file system"));
                }
                if out.len() >= most {
                    return Err(SafeError::new_refused(path, format!("has more than {most} entries")));
                }
                if atomic_fs::kind(&stat) == FileType::Directory {
                    open.push_back(inner.clone());
                }
                out.push((inner, stat));
            }
        }
        Ok(out)
    }

    pub fn write(&mut self, path: &Path, content: &[u8], attributes: Attributes) -> Result<()> {
        self.held_bytes = self.held_bytes.saturating_add(content.len());
        if self.held_bytes > HELD_MAX {
            return Err(SafeError::new_refused(
                path,
                format!("check mode holds at most {} MiB of file contents in memory", HELD_MAX >> 20),
            ));
        }
        self.put(path, content.len(), Content::InMemory(content.into()), attributes)
    }

    /// Reads the content into memory, because the temporary file `from` will be removed.
    pub fn adopt(&mut self, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
        let content =
            std::fs::read(from).map_err(|source| SafeError::Io { path: from.to_owned(), what: "read it", source })?;
        self.write(path, &content, attributes)
    }

    /// Copies a file without reading its content.
    pub fn copy(&mut self, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
        let (_, stat) = self.require_existing(from, "read it")?;
        let content = self.content(from)?;
        self.put(path, usize::try_from(stat.st_size).unwrap_or(0), content, attributes)
    }

    fn put(&mut self, path: &Path, size: usize, content: Content, attributes: Attributes) -> Result<()> {
        let (real, old) = self.writable(path, "create a temporary file next to it")?;
        if old.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory) {
            return Err(io(path, "rename the new file", Errno::ISDIR));
        }
        let mut stat = self.new_stat(&real, FileType::RegularFile, 0o600)?;
        stat.st_size = size.try_into().unwrap_or_default();
        may_set(path, &stat, attributes)?;
        set(&mut stat, attributes);
        self.entries.insert(real, OverlayEntry::File { stat, content });
        Ok(())
    }

    pub fn set_attributes(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        let (real, stat) = self.require_existing(path, "open it")?;
        if atomic_fs::kind(&stat) == FileType::Symlink {
            return Err(SafeError::new_refused(path, "is a symbolic link"));
        }
        may_set(path, &stat, attributes)?;
        self.copy_up(&real, stat);
        // All hard links of the file get the attributes.
        for thing in self.entries.values_mut() {
            if let Some(other) = thing.stat_mut().filter(|s| (s.st_dev, s.st_ino) == (stat.st_dev, stat.st_ino)) {
                set(other, attributes);
            }
        }
        Ok(())
    }

    pub fn make_directory(&mut self, path: &Path, attributes: Attributes) -> Result<()> {
        let (real, old) = self.writable(path, "make the directory")?;
        if old.is_some() {
            return Err(io(path, "make the directory", Errno::EXIST));
        }
        let mut stat = self.new_stat(&real, FileType::Directory, 0o755)?;
        may_set(path, &stat, attributes)?;
        set(&mut stat, attributes);
        self.entries.insert(real, OverlayEntry::Directory { stat, opaque: true });
        Ok(())
    }

    /// Removes a file, a link or an empty directory.
    pub fn remove(&mut self, path: &Path, directory: bool) -> Result<()> {
        let (real, old) = self.writable(path, "remove it")?;
        let stat = old.ok_or_else(|| io(path, "remove it", Errno::NOENT))?;
        let is_directory = atomic_fs::kind(&stat) == FileType::Directory;
        if is_directory != directory {
            return Err(io(path, "remove it", if directory { Errno::NOTDIR } else { Errno::ISDIR }));
        }
        if directory && !self.list(&real)?.is_empty() {
            return Err(io(path, "remove it", Errno::NOTEMPTY));
        }
        self.mark_absent(&real);
        Ok(())
    }

    pub fn remove_tree(&mut self, path: &Path) -> Result<()> {
        let (real, old) = self.writable(path, "remove it")?;
        let stat = old.ok_or_else(|| io(path, "open the directory", Errno::NOENT))?;
        if atomic_fs::kind(&stat) != FileType::Directory {
            return Err(io(path, "open the directory", Errno::NOTDIR));
        }
        self.mark_absent(&real);
        Ok(())
    }

    pub fn link(&mut self, path: &Path, target: &Path) -> Result<()> {
        let (real, old) = self.writable(path, "make a temporary link next to it")?;
        if old.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory) {
            return Err(io(path, "rename the new link", Errno::ISDIR));
        }
        let mut stat = self.new_stat(&real, FileType::Symlink, 0o777)?;
        stat.st_size = target.as_os_str().len().try_into().unwrap_or_default();
        self.entries.insert(real, OverlayEntry::Link { stat, target: target.to_owned() });
        Ok(())
    }

    pub fn hard_link(&mut self, path: &Path, name: &Path) -> Result<()> {
        let what = "make a hard link to it";
        let (from, mut stat) = self.require_existing(path, what)?;
        if atomic_fs::kind(&stat) == FileType::Directory {
            return Err(io(path, what, Errno::PERM));
        }
        let (real, old) = self.writable(name, what)?;
        if old.is_some_and(|s| atomic_fs::kind(&s) == FileType::Directory) {
            return Err(io(path, what, Errno::ISDIR));
        }
        stat.st_nlink += 1;
        self.copy_up(&from, stat);
        let thing = self.entries.get(&from).cloned().unwrap_or(OverlayEntry::Other(stat));
        self.entries.insert(real, thing);
        Ok(())
    }

    /// Sets times in seconds since 1970. None: unchanged.
    pub fn set_times(&mut self, path: &Path, accessed: Option<i64>, modified: Option<i64>) -> Result<()> {
        let (real, stat) = self.require_existing(path, "set its times")?;
        self.copy_up(&real, stat);
        if let Some(stat) = self.entries.get_mut(&real).and_then(OverlayEntry::stat_mut) {
            stat.st_atime = accessed.unwrap_or(stat.st_atime);
            stat.st_mtime = modified.unwrap_or(stat.st_mtime);
        }
        Ok(())
    }

    /// Copies the entry of a real path from disk into the overlay, unless the overlay already has
    /// one.
    fn copy_up(&mut self, real: &Path, stat: Stat) {
        if let Some(own) = self.entries.get_mut(real).and_then(OverlayEntry::stat_mut) {
            *own = stat;
            return;
        }
        let thing = match atomic_fs::kind(&stat) {
            FileType::Directory => OverlayEntry::Directory { stat, opaque: false },
            FileType::RegularFile => OverlayEntry::File { stat, content: Content::Disk(real.to_owned()) },
            FileType::Symlink => match atomic_fs::read_link(real) {
                Ok(target) => OverlayEntry::Link { stat, target },
                Err(_) => OverlayEntry::Other(stat),
            },
            _ => OverlayEntry::Other(stat),
        };
        self.entries.insert(real.to_owned(), thing);
    }

    fn mark_absent(&mut self, real: &Path) {
        self.entries.retain(|path, _| !path.starts_with(real));
        self.entries.insert(real.to_owned(), OverlayEntry::Absent);
    }

    fn require_existing(&self, path: &Path, what: &'static str) -> Result<(PathBuf, Stat)> {
        require_absolute(path)?;
        let (real, stat) = self.locate(path).map_err(|stray| stray.error(path, what))?;
        Ok((real, stat.ok_or_else(|| io(path, what, Errno::NOENT))?))
    }

    /// The real path at which a file may be created or removed. Fails if the directory is not
    /// writable.
    fn writable(&self, path: &Path, what: &'static str) -> Result<(PathBuf, Option<Stat>)> {
        require_absolute(path)?;
        let dir = path.parent().ok_or_else(|| SafeError::new_refused(path, "has no last component"))?;
        let (real, stat) = self.locate(path).map_err(|stray| stray.error(dir, "open the directory"))?;
        if let Some(parent) = real.parent().filter(|parent| self.shows_disk(parent)) {
            let may = Access::WRITE_OK | Access::EXEC_OK;
            rustix::fs::accessat(CWD, parent, may, AtFlags::EACCESS).map_err(|e| io(path, what, e))?;
        }
        Ok((real, stat))
    }

    /// The metadata of a new file, as the kernel would set it.
    fn new_stat(&mut self, real: &Path, kind: FileType, mode: u32) -> Result<Stat> {
        let parent = real.parent().unwrap_or(Path::new("/"));
        let around = self.peek(parent).ok().flatten().ok_or_else(|| io(real, "look at its directory", Errno::NOENT))?;
        let mut stat = around;
        self.created_count += 1;
        let inherits = atomic_fs::mode_of(&around) & 0o2000 != 0;
        let mode = if inherits && kind == FileType::Directory { mode | 0o2000 } else { mode };
        stat.st_mode = kind.as_raw_mode() | mode;
        stat.st_uid = rustix::process::geteuid().as_raw();
        stat.st_gid = if inherits { around.st_gid } else { rustix::process::getegid().as_raw() };
        stat.st_size = 0;
        stat.st_nlink = if kind == FileType::Directory { 2 } else { 1 };
        // An inode number that no file on disk has.
        stat.st_ino = (u64::MAX - u64::from(self.created_count)) as _;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
        (stat.st_atime, stat.st_mtime, stat.st_ctime) = (now as _, now as _, now as _);
        Ok(stat)
    }

    /// Whether the entries on disk of this directory (a real path) are visible.
    fn shows_disk(&self, dir: &Path) -> bool {
        dir.ancestors()
            .all(|at| matches!(self.entries.get(at), None | Some(OverlayEntry::Directory { opaque: false, .. })))
    }

    /// The metadata of a real path. None: it does not exist.
    fn peek(&self, real: &Path) -> std::result::Result<Option<Stat>, Errno> {
        if let Some(thing) = self.entries.get(real) {
            return Ok(thing.stat().copied());
        }
        if !real.parent().is_none_or(|parent| self.shows_disk(parent)) {
            return Ok(None);
        }
        match rustix::fs::lstat(real) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The real path and metadata of a path; a link as last component is not followed.
    fn locate(&self, path: &Path) -> std::result::Result<(PathBuf, Option<Stat>), ResolveError> {
        let (Some(name), Some(dir)) = (path.file_name(), path.parent()) else {
            return self.resolve(path, LinkTrust::Safe);
        };
        let (dir, stat) = self.resolve(dir, LinkTrust::Safe)?;
        match stat {
            None => Err(Errno::NOENT.into()),
            Some(stat) if atomic_fs::kind(&stat) != FileType::Directory => Err(Errno::NOTDIR.into()),
            Some(_) => {
                let real = dir.join(name);
                let stat = self.peek(&real)?;
                Ok((real, stat))
            }
        }
    }

    /// Resolves all links of a path.
    fn resolve(&self, path: &Path, trust: LinkTrust) -> std::result::Result<(PathBuf, Option<Stat>), ResolveError> {
        let own = rustix::process::geteuid().as_raw();
        let root = |uid: u32| uid == 0 || uid == own;
        let top = PathBuf::from("/");
        let (mut at, mut here) = (top.clone(), self.peek(&top)?.ok_or(Errno::NOENT)?);
        let mut todo: Vec<OsString> = reversed_components(path);
        let (mut safe_way, mut links) = (true, 0);
        while let Some(name) = todo.pop() {
            safe_way &= root(here.st_uid);
            if name == ".." {
                if !safe_way && trust == LinkTrust::Safe {
                    return Err(ResolveError::UntrustedLink(name));
                }
                at.pop();
                here = self.peek(&at)?.ok_or(Errno::NOENT)?;
                continue;
            }
            let next = at.join(&name);
            let Some(stat) = self.peek(&next)? else {
                return if todo.is_empty() { Ok((next, None)) } else { Err(Errno::NOENT.into()) };
            };
            match atomic_fs::kind(&stat) {
                FileType::Symlink => {
                    let safe_link = safe_way && (root(stat.st_uid) || here.st_mode & 0o022 == 0);
                    if !safe_link && trust == LinkTrust::Safe {
                        return Err(ResolveError::UntrustedLink(name));
                    }
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::LOOP.into());
                    }
                    let target = match self.entries.get(&next) {
                        Some(OverlayEntry::Link { target, .. }) => target.clone(),
                        _ => {
                            let text = rustix::fs::readlink(&next, Vec::new())?;
                            PathBuf::from(OsStr::from_bytes(text.as_bytes()))
                        }
                    };
                    if target.is_absolute() {
                        (at, here) = (top.clone(), self.peek(&top)?.ok_or(Errno::NOENT)?);
                    }
                    todo.extend(reversed_components(&target));
                }
                FileType::Directory => (at, here) = (next, stat),
                _ if todo.is_empty() => return Ok((next, Some(stat))),
                _ => return Err(Errno::NOTDIR.into()),
            }
        }
        Ok((at, Some(here)))
    }
}

/// The components of a path in reverse order, so that `pop` returns the first.
fn reversed_components(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir));
    names.map(|c| c.as_os_str().to_owned()).collect()
}

fn require_absolute(path: &Path) -> Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(SafeError::new_refused(path, "must be an absolute path")) }
}

fn io(path: &Path, what: &'static str, errno: Errno) -> SafeError {
    SafeError::Io { path: path.to_owned(), what, source: errno.into() }
}

fn set(stat: &mut Stat, attributes: Attributes) {
    if let Some(mode) = attributes.mode {
        stat.st_mode = stat.st_mode & !0o7777 | mode;
    }
    stat.st_uid = attributes.uid.unwrap_or(stat.st_uid);
    stat.st_gid = attributes.gid.unwrap_or(stat.st_gid);
}

/// Fails as the kernel would: only root changes the owner of a file, and only its owner or root
/// changes its mode.
fn may_set(path: &Path, stat: &Stat, wanted: Attributes) -> Result<()> {
    let own = rustix::process::geteuid().as_raw();
    let (owned, gid) = (stat.st_uid == own, wanted.gid.filter(|gid| *gid != stat.st_gid));
    let member = |gid: u32| {
        rustix::process::getegid().as_raw() == gid
            || rustix::process::getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid))
    };
    match own {
        0 => Ok(()),
        _ if wanted.uid.is_some_and(|uid| uid != stat.st_uid) || gid.is_some_and(|gid| !owned || !member(gid)) => {
            Err(io(path, "change its owner", Errno::PERM))
        }
        _ if wanted.mode.is_some() && !owned => Err(io(path, "change its mode", Errno::PERM)),
        _ => Ok(()),
    }
}

/// The reason why a path cannot be resolved.
enum ResolveError {
    Errno(Errno),
    UntrustedLink(OsString),
}

impl From<Errno> for ResolveError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl ResolveError {
    fn error(self, path: &Path, what: &'static str) -> SafeError {
        match self {
            Self::Errno(errno) => io(path, what, errno),
            Self::UntrustedLink(name) => atomic_fs::untrusted_link_error(path, &name),
        }
    }
}
