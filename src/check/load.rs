//! Rendered goss text into checks, strictly: whatever is not understood is a fault with its place and a hint.

use super::gjson;
use super::include::{self, Include};
use super::matcher::{Comparison, Matcher};
use super::meta::{self, Meta};
use super::patterns::{Patterns, go_regex};
use super::spec::{COMMON, Kind, LATER, SPECS, Spec, Use, current_name};
use super::suggest::did_you_mean;
use super::yaml::{self, Key, Node, Yaml};
use crate::model::{Fault, ServiceName};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

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
    /// `meta` as it is written, what is not remoor's included.
    pub annotations: Map<String, Value>,
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

    /// The words of `meta.tags`: a list of texts, or one.
    pub fn tags(&self) -> Vec<&str> {
        match self.annotations.get("tags") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// `type:id`, as in results.
    pub fn label(&self) -> String {
        format!("{}:{}", self.kind, self.id)
    }
}

/// What one file holds.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    pub checks: Vec<Check>,
    pub includes: Vec<Include>,
    /// Line and column of a `remoor` block, which nobody has read if it is still here after rendering.
    pub header: Option<(u32, u32)>,
}

/// The checks of one file after rendering; a file of a fleet includes no other. Lines and columns of the faults are those of `rendered`.
///
/// A leading `remoor:` block is passed over: `header` reads it.
pub fn parse(file: &str, service: &ServiceName, rendered: &str) -> Result<Vec<Check>, Vec<Fault>> {
    let loaded = load(file, service, rendered)?;
    match loaded.includes.first() {
        None => Ok(loaded.checks),
        Some(include) => {
            let fault = Fault::error(file, include.line, include.column, "a check file of a fleet includes no other");
            Err(vec![
                fault.hint(
                    "put the file into `checks` with a `remoor:` block; `remoor check --file` follows `gossfile`",
                ),
            ])
        }
    }
}

/// The same with `gossfile`, whose files are not looked at.
pub fn load(file: &str, service: &ServiceName, rendered: &str) -> Result<Loaded, Vec<Fault>> {
    let tree = yaml::parse(file, rendered)?;
    let mut loader = Loader { file, service, faults: Vec::new(), loaded: Loaded::default() };
    match &tree.yaml {
        Yaml::Null => {}
        Yaml::Map(types) => types.iter().for_each(|(key, node)| loader.resource_type(key, node)),
        _ => loader.faults.push(tree.fault(file, format!("a check file is a map, this is {}", tree.kind()))),
    }
    if loader.faults.is_empty() { Ok(loader.loaded) } else { Err(loader.faults) }
}

struct Loader<'a> {
    file: &'a str,
    service: &'a ServiceName,
    faults: Vec<Fault>,
    loaded: Loaded,
}

impl Loader<'_> {
    fn resource_type(&mut self, key: &Key, node: &Node) {
        let name = key.text.as_str();
        if name == "remoor" {
            self.loaded.header = Some((key.line, key.column));
            return;
        }
        if name == "gossfile" {
            self.loaded.includes = include::read(self.file, node, &mut self.faults);
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
            annotations: Map::new(),
            skip: false,
            name: id.text.clone(),
            arguments: BTreeMap::new(),
            assertions: Vec::new(),
        };
        let before = self.faults.len();
        for (key, node) in attributes {
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
        self.loaded.checks.push(check);
    }

    fn attribute(&mut self, spec: &'static Spec, check: &mut Check, key: &Key, node: &Node) {
        let name = current_name(&key.text);
        match (name, &node.yaml) {
            ("title", Yaml::Text(text)) => check.title = Some(text.clone()),
            ("skip", Yaml::Bool(skip)) => check.skip = *skip,
            ("meta", _) => {
                check.meta = meta::read(self.file, node, &mut self.faults);
                if let Value::Object(written) = node.value() {
                    check.annotations = written;
                }
            }
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
                let stream = use_ == Use::Stream;
                if BOOLEAN.contains(&name) && matches!(node.yaml, Yaml::Text(_) | Yaml::Number(_) | Yaml::List(_)) {
                    self.wrong(key, node, "true or false");
                    return;
                }
                if check.assertions.iter().any(|assertion| assertion.property == name) {
                    self.faults
                        .push(key.fault(self.file, format!("`{name}` is there twice, under an old and a new name")));
                } else if let Some(matcher) = self.assertion(name, stream, node) {
                    check.assertions.push(Assertion { property: name, stream, matcher });
                }
            }
            Use::Later => {
                self.faults.push(key.fault(self.file, format!("`{name}` of {} comes in a later version", check.kind)));
            }
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

    /// The value of an asserted attribute.
    fn assertion(&mut self, name: &str, stream: bool, node: &Node) -> Option<Matcher> {
        match &node.yaml {
            Yaml::List(items) if items.is_empty() => {
                let fault = node.fault(self.file, format!("an empty list for `{name}` asserts nothing"));
                self.faults.push(fault.hint("leave it out, or write `have-len: 0` or `consist-of: []` for none"));
                None
            }
            Yaml::List(items) if stream && items.iter().all(is_scalar) => self.patterns(items),
            _ => self.matcher(node),
        }
    }

    fn matcher(&mut self, node: &Node) -> Option<Matcher> {
        match &node.yaml {
            Yaml::Null => {
                self.faults.push(node.fault(self.file, "a value is missing").hint("an empty text is written \"\""));
                None
            }
            Yaml::Bool(_) | Yaml::Number(_) | Yaml::Text(_) => Some(Matcher::Is(node.value())),
            Yaml::List(items) => Some(Matcher::ContainElements(self.all(items)?)),
            Yaml::Map(pairs) => match &pairs[..] {
                [(key, node)] => self.named(key, node),
                _ => {
                    let fault = node.fault(self.file, "a matcher is a map of one key");
                    self.faults.push(fault.hint("combine several with `and: [...]`"));
                    None
                }
            },
        }
    }

    fn named(&mut self, key: &Key, node: &Node) -> Option<Matcher> {
        const KNOWN: [&str; 19] = [
            "have-prefix",
            "have-suffix",
            "match-regexp",
            "contain-substring",
            "have-len",
            "have-patterns",
            "have-key",
            "contain-element",
            "contain-elements",
            "consist-of",
            "not",
            "and",
            "or",
            "gt",
            "ge",
            "lt",
            "le",
            "equal",
            "gjson",
        ];
        match key.text.as_str() {
            "have-prefix" => self.text(key, node).map(Matcher::HavePrefix),
            "have-suffix" => self.text(key, node).map(Matcher::HaveSuffix),
            "contain-substring" => self.text(key, node).map(Matcher::ContainSubstring),
            "match-regexp" => {
                let text = self.text(key, node)?;
                match go_regex(&text) {
                    Ok(regex) => Some(Matcher::MatchRegexp(regex)),
                    Err(why) => {
                        self.faults.push(node.fault(self.file, format!("no regular expression: {why}")));
                        None
                    }
                }
            }
            "have-len" => self.matcher(node).map(|inner| Matcher::HaveLen(Box::new(inner))),
            "have-key" => self.matcher(node).map(|inner| Matcher::HaveKey(Box::new(inner))),
            "contain-element" => self.matcher(node).map(|inner| Matcher::ContainElement(Box::new(inner))),
            "not" => self.matcher(node).map(|inner| Matcher::Not(Box::new(inner))),
            "contain-elements" => Some(Matcher::ContainElements(self.list(key, node)?)),
            "consist-of" => Some(Matcher::ConsistOf(self.list(key, node)?)),
            "and" => Some(Matcher::And(self.list(key, node)?)),
            "or" => Some(Matcher::Or(self.list(key, node)?)),
            "have-patterns" => match &node.yaml {
                Yaml::List(items) => self.patterns(items),
                _ => self.refuse(key, node, "a list"),
            },
            "equal" => Some(Matcher::Equal(node.value())),
            "gt" => self.comparison(Comparison::Gt, key, node),
            "ge" => self.comparison(Comparison::Ge, key, node),
            "lt" => self.comparison(Comparison::Lt, key, node),
            "le" => self.comparison(Comparison::Le, key, node),
            "gjson" => self.gjson(key, node),
            "semver-constraint" | "xml" => {
                self.faults.push(key.fault(self.file, format!("matcher `{}` comes in a later version", key.text)));
                None
            }
            unknown => {
                let hint = did_you_mean(unknown, KNOWN).unwrap_or_else(|| format!("known: {}", KNOWN.join(", ")));
                self.faults.push(key.fault(self.file, format!("unknown matcher `{unknown}`")).hint(hint));
                None
            }
        }
    }

    fn comparison(&mut self, how: Comparison, key: &Key, node: &Node) -> Option<Matcher> {
        match &node.yaml {
            Yaml::Number(n) => n.as_f64().map(|limit| Matcher::Compare(how, limit)),
            _ => self.refuse(key, node, "a number"),
        }
    }

    fn gjson(&mut self, key: &Key, node: &Node) -> Option<Matcher> {
        let Yaml::Map(pairs) = &node.yaml else { return self.refuse(key, node, "a map of paths") };
        let mut paths = Vec::new();
        for (path, node) in pairs {
            if gjson::is_beyond(&path.text) {
                let fault = path.fault(self.file, format!("the gjson path `{}` comes in a later version", path.text));
                self.faults.push(fault.hint("known: names, numbers and # between dots"));
            }
            paths.push((path.text.clone(), self.matcher(node)?));
        }
        Some(Matcher::Gjson(paths))
    }

    /// A list that asserts something; only `consist-of` may be empty.
    fn list(&mut self, key: &Key, node: &Node) -> Option<Vec<Matcher>> {
        match &node.yaml {
            Yaml::List(items) if items.is_empty() && key.text != "consist-of" => {
                self.faults.push(node.fault(self.file, format!("an empty list for `{}` asserts nothing", key.text)));
                None
            }
            Yaml::List(items) => self.all(items),
            _ => self.refuse(key, node, "a list"),
        }
    }

    fn all(&mut self, items: &[Node]) -> Option<Vec<Matcher>> {
        let parsed: Vec<Option<Matcher>> = items.iter().map(|item| self.matcher(item)).collect();
        parsed.into_iter().collect()
    }

    fn patterns(&mut self, items: &[Node]) -> Option<Matcher> {
        let texts: Vec<String> = items
            .iter()
            .map(|item| match &item.yaml {
                Yaml::Text(text) => text.clone(),
                _ => item.value().to_string(),
            })
            .collect();
        match Patterns::parse(&texts) {
            Ok(patterns) => Some(Matcher::Lines(patterns)),
            Err((number, why)) => {
                self.faults.push(items[number].fault(self.file, format!("faulty pattern `{}`: {why}", texts[number])));
                None
            }
        }
    }

    fn text(&mut self, key: &Key, node: &Node) -> Option<String> {
        match &node.yaml {
            Yaml::Text(text) => Some(text.clone()),
            _ => self.refuse(key, node, "a string"),
        }
    }

    fn wrong(&mut self, key: &Key, node: &Node, wanted: &str) {
        self.faults.push(node.fault(self.file, format!("`{}` is {}, not {wanted}", key.text, node.kind())));
    }

    fn refuse<T>(&mut self, key: &Key, node: &Node, wanted: &str) -> Option<T> {
        self.wrong(key, node, wanted);
        None
    }
}

fn is_text(node: &Node) -> bool {
    matches!(node.yaml, Yaml::Text(_))
}

fn is_scalar(node: &Node) -> bool {
    matches!(node.yaml, Yaml::Text(_) | Yaml::Number(_) | Yaml::Bool(_))
}
