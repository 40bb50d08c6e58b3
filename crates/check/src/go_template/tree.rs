//! The parsed form of a template: text, printed values and blocks.

use super::Place;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Program {
    pub body: Vec<TemplateNode>,
    /// The templates of `define` and `block`.
    pub templates: BTreeMap<String, Vec<TemplateNode>>,
}

#[derive(Debug)]
pub(super) enum TemplateNode {
    Text(String),
    /// Prints the result of a pipeline. A pipeline that only sets a variable prints nothing.
    Print(Pipeline),
    If {
        arms: Vec<(Pipeline, Vec<TemplateNode>)>,
        otherwise: Vec<TemplateNode>,
    },
    With {
        with: Pipeline,
        body: Vec<TemplateNode>,
        otherwise: Vec<TemplateNode>,
    },
    Range {
        over: Pipeline,
        body: Vec<TemplateNode>,
        otherwise: Vec<TemplateNode>,
    },
    Template {
        at: Place,
        name: String,
        with: Option<Pipeline>,
    },
    Break,
    Continue,
}

/// A list of commands. The result of each command is the last argument of the next command.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub at: Place,
    /// Variables that receive the result of the pipeline. Only a `range` may have two.
    pub variables: Vec<String>,
    /// Whether the pipeline declares the variables (`:=`) instead of only assigning them (`=`).
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
