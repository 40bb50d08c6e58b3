//! From files to a plan for one host: everything that can be wrong without the node is found here, with its place.
//!
//! Pure: reads nothing but the file set that it is given, and collects faults instead of stopping at the first.

mod args;
mod assets;
mod closure;
mod lookup;
mod play;
pub mod spec;
mod task;

pub(super) use closure::facts_read;

use super::plan::{Blob, Condition, PLAN_VERSION, Plan};
use super::yaml::{self, Data, Node};
use super::{data, expr};
use crate::model::{Fault, FileSet};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Hint on everything that only Ansible itself can do.
const ELSEWHERE: &str = "use provisioner kind: ansible";

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
    /// Empty: everything but `never`. Tasks tagged `always` are always in.
    pub tags: &'a [String],
    /// Win over every other variable.
    pub extra_vars: Map<String, Value>,
}

#[derive(Debug, Clone)]
pub struct Compiled {
    pub plan: Plan,
    pub warnings: Vec<Fault>,
}

/// Compiles `playbook` (a path in `files`) for one host. Every fault that can be told without the node is in the error.
pub fn compile(
    files: &FileSet,
    playbook: &str,
    host: &HostContext,
    options: &CompileOptions,
) -> Result<Compiled, Vec<Fault>> {
    let mut compiler = Compiler::new(files, host, options);
    let plays = compiler.playbook(playbook);
    let extra = compiler.extra();
    let Compiler { mut faults, mut warnings, layers, blobs, .. } = compiler;
    faults.sort();
    faults.dedup();
    if !faults.is_empty() {
        return Err(faults);
    }
    warnings.sort();
    warnings.dedup();
    let mut plan = Plan {
        version: PLAN_VERSION,
        playbook: playbook.to_owned(),
        host: host.name.clone(),
        vars: Map::new(),
        extra,
        layers,
        plays,
        blobs,
    };
    plan.vars = closure::needed(&plan, &host.vars);
    Ok(Compiled { plan, warnings })
}

struct Compiler<'a> {
    files: &'a FileSet,
    host: &'a HostContext,
    options: &'a CompileOptions<'a>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
    layers: Vec<Map<String, Value>>,
    blobs: BTreeMap<String, Blob>,
    parsed: BTreeMap<String, Option<Rc<Node>>>,
    checked: BTreeSet<String>,
    /// What lookups read of the fleet directory.
    given: Map<String, Value>,
    tasks: u32,
    /// Directory of the playbook.
    base: String,
}

/// What a task inherits from where it stands.
#[derive(Clone, Default)]
struct Context {
    file: String,
    /// Name and directory of the role.
    role: Option<(String, String)>,
    defaults: Vec<u32>,
    vars: Vec<u32>,
    tags: Vec<String>,
    when: Vec<Condition>,
    environment: Vec<Value>,
    ignore_errors: Option<Value>,
    no_log: bool,
    elevated: bool,
    /// Task files that are being read, outermost first.
    open: Vec<String>,
    /// Handlers are in whatever the tags.
    handler: bool,
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
            blobs: BTreeMap::new(),
            parsed: BTreeMap::new(),
            checked: BTreeSet::new(),
            given: Map::new(),
            tasks: 0,
            base: String::new(),
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
        let message = match error.kind() {
            ErrorKind::SyntaxError => format!("template: {}", error.detail().unwrap_or("syntax error")),
            ErrorKind::UnknownFilter => format!("unknown filter {}", error.detail().unwrap_or("")),
            ErrorKind::UnknownTest => format!("unknown test {}", error.detail().unwrap_or("")),
            ErrorKind::UnknownMethod => format!("method {}", error.detail().unwrap_or("")),
            _ => format!("template: {}", expr::explain(error)),
        };
        self.fault(file, at, message);
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

    fn boolean(&mut self, file: &str, key: &str, node: &Node) -> bool {
        match &node.data {
            Data::Bool(b) => *b,
            Data::Text(s) if matches!(s.to_ascii_lowercase().as_str(), "yes" | "true" | "on") => true,
            Data::Text(s) if matches!(s.to_ascii_lowercase().as_str(), "no" | "false" | "off") => false,
            _ => {
                self.fault(file, (node.line, node.column), format!("`{key}` takes yes or no, found {}", node.kind()));
                false
            }
        }
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

    /// Whether the tags asked for let this through.
    fn selected(&self, tags: &[String]) -> bool {
        let has = |t: &str| tags.iter().any(|own| own == t);
        if self.options.tags.is_empty() {
            return !has("never");
        }
        let asked = self.options.tags.iter().any(|t| has(t));
        asked || (has("always") && !has("never"))
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
mod tests;
