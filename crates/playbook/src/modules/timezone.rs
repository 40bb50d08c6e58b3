//! The `timezone` module: the time zone of the node, and whether its hardware clock has local time.
//!
//! `timedatectl` reads and changes both. Where it does not answer, the module changes the files of
//! Debian for the time zone.

use super::{ModuleCall, ModuleResult, TaskOutcome, require_success, write_file};
use crate::run::event::AttributeChange;
use serde_json::json;
use std::path::Path;

const ZONES: &str = "/usr/share/zoneinfo";

pub fn timezone(call: &mut ModuleCall) -> ModuleResult {
    let (name, clock) = (call.text(&["name"]), call.text(&["hwclock", "rtc"]));
    if let Some(name) = &name {
        let good = !name.starts_with(['/', '-', '.']) && !name.split('/').any(|part| part == "..");
        if !good || !Path::new(ZONES).join(name).is_file() {
            return Err(format!("the time zone `{name}` is not available: {ZONES}/{name} does not exist"));
        }
    }
    call.env.push(("LC_ALL".into(), "C".into()));
    let status = match call.find_program("timedatectl") {
        Ok(program) => {
            let done = call.run_quietly(&[&program, "status"])?;
            done.success().then_some((program, done.stdout))
        }
        Err(_) => None,
    };
    let (mut out, mut messages) = (TaskOutcome::default(), Vec::new());
    for (key, wanted, verb) in [("hwclock", clock, "set-local-rtc"), ("name", name, "set-timezone")] {
        let Some(wanted) = wanted else { continue };
        let predicted = format!("timezone {key}");
        let told = call.predicted_text(&predicted);
        let now = match (&told, &status) {
            (Some(told), _) => told.clone(),
            (None, Some((_, status))) => value_in_status(status, key)?,
            (None, None) => zone_of_files(call, key, &wanted)?,
        };
        if now == wanted {
            continue;
        }
        out.changed = true;
        out.attributes.push(AttributeChange::new(key, now, wanted.clone()));
        match &status {
            Some((program, _)) => {
                let value = match (key, wanted.as_str()) {
                    ("hwclock", "local") => "yes",
                    ("hwclock", _) => "no",
                    (_, zone) => zone,
                };
                let argv = [program.as_str(), verb, value];
                let done = call.run_or_predict(&argv, |would| would.set_text(&predicted, &wanted))?;
                require_success("timedatectl", &done)?;
                if !call.ground.node.is_check_mode() {
                    messages.push(format!("executed `{}`", argv.join(" ")));
                    confirm(call, program, key, &wanted)?;
                }
            }
            None => set_zone_files(call, &wanted)?,
        }
    }
    let mut out = out.with_result(json!({}));
    out.msg = messages.join("\n");
    Ok(out)
}

/// The value of `name` or `hwclock` in the output of `timedatectl status`.
fn value_in_status(status: &str, key: &str) -> Result<String, String> {
    let labels: &[&str] = if key == "name" { &["Time zone", "Timezone"] } else { &["RTC in local TZ"] };
    let value = |line: &str| {
        let (label, value) = line.split_once(':')?;
        labels.contains(&label.trim()).then(|| value.split_whitespace().next().map(str::to_owned))?
    };
    let found = status.lines().find_map(value);
    let found = found.ok_or_else(|| format!("`timedatectl status` does not report `{}`", labels[0]))?;
    Ok(match (key, found.as_str()) {
        ("hwclock", "yes") => "local".into(),
        ("hwclock", _) => "UTC".into(),
        _ => found,
    })
}

fn confirm(call: &ModuleCall, program: &str, key: &str, wanted: &str) -> Result<(), String> {
    let done = call.run_quietly(&[program, "status"])?;
    let now = value_in_status(&done.stdout, key)?;
    match now == wanted {
        true => Ok(()),
        false => Err(format!("`{key}` is still {now} and not {wanted}, although timedatectl reported no error")),
    }
}

/// The time zone in `/etc/timezone`. `n/a` if the file does not exist, or if it names `wanted` and
/// `/etc/localtime` is another zone.
fn zone_of_files(call: &ModuleCall, key: &str, wanted: &str) -> Result<String, String> {
    if key == "hwclock" {
        return Err("`hwclock` needs `timedatectl`, which does not answer on this node".into());
    }
    let node = &call.ground.node;
    if node.follow(Path::new("/etc/debian_version")).is_none() {
        return Err("this node has no usable `timedatectl`".into());
    }
    let text = match node.stat(Path::new("/etc/timezone"))? {
        Some(_) => String::from_utf8_lossy(&node.read(Path::new("/etc/timezone"))?).trim().to_owned(),
        None => "n/a".to_owned(),
    };
    let local = node.follow(Path::new("/etc/localtime")).map(|(real, _)| real);
    let zone = std::fs::canonicalize(Path::new(ZONES).join(wanted)).ok();
    let same = match (&local, &zone) {
        (Some(local), Some(zone)) => local == zone || node.same_content(local, zone)?,
        _ => false,
    };
    Ok(if text == wanted && !same { "n/a".into() } else { text })
}

fn set_zone_files(call: &mut ModuleCall, wanted: &str) -> Result<(), String> {
    let local = Path::new("/etc/localtime");
    call.ground.back_up_replaced(local)?;
    call.ground.node.link(local, &Path::new(ZONES).join(wanted))?;
    write_file::write_system_file(
        call,
        Path::new("/etc/timezone"),
        format!("{wanted}\n").into_bytes(),
        "timezone",
        None,
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_timedatectl_is_read() {
        let status = "               Local time: Mon 2026-01-05 10:00:00 UTC\n                Time zone: Europe/Berlin (CET, +0100)\n          RTC in local TZ: no\n";
        assert_eq!(value_in_status(status, "name").as_deref(), Ok("Europe/Berlin"));
        assert_eq!(value_in_status(status, "hwclock").as_deref(), Ok("UTC"));
        assert!(value_in_status("", "name").is_err());
    }
}
