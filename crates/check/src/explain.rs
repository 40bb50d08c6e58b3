//! Explains why a matcher holds or not, with the phrases and fields that goss 0.4.9 writes into
//! `matcher-result`. Pure; does not decide anything.

use super::go_value::{Numeric, text};
use super::matcher::{MatchBudget, Matcher, document, elements, lines, pair, value_at_path};
use serde_json::{Map, Value, json};

/// The explanation of one comparison. Where goss writes `null` for a field, the field here is
/// empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// The whole matcher as written if it holds, otherwise the part that does not hold.
    pub expected: Value,
    /// Examples: `to equal`, `not to contain substring`; `matches expectation` if the matcher
    /// holds.
    pub message: String,
    /// For a list of matchers or patterns: the matchers that matched no element. `found` has the
    /// matchers that matched an element; None if goss does not report them. `extra` has the
    /// elements that no matcher matched.
    pub missing: Vec<Value>,
    pub found: Option<Vec<Value>>,
    pub extra: Vec<Value>,
    /// The conversions that turned the found value into `actual`, such as `{"to-string": {}}`.
    pub transforms: Vec<Value>,
    /// The value that was compared, after `transforms`.
    pub actual: Value,
    /// The found value before conversion, if the matcher converts values; otherwise null.
    pub untransformed: Value,
}

/// The text that goss shows instead of a value that it reads line by line. For the content of a
/// file, the output of a command and an HTTP body, `judge` replaces it with goss's text for these.
const READER: &str = "object: *strings.Reader";

/// The fields `missing`, `found` and `extra`.
type Parts = (Vec<Value>, Option<Vec<Value>>, Vec<Value>);

impl Matcher {
    /// Explains the result for `actual`. The cost has the same limit as that of `matches`. As in
    /// goss, a value that the matcher cannot handle is explained as if it did not match.
    pub(crate) fn explain(&self, actual: &Value) -> Explained {
        if self.matches(actual) == Ok(true) {
            // goss shows nothing of a value that it reads line by line.
            let shown = if matches!(self, Matcher::Lines(_)) { json!({}) } else { actual.clone() };
            return Explained { actual: shown, ..new_explanation(self.as_written(), "matches expectation") };
        }
        self.explain_failure(actual, false, &MatchBudget::full(actual))
    }

    /// Explains a failure. `negated` means that the matcher holds but must not.
    fn explain_failure(&self, actual: &Value, negated: bool, budget: &MatchBudget) -> Explained {
        let holds = |matcher: &&Matcher| matcher.evaluate_within(actual, budget) == Ok(true);
        let whole = |message: &str, all: &[Matcher]| Explained {
            actual: actual.clone(),
            ..new_explanation(all.iter().map(Matcher::to_goss_json).collect(), message)
        };
        match self {
            Matcher::Not(inner) => inner.explain_failure(actual, !negated, budget),
            Matcher::And(all) if !negated => match all.iter().find(|matcher| !holds(matcher)) {
                Some(first) => first.explain_failure(actual, false, budget),
                None => whole("to satisfy all of these matchers", all),
            },
            Matcher::And(all) => whole("not to satisfy all of these matchers", all),
            Matcher::Or(all) if negated => match all.iter().find(holds) {
                Some(first) => first.explain_failure(actual, true, budget),
                None => whole("not to satisfy any of these matchers", all),
            },
            Matcher::Or(all) => whole("to satisfy at least one of these matchers", all),
            Matcher::Gjson(paths) => gjson(paths, actual, negated, budget),
            leaf => leaf.explain_leaf(actual, negated, budget),
        }
    }

    /// Explains a matcher that contains no other matchers, or only matchers for the elements of a
    /// list.
    fn explain_leaf(&self, actual: &Value, negated: bool, budget: &MatchBudget) -> Explained {
        let made = self.convert_value(actual);
        let (value, step) = made.clone().unwrap_or_else(|| (actual.clone(), None));
        let (missing, found, extra) = if negated { Default::default() } else { self.parts(&value, budget) };
        let not = if negated { "not " } else { "" };
        Explained {
            missing,
            found,
            extra,
            transforms: step.into_iter().collect(),
            actual: if matches!(self, Matcher::Lines(_)) { READER.into() } else { value },
            untransformed: made.map_or(Value::Null, |_| actual.clone()),
            ..new_explanation(self.expected_argument(), &format!("{not}{}", self.phrase()))
        }
    }

    /// The value to compare, and the conversion if it changed the value. None if the matcher takes
    /// values unchanged.
    fn convert_value(&self, actual: &Value) -> Option<(Value, Option<Value>)> {
        let (step, value) = match self {
            Matcher::Is(Value::String(_))
            | Matcher::HavePrefix(_)
            | Matcher::HaveSuffix(_)
            | Matcher::ContainSubstring(_)
            | Matcher::MatchRegexp(_)
            | Matcher::Patterns(_) => ("to-string", Value::from(text(actual))),
            Matcher::Is(Value::Number(_)) | Matcher::Compare(..) => match (actual, Numeric::read(actual)) {
                (Value::Number(_), _) => ("to-numeric", actual.clone()),
                (_, number) => ("to-numeric", number.map_or(json!(0), Numeric::value)),
            },
            Matcher::ContainElement(_) | Matcher::ContainElements(_) => ("to-array", lines(actual).into_owned()),
            _ => return None,
        };
        let changed = value != *actual;
        Some((value, changed.then(|| json!({step: {}}))))
    }

    fn parts(&self, value: &Value, budget: &MatchBudget) -> Parts {
        let (all, whole) = match self {
            Matcher::List(all) | Matcher::ContainElements(all) => (all, false),
            Matcher::ConsistOf(all) => (all, true),
            Matcher::Lines(patterns) | Matcher::Patterns(patterns) => {
                if self.evaluate_within(value, budget).is_err() {
                    return Default::default();
                }
                let text = text(value);
                let values = |texts: Vec<&str>| texts.into_iter().map(Value::from).collect();
                let met = Some(values(patterns.met_patterns(&text))).filter(|met: &Vec<Value>| !met.is_empty());
                return (values(patterns.unmet_patterns(&text)), met, Vec::new());
            }
            _ => return Default::default(),
        };
        let pairs = elements(value).and_then(|elements| Ok((pair(all, &elements, budget)?, elements)));
        let Ok((own, elements)) = pairs else {
            return (Vec::new(), Some(all.iter().map(Matcher::to_goss_json).collect()), Vec::new());
        };
        let part = |has: bool| {
            all.iter()
                .zip(&own)
                .filter(|(_, own)| own.is_some() == has)
                .map(|(matcher, _)| matcher.to_goss_json())
                .collect()
        };
        let taken: std::collections::BTreeSet<usize> = own.iter().flatten().copied().collect();
        let left = elements.iter().enumerate().filter(|(number, _)| whole && !taken.contains(number));
        (part(false), Some(part(true)), left.map(|(_, element)| element.clone()).collect())
    }

    fn phrase(&self) -> String {
        match self {
            Matcher::Is(Value::Number(_)) => "to be numerically eq",
            Matcher::Is(_) | Matcher::Equal(_) => "to equal",
            Matcher::HavePrefix(_) => "to have prefix",
            Matcher::HaveSuffix(_) => "to have suffix",
            Matcher::ContainSubstring(_) => "to contain substring",
            Matcher::MatchRegexp(_) => "to match regular expression",
            Matcher::HaveLen(_) => "to have length",
            Matcher::HaveKey(_) => "to have key matching",
            Matcher::ContainElement(_) => "to contain element matching",
            Matcher::List(_) | Matcher::ContainElements(_) => "to contain elements matching",
            Matcher::ConsistOf(_) => "to consist of",
            Matcher::Compare(how, _) => return format!("to be numerically {}", how.name()),
            Matcher::Semver(_) => "to satisfy semver constraint",
            Matcher::Lines(_) | Matcher::Patterns(_) => "to have patterns",
            Matcher::Not(_) | Matcher::And(_) | Matcher::Or(_) | Matcher::Gjson(_) => "to match",
            Matcher::Invalid(_) => "to match a valid matcher",
        }
        .to_owned()
    }

    /// The argument of the matcher, without its name.
    fn expected_argument(&self) -> Value {
        let list = |all: &[Matcher]| all.iter().map(Matcher::to_goss_json).collect();
        match self {
            Matcher::Is(value) | Matcher::Equal(value) => value.clone(),
            Matcher::HavePrefix(part) | Matcher::HaveSuffix(part) | Matcher::ContainSubstring(part) => {
                part.clone().into()
            }
            Matcher::MatchRegexp(regex) => regex.to_string().into(),
            Matcher::HaveLen(length) => (*length).into(),
            Matcher::HaveKey(inner) | Matcher::ContainElement(inner) | Matcher::Not(inner) => inner.to_goss_json(),
            Matcher::List(all)
            | Matcher::ContainElements(all)
            | Matcher::ConsistOf(all)
            | Matcher::And(all)
            | Matcher::Or(all) => list(all),
            Matcher::Compare(_, limit) => Value::Number(limit.clone()),
            Matcher::Semver(range) => range.to_string().into(),
            Matcher::Gjson(paths) => paths.iter().map(|(_, inner)| inner.to_goss_json()).collect(),
            Matcher::Lines(patterns) | Matcher::Patterns(patterns) => patterns.texts().map(Value::from).collect(),
            Matcher::Invalid(_) => Value::Null,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Matcher::Is(_) => "eq",
            Matcher::Equal(_) => "equal",
            Matcher::HavePrefix(_) => "have-prefix",
            Matcher::HaveSuffix(_) => "have-suffix",
            Matcher::ContainSubstring(_) => "contain-substring",
            Matcher::MatchRegexp(_) => "match-regexp",
            Matcher::HaveLen(_) => "have-len",
            Matcher::HaveKey(_) => "have-key",
            Matcher::ContainElement(_) => "contain-element",
            Matcher::List(_) | Matcher::ContainElements(_) => "contain-elements",
            Matcher::ConsistOf(_) => "consist-of",
            Matcher::Not(_) => "not",
            Matcher::And(_) => "and",
            Matcher::Or(_) => "or",
            Matcher::Compare(how, _) => how.name(),
            Matcher::Semver(_) => "semver-constraint",
            Matcher::Gjson(_) => "gjson",
            Matcher::Lines(_) | Matcher::Patterns(_) => "have-patterns",
            Matcher::Invalid(_) => "invalid",
        }
    }

    /// The matcher in the form that goss shows for a nested matcher: an expected number as `{"eq":
    /// 5}`, `equal` as its value, and `gjson` without its paths.
    fn to_goss_json(&self) -> Value {
        match self {
            Matcher::Is(value) if !value.is_number() => value.clone(),
            Matcher::Equal(value) => value.clone(),
            Matcher::And(all) if all.len() == 1 => all[0].to_goss_json(),
            Matcher::Gjson(paths) if paths.len() == 1 => paths[0].1.to_goss_json(),
            Matcher::Gjson(_) => json!({"and": self.expected_argument()}),
            other => json!({other.name(): other.expected_argument()}),
        }
    }

    /// The matcher as it is written in a check file.
    pub(crate) fn as_written(&self) -> Value {
        let list = |all: &[Matcher]| -> Value { all.iter().map(Matcher::as_written).collect() };
        match self {
            Matcher::Is(value) => value.clone(),
            Matcher::List(all) => list(all),
            Matcher::Lines(_) => self.expected_argument(),
            Matcher::HaveKey(inner) | Matcher::ContainElement(inner) | Matcher::Not(inner) => {
                json!({self.name(): inner.as_written()})
            }
            Matcher::ContainElements(all) | Matcher::ConsistOf(all) | Matcher::And(all) | Matcher::Or(all) => {
                json!({self.name(): list(all)})
            }
            Matcher::Gjson(paths) => {
                let paths: Map<String, Value> =
                    paths.iter().map(|(path, inner)| (path.clone(), inner.as_written())).collect();
                json!({self.name(): paths})
            }
            other => json!({other.name(): other.expected_argument()}),
        }
    }
}

fn new_explanation(expected: Value, message: &str) -> Explained {
    Explained {
        expected,
        message: message.to_owned(),
        missing: Vec::new(),
        found: None,
        extra: Vec::new(),
        transforms: Vec::new(),
        actual: Value::Null,
        untransformed: Value::Null,
    }
}

/// Explains `gjson` by the first path that does not hold. The path is the first entry of
/// `transforms`.
fn gjson(paths: &[(String, Matcher)], actual: &Value, negated: bool, budget: &MatchBudget) -> Explained {
    if negated {
        let all = paths.iter().map(|(_, inner)| inner.to_goss_json()).collect();
        return Explained { actual: actual.clone(), ..new_explanation(all, "not to satisfy all of these matchers") };
    }
    let document = document(actual);
    let found = |path: &str| {
        document.as_ref().map_err(String::clone).and_then(|document| value_at_path(document, path, budget))
    };
    let fails = |(path, inner): &&(String, Matcher)| {
        found(path).and_then(|value| inner.evaluate_within(&value, budget)) != Ok(true)
    };
    let Some((path, inner)) = paths.iter().find(fails) else {
        return Explained { actual: actual.clone(), ..new_explanation(Value::Array(Vec::new()), "to match") };
    };
    let step = json!({"gjson": {"Path": path}});
    let there = found(path);
    let mut inside = inner.explain_failure(there.as_ref().unwrap_or(&Value::Null), false, budget);
    // goss reports the conversions of the matcher at the path, but not those of matchers within it.
    // It reports none if the path does not exist.
    let further = inner.convert_value(&Value::Null).is_some() && there.is_ok();
    if there.is_err() {
        (inside.missing, inside.found, inside.extra, inside.actual) = Default::default();
    }
    let steps = if further { std::mem::take(&mut inside.transforms) } else { Vec::new() };
    inside.transforms = std::iter::once(step).chain(steps).collect();
    Explained { untransformed: actual.clone(), ..inside }
}
