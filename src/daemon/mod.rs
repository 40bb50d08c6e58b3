//! One process on every node: the agent, and on managers Raft, the API and the engine's loop.

mod add;
mod address;
mod admin;
mod expiry;
mod half_made;
mod layout;
mod pages;
mod run;
mod runtime;
mod scrape;
mod ssh_key;
mod transport;
mod unit;

pub use crate::raft::OPENING_THREAD;
pub use add::{AddError, AddOptions, Added, add};
pub use admin::{AdminError, InitDone, InitOptions, JoinOptions, init, join};
pub use half_made::{move_aside, tokens_told};
pub use layout::{Layout, NodeConfig};
pub use pages::let_go;
pub use run::{DaemonError, RunOptions, last_words, run};
pub use runtime::runtime;
pub use unit::UNIT;
