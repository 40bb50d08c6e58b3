//! Compiles files to a plan for one host. Compilation finds every error that can be detected
//! without the node, and reports it with its place.
//!
//! Compilation is pure: it reads only the given file set. It collects errors instead of stopping at
//! the first.

mod args;
mod argument_specs;
mod assets;
mod compiler;
mod computed_lookup;
mod context;
mod controller_files;
mod diagnostics;
mod encrypted;
mod handlers;
mod include;
mod include_vars;
mod inherit;
mod lookup;
pub mod module_specs;
mod needed_vars;
mod opened_secrets;
mod option_types;
pub mod options;
mod play;
mod playbook;
mod prompts;
mod python_module;
mod python_plugins;
mod refusal;
mod repeat;
mod role;
mod tags;
mod task;

pub(super) use assets::{join, subdir};
pub use controller_files::ControllerFiles;
pub use encrypted::{VaultAccess, downgrade_undefined, is_about_undefined};
pub(super) use module_specs::short_name;
pub(super) use needed_vars::{
    facts_read, names_set, names_set_by, needed_vars, needed_with_shared, reads_python_facts, words_of,
};
pub(super) use option_types::check_rendered;
pub(super) use options::conflicting_options;
pub(super) use options::is_refused_value;
pub use prompts::{PromptAnswers, PromptHash, VarsPrompt, vars_prompts};
pub use refusal::{merge_refusal_notes, refusal_message};
pub use tags::SPECIAL as SPECIAL_TAGS;

use super::plan::{ModuleSource, PLAN_VERSION, PYTHON_PLAN_VERSION, Plan, TaskCondition};
use crate::filters;
use crate::lang::hosts::InventoryNames;
use crate::lang::yaml::{SpannedData, SpannedNode};
use crate::plan::PlanSecrets;
use crate::plan::schedule::PlayKeys;
use crate::run::secrets::SecretTexts;
use crate::template::expr;
use crate::vars::var_map::{self, SharedVar};
use compiler::{Compiler, PlanParts};
use context::{Context, Role};
use diagnostics::Diagnostics;
use encrypted::EncryptedContent;
use remoor_model::{Fault, FileSet};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Hint for everything that only Ansible supports.
pub(crate) const HINT_ANSIBLE: &str = "use `provisioner: ansible`";

/// The host for which a playbook is compiled, as the inventory describes it.
#[derive(Debug, Clone, Default)]
pub struct HostContext {
    pub name: String,
    pub group: String,
    /// Merged inventory variables, including `inventory_hostname`, `group_names`, `groups`,
    /// `hostvars`, `node` and `peers`.
    pub vars: Map<String, Value>,
    /// The origin of variables, for messages: `group_vars/web.yml`, `inventory.yml: host w1`.
    pub origins: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
pub struct CompileOptions<'a> {
    /// Tags of the tasks to include. If the list is empty, all tasks are included except those
    /// tagged `never`. Tasks tagged `always` are always included; `all`, `tagged` and `untagged`
    /// are supported.
    pub tags: &'a [String],
    /// Tasks with one of these tags are left out, whatever `tags` contains.
    pub skip_tags: &'a [String],
    /// Extra variables, which take precedence over all other variables.
    pub extra_vars: Map<String, Value>,
    /// The values that were entered for `vars_prompt`. Other variables of it have their defaults.
    pub prompted: PromptAnswers,
    /// Whether tasks run as root unless their `become` is false.
    pub elevated: bool,
    /// The inventory; its limit is the set of hosts of this run. None: only this host.
    pub hosts: Option<&'a InventoryNames>,
    /// Variables that are the same on all hosts; they take precedence over those of the host.
    pub shared: BTreeMap<String, SharedVar>,
    /// Permission bits of the files by path. None: they are not known.
    pub modes: Option<&'a BTreeMap<String, u32>>,
    /// Absolute path of the fleet directory. If the text is empty, playbooks cannot use absolute
    /// paths.
    pub root: &'a str,
    /// Whether the host is the machine on which the run starts, whatever the inventory contains.
    pub here: bool,
    /// Files that the controller sends during the run. None: it sends none.
    pub controller_files: Option<&'a dyn ControllerFiles>,
    /// The login user that all plays of the host have in `remote_user`. None: the inventory or the
    /// command chooses the login user.
    pub remote_user: Option<&'a str>,
    /// Whether the run has a controller that runs delegated tasks, as `remoor play` has. Otherwise
    /// a task of another host is refused.
    pub delegates: bool,
    /// Packs modules that are not native. None: such modules are faults.
    pub modules: Option<&'a dyn ModuleSource>,
    /// Opens encrypted files and values. None: there is no password.
    pub vault: Option<VaultAccess<'a>>,
}

#[derive(Debug, Clone)]
pub struct Compiled {
    pub plan: Plan,
    pub warnings: Vec<Fault>,
    /// A warning for each task that could not be compiled and that fails if a run reaches it.
    pub refused: Vec<Fault>,
    /// Tags of all tasks in this host's plays, including tasks that `CompileOptions::tags` leaves
    /// out.
    pub tags: BTreeSet<String>,
    /// Warnings about encrypted content that no password opens, and that counts as unknown. Empty
    /// unless `VaultAccess::may_stay_encrypted`.
    pub unknown: Vec<Fault>,
    /// Encrypted files of variables that could not be opened. Variables that seem undefined may be
    /// defined in them. Empty unless `VaultAccess::may_stay_encrypted`.
    pub unopened: BTreeSet<String>,
    /// Encrypted files of tasks or plays that could not be opened, so that it is not known which
    /// modules they need. Empty unless `VaultAccess::may_stay_encrypted`.
    pub unopened_tasks: BTreeSet<String>,
}

/// Compiles `playbook` (a path in `files`) for one host. The error contains every fault that can be
/// detected without the node.
pub fn compile(
    files: &FileSet,
    playbook: &str,
    host: &HostContext,
    options: &CompileOptions,
) -> Result<Compiled, Vec<Fault>> {
    let vault = options.vault.map(|access| access.vault);
    let open = |vars: &Map<String, Value>| {
        vault.filter(|_| encrypted::any_sealed(vars)).map(|v| encrypted::open_variables(v, vars))
    };
    let (opened_host, opened_options);
    let (sealed_host, sealed_extra) = (host, &options.extra_vars);
    let host = match open(&host.vars) {
        None => host,
        Some(vars) => {
            opened_host = HostContext { vars, ..host.clone() };
            &opened_host
        }
    };
    let options = match open(&options.extra_vars) {
        None => options,
        Some(extra_vars) => {
            opened_options = CompileOptions { extra_vars, ..options.clone() };
            &opened_options
        }
    };
    let mut compiler = Compiler::new(files, host, options);
    let sources = compiler.sources(playbook);
    let mut plays = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        plays.extend(compiler.play(index, source));
    }
    let extra = compiler.extra();
    let PlanParts { layers, optional_layers, layers_with_parents, blobs, modules, .. } = compiler.take_parts();
    let mut plan = Plan {
        version: PLAN_VERSION,
        playbook: playbook.to_owned(),
        host: host.name.clone(),
        vars: Map::new(),
        shared: BTreeMap::new(),
        extra,
        layers,
        plays,
        blobs,
        modules,
        delegated: None,
        resumed: None,
        shares: None,
        secrets: PlanSecrets::default(),
    };
    plan.drop_unused_modules();
    if !plan.modules.is_empty() {
        plan.version = PYTHON_PLAN_VERSION;
    }
    (plan.vars, plan.shared) = needed_with_shared(&plan, &host.vars, &options.shared);
    let asks = compiler.resolve_inventory_lookups(&plan);
    if compiler.note_plugins_of_plan(&plan) || asks {
        plan.extra = compiler.extra();
        (plan.vars, plan.shared) = needed_with_shared(&plan, &host.vars, &options.shared);
    }
    let opened = compiler.finish_secrets(&mut plan, sealed_host, sealed_extra);
    let Compiler { diagnostics, set_on_first_host: elsewhere, unmet, refused, tags, mut encrypted, .. } = compiler;
    let Diagnostics { mut faults, limits, mut warnings, in_ansible } = diagnostics;
    faults.extend(limits);
    faults.extend(needed_vars::missed_names(&plan, &elsewhere));
    faults.extend(argument_specs::unmet_faults(&plan, unmet, &host.vars));
    let (reached, mut refused) = Compiler::refusal_faults(refused, &plan, &in_ansible);
    faults.extend(reached);
    if options.delegates {
        [&mut faults, &mut warnings, &mut refused].into_iter().for_each(|list| diagnostics::name_no_fleet(list));
    }
    diagnostics::sort_faults(&mut faults);
    if opened.exceeds_limits() {
        return Err(vec![encrypted::limit_fault(playbook)]);
    }
    let masks = SecretTexts::new(&opened);
    if !faults.is_empty() {
        masks.mask_faults(&mut faults);
        return Err(faults);
    }
    for list in [&mut warnings, &mut refused, &mut encrypted.unknown] {
        diagnostics::sort_faults(list);
        masks.mask_faults(list);
    }
    // Of the variables about other hosts and about the run, only those that the playbook reads are
    // kept. So a change of another one of these variables does not change the plan.
    for layer in optional_layers {
        let vars = std::mem::take(&mut plan.layers[layer as usize]);
        plan.layers[layer as usize] = needed_vars(&plan, &vars);
    }
    for layer in layers_with_parents {
        let names = ["ansible_parent_role_names", "ansible_parent_role_paths"];
        let own = &mut plan.layers[layer as usize];
        let vars = names.iter().filter_map(|name| own.shift_remove_entry(*name)).collect();
        let read = needed_vars(&plan, &vars);
        plan.layers[layer as usize].extend(read);
    }
    let EncryptedContent { unknown, unopened, unopened_tasks, .. } = encrypted;
    Ok(Compiled { plan, warnings, refused, tags, unknown, unopened, unopened_tasks })
}

/// The plays of `playbook`, in order, with the keywords that concern all their hosts. These
/// keywords can use only variables of the play and extra variables. The caller makes a `Schedule`
/// of each play.
pub fn outline(
    files: &FileSet,
    playbook: &str,
    extra_vars: &Map<String, Value>,
    prompted: &PromptAnswers,
    vault: Option<VaultAccess>,
) -> Result<Vec<PlayKeys>, Vec<Fault>> {
    let extra_vars = vault.map_or_else(|| extra_vars.clone(), |v| encrypted::open_variables(v.vault, extra_vars));
    // The compilation for a host decides whether there is a controller.
    let delegates = true;
    let options =
        CompileOptions { extra_vars, prompted: prompted.clone(), vault, delegates, ..CompileOptions::default() };
    let nobody = HostContext::default();
    let mut compiler = Compiler::new(files, &nobody, &options);
    let mut out = Vec::new();
    for (index, source) in compiler.sources(playbook).iter().enumerate() {
        out.extend(compiler.outline_play(index, source));
    }
    let mut opened = PlanSecrets::default();
    compiler.encrypted.opened.record_all(&mut opened);
    if opened.exceeds_limits() {
        return Err(vec![encrypted::limit_fault(playbook)]);
    }
    let masks = SecretTexts::new(&opened);
    let Diagnostics { mut faults, limits, .. } = compiler.diagnostics;
    faults.extend(limits);
    diagnostics::name_no_fleet(&mut faults);
    diagnostics::sort_faults(&mut faults);
    masks.mask_faults(&mut faults);
    if faults.is_empty() { Ok(out) } else { Err(faults) }
}

impl Compiler<'_> {
    /// Takes the parts of the plan. Lookups and plugins stay, because later checks ask for them.
    fn take_parts(&mut self) -> PlanParts {
        let parts = &self.parts;
        let lookups = PlanParts {
            lookup_files: parts.lookup_files.clone(),
            asks_for_files: parts.asks_for_files,
            plugin_uses: parts.plugin_uses.clone(),
            plugin_dirs: parts.plugin_dirs.clone(),
            ..PlanParts::default()
        };
        std::mem::replace(&mut self.parts, lookups)
    }

    /// Reads the variables of a keyword such as `vars`.
    fn vars(&mut self, file: &str, node: &SpannedNode) -> Map<String, Value> {
        self.vars_of(file, node, false)
    }

    /// Reads a map of variables and checks its templates. Ansible checks the names of variables in
    /// keywords, but not in a file of variables.
    fn vars_of(&mut self, file: &str, node: &SpannedNode, is_file: bool) -> Map<String, Value> {
        match &node.data {
            SpannedData::Null => Map::new(),
            SpannedData::Map(pairs) => {
                for (key, _) in pairs {
                    let (name, at) = (key.text.as_str(), (key.line, key.column));
                    if !is_name(name) && is_name_in_python(name) {
                        let message = format!("`{name}` has letters beyond ASCII, so no template can read it");
                        self.warn(file, at, message, "rename the variable");
                    } else if !is_name(name) && is_file {
                        let message = format!("`{name}` is not a name, so only the lookup `vars` can read it");
                        self.warn(file, at, message, "rename the variable");
                    } else if !is_name(name) {
                        self.fault(file, at, format!("`{name}` cannot be the name of a variable"));
                    }
                }
                self.check_markup(file, node);
                match node.json() {
                    Value::Object(map) => map,
                    _ => Map::new(),
                }
            }
            _ => {
                self.fault(
                    file,
                    (node.line, node.column),
                    format!("expected a map of variables, found {}", node.kind()),
                );
                Map::new()
            }
        }
    }

    /// Checks every template in a value.
    fn check_markup(&mut self, file: &str, node: &SpannedNode) {
        match &node.data {
            SpannedData::Text(text) if var_map::has_markup(text) => {
                if let Err(e) = self.check_template(text) {
                    self.template_fault(file, (node.line, node.column), &e);
                    self.ask_about_syntax(&e, text);
                }
                self.check_lookups(file, (node.line, node.column), text);
            }
            SpannedData::List(items) => items.iter().for_each(|item| self.check_markup(file, item)),
            SpannedData::Map(pairs) => pairs.iter().for_each(|(_, item)| self.check_markup(file, item)),
            _ => {}
        }
    }

    fn template_fault(&mut self, file: &str, at: (u32, u32), error: &minijinja::Error) {
        use minijinja::ErrorKind;
        // For a feature that remoor rejects on purpose, the error already contains the reason. Then
        // the message must not call the filter or test unknown.
        let reasons = ["is not part of the language", filters::ONLY_IN_PLAY];
        let refused = error.detail().is_some_and(|detail| reasons.iter().any(|why| detail.contains(why)));
        let unknown = if refused { "" } else { "unknown " };
        let message = match error.kind() {
            ErrorKind::SyntaxError => format!("template: {}", error.detail().unwrap_or("syntax error")),
            ErrorKind::UnknownFilter => format!("{unknown}filter {}", error.detail().unwrap_or("")),
            ErrorKind::UnknownTest => format!("{unknown}test {}", error.detail().unwrap_or("")),
            ErrorKind::UnknownMethod => format!("method {}", error.detail().unwrap_or("")),
            _ => format!("template: {}", expr::explain(error)),
        };
        self.fault(file, at, message).hint = refused.then(|| HINT_ANSIBLE.to_owned());
        let is_name = matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownTest);
        if is_name && !refused && error.detail().is_some_and(filters::is_unknown_to_ansible) {
            self.diagnostics.mark_in_ansible();
        }
    }

    /// Asks whether Ansible refuses the template `text` too, whose fault has just been recorded.
    fn ask_about_syntax(&mut self, error: &minijinja::Error, text: &str) {
        let is_syntax = error.kind() == minijinja::ErrorKind::SyntaxError;
        if self.options.modules.is_some_and(|source| is_syntax && source.refuses_template(text)) {
            self.diagnostics.mark_in_ansible();
        }
    }

    /// Reads `when` and similar keywords: one condition or a list of conditions. As in Ansible, a
    /// `when` without a value is no condition.
    fn conditions(&mut self, file: &str, key: &str, node: &SpannedNode) -> Vec<TaskCondition> {
        if key == "when" && node.data == SpannedData::Null {
            return Vec::new();
        }
        let items = node.list().unwrap_or(std::slice::from_ref(node));
        let mut out = Vec::new();
        for item in items {
            let at = (item.line, item.column);
            let Some(text) = item.text() else {
                self.fault(file, at, format!("`{key}` takes conditions, found {}", item.kind()));
                continue;
            };
            if var_map::has_markup(&text) {
                self.warn(file, at, format!("`{key}` is already an expression"), "leave out the {{ }}");
            }
            if let Err(e) = self.check_expression(&text) {
                self.template_fault(file, at, &e);
            }
            self.check_lookups(file, at, &format!("{{{{{text}}}}}"));
            out.push(TaskCondition { text, line: item.line });
        }
        out
    }

    /// Reads a text or a list of texts that must be known before the run. The value may be numbers,
    /// words, or markup that results in them.
    fn known_texts(&mut self, file: &str, key: &str, node: &SpannedNode, context: &Context) -> Vec<String> {
        let at = (node.line, node.column);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match expr::render_json(&self.known_scope(context), &node.json()) {
            Ok(Value::Array(items)) => items.iter().map(text).collect(),
            Ok(Value::Null | Value::Object(_)) => {
                self.fault(file, at, format!("`{key}` takes one value, found {}", node.kind()));
                Vec::new()
            }
            Ok(value) => vec![text(&value)],
            Err(e) => {
                let message = format!("`{key}` must be known before the run: {}", expr::explain(&e));
                self.fault_hint(file, at, message, HINT_ANSIBLE);
                Vec::new()
            }
        }
    }

    /// Reads a boolean that must be known before the run.
    fn known_bool(&mut self, file: &str, key: &str, node: &SpannedNode, context: &Context) -> bool {
        if !node.text().is_some_and(|text| var_map::has_markup(&text)) {
            return self.boolean(file, key, node);
        }
        let Some(text) = self.known_texts(file, key, node, context).pop() else { return false };
        let known = SpannedNode { data: SpannedData::Text(text), ..node.clone() };
        self.boolean(file, key, &known)
    }

    fn boolean(&mut self, file: &str, key: &str, node: &SpannedNode) -> bool {
        var_map::boolean(&node.json()).unwrap_or_else(|| {
            self.fault(file, (node.line, node.column), format!("`{key}` takes yes or no, found {}", node.kind()));
            false
        })
    }

    /// Reads a list of words, or one text separated by commas.
    fn word_list(&mut self, file: &str, key: &str, node: &SpannedNode) -> Vec<String> {
        let items = node.list().unwrap_or(std::slice::from_ref(node));
        let mut out = Vec::new();
        for item in items {
            match item.text() {
                Some(text) => out.extend(text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty())),
                None if item.data == SpannedData::Null => {}
                None => {
                    self.fault(file, (item.line, item.column), format!("`{key}` takes words, found {}", item.kind()));
                }
            }
        }
        out
    }
}

/// Whether Ansible accepts the name of a variable.
fn is_name_in_python(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_') && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Matches a pattern with `*` and `?` against a whole text.
fn wildcard(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            p = at + 1;
            t = from + 1;
            star = Some((at, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod playbook_tests;
#[cfg(test)]
mod tests;
