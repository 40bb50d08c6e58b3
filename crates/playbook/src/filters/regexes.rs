//! Filters with patterns of Python's `re`, including look-around and back-references.

use super::{Args, Filter, FilterResult, failure, filter};
use crate::lang::pyregex::{self, Flags, Replacement};
use crate::lang::python;
use minijinja::{Error, State, Value};

pub const FILTERS: &[Filter] = &[
    filter(
        "regex_replace",
        &["pattern", "replacement", "ignorecase", "multiline", "count", "mandatory_count"],
        replace,
    ),
    filter("regex_search", &["regex", "*", "**"], search),
    filter("regex_findall", &["regex", "multiline", "ignorecase"], findall),
    filter("regex_escape", &["re_type"], escape),
];

/// Converts `\1` and `\g<name>` of a Python replacement to `${1}` and `${name}` of the regex crate.
pub fn replacement(python: &str) -> String {
    let mut out = String::new();
    let mut chars = python.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '$' => out.push_str("$$"),
            '\\' => match chars.next() {
                Some('g') if chars.peek() == Some(&'<') => {
                    let name: String = chars.by_ref().skip(1).take_while(|c| *c != '>').collect();
                    out.push_str(&format!("${{{name}}}"));
                }
                Some(d) if d.is_ascii_digit() => out.push_str(&format!("${{{d}}}")),
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

fn flags(a: &Args) -> Flags {
    Flags { ignorecase: a.flag("ignorecase"), multiline: a.flag("multiline") }
}

fn replace(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let pattern = a.text("pattern")?.unwrap_or_default();
    let regex = pyregex::regex(&pattern, flags(&a), &text).map_err(failure)?;
    let with = Replacement::new(&a.text("replacement")?.unwrap_or_default()).map_err(failure)?;
    let (out, done) = pyregex::substitute(&regex, &with, &text, a.count("count")?.unwrap_or(0)).map_err(failure)?;
    match a.count("mandatory_count")? {
        Some(n) if n != 0 && n != done => {
            Err(failure(format!("`{pattern}` must match {n} times, but matches {done} times")))
        }
        _ => Ok(out.into()),
    }
}

fn search(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let (mut groups, mut own) = (Vec::new(), Flags::default());
    for (name, value) in &a.named {
        match name.as_str() {
            "ignorecase" => own.ignorecase = value.is_true(),
            "multiline" => own.multiline = value.is_true(),
            other => return Err(failure(format!("regex_search: unknown argument `{other}`"))),
        }
    }
    for group in &a.rest {
        let name = python::text(group)?;
        let inner = name.strip_prefix("\\g<").and_then(|n| n.strip_suffix('>')).or(name.strip_prefix('\\'));
        let inner = inner.filter(|n| !n.is_empty());
        groups
            .push(inner.ok_or_else(|| failure(format!("regex_search: `{name}` is not a group reference")))?.to_owned());
    }
    let regex = pyregex::regex(&a.need_text("regex")?, own, &text).map_err(failure)?;
    let Some(found) = regex.captures(text.as_str()).map_err(|e| failure(e.to_string()))? else {
        return Ok(Value::from(()));
    };
    if groups.is_empty() {
        return Ok(found.get(0).map_or("", |m| m.as_str()).into());
    }
    let mut out = Vec::new();
    for name in groups {
        let part = match name.parse::<usize>() {
            Ok(n) if n < found.len() => found.get(n),
            Err(_) if regex.capture_names().any(|own| own == Some(name.as_str())) => found.name(&name),
            _ => return Err(failure(format!("regex_search: no such group `{name}`"))),
        };
        out.push(part.map_or_else(|| Value::from(()), |m| Value::from(m.as_str())));
    }
    Ok(out.into())
}

fn findall(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let regex = pyregex::regex(&a.need_text("regex")?, flags(&a), &text).map_err(failure)?;
    let mut out: Vec<Value> = Vec::new();
    for found in regex.captures_iter(text.as_str()) {
        let found = found.map_err(|e| failure(e.to_string()))?;
        let part = |i: usize| found.get(i).map_or("", |m| m.as_str()).to_owned();
        out.push(match found.len() {
            1 => part(0).into(),
            2 => part(1).into(),
            n => (1..n).map(part).collect::<Vec<_>>().into(),
        });
    }
    Ok(out.into())
}

fn escape(_: &mut State, v: Value, a: Args) -> FilterResult {
    let text = python::text(&v)?;
    let special = match a.text("re_type")?.as_deref() {
        None | Some("python") => "\t\n\u{b}\u{c}\r #$&()*+-.?[\\]^{|}~",
        Some("posix_basic") => "].[^$*\\",
        Some(other) => return Err::<_, Error>(failure(format!("regex_escape: unknown re_type `{other}`"))),
    };
    let mut out = String::new();
    for c in text.chars() {
        if special.contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    Ok(out.into())
}
