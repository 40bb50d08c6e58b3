//! Determines the connection to each host. The inventory's `ansible_*` variables override the
//! command line. A setting that remoor does not support is rejected by name. Passwords are not
//! used; a warning reports them.

use super::{Connection, Login};
use remoor_config::{AnsibleInventory, Fleet, FleetConfig};
use remoor_exec::STATE_DIR;
use remoor_exec::ssh::LoginTarget;
use remoor_model::{Fault, FileSet, NodeName};
use remoor_playbook::LOCAL;
use remoor_vault::Vault;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// The connection to a host.
#[derive(Debug, Clone)]
pub(super) enum HostConnection {
    /// A process on this machine. `named` is the state directory that the host's variables set;
    /// None means the usual directory.
    Local {
        named: Option<PathBuf>,
    },
    Ssh(Box<LoginTarget>),
}

impl HostConnection {
    /// The connection's name for people and programs.
    pub fn name(&self) -> &'static str {
        match self {
            HostConnection::Local { .. } => "local",
            HostConnection::Ssh(_) => "ssh",
        }
    }

    /// Whether the login is root. None: this is unknown before the connection.
    pub fn is_root(&self) -> Option<bool> {
        match self {
            HostConnection::Local { .. } => Some(rustix::process::geteuid().is_root()),
            HostConnection::Ssh(target) if target.user.is_empty() => None,
            HostConnection::Ssh(target) => Some(target.user == "root"),
        }
    }
}

/// Finds the connection to each host of an inventory. Variables with the highest precedence
/// override the inventory.
#[derive(Debug)]
pub(super) struct ConnectionFinder {
    fleet: Fleet,
    login: Login,
    /// Hosts of which every play has `connection: local`.
    local_hosts: BTreeSet<String>,
    /// The login users of hosts by `remote_user` of their plays. Variables have precedence.
    login_users: BTreeMap<String, String>,
}

const PASSWORDS: [&str; 5] =
    ["ansible_password", "ansible_ssh_pass", "ansible_ssh_password", "ansible_become_password", "ansible_become_pass"];

impl ConnectionFinder {
    pub fn new(inventory: &AnsibleInventory, extra: &Map<String, Value>, login: &Login, vault: &Vault) -> Self {
        let mut inventory = inventory.clone();
        // A task can be delegated to this machine even if the inventory does not contain it.
        for name in LOCAL {
            inventory.hosts.entry(name.to_owned()).or_default();
        }
        for host in inventory.hosts.values_mut() {
            // Passwords are not used, so they stay encrypted.
            let settings = host.vars.iter_mut().filter(|(name, _)| name.starts_with("ansible_"));
            for (_, value) in settings.filter(|(name, _)| !PASSWORDS.contains(&name.as_str())) {
                if let Some(Ok(opened)) = vault.open_value(value) {
                    *value = opened;
                }
            }
            for (name, value) in extra.iter().filter(|(name, _)| name.starts_with("ansible_") || *name == STATE) {
                host.vars.insert(name.clone(), value.clone());
                host.origins.insert(name.clone(), "--extra-vars".to_owned());
            }
        }
        let mut config = FleetConfig { inventories: vec!["inventory".to_owned()], ..FleetConfig::default() };
        // Values that are not set here may come from the configuration of ssh.
        config.ssh.user = login.user.clone().unwrap_or_default();
        config.ssh.port = 0;
        config.ssh.identity = login.private_key.as_ref().map(|path| path.display().to_string());
        config.ssh.config = login.ssh_config.as_ref().map(|path| path.display().to_string());
        config.ssh.connect_timeout_ms = u64::try_from(login.timeout.as_millis()).unwrap_or(u64::MAX);
        let fleet = Fleet::new(config, inventory, FileSet::default(), Vec::new());
        Self { fleet, login: login.clone(), local_hosts: BTreeSet::new(), login_users: BTreeMap::new() }
    }

    /// Makes the plays of these hosts run on this machine, unless their variables set a connection.
    pub fn set_local_hosts(&mut self, hosts: BTreeSet<String>) {
        self.local_hosts = hosts;
    }

    /// Sets the login users of hosts whose variables set none.
    pub fn set_login_users(&mut self, users: BTreeMap<String, String>) {
        self.login_users = users;
    }

    /// The login user that `set_login_users` has set for a host.
    pub fn login_user(&self, name: &str) -> Option<&str> {
        self.login_users.get(name).map(String::as_str)
    }

    /// The connection for the plays of `name`, like [`Self::connection_to`].
    pub fn connection_of_plays(&self, name: &str, sudo: bool) -> Result<(HostConnection, Vec<Fault>), Vec<Fault>> {
        let own = HostVars { fleet: &self.fleet, host: name };
        if self.local_hosts.contains(name) && own.value("ansible_connection").is_none() {
            return Ok((HostConnection::Local { named: own.text(STATE).map(PathBuf::from) }, Vec::new()));
        }
        self.connection_to(name, sudo)
    }

    /// The connection to `name`, and warnings about variables that are not used. `sudo`: the host's
    /// plan needs root.
    pub fn connection_to(&self, name: &str, sudo: bool) -> Result<(HostConnection, Vec<Fault>), Vec<Fault>> {
        let mut faults = Vec::new();
        let own = HostVars { fleet: &self.fleet, host: name };
        own.refuse("ansible_become_method", &["sudo"], "remoor becomes root with sudo", &mut faults);
        own.refuse("ansible_become_user", &["root"], "remoor becomes root only", &mut faults);
        let known = ["local", "ssh", "smart", "paramiko", "paramiko_ssh"];
        own.refuse("ansible_connection", &known, "remoor connects with ssh, or runs locally (local)", &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let local = match own.last_part("ansible_connection") {
            Some(word) => word == "local",
            // A name such as `localhost` means this machine, unless the inventory sets an address
            // or port for it.
            None if LOCAL.contains(&name) => {
                !["ansible_host", "ansible_port"].iter().any(|var| own.value(var).is_some())
            }
            None => self.login.connection == Connection::Local,
        };
        if local {
            return Ok((HostConnection::Local { named: own.text(STATE).map(PathBuf::from) }, Vec::new()));
        }
        let ssh = self.fleet.ssh_target(name).map_err(|fault| vec![fault])?;
        let chosen = ["ansible_user", "ansible_ssh_user"].iter().any(|var| own.text(var).is_some());
        let user = self.login_user(name).filter(|_| !chosen).map_or(ssh.user, str::to_owned);
        let warned = PASSWORDS.iter().filter(|var| own.value(var).is_some());
        let warned = warned
            .map(|var| own.fault(var, "is not used: remoor logs in with a key, and sudo must not ask for a password"));
        let warnings = warned.map(|fault| Fault { warning: true, ..fault }).collect();
        let target = LoginTarget {
            node: NodeName::from(name),
            host: ssh.host,
            port: ssh.port,
            user,
            identity: ssh.identity.map(|path| expand_path(&path)),
            last_keys: Vec::new(),
            sudo,
            host_keys: Vec::new(),
            options: ssh.options,
            user_config: ssh.config.map(|path| expand_path(&path)),
            connect_timeout: Duration::from_millis(ssh.connect_timeout_ms),
            state_dir: ssh.state_dir.map(PathBuf::from),
        };
        Ok((HostConnection::Ssh(Box::new(target)), warnings))
    }
}

impl ConnectionFinder {
    /// The files with private keys and settings of ssh with which `remoor play` logs in.
    pub fn login_files(&self) -> Vec<PathBuf> {
        let own = [&self.login.private_key, &self.login.ssh_config].into_iter().flatten();
        let own = own.map(|path| expand_path(&path.display().to_string()));
        let of_host = |name: &String| match self.connection_to(name, false).ok()?.0 {
            HostConnection::Ssh(target) => Some(target.identity.into_iter().chain(target.user_config)),
            HostConnection::Local { .. } => None,
        };
        own.chain(self.fleet.inventory.hosts.keys().filter_map(of_host).flatten()).collect()
    }

    /// The variables of a host of the inventory or of this machine. None: no host has this name.
    pub fn variables_of(&self, name: &str) -> Option<Map<String, Value>> {
        self.fleet.inventory.hosts.get(name).map(|host| host.vars.clone().into_iter().collect())
    }
}

/// The variable with the state directory of a host's executor.
const STATE: &str = "remoor_state_dir";

/// The usual state directory of an executor on this machine: that of root, or that of the user.
/// None: the user has no directory for it.
pub(super) fn usual_state_dir(root: bool) -> Option<PathBuf> {
    if root || rustix::process::geteuid().is_root() {
        return Some(PathBuf::from(STATE_DIR));
    }
    Some(crate::solo::state_home()?.join("remoor"))
}

/// A path of the user, made absolute, with `~` expanded as in a shell. ssh reads the path from a
/// file in another directory, so a relative path would be wrong.
fn expand_path(path: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    std::path::absolute(&path).unwrap_or(path)
}

/// Reads the inventory variables of one host.
struct HostVars<'a> {
    fleet: &'a Fleet,
    host: &'a str,
}

impl HostVars<'_> {
    fn value(&self, var: &str) -> Option<&Value> {
        self.fleet.inventory.hosts.get(self.host)?.vars.get(var).filter(|value| !value.is_null())
    }

    fn text(&self, var: &str) -> Option<&str> {
        self.value(var)?.as_str().filter(|text| !text.is_empty())
    }

    /// The last component of a plugin's name, such as `ssh` of `ansible.builtin.ssh`.
    fn last_part(&self, var: &str) -> Option<&str> {
        self.text(var)?.rsplit('.').next()
    }

    fn fault(&self, var: &str, message: &str) -> Fault {
        let origin = self.fleet.inventory.hosts.get(self.host).and_then(|host| host.origins.get(var));
        let origin = origin.map_or("inventory", |origin| origin.split(": ").next().unwrap_or(origin));
        Fault::error(origin, 0, 0, format!("{var} of the host `{}` {message}", self.host))
    }

    fn refuse(&self, var: &str, known: &[&str], why: &str, faults: &mut Vec<Fault>) {
        let Some(value) = self.value(var) else { return };
        if !self.last_part(var).is_some_and(|word| known.contains(&word)) {
            let fault = self.fault(var, &format!("is {value}, which remoor does not support: {why}"));
            faults.push(fault.hint("run this host with ansible-playbook"));
        }
    }
}
