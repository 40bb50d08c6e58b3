//! The operator `%`: the remainder of numbers, and Python's formatting of texts.

use super::text::widths_fit;
use super::{FilterResult, failure, list};
use crate::lang::python;
use minijinja::formatting::{FormatStyle, format};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};

/// Name of the function that `template/python_source.rs` writes for `%`.
pub const NAME: &str = "__percent";

pub fn register(env: &mut Environment<'static>) {
    env.add_function(NAME, percent);
}

/// `left % right`. If `tuple`, the right side is written in parentheses, so its items fill the
/// format one by one.
fn percent(left: Value, tuple: bool, right: Value) -> FilterResult {
    if left.is_undefined() || right.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    match left.as_str() {
        Some(text) => format_text(text, tuple, &right).map(Value::from),
        None => remainder(&left, &right),
    }
}

fn format_text(text: &str, tuple: bool, right: &Value) -> Result<String, Error> {
    let (text, args) = match right.kind() {
        ValueKind::Map if text.contains("%(") => named_arguments(text, right)?,
        ValueKind::Seq | ValueKind::Iterable if tuple => (text.to_owned(), list(NAME, right)?),
        _ => (text.to_owned(), vec![right.clone()]),
    };
    // `%s` prints a list or map as Python's `str`.
    let shown = |arg: Value| match arg.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::None => python::text(&arg).map(Value::from),
        _ => Ok(arg),
    };
    let args = args.into_iter().map(shown).collect::<Result<Vec<_>, _>>()?;
    widths_fit(&text, '%', &args)?;
    let directives = text.replace("%%", "").matches('%').count();
    if directives < args.len() && right.kind() != ValueKind::Map {
        return Err(failure("not all arguments of `%` are used by the format"));
    }
    format(FormatStyle::Printf, &text, &args)
}

/// Replaces `%(name)s` by `%s`, and returns the values of these names in order.
fn named_arguments(text: &str, map: &Value) -> Result<(String, Vec<Value>), Error> {
    let (mut out, mut args, mut rest) = (String::new(), Vec::new(), text);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            let value = map.get_item(&Value::from(name))?;
            if value.is_undefined() {
                return Err(failure(format!("`%`: the map has no key `{name}`")));
            }
            args.push(value);
            rest = after;
        }
    }
    out.push_str(rest);
    Ok((out, args))
}

/// The remainder has the sign of the divisor, as in Python.
fn remainder(left: &Value, right: &Value) -> FilterResult {
    let wrong = || failure(format!("`%` takes numbers, not {} and {}", left.kind(), right.kind()));
    let whole =
        |value: &Value| if value.kind() == ValueKind::Bool { Some(i64::from(value.is_true())) } else { value.as_i64() };
    if let (Some(a), Some(b)) = (whole(left), whole(right)) {
        let rest = a.checked_rem(b).ok_or_else(|| failure("`%`: division by zero"))?;
        return Ok(Value::from(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }));
    }
    let float = |value: &Value| f64::try_from(value.clone()).map_err(|_| wrong());
    let (a, b) = (float(left)?, float(right)?);
    if b == 0.0 {
        return Err(failure("`%`: division by zero"));
    }
    let rest = a % b;
    Ok(Value::from(if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }))
}
