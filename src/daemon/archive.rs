//! Archives the files of a stopped manager service: the log, and the files that only managers have.
//! It never deletes them.
//!
//! First, the node's identity is written without a Raft id. With such an identity, manager files in
//! the data directory are leftovers. So after an interruption, the next start completes the
//! archiving. The files of the manager are moved into the log's directory, and then one atomic
//! rename archives that directory.

use super::layout::Layout;
use super::recover::RecoverError;
use remoor_host::disk::{ARCHIVE_PREFIX, ArchivedLog, DataDir, DiskError, archived_logs, sync_dir};
use remoor_model::RaftId;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of archives that can be created within one second.
const SAME_SECOND_MAX: usize = 100;

/// Archives the files of this node's manager service. Returns the path of the archive, or None if
/// there are no such files. No other task may use the files during the call. Blocks.
pub fn archive_raft_dir(layout: &Layout, id: Option<RaftId>) -> Result<Option<PathBuf>, DiskError> {
    let (raft, own) = (layout.raft(), [layout.ca(), layout.ssh_key()]);
    let full =
        |path: &Path| path.is_file() || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if !full(&raft) && !own.iter().any(|path| full(path)) {
        return Ok(None);
    }
    std::fs::create_dir_all(&raft).map_err(DiskError::io("creating directory", &raft))?;
    // The operator's credentials exist where `init` ran. Credentials alone do not cause an archive,
    // but a node that is no longer a manager does not need them.
    for path in own.into_iter().chain([layout.operator()]) {
        let Some(name) = path.file_name().filter(|_| path.exists()) else { continue };
        let to = raft.join(name);
        std::fs::rename(&path, &to).map_err(DiskError::io("moving to", &to))?;
    }
    sync_dir(&raft)?;
    let to = free_archive_path(&layout.0, id);
    std::fs::rename(&raft, &to).map_err(DiskError::io("moving to", &to))?;
    sync_dir(&layout.0)?;
    Ok(Some(to))
}

/// The archived logs in the data directory that are older than `age`, for their deletion. If this
/// manager has lost its log, an archive may be the only copy of the log. So the result is then an
/// error. A daemon may run on the directory.
pub fn old_archives(dir: &Path, age: Duration) -> Result<Vec<ArchivedLog>, RecoverError> {
    let identity = DataDir::read_identity_unlocked(dir)?;
    if identity.is_some_and(|identity| identity.raft.is_some()) && !Layout(dir.to_owned()).raft_log().exists() {
        return Err(RecoverError::OnlyCopy);
    }
    let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let now = crate::manager::wall();
    Ok(archived_logs(dir).into_iter().filter(|log| now.ms_since(log.at) >= age_ms).collect())
}

/// `raft.removed-<id>-<unix seconds>`, with a number appended if that name exists.
pub(super) fn free_archive_path(dir: &Path, id: Option<RaftId>) -> PathBuf {
    let seconds = crate::manager::wall().0 / 1_000;
    let id = id.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    let name = format!("{ARCHIVE_PREFIX}{id}-{seconds}");
    let others = (2..SAME_SECOND_MAX).map(|n| format!("{name}-{n}"));
    let free = std::iter::once(name.clone()).chain(others).map(|name| dir.join(name)).find(|path| !path.exists());
    free.unwrap_or_else(|| dir.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn archive_names(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).expect("listed").map(|e| e.expect("an entry").file_name().into_string());
        let mut names: Vec<String> = names.map(|name| name.expect("UTF-8")).collect();
        names.retain(|name| name.starts_with("raft.removed-"));
        names.sort();
        names
    }

    #[test]
    fn all_that_only_managers_have_goes_aside_and_the_rest_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout(dir.path().to_owned());
        assert_eq!(archive_raft_dir(&layout, None).expect("nothing"), None);
        fs::create_dir(layout.raft()).expect("made");
        assert_eq!(archive_raft_dir(&layout, None).expect("nothing"), None, "an empty directory is nothing");
        let fill = || {
            fs::create_dir_all(layout.raft()).expect("made");
            fs::create_dir_all(layout.ca()).expect("made");
            for (path, text) in [(layout.raft().join("log.redb"), "log"), (layout.ca().join("ca.key"), "key")] {
                fs::write(path, text).expect("written");
            }
            fs::write(layout.ssh_key(), "ssh").expect("written");
        };
        fill();
        fs::create_dir(layout.blobs()).expect("made");
        let to = archive_raft_dir(&layout, Some(RaftId(9))).expect("moved").expect("something");
        assert!(to.file_name().is_some_and(|name| name.to_string_lossy().starts_with("raft.removed-9-")), "{to:?}");
        for (file, text) in [("log.redb", "log"), ("ca/ca.key", "key"), ("ssh.key", "ssh")] {
            assert_eq!(fs::read_to_string(to.join(file)).expect("kept"), text);
        }
        assert!(![layout.raft(), layout.ca(), layout.ssh_key()].iter().any(|path| path.exists()));
        assert!(layout.blobs().exists());
        fill();
        archive_raft_dir(&layout, Some(RaftId(9))).expect("moved within the same second").expect("something");
        assert_eq!(archive_names(dir.path()).len(), 2);
    }

    #[test]
    fn what_a_crash_interrupted_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let layout = Layout(dir.path().to_owned());
        // The state after a crash during the archiving: the CA was moved, but the SSH key was not.
        fs::create_dir_all(layout.raft().join("ca")).expect("made");
        fs::write(layout.raft().join("ca/ca.key"), "key").expect("written");
        fs::write(layout.ssh_key(), "ssh").expect("written");
        let to = archive_raft_dir(&layout, Some(RaftId(9))).expect("moved").expect("something");
        assert!(to.join("ca/ca.key").exists() && to.join("ssh.key").exists());
        // This directory has no log, and only one file that a worker does not need.
        fs::write(layout.ssh_key(), "ssh").expect("written");
        let to = archive_raft_dir(&layout, None).expect("moved").expect("something");
        assert!(to.join("ssh.key").exists() && to.to_string_lossy().contains("raft.removed-unknown-"), "{to:?}");
    }
}
