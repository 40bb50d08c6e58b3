//! goss's matchers: whether a value found is the one wanted. Pure; knows nothing of resources.

use super::gjson;
use super::patterns::Patterns;
use serde_json::Value;
use std::fmt;

/// What a value is compared with.
#[derive(Debug, Clone)]
pub(super) enum Matcher {
    /// A string, number or boolean. Strings and numbers are converted into each other.
    Is(Value),
    /// The same, in lists and maps too, without conversion.
    Equal(Value),
    HavePrefix(String),
    HaveSuffix(String),
    ContainSubstring(String),
    MatchRegexp(regex::Regex),
    HaveLen(Box<Matcher>),
    HaveKey(Box<Matcher>),
    ContainElement(Box<Matcher>),
    /// Each matcher takes an element of its own; elements may be left over.
    ContainElements(Vec<Matcher>),
    /// The same, and nothing is left over.
    ConsistOf(Vec<Matcher>),
    Not(Box<Matcher>),
    And(Vec<Matcher>),
    Or(Vec<Matcher>),
    Compare(Comparison, f64),
    Gjson(Vec<(String, Matcher)>),
    Lines(Patterns),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Gt,
    Ge,
    Lt,
    Le,
}

impl Matcher {
    /// Err: the value is of a kind that this can't be asked of; that is a failure, and `not` does not turn it into a pass.
    pub fn matches(&self, actual: &Value) -> Result<bool, String> {
        Ok(match self {
            Matcher::Is(wanted) => is(wanted, actual),
            Matcher::Equal(wanted) => wanted == actual || numbers(wanted, actual),
            Matcher::HavePrefix(part) => text(actual)?.starts_with(part),
            Matcher::HaveSuffix(part) => text(actual)?.ends_with(part),
            Matcher::ContainSubstring(part) => text(actual)?.contains(part),
            Matcher::MatchRegexp(regex) => regex.is_match(&text(actual)?),
            Matcher::HaveLen(inner) => inner.matches(&Value::from(length(actual)?))?,
            Matcher::HaveKey(inner) => match actual {
                Value::Object(map) => any(map.keys().map(|key| inner.matches(&Value::from(key.as_str()))))?,
                other => return Err(format!("{} has no keys", kind(other))),
            },
            Matcher::ContainElement(inner) => any(elements(actual)?.iter().map(|element| inner.matches(element)))?,
            Matcher::ContainElements(wanted) => assign(wanted, &elements(actual)?),
            Matcher::ConsistOf(wanted) => {
                let elements = elements(actual)?;
                elements.len() == wanted.len() && assign(wanted, &elements)
            }
            Matcher::Not(inner) => !inner.matches(actual)?,
            Matcher::And(all) => {
                for matcher in all {
                    if !matcher.matches(actual)? {
                        return Ok(false);
                    }
                }
                true
            }
            Matcher::Or(all) => any(all.iter().map(|matcher| matcher.matches(actual)))?,
            Matcher::Compare(how, limit) => {
                let n = number(actual)?;
                match how {
                    Comparison::Gt => n > *limit,
                    Comparison::Ge => n >= *limit,
                    Comparison::Lt => n < *limit,
                    Comparison::Le => n <= *limit,
                }
            }
            Matcher::Gjson(paths) => {
                let document = serde_json::from_str(&text(actual)?).map_err(|e| format!("not JSON: {e}"))?;
                for (path, matcher) in paths {
                    let found = gjson::get(&document, path).ok_or_else(|| format!("nothing at `{path}`"))?;
                    if !matcher.matches(&found)? {
                        return Ok(false);
                    }
                }
                true
            }
            Matcher::Lines(patterns) => patterns.unmet(&text(actual)?).is_empty(),
        })
    }
}

/// True if one is; an error only if none is.
fn any(results: impl Iterator<Item = Result<bool, String>>) -> Result<bool, String> {
    let mut error = None;
    for result in results {
        match result {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(e) => error = Some(e),
        }
    }
    error.map_or(Ok(false), Err)
}

fn is(wanted: &Value, actual: &Value) -> bool {
    match (wanted, actual) {
        (Value::String(w), Value::Number(a)) => *w == a.to_string(),
        (Value::Number(_), Value::String(_)) => numbers(wanted, actual),
        (Value::String(w), Value::Array(_)) => text(actual).is_ok_and(|a| a == *w),
        _ => wanted == actual || (wanted.is_number() && actual.is_number() && numbers(wanted, actual)),
    }
}

fn numbers(wanted: &Value, actual: &Value) -> bool {
    wanted.is_number() && matches!((number(wanted), number(actual)), (Ok(w), Ok(a)) if w == a)
}

fn number(value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.trim().parse().ok().filter(|n: &f64| n.is_finite()),
        _ => None,
    };
    number.ok_or_else(|| format!("{} is not a number", short(value)))
}

/// Strings as they are, numbers and booleans printed, lists as lines.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(s) => Ok(s.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Array(items) => Ok(items.iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n")),
        other => Err(format!("{} is not text", kind(other))),
    }
}

/// Lists as they are, text as its lines.
fn elements(value: &Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(items) => Ok(items.clone()),
        Value::String(s) => Ok(s.lines().map(Value::from).collect()),
        other => Err(format!("{} is not a list", kind(other))),
    }
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

/// Whether each matcher can have an element of its own: bipartite matching by augmenting paths. What can't be asked of an element
/// does not match it.
fn assign(wanted: &[Matcher], elements: &[Value]) -> bool {
    let fits: Vec<Vec<bool>> =
        wanted.iter().map(|m| elements.iter().map(|e| m.matches(e).unwrap_or(false)).collect()).collect();
    let mut owner: Vec<Option<usize>> = vec![None; elements.len()];
    (0..wanted.len()).all(|matcher| place(matcher, &fits, &mut owner, &mut vec![false; elements.len()]))
}

fn place(matcher: usize, fits: &[Vec<bool>], owner: &mut [Option<usize>], tried: &mut [bool]) -> bool {
    for element in 0..owner.len() {
        if fits[matcher][element] && !tried[element] {
            tried[element] = true;
            if owner[element].is_none_or(|other| place(other, fits, owner, tried)) {
                owner[element] = Some(matcher);
                return true;
            }
        }
    }
    false
}

/// A value for people, of bounded length.
pub(super) fn short(value: &Value) -> String {
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
            Matcher::Is(value) => f.write_str(&short(value)),
            Matcher::Equal(value) => write!(f, "equal {}", short(value)),
            Matcher::HavePrefix(part) => write!(f, "have-prefix {part}"),
            Matcher::HaveSuffix(part) => write!(f, "have-suffix {part}"),
            Matcher::ContainSubstring(part) => write!(f, "contain-substring {part}"),
            Matcher::MatchRegexp(regex) => write!(f, "match-regexp {regex}"),
            Matcher::HaveLen(inner) => write!(f, "have-len {inner}"),
            Matcher::HaveKey(inner) => write!(f, "have-key {inner}"),
            Matcher::ContainElement(inner) => write!(f, "contain-element {inner}"),
            Matcher::ContainElements(all) => list(f, "contain-elements", all),
            Matcher::ConsistOf(all) => list(f, "consist-of", all),
            Matcher::Not(inner) => write!(f, "not {inner}"),
            Matcher::And(all) => list(f, "and", all),
            Matcher::Or(all) => list(f, "or", all),
            Matcher::Compare(how, limit) => write!(f, "{} {limit}", format!("{how:?}").to_lowercase()),
            Matcher::Gjson(paths) => {
                let parts: Vec<String> = paths.iter().map(|(path, matcher)| format!("{path}: {matcher}")).collect();
                write!(f, "gjson {{{}}}", parts.join(", "))
            }
            Matcher::Lines(patterns) => write!(f, "{patterns}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn is(value: Value) -> Matcher {
        Matcher::Is(value)
    }

    fn ok(matcher: &Matcher, actual: Value) -> bool {
        matcher.matches(&actual).unwrap_or(false)
    }

    #[test]
    fn literals_convert_between_text_and_number() {
        assert!(ok(&is(json!("0644")), json!("0644")));
        assert!(ok(&is(json!(644)), json!("0644")), "goss compares as numbers then");
        assert!(ok(&is(json!("0")), json!(0)));
        assert!(ok(&is(json!(5)), json!("5\n")));
        assert!(ok(&is(json!(5)), json!(5.0)));
        assert!(!ok(&is(json!("5")), json!("05")));
        assert!(ok(&is(json!(true)), json!(true)));
        assert!(!ok(&is(json!(true)), json!("true")));
        assert!(!ok(&is(json!("a")), json!(["a", "b"])));
        assert!(ok(&is(json!("a\nb")), json!(["a", "b"])));
        assert!(ok(&Matcher::Equal(json!(["a"])), json!(["a"])));
        assert!(!ok(&Matcher::Equal(json!("1")), json!(1)));
    }

    #[test]
    fn text_matchers() {
        let version = json!("1.22.1-9");
        assert!(ok(&Matcher::HavePrefix("1.22".into()), version.clone()));
        assert!(!ok(&Matcher::HavePrefix("22".into()), version.clone()));
        assert!(ok(&Matcher::HaveSuffix("-9".into()), version.clone()));
        assert!(!ok(&Matcher::HaveSuffix("-8".into()), version.clone()));
        assert!(ok(&Matcher::ContainSubstring("22.1".into()), version.clone()));
        assert!(!ok(&Matcher::ContainSubstring("23".into()), version.clone()));
        let regex = |text| Matcher::MatchRegexp(regex::Regex::new(text).unwrap());
        assert!(ok(&regex(r"^1\.2[2-9]\."), version.clone()));
        assert!(!ok(&regex(r"^2"), version));
        assert!(ok(&Matcher::HaveLen(Box::new(is(json!(2)))), json!(["a", "b"])));
        assert!(ok(&Matcher::HaveLen(Box::new(Matcher::Compare(Comparison::Gt, 1.0))), json!("ab")));
        assert!(ok(&Matcher::HaveKey(Box::new(is(json!("k")))), json!({"k": 1})));
        assert!(!ok(&Matcher::HaveKey(Box::new(is(json!("x")))), json!({"k": 1})));
    }

    #[test]
    fn what_cannot_be_asked_fails_also_below_not() {
        let big = Matcher::Compare(Comparison::Gt, 5.0);
        assert!(big.matches(&json!("many")).is_err());
        assert!(Matcher::Not(Box::new(big.clone())).matches(&json!("many")).is_err());
        assert_eq!(Matcher::Or(vec![big.clone(), is(json!("many"))]).matches(&json!("many")), Ok(true));
        assert!(Matcher::Or(vec![big.clone(), is(json!("few"))]).matches(&json!("many")).is_err());
        assert!(Matcher::Gjson(vec![("a".into(), is(json!(1)))]).matches(&json!("<html>")).is_err());
    }

    #[test]
    fn json_is_asked_by_path() {
        let body = json!(r#"{"members": [{"name": "m1"}, {"name": "m2"}], "health": "true"}"#);
        let ask = |path: &str, matcher| Matcher::Gjson(vec![(path.into(), matcher)]).matches(&body);
        assert_eq!(ask("members.#", is(json!(2))), Ok(true));
        assert_eq!(ask("members.1.name", is(json!("m2"))), Ok(true));
        assert_eq!(ask("members.#.name", Matcher::ConsistOf(vec![is(json!("m2")), is(json!("m1"))])), Ok(true));
        assert_eq!(ask("health", is(json!("false"))), Ok(false));
        assert!(ask("absent", is(json!(1))).is_err());
    }

    /// By trying every order, the way that needs no thought.
    fn slow_assign(wanted: &[Matcher], elements: &[Value]) -> bool {
        let Some((first, rest)) = wanted.split_first() else { return true };
        (0..elements.len()).any(|taken| {
            let mut others = elements.to_vec();
            let element = others.remove(taken);
            ok(first, element) && slow_assign(rest, &others)
        })
    }

    fn arbitrary_matcher() -> impl Strategy<Value = Matcher> {
        prop_oneof![
            "[abc]".prop_map(|s| is(Value::from(s))),
            "[abc]".prop_map(Matcher::HavePrefix),
            "[abc]{1,2}".prop_map(Matcher::ContainSubstring),
            "[abc]".prop_map(|s| Matcher::Not(Box::new(is(Value::from(s))))),
            (0i8..3).prop_map(|n| Matcher::Compare(Comparison::Ge, f64::from(n))),
        ]
    }

    fn arbitrary_value() -> impl Strategy<Value = Value> {
        prop_oneof!["[abc]{0,2}".prop_map(Value::from), (0i8..3).prop_map(Value::from)]
    }

    proptest! {
        #[test]
        fn elements_are_assigned_as_by_trying_every_order(
            wanted in prop::collection::vec(arbitrary_matcher(), 0..5),
            elements in prop::collection::vec(arbitrary_value(), 0..5),
        ) {
            prop_assert_eq!(assign(&wanted, &elements), slow_assign(&wanted, &elements));
        }

        #[test]
        fn consist_of_is_contain_elements_of_the_same_length_in_any_order(
            wanted in prop::collection::vec(arbitrary_matcher(), 0..5),
            elements in prop::collection::vec(arbitrary_value(), 0..5),
        ) {
            let all = Value::from(elements.clone());
            let mut turned = wanted.clone();
            turned.reverse();
            let both = ok(&Matcher::ContainElements(wanted.clone()), all.clone()) && wanted.len() == elements.len();
            prop_assert_eq!(ok(&Matcher::ConsistOf(wanted), all.clone()), both);
            prop_assert_eq!(ok(&Matcher::ConsistOf(turned), all), both);
        }

        #[test]
        fn the_logic_is_that_of_booleans(a in arbitrary_matcher(), b in arbitrary_matcher(), value in arbitrary_value()) {
            let (left, right) = (a.matches(&value), b.matches(&value));
            let not = Matcher::Not(Box::new(a.clone())).matches(&value);
            prop_assert_eq!(&not, &left.clone().map(|x| !x));
            let or = Matcher::Or(vec![a.clone(), b.clone()]).matches(&value);
            let and = Matcher::And(vec![a, b]).matches(&value);
            if let (Ok(left), Ok(right)) = (left, right) {
                prop_assert_eq!(or, Ok(left || right));
                prop_assert_eq!(and, Ok(left && right));
            } else {
                prop_assert!(and.is_err() || and == Ok(false));
            }
        }

        #[test]
        fn comparisons_agree_with_each_other(n in -100i32..100, limit in -100i32..100) {
            let ask = |how| ok(&Matcher::Compare(how, f64::from(limit)), Value::from(n.to_string()));
            prop_assert_eq!(ask(Comparison::Gt), n > limit);
            prop_assert_eq!(ask(Comparison::Ge), !ask(Comparison::Lt));
            prop_assert_eq!(ask(Comparison::Le), !ask(Comparison::Gt));
        }
    }
}
