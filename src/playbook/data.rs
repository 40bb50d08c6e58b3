//! Variables as the expressions see them: ordered, shared, and rendered only when somebody asks.
//!
//! A text that came from a playbook or the inventory may be a template; a text that came from the node (facts, registers)
//! is data and is never rendered. Which it is, is decided here once, when the value comes in.

use super::unknown;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One variable's value.
#[derive(Debug, Clone)]
pub enum Var {
    /// Null, boolean, number, or a text without markup.
    Plain(Value),
    /// A text to be rendered whenever it is read.
    Template(Arc<str>),
    List(Arc<Vec<Var>>),
    Map(Arc<VarMap>),
    /// Check mode can't tell.
    Unknown,
}

/// Names to values, in the order they were written.
#[derive(Debug, Clone, Default)]
pub struct VarMap {
    pairs: Vec<(Arc<str>, Var)>,
    index: BTreeMap<Arc<str>, usize>,
    /// Names that are not in it are UNKNOWN.
    open: bool,
}

impl VarMap {
    /// Values from playbooks and inventories: texts with markup are templates.
    pub fn trusted(map: &Map<String, Value>) -> Self {
        Self::from_json(map, true)
    }

    /// Values from the node: never rendered.
    pub fn untrusted(map: &Map<String, Value>) -> Self {
        Self::from_json(map, false)
    }

    fn from_json(map: &Map<String, Value>, trusted: bool) -> Self {
        let mut out = Self::default();
        for (name, value) in map {
            if unknown::is_mark(name) {
                out.open = true;
            } else {
                out.set(name, Var::new(value, trusted));
            }
        }
        out
    }

    /// Whether names that it does not have are UNKNOWN.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// The same with these variables over it.
    pub fn over(mut self, shared: &BTreeMap<String, Shared>) -> Self {
        shared.iter().for_each(|(name, value)| self.set(name, value.var().clone()));
        self
    }

    pub fn set(&mut self, name: &str, value: Var) {
        match self.index.get(name) {
            Some(&at) => self.pairs[at].1 = value,
            None => {
                let name: Arc<str> = name.into();
                self.index.insert(name.clone(), self.pairs.len());
                self.pairs.push((name, value));
            }
        }
    }

    pub fn get(&self, name: &str) -> Option<&Var> {
        self.index.get(name).map(|&at| &self.pairs[at].1)
    }

    /// The same without these names.
    pub fn without(&self, names: &BTreeSet<String>) -> Self {
        let mut out = Self::default();
        self.iter().filter(|(name, _)| !names.contains(&***name)).for_each(|(name, var)| out.set(name, var.clone()));
        out
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Var)> {
        self.pairs.iter().map(|(k, v)| (k, v))
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }
}

impl Var {
    pub fn new(value: &Value, trusted: bool) -> Self {
        match value {
            Value::String(s) if unknown::is_mark(s) => Self::Unknown,
            Value::String(s) if trusted && has_markup(s) => Self::Template(s.as_str().into()),
            Value::Array(items) => Self::List(Arc::new(items.iter().map(|item| Self::new(item, trusted)).collect())),
            Value::Object(map) => Self::Map(Arc::new(VarMap::from_json(map, trusted))),
            other => Self::Plain(other.clone()),
        }
    }
}

/// What an option or a keyword says that is yes or no, in Ansible's words for it; None: it is neither.
pub fn boolean(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::Number(n) => match n.as_f64() {
            Some(0.0) => Some(false),
            Some(1.0) => Some(true),
            _ => None,
        },
        Value::String(text) => boolean_word(text),
        _ => None,
    }
}

/// The same of a text.
pub fn boolean_word(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "yes" | "on" | "1" | "true" | "y" | "t" => Some(true),
        "no" | "off" | "0" | "false" | "n" | "f" => Some(false),
        _ => None,
    }
}

/// A variable that is the same on all hosts and may be large: what is made for each of them shares it. As JSON it is its value.
#[derive(Debug, Clone)]
pub struct Shared(Arc<(Value, Var)>);

impl Shared {
    /// Of an inventory's value: texts with markup are templates.
    pub fn new(value: Value) -> Self {
        let var = Var::new(&value, true);
        Self(Arc::new((value, var)))
    }

    /// The value, not rendered.
    pub fn json(&self) -> &Value {
        &self.0.0
    }

    /// The value as expressions see it.
    pub fn var(&self) -> &Var {
        &self.0.1
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.json() == other.json()
    }
}

impl Serialize for Shared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Shared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

/// Whether a text is a template.
pub fn has_markup(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}
