//! The texts of the generated files.

use super::groups::ImportedGroup;
use super::work::{Origin, Part, Work};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const CLEANUP: &str = "remoor-cleanup.yml";
const GROUPS: &str = "remoor-groups.yml";
const OCCASIONS: [&str; 6] = ["network", "reboot", "agent", "left", "live", "apply"];

/// All generated files: name and text.
pub(super) fn generate(
    playbook: &str,
    work: &Work,
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
    // A value of JSON can always be written as YAML.
    let text = serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string());
    format!("{comment}{text}")
}

fn config(playbook: &str, work: &Work, groups: &[ImportedGroup], inventories: &[String]) -> String {
    let mut sources: Vec<Value> = inventories.iter().map(|name| json!(name)).collect();
    if groups.iter().any(|group| group.added) {
        sources.push(json!(GROUPS));
    }
    let inventory = if let [one] = &sources[..] { one.clone() } else { Value::Array(sources) };
    let policy: Map<String, Value> =
        OCCASIONS.iter().map(|occasion| ((*occasion).to_owned(), json!("report"))).collect();
    let group = |group: &ImportedGroup| {
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
    let mut lists: Map<String, Value> = Map::new();
    let mut add = |field: &str, text: &str| {
        if let Value::Array(list) = lists.entry(field).or_insert_with(|| json!([]))
            && !list.contains(&json!(text))
        {
            list.push(json!(text));
        }
    };
    for part in parts.keys() {
        match part {
            Part::File(path) => add("files", &globset::escape(path)),
            Part::Edited(path) => {
                add("files", &globset::escape(path));
                if !parts.contains_key(&Part::File(path.clone())) {
                    add("keep", &globset::escape(path));
                }
            }
            Part::State(path) => add("state", &globset::escape(path)),
            Part::Unit(unit) => add("units", unit),
            Part::Package(_) | Part::User(_) | Part::Group(_) | Part::CronEntry(_) => {}
        }
    }
    if let Some(tag) = tag {
        add("tags", tag);
    }
    Value::Object(lists)
}

/// A play for each group: the inverse of the provisioning, from its last task to its first. Data,
/// packages and accounts stay.
fn cleanup(work: &Work, groups: &[ImportedGroup]) -> String {
    let plays: Vec<Value> = groups
        .iter()
        .map(|group| {
            json!({
                "name": format!("Clean up {}", group.name),
                "hosts": group.name,
                "become": true,
                "gather_facts": false,
                "tasks": cleanup_tasks(work, group),
            })
        })
        .collect();
    let comment = "# Written by `remoor import`: the inverse of the provisioning. Each step names its task.\n\
                   # Data, packages, accounts and files that are only edited stay.\n";
    yaml(comment, &Value::Array(plays))
}

fn cleanup_tasks(work: &Work, group: &ImportedGroup) -> Vec<Value> {
    let (mut stops, mut removals, mut accounts) = (Vec::new(), Vec::new(), Vec::new());
    for (service, parts) in work.parts.iter().filter(|(service, _)| group.services.contains(*service)) {
        for (part, origin) in parts {
            let hosts: Vec<&String> = group.hosts.iter().filter(|host| origin.hosts.contains(*host)).collect();
            if hosts.is_empty() {
                continue;
            }
            let from = format!("({}:{})", origin.place.file, origin.place.line);
            let (list, name, module, options) = match part {
                // Without a certain task, the unit may not exist on the node.
                Part::Unit(unit) if origin.certain => (
                    &mut stops,
                    format!("Stop {unit} {from}"),
                    "systemd",
                    json!({"name": unit, "state": "stopped", "enabled": false}),
                ),
                Part::File(path) => {
                    (&mut removals, format!("Remove {path} {from}"), "file", json!({"path": path, "state": "absent"}))
                }
                Part::CronEntry(name) => (
                    &mut removals,
                    format!("Remove the cron entry {name} {from}"),
                    "cron",
                    json!({"name": name, "state": "absent"}),
                ),
                Part::User(name) | Part::Group(name) => {
                    accounts.push(json!(name));
                    continue;
                }
                _ => continue,
            };
            let mut task = json!({"name": name, module: options});
            if hosts.len() < group.hosts.len() {
                task["when"] = json!(format!("inventory_hostname in {}", json!(hosts)));
            }
            if let Some(tag) = work.own_tag(service) {
                task["tags"] = json!([tag]);
            }
            list.push((origin.place.clone(), task));
        }
    }
    let mut tasks = Vec::new();
    for mut list in [stops, removals] {
        list.sort_by(|a, b| (&b.0.file, b.0.line).cmp(&(&a.0.file, a.0.line)));
        tasks.extend(list.into_iter().map(|(_, task)| task));
    }
    if !accounts.is_empty() {
        let name = "Keep the accounts, because their files would have no owner";
        tasks.push(json!({"name": name, "debug": {"msg": accounts}}));
    }
    tasks
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
    let comment = "# Written by `remoor import`: hosts with the same services that no group of the inventory has.\n";
    yaml(comment, &json!({"all": {"children": children}}))
}

/// The check file of a service, for what all its hosts have. None: there is nothing to check.
fn checks(service: &str, parts: &BTreeMap<Part, Origin>, hosts: usize) -> Option<String> {
    let mut kinds: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (part, origin) in parts.iter().filter(|(_, origin)| origin.certain && origin.hosts.len() == hosts) {
        let (kind, id, check) = match part {
            Part::Package(name) => ("package", name.clone(), json!({"installed": true})),
            Part::User(name) => ("user", name.clone(), json!({"exists": true})),
            Part::Group(name) => ("group", name.clone(), json!({"exists": true})),
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
                if let Some(mode) = &origin.mode {
                    check["mode"] = json!(mode);
                }
                ("file", path.clone(), check)
            }
            _ => continue,
        };
        kinds.entry(kind).or_default().insert(id, check);
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
