//! Logs to stderr, metrics as Prometheus text, and a process exit with a recorded reason when a
//! thread panics.
//!
//! This module only observes. Every component that counts receives a [`Registry`], because there is
//! no global registry.

mod log;
mod panic;
mod registry;
mod throttle;

pub use log::{TelemetryError, init, unanswered_pings};
pub use panic::{PANIC_EXIT, exit_on_panic};
pub use registry::{MetricKind, Registry, render_all};
