//! Membership by gossip: which nodes are alive, their addresses, and the signed report of each
//! node.
//!
//! Only this folder uses memberlist, because memberlist's next version has another wire format. The
//! folder publishes signed reports and emits observations as [`MemberEvent`]s. It does not decide
//! about absences, and it knows neither the inventory nor Raft. `Config::verify` looks up the
//! nodes' keys.
//!
//! ```text
//!   Config::verify ──> judge ──> delegate ──> view ──> MemberEvent, members()
//!   publish(Report) ──> meta (sign) ──> memberlist ──> transport (encrypt) ──> peers
//!   peers ──> transport (bound, decrypt) ──> guard (check) ──> memberlist ──> delegate
//!   known addresses ──> rejoin/plan ──> rejoin ──> join(addr)
//! ```

mod config;
mod delegate;
mod error;
mod event;
#[cfg(any(test, feature = "testing"))]
pub mod forge;
mod guard;
mod handle;
mod judge;
mod limiter;
pub mod meta;
mod rejoin;
#[cfg(test)]
mod tests;
mod transport;
mod view;

pub use config::{Config, GossipTiming, KeyLookup};
pub use error::GossipError;
pub use event::{EpochClaim, Member, MemberEvent};
pub use handle::{Gossip, start};
pub use rejoin::{RejoinLoop, cache, netlink, plan};
