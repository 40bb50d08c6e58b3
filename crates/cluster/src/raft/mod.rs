//! The replicated log: openraft behind an API of this project, stored in redb. Only this folder
//! uses openraft.
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
    /// The proposed entry. It is stored and sent with field names, so a field with a default may be
    /// added.
    type Entry: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The result of applying an entry. It is returned to the proposer and sent to the feed.
    type Applied: Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Applies an entry. The result must depend only on the state and the arguments, because every
    /// member computes it by itself.
    fn apply(&mut self, index: u64, entry: &Self::Entry) -> Self::Applied;
}

/// Intervals and timeouts of Raft. All members of a cluster should use the same values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftTiming {
    /// Interval of heartbeats. A follower must also answer a heartbeat within this time. So the
    /// interval must exceed a round trip plus an fsync.
    pub heartbeat_ms: u64,
    /// Minimum and maximum of the random time after which a follower without heartbeats starts an
    /// election. The maximum is also the leader's lease.
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// The time for which a leader without a quorum sends nothing, so that other members can elect
    /// a leader. At least twice `election_max_ms`.
    pub quorum_probe_ms: u64,
    /// Timeout for sending one snapshot.
    pub snapshot_timeout_ms: u64,
    /// Number of entries between two snapshots.
    pub snapshot_every: u64,
    /// Number of the last entries that are kept in the log although a snapshot includes them. With
    /// them, a member that was away for a short time needs no snapshot.
    pub keep: u64,
}

/// A dead leader is replaced 1.6 to 2 s after its last message. This time is the lease
/// (`election_max_ms`), then the wait of the first follower, then some 30 ms for votes and the
/// first entry.
///
/// When the leader changes, the open attempts start again from their cleanup. That costs a node
/// more time than a faster election would save. So a short stall must not change the leader. Three
/// things prevent it:
/// - No member starts an election before 1.6 s of silence, which is six heartbeats.
/// - A candidate wins only after a majority has missed the leader for a lease (pre-vote). So one
///   follower's bad link changes nothing.
/// - A leader whose lease expires for a moment continues its work as long as no other member leads
///   (`manager::Leadership`).
///
/// Twice these times would tolerate stalls of 3 s. But if the leader died, the fleet would also be
/// without decisions for more than 3 s. Heartbeats are not more frequent, because their interval is
/// also the time that a disk has for a sync before a heartbeat counts as missed.
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
