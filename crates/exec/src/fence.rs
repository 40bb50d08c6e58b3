//! Stores the highest fence that this node has seen, in `fence.json`. The stored fence never
//! decreases, so a late run of an older attempt is refused and changes nothing.

use remoor_host::disk::atomic_write;
use remoor_model::Fence;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// The reason why a fence was not accepted. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// An equal or newer attempt has already taken this node.
    #[error("the node has seen attempt {} of epoch {}, which is not older", .0.attempt, .0.epoch)]
    NotNewer(Fence),
    /// The node belongs to another cluster. To hand the node over, an operator removes
    /// `fence.json`.
    #[error("the node belongs to cluster {}; remove fence.json in its state directory to hand it over", .0.cluster)]
    OtherCluster(Fence),
    /// `fence.json` exists but cannot be parsed. No attempt may run until an operator has examined
    /// it.
    #[error("{} is damaged", .0.display())]
    Damaged(PathBuf, #[source] serde_json::Error),
    #[error("the fence in {} could not be read or written", .0.display())]
    Io(PathBuf, #[source] io::Error),
}

/// The file `fence.json` in the state directory of an executor.
#[derive(Debug, Clone)]
pub struct FenceStore {
    dir: PathBuf,
}

impl FenceStore {
    /// `dir` is the state directory, which must exist.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    /// The highest fence that this node has stored. None: the node has stored no fence yet.
    pub fn current(&self) -> Result<Option<Fence>, FenceError> {
        let path = self.path();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| FenceError::Damaged(path, e)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(FenceError::Io(path, e)),
        }
    }

    /// Stores `fence` if it is higher than the stored fence and of the same cluster. After Ok,
    /// `fence` is on the disk. Concurrent calls run one after the other, so no call replaces a
    /// higher fence by a lower one.
    pub fn advance(&self, fence: &Fence) -> Result<(), FenceError> {
        let _one_at_a_time = self.lock().map_err(|e| FenceError::Io(self.dir.clone(), e))?;
        if let Some(seen) = self.current()? {
            if seen.cluster != fence.cluster {
                return Err(FenceError::OtherCluster(seen));
            }
            if (fence.epoch, fence.attempt) <= (seen.epoch, seen.attempt) {
                return Err(FenceError::NotNewer(seen));
            }
        }
        let path = self.path();
        let bytes = serde_json::to_vec(fence).map_err(|e| FenceError::Damaged(path.clone(), e))?;
        atomic_write(&path, &bytes, 0o600).map_err(|e| FenceError::Io(path, e.into_io()))
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.dir.join("fence.lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        // The lock is held only for one comparison and one write. It is held longer only if the
        // holding process was stopped by SIGSTOP.
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.join(remoor_host::disk::FENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sample_fence;
    use remoor_model::{AttemptId, Epoch};

    #[test]
    fn only_a_higher_fence_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let store = FenceStore::new(dir.path());
        assert_eq!(store.current().unwrap(), None);
        store.advance(&sample_fence(5)).unwrap();
        for old in [5, 4] {
            let refused = store.advance(&sample_fence(old));
            assert!(matches!(refused, Err(FenceError::NotNewer(seen)) if seen == sample_fence(5)), "{old}");
        }
        assert_eq!(store.current().unwrap(), Some(sample_fence(5)));
        store.advance(&sample_fence(6)).unwrap();
        assert_eq!(store.current().unwrap(), Some(sample_fence(6)));
    }

    #[test]
    fn a_higher_epoch_outranks_a_higher_attempt() {
        let dir = tempfile::tempdir().unwrap();
        let store = FenceStore::new(dir.path());
        store.advance(&sample_fence(50)).unwrap();
        let recovered = Fence { epoch: Epoch(2), attempt: AttemptId(3), ..sample_fence(0) };
        store.advance(&recovered).unwrap();
        assert!(matches!(store.advance(&sample_fence(51)), Err(FenceError::NotNewer(_))));
    }

    #[test]
    fn another_cluster_is_always_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = FenceStore::new(dir.path());
        store.advance(&sample_fence(5)).unwrap();
        for cluster in ["c0", "c2"] {
            let other = Fence { cluster: cluster.into(), epoch: Epoch(9), attempt: AttemptId(9) };
            assert!(matches!(store.advance(&other), Err(FenceError::OtherCluster(_))));
        }
        assert_eq!(store.current().unwrap(), Some(sample_fence(5)));
    }

    #[test]
    fn a_damaged_file_rejects_every_attempt() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("fence.json"), b"{\"cluster\":").unwrap();
        let store = FenceStore::new(dir.path());
        assert!(matches!(store.advance(&sample_fence(5)), Err(FenceError::Damaged(..))));
    }
}
