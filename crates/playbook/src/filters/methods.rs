//! The methods of Python's strings, lists and dictionaries that return a new value. `containers.rs`
//! has the methods that change a value in place.

use super::{FilterResult, UndefinedPolicy, failure, list, lists, text};
use crate::lang::python;
use minijinja::value::{Kwargs, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// All supported methods.
pub const KNOWN: &[&str] = &[
    "append",
    "capitalize",
    "center",
    "clear",
    "copy",
    "count",
    "date",
    "difference",
    "endswith",
    "extend",
    "find",
    "format",
    "get",
    "index",
    "insert",
    "intersection",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isoformat",
    "isoweekday",
    "isspace",
    "istitle",
    "isupper",
    "items",
    "join",
    "keys",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "pop",
    "popitem",
    "remove",
    "removeprefix",
    "removesuffix",
    "replace",
    "reverse",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "setdefault",
    "sort",
    "split",
    "splitlines",
    "startswith",
    "strftime",
    "strip",
    "swapcase",
    "timestamp",
    "title",
    "total_seconds",
    "union",
    "update",
    "upper",
    "values",
    "weekday",
    "zfill",
];

/// The methods that change a list or map in place.
pub const IN_PLACE: &[&str] =
    &["append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update"];

/// Calls a method that minijinja itself does not implement.
pub fn call(
    undefined: UndefinedPolicy,
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> FilterResult {
    if value.is_undefined() {
        return undefined.undefined_result();
    }
    if IN_PLACE.contains(&method) {
        return Err(failure(format!(
            "`.{method}()` changes only a list or map of a variable, not the result of another expression"
        )));
    }
    match value.kind() {
        ValueKind::String => call_on_text(state, value, method, args),
        ValueKind::Map => call_on_map(state, value, method, args),
        ValueKind::Seq | ValueKind::Iterable => call_on_list(value, method, args),
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn call_on_map(state: &mut State, value: &Value, method: &str, args: &[Value]) -> FilterResult {
    match (method, args) {
        ("copy", []) => Ok(value.clone()),
        ("get", [key]) => get_or_default(value, key, None),
        ("get", [key, other]) if !other.is_kwargs() => get_or_default(value, key, Some(other)),
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn get_or_default(value: &Value, key: &Value, other: Option<&Value>) -> FilterResult {
    let item = lists::item(value, key)?;
    Ok(match (item.is_undefined(), other) {
        (false, _) => item,
        (true, Some(other)) => other.clone(),
        (true, None) => Value::from(()),
    })
}

fn call_on_list(value: &Value, method: &str, args: &[Value]) -> FilterResult {
    let items = list(method, value)?;
    match (method, args) {
        ("copy", []) => Ok(items.into()),
        ("count", [item]) => Ok(items.iter().filter(|i| *i == item).count().into()),
        ("index", [item]) => {
            let at = items.iter().position(|i| i == item);
            at.map(Value::from).ok_or_else(|| failure(format!("index: `{item}` is not in the list")))
        }
        ("union", [other]) => Ok(lists::distinct(items.into_iter().chain(list(method, other)?)).into()),
        ("intersection" | "difference", [other]) => {
            let (other, keep) = (list(method, other)?, method == "intersection");
            Ok(lists::distinct(items.into_iter().filter(|i| other.contains(i) == keep)).into())
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn call_on_text(state: &mut State, value: &Value, method: &str, args: &[Value]) -> FilterResult {
    let own = value.as_str().unwrap_or_default();
    let word = |i: usize| args.get(i).and_then(Value::as_str);
    let pad = || -> Result<(usize, char), Error> {
        let width =
            args.first().and_then(Value::as_usize).ok_or_else(|| failure(format!("{method}: takes a width")))?;
        if width > 1 << 20 {
            return Err(failure(format!("{method}: the width is too large")));
        }
        Ok((width.saturating_sub(own.chars().count()), word(1).and_then(|f| f.chars().next()).unwrap_or(' ')))
    };
    Ok(match (method, args.len()) {
        ("split" | "rsplit", _) => {
            let (sep, max, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let sep = sep.or(kwargs.get("sep")?).filter(|s| !s.is_none()).map(|s| python::text(&s)).transpose()?;
            let max = max.or(kwargs.get("maxsplit")?).and_then(|n| usize::try_from(n).ok());
            kwargs.assert_all_used()?;
            match (method, max, &sep) {
                ("rsplit", Some(n), Some(sep)) if !sep.is_empty() => {
                    let mut parts: Vec<&str> = own.rsplitn(n + 1, sep.as_str()).collect();
                    parts.reverse();
                    parts.into_iter().map(str::to_owned).collect::<Vec<_>>().into()
                }
                ("rsplit", Some(_), _) => return Err(failure("rsplit: a limit requires a separator")),
                _ => text::split(own, sep.as_deref(), max)?.into(),
            }
        }
        ("replace", 2 | 3) => {
            let (old, new, limit): (String, String, Option<usize>) = from_args(args)?;
            text::replace_text(own, &old, &new, limit)?.into()
        }
        ("join", 1) => text::join_values(&list(method, &args[0])?, own)?.into(),
        ("swapcase", 0) => own
            .chars()
            .flat_map(
                |c| if c.is_uppercase() { c.to_lowercase().collect::<Vec<_>>() } else { c.to_uppercase().collect() },
            )
            .collect::<String>()
            .into(),
        ("capitalize", 0) => text::capitalize(own).into(),
        ("zfill", 1) => {
            let (room, _) = pad()?;
            let (sign, digits) = own.split_at(usize::from(own.starts_with(['-', '+'])));
            format!("{sign}{}{digits}", "0".repeat(room)).into()
        }
        ("ljust", 1 | 2) => pad().map(|(room, fill)| format!("{own}{}", fill.to_string().repeat(room)))?.into(),
        ("rjust", 1 | 2) => pad().map(|(room, fill)| format!("{}{own}", fill.to_string().repeat(room)))?.into(),
        ("center", 1 | 2) => {
            let (_, fill) = pad()?;
            text::center_text(own, args[0].as_usize().unwrap_or_default(), fill)?.into()
        }
        ("partition", 1) => {
            let sep = word(0).unwrap_or_default();
            let (a, b) = own.split_once(sep).map_or((own, None), |(a, b)| (a, Some(b)));
            text_triple(a, b.map_or("", |_| sep), b.unwrap_or_default())
        }
        ("rpartition", 1) => {
            let sep = word(0).unwrap_or_default();
            let (a, b) = own.rsplit_once(sep).map_or((None, own), |(a, b)| (Some(a), b));
            text_triple(a.unwrap_or_default(), a.map_or("", |_| sep), b)
        }
        ("removeprefix", 1) => own.strip_prefix(word(0).unwrap_or_default()).unwrap_or(own).into(),
        ("removesuffix", 1) => own.strip_suffix(word(0).unwrap_or_default()).unwrap_or(own).into(),
        ("index" | "rindex", 1) => {
            let part = word(0).unwrap_or_default();
            let at = if method == "index" { own.find(part) } else { own.rfind(part) };
            let at = at.ok_or_else(|| failure(format!("{method}: `{part}` is not in the text")))?;
            own[..at].chars().count().into()
        }
        ("isdecimal", 0) => (!own.is_empty() && own.chars().all(|c| c.is_ascii_digit())).into(),
        _ => return minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    })
}

fn text_triple(a: &str, b: &str, c: &str) -> Value {
    Value::from(vec![a.to_owned(), b.to_owned(), c.to_owned()])
}
