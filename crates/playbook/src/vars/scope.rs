//! The variables that are visible to one task; the root object of every expression.
//!
//! Layers are searched from the last to the first. A template is rendered when its variable is
//! read, at most `DEPTH_MAX` levels deep. So a variable that refers to itself causes an error, not
//! an endless loop.

use crate::filters::{AnswersLookups, own_container};
use crate::template::expr;
use crate::vars::hostvars;
use crate::vars::var_map::{Var, VarMap};
use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use minijinja::{Error, ErrorKind, State};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum depth of variables that refer to variables.
const DEPTH_MAX: usize = 24;

thread_local! {
    /// The variables that are being rendered, outermost first.
    static OPEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
    /// Whether a variable whose template reads an undefined value is undefined itself.
    static PASSES_UNDEFINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`. Within it, a variable whose template reads an undefined value is undefined itself, as
/// in Ansible. Otherwise its value is an error that explains why.
pub fn passing_undefined<T>(f: impl FnOnce() -> T) -> T {
    /// Restores the value also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            PASSES_UNDEFINED.set(self.0);
        }
    }
    let _restore = Restore(PASSES_UNDEFINED.replace(true));
    f()
}

/// Maximum number of names kept in one trace.
const MISSED_MAX: usize = 64;

/// The variables that one evaluation read without finding a value. The names of minijinja's
/// functions are among them, because minijinja looks for a variable of that name first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Names that nothing defines, in the order in which they were read.
    pub missed: Vec<String>,
    /// Whether a name was read whose value is only known during a run.
    pub unknown: bool,
}

/// Runs `f` and records its reads. If `f` runs inside another trace, that trace receives the reads
/// too.
pub fn with_trace<T>(f: impl FnOnce() -> T) -> (T, Trace) {
    let around = TRACE.replace(Some(Trace::default()));
    let out = f();
    let mine = TRACE.replace(around).unwrap_or_default();
    note(|trace| {
        trace.unknown |= mine.unknown;
        let room = MISSED_MAX.saturating_sub(trace.missed.len());
        trace.missed.extend(mine.missed.iter().take(room).cloned());
    });
    (out, mine)
}

fn note(f: impl FnOnce(&mut Trace)) {
    TRACE.with_borrow_mut(|trace| trace.as_mut().map(f));
}

/// The variables that expressions are evaluated with. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ExprScope(Arc<Layers>);

#[derive(Debug, Default)]
struct Layers {
    layers: Vec<Arc<VarMap>>,
    /// Names of variables whose value is only known during a run. To read one of them is an error
    /// with the text `UNKNOWN`.
    unknown: BTreeSet<String>,
    own: Option<Arc<HostLayers>>,
}

/// The values that `hostvars` adds to the inventory variables of the plan's own host.
#[derive(Debug)]
pub struct HostLayers {
    pub name: String,
    /// Maps of the variables, in ascending order of precedence.
    pub layers: Vec<Arc<VarMap>>,
    /// Variables that the run has set for other hosts, by host.
    pub others: Arc<BTreeMap<String, VarMap>>,
    /// Whether a value of another host that is missing may be known only during a run.
    pub others_change: bool,
    /// The place of the task, in whose directories lookups search files.
    pub place: String,
    /// Answers the lookups that only the controller can answer. None: there is no controller.
    pub answers: Option<Arc<dyn AnswersLookups>>,
}

/// The message of the error for the read of an unknown name. Code that must recognize this error
/// uses the `Trace`.
const UNKNOWN: &str = "known only during a run";

impl ExprScope {
    pub fn new(layers: Vec<Arc<VarMap>>, unknown: BTreeSet<String>) -> Self {
        Self(Arc::new(Layers { layers, unknown, own: None }))
    }

    /// Returns this scope, but `hostvars` of the plan's own host then contains the values of `own`.
    pub fn with_host(&self, own: Arc<HostLayers>) -> Self {
        let (layers, unknown) = (self.0.layers.clone(), self.0.unknown.clone());
        Self(Arc::new(Layers { layers, unknown, own: Some(own) }))
    }

    /// Returns this scope, but the names `unknown` have values only during a run.
    pub fn with_unknown(&self, unknown: BTreeSet<String>) -> Self {
        Self(Arc::new(Layers { layers: self.0.layers.clone(), unknown, own: self.0.own.clone() }))
    }

    /// The values that `with_host` has set, if any.
    pub fn host_layers(&self) -> Option<&Arc<HostLayers>> {
        self.0.own.as_ref()
    }

    /// The layers in ascending order of precedence.
    pub fn layers(&self) -> &[Arc<VarMap>] {
        &self.0.layers
    }

    /// Returns this scope with one more layer of the highest precedence.
    pub fn with_layer(&self, layer: VarMap) -> Self {
        let mut layers = self.0.layers.clone();
        layers.push(Arc::new(layer));
        Self(Arc::new(Layers { layers, unknown: self.0.unknown.clone(), own: self.0.own.clone() }))
    }

    pub fn get(&self, name: &str) -> Option<&Var> {
        self.0.layers.iter().rev().find_map(|layer| layer.get(name))
    }

    /// The object whose fields are the variables that a template can read.
    pub fn root(&self) -> Value {
        Value::from_object(Root(self.clone(), None))
    }

    /// Like `root`, for a text that changes lists or maps in place. As in Ansible, the change of a
    /// variable lasts as long as the evaluation of this text. So each variable is evaluated once.
    pub fn changeable_root(&self) -> Value {
        Value::from_object(Root(self.clone(), Some(Mutex::default())))
    }

    /// Whether the value of `name` is only known during a run. If so, the trace records the read.
    pub fn asks_a_run(&self, name: &str) -> bool {
        let unknown = self.get(name).is_none() && self.is_unknown(name);
        if unknown {
            note(|trace| trace.unknown = true);
        }
        unknown
    }

    /// Whether `name` has a value now or will have one during a run.
    pub fn knows(&self, name: &str) -> bool {
        self.get(name).is_some() || self.is_unknown(name) || name == "vars"
    }

    /// Whether `name` has a value only during a run. Facts about network interfaces have names that
    /// no list contains. Before a run, when `unknown` is not empty, any name of such a fact counts
    /// as unknown.
    fn is_unknown(&self, name: &str) -> bool {
        self.0.unknown.contains(name) || !self.0.unknown.is_empty() && crate::facts::is_known(name)
    }

    /// Fails before a run, for values that only a run knows. The trace records the read.
    pub fn fail_before_run(&self) -> Result<(), Error> {
        if self.0.unknown.is_empty() {
            return Ok(());
        }
        note_unknown();
        Err(Error::new(ErrorKind::InvalidOperation, format!("it is {UNKNOWN}")))
    }

    /// Names whose value is only known during a run.
    pub fn unknown_names(&self) -> &BTreeSet<String> {
        &self.0.unknown
    }

    /// Every name that has a value.
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        self.0.layers.iter().flat_map(|layer| layer.iter().map(|(k, _)| k.clone())).collect()
    }

    /// The value of the variable `name`. Templates in it are rendered with this scope.
    pub fn value(&self, name: &str, var: &Var) -> Value {
        match var {
            Var::Plain(value) => plain_value(value),
            Var::Template(text) => self.render(name, text),
            Var::List(items) => Value::from_object(LazyList { scope: self.clone(), items: items.clone() }),
            Var::Map(map) => Value::from_object(LazyMap { scope: self.clone(), map: map.clone() }),
            Var::Unknown => unknown_in_check(name),
            Var::Sealed => refuse_sealed(name),
        }
    }

    fn render(&self, name: &str, text: &str) -> Value {
        let too_deep = OPEN.with_borrow(|open| (open.len() >= DEPTH_MAX).then(|| Endless::from_chain(open, name)));
        if let Some(endless) = too_deep {
            let message = match endless.is_circle() {
                true => "variables refer to each other endlessly".to_owned(),
                false => format!("variables refer to each other more than {DEPTH_MAX} levels deep"),
            };
            return Value::from(Error::new(ErrorKind::InvalidOperation, message).with_source(endless));
        }
        OPEN.with_borrow_mut(|open| open.push(name.to_owned()));
        let result = expr::native(self, text);
        OPEN.with_borrow_mut(Vec::pop);
        result.unwrap_or_else(|e| {
            // The error of the inner variable already contains the whole chain of variables.
            if Endless::is_in(&e) {
                return Value::from(e);
            }
            if e.kind() == ErrorKind::UndefinedError && PASSES_UNDEFINED.get() {
                return Value::UNDEFINED;
            }
            let message = format!("in variable `{name}`: {}", expr::explain(&e));
            Value::from(Error::new(e.kind(), message))
        })
    }
}

/// The error for variables that refer to each other without end: the chain of their names.
#[derive(Debug)]
struct Endless(Vec<String>);

impl Endless {
    /// `open` are the variables being rendered, and the last of them refers to `name`. A cycle is
    /// listed once.
    fn from_chain(open: &[String], name: &str) -> Self {
        let from = open.iter().rposition(|other| other == name).unwrap_or_default();
        Self(open[from..].iter().map(String::as_str).chain([name]).map(str::to_owned).collect())
    }

    fn is_circle(&self) -> bool {
        self.0.first() == self.0.last()
    }

    fn is_in(error: &Error) -> bool {
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            if inner.is::<Self>() {
                return true;
            }
            source = inner.source();
        }
        false
    }
}

impl std::fmt::Display for Endless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.join(" -> "))
    }
}

impl std::error::Error for Endless {}

/// Makes an error as the value of `name`, because the real value is only known during a run.
pub fn unknown_now(name: &str) -> Value {
    Value::from(Error::new(ErrorKind::InvalidOperation, format!("`{name}` is {UNKNOWN}")))
}

/// Like `unknown_now`. The trace records the read.
pub fn ask_a_run(name: &str) -> Value {
    note(|trace| trace.unknown = true);
    unknown_now(name)
}

/// Makes an error as the value of `name`, because check mode cannot know the real value. The trace
/// records the read.
fn unknown_in_check(name: &str) -> Value {
    note(|trace| trace.unknown = true);
    Value::from(Error::new(ErrorKind::InvalidOperation, format!("`{name}` is not known in check mode")))
}

/// Makes an error as the value of `name`, because no vault password opens the real value. The trace
/// records the read, as for a value that only a run knows.
fn refuse_sealed(name: &str) -> Value {
    note(|trace| trace.unknown = true);
    Value::from(Error::new(
        ErrorKind::InvalidOperation,
        format!("`{name}` is encrypted, and no vault password opens it"),
    ))
}

/// The value of a scalar that is not a template.
pub fn plain_value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::String(s) => Value::from(s.as_str()),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => value_of(value),
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(b) => Value::from(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => Value::from(n),
            (_, Some(n), _) => Value::from(n),
            (_, _, n) => Value::from(n.unwrap_or(f64::NAN)),
        },
    }
}

/// A JSON value as data. It is never rendered, and its maps keep their order.
pub fn value_of(value: &serde_json::Value) -> Value {
    ExprScope::default().value("value", &Var::new(value, false))
}

/// A JSON object as data.
pub fn object(map: &serde_json::Map<String, serde_json::Value>) -> Value {
    let map = Arc::new(VarMap::from_untrusted(map));
    Value::from_object(LazyMap { scope: ExprScope::default(), map })
}

/// Notes that the current evaluation read a value that is only known during a run.
pub fn note_unknown() {
    note(|trace| trace.unknown = true);
}

/// Fails before a run. Filters and tests whose result only the node knows call this function.
pub fn on_the_node(state: &State) -> Result<(), Error> {
    scope_of(state).map_or(Ok(()), |scope| scope.fail_before_run())
}

/// The scope that a filter or function is evaluated with.
pub fn scope_of(state: &State) -> Option<ExprScope> {
    state.lookup("vars")?.downcast_object_ref::<Root>().map(|root| root.0.clone())
}

/// Returns the variables `vars` with the variable `name`, if they do not contain it.
pub fn with_default(vars: Value, name: &str, value: &str) -> Value {
    let Some(scope) = vars.downcast_object_ref::<Root>().map(|root| &root.0).filter(|scope| !scope.knows(name)) else {
        return vars;
    };
    let mut layer = VarMap::default();
    layer.set(name, Var::Plain(value.into()));
    scope.with_layer(layer).root()
}

/// Returns the variables `vars` with these values, which take precedence. They are data.
pub fn with_values(vars: Value, values: &serde_json::Map<String, serde_json::Value>) -> Value {
    match vars.downcast_object_ref::<Root>().filter(|_| !values.is_empty()) {
        Some(root) => root.0.with_layer(VarMap::from_untrusted(values)).root(),
        None => vars,
    }
}

/// The variables `vars` for a text that changes lists or maps in place.
pub fn changeable(vars: Value) -> Value {
    vars.downcast_object_ref::<Root>().map_or_else(|| vars.clone(), |root| root.0.changeable_root())
}

/// The number of nested variables that the current evaluation is rendering.
pub fn depth() -> usize {
    OPEN.with_borrow(Vec::len)
}

/// The variables of a scope, and the values that the text changes in place, by name.
#[derive(Debug)]
struct Root(ExprScope, Option<Mutex<BTreeMap<String, Value>>>);

/// Variables that stay constant, because a copy of them would be large or would not stay lazy.
const CONSTANT: [&str; 4] = ["ansible_facts", "groups", hostvars::NAME, "vars"];

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        let Some(changed) = self.1.as_ref().filter(|_| !CONSTANT.contains(&key)) else { return self.find(key) };
        let all = || changed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all().get(key).cloned();
        known.or_else(|| {
            let value = self.find(key)?;
            // A value that fails stays lazy, because the text may not use the part that fails.
            let value = own_container(&value).unwrap_or(value);
            all().insert(key.to_owned(), value.clone());
            Some(value)
        })
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.names().into_iter().map(Value::from).collect())
    }
}

impl Root {
    fn find(&self, key: &str) -> Option<Value> {
        match self.0.get(key) {
            Some(Var::Map(all)) if key == hostvars::NAME => return Some(hostvars::value(&self.0, all)),
            Some(var) => return Some(self.0.value(key, var)),
            None => {}
        }
        if self.0.asks_a_run(key) {
            return Some(unknown_now(key));
        }
        if key != "vars" {
            note(|trace| {
                if trace.missed.len() < MISSED_MAX {
                    trace.missed.push(key.to_owned());
                }
            });
            return None;
        }
        Some(self.0.root())
    }
}

#[derive(Debug)]
struct LazyMap {
    scope: ExprScope,
    map: Arc<VarMap>,
}

impl Object for LazyMap {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some(key) => self.get_value_by_str(key),
            None => self.get_value_by_str(&key.to_string()),
        }
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        match self.map.get(key) {
            Some(var) => Some(self.scope.value(key, var)),
            None => self.map.is_open().then(|| unknown_in_check(key)),
        }
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        if self.map.is_open() {
            note(|trace| trace.unknown = true);
        }
        Enumerator::Values(self.map.iter().map(|(k, _)| Value::from(k.clone())).collect())
    }
    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.map.len())
    }
}

#[derive(Debug)]
struct LazyList {
    scope: ExprScope,
    items: Arc<Vec<Var>>,
}

impl Object for LazyList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let at = key.as_usize()?;
        self.items.get(at).map(|var| self.scope.value(&format!("[{at}]"), var))
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }
}
