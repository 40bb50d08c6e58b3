//! The executor on the node. One session reads orders from stdin and answers on stdout. The manager
//! gives each order only after its log entry was committed, so the executor does nothing that is
//! not in the log.
//!
//! The executor holds the node for one attempt (`fence`, `lock`), keeps files of a run (`runs`),
//! verifies a cleanup (`clean`) and stops when the manager is lost (`serve`). The trait
//! [`ExecutorWork`] is the interface to the actual examination and the actual run. Only the module
//! `ssh` uses tokio.
#![doc = include_str!("../README.md")]

// The protocol between manager and executor.
pub mod wire;

// The main loop, the execution of orders, and the implementation of the work.
mod background;
mod cancel;
mod controller_asks;
mod executor;
mod nodework; // the implementation of `ExecutorWork`
mod play;
mod play_gate;
mod reply_queue;
mod serve;
mod work;

// Decides which attempt may take the node, records the holder, and kills older attempts.
mod ansible_processes;
mod fence;
mod lock;
mod process;

// Examination of the node, and files that stay on it.
mod clean;
mod fetch;
mod host;
mod persist;
mod program;
mod runs;

pub use background::serve_job;
pub use cancel::{SessionCancel, Stop};
pub use fence::{FenceError, FenceStore};
pub use host::host_part;
pub use lock::{Holder, HolderKind, LockError, RunLock, WaitDecision};
pub use nodework::{NodeWork, examine_manifest};
pub use process::{ProcessFamily, ProcessId};
pub use runs::RunPaths;
pub use serve::{STATE_DIR, Tuning, main, serve, serve_with};
pub use work::{AskController, ExecutorWork};

#[cfg(test)]
mod outline_tests;
#[cfg(test)]
mod plan_check_tests;

pub mod ssh;
