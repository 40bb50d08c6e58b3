//! `remoor play`: a playbook on the hosts of an Ansible inventory, without a cluster.
//!
//! ```text
//! Request -> prepare: files, inventory, a plan for each host -> Prepared -> run: a session for each host -> Told, Summary
//! ```
//! Every host's plan is compiled before any host is touched. What runs on a host runs in an executor there, as in an attempt
//! of the managers; on this machine in a process of its own.

mod chosen;
mod files;
mod host;
mod hosts;
mod lint;
mod prepare;
mod road;
mod run;
mod sockets;
mod tally;
mod told;

pub use lint::lint;
pub use prepare::{Prepared, prepare};
pub use run::{Control, Ending, run};
pub use tally::Recap;
pub use told::{HostState, Summary, TaskView, Told};

use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// What a person asked for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub playbook: PathBuf,
    /// Directory that everything lies below which the playbook names; None: found by where the playbook is.
    pub root: Option<PathBuf>,
    /// Paths, or lists of hosts with a comma; empty: this machine alone, as `localhost`.
    pub inventory: Vec<String>,
    /// Patterns.
    pub limit: Vec<String>,
    pub tags: Vec<String>,
    pub skip_tags: Vec<String>,
    /// The strongest variables.
    pub extra: Map<String, Value>,
    pub check: bool,
    pub diff: bool,
    /// Hosts at once; at least 1.
    pub forks: usize,
    /// Tasks are root's where nothing says otherwise.
    pub elevated: bool,
    /// Where a host's variables say nothing of it.
    pub login: Login,
    /// Also on nodes of a fleet.
    pub force: bool,
}

/// How to get to a host.
#[derive(Debug, Clone, Default)]
pub struct Login {
    pub connection: Connection,
    pub user: Option<String>,
    pub private_key: Option<PathBuf>,
    /// An ssh_config in the place of the user's own.
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
mod tests;
