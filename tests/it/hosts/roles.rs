//! Stories about the desired state of a node. In scenario A13 of docs/design/scenarios.md, a worker
//! runs the services of the wrong role. In scenario A20, the group of a node changes while the node
//! is away.

use super::operator::{Story, fleet_with_hooks, number, phases, run_expecting, wait_quiet, wait_until_repaired};
use super::steps::jobs_of;
use super::stories::during_absence;
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;

pub const ALL: &[Story] =
    &[("A13 the services of the other role", wrong_role), ("A20 another group while away", moved_while_away)];

/// Runs `story` with another fleet. Restores the usual fleet afterwards, also after a failure.
pub fn with_fleet(
    c: &Cluster,
    fleet: impl FnMut(&str, String) -> String,
    story: impl FnOnce(&Cluster) -> Result<()>,
) -> Result<()> {
    with_usual_fleet_after(c, |c| c.apply(fleet).and_then(|()| story(c)))
}

/// Runs a story that applies its own fleets. Restores the usual fleet afterwards, also after a
/// failure.
pub fn with_usual_fleet_after(c: &Cluster, story: impl FnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let result = story(c);
    let back = c.apply(fleet_with_hooks);
    result.and(back)
}

// --- A13 ---

const LISTED: &str = "ETCDCTL_API=2 etcdctl --endpoints http://127.0.0.1:2379 member list";

/// Names and peer addresses of the members of etcd, as m1 reports them.
fn members(c: &Cluster) -> Result<Vec<String>> {
    Ok(c.lab.shell("m1", LISTED)?.lines().map(str::to_owned).collect())
}

/// Makes w1 a master by mistake: w1 gets the units and files of m1, with its own name and
/// addresses.
fn make_it_a_master(c: &Cluster) -> Result<()> {
    let (m1, w1) = (c.lab.host("m1").ip.to_string(), c.lab.host("w1").ip.to_string());
    let env = String::from_utf8(c.lab.read("m1", "/etc/etcd-contiv.env")?)?;
    let mut environment = String::new();
    for line in env.lines() {
        environment += &match line.split_once('=').context("NAME=VALUE")?.0 {
            "ETCD_NAME" => "ETCD_NAME=w1".to_owned(),
            "ETCD_INITIAL_CLUSTER" => format!("ETCD_INITIAL_CLUSTER=w1=http://{w1}:2380"),
            _ => line.replace(&m1, &w1),
        };
        environment += "\n";
    }
    c.lab.push("w1", environment.as_bytes(), "/etc/etcd-contiv.env", 0o644)?;
    for file in
        ["/etc/systemd/system/etcd-contiv.service", "/etc/default/netmaster", "/etc/systemd/system/netmaster.service"]
    {
        c.lab.push("w1", &c.lab.read("m1", file)?, file, 0o644)?;
    }
    c.lab.shell(
        "w1",
        "systemctl daemon-reload; systemctl disable --now etcd-proxy-contiv 2>&1; rm /etc/etcd-proxy-contiv.env; \
         rm -rf /var/lib/etcd-contiv; systemctl enable --now etcd-contiv netmaster 2>&1",
    )?;
    let add =
        format!("{LISTED}; ETCDCTL_API=2 etcdctl --endpoints http://127.0.0.1:2379 member add w1 http://{w1}:2380");
    c.lab.shell("m1", &add).map(drop)
}

fn wrong_role(c: &Cluster) -> Result<()> {
    let result = check_wrong_role(c);
    if result.is_err() {
        let w1 = c.lab.host("w1").ip;
        let undo = format!(
            "{LISTED} | grep http://{w1}:2380 | sed 's/[^0-9a-f].*//' | \
             ETCDCTL_API=2 xargs -r etcdctl --endpoints http://127.0.0.1:2379 member remove"
        );
        c.lab.shell("m1", &undo)?;
    }
    result
}

fn check_wrong_role(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w1")?.len();
    let before = members(c)?;
    ensure!(before.len() == 3, "{before:?}");
    let no = during_absence(c, "w1", |c| {
        make_it_a_master(c)?;
        let state = c.lab.shell("w1", "systemctl is-active etcd-contiv netmaster; ss -Hltn sport = :9999 | wc -l")?;
        ensure!(state.split_whitespace().eq(["active", "active", "1"]), "w1 is no master: {state}");
        ensure!(members(c)?.len() == 4, "w1 is no member");
        Ok(())
    })?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    ensure!(verdict["remedy"] == json!({"do": "resetup", "what": ["contiv_network", "etcd"]}), "{verdict:#}");
    let reasons = verdict["reasons"].as_array().context("reasons")?;
    let names = |parts: &[&str]| {
        let text = |r: &Value| r["text"].as_str().unwrap_or_default().to_owned();
        reasons.iter().any(|r| r["by"] == "check" && parts.iter().all(|part| text(r).contains(part)))
    };
    for failure in [
        &["etcd: ", "etcd-contiv ", "running", "expected false, found true"][..],
        &["etcd: ", "etcd-proxy-contiv ", "running", "expected true, found false"],
        &["contiv_network: ", "netmaster ", "running", "expected false, found true"],
        &["contiv_network: ", "9999 ", "listening", "expected false, found true"],
    ] {
        ensure!(names(failure), "{failure:?} is not named in {reasons:#?}");
    }
    wait_until_repaired(c, "w1")?;
    let ran = c.ran_since("w1", runs)?;
    for service in ["etcd", "contiv_network"] {
        ensure!(phases(&ran, service) == ["cleanup", "provision"], "{service}: {ran:?}");
    }
    ensure!(ran.len() == 4, "{ran:?}");
    let asked = "for unit in etcd-proxy-contiv etcd-contiv netmaster; do systemctl is-active $unit; \
                 systemctl is-enabled $unit 2>/dev/null || echo no; done; ss -Hltn sport = :9999 | wc -l";
    let state = c.lab.shell("w1", asked)?;
    let state: Vec<&str> =
        state.split_whitespace().filter(|word| *word != "disabled" && *word != "not-found").collect();
    ensure!(state == ["active", "enabled", "inactive", "no", "inactive", "no", "0"], "w1 is {state:?}");
    let env = String::from_utf8(c.lab.read("w1", "/etc/etcd-proxy-contiv.env")?)?;
    ensure!(env.contains("ETCD_PROXY=on") && c.lab.read("w1", "/etc/etcd-contiv.env").is_err(), "{env}");
    let after = members(c)?;
    ensure!(after.len() == 3 && after.iter().all(|m| before.contains(m)), "members were {before:?}, are {after:?}");
    c.lab.shell("w1", "rm -rf /var/lib/etcd-contiv")?;
    wait_quiet(c)
}

// --- A20 ---

const EDGE: &str = "
  service-edge:
    services: [edge]
    provision: playbooks/edge.yml
    cleanup: playbooks/edge-down.yml
";
const EDGE_SERVICE: &str = "
  edge:
    files: [/etc/edge.conf]
";
const EDGE_UP: &str = "- hosts: all
  gather_facts: false
  tasks:
    - name: Log the run
      shell: echo \"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ) provision {{ remoor_job }} {{ remoor_attempt }} edge\" >> /var/log/remoor-runs.log
      changed_when: false
      tags: [edge]
    - copy: {content: \"{{ node.group }} {{ colour }}\\n\", dest: /etc/edge.conf, mode: '0644'}
      tags: [edge]
";
const EDGE_DOWN: &str = "- hosts: all
  gather_facts: false
  tasks:
    - name: Log the run
      shell: echo \"$(date -u +%Y-%m-%dT%H:%M:%S.%NZ) cleanup {{ remoor_job }} {{ remoor_attempt }} edge\" >> /var/log/remoor-runs.log
      changed_when: false
      tags: [edge]
    - file: {path: /etc/edge.conf, state: absent}
      tags: [edge]
";
const CLEANED_AS: &str = "/root/cleaned-as";

/// The usual fleet, in which the cleanup also logs the variables with which it ran.
fn fleet_that_logs_variables(path: &str, text: String) -> String {
    let text = fleet_with_hooks(path, text);
    let log = "nginx\" >> /var/log/remoor-runs.log\n";
    match path {
        "playbooks/cleanup.yml" => {
            assert!(text.contains(log), "the cleanup of nginx is not logged");
            let tell = format!(
                "nginx\" >> /var/log/remoor-runs.log; echo {{{{ node.group }}}} {{{{ nginx_workers }}}} > {CLEANED_AS}\n"
            );
            text.replacen(log, &tell, 1)
        }
        _ => text,
    }
}

/// The fleet in which w2 is in another group, with other services, playbooks and variables.
fn apply_moved(c: &Cluster) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let w2 = format!("        w2: {{ansible_host: {}}}\n", c.lab.host("w2").ip);
    five::write(dir.path(), &five::hosts(&c.lab), |path, text| match path {
        "remoor.yml" => {
            fleet_with_hooks(path, text).replace("\nservices:\n", &format!("{EDGE}\nservices:{EDGE_SERVICE}"))
        }
        "inventory.yml" => {
            assert!(text.contains(&w2), "{text}");
            let edge = format!("    service-edge:\n      vars: {{colour: blue, nginx_workers: 9}}\n      hosts:\n{w2}");
            text.replace(&w2, "").trim_end().to_owned() + "\n" + &edge
        }
        _ => fleet_with_hooks(path, text),
    })?;
    std::fs::write(dir.path().join("playbooks/edge.yml"), EDGE_UP)?;
    std::fs::write(dir.path().join("playbooks/edge-down.yml"), EDGE_DOWN)?;
    c.lab.shell("m1", "rm -rf /root/moved")?;
    push(c, dir.path(), "/root/moved")?;
    c.run_successfully("m1", &["apply", "/root/moved"]).map(drop)
}

fn push(c: &Cluster, from: &Path, to: &str) -> Result<()> {
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let dest = format!("{to}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            push(c, &entry.path(), &dest)?;
        } else {
            c.lab.push("m1", &std::fs::read(entry.path())?, &dest, 0o644)?;
        }
    }
    Ok(())
}

fn moved_while_away(c: &Cluster) -> Result<()> {
    with_fleet(c, fleet_that_logs_variables, |c| {
        run_expecting(c, "m1", 0, &["update", "w2"])?;
        move_to_another_group(c)
    })?;
    // w2 is in its usual group again, so this update removes the services of the edge group.
    run_expecting(c, "m1", 0, &["update", "w2"])?;
    wait_quiet(c)?;
    ensure!(c.lab.read("w2", "/etc/edge.conf").is_err(), "/etc/edge.conf is still there");
    c.lab.shell("w2", &format!("rm -f {CLEANED_AS}; systemctl is-active netplugin nginx etcd-proxy-contiv")).map(drop)
}

fn move_to_another_group(c: &Cluster) -> Result<()> {
    let (runs, jobs) = (five::runs(&c.lab, "w2")?.len(), jobs_of(c, "w2")?.len());
    c.lab.shell("w2", &format!("rm -f {CLEANED_AS}"))?;
    let no = during_absence(c, "w2", |c| {
        apply_moved(c)?;
        let node = c.node("w2")?;
        ensure!(node["group"] == "service-edge" && node["outdated"] == true, "{node:#}");
        let wanted = |c: &Cluster| -> Result<bool> {
            let why: Value = serde_json::from_str(&c.ask(&["why", "w2", "-o", "json"])?)?;
            Ok(!why["want"].is_null())
        };
        for order in [&["update", "w2", "--no-queue"][..], &["resetup", "w2", "--no-queue"]] {
            let text = run_expecting(c, "m1", 4, order)?;
            ensure!(text.contains("w2 is away since 2"), "{text}");
            ensure!(!wanted(c)?, "a refused order is wanted");
        }
        let text = run_expecting(c, "m1", 0, &["update", "w2"])?;
        ensure!(text.contains("w2 is away since 2") && wanted(c)?, "{text}");
        Ok(())
    })?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "outdated", "{verdict:#}");
    c.wait("w2 to be of the other group", |s| {
        let row = row(s, "w2")?;
        (row["job"].is_null() && row["outdated"] == false && row["finding"]["verdict"]["is"] == "same").then_some(())
    })?;
    let ran: Vec<String> =
        c.ran_since("w2", runs)?.iter().map(|(phase, service)| format!("{phase} {service}")).collect();
    ensure!(ran == ["cleanup nginx", "cleanup contiv_network", "cleanup etcd", "provision edge"], "{ran:?}");
    ensure!(jobs_of(c, "w2")?.len() == jobs + 1, "not one job");
    ensure!(c.lab.read("w2", CLEANED_AS)? == b"service-worker 2\n", "not cleaned up with the old variables");
    ensure!(c.lab.read("w2", "/etc/edge.conf")? == b"service-edge blue\n", "not provisioned with the new variables");
    let old = c.lab.shell("w2", "systemctl is-active netplugin nginx etcd-proxy-contiv || :")?;
    ensure!(old.split_whitespace().all(|state| state == "inactive"), "services of the old group: {old}");
    ensure!(
        number(&c.node("w2")?["baseline"], "generation")? == number(&c.status()?, "generation")?,
        "not of this one"
    );
    Ok(())
}
