//! Python's output formats: values as `str` and `repr`, and JSON as `json.dumps` writes it. Regular
//! expressions are in `pyregex`.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};
use serde_json::Value as Json;
use std::fmt::Write as _;

/// Maximum nesting depth of values that are printed.
const DEPTH_MAX: usize = 64;

/// Returns `str(value)`. An undefined value is an error. The value `none` gives the text `None`.
pub fn text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    let mut out = String::new();
    repr_into(value, &mut out, 0)?;
    Ok(out)
}

/// The value as Python's `repr` writes it: a text has quotes.
pub fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    repr_into(value, &mut out, 0)?;
    Ok(out)
}

/// Appends `repr(value)`. `depth` is the nesting depth of the value.
fn repr_into(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("lists or maps nested deeper than {DEPTH_MAX}")));
    }
    match value.kind() {
        ValueKind::Undefined => return Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float(f64::try_from(value.clone()).unwrap_or(f64::NAN)));
        }
        ValueKind::String => push_quoted(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            if let Some((a, b)) = crate::filters::as_pair(value) {
                out.push('(');
                repr_into(&a, out, depth + 1)?;
                out.push_str(", ");
                repr_into(&b, out, depth + 1)?;
                out.push(')');
                return Ok(());
            }
            out.push('[');
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr_into(&item, out, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr_into(&key, out, depth + 1)?;
                out.push_str(": ");
                repr_into(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        ValueKind::Invalid => {
            return Err(held_error(value));
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// Appends a text in the quotes that Python would choose.
fn push_quoted(text: &str, out: &mut String) {
    let mark = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(mark);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == mark => {
                out.push('\\');
                out.push(c);
            }
            c if u32::from(c) < 0x20 || u32::from(c) == 0x7f || matches!(c, '\u{80}'..='\u{a0}' | '\u{ad}') => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}' | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push(mark);
}

/// The shortest text that parses to this number, with an exponent where Python uses one.
pub fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = format!("{x:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if x != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let text = x.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

/// The format of JSON. The fields are keyword arguments of Python's `json.dumps`.
pub struct JsonStyle {
    pub indent: Option<usize>,
    pub sort_keys: bool,
    pub ascii: bool,
    /// The separator between two items, and the separator between a key and its value. None: the
    /// defaults of `json.dumps`.
    pub separators: Option<(String, String)>,
}

/// JSON on one line, as `json.dumps` writes it.
pub fn json_line(value: &Json) -> String {
    json(value, &JsonStyle { indent: None, sort_keys: false, ascii: true, separators: None })
}

/// JSON as `json.dumps` writes it with this style.
pub fn json(value: &Json, style: &JsonStyle) -> String {
    let (item, key) = match &style.separators {
        Some(own) => own.clone(),
        None if style.indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let mut out = String::new();
    json_into(value, style, (&item, &key), 0, &mut out);
    out
}

fn json_into(value: &Json, style: &JsonStyle, separators: (&str, &str), level: usize, out: &mut String) {
    let line = |out: &mut String, level: usize| {
        if let Some(n) = style.indent {
            out.push('\n');
            out.push_str(&" ".repeat(n * level));
        }
    };
    let (marks, pairs) = match value {
        Json::Null => return out.push_str("null"),
        Json::Bool(b) => return out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) if n.is_f64() => {
            return out.push_str(&n.as_f64().map(float).unwrap_or_default());
        }
        Json::Number(n) => return out.push_str(&n.to_string()),
        Json::String(text) => return json_text(text, style.ascii, out),
        Json::Array(items) => (('[', ']'), items.iter().map(|v| (None, v)).collect::<Vec<_>>()),
        Json::Object(map) => {
            let mut pairs: Vec<_> = map.iter().map(|(k, v)| (Some(k), v)).collect();
            if style.sort_keys {
                pairs.sort_by_key(|(k, _)| *k);
            }
            (('{', '}'), pairs)
        }
    };
    out.push(marks.0);
    let any = !pairs.is_empty();
    for (i, (key, item)) in pairs.into_iter().enumerate() {
        if i > 0 {
            out.push_str(separators.0);
        }
        line(out, level + 1);
        if let Some(key) = key {
            json_text(key, style.ascii, out);
            out.push_str(separators.1);
        }
        json_into(item, style, separators, level + 1, out);
    }
    if any {
        line(out, level);
    }
    out.push(marks.1);
}

fn json_text(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || ascii && u32::from(c) > 0x7e => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The name of a value's type in Python.
pub fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Map => "dict",
        _ => "list",
    }
}

/// The error that an invalid value holds. Only an iterator with this value as an item reveals it.
pub fn held_error(value: &Value) -> Error {
    let mut errors = Value::from(vec![value.clone()]).try_iter().into_iter().flat_map(|items| items.checked());
    errors.find_map(Result::err).unwrap_or_else(|| ErrorKind::BadSerialization.into())
}
