//! `lookup`, `query` and `q`. Most lookups need only variables, or files that the compiler includes
//! in the plan. During `remoor play`, the controller answers the others (`ASKED`).

use super::asked_lookups::{self, LookupCall};
use super::{FilterResult, failure, file_lookups, list, lists, undefined_error};
use crate::lang::python;
use crate::template::expr;
use crate::vars::scope::{on_the_node, with_trace};
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Environment, Error, State, Value};
use regex::Regex;

/// The supported lookups, each with its difference from Ansible. An empty text means no difference.
pub const KNOWN: &[(&str, &str)] = &[
    ("config", "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it"),
    ("csvfile", "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it"),
    ("dict", ""),
    (
        "env",
        "during `remoor play`, reads the environment of the controller, as in Ansible; in a fleet, that of the node",
    ),
    ("file", "reads text files of the fleet directory"),
    ("fileglob", "finds files of the fleet directory, sorted by name; a pattern must be known before the run"),
    ("first_found", "finds files of the fleet directory"),
    ("flattened", ""),
    ("indexed_items", ""),
    ("ini", "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it"),
    (
        "inventory_hostnames",
        "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it",
    ),
    ("items", ""),
    ("lines", "works only with `remoor play`; a fleet refuses it, because managers run no commands"),
    ("list", ""),
    ("nested", ""),
    ("password", "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it"),
    ("pipe", "works only with `remoor play`; a fleet refuses it, because managers run no commands"),
    ("random_choice", "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it"),
    ("sequence", ""),
    ("subelements", ""),
    (
        "template",
        "renders a template of the fleet directory; of the options only `template_vars`, `convert_data` and `jinja2_native`",
    ),
    ("together", ""),
    ("unvault", "works only with `remoor play`; a fleet refuses it; use the lookup file, which opens encrypted files"),
    ("url", "works only with `remoor play`, and needs ansible-core on the controller; a fleet refuses it"),
    ("varnames", ""),
    ("vars", ""),
];

/// Lookups that only the controller answers, during `remoor play`. A fleet refuses them.
pub const ASKED: &[&str] = &[
    "config",
    "csvfile",
    "ini",
    "inventory_hostnames",
    "lines",
    "password",
    "pipe",
    "random_choice",
    "unvault",
    "url",
];

/// Maximum nesting of the lists of `flattened`.
const NESTING_MAX: usize = 64;
/// Maximum number of items of one lookup.
const ITEMS_MAX: usize = 10_000;

pub fn register(env: &mut Environment<'static>) {
    env.add_function("lookup", |state: &State, rest: Rest<Value>, k: Kwargs| run(state, &rest.0, &k, false));
    for name in ["query", "q"] {
        env.add_function(name, |state: &State, rest: Rest<Value>, k: Kwargs| run(state, &rest.0, &k, true));
    }
}

fn run(state: &State, args: &[Value], k: &Kwargs, as_list: bool) -> FilterResult {
    let Some((name, terms)) = args.split_first() else {
        return Err(failure("lookup: the name of the lookup is missing"));
    };
    if args.iter().any(Value::is_undefined) {
        return Err(undefined_error("an argument of a lookup is undefined"));
    }
    let wanted: Option<bool> = k.get("wantlist")?;
    let lenient = matches!(k.get::<Option<&str>>("errors")?, Some("ignore" | "warn"));
    let name = python::text(name)?;
    let name = short_name(&name);
    let as_list = wanted.unwrap_or(as_list);
    // `errors` is about the lookup, not about arguments whose values only a run knows.
    let (found, trace) = with_trace(|| find(state, name, terms, k));
    let found = match found {
        Err(_) if lenient && !trace.unknown => {
            return Ok(if as_list { Vec::<Value>::new().into() } else { Value::from(()) });
        }
        found => found?,
    };
    k.assert_all_used()?;
    if found.len() > ITEMS_MAX {
        return Err(failure(format!("lookup {name}: more than {ITEMS_MAX} items")));
    }
    if as_list {
        return Ok(found.into());
    }
    // A single item is returned as it is; several texts are joined with commas.
    Ok(match found.as_slice() {
        [one] => one.clone(),
        several if !several.is_empty() && several.iter().all(|v| v.kind() == ValueKind::String) => {
            several.iter().map(|v| v.as_str().unwrap_or_default()).collect::<Vec<_>>().join(",").into()
        }
        [] => Value::from(Vec::<Value>::new()),
        _ => found.into(),
    })
}

/// The items that a lookup finds.
fn find(state: &State, name: &str, terms: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    Ok(match name {
        "env" => env(state, terms, k)?,
        "file" => file_lookups::file(state, terms, k)?,
        "fileglob" => file_lookups::fileglob(state, &items(terms)?)?,
        "first_found" => file_lookups::first_found(state, terms, k)?,
        "template" => file_lookups::template(state, terms, k)?,
        "vars" => vars(state, terms, k)?,
        "varnames" => varnames(state, terms)?,
        "dict" => dict(terms)?,
        "items" => items(terms)?,
        "list" => terms.to_vec(),
        "flattened" => {
            let mut out = Vec::new();
            flatten(terms, &mut out, 0)?;
            out
        }
        "sequence" => sequence(terms, k)?,
        "indexed_items" => {
            let all = items(&[Value::from(items(terms)?)])?;
            all.into_iter().enumerate().map(|(i, v)| Value::from(vec![Value::from(i), v])).collect()
        }
        "together" => lookup_together(terms)?,
        "nested" => {
            let parts = terms.iter().map(|t| list("nested", t)).collect::<Result<Vec<_>, _>>()?;
            lists::cross(&parts)?.into_iter().map(Value::from).collect()
        }
        "subelements" => match terms {
            [of, path] => lists::subelements(of, path, false)?,
            [of, path, flags] => {
                lists::subelements(of, path, flags.get_attr("skip_missing").is_ok_and(|s| s.is_true()))?
            }
            _ => return Err(failure("lookup subelements: takes a list and a name")),
        },
        other => {
            let mut call = LookupCall::new(other, terms.iter().map(expr::to_json).collect::<Result<_, _>>()?);
            for option in k.args().filter(|option| !matches!(*option, "errors" | "wantlist")) {
                call.options.insert(option.to_owned(), expr::to_json(&k.get(option)?)?);
            }
            asked_lookups::ask(state, &call)?
        }
    })
}

/// The name of a lookup without its collection.
pub fn short_name(name: &str) -> &str {
    let short = ["ansible.builtin.", "ansible.legacy."].iter().find_map(|prefix| name.strip_prefix(prefix));
    let flattened = name.strip_prefix("community.general.").filter(|short| *short == "flattened");
    short.or(flattened).unwrap_or(name)
}

/// Flattens all levels of lists. As in Ansible, a text that stands for null ends a list.
fn flatten(items: &[Value], out: &mut Vec<Value>, depth: usize) -> Result<(), Error> {
    if depth > NESTING_MAX {
        return Err(failure(format!("lookup flattened: lists nested deeper than {NESTING_MAX}")));
    }
    for item in items {
        match item.kind() {
            ValueKind::Seq | ValueKind::Iterable => flatten(&list("flattened", item)?, out, depth + 1)?,
            _ if matches!(item.as_str(), Some("None" | "null")) => break,
            _ => out.push(item.clone()),
        }
    }
    Ok(())
}

fn env(state: &State, terms: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    let fallback: Option<Value> = k.get("default")?;
    let asks = asked_lookups::are_answered(state);
    if !asks {
        on_the_node(state)?;
    }
    let one = |term: &Value| {
        let name = python::text(term)?;
        let found = match asks {
            true => asked_lookups::ask(state, &LookupCall::new("env", vec![name.into()]))?.pop(),
            false => std::env::var(&name).ok().map(Value::from),
        };
        Ok(found.unwrap_or_else(|| fallback.clone().unwrap_or_else(|| Value::from(""))))
    };
    terms.iter().map(one).collect()
}

fn vars(state: &State, terms: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    let fallback: Option<Value> = k.get("default")?;
    let one = |term: &Value| {
        let name = python::text(term)?;
        match state.lookup(&name).filter(|v| !v.is_undefined()) {
            Some(value) => super::valid(value),
            None => fallback.clone().ok_or_else(|| undefined_error(&format!("`{name}` is undefined"))),
        }
    };
    terms.iter().map(one).collect()
}

fn varnames(state: &State, terms: &[Value]) -> Result<Vec<Value>, Error> {
    let vars = state.lookup("vars").ok_or_else(|| failure("lookup varnames: there are no variables"))?;
    let mut names: Vec<String> = Vec::new();
    for name in vars.try_iter()? {
        names.push(python::text(&name)?);
    }
    let mut out = Vec::new();
    for term in terms {
        let pattern = python::text(term)?;
        let regex = Regex::new(&pattern).map_err(|e| failure(format!("pattern `{pattern}`: {e}")))?;
        out.extend(names.iter().filter(|n| regex.is_match(n)).map(|n| Value::from(n.as_str())));
    }
    Ok(out)
}

fn dict(terms: &[Value]) -> Result<Vec<Value>, Error> {
    let mut out = Vec::new();
    for term in terms {
        if term.kind() != ValueKind::Map {
            return Err(failure("lookup dict: takes maps"));
        }
        for key in term.try_iter()? {
            let value = super::valid(term.get_item(&key)?)?;
            out.push(Value::from_pairs([("key", key), ("value", value)]));
        }
    }
    Ok(out)
}

/// Flattens one level of lists.
pub(super) fn items(terms: &[Value]) -> Result<Vec<Value>, Error> {
    let mut out = Vec::new();
    for term in terms {
        match term.kind() {
            ValueKind::Seq | ValueKind::Iterable => out.extend(list("items", term)?),
            _ => out.push(term.clone()),
        }
    }
    Ok(out)
}

fn lookup_together(terms: &[Value]) -> Result<Vec<Value>, Error> {
    let parts = terms.iter().map(|t| list("together", t)).collect::<Result<Vec<_>, _>>()?;
    let rows = parts.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |part: &Vec<Value>, i: usize| part.get(i).cloned().unwrap_or_else(|| Value::from(()));
    Ok((0..rows).map(|i| parts.iter().map(|p| cell(p, i)).collect::<Vec<_>>().into()).collect())
}

/// The items of `sequence`, given as words (`start=1 end=3`), as `1-3/2:host%02d`, or as keyword
/// arguments.
fn sequence(terms: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    let wrong = |what: &str| failure(format!("sequence: invalid argument `{what}`"));
    let number = |text: &str| -> Result<i64, Error> {
        let lower = text.trim().to_ascii_lowercase();
        let parsed = match lower.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None => lower.parse(),
        };
        parsed.map_err(|_| wrong(text))
    };
    let (mut start, mut end, mut count, mut stride, mut format) = (None, None, None, None, None);
    for term in terms {
        let term = python::text(term)?;
        if !term.contains('=') {
            let (body, own) = term.split_once(':').map_or((term.as_str(), None), |(b, f)| (b, Some(f.to_owned())));
            let (body, step) = body.split_once('/').map_or((body, None), |(b, s)| (b, Some(s)));
            let (first, last) = body.split_once('-').map_or((None, body), |(a, b)| (Some(a), b));
            (start, end, format) = (first.map(number).transpose()?, Some(number(last)?), own);
            stride = step.map(number).transpose()?;
            continue;
        }
        for pair in term.split_whitespace() {
            let (key, value) = pair.split_once('=').ok_or_else(|| wrong(pair))?;
            match key {
                "start" => start = Some(number(value)?),
                "end" => end = Some(number(value)?),
                "count" => count = Some(number(value)?),
                "stride" => stride = Some(number(value)?),
                "format" => format = Some(value.to_owned()),
                _ => return Err(wrong(key)),
            }
        }
    }
    start = k.get::<Option<i64>>("start")?.or(start);
    end = k.get::<Option<i64>>("end")?.or(end);
    count = k.get::<Option<i64>>("count")?.or(count);
    let stride = k.get::<Option<i64>>("stride")?.or(stride).unwrap_or(1);
    format = k.get::<Option<String>>("format")?.or(format);
    let start = start.unwrap_or(1);
    let end = match (end, count) {
        (Some(_), Some(_)) => return Err(failure("sequence: takes either an end or a count")),
        (Some(end), None) => end,
        (None, Some(0)) => return Ok(Vec::new()),
        (None, Some(count)) => start.saturating_add(count.saturating_sub(1).saturating_mul(stride)),
        (None, None) => return Err(failure("sequence: takes either an end or a count")),
    };
    if stride == 0 {
        return Ok(Vec::new());
    }
    if stride > 0 && end < start || stride < 0 && end > start {
        return Err(failure("sequence: the stride moves away from the end"));
    }
    if start.abs_diff(end) / stride.unsigned_abs() >= ITEMS_MAX as u64 {
        return Err(failure(format!("sequence: more than {ITEMS_MAX} items")));
    }
    let (mut out, mut at) = (Vec::new(), start);
    while stride > 0 && at <= end || stride < 0 && at >= end {
        out.push(match &format {
            Some(format) => {
                minijinja::formatting::format(minijinja::formatting::FormatStyle::Printf, format, &[Value::from(at)])?
                    .into()
            }
            None => at.to_string().into(),
        });
        at = at.saturating_add(stride);
    }
    Ok(out)
}
