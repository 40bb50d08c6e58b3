//! The manager's end of an executor session: one SSH login, made by the system's `ssh`, that
//! carries a series of orders.
//!
//! Host keys are always checked strictly and come from the inventory. A node that lacks the
//! manager's build of remoor receives this build over the same login. The module `wire` defines the
//! orders; the manager decides when to send one.

// Target; login and start of the executor; orders and replies.
mod channel;
mod remote;
mod session;
mod target;

mod agent_binary;
mod authorize;
mod cluster_key;
mod error;
mod host_key;
mod local_executor;
mod personal_login;
mod probe;
mod shell;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agent_binary::{keep_binary, own_binary};
pub use authorize::{authorize, authorize_here};
pub use channel::Canceller;
pub use cluster_key::{ClusterKey, KeyError, last_offered_keys};
pub use error::SshError;
pub use host_key::{fingerprint, known_keys, scan_host_keys};
pub use local_executor::start_local;
pub use probe::{Probe, probe};
pub use remote::{Build, Launch, Remote, RemoteConfig, clean_control_dir};
pub use session::Session;
pub use shell::{Shell, ShellOutput};
pub use target::LoginTarget;

#[cfg(test)]
mod live_tests;
