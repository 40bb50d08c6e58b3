//! Formats for people who know goss. `documentation` has a line for each assertion, `rspecish` has
//! a letter.

use super::{Counts, describe, is_bad, is_skipped, one_line, seconds, shorten_json};
use crate::solo::run::SuiteRun;
use remoor_check::AssertionOutcome;

pub(super) fn documentation(run: &SuiteRun) -> String {
    let mut text = String::new();
    let mut before: Option<&AssertionOutcome> = None;
    for outcome in run.reported_outcomes() {
        if before.is_none_or(|before| (&before.kind, &before.id) != (&outcome.kind, &outcome.id)) {
            text += &heading(outcome);
        }
        text += &(describe(outcome) + "\n");
        before = Some(outcome);
    }
    text + "\n" + &failures_and_totals(run)
}

pub(super) fn rspecish(run: &SuiteRun) -> String {
    let letter = |outcome: &AssertionOutcome| match (is_bad(outcome), is_skipped(outcome)) {
        (true, _) => 'F',
        (_, true) => 'S',
        _ => '.',
    };
    let letters: String = run.reported_outcomes().map(letter).collect();
    format!("{letters}\n\n{}", failures_and_totals(run))
}

/// The title and the metadata of a check, as far as they exist.
fn heading(outcome: &AssertionOutcome) -> String {
    let mut text = String::new();
    if let Some(title) = &outcome.title {
        text += &format!("Title: {}\n", one_line(title));
    }
    if !outcome.annotations.is_empty() {
        text += "Meta:\n";
        for (key, value) in &outcome.annotations {
            text += &format!("    {}: {}\n", one_line(key), shorten_json(value));
        }
    }
    text
}

/// All assertions that did not pass, check by check, and the totals.
fn failures_and_totals(run: &SuiteRun) -> String {
    let mut text = String::new();
    let mut before: Option<&AssertionOutcome> = None;
    for outcome in run.reported_outcomes().filter(|outcome| is_bad(outcome) || is_skipped(outcome)) {
        if before.is_none() {
            text += "Failures/Skipped:\n\n";
        }
        if before.is_none_or(|before| (&before.kind, &before.id) != (&outcome.kind, &outcome.id)) {
            text += if before.is_some() { "\n" } else { "" };
            text += &heading(outcome);
        }
        text += &(describe(outcome) + "\n");
        before = Some(outcome);
    }
    let counts = Counts::for_run(run);
    let gap = if before.is_some() { "\n" } else { "" };
    format!(
        "{text}{gap}Total Duration: {}\nCount: {}, Failed: {}, Skipped: {}\n",
        seconds(run.took),
        counts.all,
        counts.failed,
        counts.skipped
    )
}
