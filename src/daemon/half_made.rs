//! Data directories that are not a node's yet. `init` and `join` write several files, the identity last; a mark beside them
//! says that they are at it, so that a next try may clear away what a kill left, and nothing else is ever cleared away.

use super::admin::AdminError;
use crate::disk::{DataDir, DiskError, atomic_write, sync_dir};
use std::path::Path;

/// Stands from before the first file until the identity is written.
const MARK: &str = "unfinished";
/// All that `init` and `join` write, without the node's key, which a next try uses again.
const MADE: [&str; 7] = ["raft", "ca", "ssh.key", "credentials.json", "operator.json", "peers.json", "node.json"];
/// Of these nobody has a second copy; a directory that holds them belonged to a node.
const PRECIOUS: [&str; 2] = ["raft", "ca"];

/// Makes a directory without an identity ready for a first try, or for the next one. Refused where it holds a log or a CA
/// that no unfinished try has made: then nothing was changed.
pub(super) fn clear(dir: &Path) -> Result<(), AdminError> {
    if !dir.join(MARK).exists() {
        let full = |name: &&&str| std::fs::read_dir(dir.join(name)).is_ok_and(|mut entries| entries.next().is_some());
        return match PRECIOUS.iter().find(full) {
            Some(&found) => Err(AdminError::Leftover { dir: dir.to_owned(), found }),
            None => Ok(()),
        };
    }
    for path in MADE.map(|name| dir.join(name)) {
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(DiskError::io("removing", &path)(e).into());
            }
            _ => {}
        }
    }
    tracing::info!(dir = %dir.display(), "what an unfinished try left was cleared away");
    Ok(sync_dir(dir)?)
}

/// Says that files are being made here; on disk when this returns.
pub(super) fn begin(dir: &Path) -> Result<(), DiskError> {
    atomic_write(&dir.join(MARK), b"remoor init or remoor join was at work here; the same command goes on\n", 0o600)
}

/// Says that they are all there, identity and all.
pub(super) fn end(dir: &Path) -> Result<(), DiskError> {
    let mark = dir.join(MARK);
    match std::fs::remove_file(&mark) {
        Ok(()) => sync_dir(dir),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(DiskError::io("removing", &mark)(e)),
    }
}

/// Moves the directory of a node aside, never deletes it; refused while a daemon runs on it.
pub fn move_aside(dir: &Path) -> Result<(), AdminError> {
    if !["identity.json"].iter().chain(&PRECIOUS).any(|name| dir.join(name).exists()) {
        return Ok(());
    }
    let _lock = open(dir)?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut aside = dir.as_os_str().to_owned();
    aside.push(format!(".aside-{since}"));
    Ok(std::fs::rename(dir, &aside).map_err(DiskError::io("moving aside", dir))?)
}

/// A daemon that runs on it is an error of its own.
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
        assert!(error.contains("raft") && error.contains("move the directory aside"), "{error}");
        assert!(file("raft/log.redb").exists(), "refused and untouched");
        begin(dir.path()).expect("a mark");
        clear(dir.path()).expect("unfinished");
        assert_eq!((file("raft").exists(), file("node.key").exists(), file("blobs").exists()), (false, true, true));
        end(dir.path()).expect("ended");
        end(dir.path()).expect("twice is no error");
        assert!(!file(MARK).exists());
    }
}
