//! Compiles tasks whose module is not native: it is packed as Python and becomes part of the plan.

use super::module_specs::ModuleSpec;
use super::{Compiler, Context, HINT_ANSIBLE, assets, module_specs, options};
use crate::lang::word_split;
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::{Blob, ModuleRefusal, ModuleRequest, PackedModule};
use crate::vars::var_map;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Subdirectories in which a playbook or a role has modules and plugins of its own.
const OWN: [&str; 4] = ["library", "module_utils", "action_plugins", "collections"];
/// Native modules that Ansible runs by an action plugin. A module of the same name in a library
/// does not replace them.
const ACTIONS: &str = "add_host assert async_status command copy debug dnf fail group_by include_role include_tasks import_role import_tasks \
    include_vars meta package pause raw script service set_fact set_stats shell template unarchive uri";

impl Compiler<'_> {
    /// Adds a module to the plan as Python, and returns its name in the plan.
    pub(super) fn python_module(&mut self, own: &Context, named: &str) -> Result<String, ModuleRefusal> {
        let source = self.options.modules.ok_or(ModuleRefusal::NativeOnly)?;
        let request = ModuleRequest {
            name: named.to_owned(),
            dirs: self.dirs_of_modules(own),
            collections: if named.contains('.') { Vec::new() } else { own.keywords.collections.clone() },
        };
        source.pack(&request).and_then(|packed| self.add_module(&packed))
    }

    fn add_module(&mut self, packed: &Arc<PackedModule>) -> Result<String, ModuleRefusal> {
        let PackedModule { name, module, archive, .. } = &**packed;
        let mut key = name.clone();
        // Two roles may have different modules of one name.
        if self.parts.modules.get(&key).is_some_and(|other| other != module) {
            key = format!("{name}@{}", module.sha256.get(..8).unwrap_or_default());
        }
        if !self.parts.blobs.contains_key(&module.sha256) {
            let total: usize = self.parts.blobs.values().map(|blob| blob.0.len()).sum();
            if total + archive.len() > assets::BLOBS_MAX {
                let most = assets::BLOBS_MAX >> 20;
                return Err(ModuleRefusal::Failed(format!("the files and modules of this plan exceed {most} MiB")));
            }
            self.parts.blobs.insert(module.sha256.clone(), Blob(archive.clone()));
        }
        self.parts.modules.insert(key.clone(), module.clone());
        Ok(key)
    }

    /// The Python module that Ansible would run instead of the native module `short`: one of a
    /// library, if the name has no collection, or one of a collection of `collections`.
    pub(super) fn replacement_of_native(
        &mut self,
        own: &Context,
        named: &str,
        short: &str,
    ) -> Option<Result<String, ModuleRefusal>> {
        let source = self.options.modules?;
        if named.starts_with("ansible.builtin.") || module_specs::has_word(ACTIONS, short) {
            return None;
        }
        let plain = named.strip_prefix("ansible.legacy.").unwrap_or(named);
        if plain.contains('.') {
            return None;
        }
        let dirs = self.dirs_of_modules(own);
        let foreign = |name: &&String| !is_usual_collection(name);
        let candidates =
            own.keywords.collections.iter().filter(foreign).map(|collection| format!("{collection}.{plain}"));
        for name in candidates.collect::<Vec<_>>() {
            let request = ModuleRequest { name, dirs: dirs.clone(), collections: Vec::new() };
            match source.pack(&request) {
                Ok(packed) => return Some(self.add_module(&packed)),
                Err(ModuleRefusal::NotFound(_) | ModuleRefusal::NoCollection(_)) => {}
                // The native module could do something else than the module that is meant.
                Err(refusal) => return Some(Err(refusal)),
            }
        }
        let has = |dir: &String| {
            let path = assets::join(dir, &format!("library/{plain}.py")).unwrap_or_default();
            self.files.get(&path).is_some()
        };
        if !dirs.iter().any(has) {
            return None;
        }
        Some(self.python_module(own, plain))
    }

    /// The Python module for a task of the native module `spec` that sets an option or a value
    /// which the native module does not support. `given` are the places where options are written.
    /// None: the native module supports the task, or its Python module is not available. Then the
    /// native module decides.
    pub(super) fn replacement_for_options(
        &mut self,
        own: &Context,
        named: &str,
        spec: &ModuleSpec,
        given: &[&SpannedNode],
    ) -> Option<String> {
        if self.options.modules.is_none() || module_specs::has_word(ACTIONS, spec.name) {
            return None;
        }
        let defaults = own.keywords.module_defaults.get(spec.name).cloned();
        let unsupported = |(name, value): &(String, Value)| {
            let refused = options::is_refused(spec, name) && var_map::boolean(value) != Some(false);
            refused || value.as_str().is_some_and(|text| options::is_refused_value(spec.name, name, text))
        };
        let mut all = given.iter().copied().chain(defaults.as_deref()).flat_map(written_options);
        all.any(|option| unsupported(&option)).then(|| self.python_module(own, named).ok())?
    }

    /// Adds the Python module of a native one to the plan, if only the run knows whether an option
    /// has a value that the native module does not support. The run then selects one of them.
    pub(super) fn pack_for_values(
        &mut self,
        own: &Context,
        named: &str,
        spec: &ModuleSpec,
        (given, pairs): (&[&SpannedNode], &[(SpannedKey, SpannedNode)]),
    ) {
        let computed = |(name, value): &(String, Value)| {
            options::has_refused_values(spec.name, name)
                && value.as_str().is_some_and(|text| options::may_be_refused_value(spec.name, name, text))
        };
        let options: Vec<(String, Value)> = given.iter().copied().flat_map(written_options).filter(computed).collect();
        let Some((option, _)) = options.first().filter(|_| self.options.modules.is_some()) else { return };
        let refused = |text: &str| options::is_refused_value(spec.name, option, text);
        let scope = self.known_scope(own);
        let names = scope.names();
        let mut variables = names.iter().filter(|name| !matches!(&***name, "groups" | "hostvars"));
        let of_variables = variables.any(|name| scope.get(name).is_some_and(|var| has_text(&var.json(), &refused)));
        if of_variables || pairs.iter().any(|(_, value)| has_text(&value.json(), &refused)) {
            let _stays_refused = self.python_module(own, named);
        }
    }

    /// Refuses the options of a packed module that name files on the controller, because only the
    /// action plugin of the module reads these files.
    pub(super) fn check_controller_options(
        &mut self,
        own: &Context,
        at: (u32, u32),
        packed: &str,
        given: &[&SpannedNode],
    ) -> bool {
        let name = packed.split('@').next().unwrap_or_default();
        let all: Vec<(String, Value)> = given.iter().flat_map(|node| written_options(node)).collect();
        let value = |option: &str| all.iter().find(|(name, _)| name == option).map(|(_, value)| value);
        // On the controller, the action plugin searches a relative name in the directories of the
        // role. `packer.py` has the list of these modules.
        let here = self.is_local() || own.keywords.delegate_to.is_some();
        let is_relative = |option: &str| {
            let text = value(option).and_then(Value::as_str).unwrap_or_default();
            !text.is_empty() && !text.starts_with(['/', '~', '{']) && !text.contains("://")
        };
        let (option, hint) = match name {
            "ansible.posix.patch" if value("remote_src").and_then(var_map::boolean) != Some(true) => {
                ("src", "copy the file to the node before, and set `remote_src: true`")
            }
            _ if !name.starts_with("kubernetes.core.") && name != "amazon.aws.s3_object" => return true,
            _ if value("template").is_some() => {
                ("template", "use `definition` with the lookup `template` and the filter `from_yaml_all`")
            }
            _ => match ["src", "kubeconfig", "local_path"].into_iter().find(|option| here && is_relative(option)) {
                Some(option) => (option, "write an absolute path"),
                None => return true,
            },
        };
        let message = format!("`{option}` of {name} names a file of the controller, which is not part of the language");
        self.fault_hint(&own.file, at, message, hint);
        false
    }

    /// Records why a module cannot run as Python.
    pub(super) fn module_refusal_fault(&mut self, file: &str, at: (u32, u32), named: &str, refusal: &ModuleRefusal) {
        let (message, hint) = refusal_text(named, refusal);
        self.fault(file, at, message).hint = Some(hint);
        if fails_in_ansible(refusal) {
            self.diagnostics.mark_in_ansible();
        }
    }

    /// The directories of the fleet that may have modules for this task: those of the playbook and
    /// of the role, then those of other roles, because Ansible finds the modules of every role of a
    /// play.
    fn dirs_of_modules(&mut self, own: &Context) -> Vec<String> {
        let all = match self.cache.module_dirs.take() {
            Some(all) => all,
            None => self.module_dirs(),
        };
        let first = [Some(&self.current_play.base), own.role.as_ref().map(|role| &role.dir)];
        let mut out: Vec<String> = first.into_iter().flatten().filter(|dir| all.contains(dir)).cloned().collect();
        let is_role = |dir: &str| matches!(assets::parent(dir).rsplit('/').next(), Some("roles"));
        out.extend(all.iter().filter(|dir| dir.is_empty() || is_role(dir)).cloned());
        let mut seen = BTreeSet::new();
        out.retain(|dir| seen.insert(dir.clone()));
        self.cache.module_dirs = Some(all);
        out
    }

    /// All directories with a subdirectory for modules or plugins.
    fn module_dirs(&self) -> Vec<String> {
        let mut out = BTreeSet::new();
        for path in self.files.0.keys() {
            let parts: Vec<&str> = path.split('/').collect();
            let inner = &parts[..parts.len() - 1];
            if let Some(at) = inner.iter().position(|part| OWN.contains(part)) {
                out.insert(inner[..at].join("/"));
            }
        }
        out.into_iter().collect()
    }
}

/// Whether a text in the value fits.
fn has_text(value: &Value, fits: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => fits(text),
        Value::Array(items) => items.iter().any(|item| has_text(item, fits)),
        Value::Object(map) => map.values().any(|item| has_text(item, fits)),
        _ => false,
    }
}

/// The options that are written as a map or as `option=value` in one text.
fn written_options(node: &SpannedNode) -> Vec<(String, Value)> {
    match &node.data {
        SpannedData::Map(pairs) => pairs.iter().map(|(key, value)| (key.text.clone(), value.json())).collect(),
        SpannedData::Text(text) => {
            let words = word_split::split_words(text).unwrap_or_default();
            let pair = |word: &word_split::ShellWord| {
                word.text.split_once('=').map(|(name, value)| (name.to_owned(), Value::from(value)))
            };
            words.iter().filter_map(pair).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether short names mean the same with or without this collection in `collections`.
pub(super) fn is_usual_collection(name: &str) -> bool {
    ["ansible.builtin", "ansible.legacy", "ansible.posix"].contains(&name) || name.starts_with("community.")
}

/// Whether Ansible cannot run the module on a host with Linux either, with what is installed.
pub(super) fn fails_in_ansible(refusal: &ModuleRefusal) -> bool {
    matches!(refusal, ModuleRefusal::NotFound(_) | ModuleRefusal::NoCollection(_))
}

/// The error and the hint for a module that cannot run as Python.
pub(super) fn refusal_text(named: &str, refusal: &ModuleRefusal) -> (String, String) {
    match refusal {
        ModuleRefusal::NativeOnly => {
            (format!("module `{named}` is not native, and only native modules are allowed"), HINT_ANSIBLE.to_owned())
        }
        ModuleRefusal::NotFound(why) => (
            format!("module `{named}` was not found: {why}"),
            "check its spelling; a module of your own belongs in `library/` beside the playbook or in its role"
                .to_owned(),
        ),
        ModuleRefusal::NoCollection(name) => (
            format!("module `{named}`: the collection {name} is not installed"),
            format!("ansible-galaxy collection install {name}"),
        ),
        ModuleRefusal::ActionPlugin(full) => (
            format!(
                "module `{named}` has an action plugin ({full}), which runs on the controller and is not part of the language"
            ),
            HINT_ANSIBLE.to_owned(),
        ),
        ModuleRefusal::NoCore(why) => (
            format!("module `{named}` is not native and needs ansible-core on this machine: {why}"),
            "pipx install ansible-core (or apt install ansible-core); REMOOR_ANSIBLE_PYTHON names its Python"
                .to_owned(),
        ),
        ModuleRefusal::NotStored => (
            format!("module `{named}` is not in this generation"),
            "a fleet stores the modules that its playbooks need when it is applied, at most 2000; a variable that \
             only a job sets does not count"
                .to_owned(),
        ),
        ModuleRefusal::Failed(why) => (format!("module `{named}` cannot be packed: {why}"), HINT_ANSIBLE.to_owned()),
    }
}
