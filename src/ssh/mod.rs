//! The manager's end of an executor session: one SSH login that carries a series of orders, by the system's `ssh`.
//!
//! Host keys are strict always and come from the inventory. A node that lacks this build gets it over the same login.
//! What orders mean is the executor's business (`exec`); when to give one is the manager's.

// Whom to talk to; logging in and starting the executor there; orders and replies.
mod channel;
mod remote;
mod session;
mod target;

mod authorize;
mod cluster_key;
mod error;
mod here;
mod host_key;
mod own;
mod personal;
mod probe;
mod shell;

pub use authorize::{authorize, authorize_here};
pub use channel::Canceller;
pub use cluster_key::{ClusterKey, KeyError, offered_last};
pub use error::SshError;
pub use here::here;
pub use host_key::{fingerprint, known_keys, scan_host_keys};
pub use own::{keep_binary, own_binary};
pub use probe::{Probe, probe};
pub use remote::{Build, Launch, Remote, RemoteConfig, clean_control_dir};
pub use session::Session;
pub use shell::{Said, Shell};
pub use target::Target;

#[cfg(test)]
mod live_tests;
