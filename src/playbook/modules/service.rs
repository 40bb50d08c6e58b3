//! `service` and `systemd`: one question to systemd for the state of the unit, then only what differs.

use super::{Answer, Call, Outcome, complaint};
use serde_json::json;
use std::collections::BTreeMap;

pub fn service(call: &mut Call) -> Answer {
    if let Some(other) = call.text(&["use"]).filter(|u| !matches!(u.as_str(), "auto" | "systemd")) {
        return Err(format!("services by `{other}` are not known, only by systemd; use provisioner kind: ansible"));
    }
    let mut said: Vec<String> = Vec::new();
    for (option, verb) in [("daemon_reload", "daemon-reload"), ("daemon_reexec", "daemon-reexec")] {
        if call.flag(option, call.flag(verb, false)) {
            systemctl(call, &[verb], &[])?;
        }
    }
    let Some(name) = call.text(&["name", "service", "unit"]) else {
        return Ok(Outcome::ok(""));
    };
    if name.starts_with('-') || name.is_empty() || name.contains(['*', '?', '[', '/']) {
        return Err(format!("`{name}` is no name of a unit"));
    }
    let mut unit = show(call, &name)?;
    let state = call.text(&["state"]);
    let of = |unit: &BTreeMap<String, String>, key: &str| unit.get(key).cloned().unwrap_or_default();
    let load = of(&unit, "LoadState");
    let mut active = of(&unit, "ActiveState");
    if matches!(load.as_str(), "not-found" | "") && active != "active" {
        let gone = state.as_deref().is_none_or(|s| s == "stopped") && call.given_flag("enabled") != Some(true);
        if call.cleanup() && gone {
            return Ok(Outcome::ok("there is no such unit, as it should be"));
        }
        return Err(call.ground.node.missing(format!("there is no unit `{name}`")));
    }
    let file = of(&unit, "UnitFileState");
    let mut masked = load == "masked" || file.starts_with("masked");
    if let Some(want) = call.given_flag("masked").filter(|want| *want != masked) {
        let set = [
            ("UnitFileState", if want { "masked" } else { "disabled" }),
            ("LoadState", if want { "masked" } else { "loaded" }),
        ];
        systemctl(call, &[if want { "mask" } else { "unmask" }, "--", &name], &set)?;
        said.push(if want { "masked" } else { "unmasked" }.into());
        masked = want;
        // Which was hidden behind the mask.
        unit = show(call, &name)?;
    }
    let file = of(&unit, "UnitFileState");
    // One of these has nothing that could be enabled.
    let fixed = matches!(file.as_str(), "static" | "generated" | "transient");
    let mut enabled = fixed || matches!(file.as_str(), "enabled" | "enabled-runtime");
    if let Some(want) = call.given_flag("enabled")
        && want != enabled
        && (!fixed || want)
        && (want || !masked)
    {
        let mut argv = vec![if want { "enable" } else { "disable" }];
        if call.flag("force", false) {
            argv.push("--force");
        }
        argv.extend(["--", &name]);
        systemctl(call, &argv, &[("UnitFileState", if want { "enabled" } else { "disabled" })])?;
        said.push(if want { "enabled" } else { "disabled" }.into());
        enabled = want;
    }
    let runs = matches!(active.as_str(), "active" | "activating" | "reloading");
    let verb = match state.as_deref() {
        None => None,
        Some("started") => (!runs).then_some("start"),
        Some("stopped") => (runs || active == "deactivating").then_some("stop"),
        Some("restarted") => Some("restart"),
        Some("reloaded") => Some(if runs { "reload" } else { "start" }),
        Some(other) => return Err(format!("`{other}` is no state of a service")),
    };
    if let Some(verb) = verb {
        if masked && verb != "stop" {
            return Err(format!("`{name}` is masked; `masked: false` makes it one that can be started"));
        }
        active = if verb == "stop" { "inactive" } else { "active" }.into();
        let sub = if verb == "stop" { "dead" } else { "running" };
        systemctl(call, &[verb, "--", &name], &[("ActiveState", &active), ("SubState", sub)])?;
        said.push(match verb {
            "stop" => "stopped".into(),
            "reload" => "reloaded".into(),
            verb => format!("{verb}ed"),
        });
    }
    let is_up = matches!(active.as_str(), "active" | "activating" | "reloading");
    let mut out = Outcome { changed: !said.is_empty(), msg: said.join(", "), ..Outcome::default() };
    out.more.insert("name".into(), json!(name));
    if state.is_some() {
        out.more.insert("state".into(), json!(if is_up { "started" } else { "stopped" }));
    }
    if call.given_flag("enabled").is_some() {
        out.more.insert("enabled".into(), json!(enabled));
    }
    out.more.insert("status".into(), json!(unit));
    Ok(out)
}

/// The unit's properties, in check mode with what would be.
fn show(call: &Call, name: &str) -> Result<BTreeMap<String, String>, String> {
    let mut argv = vec!["systemctl", "show", "--no-pager"];
    argv.extend(scope(call)?);
    argv.extend(["--", name]);
    let done =
        call.quiet(&argv).map_err(|e| format!("{e}; this node has no systemd, use provisioner kind: ansible"))?;
    if !done.success() {
        return Err(complaint("systemctl show", &done));
    }
    let told = done.stdout.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    Ok(call.ground.node.unit(name, told.collect()))
}

/// Runs it, or notes what it would `set` of the unit, which is its last word.
fn systemctl(call: &mut Call, args: &[&str], set: &[(&str, &str)]) -> Result<(), String> {
    let mut argv = vec!["systemctl"];
    argv.extend(scope(call)?);
    if call.flag("no_block", false) {
        argv.push("--no-block");
    }
    argv.extend(args);
    let unit = args.last().copied().unwrap_or_default();
    let done = call.act(&argv, |would| set.iter().for_each(|(key, value)| would.set_unit(unit, key, value)))?;
    if done.success() { Ok(()) } else { Err(complaint(&argv.join(" "), &done)) }
}

/// Whose systemd it is.
fn scope(call: &Call) -> Result<Option<&'static str>, String> {
    match call.text(&["scope"]).as_deref() {
        None | Some("system") => Ok(None),
        Some("user") => Ok(Some("--user")),
        Some("global") => Ok(Some("--global")),
        Some(other) => Err(format!("`{other}` is no scope of systemd")),
    }
}
