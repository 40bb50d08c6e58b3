//! Plain data. No clock, no IO, no tokio, ordered maps only: whatever is here may stand in the replicated state.

mod bounds;
mod check;
mod counted;
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
mod normalize;
mod report;
#[cfg(test)]
pub(crate) mod sample;
mod time;
mod verdict;
mod windows;

pub use bounds::*;
pub use check::*;
pub use counted::*;
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
pub use normalize::*;
pub use report::*;
pub use time::*;
pub use verdict::*;
pub use windows::*;
