//! Variables as the expressions see them: ordered, shared, and rendered only when somebody asks.
//!
//! A text that came from a playbook or the inventory may be a template; a text that came from the node (facts, registers)
//! is data and is never rendered. Which it is, is decided here once, when the value comes in.

use super::unknown;
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

/// Whether a text is a template.
pub fn has_markup(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}
