//! Membership by gossip: who is alive, at which address, and what each node says of itself.
//!
//! The only folder that names memberlist, whose next version speaks another wire format. It reports what it saw and
//! signs what it says; it decides nothing about absences, and knows neither the inventory nor Raft. Which keys are
//! known comes in as a function, what happened goes out as [`MemberEvent`]s.
//!
//! ```text
//!   Config::verify ──> judge ──> delegate ──> view ──> MemberEvent, members()
//!   publish(Report) ──> meta (sign) ──> memberlist ──> peers
//!   known addresses ──> rejoin/plan ──> rejoin ──> join(addr)
//! ```

mod config;
mod delegate;
mod error;
mod event;
mod handle;
mod judge;
mod limiter;
pub mod meta;
mod rejoin;
#[cfg(test)]
mod tests;
mod view;

pub use config::{Config, KeyLookup, Timing};
pub use error::GossipError;
pub use event::{Claim, Member, MemberEvent};
pub use handle::{Gossip, start};
pub use rejoin::{RejoinLoop, cache, netlink, plan};
