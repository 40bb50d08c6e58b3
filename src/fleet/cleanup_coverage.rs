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

use super::mentions::{Mentions, covers, one_of, strings, strip_service_suffix, tokens};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use remoor_config::Fleet;
use remoor_model::{Fault, Phase};
use remoor_playbook::{Plan, PredictedTask};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Directories that are empty after the next boot anyway.
const PASSING: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev"];

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
            && !PASSING.iter().chain(&["/proc", "/sys"]).any(|dir| covers(dir, path))
            && !removed.iter().any(|dir| covers(dir, path))
    };
    for task in tasks.iter().filter(|task| task.certain) {
        let remove = "remove it there; to keep it, list it in `state` of its service in remoor.yml";
        if let Some(path) = file(task)
            && lasts(&path)
            && !mentions.file(&path)
        {
            warn(task, format!("{path} is made"), remove);
        }
        if let Some((path, how)) = tree(task)
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
        for unit in units(task) {
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

/// The file that a task creates completely. None for an edited file, because it existed before.
/// None for a directory, because a cleanup empties it and does not remove it.
fn file(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    let state = args.get("state").and_then(Value::as_str).unwrap_or_default();
    let path = match task.module.as_str() {
        "template" | "copy" | "get_url" => one_of(args, &["dest", "path"])?,
        "cron" if state != "absent" => match one_of(args, &["cron_file"])? {
            path if path.starts_with('/') => path,
            name => format!("/etc/cron.d/{name}"),
        },
        "file" if ["touch", "link", "hard"].contains(&state) => one_of(args, &["path", "dest", "name"])?,
        _ => return None,
    };
    let path = match path.strip_suffix('/') {
        Some(dir) => {
            let source = one_of(args, &["src", "url"])?;
            let source =
                if task.module == "get_url" { source.split(['?', '#']).next().unwrap_or_default() } else { &source };
            format!("{dir}/{}", source.rsplit('/').next().unwrap_or_default())
        }
        None => path,
    };
    (path.starts_with('/') && !path.ends_with('/')).then_some(path)
}

/// The directory that a task fills or mounts, with the verb for the warning.
fn tree(task: &PredictedTask) -> Option<(String, &'static str)> {
    let args = task.args.as_ref()?;
    let is = |name: &str, want: bool| args.get(name).and_then(truth) == Some(want);
    let (path, how) = match task.module.as_str() {
        "unarchive" => match one_of(args, &["dest"])? {
            root if root.trim_end_matches('/').is_empty() => (one_of(args, &["creates"])?, "is unpacked"),
            dest => (dest, "gets what is unpacked"),
        },
        "git" if !is("clone", false) => (one_of(args, &["dest"])?, "is cloned"),
        "mount" if ["mounted", "present", "ephemeral"].contains(&args.get("state")?.as_str()?) => {
            (one_of(args, &["path", "name"])?, "is mounted")
        }
        _ => return None,
    };
    let path = path.trim_end_matches('/');
    path.starts_with('/').then(|| (path.to_owned(), how))
}

/// The account or crontab entry that a task creates: its kind and its name. None for the user and
/// group root, because they existed before.
fn named_entry(task: &PredictedTask) -> Option<(&'static str, String)> {
    let args = task.args.as_ref()?;
    let kind = match task.module.as_str() {
        "user" => "user",
        "group" => "group",
        // A crontab entry in its own file disappears together with the file.
        "cron" if !args.contains_key("cron_file") => "cron entry",
        _ => return None,
    };
    let gone = args.get("state").and_then(Value::as_str) == Some("absent");
    let name = one_of(args, if kind == "user" { &["name", "user"] } else { &["name"] })?;
    (!gone && (kind == "cron entry" || name != "root")).then_some((kind, name))
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::String(text) => match text.to_lowercase().as_str() {
            "yes" | "true" | "on" | "1" => Some(true),
            "no" | "false" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// A path that a task of the provisioning removes again.
fn removed_path(task: &PredictedTask) -> Option<String> {
    let args = task.args.as_ref()?;
    let absent = args.get("state").and_then(Value::as_str) == Some("absent");
    (task.module == "file" && absent).then(|| one_of(args, &["path", "dest", "name"]))?
}

/// The units that a task starts or enables, either by a module or by `systemctl start` and
/// `systemctl enable`.
fn units(task: &PredictedTask) -> Vec<String> {
    let Some(args) = task.args.as_ref() else { return Vec::new() };
    if is_command(task) {
        let mut out = Vec::new();
        // Each of these characters begins another command.
        for part in texts(task).split(['\n', ';', '&', '|']) {
            let mut words =
                tokens(part).skip_while(|word| *word != "systemctl").skip(1).filter(|w| !w.starts_with('-'));
            if words.next().is_some_and(|verb| ["start", "enable", "reenable"].contains(&verb)) {
                out.extend(words.filter(|word| !word.contains(['$', '>', '<'])).map(str::to_owned));
            }
        }
        return out;
    }
    if !["systemd", "systemd_service", "service", "sysvinit"].contains(&task.module.as_str()) {
        return Vec::new();
    }
    let started = args.get("state").and_then(Value::as_str) == Some("started");
    let runs = started || args.get("enabled").and_then(truth) == Some(true);
    one_of(args, &["name", "unit", "service"]).filter(|_| runs).into_iter().collect()
}

fn is_command(task: &PredictedTask) -> bool {
    ["command", "shell", "raw"].contains(&task.module.as_str())
}

/// The text that a task runs. The words of a command are on one line; a script is unchanged.
fn texts(task: &PredictedTask) -> String {
    let mut texts = Vec::new();
    task.args.iter().for_each(|args| strings(args, &mut texts));
    if task.module == "command" { texts.join(" ") } else { texts.join("\n") }
}

/// The ports that a command opens: `iptables -A ... --dport 80`, `firewall-cmd --add-port=80/tcp`,
/// `ufw allow 80/tcp`.
fn ports(task: &PredictedTask) -> Vec<String> {
    if !is_command(task) {
        return Vec::new();
    }
    let text = texts(task);
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
