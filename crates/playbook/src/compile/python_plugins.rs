//! Finds the filters and tests that are plugins in Python, and checks templates with them.
//!
//! A plugin of the playbook's files is never run to find out what it defines: a name counts as
//! defined if the text of a plugin file contains it. The controller's ansible-core decides during
//! the run.

use super::{Compiler, assets};
use crate::filters::{self, ONLY_IN_PLAY, PLUGINS, PluginKind, PluginSet, PluginUse};
use crate::plan::{ModuleRefusal, Plan, PluginRequest};
use crate::template::expr;
use crate::template::lint::{self, NameKind};
use crate::vars::var_map::has_markup;
use minijinja::Error;
use remoor_model::FileSet;
use serde_json::Value;
use std::rc::Rc;

/// A file with filters or tests in the directory `filter_plugins` or `test_plugins` of `dir`.
pub(super) struct PluginFile {
    dir: String,
    kind: NameKind,
    text: String,
}

impl PluginFile {
    fn read_all(files: &FileSet) -> Vec<Self> {
        let read = |(path, content): (&String, &Vec<u8>)| {
            let (folder, name) = path.rsplit_once('/')?;
            let (dir, last) = folder.rsplit_once('/').unwrap_or(("", folder));
            let kind = match last {
                "filter_plugins" => NameKind::Filter,
                "test_plugins" => NameKind::Test,
                _ => return None,
            };
            let text = String::from_utf8_lossy(content).into_owned();
            name.ends_with(".py").then(|| Self { dir: dir.to_owned(), kind, text })
        };
        files.0.iter().filter_map(read).collect()
    }

    /// Whether the file contains the name as a word.
    fn has_word(&self, name: &str) -> bool {
        contains_word(&self.text, name)
    }

    /// Whether the file has the name as the key of a map, as a plugin lists what it defines.
    fn has_key(&self, name: &str) -> bool {
        self.text.match_indices(name).any(|(at, _)| {
            let quote = self.text[..at].chars().next_back().filter(|c| matches!(c, '\'' | '"'));
            let after = quote.and_then(|quote| self.text[at + name.len()..].strip_prefix(quote));
            after.is_some_and(|after| after.trim_start().starts_with(':'))
        })
    }
}

fn contains_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}

impl Compiler<'_> {
    /// Checks the syntax and the names of a template.
    pub(super) fn check_template(&mut self, text: &str) -> Result<(), Error> {
        self.note_plugins(text);
        expr::check_template(text, &self.parts.plugin_uses)
    }

    /// Checks the syntax and the names of an expression.
    pub(super) fn check_expression(&mut self, text: &str) -> Result<(), Error> {
        match has_markup(text) {
            true => self.note_plugins(text),
            false => self.note_plugins(&format!("{{{{ {text} }}}}")),
        }
        expr::check_expression(text, &self.parts.plugin_uses)
    }

    /// Notes that all further tasks may use the plugins of this directory: a role that is loaded,
    /// or the directory of a playbook.
    pub(super) fn load_plugins(&mut self, dir: &str) {
        let has_plugins = self.plugin_files().iter().any(|file| file.dir == dir);
        if has_plugins && !self.parts.plugin_dirs.iter().any(|known| known == dir) {
            self.parts.plugin_dirs.push(dir.to_owned());
        }
    }

    /// Adds the plugins that the finished plan uses: a variable of the inventory may use others
    /// than its tasks, and a role may replace a native filter of tasks before it. Returns whether
    /// the plan lacks some of them.
    pub(super) fn note_plugins_of_plan(&mut self, plan: &Plan) -> bool {
        let shared: Vec<Value> = plan.shared.values().map(|value| value.json().clone()).collect();
        let mut texts = Vec::new();
        plan.vars.values().chain(&shared).for_each(|value| each_text(value, &mut texts));
        if !self.parts.plugin_dirs.is_empty() {
            plan.layers.iter().flat_map(|layer| layer.values()).for_each(|value| each_text(value, &mut texts));
            let blobs = plan.blobs.values().filter_map(|blob| std::str::from_utf8(&blob.0).ok());
            texts.extend(blobs.map(str::to_owned));
            plan.each_task(&mut |task| {
                each_text(&serde_json::to_value(task).unwrap_or_default(), &mut texts);
                let conditions = [&task.outcome.failed_when, &task.outcome.changed_when, &task.retry.until];
                let conditions = task.when.iter().chain(conditions.into_iter().flatten().flatten());
                texts.extend(conditions.map(|condition| format!("{{{{ {} }}}}", condition.text)));
            });
        }
        texts.iter().for_each(|text| self.note_plugins(text));
        self.plugins_variable().as_ref() != plan.extra.get(PLUGINS)
    }

    /// The value of the variable `PLUGINS` for the plan so far.
    pub(super) fn plugins_variable(&self) -> Option<Value> {
        let callable = self.parts.plugin_uses.iter().filter(|(_, found)| **found == PluginUse::Callable);
        let names = callable.map(|((kind, name), _)| (PluginKind::from(*kind), name.clone())).collect();
        PluginSet { names, dirs: self.parts.plugin_dirs.clone() }.to_variable()
    }

    fn plugin_files(&mut self) -> Rc<Vec<PluginFile>> {
        let files = self.files;
        self.cache.plugin_files.get_or_insert_with(|| Rc::new(PluginFile::read_all(files))).clone()
    }

    /// Finds the plugins that a text names.
    fn note_plugins(&mut self, text: &str) {
        if !text.contains(['|', '(']) && !text.contains("is") {
            return;
        }
        let names = lint::filters_and_tests(text).into_iter().chain(lint::names_in_arguments(text));
        for (kind, name) in names.collect::<Vec<_>>() {
            let key = (kind, name);
            if self.parts.plugin_uses.get(&key) != Some(&PluginUse::Callable)
                && let Some(found) = self.find_plugin(kind, &key.1)
            {
                self.parts.plugin_uses.insert(key, found);
            }
        }
    }

    /// The plugin of this name. None: there is none, or a native filter or test takes precedence.
    fn find_plugin(&mut self, kind: NameKind, name: &str) -> Option<PluginUse> {
        let plain = name.strip_prefix("ansible.legacy.").unwrap_or(name);
        let is_word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let parts: Vec<&str> = plain.split('.').collect();
        let is_native = filters::is_native(kind, name);
        if !parts.iter().all(|part| is_word(part)) {
            return None;
        }
        let request = match &parts[..] {
            [short] => {
                self.plugin_dir(kind, short, is_native)?;
                PluginRequest { kind: kind.into(), name: name.to_owned(), in_files: true }
            }
            ["ansible", "builtin" | "legacy", ..] => return None,
            [namespace, collection, rest @ ..] if !is_native && !rest.is_empty() => {
                let in_files = self.is_in_collection(kind, &format!("{namespace}/{collection}"), rest);
                PluginRequest { kind: kind.into(), name: name.to_owned(), in_files }
            }
            _ => return None,
        };
        self.ask_for_plugin(&request)
    }

    /// The directory whose plugin defines a short name, which is then one of the plan. A plugin
    /// replaces a native filter only if its directory is loaded.
    fn plugin_dir(&mut self, kind: NameKind, name: &str, is_native: bool) -> Option<()> {
        let files = self.plugin_files();
        let loaded = &self.parts.plugin_dirs;
        let is_role = |dir: &str| assets::parent(dir).rsplit('/').next() == Some("roles");
        let defines =
            |file: &&PluginFile| file.kind == kind && if is_native { file.has_key(name) } else { file.has_word(name) };
        let mut all = files.iter().filter(defines);
        let found = all.find(|file| loaded.contains(&file.dir) || !is_native && is_role(&file.dir))?;
        self.load_plugins(&found.dir);
        Some(())
    }

    /// Whether a collection among the playbook's files has the plugin. `collection` is a path.
    fn is_in_collection(&mut self, kind: NameKind, collection: &str, rest: &[&str]) -> bool {
        let folder = match kind {
            NameKind::Filter => "filter",
            NameKind::Test => "test",
        };
        let part = format!("collections/ansible_collections/{collection}/plugins/{folder}/");
        let Some(last) = rest.last() else { return false };
        let found = self.files.0.iter().find_map(|(path, content)| {
            let (before, below) = path.split_once(&part)?;
            let is_own = before.is_empty() || before.ends_with('/');
            let named = || contains_word(&String::from_utf8_lossy(content), last);
            (is_own && below.ends_with(".py") && named()).then(|| before.trim_end_matches('/').to_owned())
        });
        let dirs = &mut self.parts.plugin_dirs;
        match found {
            Some(dir) if dirs.contains(&dir) => true,
            Some(dir) => {
                dirs.push(dir);
                true
            }
            None => false,
        }
    }

    /// Whether this plan may call a plugin.
    fn ask_for_plugin(&self, request: &PluginRequest) -> Option<PluginUse> {
        if !self.options.delegates {
            // Managers do not start Python, so nobody knows whether an installed collection has it.
            return request.in_files.then(|| PluginUse::Refused(ONLY_IN_PLAY.to_owned()));
        }
        let found = self.options.modules.map_or(Ok(()), |source| source.find_plugin(request));
        Some(match found {
            Ok(()) => PluginUse::Callable,
            Err(ModuleRefusal::NotFound(_) | ModuleRefusal::NotStored | ModuleRefusal::ActionPlugin(_)) => return None,
            Err(ModuleRefusal::NoCollection(name)) => PluginUse::Refused(format!(
                "is not part of the language, and the collection {name} is not installed on this machine"
            )),
            Err(ModuleRefusal::NoCore(why)) => PluginUse::Refused(format!(
                "is not part of the language, and as a plugin it needs ansible-core on this machine: {why}"
            )),
            Err(ModuleRefusal::NativeOnly) => PluginUse::Refused(
                "is not part of the language, and `--native-only` refuses plugins in Python".to_owned(),
            ),
            Err(ModuleRefusal::Failed(why)) => {
                PluginUse::Refused(format!("is not part of the language, and as a plugin it fails: {why}"))
            }
        })
    }
}

fn each_text(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) if has_markup(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, out)),
        Value::Object(map) => map.values().for_each(|item| each_text(item, out)),
        _ => {}
    }
}
