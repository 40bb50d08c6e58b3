//! The executor on the node: one session over stdin and stdout, a series of orders, each given only after its entry was
//! committed, so the executor never runs ahead of the log.
//!
//! It holds the node for one attempt (`fence`, `lock`), keeps what a run leaves behind (`runs`), verifies a cleanup
//! (`clean`) and stops when the manager is lost (`serve`). What examining and running mean is not its business: see
//! [`Work`]. No tokio here.

pub mod frame;
pub mod wire; // what travels // how it travels

mod cancel;
mod executor; // what each order does
mod outbox;
mod serve; // the loop
mod work; // what is done for it

mod fence; // who may
mod lock; // who does
mod process;

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
pub use process::{Family, ProcessId};
pub use runs::RunPaths;
pub use serve::{STATE_DIR, Tuning, main, serve, serve_with};
pub use work::Work;
