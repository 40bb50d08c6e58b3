//! `include_vars`: each variable file that a task could select becomes a layer, which is a map of
//! variables in the plan. The node selects the layer.

use super::include::CHOICES_MAX;
use super::task::is_literal;
use super::{Compiler, Context, HINT_ANSIBLE, Role, assets, lookup};
use crate::plan::{RepeatKind, Task};
use crate::vars::var_map;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const DIR_OPTIONS: [&str; 5] = ["depth", "files_matching", "ignore_files", "extensions", "ignore_unknown_extensions"];

impl Compiler<'_> {
    /// Adds the variable files that a task could select, each as a layer.
    pub(super) fn include_vars(&mut self, own: &Context, at: (u32, u32), task: &mut Task) {
        if task.args.get("hash_behaviour").is_some_and(|h| h != "replace") {
            self.fault_hint(
                &own.file,
                at,
                "`hash_behaviour` other than replace is not part of the language",
                HINT_ANSIBLE,
            );
        }
        if task.args.contains_key("dir") {
            return self.vars_dir(own, at, task);
        }
        let Some(name) = task.args.get("file").and_then(Value::as_str).map(str::to_owned) else {
            self.fault(&own.file, at, "include_vars needs `file` or `dir`");
            return;
        };
        if let Some(option) = DIR_OPTIONS.iter().find(|option| task.args.contains_key(**option)) {
            self.fault(&own.file, at, format!("`{option}` is only valid with `dir`"));
        }
        let dirs = self.search(own, "vars");
        let mut found = BTreeMap::new();
        if is_literal(&name) {
            found.extend(
                dirs.iter()
                    .filter_map(|dir| assets::join(dir, &name))
                    .find(|p| self.files.get(p).is_some())
                    .map(|p| (name.clone(), p)),
            );
        } else if let Some(repeat) = task.repeat.as_ref().filter(|repeat| !repeat.files.is_empty()) {
            found
                .extend(repeat.files.iter().filter(|path| self.shape(path).1).map(|path| (path.clone(), path.clone())));
        } else if let Some((RepeatKind::FirstFound, names, false)) = lookup::of_files(&name) {
            let paths = names.iter().filter_map(|name| self.first_of(&dirs, name));
            found.extend(paths.map(|path| (path.clone(), path)));
        } else {
            for dir in &dirs {
                let names = assets::matching_files(self.files, dir, &name);
                for (name, path) in names.into_iter().filter(|(_, path)| is_vars(path) && self.shape(path).1) {
                    found.entry(name).or_insert(path);
                }
                if !found.is_empty() {
                    break;
                }
            }
        }
        if found.is_empty() && task.repeat.as_ref().is_none_or(|repeat| repeat.dirs.is_empty())
            || found.len() > CHOICES_MAX
        {
            let message = match is_literal(&name) {
                true => format!("{name} is not in the fleet directory"),
                false => format!("`{name}` could refer to {} files, expected 1 to {CHOICES_MAX}", found.len()),
            };
            self.fault(&own.file, at, message);
            return;
        }
        let chosen = !is_literal(&name);
        for (name, path) in found {
            let layer = self.vars_layer(&path, (&own.file, at));
            if chosen {
                // Lookups and names that begin with `role_path` give the path of the file.
                task.files.vars_files.insert(self.playbook_path(&path), layer);
                task.files.vars_files.insert(path, layer);
            }
            task.files.vars_files.insert(name, layer);
        }
    }

    /// Makes one layer of all variable files in a directory.
    fn vars_dir(&mut self, own: &Context, at: (u32, u32), task: &mut Task) {
        let file = own.file.clone();
        let text = |name: &str| task.args.get(name).and_then(Value::as_str).map(str::to_owned);
        let known = DIR_OPTIONS.iter().chain(&["dir"]).all(|o| {
            let texts = task.args.get(*o).map(Value::to_string).unwrap_or_default();
            is_literal(&texts)
        });
        if !known || task.args.contains_key("file") {
            let what = if known { "`file` and `dir` exclude each other" } else { "include_vars takes a fixed `dir`" };
            self.fault(&file, at, what);
            return;
        }
        let name = text("dir").unwrap_or_default();
        let dir = match &own.role {
            Some(Role { dir, .. }) if name.split('/').next() == Some("vars") => assets::join(dir, &name),
            Some(Role { dir, .. }) => assets::join(&format!("{dir}/vars"), &name),
            None => assets::join(&assets::parent(&own.file), &name),
        };
        let pattern = |text: &str| regex::Regex::new(text).map_err(|e| format!("pattern `{text}`: {e}"));
        let words = |name: &str| -> Vec<String> {
            match task.args.get(name) {
                Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                Some(Value::String(text)) => text.split_whitespace().map(str::to_owned).collect(),
                _ => Vec::new(),
            }
        };
        let matching = text("files_matching").map(|text| pattern(&text)).transpose();
        let ignored: Result<Vec<_>, _> =
            words("ignore_files").iter().map(|text| pattern(&format!("{text}$"))).collect();
        let (matching, ignored) = match (matching, ignored) {
            (Ok(matching), Ok(ignored)) => (matching, ignored),
            (Err(e), _) | (_, Err(e)) => {
                self.fault(&file, at, e.lines().next().unwrap_or_default().to_owned());
                return;
            }
        };
        let extensions = match task.args.contains_key("extensions") {
            true => words("extensions"),
            false => ["yaml", "yml", "json"].map(str::to_owned).to_vec(),
        };
        let depth = task.args.get("depth").and_then(|d| d.as_u64().or_else(|| d.as_str()?.parse().ok())).unwrap_or(0);
        let lenient = task.args.get("ignore_unknown_extensions").is_some_and(|v| var_map::boolean(v) == Some(true));
        let files = self.files;
        let mut paths: Vec<(String, String)> = Vec::new();
        for path in dir.iter().flat_map(|dir| files.paths_below(dir)) {
            let root = dir.as_deref().unwrap_or_default();
            let rest = path[root.len()..].trim_start_matches('/');
            let base = rest.rsplit('/').next().unwrap_or_default();
            let level = rest.matches('/').count() as u64 + 1;
            let main = own.role.as_ref().is_some_and(|role| *path == format!("{}/vars/main.yml", role.dir));
            let taken = !main && (depth == 0 || level <= depth) && matching.as_ref().is_none_or(|m| m.is_match(base));
            if !taken || ignored.iter().any(|i| i.is_match(base)) {
                continue;
            }
            let known = base.rsplit_once('.').is_some_and(|(_, ext)| extensions.iter().any(|e| e == ext));
            if known {
                paths.push((assets::parent(path), path.to_owned()));
            } else if !lenient {
                let hint = format!("known are {}; or set `ignore_unknown_extensions: true`", extensions.join(", "));
                self.fault_hint(&file, at, format!("{path} has no known extension"), hint);
            }
        }
        if dir.as_ref().is_none_or(|dir| files.paths_below(dir).next().is_none()) {
            self.fault(&file, at, format!("directory {name} is not in the fleet directory"));
        }
        paths.sort();
        let mut all = Map::new();
        for (_, path) in paths {
            if let Some(node) = self.yaml(&path, (&file, at)) {
                all.extend(self.vars_of(&path, &node, true));
            }
        }
        self.parts.layers.push(all);
        task.args.retain(|option, _| option == "name");
        task.args.insert("file".into(), json!(name));
        task.files.vars_files.insert(name, (self.parts.layers.len() - 1) as u32);
    }

    /// Returns the index of the layer of a variable file. A file that is named several times has
    /// one layer.
    pub(super) fn vars_layer(&mut self, path: &str, from: (&str, (u32, u32))) -> u32 {
        if let Some(known) = self.parts.layer_of.get(path) {
            // The names of lookups may be others for another user of the file.
            let again = self.cache.lookups_of_vars.get(path).cloned().unwrap_or_default();
            self.parts.computed_lookups.extend(again);
            return *known;
        }
        let before = self.parts.computed_lookups.len();
        let vars = self.yaml(path, from).map(|node| self.vars_of(path, &node, true)).unwrap_or_default();
        self.cache.lookups_of_vars.insert(path.to_owned(), self.parts.computed_lookups[before..].to_vec());
        self.parts.layers.push(vars);
        let index = (self.parts.layers.len() - 1) as u32;
        self.parts.layer_of.insert(path.to_owned(), index);
        index
    }
}

/// Whether a path has the extension of a variable file.
pub(super) fn is_vars(path: &str) -> bool {
    [".yml", ".yaml", ".json"].iter().any(|ext| path.ends_with(ext))
}
