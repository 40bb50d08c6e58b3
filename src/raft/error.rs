//! What can go wrong, and for each whether anything changed and whether to try again.

use super::life::Refused;
use crate::disk::DiskError;
use crate::model::{ClusterId, Epoch, RaftId};
use std::path::PathBuf;

/// Opening, answering a peer, or starting a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum RaftError {
    /// Reading or writing below the Raft directory; nothing was started.
    #[error("keeping the replicated log")]
    Disk(#[from] DiskError),
    /// The log's database can't be used as it is; nothing was changed.
    #[error("opening the replicated log {}", path.display())]
    Database { path: PathBuf, source: redb::Error },
    /// What is on disk contradicts itself. Never reset: a member that forgets its vote or its log can lose what others rely on.
    #[error("{} is corrupted ({why}); deleting it alone would break promises that the other managers rely on", path.display())]
    Corrupt { path: PathBuf, why: String },
    /// Written by a later program; nothing was started, and nothing was changed.
    #[error("{} was written by a newer program ({why})", path.display())]
    TooNew { path: PathBuf, why: String },
    /// This member took part before, and its log is not there any more; nothing was started or made.
    #[error(
        "{} is gone, but this node has taken part in raft with it: with an empty log it would break promises that the other \
         managers rely on, so it is not started; put the file back if it was moved, else remoor remove this node \
         on another manager with --force, move {} aside here, and remoor join", file.display(), data.display()
    )]
    Gone { file: PathBuf, data: PathBuf },
    /// The log is an older one than this member had; nothing was started.
    #[error(
        "{} ends at entry {ends}, but this node has applied entry {applied}: it was put back from an older copy, and would \
         break promises that the other managers rely on, so it is not started; put the newer one back, else remoor remove \
         this node on another manager with --force, move {} aside here, and remoor join", raft.display(), data.display()
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
    #[error("message for raft id {found}, this is {ours}")]
    WrongTarget { found: RaftId, ours: RaftId },
    /// A message in this member's own name; nothing was changed.
    #[error("message in the name of raft id {ours}, which is this member itself")]
    WrongSender { ours: RaftId },
    /// A message, or an answer, of a member that is not who it was; nothing was changed.
    #[error("raft id {id}: {}", refused.stale)]
    Stale { id: RaftId, refused: Refused },
    /// Not a message that this version understands; nothing was changed.
    #[error("unreadable message: {why}")]
    BadMessage { why: String },
    /// The log has stopped; the process should exit and be started again.
    #[error("raft has stopped: {why}")]
    Stopped { why: String },
}

/// A proposal was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Not appended anywhere: safe to try at the leader, if one is known, or later.
    #[error("not the leader{}", at(leader))]
    NotLeader { leader: Option<(RaftId, String)> },
    /// It may still be committed: look at the state before trying again.
    #[error("outcome unknown: {why}")]
    Unknown { why: String },
}

/// A consistent read was not possible; nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Ask there.
    #[error("not the leader; raft id {} at {} is", leader.0, leader.1)]
    NotLeader { leader: (RaftId, String) },
    /// No leader is known, or it hears less than a majority; try again later.
    #[error("no quorum: {why}")]
    NoQuorum { why: String },
    /// The log has stopped; the process should exit.
    #[error("raft has stopped: {why}")]
    Stopped { why: String },
}

/// A change of members, or a hand-over of leadership, was not confirmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Nothing changed; only the leader changes members.
    #[error("not the leader{}", at(leader))]
    NotLeader { leader: Option<(RaftId, String)> },
    /// Nothing changed; another change is under way.
    #[error("another change of members is under way")]
    InFlight,
    /// Nothing changed, and trying again as it is will not help.
    #[error("refused: {why}")]
    Refused { why: String },
    /// It may still take effect, half or whole: look at the members before going on.
    #[error("outcome unknown: {why}")]
    Unknown { why: String },
}

fn at(leader: &Option<(RaftId, String)>) -> String {
    match leader {
        Some((id, addr)) => format!("; raft id {id} at {addr} is"),
        None => ", and none is known".to_owned(),
    }
}
