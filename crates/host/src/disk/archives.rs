//! Archived Raft logs in the data directory of a node. A daemon archives the log of its manager
//! service and never deletes the archive, because it may be the only copy of some decisions. Only
//! an operator deletes archives. Archives also contain keys of the cluster.

use super::{DiskError, sync_dir};
use remoor_model::Wall;
use std::path::{Path, PathBuf};

/// The start of the name of an archive: `raft.removed-ID-SECONDS`, with a number appended if that
/// name exists. ID is the Raft id, or `unknown`.
pub const ARCHIVE_PREFIX: &str = "raft.removed-";
/// Maximum number of archives that are listed.
const LISTED_MAX: usize = 1_000;

/// An archived log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedLog {
    pub path: PathBuf,
    /// The time in the name of the archive.
    pub at: Wall,
}

impl ArchivedLog {
    /// The number of bytes of the files in the archive, as far as they can be read.
    pub fn bytes(&self) -> u64 {
        bytes_below(&self.path, 4)
    }

    /// Deletes the archive.
    pub fn delete(&self) -> Result<(), DiskError> {
        std::fs::remove_dir_all(&self.path).map_err(DiskError::io("deleting", &self.path))?;
        sync_dir(self.path.parent().unwrap_or(Path::new("/")))
    }
}

/// The archived logs in a data directory, oldest first. Links and files with such a name are
/// omitted.
pub fn archived_logs(dir: &Path) -> Vec<ArchivedLog> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let archives = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).filter_map(|entry| {
        let at = archived_at(entry.file_name().to_str()?)?;
        Some(ArchivedLog { path: entry.path(), at })
    });
    let mut archives: Vec<ArchivedLog> = archives.take(LISTED_MAX).collect();
    archives.sort_by(|a, b| (a.at, &a.path).cmp(&(b.at, &b.path)));
    archives
}

/// The time in the name of an archive. None if the name is not that of an archive.
fn archived_at(name: &str) -> Option<Wall> {
    let mut parts = name.strip_prefix(ARCHIVE_PREFIX)?.split('-');
    let (id, seconds, number) = (parts.next()?, parts.next()?, parts.next());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let known = (id == "unknown" || is_number(id)) && number.is_none_or(is_number) && parts.next().is_none();
    let seconds: u64 = seconds.parse().ok().filter(|_| known && is_number(seconds))?;
    Some(Wall(seconds.saturating_mul(1_000)))
}

fn bytes_below(dir: &Path, depth: u32) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let bytes = entries.filter_map(|entry| {
        let found = entry.metadata().ok()?;
        match found.is_dir() {
            true if depth > 0 => Some(bytes_below(&entry.path(), depth - 1)),
            true => None,
            false => Some(found.len()),
        }
    });
    bytes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_with_the_name_of_an_archive_are_listed_and_deleted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["raft", "raft.removed-1-20", "raft.removed-unknown-10", "raft.removed-1-20-2", "raft.removed-x-1"]
        {
            std::fs::create_dir_all(dir.path().join(name).join("ca")).unwrap();
            std::fs::write(dir.path().join(name).join("ca/ca.key"), "a key").unwrap();
        }
        std::fs::write(dir.path().join("raft.removed-2-30"), "a file").unwrap();
        std::os::unix::fs::symlink(dir.path().join("raft"), dir.path().join("raft.removed-3-30")).unwrap();
        let found = archived_logs(dir.path());
        let times: Vec<u64> = found.iter().map(|log| log.at.0 / 1_000).collect();
        assert_eq!(times, [10, 20, 20]);
        assert_eq!(found[0].bytes(), 5);
        for log in &found {
            log.delete().unwrap();
        }
        assert!(archived_logs(dir.path()).is_empty());
        for kept in ["raft/ca/ca.key", "raft.removed-x-1/ca/ca.key", "raft.removed-2-30"] {
            assert!(dir.path().join(kept).exists(), "{kept}");
        }
    }
}
