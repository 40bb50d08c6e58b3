//! Filters that convert to and from JSON, YAML and base64.

use super::{Args, Filter, FilterResult, failure, filter, filter_with_difference, json, list};
use crate::lang::python::{self, JsonStyle};
use crate::lang::pyyaml::{self, Style};
use crate::lang::yaml;
use crate::vars::scope;
use base64::Engine as _;
use minijinja::{Error, State, Value};
use serde_json::Value as Json;

const YAML_TAKES: &[&str] = &["indent", "width", "default_flow_style", "sort_keys", "explicit_start", "allow_unicode"];

pub const FILTERS: &[Filter] = &[
    filter("to_json", &["indent", "sort_keys", "ensure_ascii", "separators"], |_, v, a| to_json(&v, &a, None, false)),
    filter("to_nice_json", &["indent", "sort_keys", "ensure_ascii"], |_, v, a| to_json(&v, &a, Some(4), true)),
    filter("tojson", &["indent"], |_, v, a| to_json(&v, &a, None, true)),
    filter("from_json", &[], |_, v, _| {
        let text = v.as_str().ok_or_else(|| failure("from_json: takes a text"))?;
        let json: Json = serde_json::from_str(text).map_err(|e| failure(format!("from_json: {e}")))?;
        Ok(scope::plain_value(&json))
    }),
    filter_with_difference("to_yaml", YAML_TAKES, |_, v, a| to_yaml(&v, &a, 2, None), "no anchors for repeated values"),
    filter_with_difference(
        "to_nice_yaml",
        YAML_TAKES,
        |_, v, a| to_yaml(&v, &a, 4, Some(false)),
        "no anchors for repeated values",
    ),
    filter("from_yaml", &[], |_, v, _| match v.as_str() {
        None => Ok(v),
        Some(text) => from_yaml(text),
    }),
    filter("from_yaml_all", &[], from_yaml_all),
    filter("b64encode", &["encoding", "urlsafe"], |_, v, a| {
        let bytes = encode(&python::text(&v)?, &a)?;
        Ok(match a.flag("urlsafe") {
            true => base64::engine::general_purpose::URL_SAFE.encode(bytes),
            false => base64::engine::general_purpose::STANDARD.encode(bytes),
        }
        .into())
    }),
    filter("b64decode", &["encoding", "urlsafe"], b64decode),
];

fn to_json(v: &Value, a: &Args, indent: Option<usize>, sorted: bool) -> FilterResult {
    let separators = match a.get("separators") {
        None => None,
        Some(pair) => match list("separators", pair)?.as_slice() {
            [item, key] => Some((python::text(item)?, python::text(key)?)),
            _ => return Err(failure("`separators` takes two texts")),
        },
    };
    let style = JsonStyle {
        indent: a.count("indent")?.map(|n| n.min(100)).or(indent),
        sort_keys: a.get("sort_keys").map_or(sorted, Value::is_true),
        ascii: a.get("ensure_ascii").is_none_or(Value::is_true),
        separators,
    };
    Ok(python::json(&json("to_json", v)?, &style).into())
}

fn to_yaml(v: &Value, a: &Args, indent: usize, flow: Option<bool>) -> FilterResult {
    let style = Style {
        indent: a.count("indent")?.unwrap_or(indent),
        width: a.count("width")?.unwrap_or(80),
        sort_keys: a.get("sort_keys").is_none_or(Value::is_true),
        flow: match a.get("default_flow_style") {
            None => flow,
            Some(own) if own.is_none() => None,
            Some(own) => Some(own.is_true()),
        },
        explicit_start: a.flag("explicit_start"),
        allow_unicode: a.get("allow_unicode").is_none_or(Value::is_true),
    };
    Ok(pyyaml::write(&json("to_yaml", v)?, style).into())
}

fn from_yaml(text: &str) -> FilterResult {
    let (node, _) = yaml::parse("from_yaml", text).map_err(|e| failure(e.to_string()))?;
    Ok(scope::plain_value(&node.json()))
}

fn from_yaml_all(_: &mut State, v: Value, _: Args) -> FilterResult {
    if v.is_none() {
        return Ok(Vec::<Value>::new().into());
    }
    let text = v.as_str().ok_or_else(|| failure("from_yaml_all: takes a text"))?;
    let mut parts: Vec<String> = vec![String::new()];
    for line in text.lines() {
        let ends = line == "---" || line.starts_with("--- ");
        if ends && parts.iter().any(|p| !p.trim().is_empty()) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(if ends { line[3..].trim_start() } else { line });
            part.push('\n');
        }
    }
    parts.iter().map(|part| from_yaml(part)).collect::<Result<Vec<_>, Error>>().map(Value::from)
}

fn encode(text: &str, a: &Args) -> Result<Vec<u8>, Error> {
    match a.text("encoding")?.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("utf-8" | "utf8") => Ok(text.as_bytes().to_vec()),
        Some("utf-16-le") => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        Some("utf-16-be") => Ok(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        Some("ascii") if text.is_ascii() => Ok(text.as_bytes().to_vec()),
        Some(other) => {
            Err(failure(format!("encoding `{other}` is not supported; use utf-8, utf-16-le, utf-16-be or ascii")))
        }
    }
}

fn b64decode(_: &mut State, v: Value, a: Args) -> FilterResult {
    // Like Python, ignores characters outside the base64 alphabet.
    let text: String = python::text(&v)?;
    let kept: String = match a.flag("urlsafe") {
        true => text.replace('-', "+").replace('_', "/"),
        false => text,
    };
    let kept: String = kept.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=')).collect();
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(&kept).map_err(|e| failure(format!("b64decode: {e}")))?;
    let pairs = || bytes.chunks(2).map(|pair| [pair[0], pair.get(1).copied().unwrap_or(0)]);
    let text = match a.text("encoding")?.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("utf-8" | "utf8" | "ascii") => String::from_utf8(bytes).ok(),
        Some("utf-16-le") => String::from_utf16(&pairs().map(u16::from_le_bytes).collect::<Vec<_>>()).ok(),
        Some("utf-16-be") => String::from_utf16(&pairs().map(u16::from_be_bytes).collect::<Vec<_>>()).ok(),
        Some(other) => return Err(failure(format!("encoding `{other}` is not supported"))),
    };
    text.map(Value::from).ok_or_else(|| failure("b64decode: the decoded bytes are not text in this encoding"))
}
