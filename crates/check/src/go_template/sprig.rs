//! The functions of sprig that goss files use. The size of each result is limited.

use super::budget::{LIST_MAX, TEXT_MAX, fits};
use super::functions::FunctionCall;
use super::values::{is_true, kind, quote_text, value_text};
use crate::go_regex::go_regex;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// A function, with the number of arguments that it takes.
struct SprigFunction {
    name: &'static str,
    arguments: RangeInclusive<usize>,
    run: Run,
}

/// The code of a function. The caller has checked the number of arguments.
type Run = fn(&FunctionCall) -> Result<Value, String>;

/// The end of a range without a maximum.
const MANY: usize = usize::MAX;

static FUNCTIONS: [SprigFunction; 58] = [
    function("add", 1..=MANY, arithmetic),
    function("add1", 1..=1, arithmetic),
    function("append", 2..=2, |call| Ok(call.list(0)?.iter().chain([call.argument(1)]).cloned().collect())),
    function("atoi", 1..=1, |call| Ok(call.text(0)?.parse::<i64>().unwrap_or(0).into())),
    function("b64dec", 1..=1, decode_base64),
    function("b64enc", 1..=1, |call| Ok(STANDARD.encode(call.text(0)?).into())),
    function("cat", 0..=MANY, |call| Ok(join_each(call.arguments, value_text))),
    function("coalesce", 0..=MANY, |call| {
        Ok(call.arguments.iter().find(|value| is_true(value)).map_or(Value::Null, |value| (*value).clone()))
    }),
    function("compact", 1..=1, |call| Ok(call.list(0)?.iter().filter(|value| is_true(value)).cloned().collect())),
    function("concat", 0..=MANY, concat),
    function("contains", 2..=2, |call| Ok(call.text(1)?.contains(call.text(0)?).into())),
    function("default", 1..=2, |call| {
        Ok(if is_true(call.argument(1)) { call.argument(1).clone() } else { call.argument(0).clone() })
    }),
    function("dict", 0..=MANY, dict),
    function("div", 2..=2, arithmetic),
    function("empty", 1..=1, |call| Ok((!is_true(call.argument(0))).into())),
    function("fail", 1..=1, |call| Err(call.text(0)?.to_owned())),
    function("first", 1..=1, |call| Ok(call.list(0)?.first().cloned().unwrap_or(Value::Null))),
    function("float64", 1..=1, |call| Ok(to_float(call.argument(0)).into())),
    function("get", 2..=2, |call| Ok(call.map(0)?.get(call.text(1)?).cloned().unwrap_or_else(|| "".into()))),
    function("has", 2..=2, |call| Ok(call.list(1)?.contains(call.argument(0)).into())),
    function("hasKey", 2..=2, |call| Ok(call.map(0)?.contains_key(call.text(1)?).into())),
    function("hasPrefix", 2..=2, |call| Ok(call.text(1)?.starts_with(call.text(0)?).into())),
    function("hasSuffix", 2..=2, |call| Ok(call.text(1)?.ends_with(call.text(0)?).into())),
    function("indent", 2..=2, indent),
    function("int", 1..=1, |call| Ok(to_integer(call.argument(0)).into())),
    function("int64", 1..=1, |call| Ok(to_integer(call.argument(0)).into())),
    function("join", 2..=2, join),
    function("keys", 1..=1, |call| Ok(sorted_list(call.map(0)?.keys().cloned().collect()))),
    function("kindOf", 1..=1, |call| Ok(kind_of(call.argument(0)).into())),
    function("last", 1..=1, |call| Ok(call.list(0)?.last().cloned().unwrap_or(Value::Null))),
    function("list", 0..=MANY, |call| Ok(call.arguments.iter().map(|value| (*value).clone()).collect())),
    function("max", 1..=MANY, arithmetic),
    function("min", 1..=MANY, arithmetic),
    function("mod", 2..=2, arithmetic),
    function("mul", 1..=MANY, arithmetic),
    function("nindent", 2..=2, indent),
    function("nospace", 1..=1, |call| Ok(call.text(0)?.split_whitespace().collect::<String>().into())),
    function("quote", 0..=MANY, |call| Ok(join_each(call.arguments, |value| quote_text(&value_text(value))))),
    function("regexReplaceAll", 3..=3, regex_replace_all),
    function("repeat", 2..=2, repeat),
    function("replace", 3..=3, replace),
    function("rest", 1..=1, |call| Ok(call.list(0)?.iter().skip(1).cloned().collect())),
    function("sortAlpha", 1..=1, |call| Ok(sorted_list(call.list(0)?.iter().map(value_text).collect()))),
    function("splitList", 2..=2, split_list),
    function("squote", 0..=MANY, |call| Ok(join_each(call.arguments, |value| format!("'{}'", value_text(value))))),
    function("sub", 2..=2, arithmetic),
    function("substr", 3..=3, substr),
    function("ternary", 3..=3, ternary),
    function("toJson", 1..=1, |call| json(call.argument(0))),
    function("toString", 1..=1, |call| Ok(value_text(call.argument(0)).into())),
    function("trim", 1..=1, |call| Ok(call.text(0)?.trim().into())),
    function("trimAll", 2..=2, |call| {
        let set: BTreeSet<char> = call.text(0)?.chars().collect();
        Ok(call.text(1)?.trim_matches(|c| set.contains(&c)).into())
    }),
    function("trimPrefix", 2..=2, |call| Ok(call.text(1)?.strip_prefix(call.text(0)?).unwrap_or(call.text(1)?).into())),
    function("trimSuffix", 2..=2, |call| Ok(call.text(1)?.strip_suffix(call.text(0)?).unwrap_or(call.text(1)?).into())),
    function("trunc", 2..=2, |call| trunc(number(call, 0)?, call.text(1)?)),
    function("uniq", 1..=1, uniq),
    function("until", 1..=1, list_until),
    function("values", 1..=1, |call| {
        let map: BTreeMap<&String, &Value> = call.map(0)?.iter().collect();
        Ok(map.into_values().cloned().collect())
    }),
];

/// Makes an entry of [`FUNCTIONS`], so that the table needs one line per function.
const fn function(name: &'static str, arguments: RangeInclusive<usize>, run: Run) -> SprigFunction {
    SprigFunction { name, arguments, run }
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.iter().map(|function| function.name)
}

pub(super) fn call(call: &FunctionCall) -> Result<Value, String> {
    let function = FUNCTIONS.iter().find(|function| function.name == call.name);
    let function = function.ok_or_else(|| format!("unknown function `{}`", call.name))?;
    call.count(*function.arguments.start(), *function.arguments.end())?;
    (function.run)(call)
}

fn decode_base64(call: &FunctionCall) -> Result<Value, String> {
    let bytes = STANDARD.decode(call.text(0)?).map_err(|_| "the argument is not base64")?;
    String::from_utf8(bytes).map(Value::from).map_err(|_| "the decoded bytes are not UTF-8".to_owned())
}

fn concat(call: &FunctionCall) -> Result<Value, String> {
    let mut out = Vec::new();
    for at in 0..call.arguments.len() {
        out.extend(call.list(at)?.iter().cloned());
    }
    Ok(out.into())
}

fn regex_replace_all(call: &FunctionCall) -> Result<Value, String> {
    let (regex, text, with) = (go_regex(call.text(0)?)?, call.text(1)?, call.text(2)?);
    fits(text.len() + 1, with.len() + 1)?;
    let out = regex.regex().replace_all(text, with);
    fits(1, out.len())?;
    Ok(out.into_owned().into())
}

fn repeat(call: &FunctionCall) -> Result<Value, String> {
    let count = usize::try_from(number(call, 0)?).map_err(|_| "the count must not be negative")?;
    let text = call.text(1)?;
    fits(count, text.len().max(1))?;
    Ok(text.repeat(count).into())
}

fn replace(call: &FunctionCall) -> Result<Value, String> {
    let (from, to, text) = (call.text(0)?, call.text(1)?, call.text(2)?);
    fits(text.matches(from).count() + 1, to.len())?;
    Ok(text.replace(from, to).into())
}

fn split_list(call: &FunctionCall) -> Result<Value, String> {
    let parts: Vec<&str> = match call.text(0)? {
        "" => call.text(1)?.split_terminator("").skip(1).take(LIST_MAX + 1).collect(),
        separator => call.text(1)?.split(separator).take(LIST_MAX + 1).collect(),
    };
    if parts.len() > LIST_MAX { Err(format!("more than {LIST_MAX} parts")) } else { Ok(parts.into()) }
}

fn substr(call: &FunctionCall) -> Result<Value, String> {
    let from = usize::try_from(to_integer(call.argument(0))).unwrap_or(0);
    let text = call.text(2)?;
    let to = usize::try_from(to_integer(call.argument(1))).unwrap_or(text.len()).min(text.len());
    text.get(from..to).map(Value::from).ok_or_else(|| format!("{from} to {to} is not a range of the string"))
}

fn ternary(call: &FunctionCall) -> Result<Value, String> {
    match call.argument(2) {
        Value::Bool(yes) => Ok(call.argument(usize::from(!yes)).clone()),
        other => Err(format!("argument 3 is {}, not true or false", kind(other))),
    }
}

fn uniq(call: &FunctionCall) -> Result<Value, String> {
    let mut known = BTreeSet::new();
    Ok(call.list(0)?.iter().filter(|item| known.insert(sorted_json(item))).cloned().collect())
}

fn list_until(call: &FunctionCall) -> Result<Value, String> {
    match number(call, 0)? {
        count if count.unsigned_abs() > LIST_MAX as u64 => Err(format!("more than {LIST_MAX} elements")),
        count => Ok((0..count.abs()).map(|n| Value::from(n * count.signum())).collect()),
    }
}

fn arithmetic(call: &FunctionCall) -> Result<Value, String> {
    let mut numbers = call.arguments.iter().map(|value| to_integer(value));
    let first = numbers.next().unwrap_or(0);
    let step = |a: i64, b: i64| match call.name {
        "add" => a.checked_add(b),
        "sub" => a.checked_sub(b),
        "mul" => a.checked_mul(b),
        "div" => a.checked_div(b),
        "mod" => a.checked_rem(b),
        "max" => Some(a.max(b)),
        _ => Some(a.min(b)),
    };
    let result = if call.name == "add1" { first.checked_add(1) } else { numbers.try_fold(first, step) };
    result.map(Value::from).ok_or_else(|| "the result is not a valid integer".to_owned())
}

/// A numeric argument of a function for which sprig does not convert strings.
fn number(call: &FunctionCall, at: usize) -> Result<i64, String> {
    match call.argument(at) {
        value @ Value::Number(_) => Ok(to_integer(value)),
        other => Err(format!("argument {} is {}, not a number", at + 1, kind(other))),
    }
}

/// Converts to an integer as sprig does: a string that is not a number is 0, and fractions are cut
/// off.
fn to_integer(value: &Value) -> i64 {
    match value {
        Value::Bool(b) => i64::from(*b),
        Value::Number(n) => n.as_i64().unwrap_or_else(|| n.as_f64().unwrap_or(0.0) as i64),
        Value::String(text) => parse_integer(text).unwrap_or(0),
        _ => 0,
    }
}

/// Parses an integer as Go does, with the base given by the prefix: `0x10`, `0b11`, `0o17` and
/// `017`. Zeros after a decimal point are ignored.
fn parse_integer(text: &str) -> Option<i64> {
    let text = text
        .split_once('.')
        .filter(|(_, zeros)| zeros.bytes().all(|b| b == b'0') && !zeros.is_empty())
        .map_or(text, |(n, _)| n);
    let (sign, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (&text[..1], digits),
        None => ("", text),
    };
    let lower = digits.to_ascii_lowercase();
    let based = [("0x", 16), ("0b", 2), ("0o", 8)].into_iter().find(|(prefix, _)| lower.starts_with(prefix));
    let (prefix, base) = based.unwrap_or(if lower.len() > 1 && lower.starts_with('0') { ("0", 8) } else { ("", 10) });
    let rest = &lower[prefix.len()..];
    // `_` may be between digits or after the base prefix.
    let apart =
        |rest: &str| !rest.ends_with('_') && !rest.contains("__") && (!prefix.is_empty() || !rest.starts_with('_'));
    let is_digits = rest.bytes().all(|b| b == b'_' || char::from(b).is_digit(base));
    let rest = rest.replace('_', "");
    let fits = is_digits && apart(&lower[prefix.len()..]);
    i64::from_str_radix(&format!("{sign}{rest}"), base).ok().filter(|_| fits)
}

fn to_float(value: &Value) -> f64 {
    match value {
        Value::Number(n) => n.as_f64().unwrap_or(0.0),
        Value::String(text) => text.parse().ok().filter(|n: &f64| n.is_finite()).unwrap_or(0.0),
        _ => 0.0,
    }
}

fn dict(call: &FunctionCall) -> Result<Value, String> {
    let mut map = Map::new();
    for pair in call.arguments.chunks(2) {
        map.insert(value_text(pair[0]), pair.get(1).map_or_else(|| "".into(), |value| (*value).clone()));
    }
    Ok(Value::Object(map))
}

fn indent(call: &FunctionCall) -> Result<Value, String> {
    let (width, text) = (usize::try_from(to_integer(call.argument(0))).unwrap_or(0), call.text(1)?);
    fits(text.matches('\n').count() + 1, width)?;
    let blank = " ".repeat(width);
    let text = format!("{blank}{}", text.replace('\n', &format!("\n{blank}")));
    Ok(if call.name == "nindent" { format!("\n{text}") } else { text }.into())
}

fn join(call: &FunctionCall) -> Result<Value, String> {
    let separator = call.text(0)?;
    let parts: Vec<String> = match call.argument(1) {
        Value::Array(items) => items.iter().filter(|item| !item.is_null()).map(value_text).collect(),
        other => vec![value_text(other)],
    };
    fits(parts.len(), separator.len())?;
    Ok(parts.join(separator).into())
}

fn join_each(all: &[&Value], one: impl Fn(&Value) -> String) -> Value {
    all.iter().filter(|v| !v.is_null()).map(|value| one(value)).collect::<Vec<_>>().join(" ").into()
}

fn sorted_list(mut texts: Vec<String>) -> Value {
    texts.sort();
    texts.into()
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

fn trunc(count: i64, text: &str) -> Result<Value, String> {
    let length = usize::try_from(count.unsigned_abs()).unwrap_or(TEXT_MAX);
    let part = match count < 0 {
        true => text.get(text.len().saturating_sub(length)..),
        false => text.get(..length.min(text.len())),
    };
    part.map(Value::from).ok_or_else(|| "the result would end within a character".to_owned())
}

/// JSON as Go writes it: with sorted keys, and with the special characters of HTML escaped.
fn json(value: &Value) -> Result<Value, String> {
    let text = sorted_json(value);
    let safe = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    Ok(safe.into())
}

/// A number as Go writes it in JSON. It has an exponent if its absolute value is at least 1e21, or
/// below 1e-6 but not 0.
fn json_number(number: f64) -> String {
    let size = number.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{number:e}");
        return if size < 1.0 { text } else { text.replace('e', "e+") };
    }
    number.to_string()
}

fn sorted_json(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(sorted_json).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let map: BTreeMap<&String, &Value> = map.iter().collect();
            let pair = |(key, item): (&String, &Value)| format!("{}:{}", Value::from(key.as_str()), sorted_json(item));
            format!("{{{}}}", map.into_iter().map(pair).collect::<Vec<_>>().join(","))
        }
        Value::Number(n) if n.is_f64() => json_number(n.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}
