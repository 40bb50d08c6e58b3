//! The `getent` module: entries of a name service database as facts.

use super::{ModuleCall, ModuleResult, TaskOutcome};
use serde_json::{Map, Value, json};

pub fn getent(call: &mut ModuleCall) -> ModuleResult {
    let database = call.required_text(&["database"])?;
    let key = call.text(&["key"]).filter(|k| !k.is_empty());
    let service = call.text(&["service"]);
    if [Some(&database), key.as_ref(), service.as_ref()].into_iter().flatten().any(|w| w.starts_with('-')) {
        return Err("`database`, `key` and `service` cannot begin with `-`".into());
    }
    let colons = matches!(database.as_str(), "passwd" | "shadow" | "group" | "gshadow");
    let split = call.text(&["split"]).or_else(|| colons.then(|| ":".to_owned()));
    let mut argv = vec!["getent"];
    argv.extend(service.as_deref().into_iter().flat_map(|s| ["-s", s]));
    argv.push(&database);
    argv.extend(key.as_deref());
    let done = call.run_quietly(&argv)?;
    let name = format!("getent_{database}");
    match done.rc {
        Some(0) => {}
        Some(1) => return Err("Missing arguments, or database unknown.".into()),
        Some(2) if !call.flag("fail_key", true) => {
            let facts = Map::from_iter([(name, json!({key.unwrap_or_default(): null}))]);
            return Ok(TaskOutcome {
                facts,
                ..TaskOutcome::ok("One or more supplied key could not be found in the database.")
            });
        }
        Some(2) => {
            let message = "One or more supplied key could not be found in the database.".to_owned();
            return Err(call.ground.node.note_missing(message));
        }
        Some(3) => return Err("Enumeration not supported on this database.".into()),
        _ => return Err(super::failure_message("getent", &done)),
    }
    let mut found: Map<String, Value> = Map::new();
    for line in done.stdout.lines() {
        let mut parts = match &split {
            Some(sign) => line.split(sign.as_str()).collect::<Vec<_>>().into_iter(),
            None => line.split_whitespace().collect::<Vec<_>>().into_iter(),
        };
        let Some(first) = parts.next() else { continue };
        let rest: Vec<&str> = parts.collect();
        found.insert(first.to_owned(), json!(rest));
    }
    Ok(TaskOutcome { facts: Map::from_iter([(name, Value::Object(found))]), ..TaskOutcome::default() })
}
