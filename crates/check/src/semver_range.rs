//! `semver-constraint`: ranges of versions in goss's syntax. Pure; versions are parsed and compared
//! by the crate `semver`.

use semver::Version;
use serde_json::Value;
use std::cmp::Ordering;
use std::fmt;

/// `>=1.2.0 <2.0.0 || 3.x`: alternatives separated by ` || `, each a list of comparisons that must
/// all hold.
///
/// Versions are compared by precedence alone, as in goss: `2.0.0-rc.1` is below `2.0.0`, and build
/// metadata after a `+` is ignored.
#[derive(Debug, Clone)]
pub(super) struct SemverRange {
    /// The range as written.
    text: String,
    any: Vec<Vec<Bound>>,
}

#[derive(Debug, Clone)]
struct Bound {
    operator: Operator,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl SemverRange {
    /// Err: the reason why `text` is not a range. A range is also rejected if its meaning in goss
    /// differs from its usual meaning: in goss, `!=1.x` never holds, and `1.x.x` is `1.0.x`.
    pub fn parse(text: &str) -> Result<Self, String> {
        // White space may separate an operator from its version.
        let mut words: Vec<String> = Vec::new();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match words.last_mut().filter(|last| last.ends_with(['<', '>', '='])) {
                Some(operator) => operator.push_str(word),
                None => words.push(word.to_owned()),
            }
        }
        let part = |words: &[String]| -> Result<Vec<Bound>, String> {
            if words.is_empty() {
                return Err("a version is missing".to_owned());
            }
            let bounds: Result<Vec<Vec<Bound>>, String> = words.iter().map(|word| bounds(word)).collect();
            Ok(bounds?.concat())
        };
        let any: Result<Vec<Vec<Bound>>, String> = words.split(|word| word == "||").map(part).collect();
        Ok(Self { text: text.to_owned(), any: any? })
    }

    /// Whether a version, or each of a non-empty list of versions, is in the range. Err if a value
    /// is not a version.
    pub fn holds(&self, found: &Value) -> Result<bool, String> {
        let versions = match found {
            Value::Array(items) if !items.is_empty() => &items[..],
            one => std::slice::from_ref(one),
        };
        let versions: Result<Vec<Version>, String> = versions.iter().map(read).collect();
        let holds = |version: &Version| self.any.iter().any(|all| all.iter().all(|bound| bound.holds(version)));
        Ok(versions?.iter().all(holds))
    }
}

impl fmt::Display for SemverRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn read(value: &Value) -> Result<Version, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not a version"))?;
    version(text)
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).map_err(|e| format!("`{text}` is not a version like 1.2.3: {e}"))
}

/// Parses one comparison. A comparison with `x` as the last component becomes two bounds.
fn bounds(word: &str) -> Result<Vec<Bound>, String> {
    let at = word.find(|c: char| c.is_ascii_digit()).ok_or_else(|| format!("`{word}` has no version"))?;
    let (operator, rest) = word.split_at(at);
    let operator = match operator {
        "" | "=" | "==" => Operator::Equal,
        "!" | "!=" => Operator::NotEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        unknown => return Err(format!("`{unknown}` is not a comparison operator; known: = != > >= < <=")),
    };
    let Some(numbers) = rest.strip_suffix(".x") else {
        return Ok(vec![Bound { operator, version: version(rest)? }]);
    };
    let numbers: Result<Vec<u64>, _> = numbers.split('.').map(str::parse).collect();
    let (from, to) = match numbers.as_deref() {
        Ok([major]) => ((*major, 0), (major.checked_add(1), 0)),
        Ok([major, minor]) => ((*major, *minor), (Some(*major), minor.saturating_add(1))),
        _ => return Err(format!("`{rest}` is not a version; write 1.2.3, 1.2.x or 1.x")),
    };
    let from = Version::new(from.0, from.1, 0);
    let to = Version::new(to.0.ok_or_else(|| format!("`{rest}` is too large"))?, to.1, 0);
    let bound = |operator, version| Bound { operator, version };
    Ok(match operator {
        Operator::Equal => vec![bound(Operator::GreaterOrEqual, from), bound(Operator::Less, to)],
        Operator::NotEqual => return Err(format!("`!={rest}`: write `<{from} || >={to}`")),
        Operator::Greater => vec![bound(Operator::GreaterOrEqual, to)],
        Operator::GreaterOrEqual => vec![bound(Operator::GreaterOrEqual, from)],
        Operator::Less => vec![bound(Operator::Less, from)],
        Operator::LessOrEqual => vec![bound(Operator::Less, to)],
    })
}

impl Bound {
    fn holds(&self, version: &Version) -> bool {
        let order = version.cmp_precedence(&self.version);
        match self.operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn ranges_hold_what_they_say() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("1.2.3", &["1.2.3", "1.2.3+build"], &["1.2.4", "1.2.3-rc.1"]),
            ("!1.2.3", &["1.2.4"], &["1.2.3"]),
            (
                ">1.0.0 <2.0.0 || >=3.0.0 !=4.2.1",
                &["1.5.0", "3.0.0", "5.0.0", "2.0.0-rc.1"],
                &["1.0.0", "2.0.0", "4.2.1"],
            ),
            (">= 1.2.0   <2.0.0", &["1.2.0"], &["1.1.9", "2.0.0"]),
            ("1.x", &["1.0.0", "1.99.0"], &["2.0.0", "0.9.0", "1.0.0-rc.1"]),
            ("1.2.x", &["1.2.9"], &["1.3.0", "1.1.0"]),
            (">1.2.x", &["1.3.0"], &["1.2.9"]),
            ("<=1.2.x", &["1.2.9", "1.0.0"], &["1.3.0"]),
            ("<1.x", &["0.9.0"], &["1.0.0"]),
            (">=1.0.0-alpha.9", &["1.0.0-alpha.10", "1.0.0-beta", "1.0.0"], &["1.0.0-alpha.8", "1.0.0-alpha"]),
        ];
        for (range, inside, outside) in cases {
            let range = SemverRange::parse(range).unwrap();
            inside.iter().for_each(|v| assert_eq!(range.holds(&json!(v)), Ok(true), "{v} in {range}"));
            outside.iter().for_each(|v| assert_eq!(range.holds(&json!(v)), Ok(false), "{v} not in {range}"));
            assert_eq!(range.holds(&json!([inside[0], outside[0]])), Ok(false), "each of a list");
            assert_eq!(range.holds(&json!([inside[0], inside[0]])), Ok(true));
        }
        let range = SemverRange::parse(">0.0.0").unwrap();
        for no_version in
            [json!("1.2"), json!("v1.2.3"), json!("01.2.3"), json!(1.2), json!([]), json!(null), json!([1])]
        {
            assert!(range.holds(&no_version).is_err(), "{no_version}");
        }
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for range in [
            "",
            "||",
            "1.0.0 ||",
            "|| 1.0.0",
            "1.0",
            "x",
            "1",
            ">",
            ">1.0.0||<2.0.0",
            "~1.2.3",
            "^1.2.3",
            "! 1.0.0",
            "1.x.x",
            "!=1.x",
            "a1.0.0",
        ] {
            assert!(SemverRange::parse(range).is_err(), "{range}");
        }
    }

    proptest! {
        #[test]
        fn a_range_and_its_opposite_never_agree(a in (0u64..3, 0u64..3, 0u64..3), b in (0u64..3, 0u64..3, 0u64..3)) {
            let (a, b) = (Version::new(a.0, a.1, a.2), Version::new(b.0, b.1, b.2));
            for (one, other) in [("<", ">="), (">", "<="), ("=", "!=")] {
                let holds = |op| SemverRange::parse(&format!("{op}{b}")).unwrap().holds(&Value::from(a.to_string())).unwrap();
                prop_assert_ne!(holds(one), holds(other));
            }
            prop_assert_eq!(SemverRange::parse(&format!("<{b}")).unwrap().holds(&Value::from(a.to_string())), Ok(a < b));
        }
    }
}
