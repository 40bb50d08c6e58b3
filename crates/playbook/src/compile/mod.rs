//! Compiles files to a plan for one host. Every error that can be detected without the node is
//! found here, with its place.
//!
//! Pure: reads only the file set it is given, and collects errors instead of stopping at the first.

mod args;
mod argument_specs;
mod assets;
mod handlers;
mod include;
mod include_vars;
mod inherit;
mod lookup;
pub mod module_specs;
mod needed_vars;
mod option_types;
pub mod options;
mod play;
mod playbook;
mod repeat;
mod role;
mod tags;
mod task;

pub(super) use assets::join;
pub(super) use needed_vars::{facts_read, names_set, names_set_by};
pub(super) use option_types::check_rendered;
pub use tags::SPECIAL as SPECIAL_TAGS;

use super::expr;
use super::hosts::InventoryNames;
use super::plan::{Blob, Handler, PLAN_VERSION, Plan, SourcePlace, TaskCondition, VarsFile};
use super::schedule::PlayKeys;
use super::var_map::{self, SharedVar};
use super::yaml::{self, SpannedData, SpannedNode};
use remoor_model::{Fault, FileSet};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Hint for everything that only Ansible supports.
const ELSEWHERE: &str = "use provisioner kind: ansible";

/// Maximum number of files opened for one plan.
const OPENED_MAX: u32 = 20_000;

/// The host as the inventory describes it.
#[derive(Debug, Clone, Default)]
pub struct HostContext {
    pub name: String,
    pub group: String,
    /// Merged inventory variables, with `inventory_hostname`, `group_names`, `groups`, `hostvars` of
    /// peers, `node`, `peers`.
    pub vars: Map<String, Value>,
}

#[derive(Debug, Clone, Default)]
pub struct CompileOptions<'a> {
    /// Tags of the tasks to include; empty: all tasks except those tagged `never`. Tasks tagged
    /// `always` are always included; `all`, `tagged` and `untagged` are supported.
    pub tags: &'a [String],
    /// Tasks with one of these tags are left out, whatever `tags` contains.
    pub skip_tags: &'a [String],
    /// Extra variables; they have the highest precedence.
    pub extra_vars: Map<String, Value>,
    /// Tasks run as root unless `become` says otherwise.
    pub elevated: bool,
    /// The inventory; its limit is the set of hosts of this run. None: only this host.
    pub hosts: Option<&'a InventoryNames>,
    /// Variables that are the same on all hosts; they take precedence over those of the host.
    pub shared: BTreeMap<String, SharedVar>,
    /// Modes of the files, if known.
    pub modes: Option<&'a BTreeMap<String, u32>>,
    /// Absolute path of the directory of the files; empty: playbooks cannot use absolute paths.
    pub root: &'a str,
    /// The host is the machine on which the run starts, whatever the inventory says.
    pub here: bool,
}

#[derive(Debug, Clone)]
pub struct Compiled {
    pub plan: Plan,
    pub warnings: Vec<Fault>,
    /// Tags of all tasks in this host's plays, including tasks that `tags` leaves out.
    pub tags: BTreeSet<String>,
}

/// Compiles `playbook` (a path in `files`) for one host. The error contains every fault that can be
/// detected without the node.
pub fn compile(
    files: &FileSet,
    playbook: &str,
    host: &HostContext,
    options: &CompileOptions,
) -> Result<Compiled, Vec<Fault>> {
    let mut compiler = Compiler::new(files, host, options);
    let sources = compiler.sources(playbook);
    let mut plays = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        plays.extend(compiler.play(index, source));
    }
    let extra = compiler.extra();
    let Compiler {
        mut faults,
        mut warnings,
        layers,
        blobs,
        set_on_first_host: elsewhere,
        other_host_layers: beside,
        unmet,
        tags,
        ..
    } = compiler;
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
    };
    faults.extend(needed_vars::missed_names(&plan, &elsewhere));
    faults.extend(argument_specs::unmet_faults(&plan, unmet, &host.vars));
    faults.sort();
    faults.dedup();
    if !faults.is_empty() {
        return Err(faults);
    }
    warnings.sort();
    warnings.dedup();
    (plan.vars, plan.shared) = needed_vars::needed_with_shared(&plan, &host.vars, &options.shared);
    // Layers about other hosts are reduced to what the playbook reads, so that other changes of
    // these hosts do not change the plan.
    for layer in beside {
        let vars = std::mem::take(&mut plan.layers[layer as usize]);
        plan.layers[layer as usize] = needed_vars::needed_vars(&plan, &vars);
    }
    Ok(Compiled { plan, warnings, tags })
}

/// The plays of `playbook`, in order, with the keywords that concern all their hosts. Only
/// variables of the play and extra variables are known here. The caller makes a `Schedule` of each
/// play.
pub fn outline(files: &FileSet, playbook: &str, extra_vars: &Map<String, Value>) -> Result<Vec<PlayKeys>, Vec<Fault>> {
    let options = CompileOptions { extra_vars: extra_vars.clone(), ..CompileOptions::default() };
    let nobody = HostContext::default();
    let mut compiler = Compiler::new(files, &nobody, &options);
    let mut out = Vec::new();
    for (index, source) in compiler.sources(playbook).iter().enumerate() {
        out.extend(compiler.outline_play(index, source));
    }
    let mut faults = compiler.faults;
    faults.sort();
    faults.dedup();
    if faults.is_empty() { Ok(out) } else { Err(faults) }
}

struct Compiler<'a> {
    files: &'a FileSet,
    host: &'a HostContext,
    options: &'a CompileOptions<'a>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    layers: Vec<Map<String, Value>>,
    /// Layers of variable files, by path.
    layer_of: BTreeMap<String, u32>,
    blobs: BTreeMap<String, Blob>,
    parsed: BTreeMap<String, Option<Rc<SpannedNode>>>,
    checked: BTreeSet<String>,
    /// Whether a file could be a file of tasks, and of variables.
    shapes: RefCell<BTreeMap<String, (bool, bool)>>,
    /// Files that lookups read from the fleet directory.
    given: Map<String, Value>,
    tasks: u32,
    /// Number of times that files of tasks, roles and playbooks were opened.
    opened: u32,
    /// Directory of the playbook that contains the play.
    base: String,
    /// Whether the play has no other host of this run, and whether this host is the first of its
    /// batch.
    alone: bool,
    first: bool,
    /// Layers that the roles of the play give to all of its tasks.
    play_defaults: Vec<u32>,
    play_exports: Vec<u32>,
    play_files: Vec<VarsFile>,
    play_handlers: Vec<Handler>,
    handler_lists: u32,
    /// Names that only the first host of a batch sets, with their places.
    set_on_first_host: Vec<(String, SourcePlace)>,
    /// Requirements of the argument specs of roles.
    unmet: Vec<argument_specs::Unmet>,
    /// Layers that contain the other hosts of a play.
    other_host_layers: Vec<u32>,
    /// Tags of all tasks that were read.
    tags: BTreeSet<String>,
    /// The variables of the host and the shared variables, as expressions see them.
    inventory: Arc<var_map::VarMap>,
}

#[derive(Clone)]
struct Role {
    name: String,
    dir: String,
}

/// The context that a task inherits.
#[derive(Clone, Default)]
struct Context {
    file: String,
    role: Option<Role>,
    /// Layers of the defaults of its role, of the roles it needs, and of the roles that need it.
    defaults: Vec<u32>,
    /// Layers of the play's variables and its files.
    play_vars: Vec<u32>,
    /// Layers of its role's variables, in the same order as the defaults.
    role_vars: Vec<u32>,
    /// Layers of surrounding blocks, imports and includes, and its own.
    vars: Vec<u32>,
    /// Layers of role parameters, outermost first.
    role_params: Vec<u32>,
    /// Layers of surrounding dynamic includes.
    include_params: Vec<u32>,
    /// Layers of the roles that contain a role, for the roles that it names.
    chain_defaults: Vec<u32>,
    chain_vars: Vec<u32>,
    /// Directories of the roles that need this one.
    needing: Vec<String>,
    tags: Vec<String>,
    when: Vec<TaskCondition>,
    environment: Vec<Value>,
    ignore_errors: Option<Value>,
    no_log: bool,
    elevated: bool,
    /// The user, if not root.
    become_user: Option<String>,
    fatal: bool,
    check_mode: Option<Value>,
    diff: Option<Value>,
    run_once: bool,
    timeout: Option<Value>,
    notify: Vec<String>,
    /// Default options by module name.
    module_defaults: BTreeMap<String, Rc<SpannedNode>>,
    /// Task files that are being read, outermost first.
    open: Vec<String>,
    /// The context is a handler; handlers are compiled whatever their tags.
    handler: bool,
    /// The context is inside a dynamic include.
    dynamic: bool,
}

impl<'a> Compiler<'a> {
    fn new(files: &'a FileSet, host: &'a HostContext, options: &'a CompileOptions<'a>) -> Self {
        Self {
            files,
            host,
            options,
            faults: Vec::new(),
            warnings: Vec::new(),
            layers: Vec::new(),
            layer_of: BTreeMap::new(),
            blobs: BTreeMap::new(),
            parsed: BTreeMap::new(),
            checked: BTreeSet::new(),
            shapes: RefCell::default(),
            given: Map::new(),
            tasks: 0,
            opened: 0,
            base: String::new(),
            alone: true,
            first: true,
            play_defaults: Vec::new(),
            play_exports: Vec::new(),
            play_files: Vec::new(),
            play_handlers: Vec::new(),
            handler_lists: 0,
            set_on_first_host: Vec::new(),
            unmet: Vec::new(),
            other_host_layers: Vec::new(),
            tags: BTreeSet::new(),
            inventory: Arc::new(var_map::VarMap::from_trusted(&host.vars).with_shared(&options.shared)),
        }
    }

    fn fault(&mut self, file: &str, at: (u32, u32), message: impl Into<String>) -> &mut Fault {
        self.faults.push(Fault::error(file, at.0, at.1, message));
        let last = self.faults.len() - 1;
        &mut self.faults[last]
    }

    fn fault_hint(&mut self, file: &str, at: (u32, u32), message: impl Into<String>, hint: impl Into<String>) {
        self.faults.push(Fault::error(file, at.0, at.1, message).hint(hint));
    }

    fn warn(&mut self, file: &str, at: (u32, u32), message: impl Into<String>, hint: impl Into<String>) {
        self.warnings.push(Fault::warn(file, at.0, at.1, message).hint(hint));
    }

    /// If all errors since `from` are about things that only Ansible supports, replaces them by a
    /// warning, because the file may be one of several that a run selects from. Returns the first
    /// error in short form.
    fn soften_faults(&mut self, from: usize, file: &str, at: (u32, u32), name: &str) -> Option<String> {
        let new = self.faults.get(from..)?;
        let first = new.first()?;
        if !new.iter().all(|fault| fault.hint.as_ref().is_some_and(|hint| hint.contains(ELSEWHERE))) {
            return None;
        }
        let told = format!("{}:{}: {}", first.file, first.line, first.message);
        self.faults.truncate(from);
        self.warn(file, at, format!("`{name}` is left out: {told}"), format!("a run that needs it fails; {ELSEWHERE}"));
        Some(told)
    }

    /// Counts an opened file, and returns whether it may be opened. The limit is needed because
    /// files that name files several times multiply.
    fn opens(&mut self, file: &str, at: (u32, u32)) -> bool {
        self.opened += 1;
        if self.opened == OPENED_MAX {
            self.fault(
                file,
                at,
                format!("the playbook opens more than {OPENED_MAX} files of tasks, roles and playbooks"),
            );
        }
        self.opened < OPENED_MAX
    }

    /// Parses a YAML file of the set, once. None if it has an error, which is recorded.
    fn yaml(&mut self, path: &str, from: (&str, (u32, u32))) -> Option<Rc<SpannedNode>> {
        if let Some(known) = self.parsed.get(path) {
            return known.clone();
        }
        let node = match self.files.text(path).map(|text| yaml::parse(path, text)) {
            None => {
                let what =
                    if self.files.get(path).is_some() { "is not UTF-8" } else { "is not in the fleet directory" };
                self.fault(from.0, from.1, format!("{path} {what}"));
                None
            }
            Some(Err(fault)) => {
                self.faults.push(fault);
                None
            }
            Some(Ok((node, warnings))) => {
                self.warnings.extend(warnings);
                Some(Rc::new(node))
            }
        };
        self.parsed.insert(path.to_owned(), node.clone());
        node
    }

    fn layer(&mut self, vars: Map<String, Value>) -> Vec<u32> {
        if vars.is_empty() {
            return Vec::new();
        }
        self.layers.push(vars);
        vec![(self.layers.len() - 1) as u32]
    }

    /// Reads a map of variables and checks its templates.
    fn vars(&mut self, file: &str, node: &SpannedNode) -> Map<String, Value> {
        match &node.data {
            SpannedData::Null => Map::new(),
            SpannedData::Map(pairs) => {
                for (key, _) in pairs {
                    if !is_name(&key.text) {
                        self.fault(
                            file,
                            (key.line, key.column),
                            format!("`{}` cannot be the name of a variable", key.text),
                        );
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
                if let Err(e) = expr::check_template(text) {
                    self.template_fault(file, (node.line, node.column), &e);
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
        // For features that remoor rejects, `check_names` has already given the reason.
        let refused = error.detail().is_some_and(|detail| detail.contains("is not part of the language"));
        let unknown = if refused { "" } else { "unknown " };
        let message = match error.kind() {
            ErrorKind::SyntaxError => format!("template: {}", error.detail().unwrap_or("syntax error")),
            ErrorKind::UnknownFilter => format!("{unknown}filter {}", error.detail().unwrap_or("")),
            ErrorKind::UnknownTest => format!("{unknown}test {}", error.detail().unwrap_or("")),
            ErrorKind::UnknownMethod => format!("method {}", error.detail().unwrap_or("")),
            _ => format!("template: {}", expr::explain(error)),
        };
        self.fault(file, at, message).hint = refused.then(|| ELSEWHERE.to_owned());
    }

    /// Reads `when` and similar keywords: one condition or a list of them.
    fn conditions(&mut self, file: &str, key: &str, node: &SpannedNode) -> Vec<TaskCondition> {
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
            if let Err(e) = expr::check_expression(&text) {
                self.template_fault(file, at, &e);
            }
            self.check_lookups(file, at, &format!("{{{{{text}}}}}"));
            out.push(TaskCondition { text, line: item.line });
        }
        out
    }

    /// Reads texts that must be known before the run: numbers, words, or markup that gives some.
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
                self.fault_hint(file, at, message, ELSEWHERE);
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

fn is_name(text: &str) -> bool {
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
