//! The replicated log: openraft behind an API of our own, with its storage on redb. Only this folder names openraft.
//!
//! ```text
//! propose -> openraft core -> log (memory + redb writer thread) -> peers through Transport
//!                          -> machine: apply in memory -> watch of the state, feed of applied entries, answer
//!                                      snapshot file from time to time
//! ```
//! It does not forward proposals, open connections or decide who votes: those are layers above. What it guards is that no
//! log ever answers for another cluster, epoch or Raft id.

mod error;
mod handle;
mod inventory;
mod life;
mod log;
mod machine;
mod member;
mod network;
mod offline;
mod record;
mod snapshot;
mod status;
mod types;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use error::{MemberError, ProposeError, RaftError, ReadError};
pub use handle::{Raft, RaftConfig, begin_log};
pub use life::{Refused, Stale};
pub use machine::{AppliedEntry, News};
pub use network::{BoxFuture, Transport, TransportError};
pub use offline::{LastState, last_index, last_state, seed};
pub use status::RaftStatus;
pub use wire::{Address, CLAIM, sender_of};
pub use writer::OPENING_THREAD;

use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// What the log is applied to. `Clone` must be cheap enough to publish after each batch.
pub trait StateMachine: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What is proposed. Stored and sent with field names, so fields may be added with a default.
    type Entry: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What applying an entry yields; goes to the proposer and into the feed.
    type Applied: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Must depend on nothing but the state and the arguments: every member computes it for itself.
    fn apply(&mut self, index: u64, entry: &Self::Entry) -> Self::Applied;
}

/// How often and how patiently members talk. All members of a cluster should have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Between heartbeats; also the time that a peer has to answer one, so more than a round trip plus an fsync.
    pub heartbeat_ms: u64,
    /// A follower without heartbeats asks for votes after a time between these two; the upper is also the leader's lease.
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// A leader without a quorum stays silent this long, so that others may elect; at least twice `election_max_ms`.
    pub quorum_probe_ms: u64,
    /// Time to send one snapshot.
    pub snapshot_timeout_ms: u64,
    /// Entries between snapshots.
    pub snapshot_every: u64,
    /// Entries kept behind a snapshot, so that a member that was away shortly needs no snapshot.
    pub keep: u64,
}

/// A dead leader is replaced 1.6 to 2 s after its last word: the lease, which is `election_max_ms`, then the first follower's wait,
/// then some 30 ms for votes and the first entry.
///
/// A leader that changes has its open attempts begun anew from their cleanup, which costs a node more than a second or two, so
/// noise must not change it. What protects it: nobody asks for votes before 1.6 s of silence, six heartbeats; nobody wins before
/// a majority has missed the leader for a lease (pre-vote), so one follower's bad link changes nothing; and a leader whose lease
/// lapses for a moment goes on with what it runs as long as nobody else leads (`manager::Tenure`). Twice these times, as they
/// were, would bear stalls of 3 s instead, and leave a fleet whose leader died without decisions for as long. Heartbeats are not
/// closer together, because the time between two is also what a disk has to sync in before a heartbeat counts as missed.
impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat_ms: 250,
            election_min_ms: 600,
            election_max_ms: 1000,
            quorum_probe_ms: 2500,
            snapshot_timeout_ms: 10_000,
            snapshot_every: 5000,
            keep: 1000,
        }
    }
}
