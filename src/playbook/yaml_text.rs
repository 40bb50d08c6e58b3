//! Writing YAML and JSON the way Python's libraries do, for templates whose output must not differ.

use serde_json::Value;

/// JSON; `None`: one line with Python's `", "` and `": "`, else so many spaces per level and sorted keys.
pub fn json(value: &Value, indent: Option<usize>) -> String {
    let mut out = String::new();
    json_into(value, indent, 0, &mut out);
    out
}

fn json_into(value: &Value, indent: Option<usize>, level: usize, out: &mut String) {
    let line = |out: &mut String, level: usize, last: bool| match indent {
        Some(n) => {
            out.push('\n');
            out.push_str(&" ".repeat(n * level));
        }
        None if !last => out.push(' '),
        None => {}
    };
    let (open, close, len) = match value {
        Value::Array(items) => ('[', ']', items.len()),
        Value::Object(map) => ('{', '}', map.len()),
        other => return out.push_str(&other.to_string()),
    };
    out.push(open);
    let mut pairs: Vec<(Option<&String>, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (Some(k), v)).collect(),
        Value::Array(items) => items.iter().map(|v| (None, v)).collect(),
        _ => Vec::new(),
    };
    if indent.is_some() && value.is_object() {
        pairs.sort_by_key(|(k, _)| *k);
    }
    for (i, (key, item)) in pairs.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if i > 0 || indent.is_some() {
            line(out, level + 1, false);
        }
        if let Some(key) = key {
            out.push_str(&Value::String(key.clone()).to_string());
            out.push_str(": ");
        }
        json_into(item, indent, level + 1, out);
    }
    if len > 0 {
        line(out, level, true);
    }
    out.push(close);
}

/// Block style (`to_nice_yaml`): `indent` per level of maps, list items not indented.
pub fn block(value: &Value, indent: usize, sorted: bool) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => block_map(map, indent.clamp(1, 10), 0, sorted, true, &mut out),
        Value::Array(items) if !items.is_empty() => block_list(items, indent.clamp(1, 10), 0, sorted, true, &mut out),
        Value::Object(_) => out.push_str("{}\n"),
        Value::Array(_) => out.push_str("[]\n"),
        other => {
            out.push_str(&scalar(other, 0));
            out.push_str("\n...\n");
        }
    }
    out
}

fn block_map(
    map: &serde_json::Map<String, Value>,
    indent: usize,
    column: usize,
    sorted: bool,
    fresh: bool,
    out: &mut String,
) {
    let mut pairs: Vec<_> = map.iter().collect();
    if sorted {
        pairs.sort_by_key(|(k, _)| *k);
    }
    for (i, (key, value)) in pairs.into_iter().enumerate() {
        if i > 0 || fresh {
            out.push_str(&" ".repeat(column));
        }
        out.push_str(&scalar(&Value::String(key.clone()), column));
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                block_map(inner, indent, column + indent, sorted, true, out);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                block_list(items, indent, column, sorted, true, out);
            }
            other => {
                out.push(' ');
                out.push_str(&scalar(other, column + indent));
                out.push('\n');
            }
        }
    }
}

fn block_list(items: &[Value], indent: usize, column: usize, sorted: bool, fresh: bool, out: &mut String) {
    // PyYAML fills the dash up to the indent in front of a map or list, but not in front of a scalar.
    let wide = format!("-{}", " ".repeat(indent.saturating_sub(1).max(1)));
    for (i, item) in items.iter().enumerate() {
        if i > 0 || fresh {
            out.push_str(&" ".repeat(column));
        }
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push_str(&wide);
                block_map(map, indent, column + wide.len(), sorted, false, out);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push_str(&wide);
                block_list(inner, indent, column + wide.len(), sorted, false, out);
            }
            other => {
                out.push_str("- ");
                out.push_str(&scalar(other, column + indent));
                out.push('\n');
            }
        }
    }
}

/// `to_yaml`: block style, but a collection of scalars only in flow style.
pub fn compact(value: &Value, indent: usize) -> String {
    if leaf(value) {
        let mut out = flow(value);
        out.push_str(if value.is_array() || value.is_object() { "\n" } else { "\n...\n" });
        return out;
    }
    let mut out = String::new();
    compact_into(value, indent.clamp(1, 10), 0, true, &mut out);
    out
}

fn leaf(value: &Value) -> bool {
    let scalar = |v: &Value| !v.is_array() && !v.is_object();
    match value {
        Value::Array(items) => items.iter().all(scalar),
        Value::Object(map) => map.values().all(scalar),
        _ => true,
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by_key(|(k, _)| *k);
            let pairs: Vec<String> = pairs
                .into_iter()
                .map(|(k, v)| format!("{}: {}", scalar(&Value::String(k.clone()), 0), flow(v)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => scalar(other, 0),
    }
}

fn compact_into(value: &Value, indent: usize, column: usize, fresh: bool, out: &mut String) {
    let pad = " ".repeat(column);
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.iter().collect();
            pairs.sort_by_key(|(k, _)| *k);
            for (i, (key, item)) in pairs.into_iter().enumerate() {
                if i > 0 || fresh {
                    out.push_str(&pad);
                }
                out.push_str(&scalar(&Value::String(key.clone()), column));
                out.push(':');
                if leaf(item) {
                    out.push_str(&format!(" {}\n", flow(item)));
                } else {
                    out.push('\n');
                    compact_into(item, indent, if item.is_array() { column } else { column + indent }, true, out);
                }
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 || fresh {
                    out.push_str(&pad);
                }
                out.push_str("- ");
                if leaf(item) {
                    out.push_str(&flow(item));
                    out.push('\n');
                } else {
                    compact_into(item, indent, column + 2, false, out);
                }
            }
        }
        other => out.push_str(&scalar(other, column)),
    }
}

/// A scalar in the style PyYAML chooses: plain, single or double quotes.
fn scalar(value: &Value, _column: usize) -> String {
    let text = match value {
        Value::Null => return "null".into(),
        Value::Bool(b) => return b.to_string(),
        Value::Number(n) => return n.to_string(),
        Value::String(s) => s,
        Value::Array(_) => return "[]".into(),
        Value::Object(_) => return "{}".into(),
    };
    if text.chars().any(|c| c != '\n' && c.is_control()) {
        return Value::String(text.clone()).to_string();
    }
    if text.contains('\n') {
        return format!("'{}'", text.replace('\'', "''").replace('\n', "\n\n    "));
    }
    if plain_is_safe(text) { text.clone() } else { format!("'{}'", text.replace('\'', "''")) }
}

fn plain_is_safe(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    if text.trim() != text || text.contains(": ") || text.contains(" #") || text.ends_with(':') {
        return false;
    }
    if "!&*-?|>@`\"'%#,[]{}=:".contains(first)
        && !(matches!(first, '-' | '?' | ':') && text.chars().nth(1).is_some_and(|c| !c.is_whitespace()))
    {
        return false;
    }
    if text.starts_with("---") || text.starts_with("...") {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    let word = matches!(
        lower.as_str(),
        "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "~" | "<<" | ".inf" | ".nan"
    );
    let number = text.parse::<f64>().is_ok() && lower.chars().any(|c| c.is_ascii_digit())
        || text.starts_with("0x")
        || text.starts_with("0o");
    let date = text.len() >= 8 && text.bytes().take(4).all(|b| b.is_ascii_digit()) && text.as_bytes()[4] == b'-';
    let sexagesimal = text.contains(':') && text.bytes().all(|b| b.is_ascii_digit() || b == b':');
    !(word || number || date || sexagesimal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_like_pyyaml() {
        let value = json!({"b": [1, {"k": "v", "a": "yes"}], "a": {"x": "1.5", "y": null}});
        assert_eq!(block(&value, 4, true), "a:\n    x: '1.5'\n    y: null\nb:\n- 1\n-   a: 'yes'\n    k: v\n");
        assert_eq!(json(&json!({"a": [1, "x"]}), None), r#"{"a": [1, "x"]}"#);
        assert_eq!(json(&json!({"b": 1, "a": []}), Some(4)), "{\n    \"a\": [],\n    \"b\": 1\n}");
        assert_eq!(compact(&json!({"a": 1, "b": "x"}), 2), "{a: 1, b: x}\n");
    }
}
