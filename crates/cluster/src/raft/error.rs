//! Errors of Raft. Each says whether anything changed and whether a retry makes sense.

use crate::incarnation::IncarnationRejection;
use remoor_host::disk::DiskError;
use remoor_model::{ClusterId, Epoch, RaftId};
use std::path::PathBuf;

/// Opening, answering a peer, or starting a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum RaftError {
    /// Reading or writing below the Raft directory; nothing was started.
    #[error("storing the replicated log")]
    Disk(#[from] DiskError),
    /// The log's database cannot be opened; nothing was changed.
    #[error("opening the replicated log {}", path.display())]
    Database { path: PathBuf, source: redb::Error },
    /// The data on disk is inconsistent. It is never reset automatically: a member that forgets its
    /// vote or its log can lose entries that others rely on.
    #[error("{} is corrupted ({why}); deleting it alone would break promises that the other managers rely on", path.display())]
    Corrupt { path: PathBuf, why: String },
    /// Written by a later program; nothing was started, and nothing was changed.
    #[error("{} was written by a newer program ({why})", path.display())]
    TooNew { path: PathBuf, why: String },
    /// This member took part before and its log is missing; nothing was started or created.
    #[error(
        "{} is gone, but this node has taken part in raft with it: with an empty log it would break promises that the other \
         managers rely on, so it is not started; put the file back if it was moved, else remoor remove this node \
         on another manager with --force, move {} away here, and remoor join", file.display(), data.display()
    )]
    Gone { file: PathBuf, data: PathBuf },
    /// The log is older than the one that this member had; nothing was started.
    #[error(
        "{} ends at entry {ends}, but this node has applied entry {applied}: it was put back from an older copy, and would \
         break promises that the other managers rely on, so it is not started; put the newer one back, else remoor remove \
         this node on another manager with --force, move {} away here, and remoor join", raft.display(), data.display()
    )]
    RolledBack { raft: PathBuf, data: PathBuf, ends: u64, applied: u64 },
    /// The files belong to another member; nothing was changed.
    #[error("{} belongs to {found}, not to {wanted}", path.display())]
    Foreign { path: PathBuf, found: String, wanted: String },
    /// The settings contradict each other.
    #[error("raft settings: {why}")]
    Settings { why: String },
    /// A new cluster may not be started here; nothing was changed.
    #[error("refused to start a new cluster: {why}")]
    InitializeRefused { why: String },
    /// A message of another cluster; nothing was changed.
    #[error("message of cluster {found}, this is {ours}")]
    WrongCluster { found: ClusterId, ours: ClusterId },
    /// A message from before or after a recovery; nothing was changed.
    #[error("message of epoch {found}, this is epoch {ours}")]
    WrongEpoch { found: Epoch, ours: Epoch },
    /// A message for another Raft id, such as one that a wiped disk had; nothing was changed.
    #[error("message for raft id {found}, this is raft id {ours}")]
    WrongTarget { found: RaftId, ours: RaftId },
    /// A message in this member's own name; nothing was changed.
    #[error("message in the name of raft id {ours}, which is this member itself")]
    WrongSender { ours: RaftId },
    /// A message, or an answer, from a copied or outdated data directory; nothing was changed.
    #[error("raft id {id}: {}", refused.reason)]
    StaleIncarnation { id: RaftId, refused: IncarnationRejection },
    /// Not a message that this version can read; nothing was changed.
    #[error("unreadable message: {why}")]
    BadMessage { why: String },
    /// The log has stopped. The process should exit and be restarted.
    #[error("raft has stopped: {why}")]
    Stopped { why: String },
}

/// A proposal was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Not appended anywhere. Retry at the leader if one is known, otherwise later.
    #[error("not the leader{}", describe_leader(leader))]
    NotLeader { leader: Option<(RaftId, String)> },
    /// It may still be committed. Read the state before retrying.
    #[error("outcome unknown: {why}")]
    Unknown { why: String },
}

/// A consistent read was not possible; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Retry there.
    #[error("not the leader; raft id {} at {} is", leader.0, leader.1)]
    NotLeader { leader: (RaftId, String) },
    /// No leader is known, or it cannot reach a quorum. Retry later.
    #[error("no quorum: {why}")]
    NoQuorum { why: String },
    /// The log has stopped; the process should exit.
    #[error("raft has stopped: {why}")]
    Stopped { why: String },
}

/// A change of members, or a transfer of leadership, was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Nothing changed; only the leader changes members.
    #[error("not the leader{}", describe_leader(leader))]
    NotLeader { leader: Option<(RaftId, String)> },
    /// Nothing changed; another change is under way.
    #[error("another change of members is under way")]
    InFlight,
    /// Nothing changed, and an unchanged retry will not help.
    #[error("refused: {why}")]
    Refused { why: String },
    /// The change of members may still take effect, wholly or in part. Read the members before
    /// continuing.
    #[error("outcome unknown: {why}")]
    Unknown { why: String },
}

fn describe_leader(leader: &Option<(RaftId, String)>) -> String {
    match leader {
        Some((id, addr)) => format!("; raft id {id} at {addr} is"),
        None => ", and none is known".to_owned(),
    }
}
