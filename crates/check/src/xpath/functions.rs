//! The functions of XPath 1.0 except `id` and `lang`, and two functions of XPath 2.0 that goss has.
//! Pure.

use super::eval::{Eval, XPathContext, XPathValue, number_of};
use super::expr::Expr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Boolean,
    Ceiling,
    Concat,
    Contains,
    Count,
    EndsWith,
    False,
    Floor,
    Last,
    LocalName,
    LowerCase,
    Name,
    NamespaceUri,
    NormalizeSpace,
    Not,
    Number,
    Position,
    Round,
    StartsWith,
    String,
    StringLength,
    Substring,
    SubstringAfter,
    SubstringBefore,
    Sum,
    Translate,
    True,
}

/// Name, function, and minimum and maximum number of arguments.
const ALL: [(&str, Function, usize, usize); 27] = [
    ("boolean", Function::Boolean, 1, 1),
    ("ceiling", Function::Ceiling, 1, 1),
    ("concat", Function::Concat, 2, usize::MAX),
    ("contains", Function::Contains, 2, 2),
    ("count", Function::Count, 1, 1),
    ("ends-with", Function::EndsWith, 2, 2),
    ("false", Function::False, 0, 0),
    ("floor", Function::Floor, 1, 1),
    ("last", Function::Last, 0, 0),
    ("local-name", Function::LocalName, 0, 1),
    ("lower-case", Function::LowerCase, 1, 1),
    ("name", Function::Name, 0, 1),
    ("namespace-uri", Function::NamespaceUri, 0, 1),
    ("normalize-space", Function::NormalizeSpace, 0, 1),
    ("not", Function::Not, 1, 1),
    ("number", Function::Number, 0, 1),
    ("position", Function::Position, 0, 0),
    ("round", Function::Round, 1, 1),
    ("starts-with", Function::StartsWith, 2, 2),
    ("string", Function::String, 0, 1),
    ("string-length", Function::StringLength, 0, 1),
    ("substring", Function::Substring, 2, 3),
    ("substring-after", Function::SubstringAfter, 2, 2),
    ("substring-before", Function::SubstringBefore, 2, 2),
    ("sum", Function::Sum, 1, 1),
    ("translate", Function::Translate, 3, 3),
    ("true", Function::True, 0, 0),
];

impl Function {
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, ..)| *known == name).map(|(_, function, ..)| *function)
    }

    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(name, ..)| *name)
    }

    /// Checks the arguments. Err: the reason why they do not fit.
    pub fn takes(self, arguments: &[Expr]) -> Result<(), String> {
        use Function::{Count, LocalName, Name, NamespaceUri, Sum};
        let Some((name, _, few, many)) = ALL.iter().find(|(_, function, ..)| *function == self) else { return Ok(()) };
        if !(*few..=*many).contains(&arguments.len()) {
            return Err(format!("`{name}` does not take {} arguments", arguments.len()));
        }
        let of_nodes = matches!(self, Count | Sum | Name | LocalName | NamespaceUri);
        match arguments.first() {
            Some(first) if of_nodes && !first.finds_nodes() => Err(format!("`{name}` needs a path that finds nodes")),
            _ => Ok(()),
        }
    }
}

impl Eval<'_> {
    pub(super) fn call(
        &self,
        function: Function,
        arguments: &[Expr],
        here: XPathContext,
    ) -> Result<XPathValue, String> {
        let text = |at: usize| self.text(&arguments[at], here);
        let number = |at: usize| self.number(&arguments[at], here);
        // Without an argument, a function applies to the context node.
        let own_text = || match arguments.first() {
            Some(first) => self.text(first, here),
            None => self.value_of(here.node),
        };
        Ok(match function {
            Function::True => XPathValue::Bool(true),
            Function::False => XPathValue::Bool(false),
            Function::Not => XPathValue::Bool(!self.truth(&arguments[0], here)?),
            Function::Boolean => XPathValue::Bool(self.truth(&arguments[0], here)?),
            Function::Last => XPathValue::Number(here.size as f64),
            Function::Position => XPathValue::Number(here.position as f64),
            Function::Count => XPathValue::Number(self.nodes(&arguments[0], here)?.len() as f64),
            Function::Sum => {
                let mut sum = 0.0;
                for node in self.nodes(&arguments[0], here)? {
                    sum += number_of(&self.value_of(node)?);
                }
                XPathValue::Number(sum)
            }
            Function::Number => match arguments.first() {
                Some(_) => XPathValue::Number(number(0)?),
                None => XPathValue::Number(number_of(&own_text()?)),
            },
            Function::Floor => XPathValue::Number(number(0)?.floor()),
            Function::Ceiling => XPathValue::Number(number(0)?.ceil()),
            Function::Round => XPathValue::Number(round(number(0)?)),
            Function::Name | Function::LocalName | Function::NamespaceUri => {
                let node = match arguments.first() {
                    Some(path) => self.nodes(path, here)?.first().copied(),
                    None => Some(here.node),
                };
                let told = |node: usize| match function {
                    Function::Name => self.tree.nodes[node].name.as_str(),
                    Function::LocalName => self.tree.nodes[node].local_name(),
                    _ => self.tree.namespace(node),
                };
                if function == Function::NamespaceUri {
                    self.spend(node.map_or(0, |node| self.tree.steps_up(node)))?;
                }
                XPathValue::Text(node.map(told).unwrap_or_default().to_owned())
            }
            Function::String => XPathValue::Text(own_text()?),
            Function::StringLength => XPathValue::Number(own_text()?.chars().count() as f64),
            Function::NormalizeSpace => {
                let words: Vec<String> = own_text()?.split_ascii_whitespace().map(str::to_owned).collect();
                XPathValue::Text(words.join(" "))
            }
            Function::LowerCase => XPathValue::Text(text(0)?.to_lowercase()),
            Function::Concat => {
                let mut all = String::new();
                for at in 0..arguments.len() {
                    all += &text(at)?;
                }
                XPathValue::Text(all)
            }
            Function::Contains => XPathValue::Bool(text(0)?.contains(&text(1)?)),
            Function::StartsWith => XPathValue::Bool(text(0)?.starts_with(&text(1)?)),
            Function::EndsWith => XPathValue::Bool(text(0)?.ends_with(&text(1)?)),
            Function::SubstringBefore => {
                XPathValue::Text(text(0)?.split_once(&text(1)?).map_or("", |(before, _)| before).to_owned())
            }
            Function::SubstringAfter => {
                XPathValue::Text(text(0)?.split_once(&text(1)?).map_or("", |(_, after)| after).to_owned())
            }
            Function::Substring => {
                let first = round(number(1)?);
                let behind = if arguments.len() == 3 { first + round(number(2)?) } else { f64::INFINITY };
                let inside = |place: usize| (place as f64) >= first && (place as f64) < behind;
                XPathValue::Text(
                    text(0)?.chars().zip(1..).filter(|(_, place)| inside(*place)).map(|(c, _)| c).collect(),
                )
            }
            Function::Translate => {
                let (from, to): (String, String) = (text(1)?, text(2)?);
                let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
                let source = text(0)?;
                self.spend(source.len().saturating_mul(from.len()) / 16)?;
                let other = |c: char| match from.iter().position(|known| *known == c) {
                    Some(place) => to.get(place).copied(),
                    None => Some(c),
                };
                XPathValue::Text(source.chars().filter_map(other).collect())
            }
        })
    }
}

/// Rounds half up, also for negative numbers.
fn round(number: f64) -> f64 {
    if number.is_finite() { (number + 0.5).floor() } else { number }
}
