//! What a path of XPath is once it is read: expressions, steps, axes. Nothing is done here.

use super::functions::Function;
use crate::check::go_regex::GoRegex;

#[derive(Debug, Clone)]
pub(super) enum Expr {
    Text(String),
    Number(f64),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Negative(Box<Expr>),
    Call(Function, Vec<Expr>),
    /// `matches(text, "regex")`: the expression is read once.
    Matches(Box<Expr>, GoRegex),
    Path(Start, Vec<Step>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    Unlike,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Times,
    Div,
    Mod,
    Union,
}

/// Where a path begins.
#[derive(Debug, Clone)]
pub(super) enum Start {
    Root,
    Here,
    /// At what an expression finds, and of that what these predicates leave.
    Found(Box<Expr>, Vec<Expr>),
}

#[derive(Debug, Clone)]
pub(super) struct Step {
    pub axis: Axis,
    pub test: Test,
    pub predicates: Vec<Expr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    Ancestor,
    AncestorOrSelf,
    Attribute,
    Child,
    Descendant,
    DescendantOrSelf,
    Following,
    FollowingSibling,
    Parent,
    Preceding,
    PrecedingSibling,
    Itself,
}

pub(super) const AXES: [(&str, Axis); 12] = [
    ("ancestor", Axis::Ancestor),
    ("ancestor-or-self", Axis::AncestorOrSelf),
    ("attribute", Axis::Attribute),
    ("child", Axis::Child),
    ("descendant", Axis::Descendant),
    ("descendant-or-self", Axis::DescendantOrSelf),
    ("following", Axis::Following),
    ("following-sibling", Axis::FollowingSibling),
    ("parent", Axis::Parent),
    ("preceding", Axis::Preceding),
    ("preceding-sibling", Axis::PrecedingSibling),
    ("self", Axis::Itself),
];

/// Which nodes of an axis are meant. Prefixes are compared as they are written.
#[derive(Debug, Clone)]
pub(super) enum Test {
    /// `*`: elements, or attributes where the axis is theirs.
    Any,
    /// `p:*`
    Prefix(String),
    Name(String),
    Node,
    Text,
    Comment,
    Instruction(Option<String>),
}

impl Expr {
    /// Whether it finds nodes, and no text, number or truth.
    pub fn finds_nodes(&self) -> bool {
        matches!(self, Expr::Path(..) | Expr::Binary(Operator::Union, ..))
    }
}
