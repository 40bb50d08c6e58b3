//! Prints, reads and compares values as Go does, because goss's matchers depend on Go's rules.
//! Pure.

use serde_json::{Number, Value};
use std::borrow::Cow;
use std::cmp::Ordering;

/// goss's `to-string`: strings unchanged, lists as lines, other values as Go prints them.
pub(super) fn text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(items) => {
            let lines: Vec<Cow<str>> = items.iter().map(format_value).collect();
            Cow::Owned(lines.join("\n"))
        }
        other => format_value(other),
    }
}

/// A value as Go's `%v` prints it: `[a b]`, `map[a:1 b:2]` sorted by key, `<nil>`, and
/// floating-point numbers as [`float`] prints them.
pub(super) fn format_value(value: &Value) -> Cow<'_, str> {
    Cow::Owned(match value {
        Value::String(text) => return Cow::Borrowed(text),
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) if number.is_f64() => float(number.as_f64().unwrap_or_default()),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut pairs: Vec<(&String, &Value)> = map.iter().collect();
            pairs.sort_by_key(|(key, _)| *key);
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{key}:{}", format_value(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
    })
}

/// The shortest digits that identify this number. They have an exponent if the absolute value is at
/// least 1e6, or below 0.0001 but not 0.
pub(super) fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    match scientific.split_once('e').and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?))) {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}

/// Converts all numbers to floating point, as Go reads JSON.
pub(super) fn floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
        Value::Array(items) => items.into_iter().map(floats).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, floats(value))).collect(),
        other => other,
    }
}

/// A number as goss compares it: two integers exactly, otherwise as floating point.
#[derive(Debug, Clone, Copy)]
pub(super) enum Numeric {
    Whole(i64),
    Float(f64),
}

impl Numeric {
    pub fn from_number(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::NAN)), Self::Whole)
    }

    /// goss's `to-numeric`: numbers, and strings that are numbers. A list of strings is joined as
    /// lines. None for all other values.
    pub fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => Some(Self::from_number(number)),
            Value::String(text) => parse_float(text.trim()).map(Self::Float),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                parse_float(text(value).trim()).map(Self::Float)
            }
            _ => None,
        }
    }

    /// The number as JSON; infinities and NaN as strings.
    pub fn value(self) -> Value {
        match self {
            Self::Whole(n) => n.into(),
            Self::Float(n) => Number::from_f64(n).map_or_else(|| Value::from(n.to_string()), Value::Number),
        }
    }
}

impl PartialEq for Numeric {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for Numeric {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (*self, *other) {
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(&b)),
            (a, b) => a.float().partial_cmp(&b.float()),
        }
    }
}

impl Numeric {
    fn float(self) -> f64 {
        match self {
            Self::Whole(n) => n as f64,
            Self::Float(n) => n,
        }
    }
}

/// Parses a decimal number, `inf` or `nan` as Go does, including `_` between digits. None if it is
/// not a number or out of range.
fn parse_float(text: &str) -> Option<f64> {
    let digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let between_digits = |(at, _)| digit(usize::checked_sub(at, 1)) && digit(Some(at + 1));
    if !text.match_indices('_').all(between_digits) {
        return None;
    }
    let number: f64 = text.replace('_', "").parse().ok()?;
    let signed = text.starts_with(['+', '-']);
    let said_so = !text.bytes().any(|b| b.is_ascii_digit());
    (number.is_finite() || (said_so && !(number.is_nan() && signed))).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn values_are_printed_as_go_prints_them() {
        let cases = [
            (json!(5), "5"),
            (json!(-0.0), "-0"),
            (json!(5.0), "5"),
            (json!(123456.7), "123456.7"),
            (json!(1e6), "1e+06"),
            (json!(1234567.8), "1.2345678e+06"),
            (json!(0.0001), "0.0001"),
            (json!(0.00001), "1e-05"),
            (json!(1.5e300), "1.5e+300"),
            (json!(null), "<nil>"),
            (json!(true), "true"),
            (json!({"b": 1, "a": ["x", 1.5, [true]]}), "map[a:[x 1.5 [true]] b:1]"),
        ];
        for (value, printed) in cases {
            assert_eq!(text(&value), printed);
        }
        assert_eq!(text(&json!(["a", ["b", "c"], null, 2e6])), "a\n[b c]\n<nil>\n2e+06");
    }

    #[test]
    fn texts_that_are_numbers() {
        let read = |text: &str| Numeric::read(&json!(text)).map(|n| n.float());
        for (text, number) in
            [(" 5\n", 5.0), ("1_000", 1000.0), (".5", 0.5), ("5.", 5.0), ("+1e3", 1000.0), ("-0", 0.0)]
        {
            assert_eq!(read(text), Some(number), "{text}");
        }
        assert_eq!(read("-Inf"), Some(f64::NEG_INFINITY));
        assert!(read("NaN").is_some_and(f64::is_nan));
        for text in ["", "many", "1e400", "_1", "1_", "1__0", "1_e3", "+nan", "5 5", "1,5"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Numeric::read(&json!(["5"])), Some(Numeric::Float(5.0)));
        assert_eq!(Numeric::read(&json!([5])), None);
        assert_eq!(Numeric::read(&json!(true)), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_as_the_same_number(number in any::<f64>().prop_filter("JSON has no others", |n| n.is_finite())) {
            let shown = float(number);
            prop_assert_eq!(parse_float(&shown), Some(number), "{}", shown);
        }

        #[test]
        fn whole_numbers_are_compared_exactly(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(Numeric::Whole(a).partial_cmp(&Numeric::Whole(b)), Some(a.cmp(&b)));
            prop_assert_eq!(Numeric::Whole(a) == Numeric::Whole(b), a == b);
        }
    }
}
