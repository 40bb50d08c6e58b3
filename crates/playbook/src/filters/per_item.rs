//! Filters that use an attribute of each item or pass each item to another filter or test; and
//! filters for undefined values.

use super::{Args, Filter, FilterResult, failure, filter, list, lists, undefined_error};
use crate::lang::python;
use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::cmp::Ordering;
use std::sync::Arc;

pub const FILTERS: &[Filter] = &[
    Filter { name: "default", takes: &["default_value", "boolean"], run: default, lenient: true, differs: "" },
    Filter { name: "d", takes: &["default_value", "boolean"], run: default, lenient: true, differs: "" },
    Filter { name: "mandatory", takes: &["msg"], run: mandatory, lenient: true, differs: "" },
    Filter { name: "ternary", takes: &["true_val", "false_val", "none_val"], run: ternary, lenient: true, differs: "" },
    Filter { name: "type_debug", takes: &[], run: type_debug, lenient: true, differs: "" },
    filter("map", &["*", "**"], map),
    filter("select", &["*", "**"], |state, v, a| choose(state, &v, a, false, true)),
    filter("reject", &["*", "**"], |state, v, a| choose(state, &v, a, false, false)),
    filter("selectattr", &["*", "**"], |state, v, a| choose(state, &v, a, true, true)),
    filter("rejectattr", &["*", "**"], |state, v, a| choose(state, &v, a, true, false)),
    filter("groupby", &["attribute", "default", "case_sensitive"], groupby),
    filter("sort", &["reverse", "case_sensitive", "attribute"], sort),
    filter("unique", &["case_sensitive", "attribute"], unique),
    filter("min", &["case_sensitive", "attribute"], |_, v, a| find_extreme(&v, &a, Ordering::Less)),
    filter("max", &["case_sensitive", "attribute"], |_, v, a| find_extreme(&v, &a, Ordering::Greater)),
    filter("sum", &["attribute", "start"], sum),
    filter("attr", &["name"], |_, v, a| attribute(&v, a.need("name")?)),
];

fn default(_: &mut State, v: Value, a: Args) -> FilterResult {
    let other = || a.get("default_value").cloned().unwrap_or_else(|| Value::from(""));
    Ok(if v.is_undefined() || a.flag("boolean") && !v.is_true() { other() } else { v })
}

fn mandatory(_: &mut State, v: Value, a: Args) -> FilterResult {
    if v.is_undefined() {
        let message = a.text("msg")?.unwrap_or_else(|| "a mandatory variable is undefined".into());
        return Err(undefined_error(&message));
    }
    Ok(v)
}

fn ternary(_: &mut State, v: Value, a: Args) -> FilterResult {
    if v.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let chosen = match a.get("none_val").filter(|n| v.is_none() && !n.is_none()) {
        Some(none) => none,
        None if v.is_true() => a.need("true_val")?,
        None => a.need("false_val")?,
    };
    Ok(chosen.clone())
}

fn type_debug(_: &mut State, v: Value, _: Args) -> FilterResult {
    Ok(python::type_name(&v).into())
}

/// The value at a dotted name or an index, or undefined.
pub fn attribute(v: &Value, path: &Value) -> FilterResult {
    let Some(text) = path.as_str() else { return lists::item(v, path) };
    let mut at = v.clone();
    for part in text.split('.') {
        if at.is_undefined() {
            return Ok(at);
        }
        let key = part.parse::<i64>().map_or_else(|_| Value::from(part), Value::from);
        at = lists::item(&at, &key)?;
        if at.is_undefined() && !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return Ok(Value::UNDEFINED);
        }
    }
    Ok(at)
}

/// Like `attribute`, but a missing value is an error.
fn required_attribute(v: &Value, path: &Value) -> FilterResult {
    let found = attribute(v, path)?;
    if found.is_undefined() {
        return Err(undefined_error(&format!("an item has no `{path}`")));
    }
    Ok(found)
}

fn named_argument(a: &Args, name: &str) -> Option<Value> {
    a.named.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone())
}

/// The remaining arguments, for the filter or test to which each item is passed.
fn remaining_arguments(args: &[Value], more: &[(String, Value)]) -> Vec<Value> {
    let mut out = args.to_vec();
    if !more.is_empty() {
        out.push(more.iter().cloned().collect::<minijinja::value::Kwargs>().into());
    }
    out
}

/// The items of a value. A false value such as `none` has no items, as in Jinja2.
fn items_of(filter: &str, v: &Value) -> Result<Vec<Value>, Error> {
    let scalar = matches!(v.kind(), ValueKind::None | ValueKind::Bool | ValueKind::Number);
    if scalar && !v.is_true() { Ok(Vec::new()) } else { list(filter, v) }
}

fn map(state: &mut State, v: Value, a: Args) -> FilterResult {
    let items = items_of("map", &v)?;
    if let Some(path) = named_argument(&a, "attribute") {
        let default = named_argument(&a, "default");
        let get = |item: &Value| {
            let found = attribute(item, &path)?;
            match (&default, found.is_undefined()) {
                (Some(default), true) => Ok(default.clone()),
                (None, true) => Err(undefined_error(&format!("an item has no `{path}`"))),
                _ => Ok(found),
            }
        };
        return items.iter().map(get).collect::<Result<Vec<_>, _>>().map(Value::from);
    }
    let Some((name, rest)) = a.rest.split_first() else { return Err(failure("map: takes a filter or `attribute`")) };
    let name = python::text(name)?;
    let more = remaining_arguments(rest, &a.named);
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        let args: Vec<Value> = std::iter::once(item).chain(more.iter().cloned()).collect();
        out.push(state.apply_filter(&name, &args)?);
    }
    Ok(out.into())
}

fn choose(state: &mut State, v: &Value, a: Args, by_attribute: bool, keep: bool) -> FilterResult {
    let (path, rest) = match (by_attribute, a.rest.split_first()) {
        (true, Some((path, rest))) => (Some(path.clone()), rest),
        (true, None) => return Err(failure("selectattr, rejectattr: the name of an attribute is missing")),
        (false, _) => (None, a.rest.as_slice()),
    };
    let test = rest
        .split_first()
        .map(|(name, rest)| Ok::<_, Error>((python::text(name)?, remaining_arguments(rest, &a.named))));
    let test = test.transpose()?;
    let mut out = Vec::new();
    for item in items_of("select", v)? {
        let subject = match &path {
            Some(path) => attribute(&item, path)?,
            None => item.clone(),
        };
        let holds = match &test {
            Some((name, _)) if subject.is_undefined() && !matches!(name.as_str(), "defined" | "undefined") => {
                return Err(undefined_error("an item does not have the attribute"));
            }
            Some((name, more)) => {
                let args: Vec<Value> = std::iter::once(subject).chain(more.iter().cloned()).collect();
                state.perform_test(name, &args)?
            }
            None if subject.is_undefined() => {
                return Err(undefined_error("an item does not have the attribute"));
            }
            None => subject.is_true(),
        };
        if holds == keep {
            out.push(item);
        }
    }
    Ok(out.into())
}

/// The sort key of a value: lower case unless `case_sensitive`.
fn sort_key(v: Value, case_sensitive: bool) -> Value {
    match v.as_str() {
        Some(text) if !case_sensitive => text.to_lowercase().into(),
        _ => v,
    }
}

/// Python's order of numbers, texts and lists. Fails for other or mixed types.
pub fn compare(a: &Value, b: &Value) -> Result<Ordering, Error> {
    use ValueKind::{Bool, Iterable, Number, Seq, String};
    match (a.kind(), b.kind()) {
        (Number | Bool, Number | Bool) | (String, String) => Ok(a.cmp(b)),
        (Seq | Iterable, Seq | Iterable) => {
            let (x, y) = (list("sort", a)?, list("sort", b)?);
            for (p, q) in x.iter().zip(&y) {
                if p != q {
                    return compare(p, q);
                }
            }
            Ok(x.len().cmp(&y.len()))
        }
        (ValueKind::Plain, ValueKind::Plain) => Ok(a.cmp(b)),
        (x, y) => Err(failure(format!("{x} and {y} cannot be compared"))),
    }
}

fn sort_keyed(mut items: Vec<(Vec<Value>, Value)>, reverse: bool) -> Result<Vec<(Vec<Value>, Value)>, Error> {
    let mut wrong = None;
    items.sort_by(|a, b| {
        let order = a.0.iter().zip(&b.0).find_map(|(x, y)| match compare(x, y) {
            Ok(Ordering::Equal) => None,
            Ok(order) => Some(order),
            Err(e) => {
                wrong.get_or_insert(e);
                None
            }
        });
        let order = order.unwrap_or(Ordering::Equal);
        if reverse { order.reverse() } else { order }
    });
    wrong.map_or(Ok(items), Err)
}

fn sort(_: &mut State, v: Value, a: Args) -> FilterResult {
    let case = a.flag("case_sensitive");
    let paths: Vec<Value> = match a.get("attribute").filter(|p| !p.is_none()) {
        Some(p) => p.as_str().map_or_else(|| vec![p.clone()], |t| t.split(',').map(Value::from).collect()),
        None => Vec::new(),
    };
    let mut keyed = Vec::new();
    for item in list("sort", &v)? {
        let keys = match paths.as_slice() {
            [] => vec![sort_key(item.clone(), case)],
            paths => {
                paths.iter().map(|p| Ok(sort_key(required_attribute(&item, p)?, case))).collect::<Result<_, Error>>()?
            }
        };
        keyed.push((keys, item));
    }
    Ok(sort_keyed(keyed, a.flag("reverse"))?.into_iter().map(|(_, item)| item).collect::<Vec<_>>().into())
}

fn unique(_: &mut State, v: Value, a: Args) -> FilterResult {
    let case = a.flag("case_sensitive");
    let mut seen: Vec<Value> = Vec::new();
    let mut out = Vec::new();
    for item in list("unique", &v)? {
        let mark = match a.get("attribute").filter(|p| !p.is_none()) {
            Some(path) => sort_key(required_attribute(&item, path)?, case),
            None => sort_key(item.clone(), case),
        };
        if !seen.contains(&mark) {
            seen.push(mark);
            out.push(item);
        }
    }
    Ok(out.into())
}

fn find_extreme(v: &Value, a: &Args, wanted: Ordering) -> FilterResult {
    let case = a.flag("case_sensitive");
    let mut best: Option<(Value, Value)> = None;
    for item in list("min", v)? {
        let mark = match a.get("attribute").filter(|p| !p.is_none()) {
            Some(path) => sort_key(required_attribute(&item, path)?, case),
            None => sort_key(item.clone(), case),
        };
        let better = match &best {
            Some((before, _)) => compare(&mark, before)? == wanted,
            None => true,
        };
        if better {
            best = Some((mark, item));
        }
    }
    Ok(best.map_or(Value::UNDEFINED, |(_, item)| item))
}

fn sum(_: &mut State, v: Value, a: Args) -> FilterResult {
    let mut whole: i64 = 0;
    let mut part: Option<f64> = None;
    let start = a.get("start").cloned().unwrap_or_else(|| Value::from(0));
    let mut items = vec![start];
    for item in list("sum", &v)? {
        items.push(match a.get("attribute").filter(|p| !p.is_none()) {
            Some(path) => required_attribute(&item, path)?,
            None => item,
        });
    }
    // Python adds lists too: `sum(start=[])`.
    if items[0].kind() == ValueKind::Seq {
        let mut joined = Vec::new();
        for item in items {
            match item.kind() {
                ValueKind::Seq | ValueKind::Iterable => joined.extend(list("sum", &item)?),
                kind => return Err(failure(format!("sum: {kind} is not a list"))),
            }
        }
        return Ok(Value::from(joined));
    }
    for item in items {
        match (item.is_integer().then(|| item.as_i64()).flatten(), item.is_number()) {
            (Some(n), _) => whole = whole.checked_add(n).ok_or_else(|| failure("sum: too large"))?,
            (None, true) => *part.get_or_insert(0.0) += f64::try_from(item)?,
            _ if item.kind() == ValueKind::Bool => whole += i64::from(item.is_true()),
            _ => return Err(failure(format!("sum: {} is not a number", item.kind()))),
        }
    }
    Ok(part.map_or_else(|| Value::from(whole), |p| Value::from(p + whole as f64)))
}

/// One group of the filter `groupby`: a pair that also has the attributes `grouper` and `list`.
#[derive(Debug)]
struct GroupPair {
    grouper: Value,
    items: Value,
}

/// The two values of a group, which Python prints as a pair.
pub fn as_pair(v: &Value) -> Option<(Value, Value)> {
    v.downcast_object_ref::<GroupPair>().map(|group| (group.grouper.clone(), group.items.clone()))
}

impl Object for GroupPair {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match (key.as_str(), key.as_i64()) {
            (Some("grouper"), _) | (_, Some(0 | -2)) => Some(self.grouper.clone()),
            (Some("list"), _) | (_, Some(1 | -1)) => Some(self.items.clone()),
            _ => None,
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(2)
    }
}

fn groupby(_: &mut State, v: Value, a: Args) -> FilterResult {
    let path = a.need("attribute")?;
    let case = a.flag("case_sensitive");
    let mut keyed = Vec::new();
    for item in list("groupby", &v)? {
        let found = attribute(&item, path)?;
        let found = match (found.is_undefined(), a.get("default").filter(|d| !d.is_none())) {
            (true, Some(default)) => default.clone(),
            (true, None) => return Err(undefined_error(&format!("an item has no `{path}`"))),
            _ => found,
        };
        keyed.push((vec![sort_key(found.clone(), case)], Value::from(vec![found, item])));
    }
    let mut groups: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for (mark, pair) in sort_keyed(keyed, false)? {
        let (grouper, item) = (pair.get_item_by_index(0)?, pair.get_item_by_index(1)?);
        match groups.last_mut() {
            Some((last, _, items)) if *last == mark[0] => items.push(item),
            _ => groups.push((mark[0].clone(), grouper, vec![item])),
        }
    }
    let group = |(_, grouper, items): (_, Value, Vec<Value>)| {
        Value::from_object(GroupPair { grouper, items: Value::from(items) })
    };
    Ok(groups.into_iter().map(group).collect::<Vec<_>>().into())
}
