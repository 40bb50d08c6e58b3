//! The `pause` module: waits for a fixed time.

use super::{ModuleCall, ModuleResult, TaskOutcome, wait_for};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub fn pause(call: &mut ModuleCall) -> ModuleResult {
    let time = match (call.args.contains_key("minutes"), call.args.contains_key("seconds")) {
        (true, _) => call.seconds("minutes", 0.0)?.saturating_mul(60),
        (_, true) => call.seconds("seconds", 0.0)?,
        _ => {
            return Err("`pause` needs `seconds` or `minutes`; remoor does not wait for a key press".into());
        }
    };
    let time = time.max(Duration::from_secs(1));
    let (start, clock) = (jiff::Zoned::now(), Instant::now());
    if !call.ground.node.is_check_mode() && !wait_for::interruptible_sleep(call, time) {
        return Err("cancelled".into());
    }
    // In check mode, Ansible waits too, so the result says how long a run would wait.
    let took = if call.ground.node.is_check_mode() { time } else { clock.elapsed() };
    let (number, unit) = match call.args.contains_key("minutes") {
        true => (took.as_secs_f64() / 60.0, "minutes"),
        false => (took.as_secs_f64(), "seconds"),
    };
    let number = (number * 100.0).round() / 100.0;
    let at = |time: &jiff::Zoned| time.strftime("%Y-%m-%d %H:%M:%S.%6f").to_string();
    let Value::Object(keys) = json!({
        "delta": took.as_secs(), "echo": call.flag("echo", true), "rc": 0, "start": at(&start), "stderr": "",
        "stdout": format!("Paused for {number:?} {unit}"), "stop": at(&jiff::Zoned::now()), "user_input": "",
    }) else {
        return Err("the result of `pause` is a map".into());
    };
    let mut out = TaskOutcome::ok(format!("Paused for {} seconds", time.as_secs()));
    out.extra_keys.extend(keys);
    Ok(out)
}
