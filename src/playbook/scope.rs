//! The variables in force at one task, as the root object of every expression.
//!
//! Layers are searched from the last to the first. A template among the values is rendered when it is looked up, at most
//! `DEPTH_MAX` deep, so a variable that names itself is an error and not a hang.

use super::data::{Var, VarMap};
use super::expr;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use minijinja::{Error, ErrorKind, State};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Variables that refer to variables, this deep.
const DEPTH_MAX: u32 = 24;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

/// Names kept of one trace.
const MISSED_MAX: usize = 64;

/// Which names an evaluation asked for in vain. Functions of the engine are among them: it asks for a variable first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Nobody defines them; in the order they were asked for.
    pub missed: Vec<String>,
    /// A name was read whose value only a run can tell.
    pub unknown: bool,
}

/// `f` with an account of what it read; an account around it gets it too.
pub fn traced<T>(f: impl FnOnce() -> T) -> (T, Trace) {
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

/// What expressions are evaluated against. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Scope(Arc<Layers>);

#[derive(Debug, Default)]
struct Layers {
    layers: Vec<Arc<VarMap>>,
    /// Names whose value only a run can tell; reading one is an error of its own kind.
    unknown: BTreeSet<String>,
}

/// Message of the error that reading an unknown name gives; whoever must tell it from others looks at the `Trace`.
const UNKNOWN: &str = "known only during a run";

impl Scope {
    pub fn new(layers: Vec<Arc<VarMap>>, unknown: BTreeSet<String>) -> Self {
        Self(Arc::new(Layers { layers, unknown }))
    }

    /// This scope with one more layer above all others.
    pub fn with(&self, layer: VarMap) -> Self {
        let mut layers = self.0.layers.clone();
        layers.push(Arc::new(layer));
        Self::new(layers, self.0.unknown.clone())
    }

    pub fn get(&self, name: &str) -> Option<&Var> {
        self.0.layers.iter().rev().find_map(|layer| layer.get(name))
    }

    /// The object that templates see.
    pub fn root(&self) -> Value {
        Value::from_object(Root(self.clone()))
    }

    /// Whether only a run can tell the value of `name`; reading one for that purpose counts as reading it.
    pub fn asks_a_run(&self, name: &str) -> bool {
        let unknown = self.get(name).is_none() && self.unknown(name);
        if unknown {
            note(|trace| trace.unknown = true);
        }
        unknown
    }

    /// Whether `name` has a value here, or will have one in a run.
    pub fn knows(&self, name: &str) -> bool {
        self.get(name).is_some() || self.unknown(name) || name == "vars"
    }

    /// Interfaces are facts of their own names, which no list has; where nothing is left to a run, they are not there.
    fn unknown(&self, name: &str) -> bool {
        self.0.unknown.contains(name) || !self.0.unknown.is_empty() && super::facts::known(name)
    }

    /// Every name that has a value.
    pub fn names(&self) -> BTreeSet<Arc<str>> {
        self.0.layers.iter().flat_map(|layer| layer.iter().map(|(k, _)| k.clone())).collect()
    }

    fn value(&self, name: &str, var: &Var) -> Value {
        match var {
            Var::Plain(value) => plain(value),
            Var::Template(text) => self.render(name, text),
            Var::List(items) => Value::from_object(LazyList { scope: self.clone(), items: items.clone() }),
            Var::Map(map) => Value::from_object(LazyMap { scope: self.clone(), map: map.clone() }),
            Var::Unknown => unknown(name),
        }
    }

    fn render(&self, name: &str, text: &str) -> Value {
        let depth = DEPTH.get();
        if depth >= DEPTH_MAX {
            let message = format!("variable `{name}` refers to itself, or over {DEPTH_MAX} variables deep");
            return Value::from(Error::new(ErrorKind::InvalidOperation, message));
        }
        DEPTH.set(depth + 1);
        let result = expr::native(self, text);
        DEPTH.set(depth);
        result.unwrap_or_else(|e| {
            let message = format!("in variable `{name}`: {}", expr::explain(&e));
            Value::from(Error::new(e.kind(), message))
        })
    }
}

/// What only a real run can tell. Reading it counts as that.
fn unknown(name: &str) -> Value {
    note(|trace| trace.unknown = true);
    Value::from(Error::new(ErrorKind::InvalidOperation, format!("`{name}` is not known in check mode")))
}

/// A scalar without templates.
pub fn plain(value: &serde_json::Value) -> Value {
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

/// A JSON value as data, in its own order, never rendered.
pub fn value_of(value: &serde_json::Value) -> Value {
    Scope::default().value("value", &Var::new(value, false))
}

/// A JSON object as data.
pub fn object(map: &serde_json::Map<String, serde_json::Value>) -> Value {
    let map = Arc::new(VarMap::untrusted(map));
    Value::from_object(LazyMap { scope: Scope::default(), map })
}

/// An error where only the node can answer, and this is not it: a template is looked at before its run.
pub fn on_the_node(state: &State) -> Result<(), Error> {
    let vars = state.lookup("vars");
    let looked_at =
        vars.as_ref().and_then(|v| v.downcast_object_ref::<Root>()).is_some_and(|r| !r.0.0.unknown.is_empty());
    if looked_at {
        note(|trace| trace.unknown = true);
        return Err(Error::new(ErrorKind::InvalidOperation, format!("it is {UNKNOWN}")));
    }
    Ok(())
}

/// How many variables deep the current evaluation is.
pub fn depth() -> u32 {
    DEPTH.get()
}

#[derive(Debug)]
struct Root(Scope);

impl Object for Root {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.get_value_by_str(key.as_str()?)
    }
    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        if let Some(var) = self.0.get(key) {
            return Some(self.0.value(key, var));
        }
        if self.0.asks_a_run(key) {
            return Some(Value::from(Error::new(ErrorKind::InvalidOperation, format!("`{key}` is {UNKNOWN}"))));
        }
        if key != "vars" {
            note(|trace| {
                if trace.missed.len() < MISSED_MAX {
                    trace.missed.push(key.to_owned());
                }
            });
            return None;
        }
        Some(Value::from_object(Root(self.0.clone())))
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.names().into_iter().map(Value::from).collect())
    }
}

#[derive(Debug)]
struct LazyMap {
    scope: Scope,
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
            None => self.map.is_open().then(|| unknown(key)),
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
    scope: Scope,
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
