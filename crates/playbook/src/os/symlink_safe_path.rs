//! Walks the path from `/` to a directory by descriptors. A link in the path is followed only if
//! root alone can have created it.
//!
//! Otherwise an application that owns `/srv/app` could replace a directory in it by a link to
//! `/etc`. A root process that works in that directory, by its path, would then work in `/etc`.

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlink, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links in one path, as in the kernel.
const LINKS_MAX: u32 = 40;
/// Maximum number of components of one path, including those of its links.
const NAMES_MAX: u32 = 4_096;
/// Opens a component for walking, not for reading, because the process may lack the permission to
/// read it.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The reason why a path cannot be resolved.
#[derive(Debug, PartialEq, Eq)]
pub enum PathError {
    Errno(Errno),
    /// A component of the path, which is a link (or `..`) that a user other than root controls.
    UntrustedLink(OsString),
}

impl From<Errno> for PathError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Opens the directory at the absolute `path` with `O_PATH`. The descriptor is a starting point for
/// other calls.
pub fn directory(path: &Path) -> Result<OwnedFd, PathError> {
    let own = rustix::process::geteuid().as_raw();
    walk(path, &|uid| uid == 0 || uid == own).map(|(at, _)| at)
}

/// Resolves `path` through links at its last component. Returns a path without links; its target
/// need not exist.
pub fn end(path: &Path) -> Result<PathBuf, PathError> {
    let own = rustix::process::geteuid().as_raw();
    resolve(path, &|uid| uid == 0 || uid == own)
}

fn resolve(path: &Path, root: &dyn Fn(u32) -> bool) -> Result<PathBuf, PathError> {
    let mut path = path.to_owned();
    for _ in 0..=LINKS_MAX {
        let (Some(name), Some(dir)) = (path.file_name(), path.parent()) else {
            return Ok(real(&walk(&path, root)?.0)?);
        };
        let (dir, safe) = walk(dir, root)?;
        let here = fstat(&dir)?;
        let inner = real(&dir)?.join(name);
        let thing = match openat(&dir, name, STEP, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(inner),
            thing => thing?,
        };
        let stat = fstat(&thing)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(inner);
        }
        if !(safe && root(here.st_uid) && (root(stat.st_uid) || !others_write(&here))) {
            return Err(PathError::UntrustedLink(name.to_owned()));
        }
        let target = readlinkat(&thing, "", Vec::new())?;
        path = real(&dir)?.join(OsStr::from_bytes(target.as_bytes()));
    }
    Err(Errno::LOOP.into())
}

/// The path of an open directory.
fn real(dir: &OwnedFd) -> Result<PathBuf, Errno> {
    let name = readlink(format!("/proc/self/fd/{}", dir.as_raw_fd()), Vec::new())?;
    Ok(OsStr::from_bytes(name.as_bytes()).into())
}

/// Opens the directory, and returns whether root owns every directory above it. `root` decides
/// whether a user id counts as root.
fn walk(path: &Path, root: &dyn Fn(u32) -> bool) -> Result<(OwnedFd, bool), PathError> {
    let mut at = openat(CWD, "/", STEP | OFlags::DIRECTORY, Mode::empty())?;
    let mut todo = Vec::new();
    push(&mut todo, path);
    // Whether root owns every directory so far. Below a directory of another user, no link and no
    // `..` is trusted.
    let mut safe = true;
    let (mut links, mut names) = (0, 0);
    while let Some(name) = todo.pop() {
        names += 1;
        if names > NAMES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let here = fstat(&at)?;
        safe &= root(here.st_uid);
        if name == ".." && !safe {
            return Err(PathError::UntrustedLink(name));
        }
        match openat(&at, &name, STEP | OFlags::DIRECTORY, Mode::empty()) {
            Ok(next) => at = next,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let link = openat(&at, &name, STEP, Mode::empty())?;
                let stat = fstat(&link)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                    return Err(Errno::NOTDIR.into());
                }
                // In a directory where other users may write (`/tmp`), the link itself must belong
                // to root.
                if !(safe && (root(stat.st_uid) || !others_write(&here))) {
                    return Err(PathError::UntrustedLink(name));
                }
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&link, "", Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    at = openat(CWD, "/", STEP | OFlags::DIRECTORY, Mode::empty())?;
                }
                push(&mut todo, target);
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok((at, safe))
}

fn others_write(stat: &Stat) -> bool {
    stat.st_mode & 0o022 != 0
}

/// Pushes the components of `path`, the first one on top.
fn push(todo: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir));
    todo.extend(names.map(|c| c.as_os_str().to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    /// In a test without root, all directories belong to the user of the test. Here, such a
    /// directory stands for a directory of an application.
    fn app_dir(path: &Path) {
        std::fs::create_dir_all(path).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(path, Some(54321), Some(54321)).unwrap();
        }
    }

    fn only_root(path: &Path) -> Result<u64, PathError> {
        walk(path, &|uid| uid == 0).map(|(fd, _)| fstat(&fd).unwrap().st_ino)
    }

    fn inode(path: &Path) -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn the_systems_own_links_are_followed() {
        let links = ["/bin", "/lib", "/var/run", "/var/lock", "/etc/mtab", "/proc/self", "/dev/fd"].map(Path::new);
        let linked: Vec<_> = links.iter().filter(|p| p.is_symlink() && p.is_dir()).collect();
        assert!(linked.contains(&&Path::new("/proc/self")), "{linked:?}");
        for path in linked.into_iter().filter(|p| !p.starts_with("/proc") && !p.starts_with("/dev")) {
            assert_eq!(only_root(path), Ok(inode(path)), "{}", path.display());
        }
        assert_eq!(only_root(Path::new("/usr/../proc/./sys")), Ok(inode(Path::new("/proc/sys"))));
        assert_eq!(only_root(Path::new("/")), Ok(inode(Path::new("/"))));
    }

    #[test]
    fn a_link_of_an_application_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().canonicalize().unwrap();
        app_dir(&d.join("app"));
        std::fs::create_dir_all(d.join("app/sub/deep")).unwrap();
        std::fs::create_dir(d.join("etc")).unwrap();
        assert_eq!(only_root(&d.join("app/sub/deep")), Ok(inode(&d.join("app/sub/deep"))));
        symlink(d.join("etc"), d.join("app/x")).unwrap();
        symlink("../../etc", d.join("app/sub/y")).unwrap();
        for (path, name) in [("app/x", "x"), ("app/sub/y", "y"), ("app/sub/../sub", "..")] {
            assert_eq!(only_root(&d.join(path)), Err(PathError::UntrustedLink(name.into())), "{path}");
        }
        assert_eq!(only_root(&d.join("app/none/x")), Err(PathError::Errno(Errno::NOENT)));
        std::fs::write(d.join("app/file"), "").unwrap();
        assert_eq!(only_root(&d.join("app/file")), Err(PathError::Errno(Errno::NOTDIR)));
    }

    #[test]
    fn where_a_link_leads_is_told_unless_an_application_may_have_put_it_there() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(d.join("real/sub")).unwrap();
        app_dir(&d.join("app"));
        std::fs::write(d.join("real/file"), "").unwrap();
        for (target, link) in [("real/file", "a"), ("../a", "real/b"), ("none", "broken"), ("round", "round")] {
            symlink(target, d.join(link)).unwrap();
        }
        symlink(d.join("real/b"), d.join("c")).unwrap();
        symlink("app/evil", d.join("d")).unwrap();
        symlink(d.join("real/file"), d.join("app/evil")).unwrap();
        symlink("real/sub/..", d.join("up")).unwrap();
        let only_root = |path: &str| resolve(&d.join(path), &|uid| uid == 0);
        for path in ["a", "real/b", "c", "real/file"] {
            assert_eq!(only_root(path), Ok(d.join("real/file")), "{path}");
        }
        assert_eq!(only_root("up"), Ok(d.join("real")));
        assert_eq!(only_root("broken"), Ok(d.join("none")));
        assert_eq!(only_root("round"), Err(PathError::Errno(Errno::LOOP)));
        for path in ["app/evil", "d"] {
            assert_eq!(only_root(path), Err(PathError::UntrustedLink("evil".into())), "{path}");
        }
    }

    #[test]
    fn a_link_in_roots_own_directory_is_followed_unless_another_may_have_put_it_there() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(d.join("real/sub")).unwrap();
        symlink("real", d.join("link")).unwrap();
        symlink("loop", d.join("loop")).unwrap();
        assert_eq!(directory(&d.join("link/sub")).map(|fd| fstat(&fd).unwrap().st_ino), Ok(inode(&d.join("real/sub"))));
        assert_eq!(directory(&d.join("loop")).map(drop), Err(PathError::Errno(Errno::LOOP)));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(d.join("link"), Some(54321), None).unwrap();
            assert_eq!(only_root(&d.join("link/sub")), Ok(inode(&d.join("real/sub"))), "nobody else writes there");
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&d, std::fs::Permissions::from_mode(0o1777)).unwrap();
            assert_eq!(only_root(&d.join("link/sub")), Err(PathError::UntrustedLink("link".into())));
        }
    }
}
