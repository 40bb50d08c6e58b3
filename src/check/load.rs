//! Rendered goss text into checks, strictly: whatever is not understood is a fault with its place and a hint. What is asserted of
//! an attribute is read in `load_matcher`.

use super::matcher::Matcher;
use super::meta::{self, Meta};
use super::spec::{COMMON, Kind, LATER, SPECS, Spec, Use, current_name};
use super::suggest::did_you_mean;
use super::yaml::{self, Key, Node, Yaml};
use crate::model::{Fault, ServiceName};
use serde_json::Value;
use std::collections::BTreeMap;

/// Of `matching`: its content is read line by line, as contents and output are.
const AS_READER: &str = "as-reader";

/// Properties that are true or false, so that nothing else can ever match them.
const BOOLEAN: [&str; 6] = ["enabled", "exists", "installed", "listening", "reachable", "running"];

/// One resource of a check file, ready to be run.
#[derive(Debug, Clone)]
pub struct Check {
    pub service: ServiceName,
    /// Where it stands in the rendered text.
    pub file: String,
    pub line: u32,
    pub kind: Kind,
    pub id: String,
    pub title: Option<String>,
    pub meta: Meta,
    pub(super) skip: bool,
    /// The id, unless the name attribute says otherwise.
    pub(super) name: String,
    pub(super) arguments: BTreeMap<&'static str, Value>,
    /// In the order of the table.
    pub(super) assertions: Vec<Assertion>,
}

#[derive(Debug, Clone)]
pub(super) struct Assertion {
    pub property: &'static str,
    pub stream: bool,
    pub matcher: Matcher,
}

impl Check {
    /// The path of a file that this check calls secret.
    pub fn secret_file(&self) -> Option<&str> {
        (self.kind == Kind::File && self.meta.secret).then_some(self.name.as_str())
    }

    /// `type:id`, as in results.
    pub fn label(&self) -> String {
        format!("{}:{}", self.kind, self.id)
    }
}

/// The checks of one file after rendering. Lines and columns of the faults are those of `rendered`.
///
/// A leading `remoor:` block is passed over: `header` reads it.
pub fn parse(file: &str, service: &ServiceName, rendered: &str) -> Result<Vec<Check>, Vec<Fault>> {
    let tree = yaml::parse(file, rendered)?;
    let mut loader = Loader { file, service, faults: Vec::new(), checks: Vec::new() };
    match &tree.yaml {
        Yaml::Null => {}
        Yaml::Map(types) => types.iter().for_each(|(key, node)| loader.resource_type(key, node)),
        _ => loader.faults.push(tree.fault(file, format!("a check file is a map, this is {}", tree.kind()))),
    }
    if loader.faults.is_empty() { Ok(loader.checks) } else { Err(loader.faults) }
}

/// Reads one file; `load_matcher` has the half of it that reads matchers.
pub(super) struct Loader<'a> {
    pub file: &'a str,
    service: &'a ServiceName,
    pub faults: Vec<Fault>,
    checks: Vec<Check>,
}

impl Loader<'_> {
    fn resource_type(&mut self, key: &Key, node: &Node) {
        let name = key.text.as_str();
        if name == "remoor" {
            return;
        }
        if LATER.contains(&name) {
            let fault = key.fault(self.file, format!("resource type `{name}` comes in a later version"));
            self.faults.push(fault.hint("leave it out, or ask by a `command` until then"));
            return;
        }
        let Some(spec) = SPECS.iter().find(|spec| spec.name == name) else {
            let known: Vec<&str> = SPECS.iter().map(|spec| spec.name).collect();
            let hint =
                did_you_mean(name, known.iter().copied()).unwrap_or_else(|| format!("known: {}", known.join(", ")));
            self.faults.push(key.fault(self.file, format!("unknown resource type `{name}`")).hint(hint));
            return;
        };
        match &node.yaml {
            Yaml::Map(resources) => resources.iter().for_each(|(id, node)| self.resource(spec, id, node)),
            Yaml::Null => {}
            _ => self.faults.push(node.fault(self.file, format!("`{name}` is {}, not a map of ids", node.kind()))),
        }
    }

    fn resource(&mut self, spec: &'static Spec, id: &Key, node: &Node) {
        let Yaml::Map(attributes) = &node.yaml else {
            let fault = node
                .fault(self.file, format!("`{}:{}` is {}, not a map of attributes", spec.name, id.text, node.kind()));
            self.faults.push(fault);
            return;
        };
        let mut check = Check {
            service: self.service.clone(),
            file: self.file.to_owned(),
            line: id.line,
            kind: spec.kind,
            id: id.text.clone(),
            title: None,
            meta: Meta::default(),
            skip: false,
            name: id.text.clone(),
            arguments: BTreeMap::new(),
            assertions: Vec::new(),
        };
        let before = self.faults.len();
        // Whether `matches` is a matcher or line patterns is said beside it.
        let (first, then): (Vec<_>, Vec<_>) = attributes.iter().partition(|(key, _)| key.text == AS_READER);
        for (key, node) in first.into_iter().chain(then) {
            self.attribute(spec, &mut check, key, node);
        }
        let has = |name: &str| attributes.iter().any(|(key, _)| current_name(&key.text) == name);
        for (name, _) in spec.attributes.iter().filter(|(name, use_)| *use_ == Use::Required && !has(name)) {
            self.faults.push(id.fault(self.file, format!("`{}:{}` lacks `{name}`", spec.name, id.text)));
        }
        if check.assertions.is_empty() && self.faults.len() == before {
            self.faults.push(id.fault(self.file, format!("`{}:{}` asserts nothing", spec.name, id.text)));
        }
        if let Err(why) = super::probe::validate(&check) {
            self.faults.push(id.fault(self.file, why));
        }
        let order = |assertion: &Assertion| spec.attributes.iter().position(|(name, _)| *name == assertion.property);
        check.assertions.sort_by_key(order);
        self.checks.push(check);
    }

    fn attribute(&mut self, spec: &'static Spec, check: &mut Check, key: &Key, node: &Node) {
        let name = current_name(&key.text);
        match (name, &node.yaml) {
            ("title", Yaml::Text(text)) => check.title = Some(text.clone()),
            ("skip", Yaml::Bool(skip)) => check.skip = *skip,
            ("meta", _) => check.meta = meta::read(self.file, node, &mut self.faults),
            ("title", _) => self.wrong(key, node, "a string"),
            ("skip", _) => self.wrong(key, node, "true or false"),
            (_, Yaml::Text(text)) if name == spec.name_attribute => check.name = text.clone(),
            (_, Yaml::Number(number)) if name == spec.name_attribute => check.name = number.to_string(),
            _ if name == spec.name_attribute => self.wrong(key, node, "a string"),
            _ => match spec.attributes.iter().find(|(known, _)| *known == name) {
                Some((known, use_)) => self.known_attribute(check, known, *use_, key, node),
                None => {
                    let known: Vec<&str> = spec
                        .attributes
                        .iter()
                        .map(|(name, _)| *name)
                        .chain(COMMON)
                        .chain([spec.name_attribute])
                        .filter(|name| !name.is_empty())
                        .collect();
                    let hint = did_you_mean(name, known.iter().copied())
                        .unwrap_or_else(|| format!("known: {}", known.join(", ")));
                    self.faults
                        .push(key.fault(self.file, format!("unknown attribute `{name}` of {}", spec.name)).hint(hint));
                }
            },
        }
    }

    fn known_attribute(&mut self, check: &mut Check, name: &'static str, use_: Use, key: &Key, node: &Node) {
        match use_ {
            Use::Required | Use::Assert | Use::Stream => {
                let stream = use_ == Use::Stream || check.arguments.get(AS_READER) == Some(&Value::Bool(true));
                if BOOLEAN.contains(&name) && matches!(node.yaml, Yaml::Text(_) | Yaml::Number(_) | Yaml::List(_)) {
                    self.wrong(key, node, "true or false");
                    return;
                }
                if check.assertions.iter().any(|assertion| assertion.property == name) {
                    self.faults
                        .push(key.fault(self.file, format!("`{name}` is there twice, under an old and a new name")));
                } else if let Some(matcher) = self.asserted(name, stream, node) {
                    check.assertions.push(Assertion { property: name, stream, matcher });
                }
            }
            Use::Later => {
                self.faults.push(key.fault(self.file, format!("`{name}` of {} comes in a later version", check.kind)));
            }
            Use::Value => drop(check.arguments.insert(name, node.value())),
            Use::Text | Use::Texts | Use::Millis | Use::Flag => {
                let (fits, wanted) = match use_ {
                    Use::Text => (matches!(node.yaml, Yaml::Text(_)), "a string"),
                    Use::Flag => (matches!(node.yaml, Yaml::Bool(_)), "true or false"),
                    Use::Millis => {
                        (matches!(&node.yaml, Yaml::Number(n) if n.as_u64().is_some()), "a number of milliseconds")
                    }
                    _ => (matches!(&node.yaml, Yaml::List(items) if items.iter().all(is_text)), "a list of strings"),
                };
                if fits {
                    check.arguments.insert(name, node.value());
                } else {
                    self.wrong(key, node, wanted);
                }
            }
        }
    }

    pub fn wrong(&mut self, key: &Key, node: &Node, wanted: &str) {
        self.faults.push(node.fault(self.file, format!("`{}` is {}, not {wanted}", key.text, node.kind())));
    }
}

fn is_text(node: &Node) -> bool {
    matches!(node.yaml, Yaml::Text(_))
}
