//! The agent on every node: hashes the files that the manifest names, runs the checks, and gossips
//! a signed summary.
//!
//! The summary is only a hint: it decides when a manager examines the node, and the manager then
//! collects the evidence over SSH. Without managers, the agent continues with the cached manifest.

mod api;
mod book;
mod examination;
mod leave;
mod local_state;
mod metrics;
mod question;
mod record;
mod schedule;
mod task;

pub use api::{exposition, former_manager, instance, routes, worker, worker_redirects};
pub use book::{KeyBook, PeerBook};
pub use leave::LeaveService;
pub use local_state::{AgentState, Departure, NodeIdentity, PublishedFacts};
pub use metrics::Metrics;
pub use record::{LAST_WORDS, RecordKeeper};
pub use task::{AgentConfig, AgentTask};

use remoor_host::wall_clock::now;
