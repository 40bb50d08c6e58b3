//! Reads the current state of one resource of this machine, as the attributes of a check that
//! passes now.

use super::load::{Assertion, Check};
use super::matcher::Matcher;
use super::meta::Meta;
use super::probe::{self, ProbeContext, ProbeError, World};
use super::redact::redact_passwords;
use super::spec::{AttributeUse, ResourceKind, SPECS, WINDOWS};
use remoor_model::{Wall, did_you_mean};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Timeout for resources without a timeout of their own.
const LIMIT: Duration = Duration::from_secs(10);
/// Maximum number of output lines that become patterns of a check, and maximum length of such a
/// line.
const LINES_MAX: usize = 100;
const LINE_MAX: usize = 500;

/// Attributes that become part of the new check, by resource type. For a type that is not listed,
/// these are all asserted attributes. Attributes that change by themselves, such as the size of a
/// file, are left out.
const ADDED_ATTRIBUTES: [(&str, &[&str]); 2] =
    [("file", &["exists", "mode", "owner", "group", "filetype", "linked-to"]), ("http", &["status"])];

/// The reason why the state of a resource could not be read. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObserveError {
    /// The resource type or the id is not valid.
    #[error("{0}")]
    Wrong(String),
    /// The property could not be read on this machine.
    #[error("{check} {property}: {why}")]
    NoAnswer { check: String, property: String, why: String },
}

/// The attributes of resource `id` of the type `kind`, in the order of the attributes in `spec`.
/// Blocks as long as the check would. A `command` is executed.
pub fn observe(kind: &str, id: &str) -> Result<Vec<(&'static str, Value)>, ObserveError> {
    let Some(spec) = SPECS.iter().find(|spec| spec.name == kind && spec.kind != ResourceKind::Matching) else {
        let known: Vec<&str> = SPECS.iter().map(|spec| spec.name).collect();
        return Err(ObserveError::Wrong(match did_you_mean(kind, known.iter().copied()) {
            _ if [WINDOWS, "gossfile", "matching"].contains(&kind) => format!("resource type `{kind}` can't be added"),
            Some(near) => format!("unknown resource type `{kind}`; {near}"),
            None => format!("unknown resource type `{kind}`; known: {}", known.join(", ")),
        }));
    };
    let asserted = spec
        .attributes
        .iter()
        .filter(|(_, use_)| matches!(use_, AttributeUse::Required | AttributeUse::Assert | AttributeUse::Stream));
    let written = ADDED_ATTRIBUTES.iter().find(|(name, _)| *name == kind).map(|(_, written)| *written);
    let properties: Vec<(&'static str, bool)> = asserted
        .filter(|(name, _)| written.is_none_or(|written| written.contains(name)))
        .map(|(name, use_)| (*name, *use_ == AttributeUse::Stream))
        .collect();
    let check = build_check(spec.kind, id, &properties);
    probe::validate(&check).map_err(ObserveError::Wrong)?;
    let world = World::new([&check], LIMIT);
    let answers = probe::ask(&ProbeContext { check: &check, world: &world, limit: LIMIT, now: Wall(0) });
    let mut out = Vec::new();
    for (number, (property, stream)) in properties.into_iter().enumerate() {
        let no_answer = |why: &str| ObserveError::NoAnswer {
            check: check.label(),
            property: property.to_owned(),
            why: why.to_owned(),
        };
        match answers.get(property) {
            Some(Ok(Value::Array(items))) if items.is_empty() => {}
            Some(Ok(Value::String(text))) if stream => out.extend(patterns(text).map(|all| (property, all))),
            Some(Ok(value)) => out.push((property, value.clone())),
            // A property that the resource does not have is left out, such as the target of a file
            // that is not a link.
            Some(Err(ProbeError::Failed(_))) if number > 0 => {}
            Some(Err(ProbeError::Failed(why) | ProbeError::Unknown(why))) => return Err(no_answer(why)),
            None if number > 0 => {}
            None => return Err(no_answer("the probe returned no answer")),
        }
        if spec.gated && number == 0 && out.iter().any(|(_, value)| *value == Value::Bool(false)) {
            break;
        }
    }
    Ok(out)
}

fn build_check(kind: ResourceKind, id: &str, properties: &[(&'static str, bool)]) -> Check {
    let assertion =
        |(property, stream): &(&'static str, bool)| Assertion::new(property, *stream, Matcher::Is(Value::Null));
    Check {
        service: "add".into(),
        file: String::new(),
        line: 0,
        kind,
        id: redact_passwords(id),
        title: None,
        meta: Meta::default(),
        annotations: Map::new(),
        skip: false,
        as_goss: false,
        name: id.to_owned(),
        arguments: BTreeMap::new(),
        assertions: properties.iter().map(assertion).collect(),
        members: Vec::new(),
    }
}

/// The lines of an output as literal patterns. Empty output becomes an empty string. None if no
/// line is suitable.
fn patterns(text: &str) -> Option<Value> {
    if text.is_empty() {
        return Some("".into());
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty() && line.len() <= LINE_MAX).take(LINES_MAX);
    let patterns: Vec<String> = lines
        .map(|line| match line.starts_with(['!', '/']) {
            true => format!("\\{line}"),
            false => line.to_owned(),
        })
        .collect();
    (!patterns.is_empty()).then(|| patterns.into())
}
