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
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
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

/// Intervals and timeouts of Raft. All members of a cluster must use the same values, because a
/// leader relies on the time for which its followers wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaftTiming {
    /// Interval of heartbeats.
    pub heartbeat_ms: u64,
    /// Maximum wait for the answer to a heartbeat. It must exceed a round trip plus an fsync.
    pub answer_ms: u64,
    /// A short message without an answer after this time is sent once more, on another connection.
    /// So a lost packet delays the answer by this time only. A retransmission of TCP takes longer.
    pub repeat_ms: u64,
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

/// The longest round trip between two members for which the default times are made.
const ROUND_TRIP_MS: u64 = 300;

impl RaftTiming {
    /// Derives all times from `ms`, the longest round trip between two members. A dead leader is
    /// replaced 5.2 to 6.7 of these round trips after its last message. This time is the lease
    /// (`election_max_ms`), then the wait of the first follower. In addition, the votes and the
    /// first entry take some 30 ms if the members are near each other.
    ///
    /// A message without an answer is repeated after half a round trip, and the answer to the
    /// repetition arrives before `answer_ms`. So the loss of one packet costs no heartbeat.
    ///
    /// When the leader changes, the open attempts start again from their cleanup. That costs a node
    /// more time than a faster election would save. So a short stall must not change the leader.
    /// Three things prevent it:
    /// - No member starts an election before 5.2 round trips of silence, which is six heartbeats.
    /// - A candidate wins only after a majority has missed the leader for a lease (pre-vote). So
    ///   one follower's bad link changes nothing.
    /// - A leader whose lease expires for a moment continues its work as long as no other member
    ///   leads (`manager::Leadership`).
    ///
    /// Twice these times would tolerate stalls of 3 s. But after the death of the leader, the fleet
    /// would also have no decisions for more than 3 s.
    fn for_round_trip(ms: u64) -> Self {
        Self {
            heartbeat_ms: ms * 5 / 6,
            answer_ms: ms * 5 / 3,
            repeat_ms: ms / 2,
            election_min_ms: ms * 11 / 6,
            election_max_ms: ms * 10 / 3,
            quorum_probe_ms: ms * 25 / 3,
            snapshot_timeout_ms: ms * 100 / 3,
            snapshot_every: 5000,
            keep: 1000,
        }
    }
}

impl Default for RaftTiming {
    fn default() -> Self {
        Self::for_round_trip(ROUND_TRIP_MS)
    }
}
