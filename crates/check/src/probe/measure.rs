//! `numbers` and `metrics`: numbers that regular expressions find in a text, and samples in the
//! text format of Prometheus. The text is the output of a command, the content of a file or the
//! body of an HTTP response. Pure.

use super::super::go_regex::{GoRegex, go_regex};
use super::super::go_value::Numeric;
use super::super::matcher::MAX_COST;
use super::super::spec::{METRICS, NUMBERS};
use super::prometheus::{self, Metric};
use super::{ProbeAnswer, ProbeAnswers, ProbeContext, failed_error, unknown_error};
use serde_json::Value;

/// Whether the check needs the text.
pub(super) fn is_wanted(ask: &ProbeContext) -> bool {
    ask.wants(NUMBERS) || ask.wants(METRICS)
}

/// Err: the reason why `entry` is not a valid expression or metric.
pub(super) fn validate(property: &str, entry: &str) -> Result<(), String> {
    match property {
        NUMBERS => number_regex(entry).map(drop),
        METRICS => Metric::parse(entry).map(drop),
        _ => Ok(()),
    }
}

/// Adds the numbers and metrics that the check asserts. `text` is the answer that has the text.
pub(super) fn add(ask: &ProbeContext, text: &ProbeAnswer, answers: &mut ProbeAnswers) {
    for assertion in &ask.check.assertions {
        let Some(entry) = assertion.entry.as_deref() else { continue };
        let read: fn(&str, &str) -> ProbeAnswer = match assertion.property {
            NUMBERS => find_number,
            METRICS => find_metric,
            _ => continue,
        };
        let answer = text.clone().and_then(|text| read(entry, text.as_str().unwrap_or_default()));
        answers.insert_entry(assertion.property, entry, answer);
    }
}

fn number_regex(text: &str) -> Result<GoRegex, String> {
    let regex = go_regex(text).map_err(|why| format!("not a valid regular expression: {why}"))?;
    match regex.regex().captures_len() - 1 {
        1 => Ok(regex),
        groups => Err(format!(
            "`{text}` has {groups} groups; it needs one group, around the number: 'threads: (\\d+)'; \
             `(?:...)` does not count"
        )),
    }
}

/// The number in the group of the first match.
fn find_number(regex: &str, text: &str) -> ProbeAnswer {
    let regex = number_regex(regex).map_err(unknown_error)?;
    if regex.cost(text) as u64 >= MAX_COST {
        return Err(failed_error("too much to compare"));
    }
    let Some(found) = regex.regex().captures(text) else { return Err(failed_error("nothing matches the expression")) };
    // An alternative of the expression may have no group.
    let group = found.get(1).ok_or_else(|| failed_error("the match has no number"))?;
    // The text itself is not quoted, because it may be the content of a file.
    read_number(group.as_str()).ok_or_else(|| failed_error("the matched text is not a number"))
}

fn find_metric(metric: &str, text: &str) -> ProbeAnswer {
    let metric = Metric::parse(metric).map_err(unknown_error)?;
    match prometheus::find(&metric, text).map_err(failed_error)?[..] {
        [] => Err(failed_error("there is no such metric")),
        [value] => read_number(value).ok_or_else(|| failed_error("the value of the metric is not a number")),
        // The check does not say which of them it means.
        ref several => Err(unknown_error(format!("{} metrics match; name more labels", several.len()))),
    }
}

/// A number as JSON. Infinite values, which JSON does not have, are texts that matchers compare as
/// numbers.
fn read_number(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    Numeric::read(&Value::from(text)).map(Numeric::value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_group_of_the_first_match_is_the_number() {
        let text = "threads: 12\nload 0.75 of 4\nthreads: 13\nused 93%\nbig 1e6 inf -3 x5x\n";
        for (regex, wanted) in [
            (r"threads: (\d+)", Ok(json!(12))),
            (r"(?m)^load (\S+)", Ok(json!(0.75))),
            (r"(\d+)%", Ok(json!(93))),
            (r"big (\S+)", Ok(json!(1e6))),
            (r"inf (-\d)", Ok(json!(-3))),
            (r"(?:used|free) (\d+)", Ok(json!(93))),
            (r"errors: (\d+)", Err("nothing matches the expression")),
            (r"(load)", Err("the matched text is not a number")),
            (r"load|(never)", Err("the match has no number")),
        ] {
            assert_eq!(find_number(regex, text), wanted.map_err(failed_error), "{regex}");
        }
        let expensive = format!("({})", "(?:a{1,60}){1,60}");
        assert_eq!(find_number(&expensive, &"a".repeat(1 << 20)), Err(failed_error("too much to compare")));
    }

    #[test]
    fn an_expression_has_one_group() {
        assert_eq!(validate(NUMBERS, r"(\d+)"), Ok(()));
        for (wrong, why) in [(r"\d+", "has 0 groups"), (r"(a)(b)", "has 2 groups"), ("(", "not a valid regular")] {
            assert!(validate(NUMBERS, wrong).is_err_and(|told| told.contains(why)), "{wrong}");
        }
    }

    #[test]
    fn one_metric_must_match() {
        let text = "# TYPE up gauge\nup{job=\"a\"} 1\nup{job=\"b\"} 0\nload1 0.5 1700000000000\nlimit +Inf\nnone NaN\n";
        for (selector, wanted) in [
            ("load1", Ok(json!(0.5))),
            (r#"up{job="b"}"#, Ok(json!(0))),
            ("limit", Ok(json!("inf"))),
            ("none", Ok(json!("NaN"))),
            ("up", Err(unknown_error("2 metrics match; name more labels"))),
            (r#"up{job="c"}"#, Err(failed_error("there is no such metric"))),
            ("load", Err(failed_error("there is no such metric"))),
        ] {
            assert_eq!(find_metric(selector, text), wanted, "{selector}");
        }
        assert_eq!(find_metric("up", "<html>"), Err(failed_error("line 1 is not in the text format of Prometheus")));
    }
}
