//! Loads checks from rendered goss text. In a strict file, everything that is not understood is a
//! fault with its position and a hint. In a plain goss file, what goss accepts is a warning. The
//! matchers of asserted attributes are read in `load_matcher`.

use super::include::{self, GossfileEntry};
use super::matcher::Matcher;
use super::meta::{self, Meta};
use super::redact::{MASK, redact_passwords};
use super::spec::{AttributeUse, COMMON, EXTENSION_SPECS, ResourceKind, ResourceSpec, SPECS, WINDOWS, current_name};
use super::units::{self, Unit};
use super::yaml::{self, Yaml, YamlKey, YamlNode};
use remoor_model::{Fault, OnFail, ServiceName, did_you_mean};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// An attribute of `matching`: the content is read line by line, as file contents and output are.
const AS_READER: &str = "as-reader";

/// Properties that are true or false. An expected string, number or list is a fault, because such a
/// value can never match.
pub(super) const BOOLEAN: [&str; 7] =
    ["enabled", "exists", "installed", "listening", "reachable", "resolvable", "running"];
/// Maximum timeout that a check may request.
pub(super) const MAX_TIMEOUT_MS: u64 = 600_000;

/// One resource of a check file, ready to be run.
#[derive(Debug, Clone)]
pub struct Check {
    pub service: ServiceName,
    /// The file of the check. `line` is the line of the check in the rendered text of this file.
    pub file: String,
    pub line: u32,
    pub kind: ResourceKind,
    /// The id of the check as written in the file, without the passwords of URLs.
    pub id: String,
    pub title: Option<String>,
    pub meta: Meta,
    /// `meta` as written, including keys that are not remoor's.
    pub annotations: Map<String, Value>,
    pub(super) skip: bool,
    /// Whether the file is a plain goss file, for which a name that does not resolve is an answer.
    pub(super) as_goss: bool,
    /// The value of the name attribute; the id if the attribute is not given.
    pub(super) name: String,
    pub(super) arguments: BTreeMap<&'static str, Value>,
    /// The assertions, in the order of the attributes in [`ResourceSpec`].
    pub(super) assertions: Vec<Assertion>,
    /// The labels of a group's members, which are checks of the same file.
    pub(super) members: Vec<String>,
}

/// How strictly a check file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// Everything that is not understood is a fault.
    Strict,
    /// Everything that goss accepts is accepted, with a warning if a strict file would be refused.
    AsGoss,
}

#[derive(Debug, Clone)]
pub(super) struct Assertion {
    pub property: &'static str,
    /// The name of the property in results. It differs from `property` for an old name in a plain
    /// goss file, because goss keeps that name.
    pub written: &'static str,
    /// The entry of the property that is asserted, if each entry is an assertion of its own. It is
    /// the name in results.
    pub entry: Option<String>,
    pub stream: bool,
    pub matcher: Matcher,
}

impl Assertion {
    pub fn new(property: &'static str, stream: bool, matcher: Matcher) -> Self {
        Self { property, written: property, entry: None, stream, matcher }
    }
}

impl Check {
    /// The path of a file check that is marked as secret.
    pub fn secret_file(&self) -> Option<&str> {
        (self.kind == ResourceKind::File && self.meta.secret).then_some(self.name.as_str())
    }

    /// The tags in `meta.tags`, which is a list of strings or one string.
    pub fn tags(&self) -> Vec<&str> {
        match self.annotations.get("tags") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// The labels of a group's members; empty for all other checks.
    pub fn members(&self) -> &[String] {
        &self.members
    }

    /// A key that two different checks of one file never share, for comparisons only. It may
    /// contain the password of a URL, which `label` hides.
    pub fn unique_key(&self) -> String {
        if self.id.contains(MASK) { format!("{} {}", self.label(), self.name) } else { self.label() }
    }

    /// `type:id`, which identifies the check in results.
    pub fn label(&self) -> String {
        format!("{}:{}", self.kind, self.id)
    }
}

/// The contents of one check file.
#[derive(Debug, Clone, Default)]
pub struct ParsedCheckFile {
    pub checks: Vec<Check>,
    pub includes: Vec<GossfileEntry>,
    /// Position (line and column) of a `remoor` block that is still in the rendered text. The
    /// settings of such a block were not read.
    pub header: Option<(u32, u32)>,
    /// Checks that can never hold, and in a plain goss file also what a strict file could not
    /// contain.
    pub warnings: Vec<Fault>,
}

/// The checks of one file after rendering. A check file of a fleet must not include other files.
/// Lines and columns of faults refer to `rendered`.
///
/// Only the checks and groups of a `remoor:` block are read here; `header` reads the rest.
pub fn parse(file: &str, service: &ServiceName, rendered: &str) -> Result<Vec<Check>, Vec<Fault>> {
    let loaded = load(file, service, rendered, Strictness::Strict)?;
    match loaded.includes.first() {
        None => Ok(loaded.checks),
        Some(include) => {
            let fault =
                Fault::error(file, include.line, include.column, "a check file of a fleet may not include other files");
            Err(vec![
                fault.hint(
                    "put the file into `checks` with a `remoor:` block; `remoor check --file` follows `gossfile`",
                ),
            ])
        }
    }
}

/// Like [`parse`], but accepts `gossfile`. The included files are not read.
pub fn load(
    file: &str,
    service: &ServiceName,
    rendered: &str,
    strictness: Strictness,
) -> Result<ParsedCheckFile, Vec<Fault>> {
    let (tree, found) = match strictness {
        Strictness::Strict => yaml::parse_with_faults(file, rendered)?,
        Strictness::AsGoss => yaml::parse_as_goss(file, rendered)?,
    };
    let (warnings, faults) = found.into_iter().partition(|fault| fault.warning);
    let loaded = ParsedCheckFile { warnings, ..ParsedCheckFile::default() };
    let mut loader = Loader { file, service, strictness, faults, loaded };
    match &tree.yaml {
        Yaml::Null => {}
        Yaml::Map(types) => types.iter().for_each(|(key, node)| loader.resource_type(key, node)),
        _ => loader.faults.push(tree.fault(file, format!("a check file is a map, this is {}", tree.kind()))),
    }
    if let Yaml::Map(types) = &tree.yaml
        && let Some((_, block)) = types.iter().find(|(key, _)| key.text == "remoor")
    {
        loader.groups(block);
    }
    let Loader { mut faults, loaded, .. } = loader;
    faults.sort_by_key(|fault| (fault.line, fault.column));
    if faults.is_empty() { Ok(loaded) } else { Err(faults) }
}

/// The warnings about checks that can never hold, or whose settings have no effect. Empty if the
/// file has a fault.
pub fn warnings(file: &str, service: &ServiceName, rendered: &str) -> Vec<Fault> {
    load(file, service, rendered, Strictness::Strict).map(|loaded| loaded.warnings).unwrap_or_default()
}

/// Reads one file. The methods that read matchers are in `load_matcher`.
pub(super) struct Loader<'a> {
    pub file: &'a str,
    service: &'a ServiceName,
    strictness: Strictness,
    pub faults: Vec<Fault>,
    pub loaded: ParsedCheckFile,
}

impl Loader<'_> {
    pub fn is_as_goss(&self) -> bool {
        self.strictness == Strictness::AsGoss
    }

    /// Reports something that goss accepts: a fault in a strict file, otherwise a warning.
    pub fn report(&mut self, fault: Fault) {
        if self.is_as_goss() {
            self.loaded.warnings.push(Fault { warning: true, ..fault });
        } else {
            self.faults.push(fault);
        }
    }

    fn resource_type(&mut self, key: &YamlKey, node: &YamlNode) {
        let name = key.text.as_str();
        if name == "remoor" {
            self.loaded.header = Some((key.line, key.column));
            self.load_extensions(node);
            return;
        }
        // goss ignores types that it does not know. So a plain goss file may contain a type of
        // remoor for another purpose.
        if let Some(spec) = EXTENSION_SPECS.iter().find(|spec| spec.name == name)
            && (self.is_as_goss() || spec.kind.is_group())
        {
            let fault = key.fault(self.file, format!("`{name}` is not a resource type of goss"));
            self.report(fault.hint("put it in the `remoor:` block"));
            return;
        }
        if name == "gossfile" {
            self.loaded.includes = include::read(self.file, node, &mut self.faults);
            return;
        }
        if name == WINDOWS {
            let fault = key.fault(self.file, format!("resource type `{name}` exists only on Windows"));
            self.report(fault.hint("remove it"));
            return;
        }
        let Some(spec) = SPECS.iter().chain(&EXTENSION_SPECS).find(|spec| spec.name == name) else {
            let known: Vec<&str> = SPECS.iter().map(|spec| spec.name).collect();
            let hint =
                did_you_mean(name, known.iter().copied()).unwrap_or_else(|| format!("known: {}", known.join(", ")));
            self.report(key.fault(self.file, format!("unknown resource type `{name}`")).hint(hint));
            return;
        };
        match &node.yaml {
            Yaml::Map(resources) => resources.iter().for_each(|(id, node)| self.resource(spec, id, node)),
            Yaml::Null => {}
            _ => self.faults.push(node.fault(self.file, format!("`{name}` is {}, not a map of ids", node.kind()))),
        }
    }

    pub fn resource(&mut self, spec: &'static ResourceSpec, id: &YamlKey, node: &YamlNode) {
        let mut check = self.check(spec, id);
        let label = check.label();
        let Yaml::Map(attributes) = &node.yaml else {
            self.faults.push(node.fault(self.file, format!("`{label}` is {}, not a map of attributes", node.kind())));
            return;
        };
        // A check is identified by its label, so two checks must not have the same label. The YAML
        // reader has already rejected duplicate ids. But the ids of two URLs can still be equal
        // after their passwords are removed.
        let is_same = |other: &Check| other.kind == check.kind && other.id == check.id;
        if !self.is_as_goss() && check.id.contains(MASK) && self.loaded.checks.iter().any(is_same) {
            let fault = id.fault(self.file, format!("`{label}` already exists with another password"));
            self.faults.push(fault.hint(format!("choose another id, and write the URL as `{}`", spec.name_attribute)));
        }
        let own = attributes
            .iter()
            .find(|(key, _)| key.text == "meta")
            .map_or(Vec::new(), |(_, node)| meta::extensions(node, spec));
        let keys = attributes.iter().map(|(key, _)| key).chain(own.iter().map(|(key, _)| *key));
        let repairable = meta::is_repairable(spec.kind, |name| keys.clone().any(|key| key.text == name));
        check.meta = Meta::with_default_reaction(repairable);
        let before = self.faults.len();
        // `meta` is read first because some attributes change its values. `as-reader` is read
        // before `matches` because it decides how `matches` is read.
        let early = |key: &YamlKey| key.text == "meta" || key.text == AS_READER;
        let (first, then): (Vec<_>, Vec<_>) = attributes.iter().partition(|(key, _)| early(key));
        for (key, node) in first.into_iter().chain(then) {
            self.attribute(spec, &mut check, key, node);
        }
        let has = |name: &str| attributes.iter().any(|(key, _)| current_name(&key.text) == name);
        for (name, _) in spec.attributes.iter().filter(|(name, use_)| *use_ == AttributeUse::Required && !has(name)) {
            let why = format!("`{label}` lacks `{name}`");
            self.report(id.fault(self.file, &*why));
            check.assertions.push(Assertion::new(name, false, Matcher::Invalid(why)));
        }
        if check.assertions.is_empty() && self.faults.len() == before {
            self.report(id.fault(self.file, format!("`{label}` asserts nothing")));
        }
        if let Err(why) = super::probe::validate(&check) {
            self.report(id.fault(self.file, why));
        }
        self.warn_if_never(&check, attributes);
        check.assertions.sort_by_key(|assertion| (spec.place(assertion.property), assertion.written));
        self.loaded.checks.push(check);
    }

    /// Makes a check that has no assertions yet.
    pub fn check(&self, spec: &'static ResourceSpec, id: &YamlKey) -> Check {
        Check {
            service: self.service.clone(),
            file: self.file.to_owned(),
            line: id.line,
            kind: spec.kind,
            // The id of a check is shown in many outputs and stored in the cluster's history.
            id: redact_passwords(&id.text),
            title: None,
            meta: Meta::default(),
            annotations: Map::new(),
            skip: false,
            as_goss: self.is_as_goss(),
            name: id.text.clone(),
            arguments: BTreeMap::new(),
            assertions: Vec::new(),
            members: Vec::new(),
        }
    }

    pub fn attribute(&mut self, spec: &'static ResourceSpec, check: &mut Check, key: &YamlKey, node: &YamlNode) {
        let name = current_name(&key.text);
        let converted = self.is_as_goss().then(|| convert_as_goss(spec, name, node)).flatten();
        let node = converted.as_ref().unwrap_or(node);
        match (name, &node.yaml) {
            // goss treats an attribute without a value as absent.
            (_, Yaml::Null) if self.is_as_goss() && !is_required(spec, name) => {}
            (_, Yaml::Text(text)) if self.is_as_goss() && text.is_empty() && name == spec.name_attribute => {}
            ("title", Yaml::Text(text)) => check.title = Some(text.clone()),
            ("skip", Yaml::Bool(skip)) => check.skip = *skip,
            ("meta", _) => {
                let repairable = check.meta.on_fail == OnFail::Resetup;
                check.meta = meta::read(self.file, node, spec, repairable, &mut self.faults);
                if let Value::Object(written) = node.value() {
                    check.annotations = written;
                }
                for (key, node) in meta::extensions(node, spec) {
                    if let Some((name, use_)) = spec.extensions().iter().find(|(name, _)| *name == key.text) {
                        self.known_attribute(check, name, *use_, key, node);
                    }
                }
            }
            ("title", _) => self.report_wrong_kind(key, node, "a string"),
            ("skip", _) => self.report_wrong_kind(key, node, "true or false"),
            (_, Yaml::Text(text)) if name == spec.name_attribute => check.name = text.clone(),
            (_, Yaml::Number(number)) if name == spec.name_attribute => check.name = number.to_string(),
            _ if name == spec.name_attribute => self.report_wrong_kind(key, node, "a string"),
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

    fn known_attribute(
        &mut self,
        check: &mut Check,
        name: &'static str,
        use_: AttributeUse,
        key: &YamlKey,
        node: &YamlNode,
    ) {
        match use_ {
            AttributeUse::Required | AttributeUse::Assert | AttributeUse::Stream => {
                let stream = use_ == AttributeUse::Stream || check.arguments.get(AS_READER) == Some(&Value::Bool(true));
                if BOOLEAN.contains(&name) && matches!(node.yaml, Yaml::Text(_) | Yaml::Number(_) | Yaml::List(_)) {
                    self.report(self.wrong_kind(key, node, "true or false"));
                    if !self.is_as_goss() {
                        return;
                    }
                }
                let written = if self.is_as_goss() && key.text == "contains" { "contains" } else { name };
                if check.assertions.iter().any(|assertion| assertion.written == written) {
                    let message = format!("`{name}` is given twice, under its old and its new name");
                    self.report(key.fault(self.file, message));
                } else if let Some(matcher) = self.read_asserted(name, stream, node) {
                    check.assertions.push(Assertion { written, ..Assertion::new(name, stream, matcher) });
                }
            }
            AttributeUse::Days => self.assert_with_unit(check, name, &units::DAYS, node),
            AttributeUse::Seconds => self.assert_with_unit(check, name, &units::SECONDS, node),
            AttributeUse::Bytes => self.assert_with_unit(check, name, &units::BYTES, node),
            AttributeUse::Entries => self.assert_entries(check, name, key, node),
            AttributeUse::Holds => {
                check.assertions.push(Assertion::new(name, false, Matcher::Is(Value::Bool(true))));
                self.known_attribute(check, name, AttributeUse::Text, key, node);
            }
            AttributeUse::Retries | AttributeUse::Delay
                if has_retry_key(check, if use_ == AttributeUse::Delay { "delay" } else { "count" }) =>
            {
                self.faults
                    .push(key.fault(self.file, format!("`{name}` and `retry` of `meta.remoor` set the same value")));
            }
            AttributeUse::Retries => check.meta.retries = meta::retries(self.file, key, node, &mut self.faults),
            AttributeUse::Delay => check.meta.retry_delay = meta::retry_delay(self.file, key, node, &mut self.faults),
            AttributeUse::Value => drop(check.arguments.insert(name, node.value())),
            AttributeUse::Text | AttributeUse::Texts | AttributeUse::Millis | AttributeUse::Flag => {
                let (fits, wanted) = match use_ {
                    AttributeUse::Text => (matches!(node.yaml, Yaml::Text(_)), "a string"),
                    AttributeUse::Flag => (matches!(node.yaml, Yaml::Bool(_)), "true or false"),
                    AttributeUse::Millis => {
                        let fits = |n: &serde_json::Number| n.as_u64().is_some_and(|ms| ms <= MAX_TIMEOUT_MS);
                        (matches!(&node.yaml, Yaml::Number(n) if fits(n)), "a number of milliseconds up to 600000")
                    }
                    _ => (matches!(&node.yaml, Yaml::List(items) if items.iter().all(is_text)), "a list of strings"),
                };
                if fits {
                    check.arguments.insert(name, node.value());
                } else {
                    self.report_wrong_kind(key, node, wanted);
                }
            }
        }
    }

    /// Adds an assertion about a number that may be written with a unit.
    fn assert_with_unit(&mut self, check: &mut Check, name: &'static str, unit: &Unit, node: &YamlNode) {
        let number = unit.convert(self.file, node, &mut self.faults);
        if let Some(matcher) = number.and_then(|number| self.read_asserted(name, false, &number)) {
            check.assertions.push(Assertion::new(name, false, matcher));
        }
    }

    /// Adds an assertion for each entry of a map.
    fn assert_entries(&mut self, check: &mut Check, name: &'static str, key: &YamlKey, node: &YamlNode) {
        let entries = match &node.yaml {
            Yaml::Map(entries) if !entries.is_empty() => entries,
            Yaml::Map(_) => {
                return self.faults.push(node.fault(self.file, format!("an empty map for `{name}` asserts nothing")));
            }
            _ => return self.report_wrong_kind(key, node, "a map with an entry for each assertion"),
        };
        for (entry, node) in entries {
            if let Err(why) = super::probe::validate_entry(name, &entry.text) {
                self.faults.push(entry.fault(self.file, why));
            }
            if let Some(matcher) = self.read_asserted(name, false, node) {
                let assertion = Assertion::new(name, false, matcher);
                check.assertions.push(Assertion { entry: Some(entry.text.clone()), ..assertion });
            }
        }
    }

    pub fn report_wrong_kind(&mut self, key: &YamlKey, node: &YamlNode, wanted: &str) {
        self.faults.push(self.wrong_kind(key, node, wanted));
    }

    fn wrong_kind(&self, key: &YamlKey, node: &YamlNode, wanted: &str) -> Fault {
        node.fault(self.file, format!("`{}` is {}, not {wanted}", key.text, node.kind()))
    }
}

/// Whether `retry` in `meta.remoor` of the check has this key. `meta` was read before the other
/// attributes.
fn has_retry_key(check: &Check, key: &str) -> bool {
    let own = check.annotations.get("remoor").and_then(|own| own.get("retry"));
    own.is_some_and(|retry| retry.get(key).is_some())
}

fn is_required(spec: &ResourceSpec, name: &str) -> bool {
    spec.attributes.iter().any(|(known, use_)| *known == name && *use_ == AttributeUse::Required)
}

/// The value of an attribute that is not asserted, in the form that goss converts it to. None if
/// goss does not convert it.
fn convert_as_goss(spec: &ResourceSpec, name: &str, node: &YamlNode) -> Option<YamlNode> {
    let as_text = |node: &YamlNode| match &node.yaml {
        Yaml::Bool(value) => Some(Yaml::Text(value.to_string())),
        Yaml::Number(number) => Some(Yaml::Text(number.to_string())),
        Yaml::Null => Some(Yaml::Text(String::new())),
        _ => None,
    };
    let use_ = spec.attributes.iter().find(|(known, _)| *known == name).map(|(_, use_)| *use_);
    let is_flag = name == "skip" || use_ == Some(AttributeUse::Flag);
    let yaml = match (&node.yaml, use_) {
        (Yaml::Text(text), _) if is_flag => match text.as_str() {
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(Yaml::Bool(true)),
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(Yaml::Bool(false)),
            _ => None,
        },
        (Yaml::Number(number), Some(AttributeUse::Millis)) => {
            let whole = number.as_f64().filter(|ms| ms.fract() == 0.0 && *ms > MAX_TIMEOUT_MS as f64);
            whole.map(|_| Yaml::Number(MAX_TIMEOUT_MS.into()))
        }
        (Yaml::List(items), Some(AttributeUse::Texts)) => {
            let text = |item: &YamlNode| YamlNode { yaml: as_text(item).unwrap_or(item.yaml.clone()), ..item.clone() };
            Some(Yaml::List(items.iter().map(text).collect()))
        }
        (Yaml::Bool(_) | Yaml::Number(_), _)
            if name == "title" || name == spec.name_attribute || use_ == Some(AttributeUse::Text) =>
        {
            as_text(node)
        }
        _ => None,
    };
    yaml.map(|yaml| YamlNode { yaml, ..node.clone() })
}

fn is_text(node: &YamlNode) -> bool {
    matches!(node.yaml, Yaml::Text(_))
}
