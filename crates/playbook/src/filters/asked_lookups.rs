//! Lookups that the controller answers during `remoor play`: those that the run cannot answer
//! itself, because they read files, commands or services of the controller. Filters and tests of
//! Python are calls of the same kind.
//!
//! The run asks with the evaluated arguments. The controller evaluates the task again with its own
//! variables. It performs a lookup only if this evaluation makes the same call (`LookupSearch`).

use super::{PluginKind, failure};
use crate::vars::scope::{ExprScope, note_unknown, scope_of, value_of};
use crate::vars::var_map::Var;
use base64::Engine as _;
use minijinja::{Error, State, Value};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The variable with the answers for a delegated task. A playbook cannot have a variable of this
/// name.
pub const LOOKUP_ANSWERS: &str = "answers of lookups";
/// The error of an evaluation that has made the wanted call.
const STOPPED: &str = "the controller has found this lookup";

/// A call of a lookup with its evaluated arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LookupCall {
    /// The kind of plugin, because filters and tests of Python are called in the same way.
    #[serde(default, skip_serializing_if = "PluginKind::is_lookup")]
    pub plugin: PluginKind,
    pub name: String,
    /// The arguments. The first one of a filter or test is its input.
    pub terms: Vec<Json>,
    #[serde(default)]
    pub options: Map<String, Json>,
}

impl LookupCall {
    pub fn new(name: &str, terms: Vec<Json>) -> Self {
        Self { plugin: PluginKind::Lookup, name: name.to_owned(), terms, options: Map::new() }
    }

    /// The kind and the name, for messages.
    pub fn label(&self) -> String {
        match self.plugin {
            PluginKind::Lookup => format!("lookup {}", self.name),
            PluginKind::Filter | PluginKind::Test | PluginKind::FileTest => {
                format!("{} `{}`", self.plugin.as_word(), self.name)
            }
        }
    }

    /// Identifies the call among all calls of a run.
    pub fn key(&self) -> String {
        let options: BTreeMap<&String, &Json> = self.options.iter().collect();
        serde_json::to_string(&(self.plugin, &self.name, &self.terms, options)).unwrap_or_default()
    }
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupAnswer {
    /// The items that the lookup has found. They are data and never rendered.
    Items(Vec<Json>),
    /// The lookup failed with this message.
    Failed(String),
    /// Check mode cannot know the answer.
    Unknown,
}

/// Answers calls during a run.
pub trait AnswersLookups: std::fmt::Debug + Send + Sync {
    fn answer(&self, scope: &ExprScope, call: &LookupCall) -> LookupAnswer;
}

/// Answers that the controller has given to a run, by `LookupCall::key`.
pub type KnownAnswers = BTreeMap<String, Vec<Json>>;

/// An evaluation on the controller.
#[derive(Debug, Default)]
struct LookupSearch {
    answers: Arc<KnownAnswers>,
    /// The key of the call that the run has asked for.
    wanted: Option<String>,
    /// Whether the evaluation has made the wanted call.
    found: bool,
    /// The answers that the evaluation has read.
    read: KnownAnswers,
}

thread_local! {
    static SEARCH: RefCell<Option<LookupSearch>> = const { RefCell::new(None) };
}

/// Restores the search of the surrounding evaluation, also after a panic.
struct Restore(Option<LookupSearch>);

impl Drop for Restore {
    fn drop(&mut self) {
        SEARCH.replace(self.0.take());
    }
}

/// Calls `f` on the controller, with the answers that the run has got.
pub fn with_lookup_answers<T>(answers: Arc<KnownAnswers>, f: impl FnOnce() -> T) -> T {
    let _restore = Restore(SEARCH.replace(Some(LookupSearch { answers, ..LookupSearch::default() })));
    f()
}

/// Calls `evaluate`, which evaluates texts of the plan, until one of them makes the call `wanted`.
/// Returns whether one did. `evaluate` should end as soon as `has_found` is true.
pub fn makes_call(wanted: &LookupCall, evaluate: impl FnOnce()) -> bool {
    let answers = SEARCH.with_borrow(|search| search.as_ref().map(|search| search.answers.clone()));
    let search =
        LookupSearch { answers: answers.unwrap_or_default(), wanted: Some(wanted.key()), ..LookupSearch::default() };
    let _restore = Restore(SEARCH.replace(Some(search)));
    evaluate();
    has_found()
}

/// Whether the evaluation of `makes_call` has made the wanted call.
pub fn has_found() -> bool {
    SEARCH.with_borrow(|search| search.as_ref().is_some_and(|search| search.found))
}

/// The variable with the answers that the evaluation on the controller has read so far.
pub fn answers_read() -> Option<Json> {
    let read = SEARCH.with_borrow(|search| search.as_ref().map(|search| search.read.clone()))?;
    let text = serde_json::to_vec(&read).ok().filter(|_| !read.is_empty())?;
    // The answers are data, and the variables of a plan are templates.
    Some(Json::String(base64::engine::general_purpose::STANDARD.encode(text)))
}

/// Whether lookups that the controller can answer have an answer in this evaluation.
pub(super) fn are_answered(state: &State) -> bool {
    let answers = |scope: ExprScope| {
        scope.host_layers().is_some_and(|own| own.answers.is_some()) || scope.get(LOOKUP_ANSWERS).is_some()
    };
    SEARCH.with_borrow(Option::is_some) || scope_of(state).is_some_and(answers)
}

/// The items that the controller finds.
pub(super) fn ask(state: &State, call: &LookupCall) -> Result<Vec<Value>, Error> {
    let found = ask_controller(&scope_of(state).unwrap_or_default(), call)?;
    Ok(found.iter().map(value_of).collect())
}

/// The items that the controller finds, for an expression with this scope.
pub fn ask_controller(scope: &ExprScope, call: &LookupCall) -> Result<Vec<Json>, Error> {
    let searched = SEARCH.with_borrow_mut(|search| {
        let search = search.as_mut()?;
        let key = call.key();
        if search.wanted.as_ref() == Some(&key) {
            search.found = true;
            return Some(Err(failure(STOPPED)));
        }
        let known = search.answers.get(&key).cloned();
        search.read.extend(known.clone().map(|known| (key, known)));
        Some(known.ok_or_else(|| failure(format!("{}: the run has not asked for it", call.label()))))
    });
    if let Some(known) = searched {
        return known;
    }
    if let Some(known) = given_answers(scope).and_then(|mut known| known.remove(&call.key())) {
        return Ok(known);
    }
    match scope.host_layers().and_then(|own| own.answers.as_ref()).map(|answers| answers.answer(scope, call)) {
        Some(LookupAnswer::Items(found)) => Ok(found),
        Some(LookupAnswer::Failed(why)) => Err(failure(format!("{}: {why}", call.label()))),
        Some(LookupAnswer::Unknown) => {
            note_unknown();
            Err(failure(format!("{}: it depends on tasks that were not run", call.label())))
        }
        None => {
            scope.fail_before_run()?;
            Err(failure(format!("{} `{}` {ONLY_IN_PLAY}", call.plugin.as_word(), call.name)))
        }
    }
}

/// The end of the sentence about a lookup that only a controller answers.
pub const ONLY_IN_PLAY: &str =
    "works only during `remoor play`, because managers read no files and run no commands for a node";

/// The answers in a plan of a delegated task.
fn given_answers(scope: &ExprScope) -> Option<KnownAnswers> {
    let Some(Var::Plain(Json::String(text))) = scope.get(LOOKUP_ANSWERS) else { return None };
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    serde_json::from_slice(&bytes).ok()
}
