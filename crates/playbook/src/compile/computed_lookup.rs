//! Lookups of files whose names are computed. The names are evaluated with the variables that are
//! known before the run. If a part of a name depends on the node, the plan gets all files that the
//! name could mean.

use super::lookup::{FILE_KINDS, fixed_terms};
use super::{Compiler, Context, assets, repeat};
use crate::filters;
use crate::plan::{Plan, Repeat};
use crate::template::{expr, lint};
use crate::vars::scope::{ExprScope, with_trace};
use crate::vars::var_map::has_markup;
use crate::vars::variable_scope;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of files that one name with an unknown part may mean.
const FILES_MAX: usize = 200;
/// Maximum number of names of one lookup in a loop.
const NAMES_MAX: usize = 2_000;
/// Maximum depth of templates that look up templates, and of variables that refer to variables.
const DEPTH_MAX: usize = 10;
/// Stands in a name for a part that only the node knows.
const UNKNOWN: &str = "{{}}";

/// A lookup of files whose names are computed.
#[derive(Debug, Clone)]
pub(super) struct ComputedLookup {
    file: String,
    at: (u32, u32),
    kind: String,
    /// The source texts of the arguments.
    arguments: Vec<String>,
}

impl ComputedLookup {
    /// The names that the lookup means, each perhaps with unknown parts. None: they are not known.
    fn names(&self, scope: &ExprScope) -> Option<Vec<String>> {
        let mut terms = Vec::new();
        let mut options = BTreeMap::new();
        for argument in &self.arguments {
            match argument.split_once('=').filter(|(name, rest)| super::is_name(name.trim()) && !rest.starts_with('='))
            {
                Some((name, value)) if matches!(name.trim(), "files" | "paths") => {
                    options.insert(name.trim(), texts(&known_term(scope, value.trim(), 0)));
                }
                Some(_) => {}
                None => terms.push(known_term(scope, argument, 0)),
            }
        }
        let mut option = |name: &str| options.remove(name).unwrap_or_default();
        match self.kind.as_str() {
            "first_found" => Some(filters::searched_names(&terms, &(option("files"), option("paths"))).0),
            "fileglob" => Some(terms.iter().flat_map(texts).collect()),
            _ => terms.iter().map(|term| term.as_str().map(str::to_owned)).collect(),
        }
    }
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// The value of an expression, in which `UNKNOWN` stands for each part that is not known.
fn known_term(scope: &ExprScope, source: &str, depth: usize) -> Value {
    let (value, trace) = with_trace(|| expr::eval(scope, source).and_then(|value| expr::to_json(&value)));
    if let Some(value) = value.ok().filter(|_| !trace.unknown) {
        return value;
    }
    if depth < DEPTH_MAX
        && super::is_name(source)
        && let Some(var) = scope.get(source)
    {
        return known_parts(scope, &var.json(), depth + 1);
    }
    let operands = split_operands(source);
    if operands.len() < 2 || depth >= DEPTH_MAX {
        return json!(UNKNOWN);
    }
    let text = |operand: &&str| match known_term(scope, operand, depth + 1) {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => UNKNOWN.to_owned(),
    };
    json!(operands.iter().map(text).collect::<String>())
}

/// A value of the playbook, in which the templates are rendered as far as they are known.
fn known_parts(scope: &ExprScope, value: &Value, depth: usize) -> Value {
    match value {
        Value::String(text) if has_markup(text) => {
            if let Some(inner) = expr::inner_expression(text) {
                return known_term(scope, inner, depth);
            }
            let part = |part: lint::Part| match part.inner {
                None if part.whole.starts_with("{#") => String::new(),
                None => part.whole.to_owned(),
                Some(inner) if part.whole.starts_with("{{") => match known_term(scope, inner.trim(), depth) {
                    Value::String(text) => text,
                    Value::Number(number) => number.to_string(),
                    _ => UNKNOWN.to_owned(),
                },
                Some(_) => UNKNOWN.to_owned(),
            };
            json!(lint::parts(text).into_iter().map(part).collect::<String>())
        }
        Value::Array(items) => items.iter().map(|item| known_parts(scope, item, depth)).collect(),
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), known_parts(scope, v, depth))).collect(),
        other => other.clone(),
    }
}

/// The operands of `~` and `+` outside quotes and brackets.
fn split_operands(source: &str) -> Vec<&str> {
    let (mut out, mut depth, mut at, mut from) = (Vec::new(), 0_i32, 0, 0);
    while let Some(c) = source[at..].chars().next() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '~' | '+' if depth == 0 => {
                out.push(source[from..at].trim());
                from = at + 1;
            }
            // A filter applies to the operand before it only, and an `if` to the whole expression.
            _ => {}
        }
        at += if matches!(c, '"' | '\'') { lint::quoted_length(&source[at..]) } else { c.len_utf8() };
    }
    out.push(source[from..].trim());
    out
}

impl Compiler<'_> {
    /// Remembers the lookups of files in a text whose names are computed.
    pub(super) fn note_computed_lookups(&mut self, file: &str, at: (u32, u32), text: &str) {
        for lookup in lint::lookups(text) {
            let kind = filters::short_name(&lookup.name).to_owned();
            if FILE_KINDS.contains(&kind.as_str()) && fixed_terms(&lookup).is_none() {
                let lookup = ComputedLookup { file: file.to_owned(), at, kind, arguments: lookup.arguments };
                self.parts.computed_lookups.push(lookup);
            }
        }
    }

    /// Resolves the lookups of a task, or of variables that the tasks of `context` see. A lookup of
    /// variables that finds nothing is no fault, because no task may read the variable.
    pub(super) fn resolve_computed_lookups(&mut self, context: &Context, repeat: Option<&Repeat>, of_task: bool) {
        if self.parts.computed_lookups.is_empty() {
            return;
        }
        let unknown = BTreeSet::from(["ansible_facts".to_owned()]);
        let scope = self.known_scope(context).with_unknown(unknown);
        let scopes = match repeat.map(|repeat| (repeat, variable_scope::items(&scope, repeat))) {
            Some((repeat, Ok(items))) if items.len() <= NAMES_MAX => {
                let layer = |index| scope.with_layer(variable_scope::item_layer(repeat, &items, index));
                (0..items.len()).map(layer).collect()
            }
            _ => vec![scope],
        };
        self.resolve_with(&scopes, of_task && !self.options.delegates);
    }

    fn resolve_with(&mut self, scopes: &[ExprScope], strict: bool) {
        for _ in 0..DEPTH_MAX {
            // A template that a lookup finds may have lookups too.
            let pending = std::mem::take(&mut self.parts.computed_lookups);
            for lookup in pending {
                let mut why = None;
                let mut found = scopes.is_empty();
                for scope in scopes {
                    match self.include_names(&lookup, lookup.names(scope)) {
                        Ok(()) => found = true,
                        Err(error) => why = why.or(Some(error)),
                    }
                }
                self.parts.asks_for_files |= why.is_some() && self.options.delegates;
                if let Some((message, hint)) = why.filter(|_| strict && !found) {
                    self.fault(&lookup.file, lookup.at, message).hint = hint;
                }
            }
        }
    }

    fn include_names(
        &mut self,
        lookup: &ComputedLookup,
        names: Option<Vec<String>>,
    ) -> Result<(), (String, Option<String>)> {
        let ComputedLookup { file, at, kind, .. } = lookup;
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let message = format!("lookup `{kind}` takes names that are known before the run, at least in part");
            return Err((message, Some(super::HINT_ANSIBLE.to_owned())));
        };
        for name in names {
            match name.contains(UNKNOWN) {
                true => self.include_matching(file, *at, kind, &name).map_err(|message| (message, None))?,
                false => self.include_lookup(file, *at, kind, &name)?,
            }
        }
        Ok(())
    }

    /// Adds all files that a name with unknown parts could mean.
    fn include_matching(&mut self, file: &str, at: (u32, u32), kind: &str, name: &str) -> Result<(), String> {
        let shown = name.replace(UNKNOWN, "*");
        if kind == "fileglob" {
            return Err(format!("lookup `{kind}`: only the node knows the pattern `{shown}`"));
        }
        let sub = if kind == "template" { "templates" } else { "files" };
        let plain = self.strip_root(name).to_owned();
        let is_open = !shown.contains(|c: char| c.is_alphanumeric());
        let mut found: BTreeMap<String, String> = BTreeMap::new();
        for dir in self.lookup_dirs(file, sub) {
            let narrow = dir == sub || dir.ends_with(&format!("/{sub}"));
            for (named, path) in assets::matching_files(self.files, &dir, &plain) {
                if narrow || !is_open && !repeat::is_of_others(&named) {
                    found.entry(named).or_insert(path);
                }
            }
        }
        for (named, path) in assets::matching_files(self.files, "", &plain) {
            if !shown.starts_with('*') {
                found.entry(named).or_insert(path);
            }
        }
        if found.len() > FILES_MAX {
            let count = found.len();
            return Err(format!("lookup `{kind}`: `{shown}` could mean {count} files, but the maximum is {FILES_MAX}"));
        }
        if found.is_empty() && kind != "first_found" {
            return Err(format!("lookup `{kind}`: no file matches `{shown}`"));
        }
        let root = name.strip_suffix(&plain).unwrap_or_default().to_owned();
        for (named, path) in found {
            let value = match kind {
                "first_found" => json!([path]),
                // A file that cannot be read makes the lookup fail only if the node selects it.
                _ => match self.lookup_content(kind, &path, at) {
                    Ok(value) => value,
                    Err(_) => continue,
                },
            };
            self.add_lookup_file(format!("{kind} {root}{named}"), file, value);
        }
        if self.options.delegates {
            self.parts.asks_for_files = true;
        } else if kind == "first_found" {
            self.add_lookup_file(format!("{kind} {shown}"), file, json!([]));
        }
        Ok(())
    }

    /// Adds the files that lookups in variables of the inventory find. Returns whether there are
    /// such lookups.
    pub(super) fn resolve_inventory_lookups(&mut self, plan: &Plan) -> bool {
        let shared = plan.shared.iter().map(|(name, value)| (name, value.json()));
        let mut found = Vec::new();
        for (name, value) in plan.vars.iter().chain(shared) {
            if !matches!(name.as_str(), "hostvars" | "groups" | "peers") {
                each_lookup(value, &mut |lookup| found.push(lookup));
            }
        }
        let file = plan.playbook.as_str();
        self.current_play.base = assets::parent(file);
        for lookup in &found {
            let kind = filters::short_name(&lookup.name).to_owned();
            if !FILE_KINDS.contains(&kind.as_str()) {
                if filters::LOOKUPS_ASKED.contains(&kind.as_str()) && !self.options.delegates {
                    let message = format!("lookup `{kind}` in a variable {}", filters::ONLY_IN_PLAY);
                    self.warn(file, (0, 0), message, super::HINT_ANSIBLE);
                }
                continue;
            }
            match fixed_terms(lookup) {
                Some(terms) => terms.iter().for_each(|term| {
                    // No task may read the variable, so a missing file is no fault.
                    let missing = self.include_lookup(file, (0, 0), &kind, term).is_err();
                    self.parts.asks_for_files |= missing && self.options.delegates;
                }),
                None => self.parts.computed_lookups.push(ComputedLookup {
                    file: file.to_owned(),
                    at: (0, 0),
                    kind,
                    arguments: lookup.arguments.clone(),
                }),
            }
        }
        self.resolve_computed_lookups(&Context::default(), None, false);
        !found.is_empty()
    }
}

fn each_lookup(value: &Value, f: &mut dyn FnMut(lint::Lookup)) {
    match value {
        Value::String(text) if has_markup(text) => lint::lookups(text).into_iter().for_each(f),
        Value::Array(items) => items.iter().for_each(|item| each_lookup(item, f)),
        Value::Object(map) => map.values().for_each(|item| each_lookup(item, f)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_in_part() {
        let Value::Object(vars) = json!({
            "app": "web", "family": "{{ ansible_os_family }}", "name": "{{ app }}-{{ family }}.yml", "list": ["a", "{{ name }}"],
            "params": {"files": ["{{ ansible_distribution | lower }}.yml", "default.yml"], "paths": "{{ app }}/x"},
            "endless": "{{ endless }}",
        }) else {
            panic!()
        };
        let layer = std::sync::Arc::new(crate::vars::var_map::VarMap::from_trusted(&vars));
        let scope = ExprScope::new(vec![layer], BTreeSet::from(["ansible_facts".to_owned()]));
        for (source, want) in [
            ("'a' ~ app", json!("aweb")),
            ("name", json!("web-{{}}.yml")),
            ("app + '/' + ansible_facts['os_family'] | default('x') + '.j2'", json!("web/{{}}.j2")),
            ("list", json!(["a", "web-{{}}.yml"])),
            ("params", json!({"files": ["{{}}.yml", "default.yml"], "paths": "web/x"})),
            ("missing", json!("{{}}")),
            ("endless", json!("{{}}")),
        ] {
            assert_eq!(known_term(&scope, source, 0), want, "{source}");
        }
    }
}
