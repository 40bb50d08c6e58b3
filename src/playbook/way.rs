//! The way from `/` to a directory, walked by descriptors: a link on it is followed only where none but root could have put
//! it there. An application that owns `/srv/app` can exchange a directory in it for a link to `/etc` at any moment; whoever
//! works there as root, by name, would then work in `/etc`.

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlink, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Links that one way follows at most, as the kernel has it.
const LINKS_MAX: u32 = 40;
/// Names on one way at most, with those of its links.
const NAMES_MAX: u32 = 4_096;
/// To walk through, not to read: that may be allowed where reading is not.
const STEP: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why there is no way.
#[derive(Debug, PartialEq, Eq)]
pub enum Lost {
    Errno(Errno),
    /// This name would lead elsewhere, by the word of somebody who is not root.
    Led(OsString),
}

impl From<Errno> for Lost {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Opens the directory at `path`, which is absolute, for use as the start of other calls (`O_PATH`).
pub fn directory(path: &Path) -> Result<OwnedFd, Lost> {
    let own = rustix::process::geteuid().as_raw();
    walk(path, &|uid| uid == 0 || uid == own).map(|(at, _)| at)
}

/// Where `path` leads if what lies there is a link, and where that leads if it is one again: a path without links of what is
/// there, or would be.
pub fn end(path: &Path) -> Result<PathBuf, Lost> {
    let own = rustix::process::geteuid().as_raw();
    led(path, &|uid| uid == 0 || uid == own)
}

fn led(path: &Path, root: &dyn Fn(u32) -> bool) -> Result<PathBuf, Lost> {
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
            return Err(Lost::Led(name.to_owned()));
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

/// The directory, and whether those above it are all root's. `root`: whether somebody may do here what root may.
fn walk(path: &Path, root: &dyn Fn(u32) -> bool) -> Result<(OwnedFd, bool), Lost> {
    let mut at = openat(CWD, "/", STEP | OFlags::DIRECTORY, Mode::empty())?;
    let mut todo = Vec::new();
    push(&mut todo, path);
    // Whether root owns every directory so far: below another's, nothing that lies there says where to go.
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
            return Err(Lost::Led(name));
        }
        match openat(&at, &name, STEP | OFlags::DIRECTORY, Mode::empty()) {
            Ok(next) => at = next,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let link = openat(&at, &name, STEP, Mode::empty())?;
                let stat = fstat(&link)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                    return Err(Errno::NOTDIR.into());
                }
                // Where others may write beside root (`/tmp`), a link is to be root's itself.
                if !(safe && (root(stat.st_uid) || !others_write(&here))) {
                    return Err(Lost::Led(name));
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

/// The names of `path`, the first on top.
fn push(todo: &mut Vec<OsString>, path: &Path) {
    let names = path.components().rev().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir));
    todo.extend(names.map(|c| c.as_os_str().to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    /// Tests that run without root have directories of their own only, which then count as an application's.
    fn app_dir(path: &Path) {
        std::fs::create_dir_all(path).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(path, Some(54321), Some(54321)).unwrap();
        }
    }

    fn only_root(path: &Path) -> Result<u64, Lost> {
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
            assert_eq!(only_root(&d.join(path)), Err(Lost::Led(name.into())), "{path}");
        }
        assert_eq!(only_root(&d.join("app/none/x")), Err(Lost::Errno(Errno::NOENT)));
        std::fs::write(d.join("app/file"), "").unwrap();
        assert_eq!(only_root(&d.join("app/file")), Err(Lost::Errno(Errno::NOTDIR)));
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
        let only_root = |path: &str| led(&d.join(path), &|uid| uid == 0);
        for path in ["a", "real/b", "c", "real/file"] {
            assert_eq!(only_root(path), Ok(d.join("real/file")), "{path}");
        }
        assert_eq!(only_root("up"), Ok(d.join("real")));
        assert_eq!(only_root("broken"), Ok(d.join("none")));
        assert_eq!(only_root("round"), Err(Lost::Errno(Errno::LOOP)));
        for path in ["app/evil", "d"] {
            assert_eq!(only_root(path), Err(Lost::Led("evil".into())), "{path}");
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
        assert_eq!(directory(&d.join("loop")).map(drop), Err(Lost::Errno(Errno::LOOP)));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(d.join("link"), Some(54321), None).unwrap();
            assert_eq!(only_root(&d.join("link/sub")), Ok(inode(&d.join("real/sub"))), "nobody else writes there");
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&d, std::fs::Permissions::from_mode(0o1777)).unwrap();
            assert_eq!(only_root(&d.join("link/sub")), Err(Lost::Led("link".into())));
        }
    }
}
