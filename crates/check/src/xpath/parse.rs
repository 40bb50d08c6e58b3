//! Parses an XPath 1.0. Knows no document; unsupported paths are reported when a check file is
//! loaded.

use super::expr::{AXES, Axis, Expr, Operator, Start, Test, XPathStep};
use super::functions::Function;
use super::lex::{XPathToken, tokens};
use crate::go_regex::go_regex;
use crate::suggest::did_you_mean;

/// Maximum length of a path in bytes.
const LONGEST: usize = 2048;
/// Maximum nesting of parentheses, predicates and arguments, and maximum number of operators of one
/// path. Each level is a recursion on a thread's stack.
const DEEPEST: usize = 50;
const OPERATORS_MAX: usize = 100;

/// Err: why it is not a valid path, or which part of it is not supported.
pub(super) fn parse(text: &str) -> Result<Expr, String> {
    if text.len() > LONGEST {
        return Err(format!("the XPath has {} bytes; the maximum is {LONGEST}", text.len()));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, operators: 0 };
    let expr = parser.expr(0)?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(format!("{token} is not expected here")),
    }
}

struct Parser {
    tokens: Vec<XPathToken>,
    at: usize,
    depth: usize,
    operators: usize,
}

/// Operators from lowest to highest precedence.
const LEVELS: [&[(&str, Operator)]; 6] = [
    &[("or", Operator::Or)],
    &[("and", Operator::And)],
    &[("=", Operator::Equal), ("!=", Operator::NotEqual)],
    &[("<=", Operator::LessOrEqual), (">=", Operator::GreaterOrEqual), ("<", Operator::Less), (">", Operator::Greater)],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("div", Operator::Div), ("mod", Operator::Mod)],
];

impl Parser {
    fn peek(&self) -> Option<&XPathToken> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<XPathToken> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Consumes a sign if it is the next token.
    fn takes(&mut self, sign: &str) -> bool {
        let there = matches!(self.peek(), Some(XPathToken::Sign(found)) if *found == sign);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) {
            return Ok(());
        }
        match self.peek() {
            None => Err(format!("`{sign}` is missing at the end")),
            Some(token) => Err(format!("expected `{sign}`, found {token}")),
        }
    }

    fn operator(&mut self, level: usize) -> Option<Operator> {
        let operator = match self.peek()? {
            XPathToken::Operator(found) => LEVELS[level].iter().find(|(sign, _)| sign == found)?.1,
            _ => return None,
        };
        self.at += 1;
        Some(operator)
    }

    fn expr(&mut self, level: usize) -> Result<Expr, String> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.expr(level + 1)?;
        while let Some(operator) = self.operator(level) {
            self.count_operator()?;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.expr(level + 1)?));
        }
        Ok(left)
    }

    fn count_operator(&mut self) -> Result<(), String> {
        self.operators += 1;
        if self.operators > OPERATORS_MAX {
            return Err(format!("more than {OPERATORS_MAX} operators in one XPath"));
        }
        Ok(())
    }

    fn unary(&mut self) -> Result<Expr, String> {
        let mut negative = false;
        let mut signs = 0;
        while matches!(self.peek(), Some(XPathToken::Operator("-"))) {
            self.at += 1;
            signs += 1;
            negative = !negative;
        }
        let mut left = self.path()?;
        while matches!(self.peek(), Some(XPathToken::Operator("|"))) {
            self.at += 1;
            self.count_operator()?;
            let right = self.path()?;
            if !left.finds_nodes() || !right.finds_nodes() {
                return Err("`|` needs a path on both sides".to_owned());
            }
            left = Expr::Binary(Operator::Union, Box::new(left), Box::new(right));
        }
        Ok(match (signs, negative) {
            (0, _) => left,
            // The result is a number, even with two minus signs.
            (_, true) => Expr::Negative(Box::new(left)),
            (_, false) => Expr::Call(Function::Number, vec![left]),
        })
    }

    /// Parses an expression within parentheses, brackets or arguments.
    fn inner(&mut self) -> Result<Expr, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("the XPath is nested too deeply".to_owned());
        }
        let inner = self.expr(0);
        self.depth -= 1;
        inner
    }

    fn path(&mut self) -> Result<Expr, String> {
        let start = match self.peek() {
            None => return Err("a path is missing at the end".to_owned()),
            Some(XPathToken::Sign("/")) => {
                self.at += 1;
                let steps = if self.begins_a_step() { self.steps()? } else { Vec::new() };
                return Ok(Expr::Path(Start::Root, steps));
            }
            Some(XPathToken::Sign("//")) => {
                self.at += 1;
                let mut steps = vec![descendant_or_self_step()];
                steps.extend(self.steps()?);
                return Ok(Expr::Path(Start::Root, steps));
            }
            Some(XPathToken::Sign("(")) => {
                self.at += 1;
                let inner = self.inner()?;
                self.expect(")")?;
                inner
            }
            Some(XPathToken::Text(_) | XPathToken::Number(_) | XPathToken::Call(_)) => self.value()?,
            Some(_) => return Ok(Expr::Path(Start::Here, self.steps()?)),
        };
        let predicates = self.predicates()?;
        let mut steps = Vec::new();
        let goes_on = if self.takes("//") {
            steps.push(descendant_or_self_step());
            true
        } else {
            self.takes("/")
        };
        if predicates.is_empty() && !goes_on {
            return Ok(start);
        }
        if !start.finds_nodes() {
            return Err("a path cannot continue after an expression that finds no nodes".to_owned());
        }
        if goes_on {
            steps.extend(self.steps()?);
        }
        Ok(Expr::Path(Start::Found(Box::new(start), predicates), steps))
    }

    fn value(&mut self) -> Result<Expr, String> {
        match self.next() {
            Some(XPathToken::Text(text)) => Ok(Expr::Text(text)),
            Some(XPathToken::Number(number)) => Ok(Expr::Number(number)),
            Some(XPathToken::Call(name)) => self.call(&name),
            _ => Err("a value is missing".to_owned()),
        }
    }

    fn call(&mut self, name: &str) -> Result<Expr, String> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        if !self.takes(")") {
            arguments.push(self.inner()?);
            while self.takes(",") {
                arguments.push(self.inner()?);
            }
            self.expect(")")?;
        }
        if name == "matches" {
            let mut arguments = arguments.into_iter();
            return match (arguments.next(), arguments.next(), arguments.next()) {
                (Some(text), Some(Expr::Text(regex)), None) => Ok(Expr::Matches(Box::new(text), go_regex(&regex)?)),
                _ => Err("`matches` takes a text and a regular expression in quotes".to_owned()),
            };
        }
        let Some(function) = Function::from_name(name) else {
            let near = did_you_mean(name, Function::names()).map(|hint| format!("; {hint}")).unwrap_or_default();
            return Err(format!("the function `{name}` is not supported{near}"));
        };
        function.takes(&arguments)?;
        Ok(Expr::Call(function, arguments))
    }

    fn predicates(&mut self) -> Result<Vec<Expr>, String> {
        let mut all = Vec::new();
        while self.takes("[") {
            all.push(self.inner()?);
            self.expect("]")?;
        }
        Ok(all)
    }

    fn begins_a_step(&self) -> bool {
        matches!(
            self.peek(),
            Some(
                XPathToken::Name(_)
                    | XPathToken::Axis(_)
                    | XPathToken::Kind(_)
                    | XPathToken::Sign("." | ".." | "@" | "*")
            )
        )
    }

    fn steps(&mut self) -> Result<Vec<XPathStep>, String> {
        let mut steps = vec![self.step()?];
        loop {
            if self.takes("//") {
                steps.push(descendant_or_self_step());
            } else if !self.takes("/") {
                return Ok(steps);
            }
            steps.push(self.step()?);
        }
    }

    fn step(&mut self) -> Result<XPathStep, String> {
        let (axis, test) = match self.next() {
            Some(XPathToken::Sign(".")) => (Axis::Itself, Test::Node),
            Some(XPathToken::Sign("..")) => (Axis::Parent, Test::Node),
            Some(XPathToken::Sign("@")) => (Axis::Attribute, self.test()?),
            Some(XPathToken::Axis(name)) => {
                let Some((_, axis)) = AXES.iter().find(|(known, _)| *known == name) else {
                    let near = did_you_mean(&name, AXES.iter().map(|(known, _)| *known));
                    let near = near.map(|hint| format!("; {hint}")).unwrap_or_default();
                    return Err(format!("the axis `{name}` is not supported{near}"));
                };
                (*axis, self.test()?)
            }
            Some(_) => {
                self.at -= 1;
                (Axis::Child, self.test()?)
            }
            None => return Err("a name is missing at the end".to_owned()),
        };
        Ok(XPathStep { axis, test, predicates: self.predicates()? })
    }

    fn test(&mut self) -> Result<Test, String> {
        Ok(match self.next() {
            Some(XPathToken::Sign("*")) => Test::Any,
            Some(XPathToken::Name(name)) => match name.strip_suffix(":*") {
                Some(prefix) => Test::Prefix(prefix.to_owned()),
                None => Test::Name(name),
            },
            Some(XPathToken::Kind(kind)) => {
                self.expect("(")?;
                let test = match (kind, self.peek()) {
                    ("node", _) => Test::Node,
                    ("text", _) => Test::Text,
                    ("comment", _) => Test::Comment,
                    (_, Some(XPathToken::Text(target))) => {
                        let target = target.clone();
                        self.at += 1;
                        Test::Instruction(Some(target))
                    }
                    _ => Test::Instruction(None),
                };
                self.expect(")")?;
                test
            }
            Some(token) => return Err(format!("expected a name, found {token}")),
            None => return Err("a name is missing at the end".to_owned()),
        })
    }
}

/// The step that `//` stands for.
fn descendant_or_self_step() -> XPathStep {
    XPathStep { axis: Axis::DescendantOrSelf, test: Test::Node, predicates: Vec::new() }
}
