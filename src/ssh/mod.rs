//! The manager's end of an executor session: one SSH login, orders one after the other.
//!
//! The system's `ssh` does the talking (crate openssh, native mux), so the operator's configuration, agents and jump hosts
//! work. Host keys are strict: only what the inventory recorded is accepted, and a changed one ends everything.

mod binary;
mod error;
mod hostkey;
mod probe;
mod remote;
mod session;
mod shell;

pub use binary::{keep_binary, own_binary};
pub use error::SshError;
pub use hostkey::{fingerprint, scan_host_keys};
pub use probe::{Probe, probe};
pub use remote::{Remote, Target};
pub use session::Session;
pub use shell::{Said, Shell};
