//! Opens the wholly encrypted files of `group_vars` and `host_vars`.
//!
//! An opened variable becomes a sealed value that refers to its file. So nothing that shows or
//! stores variables contains the plaintext; a plan is made of the plaintext.

use super::AnsibleInventory;
use crate::tree;
use remoor_model::Fault;
use remoor_vault::{Vault, seal_variable};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

impl AnsibleInventory {
    /// Adds the variables of the encrypted files to the hosts, by the precedence of each file. The
    /// files that can't be opened are in `unopened` afterwards.
    pub fn open_files(&mut self, vault: &Vault) {
        let mut opened: BTreeMap<&str, (String, Vec<String>)> = BTreeMap::new();
        for (file, text) in &self.encrypted {
            match read(file, text, vault) {
                Ok(variables) => {
                    let names = variables.keys().cloned().collect();
                    opened.insert(file, (vault.keep_file(text, variables), names));
                }
                Err(fault) => {
                    self.unopened.insert(file.clone(), fault);
                }
            }
        }
        for host in self.hosts.values_mut() {
            for source in &host.encrypted {
                let Some((key, names)) = opened.get(source.file.as_str()) else { continue };
                for name in names.iter().filter(|name| !source.overridden.contains(*name)) {
                    host.vars.insert(name.clone(), seal_variable(key, name));
                    host.origins.insert(name.clone(), source.file.clone());
                }
            }
            host.vars.sort_keys();
        }
    }

    /// The faults of the encrypted files of a host that could not be opened.
    pub fn unopened_of(&self, host: &str) -> Vec<Fault> {
        let files = self.hosts.get(host).into_iter().flat_map(|host| &host.encrypted);
        files.filter_map(|source| self.unopened.get(&source.file).cloned()).collect()
    }
}

/// The variables of an encrypted file.
pub(crate) fn read(file: &str, text: &str, vault: &Vault) -> Result<Map<String, Value>, Fault> {
    let plain = vault.open_text(text).map_err(|error| {
        let fault = Fault::error(file, 1, 1, error.to_string());
        Fault { hint: vault.next_step(&error).map(str::to_owned), ..fault }
    })?;
    let one = |mut faults: Vec<Fault>| match faults.is_empty() {
        true => Fault::error(file, 1, 1, "can't be parsed after its decryption"),
        false => faults.swap_remove(0),
    };
    // The message could show a part of the plaintext, so only the position is reported.
    let hidden = |fault: Fault| Fault::error(file, fault.line, fault.column, "is not valid YAML after its decryption");
    let Some(node) = tree::parse(file, &plain).map_err(one).map_err(hidden)? else { return Ok(Map::new()) };
    let Some(entries) = node.entries() else {
        let message = format!("takes a mapping of variables, not {}", node.kind_name());
        return Err(Fault::error(file, node.line, node.column, message));
    };
    Ok(entries.iter().map(|(key, value)| (key.text.clone(), value.to_json())).collect())
}
