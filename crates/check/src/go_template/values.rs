//! Prints and compares values as Go's templates do. Integers and floating-point numbers stay
//! different types, as written.

use crate::go_value;
use serde_json::{Number, Value};

/// The kind of a value, for messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(n) if n.is_f64() => "a floating-point number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Whether a value is true in a condition. Values that are empty, zero, false or null are not true.
pub(super) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::String(s) => !s.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// A value as `{{ value }}` prints it.
pub(super) fn format_printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        other => value_text(other),
    }
}

/// A value as `%v` prints it.
pub(super) fn value_text(value: &Value) -> String {
    go_value::format_value(value).into_owned()
}

/// A string in double quotes, as `%q` prints it.
pub(super) fn quote_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x80 && c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether two values are equal. Err if Go cannot compare values of their types.
pub(super) fn equal(a: &Value, b: &Value) -> Result<bool, String> {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Ok(a == b),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::String(a), Value::String(b)) => Ok(a == b),
        (Value::Number(x), Value::Number(y)) if x.is_f64() == y.is_f64() => Ok(x.as_f64() == y.as_f64() && x == y),
        _ => Err(different(a, b)),
    }
}

/// The order of two values. Err if Go cannot order values of their types.
pub(super) fn order(a: &Value, b: &Value) -> Result<std::cmp::Ordering, String> {
    let found = match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Number(x), Value::Number(y)) if x.is_f64() && y.is_f64() => {
            x.as_f64().zip(y.as_f64()).and_then(|(x, y)| x.partial_cmp(&y))
        }
        (Value::Number(x), Value::Number(y)) if x.is_f64() == y.is_f64() => {
            wide(x).zip(wide(y)).map(|(x, y)| x.cmp(&y))
        }
        _ => None,
    };
    found.ok_or_else(|| different(a, b))
}

fn wide(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn different(a: &Value, b: &Value) -> String {
    format!("{} and {} can't be compared", kind(a), kind(b))
}
