//! Packs modules that are not native, with the code of the ansible-core that is installed on this
//! machine.
//!
//! ```text
//! compile ──ModuleRequest──> FleetModules ──> Packer: kept answers
//!                                               │ JSON lines over a pipe
//!                                             packer.py: ansible-core finds and packs
//! ```
//! The Python process starts with the first request and ends after a minute without one. It never
//! runs the code of a module; it only reads it.

mod packer;
mod process;

pub use packer::Packer;

use remoor_model::{Fault, FileSet, Sha256};
use remoor_playbook::{ModuleRefusal, ModuleRequest, ModuleSource, PackedModule, Plan, PythonModule, Task};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

/// The variable with the path of the Python that has ansible-core.
pub const PYTHON_SETTING: &str = "REMOOR_ANSIBLE_PYTHON";
/// Maximum number of fleets with a packer of their own. A further fleet replaces the oldest.
const PACKERS_MAX: usize = 2;
/// Directories of a fleet that Ansible reads when it packs modules.
const PARTS: [&str; 4] = ["library", "module_utils", "action_plugins", "collections"];

/// Which modules a playbook may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModulePolicy {
    #[default]
    Any,
    /// Modules that need Python on the node and ansible-core on the manager are refused.
    NativeOnly,
}

/// Refuses all modules that are not native.
#[derive(Debug)]
pub struct NativeModules;

impl ModuleSource for NativeModules {
    fn pack(&self, _: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        Err(ModuleRefusal::NativeOnly)
    }
}

/// The packer of one fleet, found with the first request. All plans of the fleet share it.
#[derive(Debug, Default)]
pub struct PackerSlot(OnceLock<Result<Arc<Packer>, String>>);

/// The modules of a fleet whose files are in memory.
#[derive(Debug)]
pub struct FleetModules<'a> {
    pub files: &'a FileSet,
    pub slot: &'a PackerSlot,
}

impl ModuleSource for FleetModules<'_> {
    fn pack(&self, request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        let packer = self.slot.0.get_or_init(|| packer_of_files(self.files));
        packer.as_ref().map_err(|why| ModuleRefusal::Failed(why.clone()))?.pack(request)
    }
}

/// The packers of this process, the most recently used last.
static PACKERS: Mutex<Vec<(PackerKey, Arc<Packer>)>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, PartialEq, Eq)]
enum PackerKey {
    /// The hash of the files that Ansible reads.
    Files(Sha256),
    Directory(PathBuf),
}

/// Ends the Python processes and removes the private directories. Must be called before this
/// process ends, because nothing drops a static value.
pub fn release() {
    PACKERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
}

/// The packer for the playbooks below `root`.
pub fn packer_of_directory(root: &Path) -> Arc<Packer> {
    let made = shared_packer(PackerKey::Directory(root.to_owned()), || Ok(Packer::new(root.to_owned(), None)));
    made.unwrap_or_else(|_never| Arc::new(Packer::new(root.to_owned(), None)))
}

/// The packer for a fleet in memory. The files that Ansible reads are written to a private
/// directory.
fn packer_of_files(files: &FileSet) -> Result<Arc<Packer>, String> {
    let plain = |path: &str| Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    let read = |path: &str| plain(path) && (path == "ansible.cfg" || path.split('/').any(|part| PARTS.contains(&part)));
    let parts: Vec<(&String, &Vec<u8>)> = files.0.iter().filter(|(path, _)| read(path)).collect();
    let bytes = rmp_serde::to_vec(&parts).map_err(|e| e.to_string())?;
    shared_packer(PackerKey::Files(Sha256::digest(&bytes)), || {
        let fail = |e: std::io::Error| format!("a private directory for the fleet's modules: {e}");
        let dir = tempfile::Builder::new().prefix("remoor-modules-").tempdir().map_err(fail)?;
        for (path, content) in &parts {
            let place = dir.path().join(path);
            std::fs::create_dir_all(place.parent().unwrap_or(dir.path())).map_err(fail)?;
            std::fs::write(place, content).map_err(fail)?;
        }
        Ok(Packer::new(dir.path().to_owned(), Some(dir)))
    })
}

fn shared_packer(key: PackerKey, make: impl FnOnce() -> Result<Packer, String>) -> Result<Arc<Packer>, String> {
    let mut all = PACKERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let known = all.iter().position(|(other, _)| *other == key).map(|at| all.remove(at));
    let (key, packer) = match known {
        Some(known) => known,
        None => (key, Arc::new(make()?)),
    };
    if all.len() >= PACKERS_MAX {
        all.remove(0);
    }
    all.push((key, packer.clone()));
    Ok(packer)
}

/// What lint reports about tasks that are not native: one warning for each.
pub fn python_warnings(plan: &Plan) -> Vec<Fault> {
    let warn = |(task, module): (&Task, &PythonModule)| {
        let message = format!(
            "module `{}` is not native: the node needs Python {} or newer, and the manager needs ansible-core \
             (found {})",
            task.module, module.min_python, module.core
        );
        Fault::warn(&task.place.file, task.place.line, 1, message)
    };
    plan.python_tasks().into_iter().map(warn).collect()
}
