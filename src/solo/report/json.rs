//! The JSON of goss: its structure and its keys, and for each result also its file, line and hint.

use super::{Counts, describe, describe_compact, is_bad, is_skipped, property, seconds, trouble};
use crate::solo::run::SuiteRun;
use jiff::Timestamp;
use remoor_check::{AssertionOutcome, goss_type};
use serde_json::{Value, json};
use std::time::SystemTime;

/// One result per assertion, in the order of the files, and a summary. Times are in RFC 3339,
/// durations in nanoseconds.
pub fn goss_json(run: &SuiteRun) -> Value {
    let counts = Counts::for_run(run);
    let results: Vec<Value> = run.reported_outcomes().map(result).collect();
    json!({
        "results": results,
        "summary": {
            "failed-count": counts.failed,
            "skipped-count": counts.skipped,
            "summary-line": format!(
                "Count: {}, Failed: {}, Skipped: {}, Duration: {}",
                counts.all, counts.failed, counts.skipped, seconds(run.took)
            ),
            "test-count": counts.all,
            "total-duration": nanoseconds(run.took),
        },
    })
}

fn result(outcome: &AssertionOutcome) -> Value {
    let result = if is_skipped(outcome) { 2 } else { i32::from(is_bad(outcome)) };
    let meta = if outcome.annotations.is_empty() { Value::Null } else { Value::Object(outcome.annotations.clone()) };
    json!({
        "duration": nanoseconds(outcome.took),
        "end-time": moment(outcome.started + outcome.took),
        "err": trouble(outcome),
        // goss has neither `file` nor `hint` nor `line`.
        "file": outcome.file,
        "hint": outcome.hint,
        "line": outcome.line,
        "matcher-result": matcher_result(outcome),
        "meta": meta,
        "property": property(outcome),
        "resource-id": outcome.id,
        "resource-type": goss_type(&outcome.kind),
        "result": result,
        "skipped": is_skipped(outcome),
        "start-time": moment(outcome.started),
        "successful": !is_bad(outcome),
        "summary-line": describe(outcome),
        "summary-line-compact": describe_compact(outcome),
        "title": outcome.title.as_deref().unwrap_or_default(),
    })
}

fn matcher_result(outcome: &AssertionOutcome) -> Value {
    let list = |values: &[Value]| if values.is_empty() { Value::Null } else { values.to_vec().into() };
    let Some(told) = outcome.explained.as_ref().filter(|_| !is_skipped(outcome)) else {
        return json!({
            "actual": null, "expected": null, "extra-elements": null, "found-elements": null, "message": "",
            "missing-elements": null, "transform-chain": null, "untransformed-value": null,
        });
    };
    let message = if is_bad(outcome) { told.message.as_str() } else { "matches expectation" };
    json!({
        "actual": told.actual,
        "expected": told.expected,
        "extra-elements": list(&told.extra),
        "found-elements": told.found,
        "message": message,
        "missing-elements": list(&told.missing),
        "transform-chain": list(&told.transforms),
        "untransformed-value": told.untransformed,
    })
}

fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn moment(time: SystemTime) -> String {
    Timestamp::try_from(time).map_or_else(|_| String::new(), |moment| moment.to_string())
}
