//! File operations that other users cannot redirect, and that leave no partial file after a crash.
//!
//! A link in the last component of a path is never followed. Links in earlier components are
//! followed only if root alone can have created them (see [`symlink_safe_path`]). Contents are
//! replaced by rename, and attributes are set before a file gets its name.

use crate::os::symlink_safe_path::{self, PathError};
use crate::os::temp_files::{self, TempFileNotes};
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

/// Maximum size in bytes of a file that is read.
pub const READ_MAX: u64 = 64 << 20;
/// Number of bytes of two files that are compared at a time.
const PIECE: usize = 1 << 20;
/// Flags to open a directory for reading, without following a link.
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A failed operation on a path. Nothing was changed, unless the documentation of the operation
/// states otherwise.
#[derive(Debug, thiserror::Error)]
pub enum SafeError {
    #[error("{path}: cannot {what}")]
    Io { path: PathBuf, what: &'static str, source: std::io::Error },
    #[error("{path}: {what}")]
    Refused { path: PathBuf, what: String },
}

impl SafeError {
    pub fn new_refused(path: &Path, what: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), what: what.into() }
    }
    /// Converts the error to an error of the operating system.
    pub fn cause(self) -> std::io::Error {
        match self {
            Self::Io { source, .. } => source,
            Self::Refused { .. } => std::io::Error::other(self.to_string()),
        }
    }
    /// The error with its cause, on one line.
    pub fn line(&self) -> String {
        match self {
            Self::Io { source, .. } => format!("{self}: {source}"),
            Self::Refused { .. } => self.to_string(),
        }
    }
}

type Result<T> = std::result::Result<T, SafeError>;

pub(crate) fn io(path: &Path, what: &'static str) -> impl Fn(rustix::io::Errno) -> SafeError {
    move |e| SafeError::Io { path: path.to_owned(), what, source: e.into() }
}

fn std_io_error(path: &Path, what: &'static str) -> impl Fn(std::io::Error) -> SafeError {
    move |source| SafeError::Io { path: path.to_owned(), what, source }
}

/// Mode, owner and group to set on a file. None leaves the value unchanged, or takes the default
/// for a new file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

/// Returns the metadata of the object at a path; for a link, that of the link itself. None: nothing
/// exists there.
pub fn stat_path(path: &Path) -> Result<Option<Stat>> {
    absolute(path)?;
    let stat = match place(path) {
        Ok((dir, name)) => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW),
        Err(PathError::Errno(errno)) => Err(errno),
        Err(lost) => return Err(refusal(path, "read its metadata", lost)),
    };
    match stat {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(io(path, "read its metadata")(e)),
    }
}

pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

pub fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// Opens the directory of a path and returns the last component. For `/` and paths that end in
/// `..`, opens the path itself and returns `.`.
fn place(path: &Path) -> std::result::Result<(OwnedFd, &OsStr), PathError> {
    match (path.file_name(), path.parent()) {
        (Some(name), Some(dir)) => Ok((symlink_safe_path::directory(dir)?, name)),
        _ => Ok((symlink_safe_path::directory(path)?, OsStr::new("."))),
    }
}

fn refusal(path: &Path, what: &'static str, lost: PathError) -> SafeError {
    match lost {
        PathError::Errno(errno) => io(path, what)(errno),
        PathError::UntrustedLink(name) => untrusted_link_error(path, &name),
    }
}

/// The error for a path that contains an untrusted link `name`.
pub fn untrusted_link_error(path: &Path, name: &OsStr) -> SafeError {
    let name = name.display();
    SafeError::new_refused(
        path,
        format!(
            "`{name}` in it is a link in a directory that users other than root may change, and is not followed; next: \
             use the path that the link points to"
        ),
    )
}

fn absolute(path: &Path) -> Result<()> {
    if path.is_absolute() { Ok(()) } else { Err(SafeError::new_refused(path, "must be an absolute path")) }
}

/// Opens a path with `flags`, never through a link.
fn open_at(path: &Path, flags: OFlags, what: &'static str) -> Result<OwnedFd> {
    absolute(path)?;
    let (dir, name) = place(path).map_err(|lost| refusal(path, what, lost))?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(&dir, name, flags, Mode::empty()).map_err(|e| match e {
        Errno::LOOP => SafeError::new_refused(path, "is a symbolic link"),
        e => io(path, what)(e),
    })
}

/// Opens the directory of a path and returns the last component.
pub(crate) fn parent(path: &Path) -> Result<(OwnedFd, &OsStr)> {
    absolute(path)?;
    let name = path.file_name().ok_or_else(|| SafeError::new_refused(path, "has no last component"))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let what = "open the directory";
    let way = symlink_safe_path::directory(dir).map_err(|lost| refusal(dir, what, lost))?;
    // The directory is opened again, because a descriptor opened with O_PATH cannot be synced.
    let fd = rustix::fs::openat(&way, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    Ok((fd.map_err(io(dir, what))?, name))
}

/// Reads a regular file of at most `READ_MAX` bytes. Links, devices and pipes are rejected.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    read_open(path, &open(path)?.0)
}

/// Reads the rest of an open file; `path` is used in messages.
pub fn read_open(path: &Path, file: &File) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    file.take(READ_MAX + 1).read_to_end(&mut out).map_err(std_io_error(path, "read it"))?;
    if out.len() as u64 > READ_MAX {
        return Err(SafeError::new_refused(path, format!("is larger than {READ_MAX} bytes")));
    }
    Ok(out)
}

/// Opens a regular file for reading and returns its metadata. Both are of the same file, even if
/// the path changes.
pub fn open(path: &Path) -> Result<(File, Stat)> {
    let fd = open_at(path, OFlags::RDONLY, "read it")?;
    let stat = rustix::fs::fstat(&fd).map_err(io(path, "read its metadata"))?;
    if kind(&stat) != FileType::RegularFile {
        return Err(SafeError::new_refused(path, "is not a regular file"));
    }
    Ok((File::from(fd), stat))
}

/// Writes `content` to `path` in one step, with its attributes. `check` can reject the new file
/// before it gets its name.
pub fn write(
    notes: &TempFileNotes,
    path: &Path,
    content: &[u8],
    attributes: Attributes,
    check: &mut dyn FnMut(&Path) -> std::result::Result<(), String>,
) -> Result<()> {
    let mut fill = |file: &mut File| file.write_all(content);
    put(notes, path, &mut fill, attributes, check)
}

/// Copies the content of `from`, of any size, to `path` as [`write`] does. If the file system
/// supports it, both files share their blocks.
pub fn copy(notes: &TempFileNotes, from: &File, path: &Path, attributes: Attributes) -> Result<()> {
    let mut source = from;
    let mut fill = |file: &mut File| match rustix::fs::ioctl_ficlone(&*file, source) {
        Ok(()) => Ok(()),
        Err(_) => std::io::copy(&mut source, file).map(drop),
    };
    put(notes, path, &mut fill, attributes, &mut |_| Ok(()))
}

/// Makes a second hard link `name` to the file at `path` in one step; replaces a file or link at
/// `name`. Both names refer to one file until `path` is removed or [`write`] replaces it.
pub fn second_name(notes: &TempFileNotes, path: &Path, name: &Path) -> Result<()> {
    let what = "make a hard link to it";
    absolute(path)?;
    let (from, old) = place(path).map_err(|lost| refusal(path, what, lost))?;
    let (dir, new) = parent(name)?;
    let temp = &sibling_temp_path(notes, name, new)?;
    rustix::fs::linkat(&from, old, &dir, temp, AtFlags::empty()).map_err(io(path, what))?;
    rustix::fs::renameat(&dir, temp, &dir, new).map_err(|e| {
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
        io(name, what)(e)
    })?;
    // If both names were already links to the same file, the rename did nothing. The temporary name
    // then still exists.
    let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
    rustix::fs::fsync(&dir).map_err(io(name, "sync its directory"))
}

/// Moves `path`, of any type, to `to`.
pub fn rename(path: &Path, to: &Path, what: &'static str) -> Result<()> {
    let ((from, old), (dir, new)) = (parent(path)?, parent(to)?);
    rustix::fs::renameat(&from, old, &dir, new).map_err(io(path, what))
}

/// Renames `from`, a file of this run, to `path` with these attributes, and replaces a file or link
/// there. The modification time stays. The caller has synced the content. If `path` is on another
/// file system, the file is copied.
pub fn adopt(notes: &TempFileNotes, from: &Path, path: &Path, attributes: Attributes) -> Result<()> {
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

/// Whether two files of any size have the same content.
pub fn same_content(one: &Path, other: &Path) -> Result<bool> {
    same_bytes((one, &mut open(one)?.0), (other, &mut open(other)?.0))
}

/// Like `same_content`, for open files; the paths are used in messages.
pub fn same_bytes(one: (&Path, &mut dyn Read), other: (&Path, &mut dyn Read)) -> Result<bool> {
    let (mut a, mut b) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let n = fill_up(one.1, &mut a).map_err(std_io_error(one.0, "read it"))?;
        let m = fill_up(other.1, &mut b).map_err(std_io_error(other.0, "read it"))?;
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

/// Creates a file with mode 0600 for an operation that creates other files too. The note about the
/// file is kept until the next call of this function.
pub fn create(notes: &TempFileNotes, path: &Path) -> Result<File> {
    let what = "make the file";
    let (dir, name) = parent(path)?;
    notes.note_long(path).map_err(std_io_error(path, "note the new file"))?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&dir, name, flags, Mode::from_raw_mode(0o600)).map(File::from).map_err(io(path, what))
}

fn put(
    notes: &TempFileNotes,
    path: &Path,
    fill: &mut dyn FnMut(&mut File) -> std::io::Result<()>,
    attributes: Attributes,
    check: &mut dyn FnMut(&Path) -> std::result::Result<(), String>,
) -> Result<()> {
    let (dir, name) = parent(path)?;
    let temp = &sibling_temp_path(notes, path, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&dir, temp, flags, Mode::from_raw_mode(0o600))
        .map_err(io(path, "create a temporary file next to it"))?;
    let attempt = || -> Result<()> {
        let mut file = File::from(fd);
        fill(&mut file).map_err(std_io_error(path, "write it"))?;
        set(&file, path, attributes)?;
        file.sync_all().map_err(std_io_error(path, "sync it"))?;
        check(&path.with_file_name(temp)).map_err(|what| SafeError::new_refused(path, what))?;
        rustix::fs::renameat(&dir, temp, &dir, name).map_err(io(path, "rename the new file"))?;
        rustix::fs::fsync(&dir).map_err(io(path, "sync its directory"))
    };
    let done = attempt();
    if done.is_err() {
        // If the rename has succeeded, the temporary name does not exist any more.
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
    }
    done
}

/// Returns a unique temporary name in the directory of `path`, and notes it.
fn sibling_temp_path(notes: &TempFileNotes, path: &Path, name: &OsStr) -> Result<OsString> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut temp = OsString::from(format!("{}{}-{count}-", temp_files::PREFIX, std::process::id()));
    temp.push(OsStr::from_bytes(&name.as_bytes()[..name.len().min(120)]));
    notes.note(&path.with_file_name(&temp)).map_err(std_io_error(path, "note the temporary file next to it"))?;
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

/// Sets the attributes of a path, never through a link. The path is not opened for reading. That is
/// impossible for a socket, can have effects for a device, and can be forbidden even to the owner.
pub fn set_attributes(path: &Path, attributes: Attributes) -> Result<()> {
    let fd = open_at(path, OFlags::PATH, "open it")?;
    let stat = rustix::fs::fstat(&fd).map_err(io(path, "read its metadata"))?;
    if kind(&stat) == FileType::Symlink {
        return Err(SafeError::new_refused(path, "is a symbolic link"));
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

/// Makes a directory in one step, with its attributes. Its parent must exist, and `path` must not.
pub fn make_directory(notes: &TempFileNotes, path: &Path, attributes: Attributes) -> Result<()> {
    let (dir, name) = parent(path)?;
    let what = "make the directory";
    let temp = &sibling_temp_path(notes, path, name)?;
    rustix::fs::mkdirat(&dir, temp, Mode::from_raw_mode(0o700)).map_err(io(path, what))?;
    let attempt = || -> Result<()> {
        let made = rustix::fs::openat(&dir, temp, DIRECTORY, Mode::empty()).map_err(io(path, what))?;
        set(&made, path, Attributes { mode: Some(attributes.mode.unwrap_or(0o755)), ..attributes })?;
        // Some file systems do not support this flag. Without it, at worst an empty directory is
        // replaced.
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

/// Removes a file or link, or with `directory` an empty directory.
pub fn remove(path: &Path, directory: bool) -> Result<()> {
    let (dir, name) = parent(path)?;
    let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(&dir, name, flags).map_err(io(path, "remove it"))
}

/// Makes a symbolic link in one step; replaces a file or link.
pub fn link(notes: &TempFileNotes, path: &Path, target: &Path) -> Result<()> {
    let (dir, name) = parent(path)?;
    let temp = &sibling_temp_path(notes, path, name)?;
    rustix::fs::symlinkat(target, &dir, temp).map_err(io(path, "make a temporary link next to it"))?;
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

/// Follows links at `path` and returns the final path and its metadata. Only links that root alone
/// can have created are followed.
pub fn lead(path: &Path) -> Result<(PathBuf, Option<Stat>)> {
    absolute(path)?;
    let end = symlink_safe_path::end(path).map_err(|lost| refusal(path, "follow the link", lost))?;
    let stat = stat_path(&end)?;
    Ok((end, stat))
}

/// Lists everything below a directory, parents first, without following links. Fails at another
/// file system, and if there are more than `most` entries.
pub fn walk(path: &Path, most: usize) -> Result<Vec<(PathBuf, Stat)>> {
    let mut out = Vec::new();
    let mut open = vec![path.to_owned()];
    let device = stat_path(path)?.map(|s| s.st_dev);
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
                Err(e) => return Err(io(&inner, "read its metadata")(e)),
            };
            if Some(stat.st_dev) != device {
                return Err(SafeError::new_refused(&inner, "is another file system"));
            }
            if out.len() >= most {
                return Err(SafeError::new_refused(path, format!("has more than {most} entries")));
            }
            if kind(&stat) == FileType::Directory {
                open.push(inner.clone());
            }
            out.push((inner, stat));
        }
    }
    Ok(out)
}

/// Lists the names in a directory, which must not be a link.
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

/// The flags of a file or directory that `lsattr` shows.
pub fn flags(path: &Path) -> Result<IFlags> {
    let what = "read its flags";
    let fd = open_at(path, OFlags::RDONLY, what)?;
    // The type of the open file is checked, because a pipe or device may have taken its place
    // meanwhile. The ioctl would then have another meaning.
    match kind(&rustix::fs::fstat(&fd).map_err(io(path, what))?) {
        FileType::RegularFile | FileType::Directory => rustix::fs::ioctl_getflags(&fd).map_err(io(path, what)),
        _ => Err(SafeError::new_refused(path, "is neither a file nor a directory")),
    }
}

/// Sets access and modification time, in seconds since 1970; None leaves them unchanged. The path
/// is not opened for reading, as in [`set_attributes`].
pub fn set_times(path: &Path, accessed: Option<i64>, modified: Option<i64>) -> Result<()> {
    let what = "set its times";
    let fd = open_at(path, OFlags::PATH, what)?;
    if kind(&rustix::fs::fstat(&fd).map_err(io(path, what))?) == FileType::Symlink {
        return Err(SafeError::new_refused(path, "is a symbolic link"));
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let time = |at: Option<i64>| at.map_or(omit, |tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::utimensat(CWD, name, &times, AtFlags::empty()).map_err(io(path, what))
}
