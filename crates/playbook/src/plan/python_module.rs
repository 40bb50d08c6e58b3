//! Modules that a plan carries as Python, because remoor has no native form of them; and the
//! source from which the compiler gets them.

use super::{PLAN_VERSION, Plan, Task};
use crate::modules::FACT_MODULES;
use crate::vars::var_map::has_markup;
use remoor_model::Fault;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Version of a plan that contains Python modules. A node whose program cannot run them rejects
/// the plan before its first task. The next version of other plans must be 6, because programs that
/// know this version accept it.
pub const PYTHON_PLAN_VERSION: u32 = 5;
const _: () = assert!(PLAN_VERSION < PYTHON_PLAN_VERSION);

/// A module with the `module_utils` that it imports, as ansible-core has packed it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonModule {
    /// SHA-256 of the zip archive in hex, which is the key of the archive in the plan's `blobs`.
    pub sha256: String,
    /// Name of the Python module in the archive that is run.
    pub entry: String,
    /// The format of arguments and result. Empty before ansible-core 2.19, which had only one.
    pub profile: String,
    /// Version of the ansible-core that packed the module.
    pub core: String,
    /// The oldest Python that the module supports, for example `3.8`.
    pub min_python: String,
    /// Names of the internal arguments (`_ansible_*`) that this ansible-core knows.
    pub internals: Vec<String>,
    /// Whether the module may set facts.
    pub facts: bool,
}

/// A request for a module that is not native.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ModuleRequest {
    /// The name in the playbook, with or without a collection.
    pub name: String,
    /// Directories of the fleet that may contain `library`, `module_utils`, `action_plugins` and
    /// `collections`, in order of preference.
    pub dirs: Vec<String>,
    /// The collections of the keyword `collections`.
    pub collections: Vec<String>,
}

/// The source from which a module was packed. It is information for people and for tools; a run
/// does not need it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleOrigin {
    /// The file with the module: relative to the fleet directory, to the directory with
    /// `ansible_collections`, or to the directory with ansible-core.
    pub file: String,
    /// The collection. Empty: the module is from a library or from ansible-core.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub collection: String,
    /// Version of the collection. Empty: unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub collection_version: String,
    /// The documented options of the module, each with its aliases. Empty: not documented.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Vec<String>>,
}

/// A packed module and its archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedModule {
    /// Full name, with the collection.
    pub name: String,
    pub module: PythonModule,
    pub origin: ModuleOrigin,
    pub archive: Vec<u8>,
}

/// The reason why a module cannot run as Python on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModuleRefusal {
    /// No library, collection or ansible-core has the module.
    NotFound(String),
    /// This collection is not installed.
    NoCollection(String),
    /// The module with this full name has an action plugin, which runs on the controller.
    ActionPlugin(String),
    /// ansible-core is not installed.
    NoCore(String),
    /// Only native modules are allowed.
    NativeOnly,
    /// The generation was made without this module.
    NotStored,
    Failed(String),
}

/// Packs modules that are not native. Compilation stays pure, because an implementation returns
/// equal modules for equal requests as long as the fleet and the installed software are the same.
pub trait ModuleSource: std::fmt::Debug {
    fn pack(&self, request: &ModuleRequest) -> Result<Arc<PackedModule>, ModuleRefusal>;
}

impl Plan {
    /// Whether the plan sets facts whose names are only known during a run: those of a Python
    /// module, and those that `set_fact` sets by computed names.
    pub fn sets_unknown_facts(&self) -> bool {
        let mut computed = false;
        self.each_task(&mut |task| {
            computed |= task.module == "set_fact" && task.args.keys().any(|name| has_markup(name));
        });
        computed || self.modules.values().any(|module| module.facts)
    }

    /// Whether the module of this task sets facts.
    pub fn sets_facts(&self, task: &Task) -> bool {
        let python = || self.modules.get(&task.module).is_some_and(|module| module.facts);
        FACT_MODULES.contains(&task.module.as_str()) || python()
    }

    /// The tasks and handlers that run as Python, with the module of each.
    pub fn python_tasks(&self) -> Vec<(&Task, &PythonModule)> {
        let mut out = Vec::new();
        if !self.modules.is_empty() {
            self.each_task(&mut |task| out.extend(self.modules.get(&task.module).map(|module| (task, module))));
        }
        out
    }

    /// A warning for each task that is not native. `packer` is the machine that needs ansible-core.
    pub fn python_warnings(&self, packer: &str) -> Vec<Fault> {
        let warn = |(task, module): (&Task, &PythonModule)| {
            let message = format!(
                "module `{}` is not native: the node needs Python {} or newer, and {packer} needs ansible-core (found {})",
                task.module, module.min_python, module.core
            );
            Fault::warn(&task.place.file, task.place.line, 1, message)
        };
        self.python_tasks().into_iter().map(warn).collect()
    }

    /// Removes the modules that no task uses, because the tags of their tasks are not selected.
    /// Must be called before the version of the plan is set.
    pub(crate) fn drop_unused_modules(&mut self) {
        let mut used = BTreeSet::new();
        if !self.modules.is_empty() {
            self.each_task(&mut |task| {
                used.insert(task.module.clone());
            });
        }
        let unused: Vec<PythonModule> =
            self.modules.extract_if(.., |name, _| !used.contains(name)).map(|(_, m)| m).collect();
        for module in unused {
            if self.modules.values().all(|other| other.sha256 != module.sha256) {
                self.blobs.remove(&module.sha256);
            }
        }
    }
}
