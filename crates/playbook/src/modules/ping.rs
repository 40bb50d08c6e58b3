//! The `ping` module: answers without using the node.

use super::{Answer, Call, Outcome};
use serde_json::json;

pub fn ping(call: &mut Call) -> Answer {
    let data = call.text(&["data"]).unwrap_or_else(|| "pong".into());
    if data == "crash" {
        return Err("boom".into());
    }
    let mut out = Outcome::default();
    out.more.insert("ping".into(), json!(data));
    Ok(out)
}
