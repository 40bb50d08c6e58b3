//! The lookups `file`, `template`, `fileglob` and `first_found`. They find the files that the
//! compiler has included in the plan. During `remoor play`, the controller finds the others.

use super::asked_lookups::{self, LookupCall};
use super::lookups::items;
use super::{FilterResult, failure, list};
use crate::lang::{hosts, python};
use crate::template::expr;
use crate::vars::scope::{on_the_node, scope_of, with_default, with_values};
use crate::vars::var_map;
use base64::Engine as _;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, State, Value};
use serde_json::{Map, Value as Json};
use std::cell::Cell;

/// The variable with the files that the compiler includes for lookups. A playbook cannot have a
/// variable of this name.
pub const LOOKUP_FILES: &str = "files of lookups";
/// Maximum depth of nested template lookups.
const DEPTH_MAX: u32 = 10;

thread_local! {
    /// Number of nested template lookups that are being rendered.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The key in `LOOKUP_FILES` that is there if the controller finds the files that the plan does not
/// contain.
pub const BY_CONTROLLER: &str = "by the controller";

/// The directory whose files the lookups of a file's tasks find first: the role of the file, or the
/// directory that contains the file.
pub fn lookup_place(file: &str) -> String {
    let parts: Vec<&str> = file.split('/').collect();
    match parts.iter().rposition(|part| *part == "roles").filter(|at| parts.len() > at + 2) {
        Some(at) => parts[..at + 2].join("/"),
        None => file.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_owned()),
    }
}

/// Directories in which lookups and tasks of the file `file` search for files, in order. They are
/// relative to the directory of the playbook's files. `playbook`: the path of the playbook in it.
pub fn search_places(file: &str, playbook: &str) -> Vec<String> {
    let parent = |path: &str| path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_owned());
    let mut places: Vec<String> = Vec::new();
    for dir in [lookup_place(file), parent(file), parent(playbook)] {
        if !places.contains(&dir) {
            places.push(dir);
        }
    }
    places
}

/// The key in `LOOKUP_FILES` of a file that another place has too, with another content.
pub fn placed_key(key: &str, place: &str) -> String {
    format!("{key}\n{place}")
}

/// What the compiler has found for this lookup of a name, in the place of the task.
fn find_included(state: &State, kind: &str, name: &str) -> Option<Value> {
    let all = state.lookup(LOOKUP_FILES)?;
    let scope = scope_of(state);
    let place = scope.as_ref().and_then(|scope| scope.host_layers()).map(|own| own.place.as_str());
    let key = format!("{kind} {name}");
    let placed = placed_key(&key, place.unwrap_or_default());
    [placed, key].iter().find_map(|key| all.get_attr(key).ok().filter(|found| !found.is_undefined()))
}

/// The paths that the compiler or the controller has found for a name or pattern. None: nobody
/// knows whether there are such files.
fn find_paths(state: &State, kind: &str, name: &str) -> Result<Option<Vec<Value>>, Error> {
    let found = find_included(state, kind, name).filter(|found| found.kind() == ValueKind::Seq);
    match found {
        Some(found) => list(kind, &found).map(Some),
        None if kind == "first_found" && is_covered(state, name)? => Ok(Some(Vec::new())),
        None if asked_lookups::are_answered(state) => {
            asked_lookups::ask(state, &LookupCall::new(kind, vec![name.into()])).map(Some)
        }
        None => leave_to_controller(state).map(|()| None),
    }
}

/// Fails before a run whose controller finds files that the plan does not contain.
fn leave_to_controller(state: &State) -> Result<(), Error> {
    let by_controller = state.lookup(LOOKUP_FILES).and_then(|all| all.get_attr(BY_CONTROLLER).ok());
    if by_controller.is_some_and(|by_controller| by_controller.is_true()) { on_the_node(state) } else { Ok(()) }
}

/// The text of a file that the compiler included.
fn included_text(state: &State, kind: &str, name: &Value) -> Result<String, Error> {
    let name = python::text(name)?;
    let content = find_included(state, kind, &name).and_then(|file| file.get_attr("content").ok());
    let content = content.filter(|content| !content.is_undefined());
    let bytes = content.and_then(|c| base64::engine::general_purpose::STANDARD.decode(c.as_str()?).ok());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    if text.is_none() && asked_lookups::are_answered(state) {
        let found = asked_lookups::ask(state, &LookupCall::new(kind, vec![name.into()]))?;
        return found.first().map_or_else(|| Ok(String::new()), python::text);
    }
    if text.is_none() {
        leave_to_controller(state)?;
    }
    text.ok_or_else(|| failure(format!("lookup {kind}: the plan does not contain `{name}`")))
}

pub(super) fn file(state: &State, terms: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    let (left, right) = (k.get::<Option<bool>>("lstrip")?, k.get::<Option<bool>>("rstrip")?);
    let strip = |text: String| {
        let text = if left.unwrap_or(false) { text.trim_start() } else { &text };
        Value::from(if right.unwrap_or(true) { text.trim_end() } else { text })
    };
    terms.iter().map(|term| Ok(strip(included_text(state, "file", term)?))).collect()
}

pub(super) fn fileglob(state: &State, patterns: &[Value]) -> Result<Vec<Value>, Error> {
    let mut out = Vec::new();
    for pattern in patterns {
        let pattern = python::text(pattern)?;
        let found = find_paths(state, "fileglob", &pattern)?;
        out.extend(found.ok_or_else(|| not_included("fileglob", &pattern))?);
    }
    Ok(out)
}

fn not_included(kind: &str, name: &str) -> Error {
    failure(format!("lookup {kind}: the plan does not know whether `{name}` exists, because the name was not known"))
}

pub(super) fn first_found(state: &State, terms: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    let (skip, errors) = (k.get::<Option<bool>>("skip")?, k.get::<Option<&str>>("errors")?);
    let words = |name: &str| -> Result<Vec<String>, Error> {
        let Some(value) = k.get::<Option<Value>>(name)? else { return Ok(Vec::new()) };
        items(&[value])?.iter().map(python::text).collect()
    };
    let options = (words("files")?, words("paths")?);
    let terms = terms.iter().map(expr::to_json).collect::<Result<Vec<_>, _>>()?;
    let (names, skips) = searched_names(&terms, &options);
    for name in &names {
        let found = find_paths(state, "first_found", name)?;
        match found {
            Some(found) if found.is_empty() => {}
            Some(found) => return Ok(found),
            None => return Err(not_included("first_found", name)),
        }
    }
    if skips || skip.unwrap_or(false) || errors == Some("ignore") {
        return Ok(Vec::new());
    }
    Err(failure(format!("lookup first_found: none of the files exists: {}", names.join(", "))))
}

/// Whether the compiler has included all files of a pattern that matches this name.
fn is_covered(state: &State, name: &str) -> Result<bool, Error> {
    let Some(all) = state.lookup(LOOKUP_FILES) else { return Ok(false) };
    for key in all.try_iter()? {
        let pattern = key.as_str().and_then(|key| key.strip_prefix("first_found ")).filter(|key| key.contains('*'));
        let pattern = pattern.map(|pattern| pattern.split('\n').next().unwrap_or_default());
        if pattern.is_some_and(|pattern| hosts::wildcard(pattern).is_ok_and(|fits| fits.is_match(name))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The names that `first_found` tries, in order, and whether a missing file is no error. `options`
/// are `files` and `paths` of the lookup.
pub fn searched_names(terms: &[Json], options: &(Vec<String>, Vec<String>)) -> (Vec<String>, bool) {
    let (files, paths) = options;
    let (mut names, mut skip) = (Vec::new(), false);
    if terms.is_empty() {
        add_paths(&split_words(files, &[',', ';']), paths, &mut names);
    }
    terms.iter().for_each(|term| add_names(term, paths, &mut names, &mut skip));
    (names, skip)
}

fn add_names(term: &Json, paths: &[String], names: &mut Vec<String>, skip: &mut bool) {
    match term {
        Json::String(text) => add_paths(std::slice::from_ref(text), paths, names),
        Json::Array(terms) => terms.iter().for_each(|term| add_names(term, paths, names, skip)),
        Json::Object(map) => {
            let words = |name: &str| -> Vec<String> {
                match map.get(name) {
                    Some(Json::String(text)) => vec![text.clone()],
                    Some(Json::Array(all)) => all.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
                    _ => Vec::new(),
                }
            };
            *skip |= map.get("skip").and_then(var_map::boolean).unwrap_or(false);
            add_paths(&split_words(&words("files"), &[',', ';']), &words("paths"), names);
        }
        _ => {}
    }
}

fn split_words(texts: &[String], separators: &[char]) -> Vec<String> {
    let words = texts.iter().flat_map(|text| text.split(separators)).map(|word| word.trim().to_owned());
    words.filter(|word| !word.is_empty()).collect()
}

fn add_paths(files: &[String], paths: &[String], names: &mut Vec<String>) {
    let paths = split_words(paths, &[',', ':', ';']);
    if paths.is_empty() {
        names.extend_from_slice(files);
    }
    for path in &paths {
        names.extend(files.iter().map(|file| format!("{}/{file}", path.trim_end_matches('/'))));
    }
}

pub(super) fn template(state: &State, names: &[Value], k: &Kwargs) -> Result<Vec<Value>, Error> {
    // These options have no effect in ansible-core 2.19 either.
    for name in ["convert_data", "jinja2_native"] {
        k.get::<Option<Value>>(name)?;
    }
    let own = match k.get::<Option<Value>>("template_vars")?.map(|own| expr::to_json(&own)).transpose()? {
        None => Map::new(),
        Some(Json::Object(own)) => own,
        Some(_) => return Err(failure("lookup template: `template_vars` takes a map")),
    };
    names.iter().map(|name| render(state, name, &own)).collect()
}

fn render(state: &State, name: &Value, own: &Map<String, Json>) -> FilterResult {
    let text = included_text(state, "template", name)?;
    let vars = state.lookup("vars").ok_or_else(|| failure("lookup template: there are no variables"))?;
    let vars = with_values(with_default(vars, "ansible_managed", "Ansible managed"), own);
    let depth = DEPTH.get();
    if depth >= DEPTH_MAX {
        return Err(failure(format!("lookup template: more than {DEPTH_MAX} nested templates")));
    }
    DEPTH.set(depth + 1);
    let out = expr::render_inside(state.env(), &text, vars);
    DEPTH.set(depth);
    out.map(Value::from)
}
