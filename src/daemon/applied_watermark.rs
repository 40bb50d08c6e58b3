//! Stores the index up to which this manager has applied the log, in a file next to the log. A log
//! that ends before this index is an older copy. A manager with such a log would break promises on
//! which the other managers rely.
//!
//! Only applied entries count, because uncommitted entries may legitimately be truncated. In an
//! older copy of the whole data directory, this file is as old as the log. The other managers
//! detect such a copy by their own records (`remoor_cluster::incarnation`). This module also saves
//! these records.

use super::layout::Layout;
use super::run::DaemonError;
use remoor_cluster::raft::{Raft, RaftConfig, RaftError, last_index};
use remoor_host::disk::{DiskError, Identity, atomic_write, read_or_rename_damaged};
use remoor_model::{Epoch, Inventory, RaftId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::watch;

/// Interval at which the index is written. The written index was applied at least one interval ago,
/// so the log on disk contains its entry.
const EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct AppliedWatermark {
    epoch: Epoch,
    raft: RaftId,
    index: u64,
}

fn path(layout: &Layout) -> PathBuf {
    layout.0.join("raft.high")
}

/// The stored index up to which the manager with the Raft id `id` has applied the log; 0 if no
/// index is stored. Blocks.
pub fn load_index(layout: &Layout, identity: &Identity, id: RaftId) -> Result<u64, DiskError> {
    let noted = read_or_rename_damaged::<Option<AppliedWatermark>>(&path(layout))?.or_default();
    Ok(noted.filter(|high| high.raft == id && high.epoch == identity.epoch).map_or(0, |high| high.index))
}

/// Fails if the log ends before the stored index. Blocks.
pub fn check(layout: &Layout, identity: &Identity, log: &RaftConfig) -> Result<(), DaemonError> {
    let applied = load_index(layout, identity, log.id)?;
    if applied == 0 {
        return Ok(());
    }
    let ends = last_index::<Inventory>(log)?;
    if ends >= applied {
        return Ok(());
    }
    let (raft, data) = (layout.raft(), layout.0.clone());
    Err(RaftError::RolledBack { raft, data, ends, applied }.into())
}

/// Stores the applied index at each interval, until `stopped`.
pub async fn keep(raft: Raft<Inventory>, layout: Layout, id: RaftId, mut stopped: watch::Receiver<bool>) {
    let epoch = raft.epoch();
    let (mut seen, mut noted) = (0, 0);
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        raft.save_incarnations().await;
        if seen > noted {
            let high = AppliedWatermark { epoch, raft: id, index: seen };
            let path = path(&layout);
            let written = tokio::task::spawn_blocking(move || store(&path, high)).await;
            match written {
                Ok(Ok(())) => noted = seen,
                Ok(Err(error)) => tracing::warn!(%error, "the applied index of the log could not be stored"),
                Err(_) => return,
            }
        }
        seen = raft.status().borrow().last_applied.unwrap_or(0);
    }
}

fn store(path: &std::path::Path, high: AppliedWatermark) -> Result<(), DiskError> {
    atomic_write(path, &serde_json::to_vec(&high).unwrap_or_default(), 0o600)
}
