//! The types of arguments of a role or module, with the conversions and messages of Ansible.

use crate::lang::{python, yaml};
use crate::template::expr;
use crate::vars::scope::{ExprScope, plain_value};
use crate::vars::var_map::{Var, VarMap, boolean_word};
use serde_json::{Map, Value, json};

/// The name of a value's type in Python.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

/// The text of a value as Python's `str` writes it.
pub fn python_text(value: &Value) -> String {
    python::text(&plain_value(value)).unwrap_or_else(|e| expr::explain(&e))
}

fn python_repr(value: &Value) -> String {
    python::repr(&plain_value(value)).unwrap_or_else(|e| expr::explain(&e))
}

/// The value converted to the type `wanted`. The error is the reason.
pub fn convert(wanted: &str, value: &Value) -> Result<Value, String> {
    let cannot = |what: &str| Err(format!("<class '{}'> cannot be converted to {what}", type_name(value)));
    match (wanted, value) {
        ("raw", _) => Ok(value.clone()),
        ("str" | "path", Value::Null) => Ok(json!("")),
        ("str" | "path", _) => Ok(json!(python_text(value))),
        ("int", _) => {
            whole_number(value).ok_or_else(|| format!("\"{}\" cannot be converted to an int", python_repr(value)))
        }
        ("float", _) => float(value).map_or_else(|| cannot("a float"), |number| Ok(json!(number))),
        ("bool", Value::Bool(_)) => Ok(value.clone()),
        ("bool", Value::String(_) | Value::Number(_)) => to_boolean(value),
        ("bool", _) => cannot("a bool"),
        ("list", Value::Array(_)) => Ok(value.clone()),
        ("list", Value::String(text)) => Ok(text.split(',').collect()),
        ("list", Value::Number(_) | Value::Bool(_)) => Ok(json!([python_text(value)])),
        ("list", _) => cannot("a list"),
        ("dict", Value::Object(_)) => Ok(value.clone()),
        ("dict", Value::String(text)) => map_of_text(text).map(Value::Object),
        ("dict", _) => cannot("a dict"),
        ("json" | "jsonarg", Value::String(text)) => Ok(json!(text.trim())),
        ("json" | "jsonarg", Value::Array(_) | Value::Object(_)) => Ok(json!(value.to_string())),
        ("json" | "jsonarg", _) => cannot("a json string"),
        ("bytes", _) => size(value, false).map_or_else(|| cannot("a Byte value"), Ok),
        ("bits", _) => size(value, true).map_or_else(|| cannot("a Bit value"), Ok),
        _ => Err("'NoneType' object is not callable".into()),
    }
}

/// A number without a fraction. As in Python, booleans are numbers.
fn whole_number(value: &Value) -> Option<Value> {
    let is_decimal = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    match value {
        Value::Bool(_) => Some(value.clone()),
        Value::Number(n) if !n.is_f64() => Some(value.clone()),
        Value::Number(n) => n.as_f64().filter(|n| n.fract() == 0.0).map(|n| json!(n as i64)),
        Value::String(text) => {
            let text = text.trim().replace('_', "");
            let whole = text.parse::<i64>().ok();
            let number = || text.parse::<f64>().ok().filter(|n| is_decimal(&text) && n.fract() == 0.0);
            whole.or_else(|| number().map(|n| n as i64)).map(|n| json!(n))
        }
        _ => None,
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(b) => Some(f64::from(u8::from(*b))),
        Value::Number(n) => n.as_f64(),
        Value::String(text) => text.trim().replace('_', "").parse().ok(),
        _ => None,
    }
}

fn to_boolean(value: &Value) -> Result<Value, String> {
    let text = python_text(value).trim().to_lowercase();
    let number = value.as_f64().filter(|n| *n == 0.0 || *n == 1.0).map(|n| n == 1.0);
    match number.or_else(|| boolean_word(&text).filter(|_| value.is_string())) {
        Some(truth) => Ok(json!(truth)),
        None => Err(format!(
            "The value '{}' is not a valid boolean. Valid booleans include: 'y', 'yes', 'on', '1', 'true', 't', 1, \
             'n', 'no', 'off', '0', 'false', 'f', 0",
            python_text(value)
        )),
    }
}

fn size(value: &Value, is_bits: bool) -> Option<Value> {
    let mut layer = VarMap::default();
    layer.set("size", Var::Plain(value.clone()));
    let scope = ExprScope::default().with_layer(layer);
    let expression = if is_bits { "size | human_to_bytes(isbits=true)" } else { "size | human_to_bytes" };
    expr::eval(&scope, expression).and_then(|size| expr::to_json(&size)).ok()
}

/// Parses a map that is written as JSON, as a literal of Python, or as `key=value` pairs.
pub fn map_of_text(text: &str) -> Result<Map<String, Value>, String> {
    if text.starts_with('{') {
        let parsed = serde_json::from_str(text).ok();
        let parsed = parsed.or_else(|| yaml::parse("", text).ok().map(|(node, _)| node.json()));
        return match parsed {
            Some(Value::Object(map)) => Ok(map),
            _ => Err("unable to evaluate string as dictionary".into()),
        };
    }
    if !text.contains('=') {
        return Err("dictionary requested, could not parse JSON or key=value".into());
    }
    let (mut fields, mut field) = (Vec::new(), String::new());
    let (mut quote, mut escaped) = (None, false);
    for c in text.trim().chars() {
        match c {
            _ if escaped => {
                field.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '\'' | '"' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            ',' | ' ' if quote.is_none() => fields.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    fields.push(field);
    let pairs = fields.iter().filter(|field| !field.is_empty()).map(|field| {
        let (key, value) = field.split_once('=')?;
        Some((key.to_owned(), json!(value)))
    });
    pairs
        .collect::<Option<Map<_, _>>>()
        .ok_or_else(|| "unable to evaluate string in the \"key=value\" format as dictionary".into())
}
