//! Plain data. No clock, no IO, no tokio, ordered maps only: whatever is here may stand in the replicated state.

mod check;
mod digest;
mod entry;
mod exam;
mod fault;
mod fileset;
mod fleet;
mod guard;
mod history;
mod ids;
mod inventory;
mod invite;
mod job;
mod manifest;
mod node;
mod report;
mod time;
mod verdict;

pub use check::*;
pub use digest::*;
pub use entry::*;
pub use exam::*;
pub use fault::*;
pub use fileset::*;
pub use fleet::*;
pub use guard::*;
pub use history::*;
pub use ids::*;
pub use inventory::*;
pub use invite::*;
pub use job::*;
pub use manifest::*;
pub use node::*;
pub use report::*;
pub use time::*;
pub use verdict::*;
