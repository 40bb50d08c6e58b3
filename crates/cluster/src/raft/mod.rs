//! The replicated log: openraft behind our own API, stored in redb. Only this folder uses openraft.
//!
//! ```text
//! propose -> openraft core -> log (memory + redb writer thread) -> peers through Transport
//!                          -> machine: apply in memory -> watch of the state, feed of applied entries, answer
//!                                      snapshot file from time to time
//! ```
//! This folder does not forward proposals, open connections or decide which nodes vote; the layers
//! above do. It guarantees that a log never answers for another cluster, epoch or Raft id.

mod error;
mod handle;
mod incarnation_table;
mod inventory;
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
pub use machine::{AppliedEntry, News};
pub use network::{BoxFuture, Transport, TransportError};
pub use offline::{LastState, last_index, last_state, seed};
pub use status::RaftStatus;
pub use wire::{CLAIM, MessageAddress, sender_of};
pub use writer::OPENING_THREAD;

use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// The state machine of the log. `Clone` must be cheap enough to publish a clone after each batch.
pub trait StateMachine: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The proposed entry. Stored and sent with field names, so fields may be added with a default.
    type Entry: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The result of applying an entry; returned to the proposer and sent to the feed.
    type Applied: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Must depend only on the state and the arguments, because every member computes it by itself.
    fn apply(&mut self, index: u64, entry: &Self::Entry) -> Self::Applied;
}

/// Intervals and timeouts of Raft. All members of a cluster should use the same values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftTiming {
    /// Interval of heartbeats. Also the time in which a peer must answer one, so it must exceed a
    /// round trip plus an fsync.
    pub heartbeat_ms: u64,
    /// A follower without heartbeats starts an election after a random time between these two. The
    /// maximum is also the leader's lease.
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// A leader without a quorum stays silent this long, so that others may elect; at least twice
    /// `election_max_ms`.
    pub quorum_probe_ms: u64,
    /// Timeout for sending one snapshot.
    pub snapshot_timeout_ms: u64,
    /// Entries between snapshots.
    pub snapshot_every: u64,
    /// Entries kept behind a snapshot, so that a member that was briefly away needs no snapshot.
    pub keep: u64,
}

/// A dead leader is replaced 1.6 to 2 s after its last message: the lease, which is
/// `election_max_ms`, then the wait of the first follower, then some 30 ms for votes and the first
/// entry.
///
/// A change of leader restarts its open attempts from their cleanup, which costs a node more than a
/// second or two, so noise must not cause one. Three things prevent it:
/// - No member starts an election before 1.6 s of silence, which is six heartbeats.
/// - A candidate wins only after a majority has missed the leader for a lease (pre-vote), so one
///   follower's bad link changes nothing.
/// - A leader whose lease expires for a moment continues its work as long as no other member leads
///   (`manager::Leadership`).
///
/// Twice these times, which were used earlier, would tolerate stalls of 3 s, but would leave a
/// fleet whose leader died without decisions for as long. Heartbeats are not more frequent, because
/// their interval is also the time that a disk has to sync before a heartbeat counts as missed.
impl Default for RaftTiming {
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
