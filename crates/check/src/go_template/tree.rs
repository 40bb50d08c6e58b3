//! The parsed form of a template: text, printed values and blocks.

use super::Place;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Program {
    pub body: Vec<Node>,
    /// The templates of `define` and `block`.
    pub templates: BTreeMap<String, Vec<Node>>,
}

#[derive(Debug)]
pub(super) enum Node {
    Text(String),
    /// Prints a value, unless it only sets a variable.
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

/// A list of commands. The result of each is the last argument of the next.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub at: Place,
    /// Variables that receive the result; two in a `range`.
    pub variables: Vec<String>,
    /// The variables are declared here, not assigned.
    pub declares: bool,
    pub commands: Vec<Vec<Operand>>,
}

#[derive(Debug)]
pub(super) struct Operand {
    pub at: Place,
    pub base: Base,
    /// Field names after the base, outermost first.
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
