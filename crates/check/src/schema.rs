//! The JSON Schema (draft 07) of check files, made from the tables by which they are loaded.
//! Editors use it for completion and for errors while a file is written.

use super::load::{BOOLEAN, MAX_TIMEOUT_MS};
use super::load_matcher::KNOWN;
use super::meta::{KEYS as META_KEYS, MAX_RETRIES};
use super::spec::{AttributeUse, EXTENSION_SPECS, ResourceKind, ResourceSpec, SPECS};
use super::units::{self, Unit};
use serde_json::{Map, Value, json};

/// The schema of a check file that is no template, or that is rendered.
pub fn schema() -> Value {
    let mut properties: Map<String, Value> = SPECS.iter().map(|spec| (spec.name.to_owned(), resources(spec))).collect();
    properties.insert("gossfile".to_owned(), included_files());
    properties.insert("remoor".to_owned(), block());
    // Types that goss does not have may also be outside of the block, where they are templates.
    let own = EXTENSION_SPECS.iter().filter(|spec| !spec.kind.is_group());
    properties.extend(own.map(|spec| (spec.name.to_owned(), resources(spec))));
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Check file of remoor",
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": false,
        "definitions": {
            "expected": describe_expected("expected", json!({"type": "number"})),
            "days": describe_expected("days", with_unit(&units::DAYS)),
            "seconds": describe_expected("seconds", with_unit(&units::SECONDS)),
            "bytes": describe_expected("bytes", with_unit(&units::BYTES)),
            "meta": meta(&[]), "texts": texts()},
    })
}

/// A number, or a text with a number and a unit.
fn with_unit(unit: &Unit) -> Value {
    json!({"type": ["number", "string"], "pattern": unit.pattern})
}

fn texts() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

/// An expected value: a plain value, a list, or a map with one matcher. `name` is the name of this
/// definition, and `number` describes what is compared with a number.
fn describe_expected(name: &str, number: Value) -> Value {
    let expected = json!({"$ref": format!("#/definitions/{name}")});
    let list = json!({"type": "array", "items": expected, "minItems": 1});
    let matcher = |name: &str| match name {
        "have-prefix" | "have-suffix" | "match-regexp" | "contain-substring" | "semver-constraint" => {
            json!({"type": "string"})
        }
        "have-len" => json!({"type": "integer"}),
        "have-patterns" => json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
        "contain-elements" | "and" | "or" => list.clone(),
        "consist-of" => json!({"type": "array", "items": expected}),
        "gt" | "ge" | "lt" | "le" => number.clone(),
        "gjson" => json!({"type": "object", "additionalProperties": expected, "minProperties": 1}),
        "equal" => json!({}),
        _ => expected.clone(),
    };
    let matchers: Map<String, Value> = KNOWN.iter().map(|name| ((*name).to_owned(), matcher(name))).collect();
    json!({"anyOf": [
        {"type": ["string", "number", "boolean"]},
        list,
        {"type": "object", "properties": matchers, "additionalProperties": false, "minProperties": 1, "maxProperties": 1},
    ]})
}

/// The resources of one type, by their ids.
fn resources(spec: &ResourceSpec) -> Value {
    json!({"type": ["object", "null"], "additionalProperties": resource(spec)})
}

fn resource(spec: &ResourceSpec) -> Value {
    let mut properties: Map<String, Value> =
        spec.attributes.iter().map(|(name, use_)| ((*name).to_owned(), attribute(name, *use_))).collect();
    if !spec.name_attribute.is_empty() {
        properties.insert(spec.name_attribute.to_owned(), json!({"type": ["string", "number"]}));
    }
    // Older names of attributes.
    let renamed = match spec.kind {
        ResourceKind::File => Some(("contains", "contents")),
        ResourceKind::Dns => Some(("resolveable", "resolvable")),
        _ => None,
    };
    if let Some((old, new)) = renamed {
        let same = properties.get(new).cloned().unwrap_or_default();
        properties.insert(old.to_owned(), same);
    }
    properties.insert("title".to_owned(), json!({"type": "string"}));
    properties.insert("skip".to_owned(), json!({"type": "boolean"}));
    let own = spec.extensions();
    properties
        .insert("meta".to_owned(), if own.is_empty() { json!({"$ref": "#/definitions/meta"}) } else { meta(own) });
    let is_required = |(name, use_): &&(&str, AttributeUse)| {
        *use_ == AttributeUse::Required && renamed.is_none_or(|(_, new)| new != *name)
    };
    let required: Vec<&str> = spec.attributes.iter().filter(is_required).map(|(name, _)| *name).collect();
    let mut resource = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        resource["required"] = required.into();
    }
    resource
}

fn attribute(name: &str, use_: AttributeUse) -> Value {
    match use_ {
        AttributeUse::Required | AttributeUse::Assert if BOOLEAN.contains(&name) => {
            // In draft 07, keywords beside `$ref` have no effect.
            let matcher = json!({"allOf": [{"type": "object"}, {"$ref": "#/definitions/expected"}]});
            json!({"anyOf": [{"type": "boolean"}, matcher]})
        }
        AttributeUse::Required | AttributeUse::Assert | AttributeUse::Stream => {
            json!({"$ref": "#/definitions/expected"})
        }
        AttributeUse::Days => json!({"$ref": "#/definitions/days"}),
        AttributeUse::Seconds => json!({"$ref": "#/definitions/seconds"}),
        AttributeUse::Bytes => json!({"$ref": "#/definitions/bytes"}),
        AttributeUse::Entries => {
            json!({"type": "object", "additionalProperties": {"$ref": "#/definitions/expected"}, "minProperties": 1})
        }
        AttributeUse::Holds | AttributeUse::Text => json!({"type": "string"}),
        AttributeUse::Texts => json!({"$ref": "#/definitions/texts"}),
        AttributeUse::Millis => json!({"type": "integer", "minimum": 0, "maximum": MAX_TIMEOUT_MS}),
        AttributeUse::Flag => json!({"type": "boolean"}),
        AttributeUse::Retries => json!({"type": "integer", "minimum": 0, "maximum": MAX_RETRIES}),
        AttributeUse::Delay => duration(),
        AttributeUse::Value => json!({}),
    }
}

/// Milliseconds, or a text such as `10s`.
fn duration() -> Value {
    json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}]})
}

/// `meta`. `own` are the keys of `meta.remoor` that only one type has.
fn meta(own: &[(&'static str, AttributeUse)]) -> Value {
    let key = |name: &str| match name {
        "severity" => json!({"enum": ["info", "warning", "critical"]}),
        "on-fail" => json!({"enum": ["none", "alert", "resetup"]}),
        "for" => duration(),
        "secret" => json!({"type": "boolean"}),
        "retry" => json!({
            "type": "object",
            "properties": {"count": {"type": "integer", "minimum": 0, "maximum": MAX_RETRIES}, "delay": duration()},
            "additionalProperties": false,
        }),
        _ => json!({
            "type": "object",
            "properties": {"until": {"type": "string"}, "reason": {"type": "string", "minLength": 1}},
            "required": ["until", "reason"],
            "additionalProperties": false,
        }),
    };
    let mut keys: Map<String, Value> = META_KEYS.iter().map(|name| ((*name).to_owned(), key(name))).collect();
    keys.extend(own.iter().map(|(name, use_)| ((*name).to_owned(), attribute(name, *use_))));
    let remoor = json!({"type": "object", "properties": keys, "additionalProperties": false});
    json!({"type": "object", "properties": {"remoor": remoor, "tags": {"type": ["string", "array"]}}})
}

fn included_files() -> Value {
    let entry = json!({
        "type": ["object", "null"],
        "properties": {
            "file": {"type": "string"},
            "skip": {"type": "boolean"},
            "title": {"type": "string"},
            "meta": {"type": "object"},
        },
        "additionalProperties": false,
    });
    json!({"type": ["object", "null"], "additionalProperties": entry})
}

/// The `remoor:` block.
fn block() -> Value {
    let text = json!({"type": "string"});
    let list = json!({"$ref": "#/definitions/texts"});
    let digest: Map<String, Value> =
        super::header::DIGEST_KEYS.iter().map(|key| ((*key).to_owned(), list.clone())).collect();
    let key = |name: &str| match name {
        "roles" | "depends-on" => list.clone(),
        "template" => json!({"enum": ["tera", "go", "none"]}),
        "vars" => json!({"type": ["object", "null"]}),
        "digest" => json!({"type": "object", "properties": digest, "additionalProperties": false}),
        _ => text.clone(),
    };
    let mut properties: Map<String, Value> =
        super::header::KEYS.iter().map(|name| ((*name).to_owned(), key(name))).collect();
    for spec in &EXTENSION_SPECS {
        let checks = if spec.kind.is_group() {
            let members = json!({"type": "array", "items": {"type": "string"}, "minItems": 1});
            let group = json!({
                "type": "object",
                "properties": {
                    "checks": members,
                    "title": {"type": "string"},
                    "skip": {"type": "boolean"},
                    "meta": {"$ref": "#/definitions/meta"},
                },
                "required": ["checks"],
                "additionalProperties": false,
            });
            json!({"type": "object", "additionalProperties": {"anyOf": [members, group]}})
        } else {
            resources(spec)
        };
        properties.insert(spec.name.to_owned(), checks);
    }
    json!({"type": "object", "properties": properties, "required": ["service"], "additionalProperties": false})
}
