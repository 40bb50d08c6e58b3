//! `matching`: does not examine the machine; the answer is the value in the check itself.

use super::{Answers, Ask};
use crate::go_value::printed;
use serde_json::Value;

pub(super) fn ask(ask: &Ask) -> Answers {
    let argument = |name: &str| ask.check.arguments.get(name).cloned().unwrap_or_default();
    let content = argument("content");
    // Read as a stream, the value is text as Go prints it.
    let found = if argument("as-reader") == Value::Bool(true) { printed(&content).into() } else { content };
    Answers::from([("matches", Ok(found))])
}
