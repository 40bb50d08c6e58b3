//! What a matcher says of a value, part by part, for formats that tell more than pass or fail.

use super::matcher::{Comparison, Matcher};
use serde_json::Value;

/// A value found beside what was wanted of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    pub expected: Value,
    /// What relates the two: `to equal`, `to have patterns`.
    pub message: String,
    /// Of a list that was wanted: elements that are not there, that are, and that are there unasked.
    pub missing: Vec<Value>,
    pub found: Vec<Value>,
    pub extra: Vec<Value>,
    /// How the value was converted before it was compared, step by step.
    pub transforms: Vec<Value>,
    pub actual: Value,
}

impl Matcher {
    /// Whether or not it matches.
    pub fn explain(&self, actual: &Value) -> Explained {
        let (message, expected) = match self {
            Matcher::Is(value) | Matcher::Equal(value) => ("to equal", value.clone()),
            Matcher::HavePrefix(part) => ("to have prefix", part.as_str().into()),
            Matcher::HaveSuffix(part) => ("to have suffix", part.as_str().into()),
            Matcher::ContainSubstring(part) => ("to contain substring", part.as_str().into()),
            Matcher::MatchRegexp(regex) => ("to match regular expression", regex.as_str().into()),
            Matcher::HaveLen(inner) => ("to have length", inner.to_string().into()),
            Matcher::HaveKey(inner) => ("to have key matching", inner.to_string().into()),
            Matcher::ContainElement(inner) => ("to contain element matching", inner.to_string().into()),
            Matcher::ContainElements(all) => ("to contain elements matching", list(all)),
            Matcher::ConsistOf(all) => ("to consist of", list(all)),
            Matcher::Not(inner) => ("not to satisfy", inner.to_string().into()),
            Matcher::And(all) => ("to satisfy all of these matchers", list(all)),
            Matcher::Or(all) => ("to satisfy at least one of these matchers", list(all)),
            Matcher::Compare(how, limit) => (
                match how {
                    Comparison::Gt => "to be numerically gt",
                    Comparison::Ge => "to be numerically ge",
                    Comparison::Lt => "to be numerically lt",
                    Comparison::Le => "to be numerically le",
                },
                (*limit).into(),
            ),
            Matcher::Gjson(_) => ("to have in its JSON", self.to_string().into()),
            Matcher::Lines(patterns) => ("to have patterns", patterns.to_string().into()),
        };
        let missing = match (self, actual) {
            (Matcher::Lines(patterns), Value::String(text)) => {
                patterns.unmet(text).into_iter().map(Value::from).collect()
            }
            _ => Vec::new(),
        };
        Explained {
            expected,
            message: message.to_owned(),
            missing,
            found: Vec::new(),
            extra: Vec::new(),
            transforms: Vec::new(),
            actual: actual.clone(),
        }
    }
}

fn list(matchers: &[Matcher]) -> Value {
    matchers.iter().map(|matcher| Value::from(matcher.to_string())).collect()
}
