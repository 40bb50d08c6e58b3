//! Times of the replicated log in answers. The log has milliseconds. An answer also has each time
//! as RFC 3339 text in another field.

use crate::rpc::wire::rfc3339;
use remoor_model::Wall;
use serde_json::Value;

/// Names of fields that contain a time of the log, each with the name of the field for its text.
const MOMENTS: &[(&str, &str)] = &[
    ("at", "time"),
    ("opened", "opened_time"),
    ("since", "since_time"),
    ("examined", "examined_time"),
    ("last_seen", "last_seen_time"),
    ("returned", "returned_time"),
    ("retry_at", "retry_time"),
    ("closed", "closed_time"),
    ("overtaken", "overtaken_time"),
    ("from", "from_time"),
    ("until", "until_time"),
    ("to", "to_time"),
];
/// Limits of times, in the years 2001 and 9999. A number outside the limits is not a time.
const EARLIEST_MS: u64 = 1_000_000_000_000;
const LATEST_MS: u64 = 253_402_300_800_000;

/// Adds a text field for each time in milliseconds. Times that are already text are unchanged.
pub fn with_times(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(with_times),
        Value::Object(fields) => {
            fields.values_mut().for_each(with_times);
            for (name, text) in MOMENTS {
                let moment = fields.get(*name).and_then(moment);
                if let Some(moment) = moment.filter(|_| !fields.contains_key(*text)) {
                    fields.insert((*text).to_owned(), Value::String(rfc3339(moment)));
                }
            }
        }
        _ => {}
    }
}

/// The time in `value`. `value` is the time itself, or a pair of a time and an event.
fn moment(value: &Value) -> Option<Wall> {
    let ms = match value {
        Value::Array(pair) if pair.len() == 2 => pair.iter().find_map(Value::as_u64)?,
        other => other.as_u64()?,
    };
    (EARLIEST_MS..LATEST_MS).contains(&ms).then_some(Wall(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn moments_get_a_text_beside_them_and_nothing_else_changes() {
        let before = json!({
            "at": 1_700_000_000_123_u64,
            "since": "2026-03-05T12:00:00Z",
            "absence": {"returned": null, "last_seen": 1_700_000_000_000_u64},
            "attempts": [{"closed": [1_700_000_001_000_u64, "done"]}, {"closed": null}],
            "took_ms": 1_700_000_000_000_u64,
            "until": 5
        });
        let mut after = before.clone();
        with_times(&mut after);
        assert_eq!(after["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(after["absence"]["last_seen_time"], "2023-11-14T22:13:20.000Z");
        assert_eq!(after["attempts"][0]["closed_time"], "2023-11-14T22:13:21.000Z");
        let added = ["time", "last_seen_time", "closed_time"];
        fn strip(value: &mut Value, added: &[&str]) {
            match value {
                Value::Array(items) => items.iter_mut().for_each(|i| strip(i, added)),
                Value::Object(fields) => {
                    fields.retain(|name, _| !added.contains(&name.as_str()));
                    fields.values_mut().for_each(|v| strip(v, added));
                }
                _ => {}
            }
        }
        let once = after.clone();
        with_times(&mut after);
        assert_eq!(after, once, "a second run changes nothing");
        strip(&mut after, &added);
        assert_eq!(after, before);
    }
}
