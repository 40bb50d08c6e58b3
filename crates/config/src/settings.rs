//! The checked content of `remoor.yml`: types for the rest of the crate. `typed.rs` reads it.

use super::reader::FieldPosition;
use remoor_model::{Fault, GroupName, GroupSummary, Limits, ServiceName, ServiceSummary, Windows};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Name of the file in the root of the fleet directory.
pub const CONFIG_FILE: &str = "remoor.yml";

/// The checked `remoor.yml`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FleetConfig {
    /// Paths of the inventories, which are read as one: relative to the fleet directory, or
    /// absolute. A later inventory overrides an earlier one.
    pub inventories: Vec<String>,
    /// Variables of all hosts, with the lowest precedence.
    pub vars: Map<String, Value>,
    pub ssh: SshConfig,
    pub groups: BTreeMap<GroupName, GroupConfig>,
    pub services: BTreeMap<ServiceName, ServiceConfig>,
    pub limits: Limits,
    /// Maintenance windows of the fleet. In the `GroupSummary` of a group, these windows are
    /// combined with the windows of the group.
    pub windows: Windows,
    pub notify: Vec<Notify>,
    /// The position of each field, by its dotted path (`groups.web.provision`).
    pub places: BTreeMap<String, FieldPosition>,
}

impl FleetConfig {
    /// The first inventory, as the origin of faults that have no better one.
    pub fn first_inventory(&self) -> &str {
        self.inventories.first().map_or("", String::as_str)
    }

    /// The directory that contains all `provision` playbooks, as a path in the fleet directory. As
    /// in Ansible, its `group_vars` and `host_vars` count too. None: the playbooks are in several
    /// directories, or there is none.
    pub fn provision_directory(&self) -> Option<&Path> {
        let mut directories =
            self.groups.values().filter_map(|g| g.provision.as_deref()).map(|p| Path::new(p).parent());
        let first = directories.next()?;
        directories.all(|other| other == first).then_some(first).flatten()
    }

    /// A fault at the field with this dotted path, or at the whole file if the file has no such
    /// field.
    pub fn fault(&self, path: &str, message: impl Into<String>) -> Fault {
        let at = self.places.get(path).copied().unwrap_or_default();
        Fault::error(CONFIG_FILE, at.line, at.column, message)
    }
}

/// The data by which managers log in to nodes, unless a group or host overrides it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshConfig {
    pub user: String,
    pub port: u16,
    /// Private key: an absolute path on the managers. None: the keys of the SSH agent and the
    /// user's default keys. The cluster's own SSH key is always tried last.
    pub identity: Option<String>,
    pub connect_timeout_ms: u64,
    /// An ssh_config: a file of the fleet (relative) or of the managers (absolute).
    pub config: Option<String>,
    /// Whether the login user is not root, so that remoor becomes root by sudo.
    pub sudo: bool,
}

impl Default for SshConfig {
    fn default() -> Self {
        Self { user: "root".into(), port: 22, identity: None, connect_timeout_ms: 5_000, config: None, sudo: false }
    }
}

/// The program that runs the playbooks of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Provisioner {
    /// This program's own executor.
    #[default]
    Remoor,
    /// The program `ansible-playbook`, which the operator has installed on the manager.
    Ansible,
}

/// One entry of `groups:`.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfig {
    /// Services, policy, quorum, scope and parallelism of the group, as the crate `engine` uses
    /// them.
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

/// One entry of `services:`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Dependencies and policy of the service, as the crate `engine` uses them.
    pub summary: ServiceSummary,
    /// Absolute paths or globs; a path that ends in `/` is a managed directory.
    pub files: Vec<String>,
    pub exclude: Vec<String>,
    pub secret: Vec<String>,
    /// Regular expressions; lines that match one of them are ignored when the content of the files
    /// is hashed.
    pub normalize: Vec<String>,
    pub keep: Vec<String>,
    pub units: Vec<String>,
    pub state: Vec<String>,
    /// Playbook tags; by default the name of the service.
    pub tags: Vec<String>,
}

/// An event that causes a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotifyOn {
    /// An examination had a verdict other than `same`.
    Verdict,
    /// A job has no attempts left, or a node is held for another reason.
    Held,
    Alert,
}

/// The receiver of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotifyTo {
    /// Program and arguments, without a shell.
    Command(Vec<String>),
    /// URL that receives a POST.
    Webhook(String),
}

/// One entry of `notify:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    pub to: NotifyTo,
    /// The events that cause this notification; never empty.
    pub on: Vec<NotifyOn>,
    /// A Tera template. None: remoor's own text.
    pub text: Option<String>,
}
