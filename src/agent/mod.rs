//! The driver on every node: hashes what the manifest names, runs the checks, and gossips a signed summary.
//!
//! What it says is a hint that decides when a manager looks; evidence is taken over SSH. It goes on without managers,
//! by the manifest it cached.

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

use crate::model::Wall;

fn now() -> Wall {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Wall(since.as_millis() as u64)
}
