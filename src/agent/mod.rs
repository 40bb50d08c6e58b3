//! The agent on every node: hashes the files that the manifest names, runs the checks, and gossips
//! a signed summary.
//!
//! The summary is a hint that decides when a manager examines the node; evidence is collected over
//! SSH. Without managers, the agent continues with the cached manifest.

mod api;
mod book;
mod due;
mod leave;
mod look;
mod metrics;
mod own;
mod record;
mod task;

pub use api::{exposition, former_manager, no_desk, routes, worker};
pub use book::{KeyBook, PeerBook};
pub use leave::LeaveDesk;
pub use metrics::Metrics;
pub use own::{Own, OwnId, Parted, Shown};
pub use record::{LAST_WORDS, RecordKeeper};
pub use task::{AgentConfig, AgentTask};

use remoor_model::Wall;

fn now() -> Wall {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Wall(since.as_millis() as u64)
}
