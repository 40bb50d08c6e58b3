//! The way from `/` to a directory, walked by descriptors: a link on it is followed only where none but root could have put
//! it there. An application that owns `/srv/app` can exchange a directory in it for a link to `/etc` at any moment; whoever
//! works there as root, by name, would then work in `/etc`.

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

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
    walk(path, &|uid| uid == 0 || uid == own)
}

/// `root`: whether somebody may do here what root may.
fn walk(path: &Path, root: &dyn Fn(u32) -> bool) -> Result<OwnedFd, Lost> {
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
    Ok(at)
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
        walk(path, &|uid| uid == 0).map(|fd| fstat(&fd).unwrap().st_ino)
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
