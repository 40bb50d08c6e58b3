//! Loops: `loop`, the `with_` family and `loop_control`. The node evaluates the items. For loops
//! over files, the compiler determines the files that could be found.

use super::{Compiler, Context, HINT_ANSIBLE, assets, lookup};
use crate::lang::hosts::InventoryNames;
use crate::lang::yaml::{SpannedData, SpannedKey, SpannedNode};
use crate::plan::{Repeat, RepeatKind, Task};
use crate::vars::var_map::{self, SharedVar};
use remoor_model::did_you_mean;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Maximum number of files that one loop may select from.
const FILES_MAX: usize = 500;

/// The kind of loop of a keyword; None: it is not a supported loop.
pub(super) fn kind(key: &str) -> Option<RepeatKind> {
    Some(match short_key(key).as_str() {
        // The compiler replaces the items of the last two, see `lookup_items`.
        "loop" | "with_list" | "with_file" | "with_inventory_hostnames" => RepeatKind::Loop,
        "with_items" => RepeatKind::Items,
        "with_dict" => RepeatKind::Dict,
        "with_together" => RepeatKind::Together,
        "with_nested" | "with_cartesian" => RepeatKind::Nested,
        "with_sequence" => RepeatKind::Sequence,
        "with_subelements" => RepeatKind::Subelements,
        "with_indexed_items" => RepeatKind::Indexed,
        "with_flattened" => RepeatKind::Flattened,
        "with_fileglob" => RepeatKind::FileGlob,
        "with_first_found" => RepeatKind::FirstFound,
        "with_csvfile" | "with_ini" | "with_lines" | "with_password" | "with_random_choice" | "with_url" => {
            RepeatKind::Lookup
        }
        // A lookup plugin of a collection, such as `with_community.general.filetree`.
        plugin if plugin.starts_with("with_") && plugin.split('.').count() > 2 => RepeatKind::Lookup,
        "with_filetree" => RepeatKind::Lookup,
        _ => return None,
    })
}

/// The keyword of a loop without the collection of its lookup.
fn short_key(key: &str) -> String {
    let short = key.strip_prefix("with_").and_then(|name| {
        let built_in = name.strip_prefix("ansible.builtin.").or_else(|| name.strip_prefix("ansible.legacy."));
        built_in.or_else(|| name.strip_prefix("community.general.").filter(|name| *name == "flattened"))
    });
    short.map_or_else(|| key.to_owned(), |name| format!("with_{name}"))
}

impl Compiler<'_> {
    /// Reads the loop of a task with its `loop_control`.
    pub(super) fn repeat(&mut self, pairs: &[(SpannedKey, SpannedNode)], context: &Context, task: &mut Task) {
        let file = context.file.as_str();
        for (key, value) in pairs {
            let Some(kind) = kind(&key.text) else { continue };
            if task.repeat.is_some() {
                self.fault(file, (key.line, key.column), "a task can have only one loop");
            }
            task.repeat = Some(self.items(context, &key.text, kind, value, &task.module));
        }
        if let Some((key, control)) = pairs.iter().find(|(key, _)| key.text == "loop_control") {
            match &mut task.repeat {
                Some(repeat) => self.loop_control(file, control, repeat),
                None => self.warn(
                    file,
                    (key.line, key.column),
                    "`loop_control` without a loop has no effect",
                    "remove it, or add a loop",
                ),
            }
        }
    }

    fn items(&mut self, context: &Context, key: &str, kind: RepeatKind, value: &SpannedNode, module: &str) -> Repeat {
        let file = context.file.as_str();
        let at = (value.line, value.column);
        if let Some(items) = self.lookup_items(context, key, value) {
            return Repeat { kind, items, ..Repeat::default() };
        }
        let mut items = value.json();
        let named =
            matches!(kind, RepeatKind::Sequence | RepeatKind::FileGlob | RepeatKind::FirstFound | RepeatKind::Lookup);
        match &value.data {
            SpannedData::Text(text) if super::is_name(text) && key.starts_with("with_") && !named => {
                let hint = format!("write \"{{{{ {text} }}}}\"");
                self.warn(file, at, format!("bare `{text}` is read as a variable"), hint);
                items = Value::String(format!("{{{{ {text} }}}}"));
            }
            SpannedData::Text(text) if !var_map::has_markup(text) && kind == RepeatKind::Loop => {
                self.fault(file, at, format!("`{key}` takes a list")).hint =
                    Some(format!("write \"{{{{ {text} }}}}\" for a variable"));
            }
            _ => {}
        }
        self.check_markup(file, value);
        if kind == RepeatKind::Lookup {
            let name = short_key(key).trim_start_matches("with_").to_owned();
            self.check_lookup_name(file, at, &name);
            return Repeat { kind, items: json!({"lookup": name, "terms": items}), ..Repeat::default() };
        }
        let looked_up = items.as_str().filter(|_| matches!(kind, RepeatKind::Loop | RepeatKind::Items));
        let (kind, items) = match looked_up.and_then(lookup::of_files) {
            Some((kind, terms, true)) => (kind, json!(terms)),
            _ => (kind, items),
        };
        let mut out = Repeat { kind, items, ..Repeat::default() };
        if matches!(kind, RepeatKind::FileGlob | RepeatKind::FirstFound) {
            out.items = self.fleet_paths(context, &out.items);
            out.dirs = self.search(context, assets::subdir(module));
            let mut names = BTreeSet::new();
            let terms = self.fleet_paths(context, &self.resolve_known(&out.items, context));
            patterns(&terms, &mut names);
            let mut files = BTreeSet::new();
            for name in names {
                let open = name.trim_start_matches(['{', ' ']).is_empty() || is_single_markup(&name);
                let leads = name.trim_start().starts_with('{');
                for dir in &out.dirs {
                    let top = dir.is_empty() || *dir == self.current_play.base;
                    let found = assets::matching_files(self.files, dir, &name).into_iter();
                    let meant = found.filter(|(name, _)| !top || !(open || leads && is_of_others(name)));
                    files.extend(meant.map(|(_, path)| path));
                }
                files.extend(self.files.get(&name).map(|_| name.clone()));
            }
            if files.len() > FILES_MAX {
                let message = format!("`{key}` could refer to {} files, but the maximum is {FILES_MAX}", files.len());
                self.fault(file, at, message);
                files.clear();
            }
            out.files = files.into_iter().collect();
        }
        out
    }

    /// The items of a loop whose terms must be known before the run: the texts of files, and the
    /// hosts that patterns select. None: it is another loop.
    fn lookup_items(&mut self, context: &Context, key: &str, value: &SpannedNode) -> Option<Value> {
        let (file, at) = (context.file.as_str(), (value.line, value.column));
        match short_key(key).as_str() {
            "with_file" => {
                let names = self.known_texts(file, key, value, context);
                let mut lookups = Vec::new();
                for name in &names {
                    // Quotes in a text of an expression can't be escaped.
                    let name = self.strip_root(name);
                    match (name.contains('\''), name.contains('"')) {
                        (false, _) => lookups.push(format!("{{{{ lookup('file', '{name}') }}}}")),
                        (true, false) => lookups.push(format!("{{{{ lookup('file', \"{name}\") }}}}")),
                        (true, true) => {
                            self.fault(file, at, format!("`{key}`: `{name}` contains both kinds of quotes"));
                        }
                    }
                }
                lookups.iter().for_each(|lookup| self.check_lookups(file, at, lookup));
                Some(json!(lookups))
            }
            "with_inventory_hostnames" => {
                let patterns = self.known_texts(file, key, value, context);
                // As in Ansible, `--limit` does not limit these hosts.
                let names = InventoryNames { limit: None, ..self.known_hosts().into_owned() };
                match names.select(&patterns) {
                    Ok(selected) => Some(json!(selected.hosts)),
                    Err(message) => {
                        self.fault(file, at, format!("`{key}`: {message}"));
                        Some(json!([]))
                    }
                }
            }
            _ => None,
        }
    }

    /// Replaces references to variables that are known at compile time by their unrendered values.
    fn resolve_known(&self, value: &Value, context: &Context) -> Value {
        match value {
            Value::String(text) => {
                let inner = text.trim().strip_prefix("{{").and_then(|t| t.strip_suffix("}}")).map(str::trim);
                let known = inner.filter(|name| super::is_name(name)).and_then(|name| self.raw(name, context));
                match known {
                    Some(Value::String(inner)) if inner == text => value.clone(),
                    Some(known) => known.clone(),
                    None => value.clone(),
                }
            }
            Value::Array(items) => Value::Array(items.iter().map(|item| self.resolve_known(item, context)).collect()),
            Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), self.resolve_known(v, context))).collect(),
            other => other.clone(),
        }
    }

    /// The unrendered value of a variable.
    fn raw(&self, name: &str, context: &Context) -> Option<&Value> {
        let chain = &context.layers;
        let strong = chain.include_params.iter().chain(&chain.role_params).chain(chain.vars.iter().rev());
        let layers = strong.chain(&chain.role_vars).chain(&chain.play_vars).chain(&chain.defaults);
        let found = layers.filter_map(|i| self.parts.layers.get(*i as usize)?.get(name)).next();
        let shared = self.options.shared.get(name).map(SharedVar::json);
        self.options.extra_vars.get(name).or(found).or(shared).or_else(|| self.host.vars.get(name))
    }

    fn loop_control(&mut self, file: &str, control: &SpannedNode, repeat: &mut Repeat) {
        if control.map().is_none() {
            self.fault(
                file,
                (control.line, control.column),
                format!("`loop_control` is a map, found {}", control.kind()),
            );
        }
        for (key, value) in control.map().unwrap_or_default() {
            let at = (key.line, key.column);
            match key.text.as_str() {
                "loop_var" | "index_var" => match value.text().filter(|name| super::is_name(name)) {
                    Some(name) if key.text == "loop_var" => repeat.var = name,
                    Some(name) => repeat.index_var = Some(name),
                    None => {
                        self.fault(file, at, format!("`{}` takes the name of a variable", key.text));
                    }
                },
                "label" => {
                    self.check_markup(file, value);
                    repeat.label = Some(match value.json() {
                        Value::String(text) => text,
                        other => other.to_string(),
                    });
                }
                "pause" => repeat.pause = self.number(file, "pause", value),
                "extended" => repeat.extended = self.boolean(file, "extended", value),
                "extended_allitems" => repeat.leave_out_all = !self.boolean(file, "extended_allitems", value),
                "break_when" => repeat.break_when = self.conditions(file, "break_when", value),
                _ => {
                    let known =
                        ["loop_var", "index_var", "label", "pause", "extended", "extended_allitems", "break_when"];
                    let hint = did_you_mean(&key.text, known).unwrap_or_else(|| HINT_ANSIBLE.to_owned());
                    self.fault_hint(file, at, format!("unknown option `{}` of loop_control", key.text), hint);
                }
            }
        }
    }
}

/// Whether the name is a single `{{ }}`.
fn is_single_markup(name: &str) -> bool {
    name.trim().starts_with("{{") && name.trim().ends_with("}}") && name.matches("{{").count() == 1
}

/// Whether a path contains a directory `roles`, `group_vars` or `host_vars`. A file name that
/// begins with a variable does not match files in such a directory.
pub(super) fn is_of_others(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "roles" | "group_vars" | "host_vars"))
}

/// Adds the file names in the terms of a loop over files.
fn patterns(terms: &Value, out: &mut BTreeSet<String>) {
    match terms {
        Value::String(text) => {
            out.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| patterns(item, out)),
        Value::Object(map) => {
            let words = |name: &str, separators: &[char]| -> Vec<String> {
                let list = match map.get(name) {
                    Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
                    Some(Value::String(text)) if var_map::has_markup(text) => return vec![text.clone()],
                    Some(Value::String(text)) => text.split(separators).collect(),
                    _ => Vec::new(),
                };
                list.into_iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
            };
            let paths = words("paths", &[',', ':', ';']);
            for name in words("files", &[',', ';']) {
                out.extend(paths.iter().map(|path| format!("{}/{name}", path.trim_end_matches('/'))));
                if paths.is_empty() {
                    out.insert(name);
                }
            }
        }
        _ => {}
    }
}
