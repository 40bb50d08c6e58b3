//! A fleet as a value: configuration, resolved inventory and files, with lookups.

use super::inventory::{self, AnsibleInventory};
use super::settings::{CONFIG_FILE, FleetConfig};
use super::{load, typed};
use remoor_model::{Fault, FileSet, GroupName, NodeName, ServiceName};
use remoor_vault::Vault;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Path of the resolved inventory in the file set. With this file, a fleet can be read from its
/// generation alone: no directory is read and no inventory program is run.
pub const INVENTORY_FILE: &str = ".remoor/inventory.json";

/// A host's variables, and the origin of each.
pub type MergedVars = (Map<String, Value>, BTreeMap<String, String>);

/// A fleet directory, read completely.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub config: FleetConfig,
    pub inventory: AnsibleInventory,
    /// The whole directory and `INVENTORY_FILE`: the content of a generation.
    pub files: FileSet,
    /// Warnings about links that lead out of the fleet directory.
    pub outside: Vec<Fault>,
    /// The vault passwords. `files` contains only ciphertext.
    pub vault: Arc<Vault>,
    /// Whether encrypted content that no password opens counts as unknown. Otherwise nothing that
    /// needs the content can be compiled.
    pub may_stay_encrypted: bool,
}

impl Fleet {
    /// Returns the fleet with these vault passwords, and opens the encrypted files of variables.
    /// For `may_stay_encrypted`, see the field.
    pub fn with_vault(mut self, vault: Arc<Vault>, may_stay_encrypted: bool) -> Self {
        self.inventory.open_files(&vault);
        Self { vault, may_stay_encrypted, ..self }
    }

    /// Reads the fleet directory and its inventory. An executable inventory runs for at most a
    /// minute. Err: all faults of `remoor.yml` and of the inventory. If the inventory cannot be
    /// read, the faults include those of the checks in `validate` that need no inventory. After Ok
    /// the caller runs `validate` for the remaining checks.
    pub fn load(dir: &Path) -> Result<Fleet, Vec<Fault>> {
        let (mut files, outside) = load::read(dir)?;
        let (config, mut faults) = match files.text(CONFIG_FILE) {
            Some(text) => typed::read(text),
            None => return Err(vec![no_config(&files)]),
        };
        let inventory = match resolve(dir, &config, &files) {
            Ok(inventory) => inventory,
            Err(more) => {
                faults.extend(more);
                // The parts of the fleet that need no inventory are checked anyway, so that their
                // faults are reported together with those of the inventory.
                let inventory = AnsibleInventory::default();
                faults.extend(Fleet::new(config, inventory, files, outside).validate_alone());
                return Err(errors(faults));
            }
        };
        match serde_json::to_vec_pretty(&inventory) {
            Ok(json) if json.len() <= load::BYTES_MAX => files.0.insert(INVENTORY_FILE.into(), json),
            Ok(_) => {
                let message = format!("the resolved inventory is larger than {} MiB", load::BYTES_MAX >> 20);
                return Err(vec![config.fault("inventory", message)]);
            }
            Err(error) => {
                return Err(vec![config.fault("inventory", format!("could not be written as JSON: {error}"))]);
            }
        };
        let fleet = Fleet::new(config, inventory, files, outside);
        if faults.is_empty() {
            return Ok(fleet);
        }
        faults.extend(fleet.validate());
        Err(errors(faults))
    }

    /// The fleet of a generation. `files` are the files of a fleet that `load` returned.
    pub fn from_files(files: &FileSet) -> Result<Fleet, Vec<Fault>> {
        let Some(text) = files.text(CONFIG_FILE) else { return Err(vec![no_config(files)]) };
        let (config, faults) = typed::read(text);
        if !faults.is_empty() {
            return Err(faults);
        }
        let Some(json) = files.get(INVENTORY_FILE) else {
            return Err(vec![Fault::error(INVENTORY_FILE, 0, 0, "is missing in these files")]);
        };
        let inventory = serde_json::from_slice(json).map_err(|error| {
            vec![Fault::error(
                INVENTORY_FILE,
                error.line() as u32,
                error.column() as u32,
                format!("could not be read: {error}"),
            )]
        })?;
        Ok(Fleet::new(config, inventory, files.clone(), Vec::new()))
    }

    /// A fleet without vault passwords.
    pub fn new(config: FleetConfig, inventory: AnsibleInventory, files: FileSet, outside: Vec<Fault>) -> Self {
        Self { config, inventory, files, outside, vault: Arc::default(), may_stay_encrypted: false }
    }

    /// The one group of `remoor.yml` that contains the host. A host in no group or in two groups is
    /// a fault.
    pub fn host_group(&self, name: &str) -> Result<GroupName, Fault> {
        let host = self.host(name)?;
        let mine: Vec<&str> =
            host.groups.iter().map(String::as_str).filter(|group| self.config.groups.contains_key(*group)).collect();
        match mine[..] {
            [one] => Ok(GroupName::from(one)),
            [] => {
                let groups = if host.groups.is_empty() { "none".to_owned() } else { host.groups.join(", ") };
                let fault = self.config.fault("groups", format!("the host `{name}` is in no group of `groups:`"));
                Err(fault.hint(format!("its groups in the inventory: {groups}")))
            }
            _ => {
                let message = format!("the host `{name}` is in {} groups: {}", mine.len(), mine.join(", "));
                let fault = self.config.fault(&format!("groups.{}", mine[1]), message);
                Err(fault
                    .hint("a host belongs to one group of `groups:`; remove the others, or list only the inner ones"))
            }
        }
    }

    /// The hosts of a group of `remoor.yml`, sorted by name. Hosts in two groups are omitted.
    pub fn hosts_of(&self, group: &str) -> Vec<NodeName> {
        let hosts =
            self.inventory.hosts.keys().filter(|name| self.host_group(name).is_ok_and(|mine| mine.as_str() == group));
        hosts.map(|name| NodeName::from(name.as_str())).collect()
    }

    /// The host's variables and their origins. Precedence, weakest first: `vars:` of `remoor.yml`,
    /// the `vars` of the host's group in `remoor.yml`, the inventory.
    pub fn vars(&self, name: &str) -> Result<MergedVars, Fault> {
        let host = self.host(name)?;
        let (mut vars, mut origins) = (Map::new(), BTreeMap::new());
        let mut overlay = |layer: &Map<String, Value>, origin: &dyn Fn(&str) -> String| {
            for (name, value) in layer {
                vars.insert(name.clone(), value.clone());
                origins.insert(name.clone(), origin(name));
            }
        };
        overlay(&self.config.vars, &|_| format!("{CONFIG_FILE}: vars"));
        if let Ok(group) = self.host_group(name)
            && let Some(config) = self.config.groups.get(&group)
        {
            overlay(&config.vars, &|_| format!("{CONFIG_FILE}: groups.{group}.vars"));
        }
        overlay(&host.vars, &|var| {
            host.origins.get(var).cloned().unwrap_or_else(|| self.config.first_inventory().to_owned())
        });
        vars.sort_keys();
        Ok((vars, origins))
    }

    /// `services` and every service that depends on one of them, directly or not. Dependencies come
    /// before their dependents; otherwise the order is by name. Unknown names are omitted.
    pub fn dependents<'a>(&self, services: impl IntoIterator<Item = &'a ServiceName>) -> Vec<ServiceName> {
        let all = &self.config.services;
        let mut closure: BTreeSet<&ServiceName> =
            services.into_iter().filter_map(|name| all.get_key_value(name)).map(|(name, _)| name).collect();
        loop {
            let before = closure.len();
            let more =
                all.iter().filter(|(_, service)| service.summary.depends_on.iter().any(|on| closure.contains(on)));
            let more: Vec<&ServiceName> = more.map(|(name, _)| name).collect();
            closure.extend(more);
            if closure.len() == before {
                break;
            }
        }
        let mut order = Vec::new();
        while let Some(next) = closure
            .iter()
            .find(|name| !all[**name].summary.depends_on.iter().any(|on| on != **name && closure.contains(on)))
            // In a dependency cycle, which `validate` refuses, the first service is taken.
            .or(closure.first())
            .copied()
        {
            closure.remove(next);
            order.push(next.clone());
        }
        order
    }

    pub(super) fn host(&self, name: &str) -> Result<&inventory::HostEntry, Fault> {
        self.inventory.hosts.get(name).ok_or_else(|| {
            let mut fault = Fault::error(self.config.first_inventory(), 0, 0, format!("there is no host `{name}`"));
            fault.hint = remoor_model::did_you_mean(name, self.inventory.hosts.keys().map(String::as_str));
            fault
        })
    }
}

/// Reads the inventories that the configuration names. If the configuration names none, the error
/// has no faults, because that fault was already reported.
fn resolve(dir: &Path, config: &FleetConfig, files: &FileSet) -> Result<AnsibleInventory, Vec<Fault>> {
    if config.inventories.is_empty() {
        return Err(Vec::new());
    }
    let missing = config.inventories.iter().filter(|name| !dir.join(name).exists());
    let faults: Vec<Fault> = missing
        .map(|name| {
            let mut fault = config.fault("inventory", format!("there is no `{name}`"));
            fault.hint = remoor_model::did_you_mean(name, files.paths_below(""));
            fault
        })
        .collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let sources: Vec<PathBuf> = config.inventories.iter().map(|name| dir.join(name)).collect();
    inventory::load_below(dir, &sources, config.provision_directory().map(|beside| dir.join(beside)).as_deref())
}

/// Keeps only the errors, sorts them and removes duplicates.
fn errors(mut faults: Vec<Fault>) -> Vec<Fault> {
    faults.retain(|fault| !fault.warning);
    faults.sort();
    faults.dedup();
    faults
}

fn no_config(files: &FileSet) -> Fault {
    let fault = Fault::error(CONFIG_FILE, 0, 0, "is missing, or not UTF-8");
    match files.get("remoor.yaml") {
        Some(_) => fault.hint("rename remoor.yaml"),
        None => fault.hint("the file belongs at the top of the fleet directory"),
    }
}
