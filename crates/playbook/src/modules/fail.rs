//! The `fail` module: fails with a message.

use super::{Answer, Call};

pub fn fail(call: &mut Call) -> Answer {
    Err(call.text(&["msg"]).unwrap_or_else(|| "Failed as requested from task".into()))
}
