//! The results of a suite in the formats that other programs read. The names and keys are those of
//! goss, so that programs for goss can read them. This module prints nothing.
//!
//! Texts of the machine are written as JSON or with escaped control characters, so no such text can
//! begin a line.

mod json;
mod junit;
mod lines;
mod metrics;
mod text;

pub use json::goss_json;

use super::run::SuiteRun;
use remoor_check::{AssertionOutcome, goss_property, goss_type};
use remoor_model::{CheckState, sanitize};
use serde_json::Value;
use std::str::FromStr;

/// An output format of goss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Documentation,
    Rspecish,
    /// The JSON of goss on one line.
    Structured,
    Tap,
    Junit,
    Nagios,
    Prometheus,
    /// No output; only the exit code.
    Silent,
}

impl Form {
    pub const ALL: [(&'static str, Form); 8] = [
        ("documentation", Form::Documentation),
        ("rspecish", Form::Rspecish),
        ("structured", Form::Structured),
        ("tap", Form::Tap),
        ("junit", Form::Junit),
        ("nagios", Form::Nagios),
        ("prometheus", Form::Prometheus),
        ("silent", Form::Silent),
    ];
}

impl FromStr for Form {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Form::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, form)| form).ok_or(())
    }
}

/// Renders the run in a format, with a trailing newline.
pub fn in_form(form: Form, run: &SuiteRun) -> String {
    match form {
        Form::Documentation => text::documentation(run),
        Form::Rspecish => text::rspecish(run),
        Form::Structured => goss_json(run).to_string() + "\n",
        Form::Tap => lines::tap(run),
        Form::Junit => junit::junit(run),
        Form::Nagios => lines::nagios(run),
        Form::Prometheus => metrics::prometheus(run),
        Form::Silent => String::new(),
    }
}

/// Number of assertions. `failed` includes unknown assertions, and `skipped` includes waived ones.
struct Counts {
    all: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn for_run(run: &SuiteRun) -> Self {
        Self::count_outcomes(run.outcomes.iter())
    }

    /// Counts only the reported assertions, for JUnit, whose first element has the number of
    /// assertions.
    fn for_reported(run: &SuiteRun) -> Self {
        Self::count_outcomes(run.reported_outcomes())
    }

    fn count_outcomes<'a>(outcomes: impl Iterator<Item = &'a AssertionOutcome> + Clone) -> Self {
        let failed = outcomes.clone().filter(|outcome| is_bad(outcome)).count();
        let skipped = outcomes.clone().filter(|outcome| is_skipped(outcome)).count();
        Self { all: outcomes.count(), failed, skipped }
    }
}

fn is_bad(outcome: &AssertionOutcome) -> bool {
    matches!(outcome.result.state, CheckState::Fail | CheckState::Unknown)
}

/// Whether the assertion counts as skipped. A waived assertion counts as skipped too, because goss
/// has no waivers.
fn is_skipped(outcome: &AssertionOutcome) -> bool {
    matches!(outcome.result.state, CheckState::Skip | CheckState::Waived)
}

/// The name that goss has for the property.
fn property(outcome: &AssertionOutcome) -> &str {
    goss_property(&outcome.kind, &outcome.result.property)
}

/// The assertion's type, id and property: `File: /etc/x: mode`.
fn subject(outcome: &AssertionOutcome) -> String {
    format!("{}: {}: {}", goss_type(&outcome.kind), one_line(&outcome.id), property(outcome))
}

/// The message of an assertion without a comparable value.
fn trouble(outcome: &AssertionOutcome) -> Option<&str> {
    (is_bad(outcome) && outcome.explained.is_none()).then_some(outcome.result.message.as_str())
}

/// The text of one assertion, on several lines.
fn describe(outcome: &AssertionOutcome) -> String {
    let subject = subject(outcome);
    if outcome.result.state == CheckState::Skip {
        return format!("{subject}: skipped");
    }
    if outcome.result.state == CheckState::Waived {
        return format!("{subject}: skipped, {}", one_line(&outcome.result.message));
    }
    if let Some(why) = trouble(outcome) {
        return format!("{subject}:\nError\n    {}", one_line(why));
    }
    let Some(explained) = &outcome.explained else { return format!("{subject}: matches expectation") };
    if !is_bad(outcome) {
        return format!("{subject}: matches expectation: {}", shorten_json(&explained.expected));
    }
    let mut text = format!(
        "{subject}:\nExpected\n    {}\n{}\n    {}",
        shorten_json(&explained.actual),
        one_line(&explained.message),
        shorten_json(&explained.expected)
    );
    let lists = [("missing", &explained.missing), ("extra", &explained.extra)];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        text += &format!("\nthe {name} elements were\n    {}", shorten_json(&Value::from(list.clone())));
    }
    if !explained.transforms.is_empty() {
        text += &format!(
            "\nthe transform chain was\n    {}\nthe raw value was\n    {}",
            shorten_json(&Value::from(explained.transforms.clone())),
            shorten_json(&explained.untransformed)
        );
    }
    text
}

/// The text of one assertion on one line.
fn describe_compact(outcome: &AssertionOutcome) -> String {
    describe(outcome).lines().map(str::trim_start).collect::<Vec<_>>().join(" ")
}

fn shorten_json(value: &Value) -> String {
    const LONGEST: usize = 1000;
    let text = one_line(&value.to_string());
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Escapes all characters that would end the line or control a terminal.
fn one_line(text: &str) -> String {
    let steers = |c: char| c.is_control() || sanitize::is_invisible(c);
    if !text.contains(steers) {
        return text.to_owned();
    }
    text.chars().map(|c| if steers(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A duration in seconds: `0.002s`.
fn seconds(time: std::time::Duration) -> String {
    format!("{:.3}s", time.as_secs_f64())
}
