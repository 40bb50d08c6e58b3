//! Packs modules that are not native, with the code of the ansible-core that is installed on this
//! machine.
//!
//! ```text
//! compile ──ModuleRequest──> Packer: kept answers
//!                              │ JSON lines over a pipe
//!                            packer.py: ansible-core finds and packs
//! ```
//! The Python process starts with the first request and ends after a minute without one. It reads
//! modules and does not run them. But ansible-core imports the packages of collections, so code of
//! the directory may run, as with `ansible-playbook --syntax-check`. Therefore only `play`, `lint`,
//! `import` and `apply` use the packer, as the user who calls them. Managers never use it: they
//! compile fleets with the modules that `apply` has stored in the generation (see
//! `fleet::module_archives`), so the desired state does not depend on the software of a manager.

mod lookup_plugins;
mod packer;
mod process;

pub use lookup_plugins::LookupPlugins;
use packer::Packer;
pub use process::find_python;

use remoor_playbook::{ModuleRefusal, ModuleRequest, ModuleSource, PackedModule};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The variable with the path of the Python that has ansible-core.
pub const PYTHON_SETTING: &str = "REMOOR_ANSIBLE_PYTHON";

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
struct NativeModules;

impl ModuleSource for NativeModules {
    fn pack(&self, _: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal> {
        Err(ModuleRefusal::NativeOnly)
    }
}

/// The packer of this process, with its directory.
static PACKER: Mutex<Option<(PathBuf, Arc<Packer>)>> = Mutex::new(None);

/// Ends the Python process and removes its directory. Must be called before this process ends,
/// because nothing drops a static value.
pub fn release() {
    let last = PACKER.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
    // The process may take seconds to end, so the lock is free before.
    drop(last);
}

/// The modules that `policy` allows for the playbooks below `root`, an absolute path. The packer of
/// another directory is replaced.
pub fn modules_of_directory(root: &Path, policy: ModulePolicy) -> Arc<dyn ModuleSource> {
    if policy == ModulePolicy::NativeOnly {
        return Arc::new(NativeModules);
    }
    let (packer, _other) = {
        let mut slot = PACKER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match &*slot {
            Some((known, packer)) if known == root => (packer.clone(), None),
            _ => {
                let packer = Arc::new(Packer::new(root.to_owned()));
                (packer.clone(), slot.replace((root.to_owned(), packer)))
            }
        }
    };
    packer
}
