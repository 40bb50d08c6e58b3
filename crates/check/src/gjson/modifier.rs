//! The modifiers `@reverse`, `@keys` and others, which transform a found value.

use super::scan::ModifierCall;
use super::{Found, Walk};
use serde_json::{Map, Value, json};

impl Walk<'_> {
    pub(super) fn modify(&self, json: Option<&Value>, call: &ModifierCall, depth: usize) -> Found {
        let Some(value) = json else {
            let list = matches!(call.name, "keys" | "values" | "dig");
            return Ok(list.then(|| json!([])));
        };
        let value = self.copy(value)?;
        Ok(Some(match (call.name, value) {
            ("reverse", Value::Array(items)) => items.into_iter().rev().collect(),
            ("reverse", Value::Object(map)) => Value::Object(map.into_iter().rev().collect()),
            ("flatten", Value::Array(items)) => {
                let options: Option<Value> = serde_json::from_str(call.argument).ok();
                let deep = options.is_some_and(|options| options["deep"] == true);
                let mut flat = Vec::new();
                flatten(items, deep, &mut flat);
                Value::Array(flat)
            }
            ("keys", Value::Object(map)) => map.into_iter().map(|(key, _)| Value::String(key)).collect(),
            ("keys", Value::Array(items)) => items.iter().map(|_| Value::Null).collect(),
            ("keys", _) => json!([null]),
            ("values", Value::Object(map)) => map.into_iter().map(|(_, value)| value).collect(),
            ("values", Value::Array(items)) => Value::Array(items),
            ("values", one) => Value::Array(vec![one]),
            ("join", Value::Array(items)) => Value::Object(merge_maps(items)),
            ("fromstr", Value::String(text)) => return Ok(serde_json::from_str(&text).ok()),
            ("fromstr", Value::Null) => return Ok(None),
            ("group", Value::Object(map)) => group(map),
            ("group", _) => return Ok(None),
            ("dig", value) => {
                let mut all = Vec::new();
                self.dig(&value, call.argument, &mut all, depth + 1)?;
                Value::Array(all)
            }
            (_, value) => value,
        }))
    }

    /// Adds to `all` the value at `path` within `value`. Does the same for each list and map that
    /// is nested in `value`.
    fn dig(&self, value: &Value, path: &str, all: &mut Vec<Value>, depth: usize) -> Result<(), String> {
        all.extend(self.get(Some(value), path, depth)?);
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| self.dig(item, path, all, depth)),
            Value::Object(map) => map.values().try_for_each(|value| self.dig(value, path, all, depth)),
            _ => Ok(()),
        }
    }
}

fn flatten(items: Vec<Value>, deep: bool, flat: &mut Vec<Value>) {
    for item in items {
        match item {
            Value::Array(inner) if deep => flatten(inner, deep, flat),
            Value::Array(inner) => flat.extend(inner),
            other => flat.push(other),
        }
    }
}

/// Merges the maps of a list. For equal keys, the last value is used at the position of the first.
fn merge_maps(items: Vec<Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for item in items {
        if let Value::Object(map) = item {
            all.extend(map);
        }
    }
    all
}

/// Converts `{"id": [1, 2], "name": ["a", "b"]}` to a list of maps.
fn group(map: Map<String, Value>) -> Value {
    let mut all: Vec<Map<String, Value>> = Vec::new();
    for (key, value) in map {
        let Value::Array(items) = value else { continue };
        for (number, item) in items.into_iter().enumerate() {
            if number == all.len() {
                all.push(Map::new());
            }
            all[number].insert(key.clone(), item);
        }
    }
    all.into_iter().map(Value::Object).collect()
}
