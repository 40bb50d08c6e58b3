//! gjson's path language, which goss uses for JSON: `a.b`, `list.#.name`, `list.#(age>45)#.last`,
//! `a|@reverse`, `[a,b]`.
//!
//! The search works on parsed values. The only crate for gjson had its last release in 2022,
//! searches in text that it does not validate, and lacks `@keys`, `@values`, `@fromstr`, `@group`
//! and `@dig`. Pure. The caller limits the cost of a search, because each step of a path may double
//! the value.

mod modifier;
mod query;
mod scan;

use super::go_value::floats;
use query::Query;
use scan::GjsonStep;
use serde_json::{Map, Value};

/// `Ok(None)` if there is nothing at the path. Err if the search costs more than the caller allows.
type Found = Result<Option<Value>, String>;

/// Maximum length of a path in bytes.
const LONGEST: usize = 4096;
/// Maximum nesting of paths, including those after a `|`.
const DEEPEST: usize = 50;

/// The value at `path`, with all numbers as floating point, as in goss. None if nothing is at
/// `path`.
///
/// `spend` is called with 1 for each value that is visited or copied, and with 1 more per 64 bytes
/// of its text. An error of `spend` ends the search.
pub(super) fn get(document: &Value, path: &str, spend: &dyn Fn(usize) -> Result<(), String>) -> Found {
    Ok(Walk { spend }.get(Some(document), path, 0)?.map(floats))
}

/// The reason why `path` is not supported, for faults that are reported while a check file is
/// loaded. None if `path` is supported.
pub(super) fn refusal(path: &str) -> Option<String> {
    let has = |modifier: &str| {
        path.match_indices(modifier)
            .any(|(at, _)| !path[at + modifier.len()..].starts_with(|c: char| c.is_alphanumeric()))
    };
    if path.len() > LONGEST {
        Some(format!("the gjson path has {} bytes; the maximum is {LONGEST}", path.len()))
    } else if path.starts_with("..") {
        Some("gjson's `..` for JSON lines is not supported".to_owned())
    } else if has("@tostr") {
        Some("gjson's `@tostr` is not supported, because it depends on the white space of the document".to_owned())
    } else if path.contains("@join:") {
        Some("gjson's `@join` with an argument is not supported".to_owned())
    } else {
        None
    }
}

/// One evaluation of a path, with the callback that counts the cost of each step.
struct Walk<'a> {
    spend: &'a dyn Fn(usize) -> Result<(), String>,
}

impl Walk<'_> {
    fn spend(&self, cost: usize) -> Result<(), String> {
        (self.spend)(cost)
    }

    fn copy(&self, value: &Value) -> Result<Value, String> {
        self.weigh(value)?;
        Ok(value.clone())
    }

    fn weigh(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(text) => self.spend(1 + text.len() / 64),
            Value::Array(items) => {
                self.spend(1)?;
                items.iter().try_for_each(|item| self.weigh(item))
            }
            Value::Object(map) => {
                self.spend(1)?;
                map.iter().try_for_each(|(key, value)| {
                    self.spend(1 + key.len() / 64)?;
                    self.weigh(value)
                })
            }
            _ => self.spend(1),
        }
    }

    /// The value at `path` of `json`. `depth` is the nesting of this path in other paths.
    fn get(&self, json: Option<&Value>, path: &str, depth: usize) -> Found {
        if depth > DEEPEST {
            return Err("the gjson path is nested too deeply".to_owned());
        }
        // A path of one character is never a modifier, a literal or a selection.
        if path.len() > 1 {
            let (made, rest) = match path.as_bytes()[0] {
                b'@' => match scan::modifier(path) {
                    Some((call, rest)) => (Some(self.modify(json, &call, depth)?), rest),
                    None => (None, path),
                },
                b'!' => match scan::literal(path) {
                    Some((value, rest)) => (Some(Some(value)), rest),
                    None => (None, path),
                },
                open @ (b'[' | b'{') => match scan::selectors(path) {
                    Some((selectors, rest)) if rest.is_empty() || rest.starts_with(['.', '|']) => {
                        (Some(Some(self.select(json, open, &selectors, depth)?)), rest)
                    }
                    _ => (None, path),
                },
                _ => (None, path),
            };
            if let Some(made) = made {
                return match rest.strip_prefix(['.', '|']) {
                    Some(rest) => self.get(made.as_ref(), rest, depth + 1),
                    None => Ok(made),
                };
            }
        }
        let mut pipe = None;
        let found = match json {
            Some(json) => self.descend(json, path, &mut pipe, depth)?,
            None => None,
        };
        match pipe {
            Some(pipe) => self.get(found.as_ref(), &pipe, depth + 1),
            None => Ok(found),
        }
    }

    /// Follows names and indexes. The path after a `|` is not followed but returned in `pipe`.
    fn descend(&self, json: &Value, path: &str, pipe: &mut Option<String>, depth: usize) -> Found {
        self.spend(1)?;
        match json {
            Value::Object(map) => self.object(map, path, pipe, depth),
            Value::Array(items) if path.starts_with("#(") || path.starts_with("#[") => match Query::parse(path) {
                Some(query) => self.query(items, &query, pipe, depth),
                None => Ok(None),
            },
            Value::Array(items) => self.array(items, path, pipe, depth),
            _ => Ok(None),
        }
    }

    fn object(&self, map: &Map<String, Value>, path: &str, pipe: &mut Option<String>, depth: usize) -> Found {
        let (name, wild, step) = scan::name(path);
        if let GjsonStep::Pipe(rest) = step {
            *pipe = Some(rest.to_owned());
        }
        for (key, value) in map {
            self.spend(1)?;
            if !(if wild { scan::matches_wildcard(key, &name) } else { *key == name }) {
                continue;
            }
            match step {
                GjsonStep::Into(rest) => {
                    if let Some(found) = self.descend(value, rest, pipe, depth)? {
                        return Ok(Some(found));
                    }
                }
                _ => return self.copy(value).map(Some),
            }
        }
        Ok(None)
    }

    fn array(&self, items: &[Value], path: &str, pipe: &mut Option<String>, depth: usize) -> Found {
        if let Some(rest) = path.strip_prefix("#.") {
            let (rest, behind) = scan::split_pipe(rest);
            if let Some(behind) = behind {
                *pipe = Some(behind.to_owned());
            }
            let mut all = Vec::new();
            for item in items {
                all.extend(self.get(Some(item), rest, depth + 1)?);
            }
            return Ok(Some(Value::Array(all)));
        }
        let (part, step) = scan::index(path);
        if let GjsonStep::Pipe(rest) = step {
            *pipe = Some(rest.to_owned());
        }
        if part == "#" {
            return Ok(Some(items.len().into()));
        }
        let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        match (part.parse::<usize>().ok().filter(|_| digits).and_then(|n| items.get(n)), step) {
            (Some(item), GjsonStep::Into(rest)) => self.descend(item, rest, pipe, depth),
            (Some(item), _) => self.copy(item).map(Some),
            (None, _) => Ok(None),
        }
    }

    /// Evaluates `[a,b]` or `{a,"name":b}`. Paths without a value are left out of the result.
    fn select(
        &self,
        json: Option<&Value>,
        open: u8,
        selectors: &[scan::Selector],
        depth: usize,
    ) -> Result<Value, String> {
        let mut items = Vec::new();
        let mut map = Map::new();
        for selector in selectors {
            if let Some(found) = self.get(json, selector.path, depth + 1)? {
                match open {
                    b'[' => items.push(found),
                    _ => drop(map.insert(selector.key(), found)),
                }
            }
        }
        Ok(if open == b'[' { Value::Array(items) } else { Value::Object(map) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::cell::Cell;

    fn document() -> Value {
        json!({
            "a": {"b.c": 1, "": 2, "b*": 3}, "": 4, "@context": 5, "null": null, "text": "{\"z\": [1]}",
            "l": [{"n": 1}, {}, {"n": 3}, {"n": {"m": [7, 8]}}], "deep": [[1, [2]], 3, [[4]]], "t": [true, false, "x", null, 5],
            "friends": [
                {"first": "Dale", "last": "Murphy", "age": 44, "nets": ["ig", "fb", "tw"]},
                {"first": "Roger", "last": "Craig", "age": 68, "nets": ["fb", "tw"]},
                {"first": "Jane", "last": "Murphy", "age": 47, "nets": ["ig", "tw"], "gone": null},
            ],
            "columns": {"id": [1, 2], "name": ["x", "y"], "other": 5},
        })
    }

    fn get_bounded(document: &Value, path: &str) -> Found {
        let left = Cell::new(100_000_usize);
        let spend = |cost| left.get().checked_sub(cost).map(|rest| left.set(rest)).ok_or_else(|| "too much".to_owned());
        get(document, path, &spend)
    }

    fn ask(path: &str) -> Option<Value> {
        get_bounded(&document(), path).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// goss 0.4.9 gives the same answer for each of these paths.
    #[test]
    fn each_part_of_the_language() {
        let cases = [
            ("a.b\\.c", json!(1.0)),
            ("a.", json!(2.0)),
            ("", json!(4.0)),
            ("a.b\\*", json!(3.0)),
            ("a.b?c", json!(1.0)),
            ("*.b*", json!(1.0)),
            ("@context", json!(5.0)),
            ("null", json!(null)),
            ("l.#", json!(4.0)),
            ("l|#", json!(4.0)),
            ("l.2.n", json!(3.0)),
            ("l.3.n.m.1", json!(8.0)),
            ("l.#.n", json!([1.0, 3.0, {"m": [7.0, 8.0]}])),
            ("l.#.n|1", json!(3.0)),
            ("friends.#(last==\"Murphy\").first", json!("Dale")),
            ("friends.#(last=\"Murphy\")#.first", json!(["Dale", "Jane"])),
            ("friends.#(age>45)#.last", json!(["Craig", "Murphy"])),
            ("friends.#(age<=44)#|#", json!(1.0)),
            ("friends.#(first%\"D*\").last", json!("Murphy")),
            ("friends.#(first!%\"D*\").last", json!("Craig")),
            ("friends.#(nets.#(==\"fb\"))#.first", json!(["Dale", "Roger"])),
            ("friends.#(nets)#.age", json!([44.0, 68.0, 47.0])),
            ("friends.#(gone==~null)#.first", json!(["Dale", "Roger", "Jane"])),
            ("friends.#(gone!=~*)#.first", json!(["Dale", "Roger"])),
            ("friends.#(last=\"Murphy\")#|0.age", json!(44.0)),
            ("friends.#(last=\"Murphy\")#.0", json!([])),
            ("friends.#(last=\"Nobody\")#", json!([])),
            ("friends.#(age!=44)#.first|@reverse", json!(["Jane", "Roger"])),
            ("t.#(==true)#", json!([true])),
            ("t.#(==~true)#", json!([true, 5.0])),
            ("t.#(>4)#", json!(["x", 5.0])),
            ("deep.@flatten", json!([1.0, [2.0], 3.0, [4.0]])),
            ("deep.@flatten:{\"deep\":true}", json!([1.0, 2.0, 3.0, 4.0])),
            ("a.@keys", json!(["b.c", "", "b*"])),
            ("a|@values|@reverse|0", json!(3.0)),
            ("text.@fromstr.z.0", json!(1.0)),
            ("friends.@join.first", json!("Jane")),
            ("columns.@group.1.name", json!("y")),
            ("@dig:m", json!([[7.0, 8.0]])),
            ("friends.0.@this.age", json!(44.0)),
            ("missing|@keys", json!([])),
            ("[a.b\\.c,missing,l.#]", json!([1.0, 4.0])),
            ("{a.b?c,\"of us\":l.#,x:!true}", json!({"b?c": 1.0, "of us": 4.0, "x": true})),
            ("{l.#,l.#(n=3).n}.n", json!(3.0)),
            ("[!\"a b\",!5].1", json!(5.0)),
        ];
        for (path, value) in cases {
            assert_eq!(refusal(path), None);
            assert_eq!(ask(path), Some(value), "{path}");
        }
        for path in [
            "a.#",
            "l.9",
            "l.-1",
            "l.x",
            "a.b.c",
            "missing",
            "missing.@this",
            "friends.#(age>99)",
            "friends.#(bad",
            "a.@nothing",
            "text.z",
            "friends.#(last=\"Murphy\")#|first",
        ] {
            assert_eq!(ask(path), None, "{path}");
        }
        for path in ["..0", "a.@tostr", "l.@join:{\"preserve\":true}"] {
            assert!(refusal(path).is_some());
        }
    }

    #[test]
    fn doubling_paths_end() {
        let doubling = ["[@this,@this]"; 40].join("|");
        assert!(get_bounded(&json!([1, 2, 3]), &doubling).is_err());
        assert!(get_bounded(&json!([1, 2, 3]), &"@this|".repeat(600)).is_err());
        assert!(get_bounded(&json!({"a": 1}), &format!("{}a{}", "[".repeat(500), "]".repeat(500))).is_err());
        assert!(refusal(&"a".repeat(5000)).is_some());
    }

    proptest! {
        #[test]
        fn no_path_panics_and_names_alone_are_followed(
            path in "[abl#@.|\\[\\]{}()\"=!~%<>*?0-2,:\\\\]{0,20}",
            names in prop::collection::vec("[a-z]{1,3}", 1..5),
        ) {
            let _ = get_bounded(&document(), &path);
            let nested = names.iter().rev().fold(json!(7), |inner, name| json!({name: inner}));
            prop_assert_eq!(get_bounded(&nested, &names.join(".")), Ok(Some(json!(7.0))));
            prop_assert_eq!(get_bounded(&nested, &names.join("|")), Ok(Some(json!(7.0))));
        }
    }
}
