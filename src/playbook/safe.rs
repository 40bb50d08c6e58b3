//! Touching files so that nobody can redirect us and no crash leaves half of one: the last component of a path is never
//! followed, and of those before it only root's own links are (see [`way`]); contents are exchanged by rename, attributes
//! are set before a file gets its name.

use super::notes::{self, Notes};
use super::way::{self, Lost};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest file that is read, in bytes.
pub const READ_MAX: u64 = 64 << 20;
/// Files are compared in pieces of so many bytes.
const PIECE: usize = 1 << 20;
/// A directory that is no link, to be read.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What could not be done with a path. Nothing was changed unless the operation says so.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    #[error("{path}: cannot {what}")]
    Io { path: PathBuf, what: &'static str, source: std::io::Error },
    #[error("{path}: {what}")]
    Refused { path: PathBuf, what: String },
}

impl SafeError {
    pub fn refused(path: &Path, what: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), what: what.into() }
    }
    /// As an error of the system.
    pub fn cause(self) -> std::io::Error {
        match self {
            Self::Io { source, .. } => source,
            Self::Refused { .. } => std::io::Error::other(self.to_string()),
        }
    }
    /// With its cause, on one line.
    pub fn line(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            Self::Refused { .. } => self.to_string(),
        }
    }
}

type Result<T> = std::result::Result<T, SafeError>;

pub(super) fn io(path: &Path, what: &'static str) -> impl Fn(rustix::io::Errno) -> SafeError {
    move |e| SafeError::Io { path: path.to_owned(), what, source: e.into() }
}

fn failed(path: &Path, what: &'static str) -> impl Fn(std::io::Error) -> SafeError {
    move |source| SafeError::Io { path: path.to_owned(), what, source }
}

/// Attributes to set; None leaves (or takes the default for a new file).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// What lies at a path, a link itself and not its target; None: nothing.
pub fn look(path: &Path) -> Result<Option<Stat>> {
    absolute(path)?;
    let stat = match place(path) {
        Ok((dir, name)) => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW),
        Err(Lost::Errno(errno)) => Err(errno),
        Err(lost) => return Err(refusal(path, "look at it", lost)),
    };
    match stat {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(io(path, "look at it")(e)),
    }
}

pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// The directory a path is in, to walk from, and the last component; of `/` and `..` these are the thing itself and `.`.
fn place(path: &Path) -> std::result::Result<(OwnedFd, &OsStr), Lost> {
    match (path.file_name(), path.parent()) {
        (Some(name), Some(dir)) => Ok((way::directory(dir)?, name)),
        _ => Ok((way::directory(path)?, OsStr::new("."))),
    }
}

fn refusal(path: &Path, what: &'static str, lost: Lost) -> SafeError {
    match lost {
        Lost::Errno(errno) => io(path, what)(errno),
        Lost::Led(name) => led(path, &name),
    }
}

/// Why a path with this link on its way is refused.
pub fn led(path: &Path, name: &OsStr) -> SafeError {
    let name = name.display();
    SafeError::refused(
        path,
        format!(
            "`{name}` in it is a link in a directory that others than root may change, and is not followed; next: name \
             the path that it leads to"
        ),
    )
}

fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(SafeError::refused(path, "must be an absolute path")) }
}

/// What lies at a path, open with `flags`; never through a link.
fn open_at(path: &Path, flags: OFlags, what: &'static str) -> Result<OwnedFd> {
    absolute(path)?;
    let (dir, name) = place(path).map_err(|lost| refusal(path, what, lost))?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(&dir, name, flags, Mode::empty()).map_err(|e| match e {
        Errno::LOOP => SafeError::refused(path, "is a symbolic link"),
        e => io(path, what)(e),
    })
}

/// The directory a path is in, open, and the last component.
pub(super) fn parent(path: &Path) -> Result<(OwnedFd, &OsStr)> {
    absolute(path)?;
    let name = path.file_name().ok_or_else(|| SafeError::refused(path, "has no last component"))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let what = "open the directory";
    let way = way::directory(dir).map_err(|lost| refusal(dir, what, lost))?;
    // Once more, to be synced.
    let fd = rustix::fs::openat(&way, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    Ok((fd.map_err(io(dir, what))?, name))
}

/// Content of a regular file; links, devices and pipes are refused.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_open(path, &open(path)?.0)
}

/// The rest of an open file; `path` is its name for people.
pub fn read_open(path: &Path, file: &File) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    file.take(READ_MAX + 1).read_to_end(&mut out).map_err(failed(path, "read it"))?;
    if out.len() as u64 > READ_MAX {
        return Err(SafeError::refused(path, format!("is larger than {READ_MAX} bytes")));
    }
    Ok(out)
}

/// A regular file, to be read, and what it is: what is done with the one is true of the other.
pub fn open(path: &Path) -> Result<(File, Stat)> {
    let fd = open_at(path, OFlags::RDONLY, "read it")?;
    let stat = rustix::fs::fstat(&fd).map_err(io(path, "look at it"))?;
    if kind(&stat) != FileType::RegularFile {
        return Err(SafeError::refused(path, "is not a regular file"));
    }
    Ok((File::from(fd), stat))
}

/// Puts `content` at `path` in one step, with its attributes; `check` sees the new file before it gets its name.
pub fn write(
    notes: &Notes,
    path: &Path,
    content: &[u8],
    attributes: Attributes,
    check: &mut dyn FnMut(&Path) -> std::result::Result<(), String>,
) -> Result<()> {
    let mut fill = |file: &mut File| file.write_all(content);
    put(notes, path, &mut fill, attributes, check)
}

/// Puts the content of `from`, of whatever size, at `path`, as [`write`] does: shared with it where the file system can
/// do that, else copied piece by piece.
pub fn copy(notes: &Notes, from: &File, path: &Path, attributes: Attributes) -> Result<()> {
    let mut source = from;
    let mut fill = |file: &mut File| match rustix::fs::ioctl_ficlone(&*file, source) {
        Ok(()) => Ok(()),
        Err(_) => std::io::copy(&mut source, file).map(drop),
    };
    put(notes, path, &mut fill, attributes, &mut |_| Ok(()))
}

/// Gives the file at `path` a second name in one step, in the place of a file or link there. Both are one file until `path` gets
/// another content by [`write`] or goes.
pub fn second_name(notes: &Notes, path: &Path, name: &Path) -> Result<()> {
    let what = "give it a second name";
    absolute(path)?;
    let (from, old) = place(path).map_err(|lost| refusal(path, what, lost))?;
    let (dir, new) = parent(name)?;
    let temp = &beside(notes, name, new)?;
    rustix::fs::linkat(&from, old, &dir, temp, AtFlags::empty()).map_err(io(path, what))?;
    rustix::fs::renameat(&dir, temp, &dir, new).map_err(|e| {
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
        io(name, what)(e)
    })?;
    // Where both were names of one file already, the rename has done nothing.
    let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
    rustix::fs::fsync(&dir).map_err(io(name, "sync its directory"))
}

/// Moves what lies at `path`, of whatever kind, to `to`.
pub fn rename(path: &Path, to: &Path, what: &'static str) -> Result<()> {
    let ((from, old), (dir, new)) = (parent(path)?, parent(to)?);
    rustix::fs::renameat(&from, old, &dir, new).map_err(io(path, what))
}

/// Gives a file of our own another name, with these attributes and the time of its last change, in the place of a file or link
/// there. Its content is synced by whoever made it; where the name is on another file system, it is copied.
pub fn adopt(notes: &Notes, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
    set_attributes(from, attributes)?;
    match rename(from, path, "give it its name") {
        Err(SafeError::Io { source, .. }) if source.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => {
            let (file, stat) = open(from)?;
            copy(notes, &file, path, attributes)?;
            set_times(path, None, Some(stat.st_mtime))
        }
        done => done,
    }
}

/// Whether two files have the same content, of whatever size.
pub fn same_content(one: &Path, other: &Path) -> Result<bool> {
    same_bytes((one, &mut open(one)?.0), (other, &mut open(other)?.0))
}

/// The same of what is open; the paths are for people.
pub fn same_bytes(one: (&Path, &mut dyn Read), other: (&Path, &mut dyn Read)) -> Result<bool> {
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let n = fill_up(one.1, &mut a).map_err(failed(one.0, "read it"))?;
        let m = fill_up(other.1, &mut b).map_err(failed(other.0, "read it"))?;
        if a[..n] != b[..m] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(true);
        }
    }
}

fn fill_up(file: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read(&mut buffer[have..])? {
            0 => break,
            n => have += n,
        }
    }
    Ok(have)
}

/// A new file of our own, private, that is longer in the making: noted until the next one of these.
pub fn create(notes: &Notes, path: &Path) -> Result<File> {
    let what = "make the file";
    let (dir, name) = parent(path)?;
    notes.note_long(path).map_err(failed(path, "note what is made"))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from).map_err(io(path, what))
}

fn put(
    notes: &Notes,
    path: &Path,
    fill: &mut dyn FnMut(&mut File) -> std::io::Result<()>,
    attributes: Attributes,
    check: &mut dyn FnMut(&Path) -> std::result::Result<(), String>,
) -> Result<()> {
    let (dir, name) = parent(path)?;
    let temp = &beside(notes, path, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&dir, temp, flags, Mode::from_raw_mode(0o600))
        .map_err(io(path, "create a file beside it"))?;
    let attempt = || -> Result<()> {
        let mut file = File::from(fd);
        fill(&mut file).map_err(failed(path, "write it"))?;
        set(&file, path, attributes)?;
        file.sync_all().map_err(failed(path, "sync it"))?;
        check(&path.with_file_name(temp)).map_err(|what| SafeError::refused(path, what))?;
        rustix::fs::renameat(&dir, temp, &dir, name).map_err(io(path, "rename the new file"))?;
        rustix::fs::fsync(&dir).map_err(io(path, "sync its directory"))
    };
    let done = attempt();
    if done.is_err() {
        // The rename may have happened: then there is nothing to take away.
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
    }
    done
}

/// A name in the directory of `path` that nobody else uses, noted.
fn beside(notes: &Notes, path: &Path, name: &OsStr) -> Result<OsString> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut temp = OsString::from(format!("{}{}-{count}-", notes::PREFIX, std::process::id()));
    temp.push(OsStr::from_bytes(&name.as_bytes()[..name.len().min(120)]));
    notes.note(&path.with_file_name(&temp)).map_err(failed(path, "note what is made beside it"))?;
    Ok(temp)
}

fn set(fd: &impl std::os::fd::AsFd, path: &Path, attributes: Attributes) -> Result<()> {
    if attributes.uid.is_some() || attributes.gid.is_some() {
        rustix::fs::fchown(fd, attributes.uid.map(Uid::from_raw), attributes.gid.map(Gid::from_raw))
            .map_err(io(path, "change its owner"))?;
    }
    if let Some(mode) = attributes.mode {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)).map_err(io(path, "change its mode"))?;
    }
    Ok(())
}

/// Sets attributes of what is there, never through a link. It is not opened: a socket can't be, a device may do something
/// by it, and an owner may lack the right to read.
pub fn set_attributes(path: &Path, attributes: Attributes) -> Result<()> {
    let fd = open_at(path, OFlags::PATH, "open it")?;
    let stat = rustix::fs::fstat(&fd).map_err(io(path, "look at it"))?;
    if kind(&stat) == FileType::Symlink {
        return Err(SafeError::refused(path, "is a symbolic link"));
    }
    if attributes.uid.is_some() || attributes.gid.is_some() {
        let (uid, gid) = (attributes.uid.map(Uid::from_raw), attributes.gid.map(Gid::from_raw));
        rustix::fs::chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH).map_err(io(path, "change its owner"))?;
    }
    if let Some(mode) = attributes.mode {
        let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::chmod(name, Mode::from_raw_mode(mode)).map_err(io(path, "change its mode"))?;
    }
    Ok(())
}

/// Makes a directory in one step, with its attributes; its parents exist, and nothing lies there.
pub fn make_directory(notes: &Notes, path: &Path, attributes: Attributes) -> Result<()> {
    let (dir, name) = parent(path)?;
    let what = "make the directory";
    let temp = &beside(notes, path, name)?;
    rustix::fs::mkdirat(&dir, temp, Mode::from_raw_mode(0o700)).map_err(io(path, what))?;
    let attempt = || -> Result<()> {
        let made = rustix::fs::openat(&dir, temp, DIRECTORY, Mode::empty()).map_err(io(path, what))?;
        set(&made, path, Attributes { mode: Some(attributes.mode.unwrap_or(0o755)), ..attributes })?;
        // Some file systems do not know the flag. Without it nothing but an empty directory could be replaced.
        match rustix::fs::renameat_with(&dir, temp, &dir, name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&dir, temp, &dir, name),
            done => done,
        }
        .map_err(io(path, what))?;
        rustix::fs::fsync(&dir).map_err(io(path, "sync its directory"))
    };
    let done = attempt();
    if done.is_err() {
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::REMOVEDIR);
    }
    done
}

/// Removes one file, link or empty directory.
pub fn remove(path: &Path, directory: bool) -> Result<()> {
    let (dir, name) = parent(path)?;
    let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(&dir, name, flags).map_err(io(path, "remove it"))
}

/// Makes a symbolic link in one step, in the place of a file or link.
pub fn link(notes: &Notes, path: &Path, target: &Path) -> Result<()> {
    let (dir, name) = parent(path)?;
    let temp = &beside(notes, path, name)?;
    rustix::fs::symlinkat(target, &dir, temp).map_err(io(path, "make a link beside it"))?;
    rustix::fs::renameat(&dir, temp, &dir, name).map_err(|e| {
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
        io(path, "rename the new link")(e)
    })?;
    rustix::fs::fsync(&dir).map_err(io(path, "sync its directory"))
}

pub fn read_link(path: &Path) -> Result<PathBuf> {
    let what = "read the link";
    absolute(path)?;
    let (dir, name) = place(path).map_err(|lost| refusal(path, what, lost))?;
    let target = rustix::fs::readlinkat(&dir, name, Vec::new()).map_err(io(path, what))?;
    Ok(OsStr::from_bytes(target.as_bytes()).into())
}

/// Where a link at `path` leads, and what is there; only links that none but root can have put there are followed.
pub fn lead(path: &Path) -> Result<(PathBuf, Option<Stat>)> {
    absolute(path)?;
    let end = way::end(path).map_err(|lost| refusal(path, "follow the link", lost))?;
    let stat = look(&end)?;
    Ok((end, stat))
}

/// Everything below a directory, parents first, links not followed; another file system below it is refused.
pub fn walk(path: &Path, most: usize) -> Result<Vec<(PathBuf, Stat)>> {
    let mut out = Vec::new();
    let mut open = vec![path.to_owned()];
    let device = look(path)?.map(|s| s.st_dev);
    while let Some(dir) = open.pop() {
        let fd = open_at(&dir, OFlags::RDONLY | OFlags::DIRECTORY, "open the directory")?;
        for entry in Dir::read_from(&fd).map_err(io(&dir, "read the directory"))? {
            let entry = entry.map_err(io(&dir, "read the directory"))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let inner = dir.join(OsStr::from_bytes(name));
            let stat = match rustix::fs::statat(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(io(&inner, "look at it")(e)),
            };
            if Some(stat.st_dev) != device {
                return Err(SafeError::refused(&inner, "is another file system"));
            }
            if out.len() >= most {
                return Err(SafeError::refused(path, format!("has more than {most} entries")));
            }
            if kind(&stat) == FileType::Directory {
                open.push(inner.clone());
            }
            out.push((inner, stat));
        }
    }
    Ok(out)
}

/// The names in a directory that is no link.
pub fn list(path: &Path) -> Result<Vec<OsString>> {
    let fd = open_at(path, OFlags::RDONLY | OFlags::DIRECTORY, "open the directory")?;
    let mut out = Vec::new();
    for entry in Dir::read_from(&fd).map_err(io(path, "read the directory"))? {
        let entry = entry.map_err(io(path, "read the directory"))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            out.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(out)
}

/// What `lsattr` shows of a file or directory.
pub fn flags(path: &Path) -> Result<IFlags> {
    let what = "look at its flags";
    let fd = open_at(path, OFlags::RDONLY, what)?;
    // Of a pipe or device that was put there meanwhile it would mean something else.
    match kind(&rustix::fs::fstat(&fd).map_err(io(path, what))?) {
        FileType::RegularFile | FileType::Directory => rustix::fs::ioctl_getflags(&fd).map_err(io(path, what)),
        _ => Err(SafeError::refused(path, "is neither a file nor a directory")),
    }
}

/// Sets times, in seconds since 1970; None leaves. It is not opened, as in [`set_attributes`].
pub fn set_times(path: &Path, accessed: Option<i64>, modified: Option<i64>) -> Result<()> {
    let what = "set its times";
    let fd = open_at(path, OFlags::PATH, what)?;
    if kind(&rustix::fs::fstat(&fd).map_err(io(path, what))?) == FileType::Symlink {
        return Err(SafeError::refused(path, "is a symbolic link"));
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let time = |at: Option<i64>| at.map_or(omit, |tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::utimensat(CWD, name, &times, AtFlags::empty()).map_err(io(path, what))
}
