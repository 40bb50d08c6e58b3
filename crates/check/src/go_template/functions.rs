//! The functions of Go and goss, and the table of all known functions. All are pure, except for the
//! environment and files that the caller provides.

use super::values::{equal, format_printed, is_true, kind, order, value_text};
use super::{Outside, Place, TemplateError, printf, sprig};
use crate::go_regex::go_regex;
use crate::markup::escape_markup;
use remoor_model::did_you_mean;
use serde_json::{Map, Value};
use std::cmp::Ordering;

/// A call of a template function, with its arguments.
pub(super) struct FunctionCall<'a> {
    pub name: &'a str,
    pub arguments: &'a [&'a Value],
    pub outside: &'a Outside<'a>,
}

const BUILTIN_NAMES: [&str; 26] = [
    "and",
    "or",
    "not",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "len",
    "index",
    "slice",
    "print",
    "println",
    "printf",
    "html",
    "mkSlice",
    "getEnv",
    "env",
    "readFile",
    "regexMatch",
    "findStringSubmatch",
    "toLower",
    "toUpper",
    "lower",
    "upper",
];

pub(super) fn is_known(name: &str) -> bool {
    BUILTIN_NAMES.contains(&name) || sprig::names().any(|known| known == name)
}

pub(super) fn unknown_function(at: Place, name: &str) -> TemplateError {
    let near = did_you_mean(name, BUILTIN_NAMES.into_iter().chain(sprig::names()));
    let trouble = at.trouble(format!("unknown function `{name}`"));
    trouble.hint(
        near.unwrap_or_else(|| {
            "see docs/reference/checks.md for the supported functions of Go, goss and sprig".to_owned()
        }),
    )
}

impl<'a> FunctionCall<'a> {
    pub fn count(&self, least: usize, most: usize) -> Result<(), String> {
        let found = self.arguments.len();
        match (least..=most).contains(&found) {
            true => Ok(()),
            false if least == most => Err(format!("takes {least} arguments, got {found}")),
            false if most == usize::MAX => Err(format!("takes at least {least} arguments, got {found}")),
            false => Err(format!("takes {least} to {most} arguments, got {found}")),
        }
    }

    pub fn text(&self, at: usize) -> Result<&'a str, String> {
        match self.arguments.get(at) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(format!("argument {} is {}, not a string", at + 1, kind(other))),
            None => Err(format!("argument {} is missing", at + 1)),
        }
    }

    pub fn list(&self, at: usize) -> Result<&'a [Value], String> {
        match self.arguments.get(at) {
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(format!("argument {} is {}, not a list", at + 1, kind(other))),
            None => Err(format!("argument {} is missing", at + 1)),
        }
    }

    pub fn map(&self, at: usize) -> Result<&'a Map<String, Value>, String> {
        match self.arguments.get(at) {
            Some(Value::Object(map)) => Ok(map),
            Some(other) => Err(format!("argument {} is {}, not a map", at + 1, kind(other))),
            None => Err(format!("argument {} is missing", at + 1)),
        }
    }

    pub fn argument(&self, at: usize) -> &'a Value {
        self.arguments.get(at).copied().unwrap_or(&Value::Null)
    }
}

pub(super) fn call(call: &FunctionCall) -> Result<Value, String> {
    let all = call.arguments;
    let (least, most) = match call.name {
        "not" | "len" | "toLower" | "toUpper" | "lower" | "upper" | "html" | "readFile" | "env" => (1, 1),
        "eq" => (2, usize::MAX),
        "ne" | "lt" | "le" | "gt" | "ge" | "regexMatch" | "findStringSubmatch" => (2, 2),
        "index" | "printf" => (1, usize::MAX),
        "slice" => (1, 3),
        "getEnv" => (1, 2),
        _ => (0, usize::MAX),
    };
    call.count(least, most)?;
    let ordered = |fits: fn(Ordering) -> bool| Ok(fits(order(all[0], all[1])?).into());
    match call.name {
        "not" => Ok((!is_true(all[0])).into()),
        "eq" => {
            for other in &all[1..] {
                if equal(all[0], other)? {
                    return Ok(true.into());
                }
            }
            Ok(false.into())
        }
        "ne" => Ok((!equal(all[0], all[1])?).into()),
        "lt" => ordered(Ordering::is_lt),
        "le" => ordered(Ordering::is_le),
        "gt" => ordered(Ordering::is_gt),
        "ge" => ordered(Ordering::is_ge),
        "len" => match all[0] {
            Value::String(text) => Ok(text.len().into()),
            Value::Array(items) => Ok(items.len().into()),
            Value::Object(map) => Ok(map.len().into()),
            other => Err(format!("{} has no length", kind(other))),
        },
        "index" => all[1..].iter().try_fold(all[0].clone(), |value, key| index(&value, key)),
        "slice" => slice(call),
        "print" => Ok(print(all).into()),
        "println" => Ok((all.iter().map(|value| value_text(value)).collect::<Vec<_>>().join(" ") + "\n").into()),
        "printf" => printf::printf(call.text(0)?, &all[1..]).map(Value::from),
        "html" => Ok(escape_markup(&format_printed(all[0])).into()),
        "mkSlice" => Ok(all.iter().map(|value| (*value).clone()).collect()),
        "getEnv" => {
            let found = call.outside.env.get(call.text(0)?).map(String::as_str);
            let default = if all.len() > 1 { call.text(1)? } else { "" };
            Ok(found.unwrap_or(default).into())
        }
        "env" => Ok(call.outside.env.get(call.text(0)?).map_or("", String::as_str).into()),
        "readFile" => {
            let path = call.text(0)?;
            let text = (call.outside.read)(path).map_err(|why| format!("{path}: {why}"))?;
            Ok(text.trim().into())
        }
        "regexMatch" => Ok(go_regex(call.text(0)?)?.is_match(call.text(1)?).into()),
        "findStringSubmatch" => find(call.text(0)?, call.text(1)?),
        "toLower" | "lower" => Ok(call.text(0)?.to_lowercase().into()),
        "toUpper" | "upper" => Ok(call.text(0)?.to_uppercase().into()),
        _ => sprig::call(call),
    }
}

/// An element of a list or a value of a map; null if the map does not have the key.
fn index(value: &Value, key: &Value) -> Result<Value, String> {
    match (value, key) {
        (Value::Array(items), Value::Number(n)) => {
            let at = n.as_u64().and_then(|n| usize::try_from(n).ok());
            at.and_then(|at| items.get(at))
                .cloned()
                .ok_or_else(|| format!("{n} is out of range, the list has {}", items.len()))
        }
        (Value::Object(map), Value::String(key)) => Ok(map.get(key).cloned().unwrap_or(Value::Null)),
        _ => Err(format!("{} cannot be indexed by {}", kind(value), kind(key))),
    }
}

fn slice(call: &FunctionCall) -> Result<Value, String> {
    let items = call.list(0)?;
    let bound = |at: usize, default: usize| match call.arguments.get(at) {
        None => Ok(default),
        Some(value) => {
            let n = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= items.len());
            n.ok_or_else(|| format!("{} is not a position in a list of {} elements", value_text(value), items.len()))
        }
    };
    let (from, to) = (bound(1, 0)?, bound(2, items.len())?);
    items
        .get(from..to)
        .map(|part| part.to_vec().into())
        .ok_or_else(|| format!("the start {from} is after the end {to}"))
}

/// Prints the operands, with a space between two operands if neither is a string.
fn print(all: &[&Value]) -> String {
    let mut out = String::new();
    for (number, value) in all.iter().enumerate() {
        if number > 0 && !value.is_string() && !all[number - 1].is_string() {
            out.push(' ');
        }
        out.push_str(&value_text(value));
    }
    out
}

/// The capture groups of the first match: by name if any group is named, otherwise by number.
fn find(pattern: &str, text: &str) -> Result<Value, String> {
    let regex = go_regex(pattern)?;
    let regex = regex.regex();
    let Some(found) = regex.captures(text) else { return Ok(Value::Object(Map::new())) };
    let named = regex.capture_names().any(|name| name.is_some());
    let group = |(number, name): (usize, Option<&str>)| {
        let key = if named { name?.to_owned() } else { number.to_string() };
        Some((key, found.get(number).map_or("", |part| part.as_str()).into()))
    };
    Ok(Value::Object(regex.capture_names().enumerate().filter_map(group).collect()))
}
