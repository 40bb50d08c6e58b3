//! Finds the files that tasks name and puts them into the plan.

use super::{Compiler, Context, lookup, wildcard};
use crate::lang::hosts::LOCAL;
use crate::plan::{Asset, Blob, RepeatKind, Task, is_private_name};
use crate::template::{dialect, expr, lint, tera_text};
use crate::vars::var_map;
use crate::vars::variable_scope::OMIT;
use remoor_model::{Fault, FileSet, Sha256};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of files that one file name with markup may match.
const MATCHES_MAX: usize = 500;
/// Maximum size in bytes of all files of one plan.
pub(super) const BLOBS_MAX: usize = 64 << 20;

/// The directory of a path, or an empty text for a path at the top level.
pub(super) fn parent(path: &str) -> String {
    path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_owned())
}

/// Resolves `name` relative to `dir`. None if it is absolute or leaves the fleet directory.
pub fn join(dir: &str, name: &str) -> Option<String> {
    if name.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|p| !matches!(*p, "" | ".")).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Files below `dir` that a name with markup could match, each as a pair: its name as the task
/// would write it, and its path. In the whole fleet directory, `*` matches no private name: the
/// plan goes to a host, and must not contain passwords or the variables of other hosts.
pub(super) fn matching_files(files: &FileSet, dir: &str, name: &str) -> Vec<(String, String)> {
    let inner = name.trim_start_matches("../");
    let ups = &name[..name.len() - inner.len()];
    let Some(dir) = join(dir, ups) else { return Vec::new() };
    let pattern = join("", &stars(inner)).unwrap_or_default();
    files
        .paths_below(&dir)
        .filter_map(|path| {
            let rest = if dir.is_empty() { path } else { &path[dir.len() + 1..] };
            let is_meant =
                |part: &str| !dir.is_empty() || !is_private_name(part) || pattern.split('/').any(|own| own == part);
            let matches = wildcard(&pattern, rest) && rest.split('/').all(is_meant);
            matches.then(|| (format!("{ups}{rest}"), path.to_owned()))
        })
        .collect()
}

/// Replaces each `{{ }}` and `{% %}` by `*`.
fn stars(name: &str) -> String {
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find('{') {
        let close = match rest.as_bytes().get(at + 1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            _ => {
                out.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            }
        };
        out.push_str(&rest[..at]);
        out.push('*');
        rest = rest[at..].find(close).map_or("", |end| &rest[at + end + 2..]);
    }
    out.push_str(rest);
    out
}

/// The subdirectory of a role for the files that a module uses.
pub fn subdir(module: &str) -> &'static str {
    match module {
        "template" => "templates",
        "include_vars" => "vars",
        "include_tasks" => "tasks",
        _ => "files",
    }
}

/// The file that a task copies, renders or runs.
fn src_of(task: &Task) -> Option<String> {
    let named = task.args.get("src").and_then(Value::as_str);
    let script = || task.args.get("words")?.get(0)?.get(0)?.as_str();
    named.or_else(script).map(str::to_owned)
}

impl Compiler<'_> {
    /// Directories in which a file of a task is searched, in order of preference.
    pub(super) fn search(&self, own: &Context, sub: &str) -> Vec<String> {
        let mut dirs = Vec::new();
        if let Some(role) = &own.role {
            dirs.extend([format!("{}/{sub}", role.dir), role.dir.clone()]);
        }
        dirs.extend([join(&parent(&own.file), sub).unwrap_or_default(), parent(&own.file)]);
        dirs.extend([
            join(&self.current_play.base, sub).unwrap_or_default(),
            self.current_play.base.clone(),
            sub.to_owned(),
            String::new(),
        ]);
        dirs
    }

    /// The path that playbooks use for a file of the fleet directory. It is absolute if `root` is
    /// set.
    pub(super) fn playbook_path(&self, path: &str) -> String {
        match (self.options.root.trim_end_matches('/'), path) {
            ("", path) => path.to_owned(),
            (root, "") => root.to_owned(),
            (root, path) => format!("{root}/{path}"),
        }
    }

    /// Converts an absolute path in a playbook to a path in the fleet directory; the inverse of
    /// `playbook_path`.
    pub(super) fn strip_root<'t>(&self, name: &'t str) -> &'t str {
        let root = self.options.root.trim_end_matches('/');
        let rest = name.strip_prefix(root).and_then(|rest| rest.strip_prefix('/')).filter(|_| !root.is_empty());
        rest.unwrap_or(name)
    }

    /// The absolute path of a file or directory that a relative name without markup means. None: it
    /// is not in the fleet directory.
    pub(super) fn existing_path(&self, own: &Context, name: &str) -> Option<String> {
        if name.starts_with(['/', '~']) || name.contains(':') || var_map::has_markup(name) {
            return None;
        }
        let exists = |path: &String| self.files.get(path).is_some() || self.files.paths_below(path).next().is_some();
        let found = self.search(own, "files").iter().filter_map(|dir| join(dir, name)).find(exists)?;
        let slash = if name.ends_with('/') { "/" } else { "" };
        Some(format!("{}{slash}", self.playbook_path(&found)))
    }

    /// Converts a name that begins with `{{ playbook_dir }}/` or `{{ role_path }}/` to a path in
    /// the fleet directory.
    pub(super) fn fleet_path(&self, own: &Context, name: &str) -> Option<String> {
        let (inner, rest) = name.trim_start().strip_prefix("{{")?.split_once("}}")?;
        let dir = match inner.trim() {
            "playbook_dir" => self.current_play.base.as_str(),
            "role_path" => own.role.as_ref()?.dir.as_str(),
            _ => return None,
        };
        let rest = rest.strip_prefix('/')?;
        Some(if dir.is_empty() { rest.to_owned() } else { format!("{dir}/{rest}") })
    }

    /// Like `fleet_path`, for all texts in a value.
    pub(super) fn fleet_paths(&self, own: &Context, value: &Value) -> Value {
        match value {
            Value::String(text) => json!(self.fleet_path(own, text).unwrap_or_else(|| text.clone())),
            Value::Array(items) => items.iter().map(|item| self.fleet_paths(own, item)).collect(),
            Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), self.fleet_paths(own, v))).collect(),
            other => other.clone(),
        }
    }

    /// Adds to the plan the files that `src` may name.
    pub(super) fn attach(&mut self, own: &Context, at: (u32, u32), task: &mut Task) {
        if !matches!(task.module.as_str(), "assemble" | "template" | "copy" | "script" | "unarchive" | "uri") {
            return;
        }
        let says = |option: &str| task.args.get(option).and_then(var_map::boolean);
        let remote = says("remote_src").unwrap_or(task.module == "assemble")
            || task.module == "unarchive" && says("copy") == Some(false);
        let Some(src) = src_of(task) else { return };
        if remote {
            return;
        }
        let dirs = self.search(own, subdir(&task.module));
        // The source of `assemble` is a directory, of which all files may be needed.
        let src = match task.module.as_str() {
            "assemble" if var_map::has_markup(&src) => format!("{}/*", src.trim_end_matches('/')),
            _ => src,
        };
        let mut found = match lookup::of_files(&src) {
            Some((RepeatKind::FirstFound, names, false)) => {
                let paths = names.iter().filter_map(|name| self.first_of(&dirs, name));
                paths.map(|path| (path.clone(), path)).collect()
            }
            _ => self.find(&dirs, &src),
        };
        self.add_other_directories(own, (task.module.as_str(), &src), &dirs, &mut found);
        if found.is_empty() && matches!(task.module.as_str(), "assemble" | "copy") && !var_map::has_markup(&src) {
            found = self.find_below(&dirs, &src);
        }
        if let Some(repeat) = task.repeat.as_ref().filter(|_| var_map::has_markup(&src)) {
            found.extend(repeat.files.iter().map(|path| (path.clone(), path.clone())));
        }
        let on_controller = |to: &str| LOCAL.contains(&to) && src.starts_with('/');
        if found.is_empty() && task.hosts.delegation.as_ref().is_some_and(|delegation| on_controller(&delegation.to)) {
            // The task runs on the controller, so it reads the file where the file is.
            if matches!(task.module.as_str(), "copy" | "unarchive") {
                task.args.insert("remote_src".to_owned(), json!(true));
                return;
            }
        }
        if task.hosts.delegation.is_none() {
            task.files.on_controller = self.names_on_controller(own, &src, task, found.is_empty());
            if found.is_empty() && !task.files.on_controller.is_empty() {
                return;
            }
        }
        if found.is_empty() {
            let seen: BTreeSet<&String> = dirs.iter().filter(|d| !d.is_empty()).collect();
            let seen: Vec<&str> = seen.into_iter().map(String::as_str).collect();
            let fault = self.fault(&own.file, at, format!("`{src}` is not in the fleet directory"));
            fault.hint = Some(format!("looked in {}", seen.join(", ")));
            return;
        }
        if found.len() > MATCHES_MAX {
            self.fault(
                &own.file,
                at,
                format!("`{src}` could match {} files, but the maximum is {MATCHES_MAX}", found.len()),
            );
            return;
        }
        let options = if task.module == "template" { self.known_delimiters(own, at, task) } else { Map::new() };
        let preserved = task.args.get("mode").and_then(Value::as_str) == Some("preserve");
        let keeps_encrypted = says("decrypt") == Some(false);
        // A loop takes all of its files. Without a loop, a run selects one of several files.
        let (several, mut left_out) = (found.len() > 1 && task.repeat.is_none(), Vec::new());
        for (name, path) in found {
            if task.module == "template" {
                let before = self.diagnostics.faults.len();
                self.template((&path, false), &dirs, (&own.file, at), &options, &mut task.files.parts);
                if several && self.diagnostics.faults.len() > before {
                    left_out.push(self.diagnostics.faults.split_off(before));
                    continue;
                }
            }
            let asset = match keeps_encrypted {
                true => self.asset_of(&path, self.files.get(&path).unwrap_or_default().to_vec(), &own.file, at),
                false => self.asset(&path, &own.file, at),
            };
            if preserved && asset.mode.is_none() {
                let message = format!(
                    "`mode: preserve`: the mode of {path} is not known, because a fleet does not store file modes"
                );
                self.fault(&own.file, at, message).hint = Some("set the mode explicitly".into());
            }
            if var_map::has_markup(&src) {
                // Lookups and names that begin with `role_path` give the path of the file.
                task.files.assets.insert(self.playbook_path(&path), asset.clone());
                task.files.assets.insert(path.clone(), asset.clone());
            }
            task.files.assets.insert(name, asset);
        }
        match left_out.first() {
            Some(faults) if task.files.assets.is_empty() => self.diagnostics.faults.extend(faults.iter().cloned()),
            _ => self.diagnostics.warnings.extend(left_out.into_iter().flatten().map(|fault| {
                let message = format!("a task that selects this template fails: {}", fault.message);
                Fault { warning: true, message, ..fault }
            })),
        }
    }

    /// The delimiters that a `template` task sets for its file.
    fn known_delimiters(&mut self, own: &Context, at: (u32, u32), task: &Task) -> Map<String, Value> {
        let mut out = Map::new();
        for name in dialect::delimiter_options() {
            let Some(value) = task.args.get(name) else { continue };
            match expr::render_json(&self.known_scope(own), value) {
                Ok(value) if value == OMIT => {}
                Ok(value) => drop(out.insert(name.to_owned(), value)),
                Err(e) => {
                    let message = format!("`{name}` must be known before the run: {}", expr::explain(&e));
                    self.fault(&own.file, at, message);
                }
            }
        }
        out
    }

    /// Finds the files below the directory that `src` names. Each key is the path of a file,
    /// beginning as in `src`; the value is its path in the fleet directory.
    fn find_below(&self, dirs: &[String], src: &str) -> BTreeMap<String, String> {
        let plain = src.trim_end_matches('/');
        let plain = plain.strip_prefix("./").unwrap_or(plain);
        let found = dirs.iter().filter_map(|dir| join(dir, plain)).filter(|dir| !dir.is_empty()).map(|dir| {
            let named = |path: &str| (format!("{plain}{}", &path[dir.len()..]), path.to_owned());
            self.files.paths_below(&dir).map(named).collect::<BTreeMap<_, _>>()
        });
        found.into_iter().find(|files| !files.is_empty()).unwrap_or_default()
    }

    fn find(&self, dirs: &[String], src: &str) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for dir in dirs {
            if var_map::has_markup(src) {
                for (name, path) in matching_files(self.files, dir, src) {
                    out.entry(name).or_insert(path);
                }
                // The first directory with a match ends the search. The last directory is the whole
                // fleet directory, in which a bare `{{ src }}` would match every file.
                if !out.is_empty() {
                    return out;
                }
            } else if let Some(path) = join(dir, src).filter(|path| self.files.get(path).is_some()) {
                return BTreeMap::from([(src.to_owned(), path)]);
            }
        }
        out
    }

    /// Adds files of later directories for a computed `src`: the file that the known variables
    /// name, and for templates all matches.
    fn add_other_directories(
        &self,
        own: &Context,
        (module, src): (&str, &str),
        dirs: &[String],
        found: &mut BTreeMap<String, String>,
    ) {
        if !var_map::has_markup(src) {
            return;
        }
        if let Ok(name) = expr::render_text(&self.known_scope(own), src) {
            let name = self.strip_root(&name).to_owned();
            for (name, path) in self.find(dirs, &name) {
                found.entry(name).or_insert(path);
            }
        }
        let sub = subdir(module);
        // Files may be large, so the plan contains only those of the first directory.
        for dir in dirs.iter().filter(|dir| sub == "templates" && dir.ends_with(sub)) {
            let more = matching_files(self.files, dir, src);
            if found.len() + more.len() > MATCHES_MAX {
                return;
            }
            for (name, path) in more {
                found.entry(name).or_insert(path);
            }
        }
    }

    fn asset(&mut self, path: &str, file: &str, at: (u32, u32)) -> Asset {
        let content = self.content(path).unwrap_or_default().into_owned();
        self.asset_of(path, content, file, at)
    }

    fn asset_of(&mut self, path: &str, content: Vec<u8>, file: &str, at: (u32, u32)) -> Asset {
        let sha256 = Sha256::digest(&content).to_string();
        if !self.parts.blobs.contains_key(&sha256) {
            let total: usize = self.parts.blobs.values().map(|b| b.0.len()).sum();
            if total + content.len() > BLOBS_MAX {
                self.limit_fault(file, at, format!("the files of this plan exceed {BLOBS_MAX} bytes with {path}"));
            }
            self.parts.blobs.insert(sha256.clone(), Blob(content));
        }
        Asset { path: path.to_owned(), sha256, mode: self.options.modes.and_then(|modes| modes.get(path).copied()) }
    }

    /// Checks a template, and adds the templates that it includes.
    fn template(
        &mut self,
        (path, is_part): (&str, bool),
        dirs: &[String],
        from: (&str, (u32, u32)),
        options: &Map<String, Value>,
        parts: &mut BTreeMap<String, Asset>,
    ) {
        let content = self.content(path).unwrap_or_default().into_owned();
        let Ok(content) = String::from_utf8(content) else {
            self.fault(path, (0, 0), "a template must be UTF-8");
            return;
        };
        if path.ends_with(".tera") {
            self.check_once(path, |compiler| {
                if let Err((line, column, message)) = tera_text::check(&content) {
                    let hint = tera_text::named_arguments(&content, line, column);
                    let fault = compiler.fault(path, (line, column), message);
                    fault.hint = fault.hint.take().or(hint);
                }
            });
            return;
        }
        let dialect = match dialect::read(&content, options, is_part) {
            Ok(dialect) => dialect,
            Err(message) => {
                self.fault(path, (1, 1), message);
                return;
            }
        };
        let text = &*dialect.text;
        // Another task may read the same file with other delimiters.
        let key = if text == content { path.to_owned() } else { format!("{path}\n{text}") };
        self.check_once(&key, |compiler| {
            if let Err(e) = compiler.check_template(text) {
                compiler.template_fault(path, expr::place_of(&e, text, &compiler.parts.plugin_uses), &e);
                compiler.ask_about_syntax(&e, text);
            }
            compiler.check_fixed_lookups(path, (0, 0), text);
        });
        self.note_computed_lookups(path, from.1, text);
        for (name, needed) in lint::includes(text) {
            if parts.contains_key(&name) {
                continue;
            }
            let mut near = vec![parent(path)];
            near.extend(dirs.iter().cloned());
            let found = self.find(&near, &name);
            if found.is_empty() && needed {
                self.fault(path, (0, 0), format!("it includes `{name}`, which is not in the fleet directory"));
            }
            // A name with a computed part may be the name of several files.
            for (name, inner) in found {
                if parts.contains_key(&name) {
                    continue;
                }
                let asset = self.asset(&inner, from.0, from.1);
                parts.insert(name, asset);
                self.template((&inner, true), dirs, from, &dialect.options, parts);
            }
        }
    }
}
