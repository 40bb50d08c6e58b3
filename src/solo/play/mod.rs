//! `remoor play`: runs a playbook on the hosts of an Ansible inventory, without a cluster.
//!
//! ```text
//! PlayRequest -> prepare: files, inventory, a plan for each host
//!             -> PreparedPlay -> run: a session for each host -> PlayRunEvent, PlaySummary
//! ```
//! The plans of all hosts are compiled before any host is changed. On a remote host the plan runs
//! in an executor, as in an attempt of the managers. On this machine the plan runs in a separate
//! process.

mod connection;
mod delegate;
mod events;
mod files;
mod host;
mod host_selection;
mod host_variables;
mod later_plays;
mod lint;
mod lookups;
mod prepare;
mod reboot;
mod recap;
mod rsync;
mod run;
mod run_once;
mod sent_files;
mod shared_values;
mod sockets;
mod throttle;

pub use events::{HostState, PlayRunEvent, PlaySummary, PlayTaskView};
pub(in crate::solo) use files::Files;
pub(in crate::solo) use host_variables::groups;
pub use lint::lint;
pub(in crate::solo) use prepare::prepare_with_sources;
pub use prepare::{PreparedPlay, prepare};
pub use recap::Recap;
pub use remoor_playbook::VarsPrompt;
pub use run::{Control, PlayStop, run};

use crate::module_packer::ModulePolicy;
use remoor_vault::Vault;
use serde_json::{Map, Value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of `remoor play`.
#[derive(Debug, Clone, Default)]
pub struct PlayRequest {
    pub playbook: PathBuf,
    /// Directory that contains all files of the playbook. None: the project directory of the
    /// playbook.
    pub root: Option<PathBuf>,
    /// Paths, or comma-separated lists of hosts. Empty: only this machine, as `localhost`.
    pub inventory: Vec<String>,
    /// The patterns of `--limit`, which select hosts.
    pub limit: Vec<String>,
    pub tags: Vec<String>,
    pub skip_tags: Vec<String>,
    /// The variables of `--extra-vars`, which have the highest precedence.
    pub extra: Map<String, Value>,
    pub check: bool,
    pub diff: bool,
    /// Maximum number of hosts that run at the same time; at least 1.
    pub forks: usize,
    /// Whether tasks run as root if they do not say otherwise.
    pub elevated: bool,
    /// The login for hosts whose variables do not set one.
    pub login: Login,
    /// Whether a task that cannot be compiled ends the preparations, even if no run may reach it.
    pub strict: bool,
    /// Whether the playbook also runs on nodes of a fleet.
    pub force: bool,
    /// Which modules the playbook may use.
    pub modules: ModulePolicy,
    /// The vault passwords.
    pub vault: Arc<Vault>,
    /// Whether encrypted content that no password opens counts as unknown; only for lint.
    pub may_stay_encrypted: bool,
    /// How the variables of `vars_prompt` get their values.
    pub prompter: Prompter,
}

/// How the variables of `vars_prompt` get their values.
#[derive(Debug, Clone, Copy, Default)]
pub enum Prompter {
    /// They have their defaults.
    #[default]
    Defaults,
    /// They have their defaults, with a warning.
    NoTerminal,
    /// The function asks a person. The error is a message.
    Terminal(fn(&VarsPrompt) -> Result<String, String>),
}

/// The settings of the connection to a host.
#[derive(Debug, Clone, Default)]
pub struct Login {
    pub connection: Connection,
    pub user: Option<String>,
    pub private_key: Option<PathBuf>,
    /// The ssh_config file that is used instead of the user's own.
    pub ssh_config: Option<PathBuf>,
    pub timeout: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Connection {
    #[default]
    Ssh,
    /// Every host is this machine.
    Local,
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
