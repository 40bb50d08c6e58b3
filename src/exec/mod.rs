//! The executor on the node: one session over stdin and stdout, a series of orders, each given only after its entry was
//! committed, so the executor never runs ahead of the log.
//!
//! It holds the node for one attempt (`fence`, `lock`), keeps what a run leaves behind (`runs`), verifies a cleanup
//! (`clean`) and stops when the manager is lost (`serve`). What examining and running mean is not its business: see
//! [`Work`]. No tokio here.

// What travels.
pub mod wire;

// The loop, what each order does, and what is done for it.
mod cancel;
mod executor;
mod gate;
mod nodework; // the real thing
mod outbox;
mod play;
mod serve;
mod work;

// Who may, who does, and how the latter is ended.
mod fence;
mod lock;
mod mark;
mod process;

// Looking at the node, and what stays on it.
mod clean;
mod fetch;
mod host;
mod persist;
mod program;
mod runs;

pub use cancel::{Cancel, Stop};
pub use fence::{FenceError, FenceStore};
pub use host::host_part;
pub use lock::{Holder, HolderKind, LockError, Patience, RunLock};
pub use nodework::{NodeWork, look};
pub use process::{Family, ProcessId};
pub use runs::RunPaths;
pub use serve::{STATE_DIR, Tuning, main, serve, serve_with};
pub use work::Work;

#[cfg(test)]
mod outline_tests;
