//! Divides the tasks of all hosts into services, and collects what the tasks of each service make.

use super::parts::{Found, Part, found_parts, is_unknown_effect, with_known_options};
use super::{ImportSource, ImportedService};
use remoor_model::Fault;
use remoor_playbook::{Plan, PredictedTask, SourcePlace, Task, TaskCondition};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of a service's name, as in `remoor.yml`.
const NAME_MAX: usize = 63;
/// Maximum number of parts of all services together.
const PARTS_MAX: usize = 20_000;
/// Tags that select tasks of all services.
const SPECIAL_TAGS: [&str; 2] = ["always", "never"];

/// A part of a service on some hosts, as the last tasks leave it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Origin {
    /// The first task that makes the part.
    pub place: SourcePlace,
    /// Position of that task among the tasks of its host.
    pub order: usize,
    /// Whether every run of the playbook makes the part on these hosts.
    pub certain: bool,
    pub started: bool,
    pub enabled: bool,
    /// The mode of the file in octal. None: unknown, or not the same on all hosts.
    pub mode: Option<u32>,
    pub hosts: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct ServiceParts {
    /// The parts of each service.
    pub parts: BTreeMap<String, BTreeMap<Part, Origin>>,
    /// The services of each host.
    pub of_hosts: BTreeMap<String, BTreeSet<String>>,
    /// The tags that all tasks of a service have.
    tags: BTreeMap<String, BTreeSet<String>>,
    pub unknown: BTreeSet<Fault>,
}

impl ServiceParts {
    pub fn services(&self) -> Vec<ImportedService> {
        let count =
            |parts: &BTreeMap<Part, Origin>, is: fn(&Part) -> bool| parts.keys().filter(|part| is(part)).count();
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

    /// The tag by which the tasks of a service are selected: all its tasks have the tag, and no
    /// task of another service has it.
    pub fn own_tag(&self, service: &str) -> Option<&str> {
        let others = || self.tags.iter().filter(|(name, _)| *name != service);
        let own = self.tags.get(service)?;
        own.iter().map(String::as_str).find(|tag| others().all(|(_, tags)| !tags.contains(*tag)))
    }

    /// Adds the parts of one host. A part that several services make belongs to `shared`, because
    /// none of them can be set up alone.
    fn add_host(&mut self, host: &str, parts: BTreeMap<(Part, String), Origin>, owners: &Owners) {
        for ((part, service), origin) in parts {
            let service = match owners.is_shared(&part) {
                true => owners.shared.clone(),
                false => service,
            };
            self.of_hosts.entry(host.to_owned()).or_default().insert(service.clone());
            match self.parts.entry(service).or_default().entry(part) {
                std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(origin)),
                std::collections::btree_map::Entry::Occupied(mut known) => known.get_mut().join(origin),
            }
        }
    }
}

impl Origin {
    /// Adds the same part of another host, or of another service of the same host.
    fn join(&mut self, other: Self) {
        self.certain &= other.certain;
        self.started &= other.started;
        self.enabled &= other.enabled;
        self.mode = self.mode.filter(|mode| Some(*mode) == other.mode);
        self.order = self.order.min(other.order);
        self.hosts.extend(other.hosts);
    }
}

/// The services that make each part.
#[derive(Debug, Default)]
struct Owners {
    services: BTreeMap<Part, BTreeSet<String>>,
    /// Name of the service for parts of several services.
    shared: String,
}

impl Owners {
    fn is_shared(&self, part: &Part) -> bool {
        let several = self.services.get(part).is_some_and(|services| services.len() > 1);
        several && matches!(part, Part::File(_) | Part::Edited(_) | Part::State(_) | Part::Unit(_))
    }
}

/// Collects the parts of all hosts. `facts` are the facts that count as known. Fails if there are
/// too many parts.
pub(super) fn collect(source: &ImportSource, facts: &Map<String, Value>) -> Result<ServiceParts, Fault> {
    let mut work = ServiceParts::default();
    let mut owners = Owners::default();
    let mut hosts = Vec::new();
    let mut count = 0;
    for (host, plan) in source.plans() {
        work.of_hosts.entry(host.to_owned()).or_default();
        collect_tags(plan, &mut work.tags);
        let parts = host_parts(host, plan, facts, &mut work);
        count += parts.len();
        if count > PARTS_MAX {
            let message = format!("the hosts have more than {PARTS_MAX} files, units and packages together");
            return Err(Fault::error(&source.files.playbook, 0, 0, message).hint("import fewer hosts at once"));
        }
        for (part, service) in parts.keys() {
            owners.services.entry(part.clone()).or_default().insert(service.clone());
        }
        hosts.push((host.to_owned(), parts));
    }
    let taken = |name: &str| owners.services.values().flatten().any(|service| service == name);
    owners.shared = if taken("shared") { "shared-by-services".to_owned() } else { "shared".to_owned() };
    for (host, parts) in hosts {
        work.add_host(&host, parts, &owners);
    }
    Ok(work)
}

/// The tags that all tasks of each service have. Handlers run whenever they are notified, so their
/// tags do not count.
fn collect_tags(plan: &Plan, tags: &mut BTreeMap<String, BTreeSet<String>>) {
    plan.each_task(&mut |task| {
        if task.module == "meta" || task.place.file.contains("/handlers/") {
            return;
        }
        let own = task.tags.iter().filter(|tag| !SPECIAL_TAGS.contains(&tag.as_str())).cloned().collect();
        tags.entry(service_name(&task.place.file)).and_modify(|known| *known = &*known & &own).or_insert(own);
    });
}

/// The parts that one host has after a run, each with the service whose task made it.
fn host_parts(
    host: &str,
    plan: &Plan,
    facts: &Map<String, Value>,
    work: &mut ServiceParts,
) -> BTreeMap<(Part, String), Origin> {
    let mut written: BTreeMap<(&str, u32), Vec<&Task>> = BTreeMap::new();
    plan.each_task(&mut |task| written.entry((&task.place.file, task.place.line)).or_default().push(task));
    let mut parts: BTreeMap<(Part, String), Origin> = BTreeMap::new();
    for (order, task) in plan.predicted_tasks(facts).iter().enumerate() {
        let written = written.get(&(task.place.file.as_str(), task.place.line)).map(Vec::as_slice).unwrap_or_default();
        // A task that only ever predicts makes nothing.
        if written.iter().any(|task| task.modes.check_mode == Some(Value::Bool(true))) {
            continue;
        }
        let task = &with_known_options(task);
        let only_reads = !written.is_empty() && written.iter().all(|task| changes_nothing(task));
        let sources: Vec<&str> = written.iter().flat_map(|task| task.files.assets.keys()).map(String::as_str).collect();
        if is_unknown_effect(task, &sources) && !only_reads {
            work.unknown.insert(unknown_effect(task));
        }
        let certain = task.certain && written.iter().all(|task| task.outcome.ignore_errors.is_none());
        let service = service_name(&task.place.file);
        for found in found_parts(task, &sources) {
            apply(
                &mut parts,
                found,
                &service,
                Origin {
                    place: task.place.clone(),
                    order,
                    certain,
                    started: false,
                    enabled: false,
                    mode: None,
                    hosts: [host.to_owned()].into(),
                },
            );
        }
    }
    add_package_data(&mut parts);
    drop_contradictions(&mut parts);
    parts
}

/// Adds the data directory of a service whose package and unit have the same name, because packages
/// of Debian put it into /var/lib. The cleanup keeps it. A directory that does not exist is no
/// fault.
fn add_package_data(parts: &mut BTreeMap<(Part, String), Origin>) {
    let packages: BTreeSet<&str> = parts
        .keys()
        .filter_map(|(part, _)| match part {
            Part::Package(name) => Some(name.strip_suffix("-server").unwrap_or(name)),
            _ => None,
        })
        .collect();
    let data: Vec<((Part, String), Origin)> = parts
        .iter()
        .filter_map(|((part, service), origin)| match part {
            Part::Unit(unit) => {
                let name = unit.strip_suffix(".service")?;
                let name = name.strip_suffix("-server").unwrap_or(name);
                let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
                let origin = Origin { started: false, enabled: false, mode: None, ..origin.clone() };
                let path = format!("/var/lib/{name}");
                (is_plain && packages.contains(name)).then(|| ((Part::State(path), service.clone()), origin))
            }
            _ => None,
        })
        .collect();
    for (key, origin) in data {
        parts.entry(key).or_insert(origin);
    }
}

/// Applies the effect of one task to the parts of its host.
fn apply(parts: &mut BTreeMap<(Part, String), Origin>, found: Found, service: &str, origin: Origin) {
    let certain = origin.certain;
    match found {
        Found::Removed(part) => {
            // A task that may not run leaves the part in doubt.
            parts.retain(|(known, _), _| !certain || *known != part);
            parts.iter_mut().filter(|((known, _), _)| *known == part).for_each(|(_, origin)| origin.certain = false);
        }
        Found::Unit { unit, started, enabled } => {
            let key = (Part::Unit(unit), service.to_owned());
            // A unit that tasks only stop is no unit of the service.
            if started != Some(true) && enabled != Some(true) && !parts.contains_key(&key) {
                return;
            }
            let known = parts.entry(key).or_insert(origin);
            known.certain |= certain;
            // A task that may not run leaves its result in doubt, so only the common result counts.
            let last = |before: bool, now: Option<bool>| now.map_or(before, |now| now && (certain || before));
            known.started = last(known.started, started);
            known.enabled = last(known.enabled, enabled);
        }
        Found::Made { part, mode } => {
            let mode = mode.filter(|_| certain);
            // An edit may change the mode of a file that another task wrote.
            if let Part::Edited(path) = &part {
                let file = Part::File(path.clone());
                parts.iter_mut().filter(|((known, _), _)| *known == file).for_each(|(_, origin)| {
                    origin.mode = mode;
                });
            }
            let known = parts.entry((part, service.to_owned())).or_insert(Origin { mode, ..origin });
            known.certain |= certain;
            known.mode = mode;
        }
    }
}

/// A path that is also a directory of this host is no file, and an edited file that another task
/// writes completely is listed once.
fn drop_contradictions(parts: &mut BTreeMap<(Part, String), Origin>) {
    let mut directories = BTreeSet::new();
    let mut files = BTreeSet::new();
    for (part, _) in parts.keys() {
        match part {
            Part::State(path) | Part::Directory(path) => drop(directories.insert(path.clone())),
            Part::File(path) => drop(files.insert(path.clone())),
            _ => {}
        }
        if let Part::File(path) | Part::Edited(path) | Part::State(path) = part {
            directories.extend(path.match_indices('/').skip(1).map(|(end, _)| path[..end].to_owned()));
        }
    }
    parts.retain(|(part, _), _| match part {
        Part::File(path) => !directories.contains(path),
        Part::Edited(path) => !directories.contains(path) && !files.contains(path),
        Part::Directory(_) => false,
        _ => true,
    });
}

/// The service of a task: the role that contains the file of the task, or else the playbook.
fn service_name(file: &str) -> String {
    let folders: Vec<&str> = file.split('/').collect();
    let role = folders.windows(2).rev().find(|pair| ["tasks", "handlers"].contains(&pair[1])).map(|pair| pair[0]);
    let stem = || folders.last().and_then(|name| name.rsplit_once('.')).map_or("playbook", |(stem, _)| stem);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let name: String = role.unwrap_or_else(stem).chars().map(plain).take(NAME_MAX - 1).collect();
    if name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') { name } else { format!("_{name}") }
}

/// Whether the author says that the task changes nothing (`changed_when: false`). Such a command
/// only reads.
fn changes_nothing(task: &Task) -> bool {
    task.outcome.changed_when.as_deref().is_some_and(|all| all.iter().any(TaskCondition::is_always_false))
}

fn unknown_effect(task: &PredictedTask) -> Fault {
    let module = task.module.split('@').next().unwrap_or_default();
    let (message, hint) = match task.args {
        None => (
            format!("the options of `{module}` are known only during a run"),
            "give the facts of a host with --facts, or add the files to the service in remoor.yml",
        ),
        Some(_) => (
            format!("the effect of `{module}` is not known completely"),
            "add the files, units and data that it makes to its service in remoor.yml",
        ),
    };
    Fault::warn(&task.place.file, task.place.line, 1, message).hint(hint)
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
