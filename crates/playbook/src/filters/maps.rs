//! Filters on maps.

use super::{Args, Filter, FilterResult, failure, filter, json, list, lists, per_item};
use crate::lang::python;
use crate::vars::scope;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, State, Value};
use serde_json::{Map, Value as Json};

pub const FILTERS: &[Filter] = &[
    filter("combine", &["*", "**"], combine),
    filter("dict2items", &["key_name", "value_name"], dict2items),
    filter("items2dict", &["key_name", "value_name"], items2dict),
    filter("dictsort", &["case_sensitive", "by", "reverse"], dictsort),
    filter("items", &[], |_, v, _| {
        Ok(pairs("items", &v)?.into_iter().map(|(k, v)| Value::from(vec![k, v])).collect::<Vec<_>>().into())
    }),
    filter("rekey_on_member", &["key", "duplicates"], rekey),
];

/// The keys and values of a map.
fn pairs(who: &str, v: &Value) -> Result<Vec<(Value, Value)>, Error> {
    if v.kind() != ValueKind::Map {
        return Err(failure(format!("{who}: takes a map, not {}", v.kind())));
    }
    v.try_iter()?.map(|key| Ok((key.clone(), super::valid(v.get_item(&key)?)?))).collect()
}

/// The function `dict`: `dict(a=1)`, `dict(map, a=1)`, `dict(pairs)`.
pub fn dict(of: Option<Value>, more: Kwargs) -> FilterResult {
    let mut out = match of {
        None => Vec::new(),
        Some(of) if of.kind() == ValueKind::Map => pairs("dict", &of)?,
        Some(of) => {
            let pair = |item: Value| match list("dict", &item)?.as_slice() {
                [key, value] => Ok((key.clone(), value.clone())),
                _ => Err(failure("dict: takes pairs of a key and a value")),
            };
            list("dict", &of)?.into_iter().map(pair).collect::<Result<_, Error>>()?
        }
    };
    for name in more.args() {
        out.push((Value::from(name), more.get(name)?));
    }
    Ok(Value::from_pairs(out))
}

/// The rule by which `combine` merges two lists under the same key (`list_merge`).
#[derive(Clone, Copy)]
enum ListMerge {
    Replace,
    Keep,
    Append,
    Prepend,
    AppendOver,
    PrependOver,
}

fn combine(_: &mut State, v: Value, a: Args) -> FilterResult {
    let (mut recursive, mut how) = (false, ListMerge::Replace);
    for (name, value) in &a.named {
        match (name.as_str(), python::text(value)?.as_str()) {
            ("recursive", _) => recursive = value.is_true(),
            ("list_merge", "replace") => how = ListMerge::Replace,
            ("list_merge", "keep") => how = ListMerge::Keep,
            ("list_merge", "append") => how = ListMerge::Append,
            ("list_merge", "prepend") => how = ListMerge::Prepend,
            ("list_merge", "append_rp") => how = ListMerge::AppendOver,
            ("list_merge", "prepend_rp") => how = ListMerge::PrependOver,
            ("list_merge", _) => {
                return Err(failure(
                    "combine: list_merge takes replace, keep, append, prepend, append_rp or prepend_rp",
                ));
            }
            (other, _) => return Err(failure(format!("combine: unknown argument `{other}`"))),
        }
    }
    let mut out = Map::new();
    let mut first = true;
    for part in std::iter::once(&v).chain(&a.rest) {
        let maps = if part.kind() == ValueKind::Map { vec![part.clone()] } else { list("combine", part)? };
        for map in maps {
            let Json::Object(map) = json("combine", &map)? else {
                return Err(failure(format!("combine: takes maps, not {}", map.kind())));
            };
            match std::mem::take(&mut first) {
                true => out = map,
                false => merge(&mut out, map, recursive, how),
            }
        }
    }
    Ok(scope::object(&out))
}

fn merge(into: &mut Map<String, Json>, from: Map<String, Json>, recursive: bool, how: ListMerge) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Json::Object(old)), Json::Object(new)) if recursive => merge(old, new, true, how),
            (Some(Json::Array(old)), Json::Array(new)) => {
                let absent = |list: &[Json], over: &[Json]| -> Vec<Json> {
                    list.iter().filter(|x| !over.contains(x)).cloned().collect()
                };
                *old = match how {
                    ListMerge::Replace => new,
                    ListMerge::Keep => std::mem::take(old),
                    ListMerge::Append => [std::mem::take(old), new].concat(),
                    ListMerge::Prepend => [new, std::mem::take(old)].concat(),
                    ListMerge::AppendOver => [absent(old, &new), new].concat(),
                    ListMerge::PrependOver => [new.clone(), absent(old, &new)].concat(),
                };
            }
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn dict2items(_: &mut State, v: Value, a: Args) -> FilterResult {
    let key = a.text("key_name")?.unwrap_or_else(|| "key".into());
    let value = a.text("value_name")?.unwrap_or_else(|| "value".into());
    let items = pairs("dict2items", &v)?;
    let item = |(k, v): (Value, Value)| Value::from_pairs([(key.clone(), k), (value.clone(), v)]);
    Ok(items.into_iter().map(item).collect::<Vec<_>>().into())
}

fn items2dict(_: &mut State, v: Value, a: Args) -> FilterResult {
    if !matches!(v.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(failure(format!("items2dict: takes a list, not {}", v.kind())));
    }
    let key = Value::from(a.text("key_name")?.unwrap_or_else(|| "key".into()));
    let value = Value::from(a.text("value_name")?.unwrap_or_else(|| "value".into()));
    let mut out = Vec::new();
    for item in list("items2dict", &v)? {
        let (k, v) = (lists::item(&item, &key)?, lists::item(&item, &value)?);
        if k.is_undefined() || v.is_undefined() {
            return Err(failure(format!("items2dict: an item has no `{key}` or `{value}`")));
        }
        out.push((k, v));
    }
    Ok(Value::from_pairs(out))
}

fn dictsort(_: &mut State, v: Value, a: Args) -> FilterResult {
    let by_value = match a.text("by")?.as_deref() {
        None | Some("key") => false,
        Some("value") => true,
        Some(other) => return Err(failure(format!("dictsort: `by` must be key or value, not {other}"))),
    };
    let case = a.flag("case_sensitive");
    let mark = |v: &Value| match v.as_str() {
        Some(text) if !case => Value::from(text.to_lowercase()),
        _ => v.clone(),
    };
    let mut items = pairs("dictsort", &v)?;
    let mut wrong = None;
    items.sort_by(|x, y| {
        let (x, y) = if by_value { (&x.1, &y.1) } else { (&x.0, &y.0) };
        let order = per_item::compare(&mark(x), &mark(y)).unwrap_or_else(|e| {
            wrong.get_or_insert(e);
            std::cmp::Ordering::Equal
        });
        if a.flag("reverse") { order.reverse() } else { order }
    });
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    Ok(items.into_iter().map(|(k, v)| Value::from(vec![k, v])).collect::<Vec<_>>().into())
}

fn rekey(_: &mut State, v: Value, a: Args) -> FilterResult {
    let key = a.need("key")?;
    let over = match a.text("duplicates")?.as_deref() {
        None | Some("error") => false,
        Some("overwrite") => true,
        Some(other) => {
            return Err(failure(format!("rekey_on_member: `duplicates` must be error or overwrite, not {other}")));
        }
    };
    let items = match v.kind() {
        ValueKind::Map => pairs("rekey_on_member", &v)?.into_iter().map(|(_, v)| v).collect(),
        _ => list("rekey_on_member", &v)?,
    };
    let mut out: Vec<(Value, Value)> = Vec::new();
    for item in items {
        let name = lists::item(&item, key)?;
        if name.is_undefined() {
            return Err(failure(format!("rekey_on_member: an item has no `{key}`")));
        }
        match out.iter_mut().find(|(k, _)| *k == name) {
            Some(_) if !over => return Err(failure(format!("rekey_on_member: `{name}` occurs twice"))),
            Some(slot) => slot.1 = item,
            None => out.push((name, item)),
        }
    }
    Ok(Value::from_pairs(out))
}
