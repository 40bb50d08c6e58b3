//! The part of gjson's path language that check files use: `a.b`, `list.0`, `list.#`, `list.#.name`, `\.` for a dot in a key.

use serde_json::Value;

/// What is at `path`; None if there is nothing.
pub(super) fn get(document: &Value, path: &str) -> Option<Value> {
    let parts = split(path);
    find(document, &parts)
}

/// Whether `path` uses what is not part of this subset: queries, wildcards, modifiers, multipaths.
pub(super) fn is_beyond(path: &str) -> bool {
    path.is_empty() || path.contains(['*', '?', '@', '|', '(', '[', '{', '!'])
}

fn find(value: &Value, parts: &[String]) -> Option<Value> {
    let Some((first, rest)) = parts.split_first() else { return Some(value.clone()) };
    match value {
        Value::Array(items) if first == "#" && rest.is_empty() => Some(items.len().into()),
        Value::Array(items) if first == "#" => Some(items.iter().filter_map(|item| find(item, rest)).collect()),
        Value::Array(items) => find(items.get(first.parse::<usize>().ok()?)?, rest),
        Value::Object(map) => find(map.get(first)?, rest),
        _ => None,
    }
}

fn split(path: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '.' => parts.push(String::new()),
            '\\' => parts.last_mut().expect("never empty").extend(chars.next()),
            c => parts.last_mut().expect("never empty").push(c),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_through_maps_and_lists() {
        let document = json!({"a": {"b.c": 1, "": 2}, "l": [{"n": 1}, {}, {"n": 3}]});
        let ask = |path| get(&document, path);
        assert_eq!(ask("a.b\\.c"), Some(json!(1)));
        assert_eq!(ask("l.#"), Some(json!(3)));
        assert_eq!(ask("l.2.n"), Some(json!(3)));
        assert_eq!(ask("l.#.n"), Some(json!([1, 3])));
        assert_eq!(ask("a.#"), None);
        assert_eq!(ask("l.9"), None);
        assert_eq!(ask("a.b.c"), None);
    }
}
