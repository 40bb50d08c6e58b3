//! Divides the tasks of all hosts into services, and collects what the tasks of each service make.

use super::{ImportSource, ImportedService};
use crate::fleet::effects;
use remoor_model::Fault;
use remoor_playbook::{PredictedTask, SourcePlace};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Directories whose content is configuration. A directory that a task creates elsewhere is data.
const CONFIGURATION: [&str; 6] = ["/etc", "/usr", "/lib", "/bin", "/sbin", "/root"];
/// Directories that are empty after the next boot, or that the kernel provides.
const PASSING: [&str; 7] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev", "/proc", "/sys"];
/// Modules that change nothing on the node, or nothing that a service could name.
const WITHOUT_TRACE: [&str; 23] = [
    "add_host",
    "assert",
    "async_status",
    "debug",
    "fail",
    "find",
    "getent",
    "group_by",
    "include_vars",
    "meta",
    "package_facts",
    "pause",
    "ping",
    "reboot",
    "service_facts",
    "set_fact",
    "setup",
    "slurp",
    "stat",
    "tempfile",
    "uri",
    "wait_for",
    "wait_for_connection",
];
/// Modules whose effect `fleet::effects` knows, besides those for packages and units.
const KNOWN: [&str; 16] = [
    "blockinfile",
    "copy",
    "cron",
    "file",
    "get_url",
    "git",
    "group",
    "hostname",
    "ini_file",
    "lineinfile",
    "mount",
    "replace",
    "sysctl",
    "template",
    "unarchive",
    "user",
];
/// Maximum length of a service's name, as in `remoor.yml`.
const NAME_MAX: usize = 63;

/// One thing that a service has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// A file that tasks write completely.
    File(String),
    /// A file that tasks change in part.
    Edited(String),
    /// A directory with data: unpacked, cloned, mounted, or created outside of the configuration.
    State(String),
    /// A systemd unit with its suffix.
    Unit(String),
    Package(String),
    User(String),
    Group(String),
    /// An entry of root's crontab, by its name.
    CronEntry(String),
}

/// Where a part comes from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub place: SourcePlace,
    /// Whether every run of the playbook makes the part.
    pub certain: bool,
    pub started: bool,
    pub enabled: bool,
    /// The mode of the file, as octal text.
    pub mode: Option<String>,
    pub hosts: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct Work {
    /// The parts of each service.
    pub parts: BTreeMap<String, BTreeMap<Part, Origin>>,
    /// The services of each host.
    pub of_hosts: BTreeMap<String, BTreeSet<String>>,
    /// The tags that all tasks of a service have.
    pub tags: BTreeMap<String, BTreeSet<String>>,
    pub unknown: BTreeSet<Fault>,
}

impl Work {
    pub fn services(&self) -> Vec<ImportedService> {
        let count =
            |parts: &BTreeMap<Part, Origin>, of: fn(&Part) -> bool| parts.keys().filter(|part| of(part)).count();
        self.parts
            .iter()
            .map(|(name, parts)| ImportedService {
                name: name.clone(),
                files: count(parts, |part| matches!(part, Part::File(_) | Part::Edited(_))),
                units: count(parts, |part| matches!(part, Part::Unit(_))),
                packages: count(parts, |part| matches!(part, Part::Package(_))),
                state: count(parts, |part| matches!(part, Part::State(_))),
            })
            .collect()
    }

    /// The tag by which the tasks of a service are selected: all its tasks have the tag, and no task
    /// of another service has it.
    pub fn own_tag(&self, service: &str) -> Option<&str> {
        let others = || self.tags.iter().filter(|(name, _)| *name != service);
        let own = self.tags.get(service)?;
        own.iter().map(String::as_str).find(|tag| others().all(|(_, tags)| !tags.contains(*tag)))
    }
}

/// Collects the work of all hosts. `facts` are the facts that count as known.
pub(super) fn collect(source: &ImportSource, facts: &Map<String, Value>) -> Work {
    let mut work = Work::default();
    let mut owners: BTreeMap<Part, String> = BTreeMap::new();
    for (host, plan) in source.plans() {
        let services = work.of_hosts.entry(host.to_owned()).or_default();
        let mut tags_of_places: BTreeMap<(&str, u32), &[String]> = BTreeMap::new();
        plan.each_task(&mut |task| {
            tags_of_places.insert((task.place.file.as_str(), task.place.line), &task.tags);
        });
        for task in plan.predicted_tasks(facts) {
            if WITHOUT_TRACE.contains(&task.module.as_str()) {
                continue;
            }
            let service = service_name(&task.place.file);
            let tags = tags_of_places.get(&(task.place.file.as_str(), task.place.line)).copied().unwrap_or_default();
            let tags: BTreeSet<String> = tags.iter().cloned().collect();
            work.tags.entry(service.clone()).and_modify(|known| known.retain(|tag| tags.contains(tag))).or_insert(tags);
            services.insert(service.clone());
            let parts = parts_of(&task);
            if parts.is_empty() {
                work.unknown.extend(unknown_effect(&task));
            }
            for (part, started, enabled) in parts {
                // Two services must not have the same file, so the first one keeps it.
                let owner = owners.entry(part.clone()).or_insert_with(|| service.clone()).clone();
                services.insert(owner.clone());
                let origin = work.parts.entry(owner).or_default().entry(part).or_insert_with(|| Origin {
                    place: task.place.clone(),
                    certain: task.certain,
                    started: false,
                    enabled: false,
                    mode: None,
                    hosts: BTreeSet::new(),
                });
                origin.certain |= task.certain;
                origin.started |= started && task.certain;
                origin.enabled |= enabled && task.certain;
                origin.mode = mode(&task).or(origin.mode.take());
                origin.hosts.insert(host.to_owned());
            }
        }
    }
    for service in work.of_hosts.values().flatten() {
        work.parts.entry(service.clone()).or_default();
    }
    work
}

/// The service of a task: the role that contains the file of the task, or else the playbook.
fn service_name(file: &str) -> String {
    let folders: Vec<&str> = file.split('/').collect();
    let role = folders.windows(2).rev().find(|pair| ["tasks", "handlers"].contains(&pair[1])).map(|pair| pair[0]);
    let stem = || folders.last().and_then(|name| name.rsplit_once('.')).map_or("playbook", |(stem, _)| stem);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = role.unwrap_or_else(stem).chars().map(plain).take(NAME_MAX).collect();
    if name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') { name } else { format!("_{name}") }
}

/// What a task makes. For a unit, also whether the task starts and enables it.
fn parts_of(task: &PredictedTask) -> Vec<(Part, bool, bool)> {
    let below = |dirs: &[&str], path: &str| {
        dirs.iter().any(|dir| path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    let mut parts = Vec::new();
    if let Some(path) = effects::created_file(task) {
        parts.push(Part::File(path));
    } else if let Some(path) = effects::edited_file(task) {
        parts.push(Part::Edited(path));
    } else if let Some((path, _)) = effects::filled_directory(task) {
        parts.push(Part::State(path));
    } else if let Some(path) = effects::created_directory(task) {
        parts.push(Part::State(path));
    }
    parts.retain(|part| match part {
        Part::File(path) | Part::Edited(path) => !below(&PASSING, path),
        Part::State(path) => !below(&PASSING, path) && !below(&CONFIGURATION, path) && path.len() > 1,
        _ => true,
    });
    if let Some((kind, name)) = effects::named_entry(task) {
        parts.push(match kind {
            "user" => Part::User(name),
            "group" => Part::Group(name),
            _ => Part::CronEntry(name),
        });
    }
    parts.extend(effects::installed_packages(task).into_iter().map(Part::Package));
    let mut parts: Vec<_> = parts.into_iter().map(|part| (part, false, false)).collect();
    if let Some((name, started, enabled)) = effects::managed_unit(task) {
        parts.push((Part::Unit(unit_with_suffix(&name)), started, enabled));
    }
    for name in effects::started_units(task) {
        parts.push((Part::Unit(unit_with_suffix(&name)), true, false));
    }
    parts
}

fn unit_with_suffix(name: &str) -> String {
    let suffixes = [".service", ".socket", ".timer", ".mount", ".path", ".target", ".slice", ".automount", ".swap"];
    if suffixes.iter().any(|suffix| name.ends_with(suffix)) { name.to_owned() } else { format!("{name}.service") }
}

/// The mode that a task gives its file, if it is octal.
fn mode(task: &PredictedTask) -> Option<String> {
    let mode = task.args.as_ref()?.get("mode")?.as_str()?.trim_start_matches("0o");
    let octal = (3..=5).contains(&mode.len()) && mode.bytes().all(|b| (b'0'..=b'7').contains(&b));
    octal.then(|| format!("{mode:0>4}"))
}

/// A warning for a task of which nothing could be taken over. None: the task makes nothing that a
/// service could have, such as a directory for configuration.
fn unknown_effect(task: &PredictedTask) -> Option<Fault> {
    let module = &task.module;
    let (message, hint) = if task.args.is_none() && !effects::is_command(task) {
        let message = format!("the options of `{module}` are known only during a run");
        (message, "give the facts of a host with --facts, or add the files to the service in remoor.yml")
    } else if KNOWN.contains(&module.as_str()) || effects::is_package_module(module) || effects::is_unit_module(module)
    {
        return None;
    } else {
        (format!("what `{module}` changes is not known"), "add what it makes to its service in remoor.yml")
    };
    Some(Fault::warn(&task.place.file, task.place.line, 1, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_a_role_or_a_playbook() {
        for (file, name) in [
            ("roles/web/tasks/main.yml", "web"),
            ("roles/a.b/handlers/main.yml", "a.b"),
            ("collections/x/roles/db/tasks/sub/more.yml", "db"),
            ("plays/site.yml", "site"),
            ("roles/-odd name/tasks/main.yml", "_-odd_name"),
        ] {
            assert_eq!(service_name(file), name, "{file}");
        }
    }
}
