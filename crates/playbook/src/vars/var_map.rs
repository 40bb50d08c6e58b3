//! Variables as expressions see them: ordered, shared, and rendered only when they are read.
//!
//! A text from a playbook or the inventory may be a template. A text from the node (facts,
//! registered results) is data and is never rendered. Each value is classified once, when it is put
//! into a map.

use crate::vars::unknown;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The value of one variable.
#[derive(Debug, Clone)]
pub enum Var {
    /// Null, boolean, number, or a text without markup.
    Plain(Value),
    /// A text that is rendered each time it is read.
    Template(Arc<str>),
    List(Arc<Vec<Var>>),
    Map(Arc<VarMap>),
    /// Check mode cannot know the value.
    Unknown,
    /// The value is encrypted, and no vault password opens it.
    Sealed,
}

/// Variables by name, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub struct VarMap {
    pairs: Vec<(Arc<str>, Var)>,
    index: BTreeMap<Arc<str>, usize>,
    /// Whether names that the map does not contain are UNKNOWN.
    open: bool,
}

impl VarMap {
    /// Makes a map of values from playbooks and inventories. Texts with markup are templates.
    pub fn from_trusted(map: &Map<String, Value>) -> Self {
        Self::from_json(map, true)
    }

    /// Makes a map of values from the node, which are never rendered.
    pub fn from_untrusted(map: &Map<String, Value>) -> Self {
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

    /// Whether names that the map does not contain are UNKNOWN.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Returns the map with these variables added; they replace variables of the same name.
    pub fn with_shared(mut self, shared: &BTreeMap<String, SharedVar>) -> Self {
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

    /// Returns the map without these names.
    pub fn without_names(&self, names: &BTreeSet<String>) -> Self {
        let mut out = Self::default();
        self.iter().filter(|(name, _)| !names.contains(&***name)).for_each(|(name, var)| out.set(name, var.clone()));
        out
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Var)> {
        self.pairs.iter().map(|(k, v)| (k, v))
    }

    /// The variables as JSON. Templates are texts, and UNKNOWN is its mark.
    pub fn json(&self) -> Map<String, Value> {
        let pairs = self.iter().map(|(name, var)| (name.to_string(), var.json()));
        match self.open {
            true => unknown::open(pairs.collect()).as_object_mut().map(std::mem::take).unwrap_or_default(),
            false => pairs.collect(),
        }
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }
}

impl Var {
    /// The value as JSON. Templates are texts, and UNKNOWN is its mark.
    pub fn json(&self) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Template(text) => Value::String(text.to_string()),
            Self::List(items) => Value::Array(items.iter().map(Self::json).collect()),
            Self::Map(map) => Value::Object(map.json()),
            // A run has no sealed value, because its plan has only opened ones.
            Self::Unknown | Self::Sealed => unknown::mark(),
        }
    }

    pub fn new(value: &Value, trusted: bool) -> Self {
        match value {
            Value::String(s) if unknown::is_mark(s) => Self::Unknown,
            Value::String(s) if trusted && has_markup(s) => Self::Template(s.as_str().into()),
            Value::Object(_) if trusted && remoor_vault::is_sealed(value) => Self::Sealed,
            Value::Array(items) => Self::List(Arc::new(items.iter().map(|item| Self::new(item, trusted)).collect())),
            Value::Object(map) => Self::Map(Arc::new(VarMap::from_json(map, trusted))),
            other => Self::Plain(other.clone()),
        }
    }
}

/// Reads a boolean of an option or keyword as Ansible does. None: the value is not a boolean.
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

/// Like `boolean`, for a text.
pub fn boolean_word(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "yes" | "on" | "1" | "true" | "y" | "t" => Some(true),
        "no" | "off" | "0" | "false" | "n" | "f" => Some(false),
        _ => None,
    }
}

/// A variable that is the same on all hosts and may be large; the plans of all hosts share it. Its
/// JSON form is its value.
#[derive(Debug, Clone)]
pub struct SharedVar(Arc<SharedValue>);

#[derive(Debug)]
struct SharedValue {
    json: Value,
    var: Var,
    /// Whether `json` contains a sealed value.
    is_sealed: bool,
}

impl SharedVar {
    /// Makes a shared variable of an inventory value. Texts with markup are templates.
    pub fn new(value: Value) -> Self {
        let var = Var::new(&value, true);
        let is_sealed = remoor_vault::sealed_part(&value).is_some();
        Self(Arc::new(SharedValue { json: value, var, is_sealed }))
    }

    /// The value of the shared variable, not rendered.
    pub fn json(&self) -> &Value {
        &self.0.json
    }

    /// The value of the shared variable in the form that expressions use.
    pub fn var(&self) -> &Var {
        &self.0.var
    }

    /// Whether the value contains a sealed value.
    pub fn is_sealed(&self) -> bool {
        self.0.is_sealed
    }
}

impl PartialEq for SharedVar {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.json() == other.json()
    }
}

impl Serialize for SharedVar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SharedVar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::new)
    }
}

/// Whether a text is a template.
pub fn has_markup(text: &str) -> bool {
    text.contains("{{") || text.contains("{%") || text.contains("{#")
}
