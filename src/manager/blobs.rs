//! Blobs of the managers, each named by the hash of its content: generations and digests. An entry
//! may refer to a blob only after a majority of the managers has stored the blob.

use super::ManagerContext;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use remoor_model::{AttemptId, RaftId, Sha256, count_noun};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of one attempt's log in bytes. A longer log is cut and marked as cut.
const LOG_MAX: u64 = 4 << 20;

/// The reason why a blob was not stored. Some managers may have it, but no entry refers to it.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("this manager can't store the blob")]
    Own(#[source] remoor_host::disk::DiskError),
    #[error("a task of this manager ended early")]
    Task,
    #[error("only {have} of {} have the blob, and {need} are needed", count_noun(*of, "manager"))]
    NoMajority { have: usize, of: usize, need: usize },
}

impl BlobError {
    /// The error for an operator. It distinguishes a full disk from a lost majority.
    pub fn failure(&self) -> ApiFailure {
        match self {
            BlobError::Own(_) => ApiFailure::new(Code::Unavailable, remoor_model::error_with_causes(self))
                .next("look at the disk of this manager; nothing was changed"),
            BlobError::Task => ApiFailure::new(Code::Internal, self.to_string()),
            BlobError::NoMajority { .. } => ApiFailure::new(Code::NoQuorum, self.to_string())
                .next("bring a majority of the managers back; nothing was changed"),
        }
    }
}

/// Stores the blob on this manager and on as many others as a majority of the voters needs.
pub async fn store(shared: &Arc<ManagerContext>, bytes: Vec<u8>) -> Result<Sha256, BlobError> {
    let (own_store, own_copy) = (shared.blobs.clone(), bytes.clone());
    let stored = tokio::task::spawn_blocking(move || own_store.put(&own_copy)).await;
    let sha = stored.map_err(|_| BlobError::Task)?.map_err(BlobError::Own)?;
    let voters = shared.raft.status().borrow().voters.clone();
    let need = voters.len() / 2 + 1;
    let mut have = 1;
    let others = voters.into_iter().filter(|(id, _)| Some(*id) != own_raft_id(shared)).collect::<Vec<_>>();
    let of = others.len() + 1;
    let mut sends = tokio::task::JoinSet::new();
    for (_, addr) in others {
        let (shared, bytes) = (shared.clone(), bytes.clone());
        sends.spawn(async move {
            let path = format!("/blob/{sha}");
            shared.peers.post_bytes(&addr, &path, bytes, TIMEOUT).await.is_ok()
        });
    }
    while have < need {
        match sends.join_next().await {
            Some(Ok(true)) => have += 1,
            Some(_) => {}
            None => return Err(BlobError::NoMajority { have, of, need }),
        }
    }
    sends.detach_all();
    Ok(sha)
}

/// Fetches a blob from another manager, if it is missing or damaged on this one. If no manager
/// sends the blob, it stays missing, and the caller that reads it reports that.
pub async fn ensure(shared: &Arc<ManagerContext>, sha: &Sha256) {
    let (store, wanted) = (shared.blobs.clone(), *sha);
    match tokio::task::spawn_blocking(move || store.get(&wanted)).await {
        Ok(Ok(Some(_))) => return,
        Ok(Ok(None)) | Err(_) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a blob is damaged and is fetched from another manager"),
    }
    let voters = shared.raft.status().borrow().voters.clone();
    for (id, addr) in voters {
        if Some(id) == own_raft_id(shared) {
            continue;
        }
        let path = format!("/blob/{sha}");
        let Ok(bytes) = shared.peers.get_bytes(&addr, &path, TIMEOUT).await else { continue };
        if Sha256::digest(&bytes) != *sha {
            continue;
        }
        let store = shared.blobs.clone();
        if let Ok(Ok(_)) = tokio::task::spawn_blocking(move || store.put(&bytes)).await {
            return;
        }
    }
}

fn own_raft_id(shared: &ManagerContext) -> Option<RaftId> {
    Some(shared.raft.status().borrow().id)
}

/// The output of an attempt, as JSON lines on this manager.
pub struct AttemptLog {
    file: Option<std::fs::File>,
    written: u64,
}

impl AttemptLog {
    pub fn path(shared: &ManagerContext, attempt: AttemptId) -> std::path::PathBuf {
        shared.runs.join(format!("{attempt}.jsonl"))
    }

    /// Opens the attempt's log for appending. If that fails, the error is logged and the attempt
    /// continues without a log.
    pub fn open(shared: &ManagerContext, attempt: AttemptId) -> Self {
        let path = Self::path(shared, attempt);
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
        let file = file
            .map_err(|error| tracing::warn!(%error, path = %path.display(), "the log of an attempt can't be opened"))
            .ok();
        let written = file.as_ref().and_then(|f| f.metadata().ok()).map_or(0, |m| m.len());
        Self { file, written }
    }

    pub fn line(&mut self, item: &remoor_cluster::rpc::view::StreamItem) {
        let Some(file) = &mut self.file else { return };
        if self.written > LOG_MAX {
            return;
        }
        let mut text = serde_json::to_string(item).unwrap_or_default();
        text.push('\n');
        self.written += text.len() as u64;
        if self.written > LOG_MAX {
            text = "{\"type\":\"end\",\"text\":\"the log was cut here\"}\n".to_owned();
        }
        if file.write_all(text.as_bytes()).is_err() {
            self.file = None;
        }
    }
}
