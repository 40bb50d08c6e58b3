//! From files to a plan for one host: everything that can be wrong without the node is found here, with its place.
//!
//! Pure: reads nothing but the file set that it is given, and collects faults instead of stopping at the first.

mod args;
mod assets;
mod closure;
mod handlers;
mod include;
mod include_vars;
mod inherit;
mod kinds;
mod lookup;
pub mod options;
mod play;
mod playbook;
mod repeat;
mod role;
pub mod spec;
mod specs;
mod tags;
mod task;

pub(super) use assets::join;
pub(super) use closure::{facts_read, names_set, names_set_by};
pub(super) use kinds::wrong_now;
pub use tags::SPECIAL as SPECIAL_TAGS;

use super::data::{self, Shared};
use super::expr;
use super::hosts::Hosts;
use super::plan::{Blob, Condition, Handler, PLAN_VERSION, Place, Plan, VarsFile};
use super::schedule::PlayKeys;
use super::yaml::{self, Data, Node};
use crate::model::{Fault, FileSet};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Hint on everything that only Ansible itself can do.
const ELSEWHERE: &str = "use provisioner kind: ansible";

/// Files opened for one plan.
const OPENED_MAX: u32 = 20_000;

/// What the inventory knows about the host.
#[derive(Debug, Clone, Default)]
pub struct HostContext {
    pub name: String,
    pub group: String,
    /// Merged inventory variables, with `inventory_hostname`, `group_names`, `groups`, `hostvars` of peers, `node`, `peers`.
    pub vars: Map<String, Value>,
}

#[derive(Debug, Clone, Default)]
pub struct CompileOptions<'a> {
    /// Empty: everything but `never`. Tasks tagged `always` are always in; `all`, `tagged` and `untagged` are understood.
    pub tags: &'a [String],
    /// Tasks with one of these are left out, whatever `tags` says.
    pub skip_tags: &'a [String],
    /// Win over every other variable.
    pub extra_vars: Map<String, Value>,
    /// Tasks are root's where no `become` says otherwise.
    pub elevated: bool,
    /// The inventory, whose limit are the hosts that this run is about; None: about the host alone.
    pub hosts: Option<&'a Hosts>,
    /// Variables that all hosts have alike, over those of the host.
    pub shared: BTreeMap<String, Shared>,
    /// Modes of the files, where they are known.
    pub modes: Option<&'a BTreeMap<String, u32>>,
    /// Where the files lie, an absolute path of a directory; empty: nowhere that a playbook could name.
    pub root: &'a str,
    /// The host is the machine that the run begins on, whatever the inventory says of it.
    pub here: bool,
}

#[derive(Debug, Clone)]
pub struct Compiled {
    pub plan: Plan,
    pub warnings: Vec<Fault>,
    /// Of all tasks of this host's plays, those that `tags` leaves out among them.
    pub tags: BTreeSet<String>,
}

/// Compiles `playbook` (a path in `files`) for one host. Every fault that can be told without the node is in the error.
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
    let Compiler { mut faults, mut warnings, layers, blobs, elsewhere, beside, unmet, tags, .. } = compiler;
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
    faults.extend(closure::missed(&plan, &elsewhere));
    faults.extend(specs::unmet(&plan, unmet, &host.vars));
    faults.sort();
    faults.dedup();
    if !faults.is_empty() {
        return Err(faults);
    }
    warnings.sort();
    warnings.dedup();
    (plan.vars, plan.shared) = closure::needed_beside(&plan, &host.vars, &options.shared);
    // Other hosts are no part of what this one is to be, but where its playbook reads them.
    for layer in beside {
        let vars = std::mem::take(&mut plan.layers[layer as usize]);
        plan.layers[layer as usize] = closure::needed(&plan, &vars);
    }
    Ok(Compiled { plan, warnings, tags })
}

/// The plays of `playbook` with what each says of all its hosts together, in the order in which they are run. Only variables
/// of the play and extra vars are known to it. Whoever runs the hosts makes a `Schedule` of each.
pub fn outline(files: &FileSet, playbook: &str, extra_vars: &Map<String, Value>) -> Result<Vec<PlayKeys>, Vec<Fault>> {
    let options = CompileOptions { extra_vars: extra_vars.clone(), ..CompileOptions::default() };
    let nobody = HostContext::default();
    let mut compiler = Compiler::new(files, &nobody, &options);
    let mut out = Vec::new();
    for (index, source) in compiler.sources(playbook).iter().enumerate() {
        out.extend(compiler.outlined(index, source));
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
    /// Layers of files of variables.
    layer_of: BTreeMap<String, u32>,
    blobs: BTreeMap<String, Blob>,
    parsed: BTreeMap<String, Option<Rc<Node>>>,
    checked: BTreeSet<String>,
    /// What files are that might be meant: of tasks, of variables.
    shapes: RefCell<BTreeMap<String, (bool, bool)>>,
    /// What lookups read of the fleet directory.
    given: Map<String, Value>,
    tasks: u32,
    /// Files of tasks, roles and playbooks that were opened, each time counted.
    opened: u32,
    /// Directory of the playbook that the play stands in.
    base: String,
    /// Of the play: whether no other host of this run is in it, and whether this host is the first of its batch.
    alone: bool,
    first: bool,
    /// Of the play: what its roles give to all of its tasks.
    play_defaults: Vec<u32>,
    play_exports: Vec<u32>,
    play_files: Vec<VarsFile>,
    play_handlers: Vec<Handler>,
    handler_lists: u32,
    /// Names that only the first host of a batch sets, and where.
    elsewhere: Vec<(String, Place)>,
    /// What argument specs of roles want.
    unmet: Vec<specs::Unmet>,
    /// Layers that name the other hosts of a play.
    beside: Vec<u32>,
    /// Of all tasks that were read.
    tags: BTreeSet<String>,
    /// The host's variables, and those that all have, as expressions see them.
    inventory: Arc<data::VarMap>,
}

#[derive(Clone)]
struct Role {
    name: String,
    dir: String,
}

/// What a task inherits from where it stands.
#[derive(Clone, Default)]
struct Context {
    file: String,
    role: Option<Role>,
    /// Defaults of its role, of what that needs and of what needs it.
    defaults: Vec<u32>,
    /// Variables of the play and its files.
    play_vars: Vec<u32>,
    /// Variables of its role, in the same order as the defaults.
    role_vars: Vec<u32>,
    /// Of blocks, imports and includes around it, and its own.
    vars: Vec<u32>,
    /// Written beside names of roles, outermost first.
    role_params: Vec<u32>,
    /// Of dynamic includes around it.
    include_params: Vec<u32>,
    /// Of the roles that a role stands in, for the roles that it names.
    chain_defaults: Vec<u32>,
    chain_vars: Vec<u32>,
    /// Directories of the roles that need this one.
    needing: Vec<String>,
    tags: Vec<String>,
    when: Vec<Condition>,
    environment: Vec<Value>,
    ignore_errors: Option<Value>,
    no_log: bool,
    elevated: bool,
    /// Other than root.
    become_user: Option<String>,
    fatal: bool,
    check_mode: Option<Value>,
    diff: Option<Value>,
    run_once: bool,
    timeout: Option<Value>,
    notify: Vec<String>,
    /// Options by the module's name.
    module_defaults: BTreeMap<String, Rc<Node>>,
    /// Task files that are being read, outermost first.
    open: Vec<String>,
    /// Handlers are in whatever the tags.
    handler: bool,
    /// Inside an include that only a run opens.
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
            elsewhere: Vec::new(),
            unmet: Vec::new(),
            beside: Vec::new(),
            tags: BTreeSet::new(),
            inventory: Arc::new(data::VarMap::trusted(&host.vars).over(&options.shared)),
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

    /// Takes back the faults since `from` if each is of something that only Ansible can do: such a file may stand beside others
    /// that a run chooses from. What it is, in short.
    fn soften(&mut self, from: usize, file: &str, at: (u32, u32), name: &str) -> Option<String> {
        let new = self.faults.get(from..)?;
        let first = new.first()?;
        if !new.iter().all(|fault| fault.hint.as_ref().is_some_and(|hint| hint.contains(ELSEWHERE))) {
            return None;
        }
        let told = format!("{}:{}: {}", first.file, first.line, first.message);
        self.faults.truncate(from);
        self.warn(
            file,
            at,
            format!("`{name}` is left out: {told}"),
            format!("a run that needs it is refused; {ELSEWHERE}"),
        );
        Some(told)
    }

    /// Whether one more file may be opened: files that name files several times multiply.
    fn opens(&mut self, file: &str, at: (u32, u32)) -> bool {
        self.opened += 1;
        if self.opened == OPENED_MAX {
            self.fault(file, at, format!("more than {OPENED_MAX} files of tasks, roles and playbooks are opened"));
        }
        self.opened < OPENED_MAX
    }

    /// A YAML file of the set, read once; None after its fault was noted.
    fn yaml(&mut self, path: &str, from: (&str, (u32, u32))) -> Option<Rc<Node>> {
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

    /// A map of variables, its templates checked.
    fn vars(&mut self, file: &str, node: &Node) -> Map<String, Value> {
        match &node.data {
            Data::Null => Map::new(),
            Data::Map(pairs) => {
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

    /// Checks every template inside a value.
    fn check_markup(&mut self, file: &str, node: &Node) {
        match &node.data {
            Data::Text(text) if data::has_markup(text) => {
                if let Err(e) = expr::check_template(text) {
                    self.template_fault(file, (node.line, node.column), &e);
                }
                self.check_lookups(file, (node.line, node.column), text);
            }
            Data::List(items) => items.iter().for_each(|item| self.check_markup(file, item)),
            Data::Map(pairs) => pairs.iter().for_each(|(_, item)| self.check_markup(file, item)),
            _ => {}
        }
    }

    fn template_fault(&mut self, file: &str, at: (u32, u32), error: &minijinja::Error) {
        use minijinja::ErrorKind;
        // Of what Ansible has and remoor refuses it is said why, by `check_names`.
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

    /// `when` and its kin: one condition or a list of them.
    fn conditions(&mut self, file: &str, key: &str, node: &Node) -> Vec<Condition> {
        let items = node.list().unwrap_or(std::slice::from_ref(node));
        let mut out = Vec::new();
        for item in items {
            let at = (item.line, item.column);
            let Some(text) = item.text() else {
                self.fault(file, at, format!("`{key}` takes conditions, found {}", item.kind()));
                continue;
            };
            if data::has_markup(&text) {
                self.warn(file, at, format!("`{key}` is an expression already"), "leave out the {{ }}");
            }
            if let Err(e) = expr::check_expression(&text) {
                self.template_fault(file, at, &e);
            }
            self.check_lookups(file, at, &format!("{{{{{text}}}}}"));
            out.push(Condition { text, line: item.line });
        }
        out
    }

    /// Texts that must be known before any node is asked: numbers, words, or markup that gives some.
    fn known_texts(&mut self, file: &str, key: &str, node: &Node, context: &Context) -> Vec<String> {
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

    /// A yes or no that must be known before any node is asked.
    fn known_bool(&mut self, file: &str, key: &str, node: &Node, context: &Context) -> bool {
        if !node.text().is_some_and(|text| data::has_markup(&text)) {
            return self.boolean(file, key, node);
        }
        let Some(text) = self.known_texts(file, key, node, context).pop() else { return false };
        let known = Node { data: Data::Text(text), ..node.clone() };
        self.boolean(file, key, &known)
    }

    fn boolean(&mut self, file: &str, key: &str, node: &Node) -> bool {
        data::boolean(&node.json()).unwrap_or_else(|| {
            self.fault(file, (node.line, node.column), format!("`{key}` takes yes or no, found {}", node.kind()));
            false
        })
    }

    /// A list of words, or one text with commas between.
    fn word_list(&mut self, file: &str, key: &str, node: &Node) -> Vec<String> {
        let items = node.list().unwrap_or(std::slice::from_ref(node));
        let mut out = Vec::new();
        for item in items {
            match item.text() {
                Some(text) => out.extend(text.split(',').map(|w| w.trim().to_owned()).filter(|w| !w.is_empty())),
                None if item.data == Data::Null => {}
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

/// `*` and `?` against a whole text.
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
