//! goss's matchers, which decide whether a found value is the expected one. Pure; independent of
//! resource types.
//!
//! The conversions and errors of each matcher are those of goss 0.4.9. The recorded answers in
//! `tests/goss/matching` ensure this. `docs/reference/checks.md` lists the cases in which remoor is
//! stricter.

use super::assign::assign;
use super::gjson;
use super::go_regex::GoRegex;
use super::go_value::{Numeric, text};
use super::patterns::Patterns;
use super::semver_range::SemverRange;
use serde_json::{Number, Value};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The condition that a found value must satisfy.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    /// An expected string, number or boolean. The found value is first converted to a string if a
    /// string is expected, and to a number if a number is expected.
    Is(Value),
    /// Equality without conversion, also of lists and maps: 5 is not 5.0.
    Equal(Value),
    HavePrefix(String),
    HaveSuffix(String),
    ContainSubstring(String),
    MatchRegexp(GoRegex),
    /// Length of a string in bytes, or number of elements of a list or map.
    HaveLen(i64),
    HaveKey(Box<Matcher>),
    ContainElement(Box<Matcher>),
    /// A plain list in a check file. Like `ContainElements`, but a string is not split into lines.
    List(Vec<Matcher>),
    /// Each matcher must match a different element. The list may have more elements than matchers.
    /// A string is split into lines.
    ContainElements(Vec<Matcher>),
    /// Like `List`, but the list must not have more elements than matchers.
    ConsistOf(Vec<Matcher>),
    Not(Box<Matcher>),
    And(Vec<Matcher>),
    Or(Vec<Matcher>),
    Compare(NumericComparison, Number),
    Semver(SemverRange),
    /// A matcher per path of a JSON text; all must hold.
    Gjson(Vec<(String, Matcher)>),
    /// `have-patterns`: line patterns for any value, converted to a string.
    Patterns(Patterns),
    /// Line patterns for file contents, output or a body, which goss reads line by line.
    Lines(Patterns),
    /// A matcher of a plain goss file that cannot be evaluated, with the reason. It never matches,
    /// as in goss.
    Invalid(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumericComparison {
    Gt,
    Ge,
    Lt,
    Le,
}

impl NumericComparison {
    pub fn name(self) -> &'static str {
        match self {
            NumericComparison::Gt => "gt",
            NumericComparison::Ge => "ge",
            NumericComparison::Lt => "lt",
            NumericComparison::Le => "le",
        }
    }
}

/// Maximum cost of one call of `matches`. A comparison costs 1, and 1 more per KiB of text. Each
/// value that a JSON path visits costs 1. `GoRegex::cost` is the cost of a regular expression.
/// 10,000 elements against 200 matchers cost 2 million.
pub(super) const MAX_COST: u64 = 6_000_000;

/// The cost that the comparisons with one found value may still have, and properties of that value.
pub(super) struct MatchBudget {
    left: Cell<u64>,
    /// Whether the found value is a list of strings, and not a list within JSON. A numeric matcher
    /// joins such strings and reads them as one number. It never reads a list within JSON as one.
    list: bool,
    /// Errors must not quote the value.
    hide_value: bool,
}

impl MatchBudget {
    pub fn full(actual: &Value) -> Self {
        Self { left: Cell::new(MAX_COST), list: actual.is_array(), hide_value: false }
    }

    /// Checks that `cost` is less than the remaining cost. Otherwise sets the remaining cost to 0
    /// and returns Err.
    fn afford(&self, cost: usize) -> Result<(), String> {
        if self.left.get() <= cost as u64 {
            self.left.set(0);
        }
        self.spend(0)
    }

    /// Subtracts `cost` from the remaining cost. Once nothing remains, every call is an error.
    fn spend(&self, cost: usize) -> Result<(), String> {
        let left = self.left.get().checked_sub(cost as u64);
        self.left.set(left.unwrap_or(0));
        left.filter(|left| *left > 0).map(drop).ok_or_else(|| "too much to compare".to_owned())
    }
}

impl Matcher {
    /// Whether the matcher holds for `actual`. Err if the matcher cannot handle this kind of value.
    /// Such an error counts as a failure, and `not` does not turn it into a pass.
    ///
    /// The cost is bounded: more than a few million comparisons are an error.
    pub fn matches(&self, actual: &Value) -> Result<bool, String> {
        self.evaluate(actual, false)
    }

    /// Like [`Matcher::matches`]. With `hide_value`, an error quotes no part of the value.
    pub(super) fn evaluate(&self, actual: &Value, hide_value: bool) -> Result<bool, String> {
        let budget = MatchBudget { hide_value, ..MatchBudget::full(actual) };
        let answer = self.evaluate_within(actual, &budget)?;
        // Fails if no cost remains: further elements were then treated as not matching, so the
        // answer is not reliable.
        budget.spend(0)?;
        Ok(answer)
    }

    pub(super) fn evaluate_within(&self, actual: &Value, budget: &MatchBudget) -> Result<bool, String> {
        budget.spend(1)?;
        let read = || -> Result<Cow<'_, str>, String> {
            let text = text(actual);
            budget.spend(text.len() / 1024)?;
            Ok(text)
        };
        Ok(match self {
            Matcher::Invalid(why) => return Err(why.clone()),
            Matcher::Is(Value::String(wanted)) => read()? == *wanted,
            Matcher::Is(Value::Number(wanted)) => numeric(actual, budget)? == Numeric::from_number(wanted),
            Matcher::Is(wanted) => wanted == actual,
            Matcher::Equal(Value::Null) if actual.is_null() => {
                return Err("`equal` cannot compare nothing with nothing".to_owned());
            }
            Matcher::Equal(wanted) => wanted == actual,
            Matcher::HavePrefix(part) => read()?.starts_with(part),
            Matcher::HaveSuffix(part) => read()?.ends_with(part),
            Matcher::ContainSubstring(part) => read()?.contains(part),
            Matcher::MatchRegexp(regex) => {
                let text = read()?;
                budget.spend(regex.cost(&text))?;
                regex.is_match(&text)
            }
            Matcher::HaveLen(wanted) => i64::try_from(length(actual)?) == Ok(*wanted),
            Matcher::HaveKey(inner) => match actual {
                Value::Object(map) => {
                    let mut found = false;
                    for key in map.keys() {
                        found |= inner.evaluate_within(&Value::from(key.as_str()), budget)?;
                    }
                    found
                }
                other => return Err(format!("{} has no keys", kind(other))),
            },
            Matcher::ContainElement(inner) => {
                let mut error = None;
                for element in elements(&lines(actual))?.iter() {
                    match inner.evaluate_within(element, budget) {
                        Ok(true) => return Ok(true),
                        Ok(false) => {}
                        Err(e) => error = Some(e),
                    }
                }
                return error.map_or(Ok(false), Err);
            }
            Matcher::List(all) => pair(all, &elements(actual)?, budget)?.iter().all(Option::is_some),
            Matcher::ContainElements(all) => pair(all, &elements(&lines(actual))?, budget)?.iter().all(Option::is_some),
            Matcher::ConsistOf(all) => {
                let elements = elements(actual)?;
                elements.len() == all.len() && pair(all, &elements, budget)?.iter().all(Option::is_some)
            }
            Matcher::Not(inner) => !inner.evaluate_within(actual, budget)?,
            Matcher::And(all) => {
                for matcher in all {
                    if !matcher.evaluate_within(actual, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            Matcher::Or(all) => {
                for matcher in all {
                    if matcher.evaluate_within(actual, budget)? {
                        return Ok(true);
                    }
                }
                false
            }
            Matcher::Compare(how, limit) => {
                let (found, limit) = (numeric(actual, budget)?, Numeric::from_number(limit));
                match how {
                    NumericComparison::Gt => found > limit,
                    NumericComparison::Ge => found >= limit,
                    NumericComparison::Lt => found < limit,
                    NumericComparison::Le => found <= limit,
                }
            }
            Matcher::Semver(range) => match range.holds(actual) {
                Err(_) if budget.hide_value => return Err(format!("{} is not a version", kind(actual))),
                answer => answer?,
            },
            Matcher::Gjson(paths) => {
                let document = document(actual)?;
                let mut all = true;
                // goss evaluates the paths in random order, so an error at any path makes the whole
                // result an error.
                for (path, matcher) in paths {
                    all &= matcher.evaluate_within(&value_at_path(&document, path, budget)?, budget)?;
                }
                all
            }
            Matcher::Lines(patterns) | Matcher::Patterns(patterns) => {
                let text = read()?;
                budget.spend(patterns.cost(&text))?;
                patterns.unmet_patterns(&text).is_empty()
            }
        })
    }
}

/// Assigns elements to matchers. Returns for each matcher the index of its element, or None. An
/// element that a matcher cannot handle does not match. Err if there are too many pairs, before any
/// comparison.
pub(super) fn pair(
    matchers: &[Matcher],
    elements: &[Value],
    budget: &MatchBudget,
) -> Result<Vec<Option<usize>>, String> {
    budget.afford(matchers.len().saturating_mul(elements.len()))?;
    Ok(assign(matchers.len(), elements.len(), |matcher, element| {
        matchers[matcher].evaluate_within(&elements[element], budget).unwrap_or(false)
    }))
}

fn numeric(value: &Value, budget: &MatchBudget) -> Result<Numeric, String> {
    Numeric::read(value).filter(|_| budget.list || !value.is_array()).ok_or_else(|| match budget.hide_value {
        true => format!("{} is not a number", kind(value)),
        false => format!("{} is not a number", shorten(value)),
    })
}

/// goss's `to-array`: splits a string into lines, including the text after the last newline.
pub(super) fn lines(value: &Value) -> Cow<'_, Value> {
    match value {
        Value::String(text) => Cow::Owned(text.split('\n').map(Value::from).collect()),
        other => Cow::Borrowed(other),
    }
}

/// The elements of a list or the values of a map.
pub(super) fn elements(value: &Value) -> Result<Cow<'_, [Value]>, String> {
    match value {
        Value::Array(items) => Ok(Cow::Borrowed(items)),
        Value::Object(map) => Ok(map.values().cloned().collect()),
        other => Err(format!("{} is not a list", kind(other))),
    }
}

/// Parses a string as JSON.
pub(super) fn document(value: &Value) -> Result<Value, String> {
    serde_json::from_str(plain_text(value)?).map_err(|e| format!("not JSON: {e}"))
}

/// The value as a string, without conversion.
fn plain_text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| format!("{} is not text", kind(value)))
}

/// The value at a gjson path of a document.
pub(super) fn value_at_path(document: &Value, path: &str, budget: &MatchBudget) -> Result<Value, String> {
    gjson::get(document, path, &|cost| budget.spend(cost))?.ok_or_else(|| format!("nothing at `{path}`"))
}

fn length(value: &Value) -> Result<usize, String> {
    match value {
        Value::String(s) => Ok(s.len()),
        Value::Array(items) => Ok(items.len()),
        Value::Object(map) => Ok(map.len()),
        other => Err(format!("{} has no length", kind(other))),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A value for messages, of bounded length.
pub(super) fn shorten(value: &Value) -> String {
    const LONGEST: usize = 200;
    let text = match value {
        Value::String(s) => s.trim_end().to_owned(),
        other => other.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, name: &str, all: &[Matcher]| {
            let parts: Vec<String> = all.iter().map(Matcher::to_string).collect();
            write!(f, "{name} [{}]", parts.join(", "))
        };
        match self {
            Matcher::Is(value) => f.write_str(&shorten(value)),
            Matcher::Equal(value) => write!(f, "equal {}", shorten(value)),
            Matcher::HavePrefix(part) => write!(f, "have-prefix {part}"),
            Matcher::HaveSuffix(part) => write!(f, "have-suffix {part}"),
            Matcher::ContainSubstring(part) => write!(f, "contain-substring {part}"),
            Matcher::MatchRegexp(regex) => write!(f, "match-regexp {regex}"),
            Matcher::HaveLen(length) => write!(f, "have-len {length}"),
            Matcher::HaveKey(inner) => write!(f, "have-key {inner}"),
            Matcher::ContainElement(inner) => write!(f, "contain-element {inner}"),
            Matcher::List(all) | Matcher::ContainElements(all) => list(f, "contain-elements", all),
            Matcher::ConsistOf(all) => list(f, "consist-of", all),
            Matcher::Not(inner) => write!(f, "not {inner}"),
            Matcher::And(all) => list(f, "and", all),
            Matcher::Or(all) => list(f, "or", all),
            Matcher::Compare(how, limit) => write!(f, "{} {limit}", how.name()),
            Matcher::Semver(range) => write!(f, "semver-constraint {range}"),
            Matcher::Gjson(paths) => {
                let parts: Vec<String> = paths.iter().map(|(path, matcher)| format!("{path}: {matcher}")).collect();
                write!(f, "gjson {{{}}}", parts.join(", "))
            }
            Matcher::Lines(patterns) | Matcher::Patterns(patterns) => write!(f, "{patterns}"),
            Matcher::Invalid(_) => f.write_str("an invalid value"),
        }
    }
}
