//! The state of a compilation. The other files of this folder add methods to [`Compiler`], one file
//! for each part of the language.

use super::computed_lookup::ComputedLookup;
use super::diagnostics::Diagnostics;
use super::encrypted::EncryptedContent;
use super::lookup::LookupFiles;
use super::python_plugins::PluginFile;
use super::refusal::RefusedTask;
use super::{CompileOptions, HostContext, argument_specs};
use crate::filters::PluginUses;
use crate::lang::yaml::{self, SpannedNode};
use crate::plan::{Blob, Handler, PythonModule, SourcePlace, VarsFile};
use crate::vars::var_map::VarMap;
use remoor_model::{Fault, FileSet};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Maximum number of files opened for one plan.
const OPENED_MAX: u32 = 20_000;

pub(super) struct Compiler<'a> {
    pub files: &'a FileSet,
    pub host: &'a HostContext,
    pub options: &'a CompileOptions<'a>,
    /// The variables of the host, and the variables that are the same on all hosts, in the form
    /// that expressions use.
    pub inventory: Arc<VarMap>,
    pub diagnostics: Diagnostics,
    pub cache: FileCache,
    pub parts: PlanParts,
    pub current_play: PlayState,
    /// Variables of `run_once` tasks that the first host of the batch runs instead of this host,
    /// with the places of these tasks.
    pub set_on_first_host: Vec<(String, SourcePlace)>,
    /// Errors about variables that the argument specs of roles describe. An error is reported only
    /// if no task of the finished plan sets the variable.
    pub unmet: Vec<argument_specs::Unmet>,
    /// Tasks that cannot be compiled, of which the plan contains a refusal.
    pub refused: Vec<RefusedTask>,
    /// Tags of all tasks that the compiler has read.
    pub tags: BTreeSet<String>,
    pub encrypted: EncryptedContent,
}

/// Cached results about files of the fleet directory, because one file may be named several times.
#[derive(Default)]
pub(super) struct FileCache {
    /// The parsed files by path, or the error of the file.
    pub parsed: BTreeMap<String, Result<Rc<SpannedNode>, Fault>>,
    /// The faults of the templates that the compiler has checked, by path.
    pub checked: BTreeMap<String, Vec<Fault>>,
    /// By path: whether the file could be a file of tasks, and whether it could be one of
    /// variables.
    pub shapes: RefCell<BTreeMap<String, (bool, bool)>>,
    /// By path: the lookups of a file of variables whose names are computed.
    pub lookups_of_vars: BTreeMap<String, Vec<ComputedLookup>>,
    /// Directories that have modules of their own, see `module_dirs`. None: not yet searched.
    pub module_dirs: Option<Vec<String>>,
    /// The files with filters and tests in Python. None: not yet searched.
    pub plugin_files: Option<Rc<Vec<PluginFile>>>,
    /// Number of times that files of tasks, roles and playbooks were opened.
    pub opened: u32,
}

/// The parts of the plan that all plays share.
#[derive(Default)]
pub(super) struct PlanParts {
    pub layers: Vec<Map<String, Value>>,
    /// Index in `layers` of the variables of each variable file, by path.
    pub layer_of: BTreeMap<String, u32>,
    /// Indices in `layers` of the variables that list the other hosts of a play, and of settings of
    /// the run. The finished plan has only those of these variables that it reads.
    pub optional_layers: Vec<u32>,
    /// Indices in `layers` of the parameters of roles that other roles include. The finished plan
    /// has the names of those roles only if it reads them.
    pub layers_with_parents: Vec<u32>,
    pub blobs: BTreeMap<String, Blob>,
    pub modules: BTreeMap<String, PythonModule>,
    /// The files of the fleet directory that lookups read.
    pub lookup_files: LookupFiles,
    /// Whether the controller must find files of lookups, because the plan does not contain them.
    pub asks_for_files: bool,
    /// The filters and tests that are plugins in Python.
    pub plugin_uses: PluginUses,
    /// The directories whose plugins the plan may call, in order of preference.
    pub plugin_dirs: Vec<String>,
    /// Lookups of files whose names are computed, and that are not resolved yet.
    pub computed_lookups: Vec<ComputedLookup>,
    /// Number of tasks of the plan so far.
    pub tasks: u32,
    /// Number of lists of handlers so far: each play and each role of a play has one.
    pub handler_lists: u32,
}

/// The state of the play that is being compiled.
pub(super) struct PlayState {
    /// Directory of the playbook that contains the play.
    pub base: String,
    /// `alone`: whether this host is the only host of this run in the play. `first`: whether this
    /// host is the first of its batch.
    pub alone: bool,
    pub first: bool,
    /// Indices of the layers with the defaults and variables of the play's roles, which all tasks
    /// of the play see.
    pub defaults: Vec<u32>,
    pub exports: Vec<u32>,
    pub files: Vec<VarsFile>,
    pub handlers: Vec<Handler>,
    pub roles: PlayRoles,
}

/// The names of the roles of a play.
#[derive(Default)]
pub(super) struct PlayRoles {
    /// The roles that the play lists or imports, in order.
    pub listed: Vec<String>,
    /// The roles that other roles need.
    pub dependencies: BTreeSet<String>,
}

impl<'a> Compiler<'a> {
    pub fn new(files: &'a FileSet, host: &'a HostContext, options: &'a CompileOptions<'a>) -> Self {
        Self {
            files,
            host,
            options,
            inventory: Arc::new(VarMap::from_trusted(&host.vars).with_shared(&options.shared)),
            diagnostics: Diagnostics::default(),
            cache: FileCache::default(),
            parts: PlanParts::default(),
            current_play: PlayState {
                base: String::new(),
                alone: true,
                first: true,
                defaults: Vec::new(),
                exports: Vec::new(),
                files: Vec::new(),
                handlers: Vec::new(),
                roles: PlayRoles::default(),
            },
            set_on_first_host: Vec::new(),
            unmet: Vec::new(),
            refused: Vec::new(),
            tags: BTreeSet::new(),
            encrypted: EncryptedContent::default(),
        }
    }

    pub fn fault(&mut self, file: &str, at: (u32, u32), message: impl Into<String>) -> &mut Fault {
        self.diagnostics.fault(file, at, message)
    }

    pub fn fault_hint(&mut self, file: &str, at: (u32, u32), message: impl Into<String>, hint: impl Into<String>) {
        self.diagnostics.fault(file, at, message).hint = Some(hint.into());
    }

    /// Records that the plan exceeds a limit. No task can be left out for such a fault.
    pub fn limit_fault(&mut self, file: &str, at: (u32, u32), message: String) {
        // Each limit is reported once, at the first place.
        if self.diagnostics.limits.iter().all(|known| known.message != message) {
            self.diagnostics.limits.push(Fault::error(file, at.0, at.1, message));
        }
    }

    pub fn warn(&mut self, file: &str, at: (u32, u32), message: impl Into<String>, hint: impl Into<String>) {
        self.diagnostics.warn(file, at, message, hint);
    }

    /// Counts an opened file, and returns whether it may be opened. The limit is needed because the
    /// number of opened files multiplies if each file names others several times.
    pub fn opens(&mut self, file: &str, at: (u32, u32)) -> bool {
        self.cache.opened += 1;
        if self.cache.opened == OPENED_MAX {
            let message = format!("the playbook opens more than {OPENED_MAX} files of tasks, roles and playbooks");
            self.limit_fault(file, at, message);
        }
        self.cache.opened < OPENED_MAX
    }

    /// Parses a YAML file of the fleet directory; later calls return the same tree. None: the file
    /// has an error. It is recorded at each call, because each user of the file is refused for it.
    pub fn yaml(&mut self, path: &str, from: (&str, (u32, u32))) -> Option<Rc<SpannedNode>> {
        let parsed = match self.cache.parsed.get(path) {
            Some(known) => known.clone(),
            None => {
                let content = self.yaml_content(path);
                let text = match content.as_deref().map(std::str::from_utf8) {
                    Some(Ok(text)) => text,
                    other => {
                        let what = if other.is_some() { "is not UTF-8" } else { "is not in the fleet directory" };
                        self.fault(from.0, from.1, format!("{path} {what}"));
                        return None;
                    }
                };
                if remoor_vault::is_encrypted_yaml(text.as_bytes()) {
                    self.record_unopened_file(path);
                    return None;
                }
                match yaml::parse(path, text) {
                    Err(fault) => Err(fault),
                    Ok((mut node, warnings)) => {
                        self.diagnostics.warnings.extend(warnings);
                        self.open_texts(path, &mut node);
                        Ok(Rc::new(node))
                    }
                }
            }
        };
        self.cache.parsed.insert(path.to_owned(), parsed.clone());
        parsed.map_err(|fault| self.diagnostics.faults.push(fault)).ok()
    }

    /// Like `yaml`, for a file of tasks or plays. If the file is encrypted and can't be opened, the
    /// plan is not known to be complete.
    pub fn yaml_of_tasks(&mut self, path: &str, from: (&str, (u32, u32))) -> Option<Rc<SpannedNode>> {
        let node = self.yaml(path, from);
        if node.is_none() && self.encrypted.unopened.contains(path) {
            self.encrypted.unopened_tasks.insert(path.to_owned());
        }
        node
    }

    /// Checks a template by `check`. Later calls for the same path record the same faults again,
    /// because each user of the template is refused for them.
    pub fn check_once(&mut self, path: &str, check: impl FnOnce(&mut Self)) {
        if let Some(known) = self.cache.checked.get(path) {
            self.diagnostics.faults.extend(known.iter().cloned());
            return;
        }
        let from = self.diagnostics.faults.len();
        // A template may look up itself.
        self.cache.checked.insert(path.to_owned(), Vec::new());
        check(self);
        let found = self.diagnostics.faults[from..].to_vec();
        self.cache.checked.insert(path.to_owned(), found);
    }

    pub fn layer(&mut self, vars: Map<String, Value>) -> Vec<u32> {
        if vars.is_empty() {
            return Vec::new();
        }
        self.parts.layers.push(vars);
        vec![(self.parts.layers.len() - 1) as u32]
    }
}
