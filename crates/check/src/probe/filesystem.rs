//! `filesystem`: the file system that holds a path, which need not be its mount point.

use super::mount::{used_percent, used_share};
use super::{ProbeAnswers, ProbeContext, failed_error, unknown_error};
use remoor_host::files::{Mount, run_with_deadline};
use rustix::fs::{StatVfs, statvfs};
use std::io;
use std::path::{Path, PathBuf};

const DEFAULT_MS: u64 = 1000;

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    // Both calls may wait for a server, so they share one deadline.
    let read = |path: &str| Ok((statvfs(path)?, Path::new(path).canonicalize()?));
    let asked = run_with_deadline(ask.timeout(DEFAULT_MS), &ask.check.name, read);
    let found: Result<(StatVfs, PathBuf), _> = asked.map_err(unknown_error).and_then(|found: io::Result<_>| {
        found.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => failed_error("there is no such path"),
            _ => unknown_error(e),
        })
    });
    let (stat, real) = match found {
        Ok(found) => found,
        Err(why) => return ask.check.assertions.iter().map(|one| (one.property, Err(why.clone()))).collect(),
    };
    let mount = ask.world.mounts().map_err(unknown_error).and_then(|mounts| {
        find_holding_mount(mounts, &real)
            .ok_or_else(|| unknown_error("the mount table does not contain this file system"))
    });
    ProbeAnswers::from([
        ("usage", used_percent(&stat)),
        ("free-bytes", Ok(stat.f_bavail.saturating_mul(stat.f_frsize).into())),
        ("inode-usage", Ok(inode_usage(&stat).into())),
        ("mount-point", mount.clone().map(|mount| mount.point.as_str().into())),
        ("filesystem", mount.map(|mount| mount.filesystem.as_str().into())),
    ])
}

/// Used inodes in percent. 0 for a file system such as btrfs, whose number of inodes has no limit.
fn inode_usage(stat: &StatVfs) -> u64 {
    used_share(stat.f_files, stat.f_ffree).unwrap_or(0)
}

/// The mount that holds `path`, a path without links: the one with the longest mount point, and of
/// several at the same mount point the last.
fn find_holding_mount<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(|mount| mount.point.len())
}

#[cfg(test)]
mod tests {
    use super::super::mount::test_mount;
    use super::*;

    #[test]
    fn the_longest_mount_point_holds_a_path() {
        let mounts = [("/", "ext4"), ("/var", "xfs"), ("/var", "btrfs"), ("/var/lib/x", "tmpfs")];
        let mounts = mounts.map(|(point, filesystem)| test_mount(point, filesystem));
        let held = |path: &str| find_holding_mount(&mounts, Path::new(path)).map(|mount| mount.filesystem.as_str());
        assert_eq!(held("/etc/passwd"), Some("ext4"));
        assert_eq!(held("/variable"), Some("ext4"));
        assert_eq!(held("/var/log"), Some("btrfs"));
        assert_eq!(held("/var/lib/x"), Some("tmpfs"));
        assert_eq!(find_holding_mount(&[], Path::new("/")), None);
    }
}
