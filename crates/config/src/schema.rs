//! The JSON Schema (draft 07) of `remoor.yml`, made from the tables by which it is read.

use super::typed::{
    FIELDS, GROUP_FIELDS, LIMIT_FIELDS, NOTIFY_FIELDS, NOTIFY_ON, OCCASIONS, POLICIES, PROVISIONERS, SCOPES,
    SERVICE_FIELDS, SSH_FIELDS,
};
use super::windows::WINDOW_FIELDS;
use serde_json::{Map, Value, json};

/// The schema of `remoor.yml`.
pub fn schema() -> Value {
    let field = |name: &str| match name {
        "version" => json!({"const": 1}),
        "inventory" => text(),
        "vars" => variables(),
        "ssh" => section(SSH_FIELDS, ssh),
        "groups" => named_map(section(GROUP_FIELDS, group)),
        "services" => named_map(section(SERVICE_FIELDS, service)),
        "limits" => section(LIMIT_FIELDS, limit),
        "windows" => windows(),
        _ => json!({"type": "array", "items": section(NOTIFY_FIELDS, notify)}),
    };
    let mut schema = section(FIELDS, field);
    schema["$schema"] = "http://json-schema.org/draft-07/schema#".into();
    schema["title"] = "remoor.yml".into();
    schema["required"] = json!(["version", "inventory"]);
    schema
}

/// A mapping with these fields only. An empty section is the same as no section.
fn section(fields: &[&str], field: impl Fn(&str) -> Value) -> Value {
    let properties: Map<String, Value> = fields.iter().map(|name| ((*name).to_owned(), field(name))).collect();
    json!({"type": ["object", "null"], "properties": properties, "additionalProperties": false})
}

fn named_map(entry: Value) -> Value {
    json!({"type": ["object", "null"], "additionalProperties": entry})
}

fn text() -> Value {
    json!({"type": ["string", "number"]})
}

fn texts() -> Value {
    json!({"type": ["array", "null"], "items": text()})
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn duration() -> Value {
    json!({"type": ["string", "number"]})
}

fn variables() -> Value {
    json!({"type": ["object", "null"], "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}})
}

fn keyword_schema<T>(table: &[(&'static str, T)]) -> Value {
    json!({"enum": table.iter().map(|(word, _)| *word).collect::<Vec<_>>()})
}

fn ssh(name: &str) -> Value {
    match name {
        "port" => json!({"type": "integer", "minimum": 1, "maximum": 65_535}),
        "connect-timeout" => duration(),
        "sudo" => boolean(),
        _ => text(),
    }
}

fn group(name: &str) -> Value {
    match name {
        "services" => texts(),
        "provisioner" => keyword_schema(PROVISIONERS),
        "policy" => {
            let occasions: Vec<&str> = OCCASIONS.iter().map(|(word, _)| *word).collect();
            section(&occasions, |_| keyword_schema(POLICIES))
        }
        "quorum" => boolean(),
        "scope" => keyword_schema(SCOPES),
        "parallel" => json!({"type": "integer", "minimum": 1, "maximum": 1000}),
        "windows" => windows(),
        "vars" => variables(),
        _ => text(),
    }
}

fn service(name: &str) -> Value {
    match name {
        "resetup-on-recorded" | "provisioned" => boolean(),
        _ => texts(),
    }
}

fn limit(name: &str) -> Value {
    match name {
        "flap-count" | "breaker-min" => json!({"type": "integer", "minimum": 1}),
        "fleet-percent" | "breaker-group-percent" | "breaker-fleet-percent" => {
            json!({"type": "integer", "minimum": 1, "maximum": 100})
        }
        "retry" => json!({"type": "array", "items": duration()}),
        _ => duration(),
    }
}

fn windows() -> Value {
    section(WINDOW_FIELDS, |name| if name == "offset" { text() } else { texts() })
}

fn notify(name: &str) -> Value {
    match name {
        "command" => texts(),
        "on" => json!({"type": "array", "items": keyword_schema(NOTIFY_ON), "minItems": 1}),
        _ => text(),
    }
}
