//! Checks lookups in templates. Files that they read are added to the plan, so that the node has
//! the same files as the manager.

use super::{Compiler, HINT_ANSIBLE, assets};
use crate::filters;
use crate::lang::hosts;
use crate::plan::RepeatKind;
use crate::template::expr;
use crate::template::lint::{self, Lookup};
use crate::vars::var_map;
use base64::Engine as _;
use remoor_model::did_you_mean;
use serde_json::{Map, Value, json};

/// Maximum size in bytes of a file that a lookup reads.
const FILE_MAX: usize = 1 << 20;

impl Compiler<'_> {
    /// Checks the lookups in a text of `file`, and adds the files that they read.
    pub(super) fn check_lookups(&mut self, file: &str, at: (u32, u32), text: &str) {
        for lookup in lint::lookups(text) {
            let name = filters::short_name(&lookup.name);
            if matches!(name, "file" | "template") {
                self.take_along(file, at, name, &lookup);
            } else if matches!(name, "fileglob" | "first_found") {
                self.find_along(file, at, name, &lookup);
            } else if !filters::LOOKUPS.iter().any(|(own, _)| *own == name) {
                let refused = filters::LOOKUPS_REFUSED.iter().any(|(own, _)| *own == name);
                let near = did_you_mean(name, filters::LOOKUPS.iter().map(|(own, _)| *own)).filter(|_| !refused);
                let hint = near.unwrap_or_else(|| HINT_ANSIBLE.to_owned());
                self.fault_hint(file, at, format!("lookup `{}` is not part of the language", lookup.name), hint);
            }
        }
    }

    fn take_along(&mut self, file: &str, at: (u32, u32), kind: &str, lookup: &Lookup) {
        let Some(names) = lookup.terms.as_ref().filter(|names| !names.is_empty()) else {
            let message =
                format!("lookup `{kind}` takes only literal names, because the node has only the files that are named");
            return self.fault_hint(file, at, message, HINT_ANSIBLE);
        };
        for name in names {
            if name.starts_with('/') || var_map::has_markup(name) {
                let message = format!("lookup `{kind}`: `{name}` is not a file of the fleet directory");
                self.fault_hint(file, at, message, HINT_ANSIBLE);
                continue;
            }
            let mut dirs = self.lookup_dirs(file, if kind == "template" { "templates" } else { "files" });
            let Some(path) = self.first_of(&dirs, name) else {
                dirs.retain(|dir| !dir.is_empty() && !dir.starts_with('/'));
                let fault = self.fault(file, at, format!("`{name}` is not in the fleet directory"));
                fault.hint = Some(format!("looked in {}", dirs.join(", ")));
                continue;
            };
            let content = self.content(&path).unwrap_or_default();
            if content.len() > FILE_MAX {
                self.fault(file, at, format!("lookup `{kind}`: {path} is larger than {FILE_MAX} bytes"));
                continue;
            }
            let Ok(text) = std::str::from_utf8(&content).map(str::to_owned) else {
                self.fault(file, at, format!("lookup `{kind}`: {path} is not UTF-8 text"));
                continue;
            };
            if kind == "template" {
                self.check_once(&path, |compiler| {
                    if let Err(e) = expr::check_template(&text) {
                        compiler.template_fault(&path, expr::place_of(&e, &text), &e);
                    }
                    compiler.check_lookups(&path, (0, 0), &text);
                });
            }
            let key = format!("{kind} {name}");
            let value = json!({"path": path, "content": base64::engine::general_purpose::STANDARD.encode(&text)});
            self.add_lookup_file(file, at, &key, value);
        }
    }

    /// Calls `read`, and returns what its lookups found. The plan does not contain these files yet.
    pub(super) fn collect_lookup_files<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> (T, Map<String, Value>) {
        let before = std::mem::take(&mut self.parts.lookup_files);
        let out = read(self);
        let found = std::mem::replace(&mut self.parts.lookup_files, before);
        if !found.is_empty() {
            // A later check of the same template must find the lookups of the template again.
            self.cache.checked.clear();
        }
        (out, found)
    }

    /// Adds what a lookup found: a file, or the paths of files. `key` is the kind of the lookup and
    /// its term.
    pub(super) fn add_lookup_file(&mut self, file: &str, at: (u32, u32), key: &str, value: Value) {
        let Some(before) = self.parts.lookup_files.get(key).filter(|before| **before != value) else {
            self.parts.lookup_files.insert(key.to_owned(), value);
            return;
        };
        let (kind, name) = key.split_once(' ').unwrap_or_default();
        match before.get("path").zip(value.get("path")) {
            Some((before, path)) => {
                let (before, path) = (before.as_str().unwrap_or_default(), path.as_str().unwrap_or_default());
                let message = format!("lookup `{kind}`: `{name}` refers to two files: {path} and {before}");
                self.fault_hint(file, at, message, "rename one of the files");
            }
            None => {
                let message = format!("lookup `{kind}`: `{name}` finds other files here than in another place");
                self.fault_hint(file, at, message, "rename some of the files");
            }
        }
    }

    /// The directories that a lookup in `file` searches, in order of preference.
    fn lookup_dirs(&self, file: &str, sub: &str) -> Vec<String> {
        let mut dirs = Vec::new();
        if let Some(role) = role_of(file) {
            dirs.extend([format!("{role}/{sub}"), role]);
        }
        let own = assets::parent(file);
        dirs.extend([
            format!("{own}/{sub}"),
            own,
            format!("{}/{sub}", self.current_play.base),
            self.current_play.base.clone(),
        ]);
        dirs
    }

    /// Records the files that a lookup finds for each of its patterns or names, by their paths in
    /// the fleet directory.
    fn find_along(&mut self, file: &str, at: (u32, u32), kind: &str, lookup: &Lookup) {
        let terms = lookup.terms.as_ref().filter(|terms| !terms.iter().any(|term| var_map::has_markup(term)));
        let Some(terms) = terms.filter(|terms| !terms.is_empty()) else {
            let what = if kind == "fileglob" { "patterns" } else { "names" };
            let message = format!(
                "lookup `{kind}` takes only literal {what}, because the node has only the files that are named"
            );
            return self.fault_hint(file, at, message, format!("loop with `with_{kind}`, or {HINT_ANSIBLE}"));
        };
        let dirs = self.lookup_dirs(file, "files");
        for term in terms {
            if term.starts_with('/') {
                let message = format!("lookup `{kind}`: `{term}` is outside the fleet directory");
                self.fault_hint(file, at, message, HINT_ANSIBLE);
                continue;
            }
            let found = match kind {
                "fileglob" => self.glob_files(&dirs, term),
                _ => Ok(self.first_of(&dirs, term).into_iter().collect()),
            };
            let found = match found {
                Ok(found) => json!(found),
                Err(message) => {
                    self.fault(file, at, format!("lookup `{kind}`: {message}"));
                    continue;
                }
            };
            self.add_lookup_file(file, at, &format!("{kind} {term}"), found);
        }
    }

    /// The files that match a pattern, sorted by path. Only the first of `dirs` that contains such
    /// files is used.
    fn glob_files(&self, dirs: &[String], pattern: &str) -> Result<Vec<String>, String> {
        let (folder, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let fits = hosts::wildcard(name)?;
        for dir in dirs.iter().filter_map(|dir| assets::join(dir, folder)) {
            let base = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
            let here =
                self.files.paths_below(&dir).filter(|path| assets::parent(path) == dir && fits.is_match(&base(path)));
            let found: Vec<String> = here.map(str::to_owned).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// The file of this name in the first directory that has it.
    pub(super) fn first_of(&self, dirs: &[String], name: &str) -> Option<String> {
        dirs.iter().filter_map(|dir| assets::join(dir, name)).find(|path| self.files.get(path).is_some())
    }

    /// The extra variables, including the files that lookups read.
    pub(super) fn extra(&self) -> Map<String, Value> {
        let mut extra = self.options.extra_vars.clone();
        if !self.parts.lookup_files.is_empty() {
            extra.insert(filters::LOOKUP_FILES.to_owned(), Value::Object(self.parts.lookup_files.clone()));
        }
        extra
    }
}

/// Parses a text that is a single lookup of files with literal names. Returns the kind of the
/// lookup, the names, and whether the lookup gives a list.
pub(super) fn of_files(text: &str) -> Option<(RepeatKind, Vec<String>, bool)> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    let (call, rest) = inner.split_once('(')?;
    let whole = rest.find(')').is_some_and(|at| at + 1 == rest.len());
    let wants = rest.contains("wantlist");
    let [one] = <[Lookup; 1]>::try_from(lint::lookups(text)).ok()?;
    let kind = match one.name.trim_start_matches("ansible.builtin.") {
        "fileglob" => RepeatKind::FileGlob,
        "first_found" => RepeatKind::FirstFound,
        _ => return None,
    };
    let other_options = rest.contains('=') && !wants;
    (whole && !other_options).then_some((kind, one.terms?, wants || call.trim() != "lookup"))
}

/// The text files that lookups read from the fleet directory.
pub(super) fn texts(extra: &Map<String, Value>) -> Vec<String> {
    let given = extra.get(filters::LOOKUP_FILES).and_then(Value::as_object).into_iter().flat_map(Map::values);
    let content = given.filter_map(|file| file.get("content")?.as_str());
    let decoded = content.filter_map(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    decoded.filter_map(|bytes| String::from_utf8(bytes).ok()).collect()
}

/// The directory of the role that a file belongs to.
fn role_of(file: &str) -> Option<String> {
    let parts: Vec<&str> = file.split('/').collect();
    let at = parts.iter().rposition(|part| *part == "roles")?;
    (parts.len() > at + 2).then(|| parts[..at + 2].join("/"))
}

#[cfg(test)]
mod tests {
    use crate::{CompileOptions, HostContext, compile, review};
    use remoor_model::FileSet;
    use serde_json::{Map, Value, json};

    /// The content of the file that a `copy` task with `content: text` would write, or the error.
    fn rendered_content(text: &str) -> String {
        let tasks = format!("- copy: {{dest: /c, content: \"{text}\"}}\n");
        let files = [
            ("site.yml", "- hosts: all\n  vars: {name: web}\n  roles: [r]\n"),
            ("roles/r/tasks/main.yml", tasks.as_str()),
            ("roles/r/files/plain.txt", "{{ not rendered }}\n\n"),
            ("roles/r/templates/part.j2", "{{ name | upper }}\n{{ lookup('file', 'plain.txt') }}\n"),
            ("roles/r/templates/loop.j2", "{{ lookup('template', 'loop.j2') }}"),
            ("top.txt", "top"),
        ];
        let files = FileSet(files.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec())).into());
        let Value::Object(vars) = json!({"inventory_hostname": "h"}) else { panic!() };
        let host = HostContext { name: "h".into(), group: "all".into(), vars, ..HostContext::default() };
        let told =
            |faults: Vec<remoor_model::Fault>| faults.iter().map(|f| f.message.clone()).collect::<Vec<_>>().join("; ");
        match compile(&files, "site.yml", &host, &CompileOptions::default()) {
            Err(faults) => told(faults),
            Ok(compiled) => {
                let (files, faults) = review(&compiled.plan, &Map::new(), &files, &[]);
                files.get("/c").map_or_else(|| told(faults), |f| String::from_utf8_lossy(&f.content).into_owned())
            }
        }
    }

    #[test]
    fn files_are_taken_along() {
        for (text, want) in [
            ("{{ lookup('file', 'plain.txt') }}", "{{ not rendered }}"),
            ("{{ lookup('file', 'plain.txt', rstrip=false) }}", "{{ not rendered }}\n\n"),
            ("{{ lookup('template', 'part.j2') }}", "WEB\n{{ not rendered }}\n"),
            ("{{ query('file', 'plain.txt', 'top.txt') | join('+') }}", "{{ not rendered }}+top"),
            ("{{ query('fileglob', '*.txt') | join('+') }}", "roles/r/files/plain.txt"),
            (
                "{{ lookup('fileglob', 'none*', '../templates/*.j2') }}",
                "roles/r/templates/loop.j2,roles/r/templates/part.j2",
            ),
            ("{{ lookup('first_found', ['none', 'plain.txt']) | basename }}", "plain.txt"),
            ("{{ query('first_found', 'none', skip=true) | length }}", "0"),
        ] {
            assert_eq!(rendered_content(text), want, "{text}");
        }
        for (text, want) in [
            ("{{ lookup('file', 'gone.txt') }}", "`gone.txt` is not in the fleet directory"),
            ("{{ lookup('file', '/etc/hosts') }}", "is not a file of the fleet directory"),
            ("{{ lookup('file', name) }}", "takes only literal names"),
            ("{{ lookup('flie', 'x') }}", "lookup `flie` is not part of the language"),
            ("{{ query('fileglob', name ~ '*') }}", "takes only literal patterns"),
            ("{{ query('fileglob', '/etc/*') }}", "is outside the fleet directory"),
            ("{{ lookup('first_found', ['none', 'gone']) }}", "none of the files exists"),
            ("{{ lookup('template', 'loop.j2') }}", "more than 10 nested templates"),
        ] {
            let got = rendered_content(text);
            assert!(got.contains(want), "{text}\nwant {want}\ngot  {got}");
        }
    }
}
