//! The filters, tests and functions that Ansible adds to Jinja2, as far as real playbooks use them.
//!
//! Pure: nothing here reads the node, except `lookup('env')`. What is missing is found by `check_names` at compile time.

use super::names::nearest;
use super::yaml_text;
use super::{expr, version};
use base64::Engine as _;
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value as Json};

const BUILTIN_FILTERS: &str = "abs attr batch capitalize chain count d default dictsort e escape first float format groupby indent int items join \
    last length lines list lower map max min pprint reject rejectattr replace reverse round safe select selectattr slice \
    sort split string sum title trim unique upper zip bool";
const OUR_FILTERS: &str = "to_json to_nice_json from_json tojson to_yaml to_nice_yaml from_yaml combine ternary basename dirname splitext \
    regex_replace regex_search regex_findall regex_escape b64encode b64decode quote mandatory dict2items items2dict union \
    difference intersect symmetric_difference flatten comment hash subelements urlsplit";
const BUILTIN_TESTS: &str = "undefined defined none safe escaped boolean odd even divisibleby number integer int float string sequence iterable \
    mapping startingwith endingwith lower upper sameas eq equalto ne lt lessthan le gt greaterthan ge in true false filter test";
const OUR_TESTS: &str = "succeeded success failed failure changed change skipped skip match search regex version version_compare subset superset \
    contains truthy falsy any all";

fn failure(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Adds everything to an environment.
pub fn register(env: &mut Environment<'static>) {
    env.add_filter("bool", |v: Value| truthy(&v));
    for name in ["to_json", "tojson"] {
        env.add_filter(name, |v: Value, k: Kwargs| {
            forget(&k, &["sort_keys", "ensure_ascii", "separators"])?;
            json_text(&v, k.get::<Option<usize>>("indent")?)
        });
    }
    env.add_filter("to_nice_json", |v: Value, k: Kwargs| {
        forget(&k, &["sort_keys", "ensure_ascii"])?;
        json_text(&v, Some(k.get::<Option<usize>>("indent")?.unwrap_or(4)))
    });
    env.add_filter("from_json", |text: String| -> Result<Value, Error> {
        let json: Json = serde_json::from_str(&text).map_err(|e| failure(format!("from_json: {e}")))?;
        Ok(super::scope::plain(&json))
    });
    env.add_filter("to_yaml", |v: Value, k: Kwargs| -> Result<String, Error> {
        forget(&k, &["width", "allow_unicode", "default_flow_style", "explicit_start"])?;
        let indent = k.get::<Option<usize>>("indent")?.unwrap_or(2);
        Ok(yaml_text::compact(&expr::to_json(&v)?, indent))
    });
    env.add_filter("to_nice_yaml", |v: Value, k: Kwargs| -> Result<String, Error> {
        forget(&k, &["width", "allow_unicode", "default_flow_style", "explicit_start"])?;
        let indent = k.get::<Option<usize>>("indent")?.unwrap_or(4);
        Ok(yaml_text::block(&expr::to_json(&v)?, indent, k.get::<Option<bool>>("sort_keys")?.unwrap_or(true)))
    });
    env.add_filter("from_yaml", |text: String| -> Result<Value, Error> {
        let (node, _) = super::yaml::parse("from_yaml", &text).map_err(|e| failure(e.to_string()))?;
        Ok(super::scope::plain(&node.json()))
    });
    env.add_filter("combine", combine);
    env.add_filter("ternary", |v: Value, yes: Value, no: Value, null: Option<Value>| match (v.is_none(), null) {
        (true, Some(null)) => null,
        _ if v.is_true() => yes,
        _ => no,
    });
    env.add_filter("basename", |p: String| p.rsplit('/').next().unwrap_or("").to_owned());
    env.add_filter("dirname", |p: String| dirname(&p));
    env.add_filter("splitext", |p: String| {
        let base = p.rfind('/').map_or(0, |at| at + 1);
        match p[base..].rfind('.') {
            Some(dot) if dot > 0 => vec![p[..base + dot].to_owned(), p[base + dot..].to_owned()],
            _ => vec![p, String::new()],
        }
    });
    env.add_filter("indent", indent);
    env.add_filter("regex_replace", regex_replace);
    env.add_filter("regex_search", regex_search);
    env.add_filter("regex_findall", |text: String, pattern: String, k: Kwargs| -> Result<Vec<Value>, Error> {
        let regex = pattern_of(&pattern, &k)?;
        Ok(regex
            .captures_iter(&text)
            .map(|c| match c.len() {
                1 => Value::from(&c[0]),
                2 => Value::from(c.get(1).map_or("", |m| m.as_str())),
                n => Value::from((1..n).map(|i| c.get(i).map_or("", |m| m.as_str()).to_owned()).collect::<Vec<_>>()),
            })
            .collect())
    });
    env.add_filter("regex_escape", |text: String| regex::escape(&text));
    env.add_filter("b64encode", |text: String| base64::engine::general_purpose::STANDARD.encode(text));
    env.add_filter("b64decode", |text: String| -> Result<String, Error> {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text.trim())
            .map_err(|e| failure(format!("b64decode: {e}")))?;
        String::from_utf8(bytes).map_err(|_| failure("b64decode: not UTF-8"))
    });
    env.add_filter("quote", |v: Value| shell_quote(&v.to_string()));
    env.add_filter("mandatory", |v: Value, message: Option<String>| {
        if v.is_undefined() {
            return Err(Error::new(
                ErrorKind::UndefinedError,
                message.unwrap_or_else(|| "a mandatory variable is undefined".into()),
            ));
        }
        Ok(v)
    });
    env.add_filter("dict2items", dict2items);
    env.add_filter("items2dict", items2dict);
    env.add_filter("union", |a: Value, b: Value| -> Result<Vec<Value>, Error> {
        Ok(distinct(list(&a)?.into_iter().chain(list(&b)?)))
    });
    env.add_filter("difference", |a: Value, b: Value| -> Result<Vec<Value>, Error> {
        let b = list(&b)?;
        Ok(distinct(list(&a)?.into_iter().filter(|v| !b.contains(v))))
    });
    env.add_filter("intersect", |a: Value, b: Value| -> Result<Vec<Value>, Error> {
        let b = list(&b)?;
        Ok(distinct(list(&a)?.into_iter().filter(|v| b.contains(v))))
    });
    env.add_filter("symmetric_difference", |a: Value, b: Value| -> Result<Vec<Value>, Error> {
        let (a, b) = (list(&a)?, list(&b)?);
        let only = a.iter().filter(|v| !b.contains(v)).chain(b.iter().filter(|v| !a.contains(v)));
        Ok(distinct(only.cloned()))
    });
    env.add_filter("flatten", |v: Value, k: Kwargs| -> Result<Vec<Value>, Error> {
        let mut out = Vec::new();
        flatten(&v, k.get::<Option<usize>>("levels")?.unwrap_or(64), &mut out)?;
        Ok(out)
    });
    env.add_filter("comment", |text: String, style: Option<String>, k: Kwargs| -> Result<String, Error> {
        let mark = match k.get::<Option<String>>("decoration")? {
            Some(own) => own,
            None => match style.as_deref() {
                Some("c") => "// ".into(),
                Some("erlang") => "% ".into(),
                _ => "# ".to_owned(),
            },
        };
        let edge = mark.trim_end();
        let body: Vec<String> = text.lines().map(|line| format!("{mark}{line}").trim_end().to_owned()).collect();
        Ok(format!("{edge}\n{}\n{edge}", body.join("\n")))
    });
    env.add_filter("hash", |text: String, kind: Option<String>| match kind.as_deref() {
        Some("sha256") => Ok(crate::model::Sha256::of(text.as_bytes()).to_string()),
        other => Err(failure(format!("hash: only sha256 is known, not {}", other.unwrap_or("sha1")))),
    });
    env.add_filter("subelements", |v: Value, key: String| -> Result<Vec<Value>, Error> {
        let mut out = Vec::new();
        for item in list(&v)? {
            for sub in list(&item.get_attr(&key)?)? {
                out.push(Value::from(vec![item.clone(), sub]));
            }
        }
        Ok(out)
    });
    env.add_filter("urlsplit", urlsplit);
    register_tests(env);
    env.add_function("lookup", lookup);
    env.add_function("query", |state: &State, rest: Rest<Value>, k: Kwargs| lookup(state, rest, k).map(|v| vec![v]));
}

fn register_tests(env: &mut Environment<'static>) {
    for name in ["failed", "failure"] {
        env.add_test(name, |v: Value| flag(&v, "failed"));
    }
    for name in ["succeeded", "success"] {
        env.add_test(name, |v: Value| flag(&v, "failed").map(|f| !f));
    }
    for name in ["changed", "change"] {
        env.add_test(name, |v: Value| flag(&v, "changed"));
    }
    for name in ["skipped", "skip"] {
        env.add_test(name, |v: Value| flag(&v, "skipped"));
    }
    env.add_test("match", |text: String, pattern: String, k: Kwargs| {
        Ok::<_, Error>(pattern_of(&format!("^(?:{pattern})"), &k)?.is_match(&text))
    });
    for name in ["search", "regex"] {
        env.add_test(name, |text: String, pattern: String, k: Kwargs| {
            Ok::<_, Error>(pattern_of(&pattern, &k)?.is_match(&text))
        });
    }
    for name in ["version", "version_compare"] {
        env.add_test(name, |v: Value, other: Value, op: Option<String>, k: Kwargs| {
            forget(&k, &["strict", "version_type"])?;
            version::holds(&v.to_string(), op.as_deref().unwrap_or("=="), &other.to_string()).map_err(failure)
        });
    }
    env.add_test("subset", |a: Value, b: Value| -> Result<bool, Error> {
        let b = list(&b)?;
        Ok(list(&a)?.iter().all(|v| b.contains(v)))
    });
    env.add_test("superset", |a: Value, b: Value| -> Result<bool, Error> {
        let a = list(&a)?;
        Ok(list(&b)?.iter().all(|v| a.contains(v)))
    });
    env.add_test("contains", |a: Value, b: Value| Ok::<_, Error>(list(&a)?.contains(&b)));
    env.add_test("truthy", |v: Value| v.is_true());
    env.add_test("falsy", |v: Value| !v.is_true());
    env.add_test("any", |v: Value| Ok::<_, Error>(list(&v)?.iter().any(Value::is_true)));
    env.add_test("all", |v: Value| Ok::<_, Error>(list(&v)?.iter().all(Value::is_true)));
}

/// Every filter and test that a template names must exist; the error's detail names it and what was perhaps meant.
pub fn check_names(template: &str) -> Result<(), Error> {
    for (kind, name) in super::lint::filters_and_tests(template) {
        let (known, what) = match kind {
            super::lint::Kind::Filter => ([BUILTIN_FILTERS, OUR_FILTERS], ErrorKind::UnknownFilter),
            super::lint::Kind::Test => ([BUILTIN_TESTS, OUR_TESTS], ErrorKind::UnknownTest),
        };
        let name = name.strip_prefix("ansible.builtin.").unwrap_or(&name).to_owned();
        let all: Vec<&str> = known.iter().flat_map(|k| k.split_whitespace()).collect();
        if !all.contains(&name.as_str()) {
            let hint = nearest(&name, all).map(|n| format!(" (did you mean `{n}`?)")).unwrap_or_default();
            return Err(Error::new(what, format!("`{name}`{hint}")));
        }
    }
    Ok(())
}

/// Ansible's reading of a boolean.
pub fn truthy(v: &Value) -> bool {
    match v.as_str() {
        Some(s) => matches!(s.to_ascii_lowercase().as_str(), "yes" | "on" | "1" | "true" | "y" | "t"),
        None => v.is_true(),
    }
}

/// POSIX single quotes where needed.
pub fn shell_quote(text: &str) -> String {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
    if !text.is_empty() && text.bytes().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\"'\"'"))
    }
}

/// Options of Python's writers that change nothing here are taken and forgotten.
fn forget(k: &Kwargs, names: &[&str]) -> Result<(), Error> {
    names.iter().try_for_each(|name| k.get::<Option<Value>>(name).map(|_| ()))
}

fn json_text(v: &Value, indent: Option<usize>) -> Result<String, Error> {
    Ok(yaml_text::json(&expr::to_json(v)?, indent))
}

fn list(v: &Value) -> Result<Vec<Value>, Error> {
    Ok(v.try_iter()?.collect())
}

fn distinct(items: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for item in items {
        if !out.contains(&item) {
            out.push(item);
        }
    }
    out
}

fn flag(v: &Value, name: &str) -> Result<bool, Error> {
    if v.is_undefined() {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            format!("the result that is tested for `{name}` is undefined"),
        ));
    }
    Ok(v.get_attr(name)?.is_true())
}

fn flatten(v: &Value, levels: usize, out: &mut Vec<Value>) -> Result<(), Error> {
    for item in list(v)? {
        if levels > 0 && item.kind() == minijinja::value::ValueKind::Seq {
            flatten(&item, levels - 1, out)?;
        } else if !item.is_none() {
            out.push(item);
        }
    }
    Ok(())
}

fn combine(first: Value, rest: Rest<Value>, k: Kwargs) -> Result<Value, Error> {
    let recursive = k.get::<Option<bool>>("recursive")?.unwrap_or(false);
    let mut out = match expr::to_json(&first)? {
        Json::Object(map) => map,
        _ => return Err(failure("combine: not a map")),
    };
    for other in &rest.0 {
        let others = if other.kind() == minijinja::value::ValueKind::Seq { list(other)? } else { vec![other.clone()] };
        for other in others {
            match expr::to_json(&other)? {
                Json::Object(map) => merge(&mut out, map, recursive),
                _ => return Err(failure("combine: not a map")),
            }
        }
    }
    Ok(super::scope::object(&out))
}

fn merge(into: &mut Map<String, Json>, from: Map<String, Json>, recursive: bool) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Json::Object(old)), Json::Object(new)) if recursive => merge(old, new, true),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn dirname(path: &str) -> String {
    match path.rfind('/') {
        Some(0) => "/".into(),
        Some(at) => path[..at].to_owned(),
        None => String::new(),
    }
}

fn indent(text: String, width: Option<usize>, first: Option<bool>, k: Kwargs) -> Result<String, Error> {
    let width = k.get::<Option<usize>>("width")?.or(width).unwrap_or(4);
    let first = k.get::<Option<bool>>("first")?.or(k.get::<Option<bool>>("indentfirst")?).or(first).unwrap_or(false);
    let blank = k.get::<Option<bool>>("blank")?.unwrap_or(false);
    let pad = " ".repeat(width.min(200));
    let mut out = String::with_capacity(text.len() + 64);
    for (i, line) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        if (i > 0 || first) && (blank || !line.is_empty()) {
            out.push_str(&pad);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn pattern_of(pattern: &str, k: &Kwargs) -> Result<Regex, Error> {
    RegexBuilder::new(pattern)
        .case_insensitive(k.get::<Option<bool>>("ignorecase")?.unwrap_or(false))
        .multi_line(k.get::<Option<bool>>("multiline")?.unwrap_or(false))
        .size_limit(1 << 20)
        .build()
        .map_err(|e| failure(format!("pattern `{pattern}`: {e}")))
}

/// `\1` and `\g<name>` of Python to this crate's `${1}`.
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

fn regex_replace(text: Value, pattern: String, with: Option<String>, k: Kwargs) -> Result<String, Error> {
    let regex = pattern_of(&pattern, &k)?;
    Ok(regex.replace_all(&text.to_string(), replacement(&with.unwrap_or_default())).into_owned())
}

fn regex_search(text: String, pattern: String, rest: Rest<Value>, k: Kwargs) -> Result<Value, Error> {
    let rest = rest.0;
    let regex = pattern_of(&pattern, &k)?;
    let Some(found) = regex.captures(&text) else { return Ok(Value::from(())) };
    if rest.is_empty() {
        return Ok(Value::from(&found[0]));
    }
    let mut groups = Vec::new();
    for group in &rest {
        let name = group.to_string();
        let name = name.trim_start_matches('\\').trim_start_matches("g<").trim_end_matches('>');
        let part = match name.parse::<usize>() {
            Ok(n) => found.get(n),
            Err(_) => found.name(name),
        };
        groups.push(Value::from(part.map_or("", |m| m.as_str())));
    }
    Ok(Value::from(groups))
}

fn dict2items(v: Value, k: Kwargs) -> Result<Value, Error> {
    let (key, value) = (k.get::<Option<String>>("key_name")?, k.get::<Option<String>>("value_name")?);
    let (key, value) = (key.unwrap_or_else(|| "key".into()), value.unwrap_or_else(|| "value".into()));
    let Json::Object(map) = expr::to_json(&v)? else { return Err(failure("dict2items: not a map")) };
    let items = map
        .into_iter()
        .map(|(k, v)| Json::Object(Map::from_iter([(key.clone(), Json::String(k)), (value.clone(), v)])));
    Ok(super::scope::value_of(&Json::Array(items.collect())))
}

fn items2dict(v: Value, k: Kwargs) -> Result<Value, Error> {
    let Json::Array(items) = expr::to_json(&v)? else { return Err(failure("items2dict: not a list")) };
    let key = k.get::<Option<String>>("key_name")?.unwrap_or_else(|| "key".into());
    let value = k.get::<Option<String>>("value_name")?.unwrap_or_else(|| "value".into());
    let mut out = Map::new();
    for item in items {
        let Json::Object(mut item) = item else { return Err(failure("items2dict: an item is not a map")) };
        match (item.remove(&key), item.remove(&value)) {
            (Some(Json::String(k)), Some(v)) => out.insert(k, v),
            (Some(k), Some(v)) => out.insert(k.to_string(), v),
            _ => return Err(failure(format!("items2dict: an item lacks `{key}` or `{value}`"))),
        };
    }
    Ok(super::scope::object(&out))
}

fn urlsplit(url: String, part: Option<String>) -> Result<Value, Error> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (netloc, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = netloc.rsplit('@').next().unwrap_or("");
    let (host, port) = match host.rsplit_once(':') {
        Some((h, p)) if p.bytes().all(|b| b.is_ascii_digit()) => (h, p.parse::<u16>().ok()),
        _ => (host, None),
    };
    let map = serde_json::json!({
        "scheme": scheme, "netloc": netloc, "hostname": host.trim_matches(['[', ']']), "port": port,
        "path": path, "query": query, "fragment": fragment,
    });
    match part {
        None => Ok(super::scope::value_of(&map)),
        Some(part) => {
            map.get(&part).map(super::scope::plain).ok_or_else(|| failure(format!("urlsplit: no part `{part}`")))
        }
    }
}

/// `lookup('env', 'NAME')` and `lookup('vars', 'name', default=x)`; the rest needs the manager's files and is refused by the compiler.
fn lookup(state: &State, rest: Rest<Value>, k: Kwargs) -> Result<Value, Error> {
    let fallback = k.get::<Option<Value>>("default")?;
    let rest = rest.0;
    let word = |i: usize| rest.get(i).map(Value::to_string).unwrap_or_default();
    match word(0).trim_start_matches("ansible.builtin.") {
        "env" => Ok(Value::from(std::env::var(word(1)).unwrap_or_default())),
        "vars" => state
            .lookup(&word(1))
            .or(fallback)
            .ok_or_else(|| Error::new(ErrorKind::UndefinedError, format!("`{}` is undefined", word(1)))),
        other => Err(failure(format!("lookup `{other}` is not known here; known are env and vars"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::playbook::data::VarMap;
    use crate::playbook::expr;
    use crate::playbook::scope::Scope;
    use std::sync::Arc;

    #[test]
    fn answers_as_ansible_does() {
        let vars = serde_json::json!({
            "l": [3, 1, [2, [4]]], "d": {"b": 1, "a": {"x": 1}}, "e": {"a": {"y": 2}}, "s": "path/to/file.tar.gz",
            "ok": {"failed": false, "changed": true}, "lazy": "{{ d.b + 1 }}",
        });
        let scope = Scope::new(vec![Arc::new(VarMap::trusted(vars.as_object().unwrap()))], Default::default());
        for (text, want) in [
            ("{{ 'yes' | bool }} {{ 'no' | bool }} {{ 1 | bool }}", "True False True"),
            ("{{ d | to_json }}", r#"{"b": 1, "a": {"x": 1}}"#),
            ("{{ d | combine(e) | to_json }}", r#"{"b": 1, "a": {"y": 2}}"#),
            ("{{ d | combine(e, recursive=true) | to_json }}", r#"{"b": 1, "a": {"x": 1, "y": 2}}"#),
            ("{{ l | flatten | sort | join(',') }}", "1,2,3,4"),
            (
                "{{ [1, 2] | union([2, 3]) }} {{ [1, 2] | difference([2]) }} {{ [1, 2] | intersect([2]) }}",
                "[1, 2, 3] [1] [2]",
            ),
            ("{{ s | basename }} {{ s | dirname }} {{ s | splitext | last }}", "file.tar.gz path/to .gz"),
            ("{{ 'a1b2' | regex_replace('([a-z])(\\d)', '\\\\2\\\\1') }}", "1a2b"),
            ("{{ 'v1.22.3' | regex_search('\\d+') }}", "1"),
            ("{{ 'hi' | b64encode }} {{ 'aGk=' | b64decode }} {{ 'a b' | quote }}", "aGk= hi 'a b'"),
            ("{{ d | dict2items | map(attribute='key') | join(' ') }}", "b a"),
            ("{{ [{'key': 'k', 'value': 2}] | items2dict | to_json }}", r#"{"k": 2}"#),
            ("{{ nothing.at.all | default('none') }} {{ '' | default('e', true) }}", "none e"),
            (
                "{{ (d.b == 1) | ternary('y', 'n') }} {{ ok is changed }} {{ ok is succeeded }} {{ ok is failed }}",
                "y True True False",
            ),
            (
                "{{ '1.10' is version('1.9', '>') }} {{ 'abc' is match('ab') }} {{ 'abc' is search('c$') }}",
                "True True True",
            ),
            ("{{ lazy }} {{ vars['lazy'] }} {{ lookup('vars', 'lazy') }}", "2 2 2"),
            ("{{ 'a\nb' | comment }}", "#\n# a\n# b\n#"),
            ("{{ 'a\nb\n' | indent(2) }}|", "a\n  b\n|"),
            ("{% for k, v in d.items() %}{{ k }}{% endfor %}", "ba"),
        ] {
            let got = expr::render(&scope, "t", text, &Default::default()).unwrap_or_else(|e| expr::explain(&e));
            assert_eq!(got, want, "{text}");
        }
        let missing = expr::render(&scope, "t", "{{ gone | mandatory }}", &Default::default()).unwrap_err();
        assert!(expr::explain(&missing).contains("undefined"));
        let endless = expr::render(
            &scope,
            "t",
            "{% for i in range(9999) %}{% for j in range(9999) %}{{ j }}{% endfor %}{% endfor %}",
            &Default::default(),
        );
        assert!(expr::explain(&endless.unwrap_err()).contains("too long"));
    }
}
