//! Small modules that look, wait, or make room: `ping`, `pause`, `getent`, `setup`, `tempfile`.

use super::{Answer, Call, Outcome, wait};
use crate::playbook::{facts, unknown};
use globset::GlobBuilder;
use serde_json::{Map, Value, json};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

pub fn ping(call: &mut Call) -> Answer {
    let data = call.text(&["data"]).unwrap_or_else(|| "pong".into());
    if data == "crash" {
        return Err("boom".into());
    }
    let mut out = Outcome::default();
    out.more.insert("ping".into(), json!(data));
    Ok(out)
}

pub fn pause(call: &mut Call) -> Answer {
    let time = match (call.args.contains_key("minutes"), call.args.contains_key("seconds")) {
        (true, _) => call.seconds("minutes", 0.0)?.saturating_mul(60),
        (_, true) => call.seconds("seconds", 0.0)?,
        _ => return Err("without `seconds` or `minutes` it waits for a key; use provisioner kind: ansible".into()),
    };
    let time = time.max(Duration::from_secs(1));
    if !call.ground.node.checks() && !wait::nap(call, time) {
        return Err("cancelled".into());
    }
    let mut out = Outcome::ok(format!("Paused for {} seconds", time.as_secs()));
    out.more.insert("delta".into(), json!(time.as_secs()));
    Ok(out)
}

pub fn getent(call: &mut Call) -> Answer {
    let database = call.need(&["database"])?;
    let key = call.text(&["key"]).filter(|k| !k.is_empty());
    let service = call.text(&["service"]);
    if [Some(&database), key.as_ref(), service.as_ref()].into_iter().flatten().any(|w| w.starts_with('-')) {
        return Err("a name can't begin with `-`".into());
    }
    let colons = matches!(database.as_str(), "passwd" | "shadow" | "group" | "gshadow");
    let split = call.text(&["split"]).or_else(|| colons.then(|| ":".to_owned()));
    let mut argv = vec!["getent"];
    argv.extend(service.as_deref().into_iter().flat_map(|s| ["-s", s]));
    argv.push(&database);
    argv.extend(key.as_deref());
    let done = call.quiet(&argv)?;
    let name = format!("getent_{database}");
    match done.rc {
        Some(0) => {}
        Some(1) => return Err("Missing arguments, or database unknown.".into()),
        Some(2) if !call.flag("fail_key", true) => {
            let facts = Map::from_iter([(name, json!({key.unwrap_or_default(): null}))]);
            return Ok(Outcome {
                facts,
                ..Outcome::ok("One or more supplied key could not be found in the database.")
            });
        }
        Some(2) => {
            let message = "One or more supplied key could not be found in the database.".to_owned();
            return Err(call.ground.node.missing(message));
        }
        Some(3) => return Err("Enumeration not supported on this database.".into()),
        _ => return Err(super::complaint("getent", &done)),
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
    Ok(Outcome { facts: Map::from_iter([(name, Value::Object(found))]), ..Outcome::default() })
}

pub fn setup(call: &mut Call) -> Answer {
    let globs = call.list(&["filter"]);
    let globs: Vec<_> = globs
        .iter()
        .filter(|g| *g != "*")
        .map(|g| GlobBuilder::new(g).build().map(|g| g.compile_matcher()).map_err(|e| e.to_string()))
        .collect::<Result<_, _>>()?;
    let all = facts::facts(call.cancel);
    let fits = |name: &str| {
        let short = name.strip_prefix("ansible_").unwrap_or(name);
        name == "ansible_facts" || globs.is_empty() || globs.iter().any(|g| g.is_match(name) || g.is_match(short))
    };
    Ok(Outcome { facts: all.into_iter().filter(|(name, _)| fits(name)).collect(), ..Outcome::default() })
}

pub fn tempfile(call: &mut Call) -> Answer {
    let directory = call.text(&["state"]).as_deref() == Some("directory");
    let mut out = Outcome::changed("");
    out.more.insert("state".into(), json!(if directory { "directory" } else { "file" }));
    if call.ground.node.checks() {
        // What it is called, chance decides.
        out.more.insert("path".into(), unknown::mark());
        return Ok(out);
    }
    let (prefix, suffix) =
        (call.text(&["prefix"]).unwrap_or_else(|| "ansible.".into()), call.text(&["suffix"]).unwrap_or_default());
    if prefix.contains('/') || suffix.contains('/') {
        return Err("`prefix` and `suffix` are parts of a name".into());
    }
    let within = match call.args.contains_key("path") {
        true => call.path(&["path"])?,
        false => std::env::temp_dir(),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(&suffix).rand_bytes(8);
    let fail = |e: std::io::Error| format!("{}: {e}", within.display());
    call.ground.node.begin()?;
    let path = if directory {
        builder.permissions(std::fs::Permissions::from_mode(0o700)).tempdir_in(&within).map_err(fail)?.keep()
    } else {
        builder.tempfile_in(&within).map_err(fail)?.keep().map_err(|e| fail(e.error))?.1
    };
    out.more.insert("path".into(), json!(path.display().to_string()));
    call.path_info(&path, &mut out);
    Ok(out)
}
