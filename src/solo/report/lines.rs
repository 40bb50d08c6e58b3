//! The formats `tap`, with a line for each assertion, and `nagios`, with one line in total.

use super::{Counts, describe_compact, is_bad, is_skipped, seconds};
use crate::solo::run::SuiteRun;
use remoor_model::CheckState;

pub(super) fn tap(run: &SuiteRun) -> String {
    let mut text = format!("1..{}\n", run.reported_outcomes().count());
    for (number, outcome) in run.reported_outcomes().enumerate() {
        let word = if is_bad(outcome) { "not ok" } else { "ok" };
        let skip = if is_skipped(outcome) { "# SKIP " } else { "" };
        // An unescaped `#` would start a TAP directive.
        text += &format!("{word} {} - {skip}{}\n", number + 1, describe_compact(outcome).replace('#', "\\#"));
    }
    text
}

pub(super) fn nagios(run: &SuiteRun) -> String {
    let counts = Counts::for_run(run);
    let word = match (run.count(CheckState::Fail), run.count(CheckState::Unknown), run.is_as_wanted()) {
        (_, _, true) => "OK",
        (0, _, false) => "UNKNOWN",
        _ => "CRITICAL",
    };
    format!(
        "REMOOR {word} - Count: {}, Failed: {}, Skipped: {}, Duration: {}\n",
        counts.all,
        counts.failed,
        counts.skipped,
        seconds(run.took)
    )
}
