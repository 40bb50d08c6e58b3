//! `service`: the state of systemd units, queried with one call per run. Where systemd does not
//! run, `init_scripts` has the answers.

use super::super::load::Check;
use super::super::spawn::run;
use super::{ProbeAnswers, ProbeContext, init_scripts, unit_properties, unknown_error};
use remoor_host::systemd::unit_name;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The state of a service. It is Err if there was no answer in time.
pub type ServiceState = Result<Unit, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub running: bool,
    pub enabled: bool,
    /// Empty for systemd, which has no runlevels. goss also returns an empty list.
    pub runlevels: Vec<String>,
}

/// The properties of goss.
const STATE: [&str; 3] = ["enabled", "running", "runlevels"];

pub(super) fn ask(ask: &ProbeContext) -> ProbeAnswers {
    let mut answers = if asks_state(ask.check) { state(ask) } else { ProbeAnswers::default() };
    if unit_properties::is_wanted(ask) {
        unit_properties::add(ask, ask.world.systemd(), &mut answers);
    }
    answers
}

/// Whether the check is about the state of the unit, and not only about other properties.
pub(super) fn asks_state(check: &Check) -> bool {
    check.assertions.iter().any(|assertion| STATE.contains(&assertion.property))
}

fn state(ask: &ProbeContext) -> ProbeAnswers {
    if !is_unit_name(&ask.check.name) {
        // Only a plain goss file can contain such a name.
        return [("enabled", false.into()), ("running", false.into()), ("runlevels", Value::Array(Vec::new()))]
            .map(|(property, value)| (property, Ok(value)))
            .into();
    }
    let unit = ask.world.units().and_then(|units| {
        units
            .get(&unit_name(&ask.check.name))
            .cloned()
            .ok_or_else(|| "systemd did not answer for this unit".to_owned())?
    });
    match unit {
        Ok(unit) => ProbeAnswers::from([
            ("enabled", Ok(unit.enabled.into())),
            ("running", Ok(unit.running.into())),
            ("runlevels", Ok(unit.runlevels.into())),
        ]),
        Err(why) => STATE.map(|property| (property, Err(unknown_error(&why)))).into(),
    }
}

/// Whether this is a valid unit name. Wildcards and a leading dash are not valid, because
/// `systemctl` would interpret them. Templates (`NAME@.service`) are not valid, because they have
/// no state.
pub(super) fn is_unit_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && !unit_name(name).contains("@.")
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"@._:\\-+".contains(&b))
}

/// The state of `units`, by the names that were requested.
pub(super) fn show(units: &BTreeSet<String>, limit: Duration) -> Result<BTreeMap<String, ServiceState>, String> {
    if !Path::new("/run/systemd/system").exists() {
        return Ok(init_scripts::show(units, limit));
    }
    let mut command = Command::new("systemctl");
    command.args(["show", "-p", "Id,LoadState,ActiveState,UnitFileState", "--"]).args(units).env("LC_ALL", "C");
    let output = run(&mut command, limit)?;
    let blocks = blocks(&output.stdout.text());
    // systemctl prints the units in the order of the arguments. The printed name may differ from
    // the requested one.
    if blocks.len() != units.len() {
        return Err(format!(
            "systemctl answered for {} of {} units: {}",
            blocks.len(),
            units.len(),
            output.stderr.text().trim()
        ));
    }
    Ok(units.iter().cloned().zip(blocks.into_iter().map(Ok)).collect())
}

fn blocks(text: &str) -> Vec<Unit> {
    let block = |block: &str| {
        let field =
            |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default();
        Unit {
            running: matches!(field("ActiveState"), "active" | "reloading" | "refreshing"),
            // The states for which `systemctl is-enabled` succeeds.
            enabled: matches!(
                field("UnitFileState"),
                "enabled" | "enabled-runtime" | "static" | "alias" | "indirect" | "generated" | "transient"
            ) && field("LoadState") != "not-found",
            runlevels: Vec::new(),
        }
    };
    text.split("\n\n").filter(|text| text.lines().any(|line| line.starts_with("Id="))).map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_systemctl() {
        let text = "Id=nginx.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n\n\
            Id=gone.service\nLoadState=not-found\nActiveState=inactive\nUnitFileState=\n\n\
            Id=m.service\nLoadState=masked\nActiveState=failed\nUnitFileState=masked\n";
        let wanted = [(true, true), (false, false), (false, false)];
        let unit = |(running, enabled)| Unit { running, enabled, runlevels: Vec::new() };
        assert_eq!(blocks(text), wanted.map(unit));
    }

    #[test]
    fn names_of_units() {
        assert_eq!(unit_name("etcd"), "etcd.service");
        assert_eq!(unit_name("etcd.timer"), "etcd.timer");
        assert_eq!(unit_name("php8.2-fpm"), "php8.2-fpm.service");
        assert!(is_unit_name("getty@tty1"));
        assert!(!is_unit_name("ssh*") && !is_unit_name("-H") && !is_unit_name("a b") && !is_unit_name("a@"));
    }
}
