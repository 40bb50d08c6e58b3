//! `service_facts` and `package_facts`: what the node runs and has, as facts.

use super::{Answer, Call, Outcome, complaint};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub fn service_facts(call: &mut Call) -> Answer {
    let units =
        ask(call, &["systemctl", "list-units", "--no-pager", "--plain", "--no-legend", "--all", "--type=service"])?;
    let files = ask(call, &["systemctl", "list-unit-files", "--no-pager", "--no-legend", "--type=service"])?;
    let mut services: Map<String, Value> = Map::new();
    let mut put = |name: &str, state: &str, status: &str| {
        services.insert(name.to_owned(), json!({"name": name, "state": state, "status": status, "source": "systemd"}));
    };
    for line in files.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(status)) = (words.next(), words.next()) {
            put(name, "unknown", status);
        }
    }
    let status = |name: &str| {
        let line = files.lines().find(|l| l.split_whitespace().next() == Some(name));
        line.and_then(|l| l.split_whitespace().nth(1)).unwrap_or("unknown").to_owned()
    };
    for line in units.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, load, active, sub, ..] = words[..] else { continue };
        let state = match (active, sub) {
            (_, "running") => "running",
            ("failed", _) => "failed",
            _ => "stopped",
        };
        let status = if load == "not-found" { "not-found".to_owned() } else { status(name) };
        put(name, state, &status);
    }
    // Those that earlier tasks of a check would have changed.
    for (name, entry) in &mut services {
        let now = call.ground.node.unit(name, BTreeMap::from([("LoadState".to_owned(), "loaded".to_owned())]));
        let state = now.get("ActiveState").map(|a| if a == "active" { "running" } else { "stopped" });
        entry["state"] = state.map_or(entry["state"].take(), |s| json!(s));
        entry["status"] = now.get("UnitFileState").map_or(entry["status"].take(), |s| json!(s));
    }
    let facts = Map::from_iter([("services".to_owned(), Value::Object(services))]);
    Ok(Outcome { facts, ..Outcome::default() })
}

fn ask(call: &Call, argv: &[&str]) -> Result<String, String> {
    let done = call.quiet(argv)?;
    if done.success() { Ok(done.stdout) } else { Err(complaint(&argv.join(" "), &done)) }
}

pub fn package_facts(call: &mut Call) -> Answer {
    let managers = call.list(&["manager"]);
    let asks = |name: &str| managers.is_empty() || managers.iter().any(|m| m == name || m == "auto");
    let mut packages: Map<String, Value> = Map::new();
    let mut put = |name: &str, entry: Value| match packages.get_mut(name).and_then(Value::as_array_mut) {
        Some(list) => list.push(entry),
        None => drop(packages.insert(name.to_owned(), json!([entry]))),
    };
    let format = "${Package}\\t${Version}\\t${Architecture}\\t${Section}\\t${db:Status-Status}\\n";
    let dpkg = asks("apt").then(|| call.quiet(&["dpkg-query", "-W", "-f", format]).ok()).flatten();
    let dpkg = dpkg.filter(|done| done.success());
    let rpm = ["rpm", "dnf", "yum"].iter().any(|m| asks(m));
    let rpm = (rpm && dpkg.is_none())
        .then(|| call.quiet(&["rpm", "-qa", "--qf", "%{NAME}\\t%{VERSION}\\t%{RELEASE}\\t%{EPOCH}\\t%{ARCH}\\n"]).ok())
        .flatten()
        .filter(|done| done.success());
    if dpkg.is_none() && rpm.is_none() {
        return Err("neither dpkg nor rpm answers on this node; use provisioner kind: ansible".into());
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
    Ok(Outcome { facts, ..Outcome::default() })
}
