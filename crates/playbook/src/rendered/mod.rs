//! Predicts the files that a plan makes, as far as possible without running it. Diffs and expected
//! digests are made from the prediction.

mod includes;
mod refusals;
mod undefined;

use super::compile::refusal_message;
use super::facts;
use super::modules;
use super::modules::ContentError;
use super::plan::{Plan, PlanStep, Play, REFUSED, Repeat, SourcePlace, Task};
use crate::run::secrets::{SecretTexts, Secrets};
use crate::template::template_fault::{Language, OF_AN_ATTEMPT, TemplateFault};
use crate::template::{expr, lint};
use crate::vars::scope::{ExprScope, Trace, with_trace};
use crate::vars::var_map::{self, has_markup};
use crate::vars::variable_scope::{self, VariableScope};
use refusals::Refusals;
use remoor_model::{Fault, FileSet, Sha256};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use refusals::find_refusals;

/// The variable that contains the name of the loop variable.
const LOOP_VAR: &str = "ansible_loop_var";
/// Modules that write a file whose whole content only the node knows.
const EDITS: [&str; 7] = ["assemble", "blockinfile", "ini_file", "known_hosts", "lineinfile", "pam_limits", "replace"];
/// Number of lines of a task that are searched for a name.
const LINES_SEARCHED: usize = 100;

/// A file that a `template` or `copy` task of the plan writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedFile {
    pub sha256: Sha256,
    pub mode: Option<String>,
    pub owner: Option<String>,
    pub group: Option<String>,
    pub content: Vec<u8>,
    /// Path of the template or file in the fleet directory, or the word `content` if the task
    /// itself contains the content.
    pub source: String,
    /// Whether the content contains a secret of the plan.
    pub secret: bool,
}

/// Returns every file of a `template` or `copy` task whose condition, path and content depend only
/// on variables and `facts`. A path that a later task may change unpredictably is left out.
pub fn predict_files(plan: &Plan, facts: &Map<String, Value>) -> BTreeMap<String, RenderedFile> {
    let mut out = Walk::new(plan, facts);
    out.plan();
    out.files
}

/// Paths of the files that `no_log` tasks write, and of those with secrets of the plan. Other tasks
/// must not show their content either.
pub fn no_log_files(plan: &Plan, facts: &Map<String, Value>) -> BTreeSet<String> {
    let mut out = Walk::new(plan, facts);
    out.plan();
    out.hidden
}

/// Returns the predicted files and the findings of lint. Reports an error for a template, file or
/// text of a playbook that can never be rendered. Reports a warning for one that may fail, and for
/// a rendered file that another task edits later.
///
/// `files` is the set that the plan was compiled from. `names` are the names of the host's
/// variables, for hints.
pub fn review(
    plan: &Plan,
    facts: &Map<String, Value>,
    files: &FileSet,
    names: &[&str],
) -> (BTreeMap<String, RenderedFile>, Vec<Fault>) {
    let mut out = Walk::new(plan, facts);
    out.review = Some(Review { files, names });
    out.plan();
    out.faults.extend(undefined::ungathered_fact_faults(plan, files));
    if let (1.., Some(task)) = (out.unreported, plan.computes_names()) {
        let message =
            "this task computes the names of the variables that it sets, so undefined variables are not reported";
        out.faults.push(Fault::warn(&task.place.file, task.place.line, 1, message));
    }
    SecretTexts::new(&plan.secrets).mask_faults(&mut out.faults);
    (out.files, out.faults)
}

/// A task, or one item of its loop, with the values that are known without the node.
#[derive(Debug, Clone)]
pub struct PredictedTask {
    pub place: SourcePlace,
    pub module: String,
    /// The rendered options of the task. None: only a run knows all of them.
    pub args: Option<Map<String, Value>>,
    /// If only a run knows all options: those that are known, and the names of the others.
    pub in_part: Option<(Map<String, Value>, Vec<String>)>,
    /// The options of the task as written in the playbook.
    pub written: Map<String, Value>,
    /// Whether every run performs the task, if all tasks before it succeed.
    pub certain: bool,
}

impl Plan {
    /// Returns the tasks that a run on the plan's host would perform, without those whose condition
    /// is known to be false. Handlers are included, but never certain. `facts` are the facts that
    /// count as known.
    pub fn predicted_tasks(&self, facts: &Map<String, Value>) -> Vec<PredictedTask> {
        let mut out = Walk::new(self, facts);
        out.plan();
        out.seen
    }

    /// Absolute paths that the plan makes or changes, as far as they are known without the node.
    pub fn declared_files(&self) -> Vec<String> {
        let mut out = Walk::new(self, &Map::new());
        for play in &self.plays {
            play.sections.iter().for_each(|section| out.steps(play, section));
        }
        out.declared.into_iter().collect()
    }
}

/// Input of `review`: the files, for the positions of errors, and the names, for hints.
struct Review<'p> {
    files: &'p FileSet,
    names: &'p [&'p str],
}

struct Walk<'p> {
    frame: VariableScope<'p>,
    files: BTreeMap<String, RenderedFile>,
    declared: BTreeSet<String>,
    hidden: BTreeSet<String>,
    seen: Vec<PredictedTask>,
    faults: Vec<Fault>,
    refusals: Refusals,
    /// Names in `notify` of tasks of this play that every run performs.
    notified: BTreeSet<String>,
    /// Names in `notify` of tasks of this play that a run may perform.
    may_notify: BTreeSet<String>,
    review: Option<Review<'p>>,
    secrets: Secrets,
    /// Whether the steps being walked may never run, or a failure in them does not end the run.
    may_be_skipped_or_fail: bool,
    /// Whether the steps being walked may never run, so that the values they set are unknown.
    may_be_skipped: bool,
    /// Whether no run reaches the steps being walked: no host has their system, or nothing notifies
    /// the handler.
    never_reached: bool,
    /// Number of undefined names that are not reported, because a task computes the names that it
    /// sets.
    unreported: usize,
}

impl<'p> Walk<'p> {
    fn new(plan: &'p Plan, facts: &Map<String, Value>) -> Self {
        let mut frame = VariableScope::new(plan, facts);
        let mut secrets = Secrets::default();
        secrets.set_plan(&plan.secrets);
        let of_a_run = facts::NAMES.iter().chain(&OF_AN_ATTEMPT);
        if let Some(names) = &plan.shares {
            // In the play that reads them, other hosts may have set these values.
            frame.others_change = true;
            names.names_by_others().for_each(|name| frame.forget(name));
        }
        frame.unknown.extend(undefined::names_set_by_handlers(plan));
        frame.unknown.extend(of_a_run.filter(|name| !facts.contains_key(**name)).map(|name| (*name).to_owned()));
        Self {
            frame,
            files: BTreeMap::new(),
            declared: BTreeSet::new(),
            hidden: BTreeSet::new(),
            seen: Vec::new(),
            faults: Vec::new(),
            refusals: Refusals::default(),
            notified: BTreeSet::new(),
            may_notify: BTreeSet::new(),
            review: None,
            secrets,
            may_be_skipped_or_fail: false,
            may_be_skipped: false,
            never_reached: false,
            unreported: 0,
        }
    }

    fn plan(&mut self) {
        for play in &self.frame.plan().plays {
            self.frame.open_play(play);
            play.sections.iter().for_each(|section| self.steps(play, section));
            // Only a run knows whether a handler is notified.
            let doubtful = std::mem::replace(&mut self.may_be_skipped_or_fail, true);
            for (at, handler) in play.handlers.iter().enumerate() {
                self.refused_handler(play, at);
                self.never_reached = !self.may_be_notified(play, at);
                self.task(play, &handler.task);
                let scope = self.frame.scope(play, &handler.task);
                let when = &handler.task.when;
                for steps in handler.choices.values() {
                    self.include_uncertain(&scope, when, |walk| walk.steps(play, steps));
                }
            }
            self.never_reached = false;
            self.may_be_skipped_or_fail = doubtful;
            self.notified.clear();
            self.may_notify.clear();
        }
    }

    /// Runs `f` for steps that may never run. Only files that `f` leaves unchanged stay predicted.
    fn walk_uncertain(&mut self, f: impl FnOnce(&mut Self)) {
        let before = self.files.clone();
        let (doubtful, maybe) = (self.may_be_skipped_or_fail, self.may_be_skipped);
        (self.may_be_skipped_or_fail, self.may_be_skipped) = (true, true);
        f(self);
        (self.may_be_skipped_or_fail, self.may_be_skipped) = (doubtful, maybe);
        self.files = before.into_iter().filter(|(path, file)| self.files.get(path) == Some(file)).collect();
    }

    fn steps(&mut self, play: &'p Play, steps: &'p [PlanStep]) {
        for step in steps {
            match step {
                PlanStep::Task(task) => self.task(play, task),
                PlanStep::Block(block) => {
                    if let Some(exports) = block.exports.as_ref().filter(|_| !self.may_be_skipped) {
                        self.frame.export(exports);
                    }
                    // A failure in the block is rescued.
                    let doubtful = self.may_be_skipped_or_fail;
                    self.may_be_skipped_or_fail |= !block.rescue.is_empty();
                    self.steps(play, &block.block);
                    self.may_be_skipped_or_fail = doubtful;
                    // The rescue part runs only after a failure.
                    self.walk_uncertain(|walk| walk.steps(play, &block.rescue));
                    self.steps(play, &block.always);
                }
                PlanStep::Include(include) => self.include(play, include),
            }
        }
    }

    /// Marks the loop variables as unknown, because the items are not known. Returns the names that
    /// were not unknown before.
    fn guess_items(&mut self, repeat: Option<&Repeat>) -> Vec<String> {
        let Some(repeat) = repeat else { return Vec::new() };
        let names = [Some(repeat.var.clone()), repeat.index_var.clone(), Some(LOOP_VAR.to_owned())];
        names.into_iter().flatten().filter(|name| self.frame.unknown.insert(name.clone())).collect()
    }

    fn task(&mut self, play: &'p Play, task: &'p Task) {
        let scope = self.frame.scope(play, task);
        match &task.repeat {
            None => self.item(task, &scope),
            Some(repeat) => match variable_scope::items(&scope, repeat) {
                Ok(items) => {
                    for index in 0..items.len() {
                        let inner =
                            self.frame.scope(play, task).with_layer(variable_scope::item_layer(repeat, &items, index));
                        self.item(task, &inner);
                    }
                }
                // Only the node knows the items of the loop.
                Err(_) if !matches!(variable_scope::all_hold(&scope, &task.when), Ok(false)) => {
                    let certain = variable_scope::all_hold(&scope, &task.when).is_ok();
                    self.value(task, &scope, &repeat.items, certain && !may_fail(task));
                    let names = self.guess_items(Some(repeat));
                    let inner = self.frame.scope(play, task);
                    self.walk_uncertain(|walk| walk.item(task, &inner));
                    self.frame.unknown.retain(|name| !names.contains(name));
                }
                Err(_) => {}
            },
        }
        self.review_after_task(play, task);
    }

    fn item(&mut self, task: &'p Task, scope: &ExprScope) {
        let holds = variable_scope::all_hold(scope, &task.when);
        self.conditions(task, scope);
        if matches!(holds, Ok(false)) {
            return;
        }
        if self.is_certain(task, &holds) {
            self.notified.extend(task.notify.iter().cloned());
        }
        if !self.never_reached && !task.notify.is_empty() && !refusals::is_never_true(scope, &task.when) {
            self.may_notify.extend(task.notify.iter().cloned());
        }
        if task.module == REFUSED {
            self.note_possible(task, None, scope);
            if self.is_certain(task, &holds) {
                self.refuse(task, None, refusal_message(&task.args).to_owned());
            }
            return;
        }
        self.texts(task, scope, holds.is_ok());
        // The prediction is about the host of the plan.
        if task.runs_elsewhere() {
            return;
        }
        let args = variable_scope::args(scope, task);
        self.seen.push(predicted_task(
            task,
            scope,
            args.as_ref().ok(),
            holds.is_ok() && !self.may_be_skipped && !self.may_be_skipped_or_fail,
        ));
        if task.module == "set_fact" {
            for (name, value) in args.clone().unwrap_or_default() {
                if holds.is_ok() && !self.may_be_skipped {
                    self.frame.set(&name, &value);
                }
            }
            if holds.is_err() || args.is_err() || self.may_be_skipped {
                task.args.keys().filter(|k| !has_markup(k)).for_each(|name| self.frame.forget(name));
            }
            return;
        }
        if task.module == "include_vars" {
            self.include_vars(task, args.as_ref().ok().filter(|_| holds.is_ok() && !self.may_be_skipped));
            return;
        }
        let target = ["dest", "path", "name"]
            .iter()
            .find_map(|name| args.as_ref().ok()?.get(*name)?.as_str().map(str::to_owned));
        let Some(path) = target.filter(|p| {
            p.starts_with('/')
                && (EDITS.contains(&task.module.as_str())
                    || matches!(task.module.as_str(), "template" | "copy" | "file"))
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
        if task.no_log || self.secrets.has_secret_text(&args) {
            self.hidden.insert(path.clone());
        }
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
        self.write_file(task, scope, path, &args, holds.is_ok());
    }

    /// Predicts the content of a file that a task writes or edits. `known` says whether the task's
    /// condition could be evaluated.
    fn write_file(&mut self, task: &'p Task, scope: &ExprScope, path: String, args: &Map<String, Value>, known: bool) {
        self.declared.insert(path.clone());
        let edits = EDITS.contains(&task.module.as_str());
        if edits && self.files.contains_key(&path) {
            let message =
                format!("{path} is changed here after a template made it, so its final content cannot be predicted");
            let fault = Fault::warn(&task.place.file, task.place.line, 1, message);
            self.faults.push(
                fault.hint("put the line into the template; otherwise drift of the file is reported, but not repaired"),
            );
        }
        let uncertain = !known || edits || args.get("remote_src").and_then(var_map::boolean) == Some(true);
        let (content, trace) = with_trace(|| modules::content_of(self.frame.plan(), task, args, scope));
        if let Err(ContentError::Template(fault)) = &content {
            let (template, text, scope) =
                modules::template_of(self.frame.plan(), task, args, scope).unwrap_or_else(|| ("", "", scope.clone()));
            let certain = known && !may_fail(task);
            if let Some((fault, always)) = classify_fault((template, text), (**fault).clone(), &trace, &scope) {
                self.note(fault, &scope, certain && always);
            }
        }
        match &content {
            Ok((content, source)) if self.secrets.is_secret_content(content, source) => {
                self.hidden.insert(path.clone());
            }
            Ok(_) | Err(_) => {}
        }
        match content {
            Ok((content, source)) if !uncertain => {
                let word = |name: &str| args.get(name).and_then(Value::as_str).map(str::to_owned);
                let file = RenderedFile {
                    sha256: Sha256::digest(&content),
                    mode: word("mode"),
                    owner: word("owner"),
                    group: word("group"),
                    secret: self.hidden.contains(&path),
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

    /// Includes the variables of a file. If only a run knows which file, all variables that any of
    /// the possible files sets become unknown.
    fn include_vars(&mut self, task: &Task, args: Option<&Map<String, Value>>) {
        let name = |args: &Map<String, Value>| args.get("name").and_then(Value::as_str).map(str::to_owned);
        let layer = args.and_then(|args| task.files.vars_files.get(args.get("file")?.as_str()?));
        match (args, layer) {
            (Some(args), Some(layer)) => self.frame.include(*layer, name(args).as_deref()),
            _ => self.frame.forget_files(task),
        }
    }

    /// Reviews the conditions of a task up to the first that does not hold.
    fn conditions(&mut self, task: &Task, scope: &ExprScope) {
        if self.review.is_some() {
            self.review_conditions(task, &task.when, scope, !may_fail(task));
        }
    }

    /// Reviews all texts of a task that are rendered before its module runs, except the file of a
    /// template.
    fn texts(&mut self, task: &Task, scope: &ExprScope, certain: bool) {
        if self.review.is_none() {
            return;
        }
        let certain = certain && !may_fail(task);
        for (name, value) in &task.args {
            match (task.module.as_str(), name.as_str()) {
                ("debug", "var") => {}
                ("assert", "that") => {
                    let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    for text in all.iter().filter_map(Value::as_str).filter(|text| !has_markup(text)) {
                        self.value(task, scope, &Value::String(format!("{{{{ {text} }}}}")), certain);
                    }
                }
                _ => self.value(task, scope, value, certain),
            }
        }
        for value in &task.environment {
            self.value(task, scope, value, certain);
        }
        for text in [&task.privileges.elevated_if, &task.privileges.become_user].into_iter().flatten() {
            self.value(task, scope, &Value::String(text.clone()), certain);
        }
    }

    /// Reviews every text with markup in a value.
    fn value(&mut self, task: &Task, scope: &ExprScope, value: &Value, certain: bool) {
        match value {
            Value::String(text) if has_markup(text) => {
                let (told, trace) = with_trace(|| expr::native(scope, text).and_then(|v| expr::to_json(&v)));
                if let Err(e) = told {
                    self.inline(&task.place, text, &e, &trace, scope, certain);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.value(task, scope, item, certain)),
            Value::Object(map) => map.values().for_each(|item| self.value(task, scope, item, certain)),
            _ => {}
        }
    }

    /// Reports an error in a text of a playbook. The text begins at `place` or after it.
    fn inline(
        &mut self,
        place: &SourcePlace,
        text: &str,
        error: &minijinja::Error,
        trace: &Trace,
        scope: &ExprScope,
        certain: bool,
    ) {
        let Some(files) = self.review.as_ref().map(|review| review.files) else { return };
        let fault = TemplateFault::of_jinja(&place.file, text, error, trace, scope);
        let Some((mut fault, always)) = classify_fault((&place.file, text), fault, trace, scope) else { return };
        let source = files.text(&place.file).unwrap_or_default();
        let found = find(source, place.line, fault.variable.as_deref().unwrap_or_default());
        (fault.line, fault.column) = found.unwrap_or((place.line, 1));
        self.note(fault, scope, certain && always);
    }

    fn note(&mut self, fault: TemplateFault, scope: &ExprScope, certain: bool) {
        let Some(review) = &self.review else { return };
        // Tasks of which only a run knows the names that they set may set this one.
        let name = fault.variable.as_deref().and_then(|name| name.split('.').next()).unwrap_or_default();
        if fault.undefined && scope.get(name).is_none() && self.frame.plan().computes_names().is_some() {
            self.unreported += 1;
            return;
        }
        self.faults.push(
            fault
                .with_hint(review.names, scope)
                .fault(certain && !self.may_be_skipped_or_fail && !self.frame.plan().sets_unknown_facts()),
        );
    }

    /// Adds to a predicted file the mode, owner and group that a `file` task sets for it.
    fn attributes(&mut self, path: &str, args: &Map<String, Value>) {
        let Some(file) = self.files.get_mut(path) else { return };
        for (name, slot) in [("mode", &mut file.mode), ("owner", &mut file.owner), ("group", &mut file.group)] {
            if let Some(value) = args.get(name).and_then(Value::as_str) {
                *slot = Some(value.to_owned());
            }
        }
    }
}

/// Returns the error to report for a template (path and text) that failed, and whether the error
/// occurs in every run. It does if the template read no value that only a run knows. If rendering
/// stopped at such a value, the other names in the template are searched for an error.
fn classify_fault(
    (path, text): (&str, &str),
    fault: TemplateFault,
    trace: &Trace,
    scope: &ExprScope,
) -> Option<(TemplateFault, bool)> {
    if !trace.unknown {
        return Some((fault, true));
    }
    let root = fault.variable.as_deref().and_then(|name| name.split('.').next()).unwrap_or_default();
    if fault.undefined && scope.get(root).is_some() {
        let here = |u: &lint::VariableUse| lint::place(text, u.offset).0 == fault.line && !u.conditional;
        let always = !lint::lenient(text) && lint::uses(text, root).iter().any(here);
        return Some((fault, always));
    }
    TemplateFault::of_names(path, text, Language::for_path(path), scope)
}

/// Makes the prediction for a task. All words of a command are rendered, although a run renders
/// them one by one.
fn predicted_task(task: &Task, scope: &ExprScope, args: Option<&Map<String, Value>>, certain: bool) -> PredictedTask {
    let mut args = args.cloned();
    if let Some(words) = task.args.get("words") {
        let rendered = expr::render_json(scope, words).ok();
        args = args.zip(rendered).map(|(mut args, words)| {
            args.insert("words".to_owned(), words);
            args
        });
    }
    let in_part = args.is_none().then(|| variable_scope::known_args(scope, task));
    let (place, module, written) = (task.place.clone(), task.module.clone(), task.args.clone());
    PredictedTask { place, module, args, in_part, written, certain }
}

/// Whether a failure of the task may be ignored by the run.
fn may_fail(task: &Task) -> bool {
    task.outcome.ignore_errors.as_ref().is_some_and(|ignore| *ignore != Value::Bool(false))
        || task.outcome.failed_when.is_some()
}

/// The first position of `name` from `line` on. For `name.field`, the position of `name`. Searches
/// `LINES_SEARCHED` lines, because tasks are rarely longer.
fn find(source: &str, line: u32, name: &str) -> Option<(u32, u32)> {
    let root = name.split('.').next().filter(|root| !root.is_empty())?;
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (at, text) in source.lines().enumerate().skip(line.saturating_sub(1) as usize).take(LINES_SEARCHED) {
        let whole = text
            .match_indices(root)
            .find(|(from, _)| !text[..*from].ends_with(is_word) && !text[from + root.len()..].starts_with(is_word));
        if let Some((from, _)) = whole {
            return Some((u32::try_from(at + 1).ok()?, u32::try_from(text[..from].chars().count() + 1).ok()?));
        }
    }
    None
}
