//! Plain data. No clock, no IO, no tokio, ordered maps only: whatever is here may stand in the replicated state.

mod check;
mod digest;
mod exam;
mod fault;
mod fileset;
mod fleet;
mod ids;
mod manifest;
mod report;
mod time;

pub use check::*;
pub use digest::*;
pub use exam::*;
pub use fault::*;
pub use fileset::*;
pub use fleet::*;
pub use ids::*;
pub use manifest::*;
pub use report::*;
pub use time::*;
