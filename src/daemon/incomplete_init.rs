//! Data directories that do not belong to a node yet. `init`, `join` and `restore` write several
//! files, and the identity last. A marker file shows that such a command is in progress. If the
//! command is killed, the next attempt may remove its files. No other file is ever removed.
//!
//! The marker of `init` stays until the tokens are printed. The state contains only hashes of the
//! tokens. So if `init` is killed before it prints the tokens, they can't be printed any more, and
//! the next `init` creates another cluster. This is safe, because no node can have joined without a
//! token.

use super::admin::AdminError;
use remoor_host::disk::{DataDir, DiskError, LEFT, atomic_write, sync_dir};
use std::path::Path;

/// The marker file. It exists from before the first file is written until the identity is written.
const MARK: &str = "unfinished";
/// Content of the marker of `init`. Any other content belongs to `join`, `restore` or an earlier
/// version.
const OF_INIT: &[u8] = b"remoor init was at work here; the same command goes on\n";
const OF_JOIN: &[u8] = b"remoor join was at work here; the same command goes on\n";
const OF_RESTORE: &[u8] = b"remoor restore was at work here; the same command goes on\n";
/// All files that `init` and `join` write, except the node's key. The next attempt reuses the key.
const MADE: [&str; 7] = ["raft", "ca", "ssh.key", "credentials.json", "operator.json", "peers.json", "node.json"];
/// Files that `restore` writes in addition. The node's key is removed too, because it belongs to
/// the machine that made the backup and no other machine may join with it.
const RESTORED: [&str; 2] = ["node.key", "backup.json"];
/// Directories whose content exists on no other machine. A data directory with one of them belonged
/// to a node.
const PRECIOUS: [&str; 2] = ["raft", "ca"];

/// Prepares a directory without an identity for an attempt: removes the files of an unfinished
/// attempt. If the directory contains a log or a CA but no marker, the call fails and changes
/// nothing.
pub(super) fn clear(dir: &Path) -> Result<(), AdminError> {
    if !dir.join(MARK).exists() {
        let full = |name: &&&str| std::fs::read_dir(dir.join(name)).is_ok_and(|mut entries| entries.next().is_some());
        return match PRECIOUS.iter().find(full) {
            Some(&found) => Err(AdminError::Leftover { dir: dir.to_owned(), found }),
            None => Ok(()),
        };
    }
    let restored = std::fs::read(dir.join(MARK)).is_ok_and(|text| text == OF_RESTORE);
    let more: &[&str] = if restored { &RESTORED } else { &[] };
    for path in MADE.iter().chain(more).map(|name| dir.join(name)) {
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(DiskError::io("removing", &path)(e).into());
            }
            _ => {}
        }
    }
    tracing::info!(dir = %dir.display(), "the files of an unfinished attempt were removed");
    Ok(sync_dir(dir)?)
}

/// The command whose marker is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnfinishedCommand {
    Cluster,
    Node,
    Restored,
}

/// Writes the marker. The marker is on disk when this returns.
pub(super) fn begin(dir: &Path, making: UnfinishedCommand) -> Result<(), DiskError> {
    let text = match making {
        UnfinishedCommand::Cluster => OF_INIT,
        UnfinishedCommand::Node => OF_JOIN,
        UnfinishedCommand::Restored => OF_RESTORE,
    };
    atomic_write(&dir.join(MARK), text, 0o600)
}

/// Removes the identity of a cluster whose tokens were never printed. If the tokens of `dir` were
/// printed, returns false and changes nothing. The start of a daemon removes the marker, so a used
/// directory is never affected. No daemon may run on the directory during this call.
pub(super) fn discard_unprinted_init(dir: &Path) -> Result<bool, DiskError> {
    if !std::fs::read(dir.join(MARK)).is_ok_and(|text| text == OF_INIT) {
        return Ok(false);
    }
    let identity = dir.join("identity.json");
    std::fs::remove_file(&identity).map_err(DiskError::io("removing", &identity))?;
    sync_dir(dir)?;
    Ok(true)
}

/// Records that the tokens of [`super::init`] were printed. From then on the directory belongs to a
/// node.
pub fn mark_tokens_printed(dir: &Path) -> Result<(), AdminError> {
    Ok(end(dir)?)
}

/// Removes the marker file. All other files, including the identity, must be on disk before this
/// call.
pub(super) fn end(dir: &Path) -> Result<(), DiskError> {
    remove_file_durably(dir, MARK)
}

/// Removes the file if it exists. The removal is on disk when this returns.
fn remove_file_durably(dir: &Path, name: &str) -> Result<(), DiskError> {
    let path = dir.join(name);
    match std::fs::remove_file(&path) {
        Ok(()) => sync_dir(dir),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(DiskError::io("removing", &path)(e)),
    }
}

/// Whether the directory belongs to a node that left its cluster voluntarily.
pub(super) fn has_left(dir: &Path) -> bool {
    dir.join(LEFT).exists()
}

/// Removes the file that records that the node left, because the node is a member again.
pub(super) fn clear_left_mark(dir: &Path) -> Result<(), DiskError> {
    remove_file_durably(dir, LEFT)
}

/// Renames the directory of a node and never deletes it. Fails while a daemon runs on it.
pub fn archive_data_dir(dir: &Path) -> Result<(), AdminError> {
    if !["identity.json"].iter().chain(&PRECIOUS).any(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let _lock = open(dir)?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut aside = dir.as_os_str().to_owned();
    aside.push(format!(".aside-{since}"));
    Ok(std::fs::rename(dir, &aside).map_err(DiskError::io("moving aside", dir))?)
}

/// Locks the directory. A running daemon is reported as [`AdminError::Running`].
pub(super) fn open(dir: &Path) -> Result<DataDir, AdminError> {
    DataDir::open(dir).map_err(|error| match error {
        DiskError::Held { holder, .. } => AdminError::Running { dir: dir.to_owned(), holder },
        other => other.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_unfinished_try_made_is_cleared_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = |name: &str| dir.path().join(name);
        std::fs::create_dir(file("raft")).expect("made");
        std::fs::create_dir(file("blobs")).expect("made");
        clear(dir.path()).expect("empty folders are nothing");
        std::fs::write(file("raft/log.redb"), "a log").expect("written");
        std::fs::write(file("node.key"), "a key").expect("written");
        let error = clear(dir.path()).expect_err("it was a node's").to_string();
        assert!(error.contains("raft") && error.contains("move the directory away"), "{error}");
        assert!(file("raft/log.redb").exists(), "refused and untouched");
        begin(dir.path(), UnfinishedCommand::Node).expect("a mark");
        clear(dir.path()).expect("unfinished");
        assert_eq!((file("raft").exists(), file("node.key").exists(), file("blobs").exists()), (false, true, true));
        begin(dir.path(), UnfinishedCommand::Restored).expect("a mark");
        clear(dir.path()).expect("unfinished");
        assert!(!file("node.key").exists(), "of the machine whose backup it is");
        end(dir.path()).expect("ended");
        end(dir.path()).expect("twice is no error");
        assert!(!file(MARK).exists());
    }

    #[test]
    fn an_identity_is_taken_back_only_from_a_cluster_whose_tokens_nobody_knows() {
        let dir = tempfile::tempdir().expect("a folder");
        let identity = dir.path().join("identity.json");
        std::fs::write(&identity, "{}").expect("written");
        assert!(!discard_unprinted_init(dir.path()).expect("a node's"), "no mark");
        begin(dir.path(), UnfinishedCommand::Node).expect("a mark");
        assert!(!discard_unprinted_init(dir.path()).expect("a node's"), "it has joined");
        std::fs::write(dir.path().join(MARK), "remoor init or remoor join was at work here").expect("written");
        assert!(!discard_unprinted_init(dir.path()).expect("a node's"), "a mark of an earlier program");
        assert!(identity.exists());
        begin(dir.path(), UnfinishedCommand::Cluster).expect("a mark");
        assert!(discard_unprinted_init(dir.path()).expect("untold"));
        assert!(!identity.exists() && dir.path().join(MARK).exists(), "the rest is for clear");
        begin(dir.path(), UnfinishedCommand::Cluster).expect("a mark");
        std::fs::write(&identity, "{}").expect("written");
        mark_tokens_printed(dir.path()).expect("told");
        assert!(!discard_unprinted_init(dir.path()).expect("a node's") && identity.exists());
    }
}
