//! What files a plan makes, as far as that can be told without running anything: for diffs and expected digests.

use super::data::has_markup;
use super::frame::{self, Frame};
use super::modules;
use super::plan::{Plan, Play, Step, Task};
use super::scope::Scope;
use super::tera_text;
use crate::model::{Fault, Sha256};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// A file as the plan makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    pub sha256: Sha256,
    pub mode: Option<String>,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub content: Vec<u8>,
    /// Path of the template or file in the fleet directory, or `content`.
    pub source: String,
}

/// Every file of a `template` or `copy` task whose condition, path and content depend on variables and `facts` only.
/// A path that a later task may change in a way that cannot be told is left out.
pub fn rendered(plan: &Plan, facts: &Map<String, Value>) -> BTreeMap<String, Rendered> {
    review(plan, facts).0
}

/// The same, with what lint says of it: an error for each name in a `.tera` file that neither the plan nor the facts of a
/// node can know, a warning for each file that a task edits after a template made it.
pub fn review(plan: &Plan, facts: &Map<String, Value>) -> (BTreeMap<String, Rendered>, Vec<Fault>) {
    let mut out = Walk::new(plan, facts);
    for play in &plan.plays {
        play.sections.iter().for_each(|section| out.steps(play, section));
        play.handlers.iter().for_each(|handler| out.task(play, &handler.task));
    }
    (out.files, out.faults)
}

impl Plan {
    /// Absolute paths that the plan makes or changes, as far as they can be told without the node.
    pub fn declared_files(&self) -> Vec<String> {
        let mut out = Walk::new(self, &Map::new());
        for play in &self.plays {
            play.sections.iter().for_each(|section| out.steps(play, section));
        }
        out.declared.into_iter().collect()
    }
}

struct Walk<'p> {
    frame: Frame<'p>,
    files: BTreeMap<String, Rendered>,
    declared: BTreeSet<String>,
    faults: Vec<Fault>,
}

impl<'p> Walk<'p> {
    fn new(plan: &'p Plan, facts: &Map<String, Value>) -> Self {
        Self { frame: Frame::new(plan, facts), files: BTreeMap::new(), declared: BTreeSet::new(), faults: Vec::new() }
    }

    fn steps(&mut self, play: &'p Play, steps: &'p [Step]) {
        for step in steps {
            match step {
                Step::Task(task) => self.task(play, task),
                Step::Block(block) => {
                    self.steps(play, &block.block);
                    // Whether it runs depends on a failure: what it writes is uncertain.
                    let before = self.files.clone();
                    self.steps(play, &block.rescue);
                    self.files = before.into_iter().filter(|(path, file)| self.files.get(path) == Some(file)).collect();
                    self.steps(play, &block.always);
                }
                Step::Include(include) => {
                    let scope = self.frame.scope(play, &include.task);
                    let items = match &include.task.repeat {
                        None => vec![None],
                        Some(repeat) => {
                            frame::items(&scope, repeat).unwrap_or_default().into_iter().map(Some).collect()
                        }
                    };
                    for (index, item) in items.iter().enumerate() {
                        let layer = item
                            .as_ref()
                            .zip(include.task.repeat.as_ref())
                            .map(|(i, r)| frame::item_layer(r, index, i));
                        let inner = layer.clone().map_or_else(|| scope.clone(), |l| scope.with(l));
                        if !matches!(frame::all_hold(&inner, &include.task.when), Ok(true)) {
                            continue;
                        }
                        let name = frame::args(&inner, &include.task)
                            .ok()
                            .and_then(|a| a.get("file")?.as_str().map(str::to_owned));
                        if let Some(steps) = name.and_then(|n| include.choices.get(&n)) {
                            let depth = self.frame.params.len();
                            self.frame.params.extend(layer.map(std::sync::Arc::new));
                            self.steps(play, steps);
                            self.frame.params.truncate(depth);
                        }
                    }
                }
            }
        }
    }

    fn task(&mut self, play: &'p Play, task: &'p Task) {
        let scope = self.frame.scope(play, task);
        match &task.repeat {
            None => self.item(task, &scope),
            Some(repeat) => {
                for (index, item) in frame::items(&scope, repeat).unwrap_or_default().iter().enumerate() {
                    let inner = self.frame.scope(play, task).with(frame::item_layer(repeat, index, item));
                    self.item(task, &inner);
                }
            }
        }
        self.frame.unknown.extend(task.register.clone());
    }

    fn item(&mut self, task: &Task, scope: &Scope) {
        let holds = frame::all_hold(scope, &task.when);
        if matches!(holds, Ok(false)) {
            return;
        }
        let args = frame::args(scope, task);
        if task.module == "set_fact" {
            for (name, value) in args.clone().unwrap_or_default() {
                if holds.is_ok() {
                    self.frame.set(&name, &value);
                }
            }
            if holds.is_err() || args.is_err() {
                self.frame.unknown.extend(task.args.keys().filter(|k| !has_markup(k)).cloned());
            }
            return;
        }
        let target = ["dest", "path", "name"]
            .iter()
            .find_map(|name| args.as_ref().ok()?.get(*name)?.as_str().map(str::to_owned));
        let Some(path) = target.filter(|p| {
            p.starts_with('/') && matches!(task.module.as_str(), "template" | "copy" | "file" | "lineinfile")
        }) else {
            return;
        };
        let args = args.unwrap_or_default();
        let state = args.get("state").and_then(Value::as_str).unwrap_or_default();
        let path = match args.get("src").and_then(Value::as_str).and_then(|s| s.rsplit('/').next()) {
            Some(name) if path.ends_with('/') && matches!(task.module.as_str(), "template" | "copy") => {
                format!("{path}{name}")
            }
            _ => path,
        };
        if task.module == "file" {
            if state == "absent" && holds.is_ok() {
                let below = format!("{}/", path.trim_end_matches('/'));
                self.files.retain(|p, _| *p != path && !p.starts_with(&below));
                self.declared.retain(|p| *p != path && !p.starts_with(&below));
            } else if !matches!(state, "directory" | "absent") {
                self.declared.insert(path.clone());
                self.attributes(&path, &args);
            }
            return;
        }
        self.declared.insert(path.clone());
        if task.module == "lineinfile" && self.files.contains_key(&path) {
            let message =
                format!("{path} is edited here after a template made it, so what it is to be is not known beforehand");
            let fault = Fault::warn(&task.place.file, task.place.line, 1, message);
            self.faults.push(
                fault.hint("put the line into the template; as it is, drift of the file is reported, not repaired"),
            );
        }
        if matches!(holds, Ok(true)) && task.module == "template" {
            self.faults.extend(self.undefined(task, &args, scope));
        }
        let uncertain =
            holds.is_err() || task.module == "lineinfile" || args.get("remote_src").is_some_and(|v| v == true);
        let content = modules::content_of(self.frame.plan(), task, &args, scope);
        match content {
            Ok((content, source)) if !uncertain => {
                let word = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
                let file = Rendered {
                    sha256: Sha256::of(&content),
                    mode: word("mode"),
                    owner: word("owner"),
                    group: word("group"),
                    content,
                    source,
                };
                self.files.insert(path, file);
            }
            _ => {
                self.files.remove(&path);
            }
        }
    }

    /// A name in a `.tera` file that nobody defines. What only a run tells, a fact or a register, is none of those.
    fn undefined(&self, task: &Task, args: &Map<String, Value>, scope: &Scope) -> Option<Fault> {
        let (path, text, line, column, message) = modules::tera_fault(self.frame.plan(), task, args, scope)?;
        let name = message.split_once("`")?.1.split_once('`')?.0;
        let root = message.contains("Variable `");
        if !message.contains("is not defined")
            || root && (name.starts_with("ansible_") || self.frame.unknown.contains(name))
        {
            return None;
        }
        let hint = tera_text::named_arguments(&text, line, column);
        let hint = hint.unwrap_or_else(|| "add `| default(value=...)` where it may be missing".to_owned());
        Some(Fault::error(&path, line, column, message).hint(hint))
    }

    /// A `file` task may set what a template left open.
    fn attributes(&mut self, path: &str, args: &Map<String, Value>) {
        let Some(file) = self.files.get_mut(path) else { return };
        for (name, slot) in [("mode", &mut file.mode), ("owner", &mut file.owner), ("group", &mut file.group)] {
            if let Some(value) = args.get(name).and_then(Value::as_str) {
                *slot = Some(value.to_owned());
            }
        }
    }
}
