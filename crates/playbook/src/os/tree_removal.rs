//! Removes a directory with everything in it, by descriptors, so that a link put in its path cannot
//! redirect the removal.
//!
//! The whole tree is checked before anything is removed. Mounted file systems are not emptied. A
//! tree that cannot be removed completely is rejected before the first removal.

use crate::os::atomic_fs::{self, DIRECTORY, SafeError, io, parent};
use remoor_host::files;
use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Maximum nesting depth: each directory stays open while its content is removed.
const DEPTH_MAX: u32 = 200;

type Result<T> = std::result::Result<T, SafeError>;

pub fn remove(path: &Path) -> Result<()> {
    check_unmounted(&atomic_fs::lead(path)?.0, &|_| false)?;
    let (dir, name) = parent(path)?;
    let device =
        rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io(path, "read its metadata"))?.st_dev;
    look_in(&dir, name, path, (device, 0))?;
    remove_in(&dir, name, path, 0)
}

/// Fails if something is mounted at or below this path, which must contain no links. The check uses
/// the kernel's table of mounts, because a bind mount within one file system has the device number
/// of its surroundings. Mounts for which `gone` returns true are ignored.
pub fn check_unmounted(real: &Path, gone: &dyn Fn(&str) -> bool) -> Result<()> {
    let mounts = files::mounts().map_err(|why| SafeError::new_refused(real, format!("is not removed: {why}")))?;
    let mut below = mounts.iter().filter(|mount| Path::new(&mount.point).starts_with(real));
    match below.find(|mount| !gone(&mount.point)) {
        None => Ok(()),
        Some(mount) => {
            let (source, point) = (&mount.source, &mount.point);
            let what = format!("is not removed, because `{source}` is mounted at {point}; next: unmount it");
            Err(SafeError::new_refused(real, what))
        }
    }
}

fn look_in(dir: &OwnedFd, name: &OsStr, path: &Path, (device, depth): (u64, u32)) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(SafeError::new_refused(path, "is nested too deeply; nothing was removed"));
    }
    let fd = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()).map_err(io(path, "open the directory"))?;
    if rustix::fs::fstat(&fd).map_err(io(path, "read its metadata"))?.st_dev != device {
        return Err(SafeError::new_refused(path, "is another file system; nothing was removed"));
    }
    for (inner, stat) in entries(&fd, path)? {
        if atomic_fs::kind(&stat) == FileType::Directory {
            look_in(&fd, &inner, &path.join(&inner), (device, depth + 1))?;
        }
    }
    Ok(())
}

fn remove_in(dir: &OwnedFd, name: &OsStr, path: &Path, depth: u32) -> Result<()> {
    if depth > DEPTH_MAX {
        return Err(SafeError::new_refused(path, "is nested too deeply"));
    }
    let fd = rustix::fs::openat(dir, name, DIRECTORY, Mode::empty()).map_err(io(path, "open the directory"))?;
    for (inner, stat) in entries(&fd, path)? {
        if atomic_fs::kind(&stat) == FileType::Directory {
            remove_in(&fd, &inner, &path.join(&inner), depth + 1)?;
        } else {
            rustix::fs::unlinkat(&fd, &inner, AtFlags::empty()).map_err(io(path, "remove a file in it"))?;
        }
    }
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).map_err(io(path, "remove it"))
}

/// Lists an open directory.
fn entries(fd: &OwnedFd, path: &Path) -> Result<Vec<(OsString, Stat)>> {
    let mut out = Vec::new();
    for entry in Dir::read_from(fd).map_err(io(path, "read the directory"))? {
        let entry = entry.map_err(io(path, "read the directory"))?;
        let inner = OsStr::from_bytes(entry.file_name().to_bytes());
        if inner == "." || inner == ".." {
            continue;
        }
        let stat = rustix::fs::statat(fd, inner, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(io(path, "read the metadata of an entry"))?;
        out.push((inner.to_owned(), stat));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn what_is_nested_too_deep_is_refused_before_anything_goes() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap().join("top");
        fs::create_dir_all(top.join("a/".repeat(250))).unwrap();
        fs::write(top.join("precious"), "x").unwrap();
        let refused = remove(&top).unwrap_err().line();
        assert!(refused.contains("nested too deep"), "{refused}");
        assert!(top.join("precious").exists());
        fs::rename(top.join("a/".repeat(100)), top.join("b")).unwrap();
        remove(&top).unwrap();
        assert!(!top.exists());
    }

    /// Tests three mounts: another file system in the tree, a bind mount, and a tree that is itself
    /// a mount point.
    #[test]
    fn what_is_mounted_is_not_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().canonicalize().unwrap();
        fs::create_dir_all(d.join("top/sub/m")).unwrap();
        fs::create_dir(d.join("data")).unwrap();
        fs::write(d.join("data/precious"), "x").unwrap();
        fs::write(d.join("top/a"), "x").unwrap();
        let place = d.join("top/sub/m");
        let run =
            |argv: &[&str]| Command::new(argv[0]).args(&argv[1..]).arg(&place).status().is_ok_and(|s| s.success());
        let data = d.join("data").display().to_string();
        for mount in [&["mount", "--bind", &data][..], &["mount", "-t", "tmpfs", "none"]] {
            if !run(mount) {
                eprintln!("SKIPPED: nothing may be mounted here");
                return;
            }
            let precious = place.join("precious");
            fs::write(&precious, "x").unwrap();
            let refused = [remove(&d.join("top")), remove(&place)].map(|done| done.unwrap_err().line());
            let left = precious.exists() && d.join("top/a").exists();
            assert!(run(&["umount"]));
            assert!(left && refused.iter().all(|line| line.contains("is mounted at")), "{refused:?}");
        }
        remove(&d.join("top")).unwrap();
        assert!(d.join("data/precious").exists());
    }
}
