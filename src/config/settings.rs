//! What `remoor.yml` says, checked: the types that the rest of the crate sees. Reading it is `typed.rs`.

use super::reader::Place;
use crate::model::{Fault, GroupName, GroupSummary, Limits, ServiceName, ServiceSummary, Windows};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Name of the file, in the root of the fleet directory.
pub const CONFIG_FILE: &str = "remoor.yml";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetConfig {
    /// Relative to the fleet directory, or absolute.
    pub inventory: String,
    /// The weakest variables.
    pub vars: Map<String, Value>,
    pub ssh: SshConfig,
    pub groups: BTreeMap<GroupName, GroupConfig>,
    pub services: BTreeMap<ServiceName, ServiceConfig>,
    pub limits: Limits,
    /// The fleet's; those of each group are in its summary, these with them.
    pub windows: Windows,
    pub notify: Vec<Notify>,
    /// Where each field stands, by its dotted path (`groups.web.provision`).
    pub places: BTreeMap<String, Place>,
}

impl FleetConfig {
    /// A fault at the field with this dotted path, or at the file as a whole if it is not written there.
    pub fn fault(&self, path: &str, message: impl Into<String>) -> Fault {
        let at = self.places.get(path).copied().unwrap_or_default();
        Fault::error(CONFIG_FILE, at.line, at.column, message)
    }
}

/// How managers log in, where neither group nor host says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshConfig {
    pub user: String,
    pub port: u16,
    /// Private key: a file of the managers, absolute. None: the agent and the user's usual keys. The cluster's own comes last.
    pub identity: Option<String>,
    pub connect_timeout_ms: u64,
    /// An ssh_config: a file of the fleet (relative) or of the managers (absolute).
    pub config: Option<String>,
    /// The login is not root and becomes it by sudo.
    pub sudo: bool,
}

impl Default for SshConfig {
    fn default() -> Self {
        Self { user: "root".into(), port: 22, identity: None, connect_timeout_ms: 5_000, config: None, sudo: false }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Provisioner {
    /// This program's own executor.
    #[default]
    Remoor,
    /// The user's `ansible-playbook`, on the manager.
    Ansible,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfig {
    /// Services, policy, quorum, scope and parallelism, as the engine takes them.
    pub summary: GroupSummary,
    /// Playbooks, relative to the fleet directory. None: the group can be examined but not set up.
    pub provision: Option<String>,
    pub cleanup: Option<String>,
    pub provisioner: Provisioner,
    pub vars: Map<String, Value>,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            summary: GroupSummary { parallel: 1, ..GroupSummary::default() },
            provision: None,
            cleanup: None,
            provisioner: Provisioner::default(),
            vars: Map::new(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Dependencies and policy, as the engine takes them.
    pub summary: ServiceSummary,
    /// Absolute paths or globs; a path ending in `/` is a managed directory.
    pub files: Vec<String>,
    pub exclude: Vec<String>,
    pub secret: Vec<String>,
    /// Regular expressions of lines that do not count in the content of its files.
    pub normalize: Vec<String>,
    pub keep: Vec<String>,
    pub units: Vec<String>,
    pub state: Vec<String>,
    /// Playbook tags; the service's name unless others are given.
    pub tags: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotifyOn {
    /// Each verdict other than `same`.
    Verdict,
    /// A job that ran out of attempts, or a node held for another reason.
    Held,
    Alert,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotifyTo {
    /// Program and arguments; no shell.
    Command(Vec<String>),
    /// Receives a POST.
    Webhook(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    pub to: NotifyTo,
    /// Never empty.
    pub on: Vec<NotifyOn>,
    /// A Tera text; None: remoor's own.
    pub text: Option<String>,
}
