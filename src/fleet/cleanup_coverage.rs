//! Checks that a group's cleanup mentions everything that its provisioning creates: files;
//! unpacked, cloned and mounted directories; accounts; crontab entries; units; and ports opened in
//! a firewall.
//!
//! Only tasks that certainly run on a host are checked. A task under a condition that only the node
//! can evaluate is not checked. Some items are excluded: paths that are kept on purpose (`state`
//! and `keep` of a service), and files that do not survive a reboot. Packages are excluded too,
//! because a repair does not reinstall them.
//!
//! The code is pure. `mentions` collects the names in a cleanup. The cleanup verification of an
//! attempt checks on the node whether the cleanup really removed them.

use super::effects::{VOLATILE, command_text, created_file, filled_directory, is_command, named_entry, started_units};
use super::mentions::{Mentions, covers, one_of, strip_service_suffix, tokens};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use remoor_config::Fleet;
use remoor_model::{Fault, Phase};
use remoor_playbook::{Plan, PredictedTask};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Returns a warning for each item that `provision` creates on `host` and `cleanup` does not
/// mention. A cleanup without any effect is not checked, because its author intends that.
pub(super) fn left_behind(
    fleet: &Fleet,
    host: &str,
    context: &Map<String, Value>,
    cleanup: &Plan,
    provision: &Plan,
) -> Vec<Fault> {
    if !cleanup.does_something() {
        return Vec::new();
    }
    let stays = stays(fleet, host, context);
    let mentions = Mentions::from_plan(cleanup, &of_attempt(Phase::Cleanup));
    let tasks = provision.predicted_tasks(&of_attempt(Phase::Provision));
    let removed: Vec<String> = tasks.iter().filter_map(removed_path).collect();
    let mut told = BTreeSet::new();
    let mut faults = Vec::new();
    let mut warn = |task: &PredictedTask, what: String, hint: &str| {
        if told.insert(what.clone()) {
            let message = format!("{what} here, and {} does not mention it", cleanup.playbook);
            faults.push(Fault::warn(&task.place.file, task.place.line, 1, message).hint(hint));
        }
    };
    let lasts = |path: &str| {
        !stays.is_match(path)
            && !VOLATILE.iter().any(|dir| covers(dir, path))
            && !removed.iter().any(|dir| covers(dir, path))
    };
    for task in tasks.iter().filter(|task| task.certain) {
        let remove = "remove it there; to keep it, list it in `state` of its service in remoor.yml";
        if let Some(path) = created_file(task)
            && lasts(&path)
            && !mentions.file(&path)
        {
            warn(task, format!("{path} is made"), remove);
        }
        if let Some((path, how)) = filled_directory(task)
            && lasts(&path)
            && !mentions.tree(&path)
        {
            warn(task, format!("{path} {how}"), remove);
        }
        if let Some((kind, name)) = named_entry(task)
            && !mentions.name(&name)
            && !(kind == "cron entry" && mentions.crontabs())
        {
            let hint = format!("remove it there with `{}` and `state: absent`", task.module);
            warn(task, format!("the {kind} {name} is made"), &hint);
        }
        for unit in started_units(task) {
            if !mentions.unit(&unit) {
                warn(task, format!("the unit {} is started", strip_service_suffix(&unit)), "stop and disable it there");
            }
        }
        for port in ports(task) {
            if !mentions.port(&port) {
                warn(task, format!("the firewall is opened for port {port}"), "close it there");
            }
        }
    }
    faults
}

/// Placeholder values for the variables of an attempt, so that a text with these variables can be
/// rendered.
fn of_attempt(phase: Phase) -> Map<String, Value> {
    let text = phase.as_str();
    let values = json!({"remoor_job": 0, "remoor_attempt": 0, "remoor_phase": text, "remoor_services": []});
    values.as_object().cloned().unwrap_or_default()
}

/// Paths that a cleanup keeps on purpose, with everything below them. An invalid glob is ignored,
/// because it is reported elsewhere.
fn stays(fleet: &Fleet, host: &str, context: &Map<String, Value>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for service in fleet.config.services.values() {
        for path in service.state.iter().chain(&service.keep) {
            let rendered = super::paths(host, std::slice::from_ref(path), context).unwrap_or_default();
            for path in rendered.iter().map(|path| path.trim_end_matches('/')) {
                let globs = [path.to_owned(), format!("{path}/**")];
                for glob in globs.iter().filter_map(|glob| GlobBuilder::new(glob).literal_separator(true).build().ok())
                {
                    set.add(glob);
                }
            }
        }
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

/// The port that a task of the module `iptables` or `ufw` opens.
fn module_port(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    let is = |option: &str, value: &str| args.get(option).and_then(Value::as_str) == Some(value);
    let port = |names: &[&str]| {
        names.iter().find_map(|name| match args.get(*name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        })
    };
    match task.module.as_str() {
        "iptables" if is("jump", "ACCEPT") && !is("state", "absent") => port(&["destination_port"]),
        "ufw" if is("rule", "allow") && !args.contains_key("delete") => port(&["to_port", "port"]),
        _ => None,
    }
}

/// A path that a task of the provisioning removes again.
fn removed_path(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    let absent = args.get("state").and_then(Value::as_str) == Some("absent");
    (task.module == "file" && absent).then(|| one_of(args, &["path", "dest", "name"]))?
}

/// The ports that a task opens: `iptables -A ... --dport 80`, `firewall-cmd --add-port=80/tcp`,
/// `ufw allow 80/tcp`, or the modules `iptables` and `ufw`.
fn ports(task: &PredictedTask) -> Vec<String> {
    if !is_command(task) {
        return module_port(task).into_iter().collect();
    }
    let text = command_text(task);
    let number = |word: &str| {
        let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
        let ends = word[digits.len()..].chars().next().is_none_or(|c| c == '/' || c == ':');
        (!digits.is_empty() && ends).then_some(digits)
    };
    let mut out = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = tokens(line).collect();
        let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
        let after = |names: &[&str]| {
            let pairs = words.windows(2).filter(|pair| names.contains(&pair[0]));
            pairs.filter_map(|pair| number(pair[1])).collect::<Vec<_>>()
        };
        if has(&["iptables", "ip6tables"]) && has(&["-A", "-I", "--append", "--insert"]) {
            out.extend(after(&["--dport", "--dports", "--destination-port"]));
        }
        if has(&["firewall-cmd"]) {
            out.extend(after(&["--add-port"]));
        }
        if has(&["ufw"]) {
            out.extend(after(&["allow"]));
        }
    }
    out
}

#[cfg(test)]
#[path = "inverse_tests.rs"]
mod tests;
