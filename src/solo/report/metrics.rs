//! Writes results as Prometheus text with goss's metric names.

use super::{is_bad, is_skipped};
use crate::solo::run::SuiteRun;
use remoor_check::AssertionOutcome;
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) fn prometheus(run: &SuiteRun) -> String {
    let mut all: BTreeMap<(&str, String), (usize, u128)> = BTreeMap::new();
    for outcome in &run.outcomes {
        let sum = all.entry((outcome_name(outcome), outcome.kind.replace('-', ""))).or_default();
        *sum = (sum.0 + 1, sum.1 + outcome.took.as_millis());
    }
    let mut text = String::new();
    family(&mut text, "goss_tests_outcomes_duration_milliseconds", "Time that the assertions of this run took.");
    for ((outcome, kind), (_, took)) in &all {
        row(&mut text, "goss_tests_outcomes_duration_milliseconds", &[("outcome", outcome), ("type", kind)], *took);
    }
    family(&mut text, "goss_tests_outcomes_total", "Assertions of this run by outcome.");
    for ((outcome, kind), (count, _)) in &all {
        row(&mut text, "goss_tests_outcomes_total", &[("outcome", outcome), ("type", kind)], *count as u128);
    }
    let whole = [("outcome", if run.is_as_wanted() { "pass" } else { "fail" })];
    family(&mut text, "goss_tests_run_duration_milliseconds", "Time that this run took.");
    row(&mut text, "goss_tests_run_duration_milliseconds", &whole, run.took.as_millis());
    family(&mut text, "goss_tests_run_outcomes_total", "Runs by outcome.");
    row(&mut text, "goss_tests_run_outcomes_total", &whole, 1);
    text
}

fn outcome_name(outcome: &AssertionOutcome) -> &'static str {
    match (is_bad(outcome), is_skipped(outcome)) {
        (true, _) => "fail",
        (_, true) => "skip",
        _ => "pass",
    }
}

fn family(text: &mut String, name: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
}

/// Writes one sample. Label values are constants of this program, never names of the machine, so
/// they are not escaped.
fn row(text: &mut String, name: &str, labels: &[(&str, &str)], value: u128) {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
    let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
}
