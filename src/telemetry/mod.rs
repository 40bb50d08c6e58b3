//! Logs to stderr, metrics as Prometheus text, and an end with a reason when a thread panics.
//!
//! It observes and never decides. Everything that counts is handed a [`Registry`]; there is no global one.

mod log;
mod panic;
mod registry;
mod throttle;

pub use log::{TelemetryError, init, unanswered};
pub use panic::{PANIC_EXIT, exit_on_panic};
pub use registry::{Kind, Registry};
