//! `mount`: mounted filesystems, from `/proc/self/mountinfo`, and their usage.

use super::{ProbeAnswer, ProbeAnswers, ProbeContext, failed_error, unknown_error};
use remoor_host::files::{Mount, run_with_deadline};
use rustix::fs::StatVfs;
use std::time::Duration;

const DEFAULT_MS: u64 = 1000;

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let mounts = match ask.world.mounts() {
        Ok(mounts) => mounts,
        Err(why) => return ProbeAnswers::from([("exists", Err(unknown_error(why)))]),
    };
    let Some(mount) = mounted_at(mounts, &ask.check.name) else {
        return ProbeAnswers::from([("exists", Ok(false.into()))]);
    };
    let mut answers = ProbeAnswers::from([
        ("exists", Ok(true.into())),
        ("opts", Ok(mount.opts.clone().into())),
        ("vfs-opts", Ok(mount.vfs_opts.clone().into())),
        ("source", Ok(mount.source.as_str().into())),
        ("filesystem", Ok(mount.filesystem.as_str().into())),
    ]);
    if ask.wants("usage") {
        answers.insert("usage", usage(&mount.point, ask.timeout(DEFAULT_MS)));
    }
    answers
}

/// The filesystem mounted at `point`. The last mount hides earlier ones.
fn mounted_at<'m>(mounts: &'m [Mount], point: &str) -> Option<&'m Mount> {
    let point = if point.len() > 1 { point.trim_end_matches('/') } else { point };
    mounts.iter().rev().find(|mount| mount.point == point)
}

fn usage(point: &str, timeout: Duration) -> ProbeAnswer {
    let asked = run_with_deadline(timeout, point, |point| rustix::fs::statvfs(point)).map_err(unknown_error)?;
    used_percent(&asked.map_err(unknown_error)?)
}

/// Usage in percent, rounded as in goss. Free blocks that are reserved for root count as free.
pub(super) fn used_percent(stat: &StatVfs) -> ProbeAnswer {
    used_share(stat.f_blocks, stat.f_bfree).map(Into::into).ok_or_else(|| failed_error("this file system has no size"))
}

/// The used share in percent, rounded as in goss. None: the total is 0.
pub(super) fn used_share(total: u64, free: u64) -> Option<u64> {
    let used = u128::from(total.saturating_sub(free)) * 200 + u128::from(total);
    let whole = u128::from(total) * 2;
    (whole > 0).then(|| u64::try_from(used / whole).unwrap_or(100))
}

#[cfg(test)]
pub(super) fn test_mount(point: &str, filesystem: &str) -> Mount {
    Mount {
        point: point.to_owned(),
        opts: Vec::new(),
        vfs_opts: Vec::new(),
        source: "none".to_owned(),
        filesystem: filesystem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_hides_earlier_ones() {
        let mounts = [test_mount("/", "ext4"), test_mount("/m", "nfs4"), test_mount("/m", "tmpfs")];
        assert_eq!(mounted_at(&mounts, "/m/").map(|mount| &*mount.filesystem), Some("tmpfs"));
        assert_eq!(mounted_at(&mounts, "/").map(|mount| &*mount.filesystem), Some("ext4"));
        assert_eq!(mounted_at(&mounts, "/nowhere"), None);
    }

    #[test]
    fn percentages_are_rounded_as_in_goss() {
        let table = [(100, 100, 0), (100, 0, 100), (1000, 996, 0), (1000, 995, 1), (8, 7, 13), (3, 1, 67), (5, 9, 0)];
        for (blocks, free, wanted) in table {
            assert_eq!(used_share(blocks, free), Some(wanted), "{blocks} {free}");
        }
        assert_eq!((used_share(0, 0), used_share(u64::MAX, 0)), (None, Some(100)));
    }
}
