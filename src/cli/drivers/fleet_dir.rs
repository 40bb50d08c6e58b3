//! Calls that read a fleet directory on this machine: lint, import, and the upload of `apply`.

use crate::fleet::{self, module_archives};
use crate::module_packer::{self, ModulePolicy};
use crate::solo::{self, ImportRequest, ImportSummary, VaultOptions};
use remoor_config::Fleet;
use remoor_model::{CheckFile, Fault};
use remoor_vault::Vault;
use std::path::Path;
use std::sync::Arc;

/// What the hint of a fault contains if Ansible can run what a fleet refuses.
const ANSIBLE: &str = "provisioner: ansible";

/// The check files of a fleet directory for `host`, rendered with the inventory's addresses and
/// without facts.
pub fn check_files(dir: &Path, host: &str) -> Result<Vec<CheckFile>, Vec<Fault>> {
    let loaded = Fleet::load(dir)?;
    fleet::list_check_files(&loaded, host, &fleet::ClusterContext::default(), &serde_json::Map::new())
}

/// All faults and warnings of a fleet directory. If the directory has no `remoor.yml`, the result
/// is about the playbooks in it. With `strict`, a task that cannot be compiled is an error even if
/// no run may reach it.
pub fn lint(dir: &Path, strict: bool, modules: ModulePolicy, vault: &VaultOptions) -> Vec<Fault> {
    let faults = match vault.read(dir) {
        Ok((vault, warnings)) => [lint_dir(dir, strict, modules, vault), warnings].concat(),
        Err(faults) => faults,
    };
    module_packer::release();
    faults
}

fn lint_dir(dir: &Path, strict: bool, modules: ModulePolicy, vault: Arc<Vault>) -> Vec<Fault> {
    let named = ["remoor.yml", "remoor.yaml"].iter().any(|name| dir.join(name).exists());
    if dir.is_dir() && !named {
        return solo::play::lint(dir, modules, strict, &vault);
    }
    let loaded = Fleet::load(dir).and_then(|fleet| {
        let mut fleet = fleet.with_vault(vault, true);
        store_modules(&mut fleet, dir, modules)?;
        Ok(fleet)
    });
    match loaded {
        Ok(fleet) if strict => fleet::lint_strictly(&fleet),
        Ok(fleet) => fleet::lint(&fleet),
        Err(faults) => faults,
    }
}

/// Adds the modules that are not native to the files of a fleet. Returns warnings about tasks that
/// are refused and modules that are left out.
fn store_modules(fleet: &mut Fleet, dir: &Path, policy: ModulePolicy) -> Result<Vec<Fault>, Vec<Fault>> {
    let root = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let source = module_packer::modules_of_directory(&root, policy);
    module_archives::store_modules(fleet, &*source).map_err(|fault| vec![fault])
}

/// Writes a fleet directory from a playbook and its inventory. Returns the summary and the findings
/// of lint in the new directory. Contacts no host. If a fleet refuses the playbook, the groups get
/// `provisioner: ansible`.
pub fn import(request: &ImportRequest) -> Result<(ImportSummary, Vec<Fault>), Vec<Fault>> {
    let mut summary = solo::import(request)?;
    let lint_here = || lint(&request.into, false, ModulePolicy::default(), &VaultOptions::default());
    let mut faults = lint_here();
    let is_refused =
        |fault: &&Fault| !fault.warning && fault.hint.as_deref().is_some_and(|hint| hint.contains(ANSIBLE));
    let reasons: Vec<Fault> = faults.iter().filter(is_refused).cloned().collect();
    if !reasons.is_empty() {
        solo::provision_with_ansible(&request.into).map_err(|e| {
            vec![Fault::error(&request.into.display().to_string(), 0, 0, format!("can't be written: {e}"))]
        })?;
        faults = lint_here();
        let hint = "install ansible-core on the managers, because all groups have `provisioner: ansible` now";
        let warn = |fault: &Fault| Fault::warn(&fault.file, fault.line, fault.column, fault.message.clone()).hint(hint);
        summary.needs_ansible = reasons.iter().map(warn).collect();
    }
    Ok((summary, faults))
}

/// The modules that the option `--native-only` allows.
pub fn module_policy(native_only: bool) -> ModulePolicy {
    if native_only { ModulePolicy::NativeOnly } else { ModulePolicy::Any }
}

/// A fleet directory that is ready for the upload.
pub struct PackedFleet {
    /// Its files and the packed modules, serialized as the body of a request to `/v1/apply`.
    pub body: Vec<u8>,
    /// Warnings about tasks that are refused, and about modules that are not packed.
    pub warnings: Vec<Fault>,
}

/// Reads a fleet directory, and packs the modules that are not native. Encrypted values stay
/// encrypted. The passwords only serve to find the modules that encrypted tasks need.
pub fn pack(dir: &Path, vault: &VaultOptions) -> Result<PackedFleet, Vec<Fault>> {
    let (vault, ignored) = vault.read(dir)?;
    let packed = Fleet::load(dir).and_then(|fleet| {
        let mut fleet = fleet.with_vault(vault, true);
        let mut warnings = store_modules(&mut fleet, dir, ModulePolicy::Any)?;
        warnings.extend(ignored);
        let body = rmp_serde::to_vec_named(&fleet.files).map_err(|e| {
            vec![Fault::error(&dir.display().to_string(), 0, 0, format!("the fleet can't be serialized: {e}"))]
        })?;
        Ok(PackedFleet { body, warnings })
    });
    module_packer::release();
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playbook_that_a_fleet_refuses_is_imported_for_ansible() {
        let dir = tempfile::tempdir().unwrap();
        let site = |task: &str| {
            format!("- hosts: all\n  tasks:\n    - {{{task}}}\n    - service: {{name: x, state: started}}\n")
        };
        std::fs::write(dir.path().join("hosts"), "w1\nw2\n").unwrap();
        for (into, task, is_refused) in [
            ("one", "command: /bin/true, delegate_to: w2", true),
            ("two", "copy: {content: x, dest: /etc/x.conf}", false),
        ] {
            std::fs::write(dir.path().join("site.yml"), site(task)).unwrap();
            let request = ImportRequest {
                playbook: dir.path().join("site.yml"),
                inventory: vec![dir.path().join("hosts").display().to_string()],
                into: dir.path().join(into),
                facts: None,
            };
            let (summary, faults) = import(&request).unwrap();
            assert!(faults.iter().all(|fault| fault.warning), "{faults:?}");
            let config = std::fs::read_to_string(request.into.join("remoor.yml")).unwrap();
            assert_eq!(config.contains(ANSIBLE), is_refused, "{config}");
            let places: Vec<u32> = summary.needs_ansible.iter().map(|fault| fault.line).collect();
            assert_eq!(places, if is_refused { vec![3] } else { vec![] });
            // Otherwise the second import would copy the first fleet, because it lies in the
            // directory of the playbook.
            std::fs::remove_dir_all(request.into).unwrap();
        }
    }
}
