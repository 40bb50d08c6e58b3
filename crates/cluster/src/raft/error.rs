//! Errors of Raft. Each says whether anything was changed, and whether a retry may succeed.

use crate::incarnation::IncarnationRejection;
use remoor_host::disk::DiskError;
use remoor_model::{ClusterId, Epoch, RaftId};
use std::path::PathBuf;

/// An error while opening the log, answering another member, or starting a cluster.
#[derive(Debug, thiserror::Error)]
pub enum RaftError {
    /// Reading or writing below the Raft directory failed. Nothing was started.
    #[error("storing the replicated log")]
    Disk(#[from] DiskError),
    /// The log's database cannot be opened. Nothing was changed.
    #[error("opening the replicated log {}", path.display())]
    Database { path: PathBuf, source: redb::Error },
    /// The data on disk is inconsistent. It is never reset automatically, because a member that
    /// forgets its vote or its log can lose entries on which other members rely.
    #[error("{} is corrupted ({why}); deleting it alone would break promises that the other managers rely on", path.display())]
    Corrupt { path: PathBuf, why: String },
    /// A later program wrote the file. Nothing was started, and nothing was changed.
    #[error("{} was written by a newer program ({why})", path.display())]
    TooNew { path: PathBuf, why: String },
    /// This member took part before, and its log is missing. Nothing was started or created.
    #[error(
        "{} is gone, but this node has taken part in raft with it: with an empty log it would break promises that the other \
         managers rely on, so it is not started; put the file back if it was moved, else remoor remove this node \
         on another manager with --force, move {} away here, and remoor join", file.display(), data.display()
    )]
    Gone { file: PathBuf, data: PathBuf },
    /// The log is older than the one that this member had before. Nothing was started.
    #[error(
        "{} ends at entry {ends}, but this node has applied entry {applied}: it was put back from an older copy, and would \
         break promises that the other managers rely on, so it is not started; put the newer one back, else remoor remove \
         this node on another manager with --force, move {} away here, and remoor join", raft.display(), data.display()
    )]
    RolledBack { raft: PathBuf, data: PathBuf, ends: u64, applied: u64 },
    /// The files belong to another member. Nothing was changed.
    #[error("{} belongs to {found}, not to {wanted}", path.display())]
    Foreign { path: PathBuf, found: String, wanted: String },
    /// The settings contradict each other.
    #[error("raft settings: {why}")]
    Settings { why: String },
    /// A precondition for starting a new cluster here is not met. Nothing was changed.
    #[error("refused to start a new cluster: {why}")]
    InitializeRefused { why: String },
    /// The message is of another cluster. Nothing was changed.
    #[error("message of cluster {found}, this is {ours}")]
    WrongCluster { found: ClusterId, ours: ClusterId },
    /// The message is from before or after a recovery. Nothing was changed.
    #[error("message of epoch {found}, this is epoch {ours}")]
    WrongEpoch { found: Epoch, ours: Epoch },
    /// The message is for another Raft id, for example that of a disk that was wiped. Nothing was
    /// changed.
    #[error("message for raft id {found}, this is raft id {ours}")]
    WrongTarget { found: RaftId, ours: RaftId },
    /// The message names this member itself as its sender. Nothing was changed.
    #[error("message in the name of raft id {ours}, which is this member itself")]
    WrongSender { ours: RaftId },
    /// The message or answer is from a copied or outdated data directory. Nothing was changed.
    #[error("raft id {id}: {}", refused.reason)]
    StaleIncarnation { id: RaftId, refused: IncarnationRejection },
    /// This version cannot read the message. Nothing was changed.
    #[error("unreadable message: {why}")]
    BadMessage { why: String },
    /// This member is writing another snapshot. The leader sends this snapshot again.
    #[error("another snapshot is being written")]
    SnapshotUnderWay,
    /// The log has stopped. The process should exit and be restarted.
    #[error("raft has stopped: {why}")]
    Stopped { why: String },
}

/// An error of a proposal. The proposal is not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// The entry was not appended by any member. Retry at the leader if it is known, otherwise
    /// later.
    #[error("not the leader{}", describe_leader(leader))]
    NotLeader { leader: Option<(RaftId, String)> },
    /// The entry may still be committed. Read the state before a retry.
    #[error("outcome unknown: {why}")]
    Unknown { why: String },
}

/// An error of a consistent read. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Another member leads. Retry at that member.
    #[error("not the leader; raft id {} at {} is", leader.0, leader.1)]
    NotLeader { leader: (RaftId, String) },
    /// No leader is known, or the leader cannot reach a quorum. Retry later.
    #[error("no quorum: {why}")]
    NoQuorum { why: String },
    /// The log has stopped. The process should exit and be restarted.
    #[error("raft has stopped: {why}")]
    Stopped { why: String },
}

/// An error of a change of members, or of a transfer of leadership. The change is not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Nothing was changed, because only the leader changes members.
    #[error("not the leader{}", describe_leader(leader))]
    NotLeader { leader: Option<(RaftId, String)> },
    /// Nothing was changed, because another change is under way.
    #[error("another change of members is under way")]
    InFlight,
    /// Nothing was changed. The same request will fail again.
    #[error("refused: {why}")]
    Refused { why: String },
    /// The change of members may still take effect, completely or in part. Read the list of members
    /// before another change.
    #[error("outcome unknown: {why}")]
    Unknown { why: String },
}

fn describe_leader(leader: &Option<(RaftId, String)>) -> String {
    match leader {
        Some((id, addr)) => format!("; raft id {id} at {addr} is"),
        None => ", and none is known".to_owned(),
    }
}
