//! The modules `service_facts` and `package_facts`: the services and packages of the node as facts.

use super::service::{connect, describe_fault};
use super::{ModuleCall, ModuleResult, TaskOutcome, failure_message};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The native modules that set facts.
pub(crate) const FACT_MODULES: [&str; 6] =
    ["gather_facts", "getent", "hostname", "package_facts", "service_facts", "setup"];

pub fn service_facts(call: &mut ModuleCall) -> ModuleResult {
    let (units, files) = list_services(call)?;
    let mut services: Map<String, Value> = Map::new();
    let mut put = |name: &str, state: &str, status: &str| {
        services.insert(name.to_owned(), json!({"name": name, "state": state, "status": status, "source": "systemd"}));
    };
    for (name, status) in &files {
        put(name, "unknown", status);
    }
    for [name, load, active, sub] in &units {
        let state = match (active.as_str(), sub.as_str()) {
            (_, "running") => "running",
            ("failed", _) => "failed",
            _ => "stopped",
        };
        let status = if load == "not-found" { Some(load) } else { files.get(name) };
        put(name, state, status.map_or("unknown", String::as_str));
    }
    // Applies the predicted changes of earlier tasks in check mode.
    for (name, entry) in &mut services {
        let now =
            call.ground.node.predicted_unit(name, BTreeMap::from([("LoadState".to_owned(), "loaded".to_owned())]));
        let state = now.get("ActiveState").map(|a| if a == "active" { "running" } else { "stopped" });
        entry["state"] = state.map_or(entry["state"].take(), |s| json!(s));
        entry["status"] = now.get("UnitFileState").map_or(entry["status"].take(), |s| json!(s));
    }
    let facts = Map::from_iter([("services".to_owned(), Value::Object(services))]);
    Ok(TaskOutcome { facts, ..TaskOutcome::default() })
}

/// Loaded services (name, load state, active state, sub-state), and the state of each service unit
/// file by its name.
type SystemdServices = (Vec<[String; 4]>, BTreeMap<String, String>);

fn list_services(call: &ModuleCall) -> Result<SystemdServices, String> {
    let is_service = |name: &str| name.ends_with(".service");
    if let Some(mut manager) = connect(call, &call.ground.options.systemd)? {
        let failed = |fault| format!("cannot list services from systemd: {}", describe_fault(&fault));
        let mut units = manager.units().map_err(failed)?;
        units.retain(|unit| is_service(&unit[0]));
        let files = manager.unit_files().map_err(failed)?.into_iter().filter_map(|[path, state]| {
            let name = path.rsplit('/').next().filter(|name| is_service(name))?;
            Some((name.to_owned(), state))
        });
        return Ok((units, files.collect()));
    }
    let units = run_systemctl(
        call,
        &["systemctl", "list-units", "--no-pager", "--plain", "--no-legend", "--all", "--type=service"],
    )?;
    let files = run_systemctl(call, &["systemctl", "list-unit-files", "--no-pager", "--no-legend", "--type=service"])?;
    let units = units.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().take(4).collect();
        let words: [&str; 4] = words.try_into().ok()?;
        Some(words.map(str::to_owned))
    });
    let files = files.lines().filter_map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        Some((words.next()?, words.next()?))
    });
    Ok((units.collect(), files.collect()))
}

fn run_systemctl(call: &ModuleCall, argv: &[&str]) -> Result<String, String> {
    let done = call.run_quietly(argv)?;
    if done.success() { Ok(done.stdout) } else { Err(failure_message(&argv.join(" "), &done)) }
}

pub fn package_facts(call: &mut ModuleCall) -> ModuleResult {
    let managers = call.list(&["manager"]);
    let asks = |name: &str| managers.is_empty() || managers.iter().any(|m| m == name || m == "auto");
    let mut packages: Map<String, Value> = Map::new();
    let mut put = |name: &str, entry: Value| match packages.get_mut(name).and_then(Value::as_array_mut) {
        Some(list) => list.push(entry),
        None => drop(packages.insert(name.to_owned(), json!([entry]))),
    };
    let format = "${Package}\\t${Version}\\t${Architecture}\\t${Section}\\t${db:Status-Status}\\n";
    let dpkg = asks("apt").then(|| call.run_quietly(&["dpkg-query", "-W", "-f", format]).ok()).flatten();
    let dpkg = dpkg.filter(|done| done.success());
    let rpm = ["rpm", "dnf", "yum"].iter().any(|m| asks(m));
    let rpm = (rpm && dpkg.is_none())
        .then(|| {
            call.run_quietly(&["rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}\\t%{RELEASE}\\t%{EPOCH}\\t%{ARCH}\\n"]).ok()
        })
        .flatten()
        .filter(|done| done.success());
    if dpkg.is_none() && rpm.is_none() {
        return Err("neither dpkg nor rpm works on this node".into());
    }
    for line in dpkg.iter().flat_map(|done| done.stdout.lines()) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, version, arch, section, "installed"] = fields[..] else { continue };
        put(name, json!({"name": name, "version": version, "arch": arch, "category": section, "source": "apt"}));
    }
    for line in rpm.iter().flat_map(|done| done.stdout.lines()) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, version, release, epoch, arch] = fields[..] else { continue };
        let epoch = epoch.parse::<u64>().ok();
        let entry = json!({"name": name, "version": version, "release": release, "epoch": epoch, "arch": arch, "source": "rpm"});
        put(name, entry);
    }
    let facts = Map::from_iter([("packages".to_owned(), Value::Object(packages))]);
    Ok(TaskOutcome { facts, ..TaskOutcome::default() })
}
