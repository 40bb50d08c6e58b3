//! Queries `#(name=="x")` and `#(age>45)#`: the first element of a list, or all elements, for which
//! a comparison holds.

use super::scan::{self, GjsonStep, matches_wildcard};
use super::{Found, Walk};
use serde_json::Value;

/// A query and the path after it.
#[derive(Debug, PartialEq)]
pub(super) struct Query<'a> {
    path: &'a str,
    /// The comparison operator. Empty if it is enough that `path` exists.
    operator: &'a str,
    value: String,
    all: bool,
    step: GjsonStep<'a>,
}

impl<'a> Query<'a> {
    /// None if the query is not closed. Such a query finds nothing.
    pub fn parse(path: &'a str) -> Option<Self> {
        let body = path.strip_prefix('#')?;
        let end = scan::balanced_length(body);
        let inside = body[..end].strip_prefix(['(', '['])?.strip_suffix([')', ']'])?;
        let comparison = comparison_at(inside).unwrap_or(inside.len());
        let (asked, rest) = inside.split_at(comparison);
        let (operator, value) = operator(rest.trim());
        let (all, after) = body[end..].strip_prefix('#').map_or((false, &body[end..]), |after| (true, after));
        let step = match after.strip_prefix('.') {
            Some(rest) => GjsonStep::Into(rest),
            None => after.strip_prefix('|').map_or(GjsonStep::End, GjsonStep::Pipe),
        };
        Some(Self { path: asked.trim(), operator, value: unquote(value.trim()), all, step })
    }

    fn holds(&self, found: Option<&Value>) -> bool {
        let turned;
        let (mut found, mut wanted) = (found, self.value.as_str());
        if let Some(kind) = wanted.strip_prefix('~') {
            turned = match kind {
                "*" => Some(found.is_some()),
                "null" => Some(found.is_none_or(Value::is_null)),
                "true" => Some(found.and_then(truth) == Some(true)),
                "false" => Some(found.is_none_or(|v| v.is_null() || truth(v) == Some(false))),
                _ => None,
            }
            .map(Value::Bool);
            (found, wanted) = (turned.as_ref(), "true");
        }
        let Some(found) = found else { return false };
        if self.operator.is_empty() {
            return true;
        }
        let ordering = match found {
            Value::String(text) => match self.operator {
                "%" => return matches_wildcard(text, wanted),
                "!%" => return !matches_wildcard(text, wanted),
                _ => Some(text.as_str().cmp(wanted)),
            },
            Value::Number(number) => number.as_f64().and_then(|n| n.partial_cmp(&wanted.parse().unwrap_or(0.0))),
            // As in gjson: for `true`, `<` and `<=` never hold and `>=` always holds. For `false`,
            // `>` and `>=` never hold and `<=` always holds.
            Value::Bool(flag) => {
                let (word, opposite) = if *flag { ("true", "false") } else { ("false", "true") };
                return match (self.operator, flag) {
                    ("=", _) => wanted == word,
                    ("!=", _) => wanted != word,
                    (">", true) | ("<", false) => wanted == opposite,
                    (">=", true) | ("<=", false) => true,
                    _ => false,
                };
            }
            _ => None,
        };
        ordering.is_some_and(|ordering| match self.operator {
            "=" => ordering.is_eq(),
            "!=" => ordering.is_ne(),
            "<" => ordering.is_lt(),
            "<=" => ordering.is_le(),
            ">" => ordering.is_gt(),
            ">=" => ordering.is_ge(),
            _ => false,
        })
    }
}

impl Walk<'_> {
    pub(super) fn query(&self, items: &[Value], query: &Query, pipe: &mut Option<String>, depth: usize) -> Found {
        if let GjsonStep::Pipe(rest) = query.step {
            *pipe = Some(rest.to_owned());
        }
        let mut all = Vec::new();
        for item in items {
            self.spend(1)?;
            let found = match item {
                Value::Object(_) | Value::Array(_) => self.get(Some(item), query.path, depth + 1)?,
                _ if query.path.is_empty() => Some(item.clone()),
                _ => continue,
            };
            if !query.holds(found.as_ref()) {
                continue;
            }
            let found = match query.step {
                GjsonStep::Into(rest) => {
                    let (rest, behind) = scan::split_pipe(rest);
                    if let Some(behind) = behind {
                        *pipe = Some(behind.to_owned());
                    }
                    self.get(Some(item), rest, depth + 1)?
                }
                _ => Some(self.copy(item)?),
            };
            if !query.all {
                return Ok(found);
            }
            all.extend(found);
        }
        Ok(query.all.then_some(Value::Array(all)))
    }
}

/// The byte offset of the first comparison operator outside of brackets and quotes.
fn comparison_at(inside: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(c) = inside[at..].chars().next() {
        match c {
            '!' | '=' | '<' | '>' | '%' => return Some(at),
            '\\' => at += 1 + inside[at + 1..].chars().next().map_or(0, char::len_utf8),
            '(' | '[' | '"' => at += scan::balanced_length(&inside[at..]),
            c => at += c.len_utf8(),
        }
    }
    None
}

fn operator(text: &str) -> (&'static str, &str) {
    const ALL: [(&str, &str); 10] = [
        ("!=", "!="),
        ("!%", "!%"),
        ("<=", "<="),
        (">=", ">="),
        ("==", "="),
        ("=", "="),
        ("<", "<"),
        (">", ">"),
        ("%", "%"),
        ("!", "!"),
    ];
    let found = ALL.iter().find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)));
    found.unwrap_or(("", text))
}

fn unquote(text: &str) -> String {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) => serde_json::from_str(text).unwrap_or_else(|_| inner.to_owned()),
        None => text.to_owned(),
    }
}

/// Whether the value counts as true for the operands `~true` and `~false`. None if it counts
/// neither as true nor as false.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => number.as_f64().map(|n| n != 0.0),
        Value::String(text) => match text.to_lowercase().as_str() {
            "1" | "t" | "true" => Some(true),
            "0" | "f" | "false" => Some(false),
            _ => None,
        },
        _ => None,
    }
}
