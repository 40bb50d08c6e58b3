//! Reads a playbook as a list of plays. Opens `import_playbook`, and reads those keywords of each
//! play that concern all its hosts. `play.rs` compiles a play for one host.

use super::lookup::LookupFiles;
use super::{Compiler, Context, HINT_ANSIBLE, assets, module_specs};
use crate::SharedVar;
use crate::lang::hosts::InventoryNames;
use crate::lang::yaml::{SpannedData, SpannedNode};
use crate::plan::schedule::{HostOrder, PlayKeys, Portion};
use crate::plan::{SourcePlace, TaskCondition};
use crate::template::expr;
use crate::vars::var_map;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::rc::Rc;

/// Maximum nesting depth of playbooks.
const DEPTH_MAX: usize = 20;
/// Maximum number of plays of a playbook with all its imports.
const PLAYS_MAX: usize = 2_000;

/// One play of a playbook file, and the variables, tags and conditions that it gets from the
/// `import_playbook` entries that lead to the file.
#[derive(Clone, Default)]
pub(super) struct PlaySource {
    pub file: String,
    list: Option<Rc<SpannedNode>>,
    at: usize,
    pub vars: Map<String, Value>,
    pub tags: Vec<String>,
    pub when: Vec<TaskCondition>,
    /// The files that lookups in `vars` read.
    pub lookup_files: LookupFiles,
    /// Playbooks that are being read, outermost first.
    open: Vec<String>,
}

impl PlaySource {
    pub fn node(&self) -> Option<&SpannedNode> {
        self.list.as_ref()?.list()?.get(self.at)
    }
}

impl Compiler<'_> {
    /// The plays of a playbook in the order in which they run.
    pub(super) fn sources(&mut self, path: &str) -> Vec<PlaySource> {
        let mut out = Vec::new();
        self.collect(path, (path, (0, 0)), &PlaySource::default(), &mut out);
        if out.len() > PLAYS_MAX {
            self.fault(path, (0, 0), format!("more than {PLAYS_MAX} plays"));
            out.truncate(PLAYS_MAX);
        }
        out
    }

    fn collect(&mut self, path: &str, from: (&str, (u32, u32)), around: &PlaySource, out: &mut Vec<PlaySource>) {
        let mut open = around.open.clone();
        if open.iter().any(|p| p == path) {
            open.push(path.to_owned());
            self.fault(from.0, from.1, format!("{path} imports itself: {}", open.join(" -> ")));
            return;
        }
        if open.len() >= DEPTH_MAX || out.len() > PLAYS_MAX {
            self.fault(from.0, from.1, format!("playbooks are more than {DEPTH_MAX} deep, or too many"));
            return;
        }
        open.push(path.to_owned());
        if !self.opens(from.0, from.1) {
            return;
        }
        let Some(list) = self.yaml_of_tasks(path, from) else { return };
        let Some(items) = list.list() else {
            let kind = list.kind();
            self.fault(path, (list.line, list.column), format!("a playbook is a list of plays, found {kind}"));
            return;
        };
        for (at, item) in items.iter().enumerate() {
            let source = PlaySource {
                file: path.to_owned(),
                list: Some(list.clone()),
                at,
                open: open.clone(),
                ..around.clone()
            };
            let import = item.map().and_then(|pairs| {
                pairs.iter().find(|(key, _)| {
                    matches!(module_specs::short_name(&key.text), "import_playbook")
                        || key.text == "include" && item.get("hosts").is_none()
                })
            });
            match import {
                Some((key, name)) => {
                    if key.text == "include" {
                        self.warn(path, (key.line, key.column), "`include` of a playbook", "write `import_playbook`");
                    }
                    self.import(path, item, name, source, out);
                }
                None => out.push(source),
            }
        }
    }

    fn import(
        &mut self,
        file: &str,
        item: &SpannedNode,
        name: &SpannedNode,
        mut source: PlaySource,
        out: &mut Vec<PlaySource>,
    ) {
        let at = (name.line, name.column);
        for (key, value) in item.map().unwrap_or_default() {
            match key.text.as_str() {
                "vars" => {
                    // A play gets the files only if it selects the host.
                    let (mut vars, added) = self.collect_lookup_files(|compiler| compiler.vars(file, value));
                    source.lookup_files.extend(added);
                    // Variables of an outer `import_playbook` take precedence over those of an
                    // inner one.
                    vars.extend(std::mem::take(&mut source.vars));
                    source.vars = vars;
                }
                "tags" => {
                    let tags = self.word_list(file, "tags", value);
                    source.tags.extend(tags);
                }
                "when" => {
                    let when = self.conditions(file, "when", value);
                    source.when.extend(when);
                }
                "name" | "include" => {}
                word if module_specs::short_name(word) == "import_playbook" => {}
                _ => {
                    self.known_key(file, key, &["import_playbook", "name", "vars", "tags", "when"], "import_playbook");
                }
            }
        }
        let Some(text) = name.text() else {
            self.fault(file, at, format!("`import_playbook` takes a path, found {}", name.kind()));
            return;
        };
        let mut scope_vars = source.vars.clone();
        scope_vars.extend(self.options.extra_vars.clone());
        let scope = crate::vars::scope::ExprScope::default().with_layer(var_map::VarMap::from_trusted(&scope_vars));
        let text = match expr::render_text(&scope, text.trim()) {
            Ok(text) => text,
            Err(e) => {
                let message = format!("`import_playbook`: {}", expr::explain(&e));
                self.fault_hint(file, at, message, "only its own vars and extra vars are known this early");
                return;
            }
        };
        match assets::join(&assets::parent(file), &text).filter(|path| self.files.get(path).is_some()) {
            Some(path) => self.collect(&path, (file, at), &source, out),
            None => {
                let hint =
                    if text.contains('.') && !text.contains('/') && !text.ends_with("ml") { HINT_ANSIBLE } else { "" };
                let fault = self.fault(file, at, format!("{text} is not in the fleet directory"));
                fault.hint = Some(hint.to_owned()).filter(|h| !h.is_empty());
            }
        }
    }

    /// The keywords of a play that concern all its hosts. None: the item is not a play, or it has
    /// an error, which is recorded.
    pub(super) fn play_keys(&mut self, index: usize, source: &PlaySource, context: &Context) -> Option<PlayKeys> {
        let node = source.node()?;
        let file = source.file.as_str();
        let hosts = node.get("hosts")?;
        let mut keys = PlayKeys {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            name: node.get("name").and_then(SpannedNode::text).unwrap_or_default(),
            place: SourcePlace { file: file.to_owned(), line: node.line },
            ..PlayKeys::default()
        };
        let scope = self.known_scope(context);
        for pattern in self.word_list(file, "hosts", hosts) {
            match expr::render_json(&scope, &Value::String(pattern)) {
                Ok(Value::String(text)) => keys.hosts.push(text),
                Ok(Value::Array(list)) => {
                    keys.hosts.extend(list.iter().filter_map(Value::as_str).map(str::to_owned));
                }
                Ok(_) => {
                    self.fault(file, (hosts.line, hosts.column), "`hosts` takes names of hosts and groups");
                }
                Err(e) => {
                    self.fault(file, (hosts.line, hosts.column), format!("`hosts`: {}", expr::explain(&e)));
                }
            }
        }
        keys.hosts.retain(|pattern| !pattern.trim().is_empty());
        if keys.hosts.is_empty() && !self.diagnostics.faults.iter().any(|f| f.file == file && f.line == hosts.line) {
            self.fault(file, (hosts.line, hosts.column), "`hosts` names no host");
        }
        if keys.name.is_empty() {
            keys.name = keys.hosts.join(",");
        }
        let connection = node.get("connection").and_then(SpannedNode::text).unwrap_or_default();
        keys.local = connection.trim_start_matches("ansible.builtin.") == "local";
        if let Some(user) = node.get("remote_user").or(node.get("user")).and_then(SpannedNode::text) {
            // A user that depends on the host has no value here, and must be that of the inventory.
            keys.remote_user = expr::render_text(&scope, &user).ok().map(|user| user.trim().to_owned());
        }
        if let Some(serial) = node.get("serial") {
            for item in serial.list().unwrap_or(std::slice::from_ref(serial)) {
                let at = (item.line, item.column);
                for text in self.known_texts(file, "serial", item, context) {
                    match Portion::parse(&text) {
                        Some(portion) => keys.serial.push(portion),
                        None => {
                            self.fault(file, at, format!("`serial` takes numbers and percentages, found `{text}`"));
                        }
                    }
                }
            }
        }
        if let Some(most) = node.get("max_fail_percentage") {
            let text = self.known_texts(file, "max_fail_percentage", most, context).pop().unwrap_or_default();
            keys.max_fail_percentage = text.trim().trim_end_matches('%').parse().ok().filter(|p: &f64| p.is_finite());
            if keys.max_fail_percentage.is_none() {
                self.fault(file, (most.line, most.column), "`max_fail_percentage` takes a number");
            }
        }
        if let Some(order) = node.get("order").filter(|o| o.data != SpannedData::Null) {
            let word = self.known_texts(file, "order", order, context).pop().unwrap_or_default();
            match HostOrder::parse(&word) {
                Some(order) => keys.order = order,
                None => {
                    let hint = if word == "shuffle" {
                        HINT_ANSIBLE
                    } else {
                        "known are inventory, reverse_inventory, sorted, reverse_sorted"
                    };
                    self.fault_hint(
                        file,
                        (order.line, order.column),
                        format!("`{word}` is not a supported `order`"),
                        hint,
                    );
                }
            }
        }
        for (word, slot) in
            [("any_errors_fatal", &mut keys.any_errors_fatal), ("ignore_unreachable", &mut keys.ignore_unreachable)]
        {
            if let Some(value) = node.get(word) {
                *slot = self.known_bool(file, word, value, context);
            }
        }
        Some(keys)
    }

    /// The hosts of the inventory with the limit of this run. Without `CompileOptions::hosts`, they
    /// are derived from the variables of the host.
    pub(super) fn known_hosts(&self) -> Cow<'_, InventoryNames> {
        if let Some(hosts) = self.options.hosts {
            return Cow::Borrowed(hosts);
        }
        let own = self.host.name.clone();
        let list = |value: &Value| {
            value.as_array().map(|l| l.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
        };
        let mut out = InventoryNames::default();
        let groups = self.options.shared.get("groups").map(SharedVar::json).or_else(|| self.host.vars.get("groups"));
        for (group, hosts) in groups.and_then(Value::as_object).into_iter().flatten() {
            out.groups.extend(list(hosts).map(|hosts| (group.clone(), hosts)));
        }
        out.hosts = out.groups.remove("all").unwrap_or_default();
        if !out.hosts.contains(&own) {
            out.hosts.push(own.clone());
        }
        let named = self.host.vars.get("group_names").and_then(list).unwrap_or_default();
        for group in named.into_iter().chain([self.host.group.clone()]).filter(|group| !group.is_empty()) {
            let hosts = out.groups.entry(group).or_default();
            if !hosts.contains(&own) {
                hosts.push(own.clone());
            }
        }
        Cow::Owned(out)
    }
}
