//! `matching`: reads nothing from the machine; the answer is the value in the check itself.

use super::{ProbeAnswers, ProbeContext};
use crate::go_value::format_value;
use serde_json::Value;

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let argument = |name: &str| ask.check.arguments.get(name).cloned().unwrap_or_default();
    let content = argument("content");
    // With `as-reader`, the value is the text that Go prints.
    let found = if argument("as-reader") == Value::Bool(true) { format_value(&content).into() } else { content };
    ProbeAnswers::from([("matches", Ok(found))])
}
