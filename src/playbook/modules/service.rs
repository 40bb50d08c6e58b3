//! `service` and `systemd`: one question to systemd for the state of the unit, then only what differs.

use super::{Answer, Call, Outcome, complaint};
use serde_json::json;
use std::collections::BTreeMap;

pub fn service(call: &mut Call) -> Answer {
    let mut said: Vec<String> = Vec::new();
    if call.flag("daemon_reload", false) {
        systemctl(call, &["daemon-reload"])?;
    }
    if call.flag("daemon_reexec", false) {
        systemctl(call, &["daemon-reexec"])?;
    }
    let Some(name) = call.text(&["name", "service", "unit"]) else {
        return Ok(Outcome::ok(""));
    };
    if name.starts_with('-') || name.is_empty() {
        return Err(format!("`{name}` is no name of a unit"));
    }
    let unit = show(call, &name)?;
    let state = call.text(&["state"]);
    let value = |key: &str| unit.get(key).map(String::as_str).unwrap_or_default();
    let missing = value("LoadState") == "not-found" || value("LoadState").is_empty();
    let masked = value("LoadState") == "masked" || value("UnitFileState").starts_with("masked");
    let going = |wanted: bool| if wanted { "started" } else { "stopped" };
    if missing && value("ActiveState") != "active" {
        let gone = state.as_deref().is_none_or(|s| s == "stopped") && call.given_flag("enabled") != Some(true);
        if call.cleanup() && gone {
            return Ok(Outcome::ok("there is no such unit, as it should be"));
        }
        return Err(format!("there is no unit `{name}`"));
    }
    if let Some(want) = call.given_flag("masked").filter(|want| *want != masked) {
        systemctl(call, &[if want { "mask" } else { "unmask" }, "--", &name])?;
        said.push(if want { "masked" } else { "unmasked" }.into());
    }
    if let Some(want) = call.given_flag("enabled") {
        let enabled = matches!(value("UnitFileState"), "enabled" | "enabled-runtime");
        let fixed =
            matches!(value("UnitFileState"), "static" | "alias" | "generated" | "transient" | "linked" | "indirect");
        if want != enabled && !(fixed && (want || value("UnitFileState") == "static")) && (want || !masked) {
            systemctl(call, &[if want { "enable" } else { "disable" }, "--", &name])?;
            said.push(if want { "enabled" } else { "disabled" }.into());
        }
    }
    let active = matches!(value("ActiveState"), "active" | "activating" | "reloading");
    let verb = match state.as_deref() {
        None => None,
        Some("started") => (!active).then_some("start"),
        Some("stopped") => (active || value("ActiveState") == "deactivating").then_some("stop"),
        Some("restarted") => Some("restart"),
        Some("reloaded") => Some(if active { "reload" } else { "start" }),
        Some(other) => return Err(format!("`{other}` is no state of a service")),
    };
    if let Some(verb) = verb {
        let mut argv = vec![verb];
        if call.flag("no_block", false) {
            argv.push("--no-block");
        }
        argv.extend(["--", &name]);
        systemctl(call, &argv)?;
        said.push(match verb {
            "stop" => "stopped".into(),
            "reload" => "reloaded".into(),
            verb => format!("{verb}ed"),
        });
    }
    let mut out = Outcome { changed: !said.is_empty(), msg: said.join(", "), ..Outcome::default() };
    out.more.insert("name".into(), json!(name));
    out.more.insert("state".into(), json!(state.unwrap_or_else(|| going(active).into())));
    out.more.insert("status".into(), json!(unit));
    Ok(out)
}

fn show(call: &Call, name: &str) -> Result<BTreeMap<String, String>, String> {
    let done = call.quiet(&[
        "systemctl",
        "show",
        "--property=LoadState,ActiveState,SubState,UnitFileState,MainPID",
        "--",
        name,
    ])?;
    if !done.success() {
        return Err(complaint("systemctl show", &done));
    }
    Ok(done.stdout.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
}

fn systemctl(call: &mut Call, args: &[&str]) -> Result<(), String> {
    let mut argv = vec!["systemctl"];
    argv.extend(args);
    let done = call.loud(&argv)?;
    if done.success() { Ok(()) } else { Err(complaint(&argv.join(" "), &done)) }
}
