//! Filters on lists. Filters that use an attribute or call another filter are in `per_item`.

use super::{Args, Filter, FilterResult, failure, filter, filter_with_difference, list};
use crate::lang::python;
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

/// Maximum number of items of a list that `product`, `combinations` or a similar filter makes.
const ITEMS_MAX: usize = 100_000;
const ORDER: &str = "keeps the order of the lists; in Ansible the order of the result is arbitrary";

pub const FILTERS: &[Filter] = &[
    filter("list", &[], |_, v, _| Ok(list("list", &v)?.into())),
    filter("length", &[], |_, v, _| length(&v)),
    filter("count", &[], |_, v, _| length(&v)),
    filter("first", &[], |_, v, _| Ok(list("first", &v)?.into_iter().next().unwrap_or(Value::UNDEFINED))),
    filter("last", &[], |_, v, _| Ok(list("last", &v)?.pop().unwrap_or(Value::UNDEFINED))),
    filter("reverse", &[], |_, v, _| match v.as_str() {
        Some(text) => Ok(text.chars().rev().collect::<String>().into()),
        None => Ok(list("reverse", &v)?.into_iter().rev().collect::<Vec<_>>().into()),
    }),
    filter("batch", &["linecount", "fill_with"], batch),
    filter("slice", &["slices", "fill_with"], slices),
    filter_with_difference(
        "union",
        &["other"],
        |_, v, a| {
            let (a, b) = set_operands(&v, &a)?;
            Ok(distinct(a.into_iter().chain(b)).into())
        },
        ORDER,
    ),
    filter_with_difference(
        "intersect",
        &["other"],
        |_, v, a| {
            let (a, b) = set_operands(&v, &a)?;
            Ok(distinct(a.into_iter().filter(|x| b.contains(x))).into())
        },
        ORDER,
    ),
    filter_with_difference(
        "difference",
        &["other"],
        |_, v, a| {
            let (a, b) = set_operands(&v, &a)?;
            Ok(distinct(a.into_iter().filter(|x| !b.contains(x))).into())
        },
        ORDER,
    ),
    filter_with_difference(
        "symmetric_difference",
        &["other"],
        |_, v, a| {
            let (a, b) = set_operands(&v, &a)?;
            let only = a.iter().filter(|x| !b.contains(x)).chain(b.iter().filter(|x| !a.contains(x)));
            Ok(distinct(only.cloned()).into())
        },
        ORDER,
    ),
    filter("flatten", &["levels", "skip_nulls"], |_, v, a| {
        let mut out = Vec::new();
        let skip = a.get("skip_nulls").is_none_or(Value::is_true);
        flatten(&v, a.count("levels")?.unwrap_or(64), skip, &mut out)?;
        Ok(out.into())
    }),
    filter("zip", &["*"], |_, v, a| zip(&v, &a.rest, None)),
    filter("zip_longest", &["*", "**"], |_, v, a| match a.named.as_slice() {
        [] => zip(&v, &a.rest, Some(Value::from(()))),
        [(name, fill)] if name == "fillvalue" => zip(&v, &a.rest, Some(fill.clone())),
        _ => Err(failure("zip_longest: takes `fillvalue`")),
    }),
    filter("product", &["*", "**"], product),
    filter("permutations", &["r"], |_, v, a| {
        let items = list("permutations", &v)?;
        let r = a.count("r")?.unwrap_or(items.len());
        choose_items(&items, r, true)
    }),
    filter("combinations", &["r"], |_, v, a| {
        let items = list("combinations", &v)?;
        let r = usize::try_from(a.number("r")?.ok_or_else(|| failure("combinations: `r` is missing"))?).unwrap_or(0);
        choose_items(&items, r, false)
    }),
    filter("subelements", &["subelements", "skip_missing"], |_, v, a| {
        Ok(subelements(&v, a.need("subelements")?, a.flag("skip_missing"))?.into())
    }),
    filter("extract", &["container", "morekeys"], |_, v, a| {
        let mut out = item(a.need("container")?, &v)?;
        let more = match a.get("morekeys").filter(|m| !m.is_none()) {
            None => Vec::new(),
            Some(keys) if keys.kind() == ValueKind::Seq => list("extract", keys)?,
            Some(key) => vec![key.clone()],
        };
        for key in more {
            out = item(&out, &key)?;
        }
        Ok(out)
    }),
    filter("join", &["d", "attribute"], |_, v, a| {
        let sep = a.text("d")?.unwrap_or_default();
        let mut items = list("join", &v)?;
        if let Some(path) = a.get("attribute").filter(|p| !p.is_none()) {
            items = items.iter().map(|i| super::per_item::attribute(i, path)).collect::<Result<_, _>>()?;
        }
        if items.iter().any(Value::is_undefined) {
            return Err(super::undefined_error("an item to be joined is undefined"));
        }
        Ok(super::text::join_values(&items, &sep)?.into())
    }),
];

fn length(v: &Value) -> FilterResult {
    let count = match v.as_str() {
        Some(text) => Some(text.chars().count()),
        None => match v.kind() {
            ValueKind::Iterable => Some(v.try_iter()?.count()),
            _ => v.len(),
        },
    };
    count.map(Value::from).ok_or_else(|| failure(format!("length: {} has no length", v.kind())))
}

/// The value at a key or index of `v`, or undefined.
pub fn item(v: &Value, key: &Value) -> FilterResult {
    if v.is_undefined() {
        return Err(super::undefined_error("a value with a subscript or attribute is undefined"));
    }
    match v.get_item(key) {
        Ok(value) => super::valid(value),
        Err(_) => Ok(Value::UNDEFINED),
    }
}

/// The two lists that a set operation such as `union` combines.
fn set_operands(v: &Value, a: &Args) -> Result<(Vec<Value>, Vec<Value>), Error> {
    Ok((list("a set", v)?, list("a set", a.need("other")?)?))
}

/// The items without duplicates, in order of their first occurrence.
pub fn distinct(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for item in items {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

fn batch(_: &mut State, v: Value, a: Args) -> FilterResult {
    let size = a.count("linecount")?.filter(|n| *n > 0).ok_or_else(|| failure("batch: `linecount` must be above 0"))?;
    let mut rows: Vec<Vec<Value>> = list("batch", &v)?.chunks(size).map(<[Value]>::to_vec).collect();
    if let (Some(fill), Some(last)) = (a.get("fill_with").filter(|f| !f.is_none()), rows.last_mut())
        && size <= ITEMS_MAX
    {
        last.resize(size, fill.clone());
    }
    Ok(rows.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

fn slices(_: &mut State, v: Value, a: Args) -> FilterResult {
    let count = a.count("slices")?.filter(|n| (1..=ITEMS_MAX).contains(n));
    let count = count.ok_or_else(|| failure("slice: `slices` must be above 0"))?;
    let items = list("slice", &v)?;
    let (each, more) = (items.len() / count, items.len() % count);
    let (mut out, mut at) = (Vec::new(), 0);
    for i in 0..count {
        let end = at + each + usize::from(i < more);
        let mut row = items[at..end].to_vec();
        row.extend(a.get("fill_with").filter(|f| more > 0 && i >= more && !f.is_none()).cloned());
        out.push(Value::from(row));
        at = end;
    }
    Ok(out.into())
}

fn flatten(v: &Value, levels: usize, skip: bool, out: &mut Vec<Value>) -> Result<(), Error> {
    for item in list("flatten", v)? {
        let null = item.is_none() || matches!(item.as_str(), Some("None" | "null"));
        if skip && null {
            continue;
        }
        if levels > 0 && matches!(item.kind(), ValueKind::Seq | ValueKind::Iterable) {
            flatten(&item, levels - 1, skip, out)?;
        } else {
            out.push(item);
        }
    }
    Ok(())
}

fn zip(v: &Value, more: &[Value], fill: Option<Value>) -> FilterResult {
    let mut lists = vec![list("zip", v)?];
    for other in more {
        lists.push(list("zip", other)?);
    }
    let lengths = lists.iter().map(Vec::len);
    let rows = if fill.is_some() { lengths.max() } else { lengths.min() }.unwrap_or(0);
    let cell = |l: &Vec<Value>, i: usize| l.get(i).cloned().or(fill.clone()).unwrap_or_default();
    Ok((0..rows).map(|i| lists.iter().map(|l| cell(l, i)).collect::<Vec<_>>().into()).collect::<Vec<Value>>().into())
}

/// The Cartesian product of the lists; the last list varies fastest.
pub fn cross(lists: &[Vec<Value>]) -> Result<Vec<Vec<Value>>, Error> {
    let size = lists.iter().try_fold(1usize, |n, l| n.checked_mul(l.len().max(1)));
    if size.is_none_or(|n| n > ITEMS_MAX) {
        return Err(failure(format!("more than {ITEMS_MAX} combinations")));
    }
    let mut out: Vec<Vec<Value>> = vec![Vec::new()];
    for items in lists {
        out = out
            .iter()
            .flat_map(|row| items.iter().map(|item| row.iter().chain([item]).cloned().collect::<Vec<_>>()))
            .collect();
    }
    Ok(out)
}

fn product(_: &mut State, v: Value, a: Args) -> FilterResult {
    let mut lists = vec![list("product", &v)?];
    for other in &a.rest {
        lists.push(list("product", other)?);
    }
    let repeat = match a.named.as_slice() {
        [] => 1,
        [(name, n)] if name == "repeat" => {
            n.as_usize().filter(|n| *n <= 16).ok_or_else(|| failure("product: `repeat`"))?
        }
        _ => return Err(failure("product: takes `repeat`")),
    };
    let lists: Vec<Vec<Value>> = std::iter::repeat_n(lists, repeat).flatten().collect();
    Ok(cross(&lists)?.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

/// All combinations of `r` items in their order; with `order`, all permutations.
fn choose_items(items: &[Value], r: usize, order: bool) -> FilterResult {
    fn go(items: &[Value], r: usize, order: bool, taken: &mut Vec<usize>, out: &mut Vec<Value>) -> Result<(), Error> {
        if taken.len() == r {
            if out.len() >= ITEMS_MAX {
                return Err(failure(format!("more than {ITEMS_MAX} combinations")));
            }
            out.push(taken.iter().map(|i| items[*i].clone()).collect::<Vec<_>>().into());
            return Ok(());
        }
        let from = if order { 0 } else { taken.last().map_or(0, |i| i + 1) };
        for i in from..items.len() {
            if !taken.contains(&i) {
                taken.push(i);
                go(items, r, order, taken, out)?;
                taken.pop();
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    if r <= items.len() && items.len() <= 1000 {
        go(items, r, order, &mut Vec::new(), &mut out)?;
    } else if r <= items.len() {
        return Err(failure("more than 1000 items to choose from"));
    }
    Ok(out.into())
}

/// Pairs each element with each item of the list that the element has at `path`, a dotted name.
pub fn subelements(v: &Value, path: &Value, skip_missing: bool) -> Result<Vec<Value>, Error> {
    let elements = match v.kind() {
        ValueKind::Map => v.try_iter()?.map(|key| v.get_item(&key)).collect::<Result<Vec<_>, _>>()?,
        ValueKind::Seq | ValueKind::Iterable => list("subelements", v)?,
        kind => return Err(failure(format!("subelements: takes a list of maps, not {kind}"))),
    };
    let keys: Vec<String> = match path.as_str() {
        Some(text) => text.split('.').map(str::to_owned).collect(),
        None => list("subelements", path)?.iter().map(python::text).collect::<Result<_, _>>()?,
    };
    let mut out = Vec::new();
    for element in elements {
        let mut at = element.clone();
        for key in &keys {
            if at.kind() != ValueKind::Map {
                return Err(failure(format!("subelements: the parent of `{key}` is not a map")));
            }
            at = item(&at, &Value::from(key.as_str()))?;
            if at.is_undefined() {
                if !skip_missing {
                    return Err(failure(format!("subelements: an element has no `{key}`")));
                }
                at = Value::from(Vec::<Value>::new());
                break;
            }
        }
        if !matches!(at.kind(), ValueKind::Seq | ValueKind::Iterable) {
            return Err(failure(format!("subelements: `{}` is not a list", keys.join("."))));
        }
        for sub in list("subelements", &at)? {
            out.push(Value::from(vec![element.clone(), sub]));
        }
    }
    Ok(out)
}
