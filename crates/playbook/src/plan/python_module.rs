//! Modules that a plan carries as Python, because remoor has no native form of them; and the
//! source from which the compiler gets them.

use super::{PLAN_VERSION, Plan, SourcePlace, Task};
use crate::compile;
use crate::filters::{PluginKind, PluginSet};
use crate::modules::{self, FACT_MODULES};
use crate::template::lint;
use crate::vars::var_map::has_markup;
use remoor_model::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

/// The question for a filter or test that is not native.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PluginRequest {
    pub kind: PluginKind,
    /// The name in the playbook, with or without a collection.
    pub name: String,
    /// Whether a file of the playbook's directory defines it. Otherwise only the installed
    /// ansible-core knows whether the plugin exists.
    pub in_files: bool,
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

    /// Whether the controller can call a filter or test in Python.
    fn find_plugin(&self, _request: &PluginRequest) -> Result<(), ModuleRefusal> {
        Err(ModuleRefusal::NativeOnly)
    }

    /// Whether Ansible refuses the syntax of a template too. False: Ansible accepts it, or nobody
    /// knows.
    fn refuses_template(&self, _text: &str) -> bool {
        false
    }
}

impl Task {
    /// Whether the Python module `name` can run instead of the native module of this task.
    pub(crate) fn may_run_as(&self, name: &str) -> bool {
        let name = name.split('@').next().unwrap_or_default();
        name != self.module && compile::short_name(name) == self.module
    }
}

impl Plan {
    /// Whether the plan sets facts whose names are only known during a run: those of a Python
    /// module, and those that `set_fact` sets by computed names.
    pub fn sets_unknown_facts(&self) -> bool {
        self.computes_names().is_some() || self.modules.values().any(|module| module.facts)
    }

    /// The first `set_fact` task that computes the name of a variable.
    pub fn computes_names(&self) -> Option<&Task> {
        let mut found = None;
        self.each_task(&mut |task| {
            if found.is_none() && task.module == "set_fact" && task.args.keys().any(|name| has_markup(name)) {
                found = Some(task);
            }
        });
        found
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

    /// A warning for each task that is not native or calls a plugin. `packer` is the machine that
    /// needs ansible-core.
    pub fn python_warnings(&self, packer: &str) -> Vec<Fault> {
        let warn = |(task, module): (&Task, &PythonModule)| {
            let message = format!(
                "module `{}` is not native: the node needs Python {} or newer, and {packer} needs ansible-core (found {})",
                task.module, module.min_python, module.core
            );
            Fault::warn(&task.place.file, task.place.line, 1, message)
        };
        let plugins = self.plugin_uses().into_iter().map(|(place, kind, name)| {
            let message = format!("{kind} `{name}` is a plugin in Python, for which {packer} needs ansible-core");
            Fault::warn(&place.file, place.line, 1, message)
        });
        self.python_tasks().into_iter().map(warn).chain(plugins).collect()
    }

    /// The tasks that call filters and tests in Python. A plugin that only variables call has the
    /// place of the playbook.
    fn plugin_uses(&self) -> Vec<(SourcePlace, &'static str, String)> {
        let PluginSet { mut names, .. } = PluginSet::of_plan(&self.extra);
        let (mut out, all) = (Vec::new(), names.clone());
        if all.is_empty() {
            return out;
        }
        self.each_task(&mut |task| {
            // Only a template is rendered; other modules use a file as it is.
            let files = task.files.assets.values().filter(|_| task.module == "template");
            let files = files.chain(task.files.parts.values());
            let files = files.filter_map(|asset| modules::asset_content(self, asset).ok());
            let mut text: String = files.map(String::from_utf8_lossy).collect();
            let conditions = [&task.outcome.failed_when, &task.outcome.changed_when, &task.retry.until];
            let conditions = task.when.iter().chain(conditions.into_iter().flatten().flatten());
            conditions.for_each(|condition| text += &format!("{{{{ {} }}}}", condition.text));
            add_texts(&serde_json::to_value(task).unwrap_or_default(), &mut text);
            let named = lint::filters_and_tests(&text).into_iter().chain(lint::names_in_arguments(&text));
            let named = named.map(|(kind, name)| (PluginKind::from(kind), name)).collect::<BTreeSet<_>>();
            for (kind, name) in named.intersection(&all) {
                names.remove(&(*kind, name.clone()));
                out.push((task.place.clone(), kind.as_word(), name.clone()));
            }
        });
        let place = SourcePlace { file: self.playbook.clone(), line: 0 };
        out.extend(names.into_iter().map(|(kind, name)| (place.clone(), kind.as_word(), name)));
        out
    }

    /// Removes the modules that no task uses, because the tags of their tasks are not selected.
    /// Must be called before the version of the plan is set.
    pub(crate) fn drop_unused_modules(&mut self) {
        let mut used = BTreeSet::new();
        let names: Vec<String> = self.modules.keys().cloned().collect();
        if !names.is_empty() {
            self.each_task(&mut |task| {
                let is_used = |name: &&String| task.module == **name || task.may_run_as(name);
                used.extend(names.iter().filter(is_used).cloned());
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

/// Adds all texts with markup in a value.
fn add_texts(value: &Value, out: &mut String) {
    match value {
        Value::String(text) if has_markup(text) => *out += text,
        Value::Array(items) => items.iter().for_each(|item| add_texts(item, out)),
        Value::Object(map) => map.values().for_each(|item| add_texts(item, out)),
        _ => {}
    }
}
