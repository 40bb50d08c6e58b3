//! A template as it is carried out: texts, what is printed, and blocks.

use super::Place;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Program {
    pub body: Vec<Node>,
    /// Those of `define` and `block`.
    pub templates: BTreeMap<String, Vec<Node>>,
}

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    /// Printed, unless it only sets a variable.
    Print(Pipeline),
    If {
        arms: Vec<(Pipeline, Vec<Node>)>,
        otherwise: Vec<Node>,
    },
    With {
        with: Pipeline,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Range {
        over: Pipeline,
        body: Vec<Node>,
        otherwise: Vec<Node>,
    },
    Template {
        at: Place,
        name: String,
        with: Option<Pipeline>,
    },
    Break,
    Continue,
}

/// Commands, each of which gets the result of the one before as its last argument.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub at: Place,
    /// Variables that get the result; two in a `range`.
    pub variables: Vec<String>,
    /// They are new, and not those of before.
    pub declares: bool,
    pub commands: Vec<Vec<Operand>>,
}

#[derive(Debug)]
pub(super) struct Operand {
    pub at: Place,
    pub base: Base,
    /// Keys below it, outermost first.
    pub fields: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Base {
    Dot,
    Variable(String),
    Literal(Value),
    Nil,
    Function(String),
    Group(Box<Pipeline>),
}
