//! Evaluates a path on a tree. Pure; every visited node and every created text costs budget.

use super::expr::{Axis, Expr, Operator, Start, Test, XPathStep};
use super::tree::{XmlNode, XmlNodeKind, XmlTree};
use std::collections::BTreeSet;

/// The value of an expression. Nodes are in document order, without duplicates.
#[derive(Debug, Clone)]
pub(super) enum XPathValue {
    Nodes(Vec<usize>),
    Text(String),
    Number(f64),
    Bool(bool),
}

/// The context of an expression: the node, its position, and the number of nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct XPathContext {
    pub node: usize,
    pub position: usize,
    pub size: usize,
}

pub(super) struct Eval<'a> {
    pub tree: &'a XmlTree,
    pub spend: &'a dyn Fn(usize) -> Result<(), String>,
}

impl Eval<'_> {
    pub fn spend(&self, cost: usize) -> Result<(), String> {
        (self.spend)(cost)
    }

    pub fn eval(&self, expr: &Expr, here: XPathContext) -> Result<XPathValue, String> {
        self.spend(1)?;
        Ok(match expr {
            Expr::Text(text) => XPathValue::Text(text.clone()),
            Expr::Number(number) => XPathValue::Number(*number),
            Expr::Negative(inner) => XPathValue::Number(-self.number(inner, here)?),
            Expr::Call(function, arguments) => self.call(*function, arguments, here)?,
            Expr::Matches(text, regex) => {
                let text = self.text(text, here)?;
                self.spend(regex.cost(&text))?;
                XPathValue::Bool(regex.is_match(&text))
            }
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right, here)?,
            Expr::Path(start, steps) => {
                let mut nodes = match start {
                    Start::Root => vec![0],
                    Start::Here => vec![here.node],
                    Start::Found(inner, predicates) => self.apply_predicates(self.nodes(inner, here)?, predicates)?,
                };
                for step in steps {
                    nodes = self.step(step, &nodes)?;
                }
                XPathValue::Nodes(nodes)
            }
        })
    }

    fn binary(&self, operator: Operator, left: &Expr, right: &Expr, here: XPathContext) -> Result<XPathValue, String> {
        let numbers = || Ok::<_, String>((self.number(left, here)?, self.number(right, here)?));
        Ok(match operator {
            Operator::Or => XPathValue::Bool(self.truth(left, here)? || self.truth(right, here)?),
            Operator::And => XPathValue::Bool(self.truth(left, here)? && self.truth(right, here)?),
            Operator::Union => {
                let mut nodes = self.nodes(left, here)?;
                nodes.extend(self.nodes(right, here)?);
                nodes.sort_unstable();
                nodes.dedup();
                XPathValue::Nodes(nodes)
            }
            Operator::Plus => numbers().map(|(a, b)| XPathValue::Number(a + b))?,
            Operator::Minus => numbers().map(|(a, b)| XPathValue::Number(a - b))?,
            Operator::Times => numbers().map(|(a, b)| XPathValue::Number(a * b))?,
            Operator::Div => numbers().map(|(a, b)| XPathValue::Number(a / b))?,
            Operator::Mod => numbers().map(|(a, b)| XPathValue::Number(a % b))?,
            comparison => {
                XPathValue::Bool(self.compare(comparison, self.eval(left, here)?, self.eval(right, here)?)?)
            }
        })
    }

    /// Compares two values. For sets of nodes, the comparison holds if it holds for one pair. Pairs
    /// are not enumerated; the cost is that of each side alone.
    fn compare(&self, operator: Operator, left: XPathValue, right: XPathValue) -> Result<bool, String> {
        let is_equality = matches!(operator, Operator::Equal | Operator::NotEqual);
        // Compared with a boolean, a set of nodes is true if it is not empty.
        let beside = |value: XPathValue, other_is_truth: bool| match value {
            XPathValue::Nodes(nodes) if other_is_truth => XPathValue::Bool(!nodes.is_empty()),
            value if other_is_truth && is_equality => XPathValue::Bool(self.is_true(value)),
            value => value,
        };
        let (left_is_truth, right_is_truth) =
            (matches!(left, XPathValue::Bool(_)), matches!(right, XPathValue::Bool(_)));
        let (left, right) = (beside(left, right_is_truth), beside(right, left_is_truth));
        let is_text = |value: &XPathValue| matches!(value, XPathValue::Nodes(_) | XPathValue::Text(_));
        if is_equality && is_text(&left) && is_text(&right) {
            let (left, right) = (self.texts(left)?, self.texts(right)?);
            return Ok(match operator {
                Operator::Equal => {
                    let known: BTreeSet<&str> = left.iter().map(String::as_str).collect();
                    right.iter().any(|text| known.contains(text.as_str()))
                }
                // Some pair differs unless all texts are equal.
                _ => match (left.first(), right.first()) {
                    (Some(first), Some(_)) => left.iter().chain(&right).any(|text| text != first),
                    _ => false,
                },
            });
        }
        let (left, right) = (self.numbers(left)?, self.numbers(right)?);
        let least = |numbers: &[f64]| numbers.iter().copied().filter(|n| !n.is_nan()).reduce(f64::min);
        let most = |numbers: &[f64]| numbers.iter().copied().filter(|n| !n.is_nan()).reduce(f64::max);
        Ok(match operator {
            // One side is a single number or boolean, because two sets of nodes were compared as
            // texts.
            Operator::Equal => left.iter().any(|a| right.contains(a)),
            Operator::NotEqual => left.iter().any(|a| right.iter().any(|b| a != b)),
            Operator::Less => least(&left).zip(most(&right)).is_some_and(|(a, b)| a < b),
            Operator::LessOrEqual => least(&left).zip(most(&right)).is_some_and(|(a, b)| a <= b),
            Operator::Greater => most(&left).zip(least(&right)).is_some_and(|(a, b)| a > b),
            _ => most(&left).zip(least(&right)).is_some_and(|(a, b)| a >= b),
        })
    }

    /// The value as texts, one per node.
    fn texts(&self, value: XPathValue) -> Result<Vec<String>, String> {
        match value {
            XPathValue::Nodes(nodes) => nodes.into_iter().map(|node| self.value_of(node)).collect(),
            XPathValue::Text(text) => Ok(vec![text]),
            XPathValue::Number(number) => Ok(vec![format_number(number)]),
            XPathValue::Bool(truth) => Ok(vec![truth.to_string()]),
        }
    }

    /// The value as numbers, one per node.
    fn numbers(&self, value: XPathValue) -> Result<Vec<f64>, String> {
        match value {
            XPathValue::Nodes(nodes) => nodes.into_iter().map(|node| Ok(number_of(&self.value_of(node)?))).collect(),
            other => Ok(vec![as_number(&other)]),
        }
    }

    fn step(&self, step: &XPathStep, from: &[usize]) -> Result<Vec<usize>, String> {
        let mut all = Vec::new();
        for node in from {
            let mut found = Vec::new();
            self.walk(step.axis, *node, &mut |number| {
                self.spend(1)?;
                if fits(&step.test, step.axis, &self.tree.nodes[number]) {
                    found.push(number);
                }
                Ok(())
            })?;
            all.extend(self.apply_predicates(found, &step.predicates)?);
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The nodes for which all predicates hold. Positions count in the order of `nodes`.
    fn apply_predicates(&self, mut nodes: Vec<usize>, predicates: &[Expr]) -> Result<Vec<usize>, String> {
        for predicate in predicates {
            let size = nodes.len();
            let mut left = Vec::new();
            for (node, position) in nodes.into_iter().zip(1..) {
                let keep = match self.eval(predicate, XPathContext { node, position, size })? {
                    XPathValue::Number(number) => number == position as f64,
                    other => self.is_true(other),
                };
                if keep {
                    left.push(node);
                }
            }
            nodes = left;
        }
        Ok(nodes)
    }

    /// Visits the nodes of an axis, the nearest to `node` first.
    fn walk(&self, axis: Axis, node: usize, visit: &mut dyn FnMut(usize) -> Result<(), String>) -> Result<(), String> {
        let tree = self.tree;
        let it = &tree.nodes[node];
        let is_attribute = |number: &usize| tree.nodes[*number].kind == XmlNodeKind::Attribute;
        let parent = |number: &usize| Some(tree.nodes[*number].parent).filter(|_| *number != 0);
        if matches!(axis, Axis::Itself | Axis::AncestorOrSelf | Axis::DescendantOrSelf) {
            visit(node)?;
        }
        // Skipped attributes cost as much as visited nodes.
        let but_attributes = |number| if is_attribute(&number) { self.spend(1) } else { visit(number) };
        match axis {
            Axis::Itself => Ok(()),
            Axis::Parent => parent(&node).into_iter().try_for_each(visit),
            Axis::Ancestor | Axis::AncestorOrSelf => std::iter::successors(parent(&node), parent).try_for_each(visit),
            Axis::Attribute => tree.attributes(node).try_for_each(visit),
            Axis::Child => tree.children(node).try_for_each(visit),
            Axis::Descendant | Axis::DescendantOrSelf => (node + 1..it.end).try_for_each(but_attributes),
            // After an attribute comes the content of its element.
            Axis::Following => (it.end..tree.nodes.len()).try_for_each(but_attributes),
            Axis::Preceding => {
                let begins = if it.kind == XmlNodeKind::Attribute { it.parent } else { node };
                let before = |number: &usize| !is_attribute(number) && tree.nodes[*number].end <= begins;
                self.spend(begins)?;
                (1..begins).rev().filter(before).try_for_each(visit)
            }
            Axis::FollowingSibling | Axis::PrecedingSibling if it.kind == XmlNodeKind::Attribute || node == 0 => Ok(()),
            Axis::FollowingSibling => {
                let end = tree.nodes[it.parent].end;
                let next = |number: &usize| Some(tree.nodes[*number].end).filter(|next| *next < end);
                std::iter::successors(next(&node), next).try_for_each(visit)
            }
            Axis::PrecedingSibling => {
                let mut before = Vec::new();
                for sibling in tree.children(it.parent).take_while(|sibling| *sibling < node) {
                    self.spend(1)?;
                    before.push(sibling);
                }
                before.into_iter().rev().try_for_each(visit)
            }
        }
    }

    pub fn nodes(&self, expr: &Expr, here: XPathContext) -> Result<Vec<usize>, String> {
        match self.eval(expr, here)? {
            XPathValue::Nodes(nodes) => Ok(nodes),
            _ => Err("a set of nodes is required".to_owned()),
        }
    }

    pub fn truth(&self, expr: &Expr, here: XPathContext) -> Result<bool, String> {
        Ok(self.is_true(self.eval(expr, here)?))
    }

    pub fn number(&self, expr: &Expr, here: XPathContext) -> Result<f64, String> {
        Ok(match self.eval(expr, here)? {
            XPathValue::Nodes(nodes) => number_of(&self.first(&nodes)?),
            other => as_number(&other),
        })
    }

    pub fn text(&self, expr: &Expr, here: XPathContext) -> Result<String, String> {
        let text = match self.eval(expr, here)? {
            XPathValue::Nodes(nodes) => return self.first(&nodes),
            XPathValue::Text(text) => text,
            XPathValue::Bool(truth) => truth.to_string(),
            XPathValue::Number(number) => format_number(number),
        };
        self.spend(text.len() / 16)?;
        Ok(text)
    }

    fn first(&self, nodes: &[usize]) -> Result<String, String> {
        nodes.first().map_or(Ok(String::new()), |node| self.value_of(*node))
    }

    /// The text of a node. The cost includes all nodes within it.
    pub fn value_of(&self, node: usize) -> Result<String, String> {
        self.spend(self.tree.nodes[node].end - node)?;
        let value = self.tree.value(node);
        self.spend(value.len() / 16)?;
        Ok(value)
    }

    fn is_true(&self, value: XPathValue) -> bool {
        match value {
            XPathValue::Nodes(nodes) => !nodes.is_empty(),
            XPathValue::Text(text) => !text.is_empty(),
            XPathValue::Number(number) => number != 0.0 && !number.is_nan(),
            XPathValue::Bool(truth) => truth,
        }
    }
}

fn fits(test: &Test, axis: Axis, node: &XmlNode) -> bool {
    let named = if axis == Axis::Attribute {
        // A namespace declaration is not an attribute in XPath.
        node.kind == XmlNodeKind::Attribute && node.name != "xmlns" && node.prefix() != "xmlns"
    } else {
        node.kind == XmlNodeKind::Element
    };
    match test {
        Test::Any => named,
        Test::Prefix(prefix) => named && node.prefix() == prefix,
        Test::Name(name) => named && node.name == *name,
        Test::Node => named || axis != Axis::Attribute,
        Test::Text => node.is_text(),
        Test::Comment => node.kind == XmlNodeKind::Comment,
        Test::Instruction(target) => {
            node.kind == XmlNodeKind::Instruction && target.as_ref().is_none_or(|target| node.name == *target)
        }
    }
}

fn as_number(value: &XPathValue) -> f64 {
    match value {
        XPathValue::Number(number) => *number,
        XPathValue::Text(text) => number_of(text),
        XPathValue::Bool(truth) => f64::from(u8::from(*truth)),
        XPathValue::Nodes(_) => f64::NAN,
    }
}

/// Parses digits with an optional point and minus, surrounded by white space. All other text is
/// NaN.
pub(super) fn number_of(text: &str) -> f64 {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    let digits = text.strip_prefix('-').unwrap_or(text);
    let known = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') && digits.bytes().any(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| known).unwrap_or(f64::NAN)
}

/// A number as XPath prints it: all digits, without exponent.
fn format_number(number: f64) -> String {
    match number {
        _ if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        0.0 => "0".to_owned(),
        _ => number.to_string(),
    }
}
