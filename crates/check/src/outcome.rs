//! The complete result of one assertion, for output formats: the found value, the time, and the
//! position in the check file.

use super::explain::Explained;
use super::judge::JudgedAssertion;
use super::load::Check;
use super::redact::redact_passwords;
use super::spec::{ResourceKind, SPECS};
use remoor_model::{CheckResult, Sha256};
use serde_json::{Map, Value};
use std::time::{Duration, SystemTime};

/// Maximum length of strings and lists that a result keeps of a found value.
const TEXT_MAX: usize = 16 << 10;
const LIST_MAX: usize = 1000;

/// The result of one assertion, with the properties of its check.
#[derive(Debug, Clone)]
pub struct AssertionOutcome {
    pub result: CheckResult,
    /// The resource type of the check, as in check files.
    pub kind: String,
    /// The id of the check as goss prints it, followed by the name if the name is different.
    pub id: String,
    pub title: Option<String>,
    /// `meta` as written.
    pub annotations: Map<String, Value>,
    /// The file of the check. `line` is the line of the check in the rendered text of this file.
    pub file: String,
    pub line: u32,
    /// None if there was no value. Never contains the content of a secret.
    pub explained: Option<Explained>,
    /// Hash of the complete found value, if the assertion does not hold and the value is no secret.
    /// The values in the other fields may be cut off.
    pub seen: Option<Sha256>,
    /// What a failure means, and the next command. None for groups.
    pub hint: Option<String>,
    /// Time at which the check was started. All properties of a check are answered together, so
    /// `took` is set only for the first.
    pub started: SystemTime,
    pub took: Duration,
}

impl AssertionOutcome {
    pub(super) fn new(check: &Check, judged: JudgedAssertion) -> Self {
        let JudgedAssertion { result, explained, seen, hint } = judged;
        Self {
            result,
            kind: check.kind.to_string(),
            id: goss_id(check),
            title: check.title.clone(),
            annotations: check.annotations.clone(),
            file: check.file.clone(),
            line: check.line,
            explained,
            seen,
            hint,
            started: SystemTime::UNIX_EPOCH,
            took: Duration::ZERO,
        }
    }
}

/// The id as goss prints it. For a command it never contains the command line. For a resource type
/// that goss does not know, it is the id alone.
fn goss_id(check: &Check) -> String {
    let name = redact_passwords(&check.name);
    let known = check.kind != ResourceKind::Command && SPECS.iter().any(|spec| spec.kind == check.kind);
    if known && name != check.id { format!("{}: {name}", check.id) } else { check.id.clone() }
}

/// Cuts all values, so that the results of checks of many large files stay small.
pub(super) fn limit_sizes(mut explained: Explained) -> Explained {
    let lists = [&mut explained.missing, &mut explained.extra, &mut explained.transforms];
    for list in lists.into_iter().chain(&mut explained.found) {
        list.truncate(LIST_MAX);
        list.iter_mut().for_each(cut);
    }
    cut(&mut explained.actual);
    cut(&mut explained.untransformed);
    cut(&mut explained.expected);
    explained
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((at, _)) = text.char_indices().nth(TEXT_MAX) {
                text.truncate(at);
                text.push('…');
            }
        }
        Value::Array(items) => {
            items.truncate(LIST_MAX);
            items.iter_mut().for_each(cut);
        }
        Value::Object(map) => map.values_mut().for_each(cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
