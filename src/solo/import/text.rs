//! The texts of the generated files.

use super::groups::ImportedGroup;
use super::parts::Part;
use super::vital::{is_vital_path, is_vital_unit};
use super::work::{Origin, ServiceParts};
use remoor_playbook::SourcePlace;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CLEANUP: &str = "remoor-cleanup.yml";
/// In a directory of its own, because the variables next to an inventory count too.
const GROUPS: &str = "remoor-groups/hosts.yml";
/// Maximum number of tasks that the name of a cleanup step lists.
const PLACES_MAX: usize = 3;
const OCCASIONS: [&str; 6] = ["network", "reboot", "agent", "left", "live", "apply"];

/// All generated files: name and text.
pub(super) fn generate(
    playbook: &str,
    work: &ServiceParts,
    groups: &[ImportedGroup],
    inventories: &[String],
) -> Vec<(String, String)> {
    let mut out = vec![
        ("remoor.yml".to_owned(), config(playbook, work, groups, inventories)),
        (CLEANUP.to_owned(), cleanup(work, groups)),
    ];
    if groups.iter().any(|group| group.added) {
        out.push((GROUPS.to_owned(), added_groups(groups)));
    }
    for (service, parts) in &work.parts {
        let hosts: BTreeSet<&String> =
            work.of_hosts.iter().filter(|(_, own)| own.contains(service)).map(|(host, _)| host).collect();
        let text = checks(service, parts, hosts.len());
        out.extend(text.map(|text| (format!("checks/{service}.yml"), text)));
    }
    out
}

fn yaml(comment: &str, value: &Value) -> String {
    // JSON is YAML too.
    let text = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
    format!("{comment}{text}")
}

fn config(playbook: &str, work: &ServiceParts, groups: &[ImportedGroup], inventories: &[String]) -> String {
    let mut sources: Vec<Value> = inventories.iter().map(|name| json!(name)).collect();
    if groups.iter().any(|group| group.added) {
        sources.push(json!(GROUPS));
    }
    let inventory = if let [one] = &sources[..] { one.clone() } else { Value::Array(sources) };
    let policy: Map<String, Value> =
        OCCASIONS.iter().map(|occasion| ((*occasion).to_owned(), json!("report"))).collect();
    let group = |group: &ImportedGroup| {
        if group.services.is_empty() {
            return json!({"policy": policy});
        }
        let selectable = group.services.iter().all(|service| work.own_tag(service).is_some());
        json!({
            "services": group.services,
            "provision": playbook,
            "cleanup": CLEANUP,
            "scope": if selectable { "service" } else { "group" },
            "policy": policy,
        })
    };
    let groups: Map<String, Value> = groups.iter().map(|one| (one.name.clone(), group(one))).collect();
    let services: Map<String, Value> =
        work.parts.iter().map(|(name, parts)| (name.clone(), service(parts, work.own_tag(name)))).collect();
    let comment = "# Written by `remoor import`. Nothing is set up again until a policy says `check`.\n";
    yaml(comment, &json!({"version": 1, "inventory": inventory, "groups": groups, "services": services}))
}

fn service(parts: &BTreeMap<Part, Origin>, tag: Option<&str>) -> Value {
    let mut lists: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut add = |field, text: String| {
        lists.entry(field).or_default().insert(text);
    };
    for (part, origin) in parts {
        match part {
            Part::File(path) | Part::Edited(path) => {
                add("files", globset::escape(path));
                if !is_removable(part, origin) {
                    add("keep", globset::escape(path));
                }
            }
            Part::State(path) => add("state", globset::escape(path)),
            // After a cleanup, the units of a service must be stopped.
            Part::Unit(unit) if is_removable(part, origin) => add("units", unit.clone()),
            _ => {}
        }
    }
    if let Some(tag) = tag {
        add("tags", tag.to_owned());
    }
    json!(lists)
}

/// Whether a cleanup removes the file or stops the unit. The provisioning must certainly make it
/// again, and no manager may need it to reach the node.
fn is_removable(part: &Part, origin: &Origin) -> bool {
    origin.certain
        && match part {
            Part::File(path) => !is_vital_path(path),
            Part::Unit(unit) => (origin.started || origin.enabled) && !is_vital_unit(unit),
            Part::CronEntry(_) => true,
            _ => false,
        }
}

/// A play for each group: the inverse of the provisioning, from its last task to its first. Data,
/// packages and accounts stay.
fn cleanup(work: &ServiceParts, groups: &[ImportedGroup]) -> String {
    let play = |group: &ImportedGroup| {
        json!({
            "name": format!("Clean up {}", group.name),
            "hosts": group.name,
            "become": true,
            "gather_facts": false,
            "tasks": cleanup_tasks(work, group),
        })
    };
    let plays = groups.iter().filter(|group| !group.services.is_empty()).map(play).collect();
    let comment = "# Written by `remoor import`: the inverse of the provisioning. Each step names its task,\n\
                   # except the two that forget removed units and keep accounts. These stay: data,\n\
                   # packages, accounts, files that are only edited, whatever the playbook may not\n\
                   # make again, and what managers need to reach the node.\n";
    yaml(comment, &Value::Array(plays))
}

/// The steps of a cleanup for one group: units, then files and cron entries, each from the last
/// task of the provisioning to its first.
fn cleanup_tasks(work: &ServiceParts, group: &ImportedGroup) -> Vec<Value> {
    let mut steps: Vec<(usize, Value)> = Vec::new();
    let mut accounts = BTreeSet::new();
    let mut has_unit_files = false;
    for (service, parts) in work.parts.iter().filter(|(service, _)| group.services.contains(*service)) {
        let tag = work.own_tag(service);
        // The files that only some hosts of the group have, with the tasks that make them.
        let (mut single, mut places) = (BTreeMap::<&str, BTreeSet<&str>>::new(), BTreeSet::new());
        for (part, origin) in parts {
            if let Part::User(name) | Part::Group(name) = part {
                accounts.insert(name);
            }
            if !is_removable(part, origin) {
                continue;
            }
            let hosts: Vec<&String> = group.hosts.iter().filter(|host| origin.hosts.contains(*host)).collect();
            match part {
                // A unit or cron entry of some hosts stays.
                _ if hosts.len() == group.hosts.len() => {
                    steps.extend(step(part, origin).map(|step| (key(part, origin.order), with_tag(step, tag))));
                }
                Part::File(path) if !hosts.is_empty() => {
                    for host in hosts {
                        single.entry(host.as_str()).or_default().insert(path);
                    }
                    places.insert(shown_place(&origin.place));
                }
                _ => {}
            }
            has_unit_files |= matches!(part, Part::File(path) if path.contains("/systemd/system/"));
        }
        if !single.is_empty() {
            let shown: Vec<String> = places.into_iter().take(PLACES_MAX).collect();
            let task = json!({
                "name": format!("Remove the files of single hosts ({})", shown.join(", ")),
                "file": {"path": "{{ item }}", "state": "absent"},
                "loop": "{{ single_host_files[inventory_hostname] | default([]) }}",
                "vars": {"single_host_files": single},
            });
            steps.push((0, with_tag(task, tag)));
        }
    }
    steps.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
    let mut tasks: Vec<Value> = steps.into_iter().map(|(_, task)| task).collect();
    if has_unit_files {
        tasks.push(json!({"name": "Forget the units that were removed", "systemd": {"daemon_reload": true}}));
    }
    if !accounts.is_empty() {
        let name = "Keep the accounts, because their files would have no owner";
        tasks.push(json!({"name": name, "debug": {"msg": accounts}}));
    }
    tasks
}

/// The position of a step: units are stopped before anything is removed.
fn key(part: &Part, order: usize) -> usize {
    order + if matches!(part, Part::Unit(_)) { usize::MAX / 2 } else { 1 }
}

/// The inverse of the task that makes a part.
fn step(part: &Part, origin: &Origin) -> Option<Value> {
    let from = shown_place(&origin.place);
    Some(match part {
        Part::Unit(unit) => json!({
            "name": format!("Stop {unit} ({from})"),
            "systemd": {"name": unit, "state": "stopped", "enabled": false},
        }),
        Part::File(path) => {
            json!({"name": format!("Remove {path} ({from})"), "file": {"path": path, "state": "absent"}})
        }
        Part::CronEntry(name) => json!({
            "name": format!("Remove the cron entry {name} ({from})"),
            "cron": {"name": name, "state": "absent"},
        }),
        _ => return None,
    })
}

fn with_tag(mut task: Value, tag: Option<&str>) -> Value {
    if let Some(tag) = tag {
        task["tags"] = json!([tag]);
    }
    task
}

fn shown_place(place: &SourcePlace) -> String {
    format!("{}:{}", place.file, place.line)
}

fn added_groups(groups: &[ImportedGroup]) -> String {
    let children: Map<String, Value> = groups
        .iter()
        .filter(|group| group.added)
        .map(|group| {
            let hosts: Map<String, Value> = group.hosts.iter().map(|host| (host.clone(), json!({}))).collect();
            (group.name.clone(), json!({"hosts": hosts}))
        })
        .collect();
    let comment = "# Written by `remoor import`: groups of hosts that the inventory lacks.\n";
    yaml(comment, &json!({"all": {"children": children}}))
}

/// The check file of a service, for what all its hosts have. None: there is nothing to check.
fn checks(service: &str, parts: &BTreeMap<Part, Origin>, hosts: usize) -> Option<String> {
    let mut kinds: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut groups: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
    for (part, origin) in parts.iter().filter(|(_, origin)| origin.certain && origin.hosts.len() == hosts) {
        let (kind, id, check) = match part {
            Part::Package(name) => ("package", name.clone(), json!({"installed": true})),
            Part::User(name) => ("user", name.clone(), json!({"exists": true})),
            Part::Group(name) => ("group", name.clone(), json!({"exists": true})),
            Part::Member(user, group) => {
                groups.entry(user).or_default().push(group);
                continue;
            }
            Part::Unit(unit) if origin.started || origin.enabled => {
                let mut check = Map::new();
                if origin.enabled {
                    check.insert("enabled".to_owned(), json!(true));
                }
                if origin.started {
                    check.insert("running".to_owned(), json!(true));
                }
                ("service", unit.strip_suffix(".service").unwrap_or(unit).to_owned(), Value::Object(check))
            }
            Part::File(path) => {
                let mut check = json!({"exists": true});
                if let Some(mode) = origin.mode {
                    check["mode"] = json!(format!("{mode:04o}"));
                }
                ("file", path.clone(), check)
            }
            _ => continue,
        };
        kinds.entry(kind).or_default().insert(id, check);
    }
    for (user, groups) in groups {
        if let Some(check) = kinds.get_mut("user").and_then(|users| users.get_mut(user)) {
            check["groups"] = json!({"contain-elements": groups});
        }
    }
    if kinds.is_empty() {
        return None;
    }
    let mut text =
        yaml("# Written by `remoor import`.\n", &json!({"remoor": {"service": service, "template": "none"}}));
    for (kind, checks) in kinds {
        let mut one = Map::new();
        one.insert(kind.to_owned(), Value::Object(checks));
        text.push_str(&yaml("", &Value::Object(one)));
    }
    Some(text)
}
