//! The parsed form of an XPath: expressions, steps and axes. Contains no logic.

use super::functions::Function;
use crate::go_regex::GoRegex;

#[derive(Debug, Clone)]
pub(super) enum Expr {
    Text(String),
    Number(f64),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Negative(Box<Expr>),
    Call(Function, Vec<Expr>),
    /// `matches(text, "regex")`, with the compiled regular expression.
    Matches(Box<Expr>, GoRegex),
    Path(Start, Vec<XPathStep>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
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

/// The start of a path.
#[derive(Debug, Clone)]
pub(super) enum Start {
    Root,
    Here,
    /// The nodes that an expression finds and for which these predicates hold.
    Found(Box<Expr>, Vec<Expr>),
}

#[derive(Debug, Clone)]
pub(super) struct XPathStep {
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

/// Selects nodes of an axis. Prefixes are compared as written.
#[derive(Debug, Clone)]
pub(super) enum Test {
    /// `*`: all elements, or all attributes on the attribute axis.
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
    /// Whether the result is a set of nodes, not a text, number or boolean.
    pub fn finds_nodes(&self) -> bool {
        matches!(self, Expr::Path(..) | Expr::Binary(Operator::Union, ..))
    }
}
