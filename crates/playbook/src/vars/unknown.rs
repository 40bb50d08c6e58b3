//! Values that check mode cannot know: the value UNKNOWN, and conditions with a third truth value.
//!
//! A command that was not run leaves UNKNOWN in its result. An expression that reads UNKNOWN is
//! UNKNOWN too, with or without `default()`. The exception is a condition that its other parts
//! decide: `false and UNKNOWN` is false, and `true or UNKNOWN` is true.

use crate::plan::TaskCondition;
use crate::template::expr;
use crate::template::lint::quoted_length;
use crate::vars::scope::{ExprScope, with_trace};
use minijinja::Error;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Represents UNKNOWN in results, which are JSON. It is random, so that no value from outside this
/// process can equal it.
static MARK: LazyLock<String> = LazyLock::new(|| {
    let mut bytes = [0; 16];
    let random = getrandom::fill(&mut bytes).is_ok();
    format!("\u{1}unknown {} {}", if random { 0 } else { std::process::id() }, hex::encode(bytes))
});
/// Maximum number of parts of one condition that are evaluated separately.
const NODES_MAX: usize = 1_000;

/// The JSON value that represents UNKNOWN.
pub fn mark() -> Value {
    Value::String(MARK.clone())
}

pub fn is_mark(text: &str) -> bool {
    text.starts_with('\u{1}') && text == *MARK
}

pub fn is_unknown(value: &Value) -> bool {
    value.as_str().is_some_and(is_mark)
}

/// Represents UNKNOWN in a message to another process, whose mark differs.
const WIRE_MARK: &str = "\u{1}unknown";

/// Replaces the mark of this process by that of messages.
pub fn to_wire(value: &mut Value) {
    replace_text(value, &MARK, WIRE_MARK);
}

/// Replaces the mark of messages by that of this process.
pub fn from_wire(value: &mut Value) {
    replace_text(value, WIRE_MARK, &MARK);
}

/// Removes the mark of messages. A value that it represents becomes null.
pub fn remove_from_wire(value: &mut Value) {
    match value {
        Value::String(text) if text == WIRE_MARK => *value = Value::Null,
        Value::Array(items) => items.iter_mut().for_each(remove_from_wire),
        Value::Object(map) => {
            map.shift_remove(WIRE_MARK);
            map.values_mut().for_each(remove_from_wire);
        }
        _ => {}
    }
}

fn replace_text(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text == from => *text = to.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_text(item, from, to)),
        Value::Object(map) => {
            if let Some(marked) = map.remove(from) {
                map.insert(to.to_owned(), marked);
            }
            map.values_mut().for_each(|item| replace_text(item, from, to));
        }
        _ => {}
    }
}

/// Makes a map with known keys, in which every other key is UNKNOWN.
pub fn open(known: Map<String, Value>) -> Value {
    let mut map = known;
    map.insert(MARK.clone(), Value::Bool(true));
    Value::Object(map)
}

/// Whether all conditions hold; None: UNKNOWN. An error carries the line of the condition that
/// could not be evaluated.
pub fn all_hold(scope: &ExprScope, conditions: &[TaskCondition]) -> Result<Option<bool>, (u32, Error)> {
    let mut out = Some(true);
    for condition in conditions {
        match holds(scope, &condition.text) {
            Ok(Some(true)) => {}
            Ok(Some(false)) => return Ok(Some(false)),
            Ok(None) => out = None,
            // It is not known whether this condition would be evaluated, so its error does not fail
            // the task.
            Err(_) if out.is_none() => {}
            Err(e) => return Err((condition.line, e)),
        }
    }
    Ok(out)
}

/// Whether a condition holds; None: UNKNOWN.
pub fn holds(scope: &ExprScope, text: &str) -> Result<Option<bool>, Error> {
    let mut left = NODES_MAX;
    evaluate_parts(scope, text, &mut left)
}

fn evaluate_parts(scope: &ExprScope, text: &str, left: &mut usize) -> Result<Option<bool>, Error> {
    let (plain, trace) = with_trace(|| expr::truth(scope, text));
    if !trace.unknown {
        return plain.map(Some);
    }
    *left = left.saturating_sub(1);
    if *left == 0 {
        return Ok(None);
    }
    let mut part = |text: &str| evaluate_parts(scope, text, left).ok().flatten();
    Ok(match Form::parse(expr::inner_expression(text).unwrap_or(text)) {
        Form::Not(inner) => part(inner).map(|b| !b),
        Form::Or(parts) => {
            let parts: Vec<_> = parts.into_iter().map(part).collect();
            if parts.contains(&Some(true)) { Some(true) } else { all_equal(&parts, false) }
        }
        Form::And(parts) => {
            let parts: Vec<_> = parts.into_iter().map(part).collect();
            if parts.contains(&Some(false)) { Some(false) } else { all_equal(&parts, true) }
        }
        Form::Group(inner) => part(inner),
        Form::Whole => None,
    })
}

/// Returns `Some(value)` if all parts are `value`.
fn all_equal(parts: &[Option<bool>], value: bool) -> Option<bool> {
    parts.iter().all(|part| *part == Some(value)).then_some(value)
}

/// How a condition is composed: its outermost operator, with the operands.
#[derive(Debug, PartialEq)]
enum Form<'t> {
    Or(Vec<&'t str>),
    And(Vec<&'t str>),
    Not(&'t str),
    /// An expression in parentheses.
    Group(&'t str),
    Whole,
}

impl<'t> Form<'t> {
    fn parse(text: &'t str) -> Self {
        let text = text.trim();
        let words = top_words(text);
        let cut = |word: &str| {
            let mut parts = Vec::new();
            let mut from = 0;
            for (at, found) in words.iter().filter(|(_, found)| *found == word) {
                parts.push(&text[from..*at]);
                from = at + found.len();
            }
            parts.push(&text[from..]);
            parts
        };
        let has = |word: &str| words.iter().any(|(_, found)| *found == word);
        if has("if") {
            Self::Whole
        } else if has("or") {
            Self::Or(cut("or"))
        } else if has("and") {
            Self::And(cut("and"))
        } else if words.first() == Some(&(0, "not")) {
            Self::Not(&text[3..])
        } else if text.starts_with('(') && closing_bracket(text) == Some(text.len() - 1) {
            Self::Group(&text[1..text.len() - 1])
        } else {
            Self::Whole
        }
    }
}

/// Words outside quotes and brackets, with their positions.
fn top_words(text: &str) -> Vec<(usize, &str)> {
    let mut out = Vec::new();
    let (mut depth, mut at) = (0_i32, 0);
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let len = match c {
            '"' | '\'' => quoted_length(rest),
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            c => c.len_utf8(),
        };
        depth += bracket(c);
        if depth == 0 && word(c) {
            out.push((at, &rest[..len]));
        }
        at += len;
    }
    out
}

/// The position at which the bracket at the start of the text is closed.
fn closing_bracket(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_i32, 0);
    while let Some(c) = text[at..].chars().next() {
        depth += bracket(c);
        if depth == 0 {
            return Some(at);
        }
        at += if matches!(c, '"' | '\'') { quoted_length(&text[at..]) } else { c.len_utf8() };
    }
    None
}

/// The change of the nesting depth after this character.
fn bracket(c: char) -> i32 {
    match c {
        '(' | '[' | '{' => 1,
        ')' | ']' | '}' => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vars::var_map::{Var, VarMap};
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    #[test]
    fn a_third_truth_value() {
        let vars = json!({
            "yes": true, "no": false, "u": mark(), "list": [1],
        });
        let known = json!({"skipped": false, "changed": true, "failed": false});
        let mut layer = VarMap::from_untrusted(vars.as_object().unwrap());
        layer.set("r", Var::new(&open(known.as_object().unwrap().clone()), false));
        let scope = ExprScope::new(vec![Arc::new(layer)], BTreeSet::new());
        for (text, want) in [
            ("u", None),
            ("not u", None),
            ("u and no", Some(false)),
            ("no and u", Some(false)),
            ("u and yes", None),
            ("u or yes", Some(true)),
            ("u or no", None),
            ("not (u and no)", Some(true)),
            ("(u or yes) and yes", Some(true)),
            ("u == 1 and (no or no)", Some(false)),
            ("u | default(true)", None),
            ("u is defined or yes", Some(true)),
            ("r.rc | default(0) == 0", None),
            ("r.stdout | default('') | length > 0 or no", None),
            ("r is skipped", Some(false)),
            ("r is changed", Some(true)),
            ("r is not skipped and r.rc == 0 or yes", Some(true)),
            ("r is failed or ' or ' in r.stdout", None),
            ("yes if u else yes", None),
            ("u in [1, 2] and 'and' == 'or'", Some(false)),
            ("{{ u or yes }}", Some(true)),
            ("(r | to_json) == ''", None),
            ("r.stat.exists | default(false)", None),
            ("r is defined", Some(true)),
            ("[u] | length == 1 and list | length == 1", None),
            ("'%s' ~ r == 'x'", None),
            ("r.rc == 0 and missing", None),
        ] {
            assert_eq!(holds(&scope, text).unwrap(), want, "{text}");
        }
        assert!(holds(&scope, "missing").is_err());
        let both = |a: &str, b: &str| {
            let condition = |t: &str| TaskCondition { text: t.into(), line: 1 };
            all_hold(&scope, &[condition(a), condition(b)]).map_err(|(line, _)| line)
        };
        assert_eq!(both("u", "no"), Ok(Some(false)));
        assert_eq!(both("u", "yes"), Ok(None));
        assert_eq!(both("u", "missing"), Ok(None));
        assert_eq!(both("yes", "missing"), Err(1));
    }
}
