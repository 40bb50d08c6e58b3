//! Items of loops: each kind of loop as in Ansible, with a maximum number of items. Loops over
//! files only find files of the plan.

use crate::compile::join;
use crate::filters::{self, LookupCall};
use crate::lang::hosts;
use crate::plan::{Repeat, RepeatKind};
use crate::template::expr;
use crate::vars::scope::ExprScope;
use crate::vars::var_map::{Var, VarMap};
use minijinja::ErrorKind;
use serde_json::{Map, Value, json};

/// Maximum number of items of one loop.
const ITEMS_MAX: usize = 10_000;

/// The items of a loop.
pub fn items(scope: &ExprScope, repeat: &Repeat) -> Result<Vec<Value>, String> {
    let rendered = |value: &Value| expr::render_json(scope, value).map_err(|e| expr::explain(&e));
    let items = match repeat.kind {
        RepeatKind::FirstFound => first_found(scope, repeat)?,
        RepeatKind::FileGlob => file_glob(&flat(into_list(rendered(&repeat.items)?)), repeat)?,
        RepeatKind::Lookup => {
            let name = repeat.items["lookup"].as_str().unwrap_or_default();
            let call = LookupCall::new(name, into_list(rendered(&repeat.items["terms"])?));
            filters::ask_controller(scope, &call).map_err(|e| expr::explain(&e))?
        }
        RepeatKind::Sequence => sequences(&into_list(rendered(&repeat.items)?))?,
        kind => list_items(kind, rendered(&repeat.items)?)?,
    };
    if items.len() > ITEMS_MAX {
        return Err(too_many(items.len()));
    }
    Ok(items)
}

fn too_many(count: usize) -> String {
    format!("a loop has {count} items, but the maximum is {ITEMS_MAX}")
}

/// The variables that a loop sets for one item.
pub fn item_layer(repeat: &Repeat, items: &[Value], index: usize) -> VarMap {
    let mut layer = VarMap::default();
    let item = items.get(index).unwrap_or(&Value::Null);
    layer.set(&repeat.var, Var::new(item, false));
    layer.set("ansible_loop_var", Var::Plain(Value::String(repeat.var.clone())));
    if let Some(name) = &repeat.index_var {
        layer.set(name, Var::Plain(index.into()));
        layer.set("ansible_index_var", Var::Plain(Value::String(name.clone())));
    }
    if repeat.extended {
        let count = items.len();
        let mut more = json!({
            "index": index + 1, "index0": index, "first": index == 0, "last": index + 1 == count, "length": count,
            "revindex": count - index, "revindex0": count - index - 1,
        });
        if !repeat.leave_out_all {
            more["allitems"] = json!(items);
        }
        for (name, at) in [("previtem", index.checked_sub(1)), ("nextitem", Some(index + 1))] {
            if let Some(near) = at.and_then(|at| items.get(at)) {
                more[name] = near.clone();
            }
        }
        layer.set("ansible_loop", Var::new(&more, false));
    }
    layer
}

fn list_items(kind: RepeatKind, value: Value) -> Result<Vec<Value>, String> {
    Ok(match (kind, value) {
        (RepeatKind::Dict, value) => {
            let mut out = Vec::new();
            for map in into_list(value) {
                let Value::Object(map) = map else { return Err("`with_dict` takes a map".into()) };
                out.extend(map.into_iter().map(|(key, value)| json!({"key": key, "value": value})));
            }
            out
        }
        (RepeatKind::Loop, Value::Array(items)) => items,
        (RepeatKind::Loop, other) => return Err(format!("`loop` takes a list, found {other}")),
        (RepeatKind::Indexed, value) => {
            flat(into_list(value)).into_iter().enumerate().map(|(at, item)| json!([at, item])).collect()
        }
        (RepeatKind::Flattened, value) => {
            let mut out = Vec::new();
            flatten(value, &mut out);
            out
        }
        (RepeatKind::Together, value) => {
            let lists: Vec<Vec<Value>> = into_list(value).into_iter().map(into_list).collect();
            let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
            let row = |at: usize| lists.iter().map(|l| l.get(at).cloned().unwrap_or(Value::Null)).collect();
            (0..longest).map(|at| Value::Array(flat(row(at)))).collect()
        }
        (RepeatKind::Nested, value) => combinations(into_list(value).into_iter().map(into_list).collect())?,
        (RepeatKind::Subelements, value) => subelements(&into_list(value))?,
        (_, value) => flat(into_list(value)),
    })
}

/// Returns a list unchanged, and any other value as a list of one.
fn into_list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        one => vec![one],
    }
}

/// Flattens one level of lists.
fn flat(items: Vec<Value>) -> Vec<Value> {
    items.into_iter().flat_map(into_list).collect()
}

fn flatten(value: Value, out: &mut Vec<Value>) {
    match value {
        Value::Array(items) => items.into_iter().for_each(|item| flatten(item, out)),
        Value::Null => {}
        other => out.push(other),
    }
}

fn combinations(lists: Vec<Vec<Value>>) -> Result<Vec<Value>, String> {
    let count = lists.iter().try_fold(1_usize, |all, list| all.checked_mul(list.len())).unwrap_or(usize::MAX);
    if count > ITEMS_MAX {
        return Err(too_many(count));
    }
    let mut out: Vec<Vec<Value>> = vec![Vec::new()];
    for list in lists {
        out = out
            .iter()
            .flat_map(|row| list.iter().map(|item| row.iter().cloned().chain(into_list(item.clone())).collect()))
            .collect();
    }
    Ok(out.into_iter().map(Value::Array).collect())
}

/// Evaluates `[list, 'a.b', {skip_missing: true}]`: pairs of each element, without its list `a.b`,
/// and each item of that list.
fn subelements(terms: &[Value]) -> Result<Vec<Value>, String> {
    let (Some(elements), Some(key)) = (terms.first(), terms.get(1).and_then(Value::as_str)) else {
        return Err("`with_subelements` takes a list and the name of a list in each of its elements".into());
    };
    let lenient = terms.get(2).and_then(|flags| flags.get("skip_missing")).is_some_and(|f| *f == true || *f == "yes");
    let elements = match elements {
        Value::Object(map) => map.values().cloned().collect(),
        other => into_list(other.clone()),
    };
    let mut out = Vec::new();
    for element in elements {
        if element.get("skipped").is_some_and(|s| *s != false) {
            continue;
        }
        let mut rest = element.clone();
        let pointer: String =
            key.split('.').map(|part| format!("/{}", part.replace('~', "~0").replace('/', "~1"))).collect();
        let (parent, last) = pointer.rsplit_once('/').unwrap_or(("", ""));
        let found = rest.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|map| map.shift_remove(last));
        match found {
            Some(Value::Array(inner)) => out.extend(inner.into_iter().map(|item| json!([rest, item]))),
            None if lenient => {}
            Some(_) => return Err(format!("`{key}` is not a list in {element}")),
            None => return Err(format!("`{key}` is not in {element}")),
        }
        if out.len() > ITEMS_MAX {
            return Err(too_many(out.len()));
        }
    }
    Ok(out)
}

fn sequences(terms: &[Value]) -> Result<Vec<Value>, String> {
    let mut out = Vec::new();
    for term in terms {
        let text = term.as_str().map_or_else(|| term.to_string(), str::to_owned);
        sequence(text.trim(), &mut out).map_err(|e| format!("`with_sequence` {text}: {e}"))?;
    }
    Ok(out)
}

/// Parses `start=1 end=5 stride=2 format=x%02d`, `count=3`, or the short form `1-5/2:x%02d`.
fn sequence(text: &str, out: &mut Vec<Value>) -> Result<(), String> {
    let mut options: Map<String, Value> = Map::new();
    if text.contains('=') {
        for word in crate::lang::word_split::split_words(text)? {
            let (name, value) = word.text.split_once('=').ok_or("takes option=value")?;
            if !["start", "end", "stride", "count", "format"].contains(&name) {
                return Err(format!("unknown option `{name}`"));
            }
            options.insert(name.to_owned(), json!(value));
        }
    } else {
        let (numbers, format) = text.split_once(':').map_or((text, None), |(n, f)| (n, Some(f)));
        let (range, stride) = numbers.split_once('/').map_or((numbers, None), |(r, s)| (r, Some(s)));
        let (start, end) = range.split_once('-').map_or((None, range), |(s, e)| (Some(s), e));
        for (name, value) in [("start", start), ("end", Some(end)), ("stride", stride), ("format", format)] {
            options.extend(value.map(|value| (name.to_owned(), json!(value))));
        }
    }
    let number = |name: &str| -> Result<Option<i64>, String> {
        let Some(text) = options.get(name).and_then(Value::as_str).map(str::trim) else { return Ok(None) };
        let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        let parsed = match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16),
            None if digits.len() > 1 && digits.starts_with('0') => {
                i64::from_str_radix(digits.trim_start_matches("0o"), 8)
            }
            None => digits.parse(),
        };
        parsed.map(|n| Some(sign * n)).map_err(|_| format!("`{text}` is not a number"))
    };
    let (start, stride) = (number("start")?.unwrap_or(1), number("stride")?.unwrap_or(1));
    let end = match (number("count")?, number("end")?) {
        (Some(_), Some(_)) => return Err("takes `count` or `end`, not both".into()),
        (None, None) => return Err("needs `count` or `end`".into()),
        (Some(0), None) => return Ok(()),
        (Some(count), None) => count.saturating_mul(stride).saturating_add(start) - 1,
        (None, Some(end)) => end,
    };
    if stride > 0 && end < start || stride < 0 && end > start {
        return Err("its stride does not lead from its start to its end".into());
    }
    let format = options.get("format").and_then(Value::as_str).unwrap_or("%d");
    let mut at = start;
    while stride != 0 && (stride > 0 && at <= end || stride < 0 && at >= end) {
        if out.len() >= ITEMS_MAX {
            return Err(too_many(out.len() + 1));
        }
        out.push(Value::String(format_number(format, at)?));
        at = at.checked_add(stride).ok_or("is too large")?;
    }
    Ok(())
}

/// Formats a number by a text with one `%d`, `%x`, `%X` or `%o`, optionally with a width.
fn format_number(format: &str, number: i64) -> Result<String, String> {
    let wrong = || format!("format `{format}` is not supported");
    let (before, rest) = format.split_once('%').ok_or_else(wrong)?;
    let end = rest.find(|c: char| c.is_ascii_alphabetic()).filter(|_| !rest.contains('%')).ok_or_else(wrong)?;
    let (width, after) = (&rest[..end], &rest[end + 1..]);
    let digits = match &rest[end..=end] {
        "d" | "i" | "u" | "s" => number.unsigned_abs().to_string(),
        "x" => format!("{:x}", number.unsigned_abs()),
        "X" => format!("{:X}", number.unsigned_abs()),
        "o" => format!("{:o}", number.unsigned_abs()),
        _ => return Err(wrong()),
    };
    let sign = if number < 0 { "-" } else { "" };
    let (left, width) = width.strip_prefix('-').map_or((false, width), |width| (true, width));
    let zeros = !left && width.starts_with('0');
    let size: usize = if width.is_empty() { 0 } else { width.parse().ok().filter(|w| *w < 100).ok_or_else(wrong)? };
    let text = match (left, zeros) {
        (true, _) => format!("{:<size$}", format!("{sign}{digits}")),
        (_, true) => format!("{sign}{digits:0>wide$}", wide = size.saturating_sub(sign.len())),
        _ => format!("{:>size$}", format!("{sign}{digits}")),
    };
    Ok(format!("{before}{text}{after}"))
}

fn file_glob(patterns: &[Value], repeat: &Repeat) -> Result<Vec<Value>, String> {
    let mut out = Vec::new();
    for pattern in patterns {
        let Some(text) = pattern.as_str() else {
            return Err(format!("`with_fileglob` takes patterns, found {pattern}"));
        };
        if text.starts_with('/') {
            return Err(format!("`{text}` is outside the directory of the playbook"));
        }
        let (folder, name) = text.rsplit_once('/').unwrap_or(("", text));
        let fits = hosts::wildcard(name)?;
        for dir in repeat.dirs.iter().filter_map(|dir| join(dir, folder)) {
            let here = repeat.files.iter().filter(|path| {
                let (parent, base) = path.rsplit_once('/').unwrap_or(("", path));
                parent == dir && fits.is_match(base)
            });
            let found: Vec<Value> = here.map(|path| json!(path)).collect();
            if !found.is_empty() {
                out.extend(found);
                break;
            }
        }
    }
    Ok(out)
}

fn first_found(scope: &ExprScope, repeat: &Repeat) -> Result<Vec<Value>, String> {
    let mut names = Vec::new();
    let mut skip = false;
    terms(scope, &repeat.items, &mut names, &mut skip)?;
    for name in &names {
        if let Some(path) = find_planned_file(scope, repeat, name) {
            return Ok(vec![json!(path)]);
        }
        let found = repeat.dirs.iter().filter_map(|dir| join(dir, name)).find(|path| repeat.files.contains(path));
        if let Some(path) = found {
            return Ok(vec![json!(path)]);
        }
    }
    if skip { Ok(Vec::new()) } else { Err(format!("none of the files exists: {}", names.join(", "))) }
}

/// The file of the plan that an absolute name means, because a variable of the name begins with
/// `role_path` or `playbook_dir`.
fn find_planned_file<'r>(scope: &ExprScope, repeat: &'r Repeat, name: &str) -> Option<&'r String> {
    if !name.starts_with('/') {
        return None;
    }
    let below = format!("{}/", expr::render_text(scope, "{{ playbook_dir | default('') }}").ok()?);
    // The playbook may be in a directory below the root of the files.
    let roots = below.match_indices('/').map(|(at, _)| &below[..=at]);
    let mut rests = roots.filter_map(|root| name.strip_prefix(root));
    rests.find_map(|rest| repeat.files.iter().find(|file| *file == rest))
}

/// Collects the file names of `first_found` in the order in which they are tried. Undefined names
/// are left out. Sets `skip` if the option `skip` is true.
fn terms(scope: &ExprScope, value: &Value, names: &mut Vec<String>, skip: &mut bool) -> Result<(), String> {
    let value = match value {
        Value::String(_) => match expr::render_json(scope, value) {
            Ok(value) => value,
            Err(e) if e.kind() == ErrorKind::UndefinedError => return Ok(()),
            Err(e) => return Err(expr::explain(&e)),
        },
        other => other.clone(),
    };
    match value {
        Value::String(text) => names.push(text),
        Value::Array(items) => {
            for item in &items {
                terms(scope, item, names, skip)?;
            }
        }
        Value::Object(map) => {
            let words = |name: &str, separators: &[char]| -> Result<Vec<String>, String> {
                let mut found = Vec::new();
                terms(scope, map.get(name).unwrap_or(&json!([])), &mut found, &mut false)?;
                let words = found.iter().flat_map(|text| text.split(separators)).map(|word| word.trim().to_owned());
                Ok(words.filter(|word| !word.is_empty()).collect())
            };
            let (files, paths) = (words("files", &[',', ';'])?, words("paths", &[',', ':', ';'])?);
            if paths.is_empty() {
                names.extend(files);
            } else {
                names.extend(
                    paths.iter().flat_map(|path| {
                        files.iter().map(move |file| format!("{}/{file}", path.trim_end_matches('/')))
                    }),
                );
            }
            let asked =
                expr::render_json(scope, map.get("skip").unwrap_or(&Value::Null)).map_err(|e| expr::explain(&e))?;
            *skip = asked == true || matches!(asked.as_str(), Some("yes" | "true" | "True" | "on"));
        }
        other => return Err(format!("a file name must be a text, found {other}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: RepeatKind, terms: Value, want: Value) {
        let files = ["r/files/a.conf", "r/files/b.conf", "r/files/sub/c.conf", "top.conf"].map(str::to_owned).to_vec();
        let dirs = ["r/files", "r", ""].map(str::to_owned).to_vec();
        let repeat = Repeat { kind, items: terms.clone(), dirs, files, ..Repeat::default() };
        let got = items(&ExprScope::default(), &repeat).map_or_else(|e| json!(e), Value::Array);
        assert_eq!(got, want, "{kind:?} {terms}");
    }

    #[test]
    fn each_kind_goes_over_what_ansible_goes_over() {
        use RepeatKind::*;
        let table = [
            (Items, json!([1, [2, [3]]]), json!([1, 2, [3]])),
            (Items, json!("x"), json!(["x"])),
            (Dict, json!({"a": 1}), json!([{"key": "a", "value": 1}])),
            (Together, json!([[1, 2], ["a"]]), json!([[1, "a"], [2, null]])),
            (Nested, json!([[1, 2], ["a", "b"]]), json!([[1, "a"], [1, "b"], [2, "a"], [2, "b"]])),
            (Nested, json!([["x"], [["y", "z"]]]), json!([["x", "y", "z"]])),
            (Indexed, json!(["a", ["b"]]), json!([[0, "a"], [1, "b"]])),
            (Flattened, json!([1, [2, [3, [4]]]]), json!([1, 2, 3, 4])),
            (
                Subelements,
                json!([[{"n": 1, "k": ["x", "y"]}, {"n": 2, "k": []}], "k"]),
                json!([[{"n": 1}, "x"], [{"n": 1}, "y"]]),
            ),
            (Subelements, json!([[{"n": 1}], "k", {"skip_missing": true}]), json!([])),
            (Subelements, json!([[{"n": 1}], "k"]), json!("`k` is not in {\"n\":1}")),
            (Sequence, json!("count=3"), json!(["1", "2", "3"])),
            (Sequence, json!("start=0 end=6 stride=3 format=h%02d"), json!(["h00", "h03", "h06"])),
            (Sequence, json!("4:host%02d"), json!(["host01", "host02", "host03", "host04"])),
            (Sequence, json!("2-10/4"), json!(["2", "6", "10"])),
            (Sequence, json!("start=0x0f00 count=2 format=%04x"), json!(["0f00", "0f01"])),
            (Sequence, json!("start=3 end=1 stride=-1"), json!(["3", "2", "1"])),
            (
                Sequence,
                json!("start=3 end=1"),
                json!("`with_sequence` start=3 end=1: its stride does not lead from its start to its end"),
            ),
            (
                Sequence,
                json!("end=99999999"),
                json!("`with_sequence` end=99999999: a loop has 10001 items, but the maximum is 10000"),
            ),
            (FileGlob, json!("*.conf"), json!(["r/files/a.conf", "r/files/b.conf"])),
            (FileGlob, json!(["sub/*", "[b].conf"]), json!(["r/files/sub/c.conf", "r/files/b.conf"])),
            (FileGlob, json!("none*"), json!([])),
            (FirstFound, json!(["x.conf", "top.conf"]), json!(["top.conf"])),
            (FirstFound, json!(["{{ nowhere }}.conf", "b.conf"]), json!(["r/files/b.conf"])),
            (FirstFound, json!([{"files": "x,c.conf", "paths": ["sub"]}]), json!(["r/files/sub/c.conf"])),
            (FirstFound, json!([{"files": ["x"], "skip": true}]), json!([])),
            (FirstFound, json!(["x"]), json!("none of the files exists: x")),
        ];
        for (kind, terms, want) in table {
            check(kind, terms, want);
        }
    }

    #[test]
    fn an_extended_loop_knows_its_place() {
        let repeat = Repeat { extended: true, index_var: Some("n".into()), ..Repeat::default() };
        let all = [json!("a"), json!("b")];
        let scope = ExprScope::default().with_layer(item_layer(&repeat, &all, 1));
        let told = expr::render_text(
            &scope,
            "{{ ansible_loop.index }}{{ ansible_loop.last }}{{ ansible_loop.revindex0 }}{{ ansible_loop.previtem }}{{ ansible_loop.nextitem is defined }}{{ n }}{{ ansible_loop.allitems | length }}",
        );
        assert_eq!(told.unwrap(), "2True0aFalse12");
    }
}
