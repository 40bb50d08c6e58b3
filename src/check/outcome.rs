//! One assertion answered in full: for reports that tell what was found, when, and where it was asked for.

use super::explain::Explained;
use super::judge::Judged;
use super::load::Check;
use super::masked::masked;
use super::spec::{Kind, SPECS};
use crate::model::{CheckResult, Sha256};
use serde_json::{Map, Value};
use std::time::{Duration, SystemTime};

/// Longest text and list that a report keeps of what was found.
const TEXT_MAX: usize = 16 << 10;
const LIST_MAX: usize = 1000;

/// The answer to one assertion, with what its check says of itself.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub result: CheckResult,
    /// Name of the resource type, as in the file.
    pub kind: String,
    /// As goss tells it: with the name behind it, where that is another.
    pub id: String,
    pub title: Option<String>,
    /// `meta` as it is written.
    pub annotations: Map<String, Value>,
    /// Where the check stands, in the rendered text.
    pub file: String,
    pub line: u32,
    /// None: there was no value. Never the content of a secret.
    pub explained: Option<Explained>,
    /// Hash of all that was found, where it does not hold and is no secret: what else is here of it may be cut.
    pub seen: Option<Sha256>,
    /// When the check was asked. All its properties are answered at once: the time that this took stands at the first.
    pub started: SystemTime,
    pub took: Duration,
}

impl Outcome {
    pub(super) fn new(check: &Check, judged: Judged) -> Self {
        let Judged { result, explained, seen } = judged;
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
            started: SystemTime::UNIX_EPOCH,
            took: Duration::ZERO,
        }
    }
}

/// Of a command it is never the line that is run, and what goss does not know has the id alone.
fn goss_id(check: &Check) -> String {
    let name = masked(&check.name);
    let known = check.kind != Kind::Command && SPECS.iter().any(|spec| spec.kind == check.kind);
    if known && name != check.id { format!("{}: {name}", check.id) } else { check.id.clone() }
}

/// Values of bounded length, so that a report of many large files stays small.
pub(super) fn bounded(mut explained: Explained) -> Explained {
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
