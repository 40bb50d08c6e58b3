//! Scenario X3 of docs/design/scenarios.md: rejected commands have no side effects. In each state
//! of a node, an order that must be rejected, or that has nothing to do, must change nothing but
//! times. The test runs on two separate hosts, because the fleet of five has no node that is only
//! accepted.

use super::noise::{check_unchanged, without_volatile_fields};
use super::operator::MANIFEST;
use crate::lab::cluster::{PATIENCE, row};
use crate::lab::{Lab, five, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::Instant;

const REMOOR: &str = "/usr/local/bin/remoor";
const CONFIG: &str = "version: 1
inventory: inventory.yml
ssh: {user: root, identity: /root/.ssh/id_ed25519}
groups:
  web: {services: [note], provision: up.yml, cleanup: down.yml}
services:
  note: {files: [/etc/note]}
limits: {settle: 5s, leader-grace: 2s, probe: 3s, check-interval: 5s, rejoin: 5s, retry: []}
";
const UP: &str = "- hosts: web
  gather_facts: false
  tasks:
    - shell: if [ -e /root/hook-up ]; then . /root/hook-up; fi
      changed_when: false
    - copy: {content: \"{{ node.name }}\\n\", dest: /etc/note, mode: '0644'}
";
const DOWN: &str = "- hosts: web
  gather_facts: false
  tasks:
    - shell: if [ -e /root/hook-down ]; then . /root/hook-down; fi
      changed_when: false
    - file: {path: /etc/note, state: absent}
";

/// Orders that are rejected in each state of the node, with their exit codes.
const ALWAYS: &[(i32, &str)] = &[
    (4, "resetup nobody"),
    (4, "resetup m1 nobody --force --detach"),
    (4, "resetup w1 --service nothing --force --detach"),
    (4, "update m1 nobody --detach"),
    (4, "commission m1 nobody --detach"),
    (4, "decommission w1 --no-input"),
    (4, "decommission w1 --confirm m1"),
    (4, "decommission m1 nobody --confirm m1,nobody --detach"),
    (4, "adopt m1 nobody"),
    (4, "pause m1 nobody"),
    (4, "resume m1 nobody"),
    (4, "maintenance m1 nobody --for 1h"),
    (4, "trust-key w1 SHA256:nonsense"),
    (4, "trust-key nobody SHA256:nonsense"),
    (4, "resume"),
    (4, "job cancel 999999"),
    (4, "undo 999999"),
    (2, "resetup w1 --no-such-flag"),
    (2, "maintenance w1"),
    (2, "apply /root/nowhere"),
    (2, "apply /root/bad"),
];

/// Further orders for each state. Each must be rejected, or have nothing to do (exit code 0). An
/// order for two nodes names the valid node first.
const IN_STATE: &[(&str, &[(i32, &str)])] = &[
    (
        "accepted",
        &[
            (4, "resetup w1"),
            (4, "resetup w1 --force --now --detach"),
            (4, "update w1 --detach"),
            (4, "resetup m1 w1 --force --detach"),
            (4, "update m1 w1 --detach"),
        ],
    ),
    ("commissioning", RUNNING),
    (
        "commissioned",
        &[(0, "resetup w1"), (0, "update w1"), (0, "commission w1"), (0, "update --group web"), (4, "job cancel LAST")],
    ),
    ("being set up", BEING_SET_UP),
    ("failed", &[(0, "commission w1")]),
    ("decommissioning", RUNNING),
    (
        "decommissioning failed",
        &[
            (4, "resetup w1"),
            (4, "resetup w1 --force --now --detach"),
            (4, "update w1 --detach"),
            (4, "adopt w1"),
            (4, "resetup m1 w1 --force --detach"),
            (4, "update m1 w1 --detach"),
            (0, "update --group web"),
        ],
    ),
    (
        "decommissioned",
        &[
            (4, "resetup w1"),
            (4, "resetup w1 --force --now --detach"),
            (4, "update w1 --detach"),
            (0, "decommission w1 --confirm w1"),
            (4, "resetup m1 w1 --force --detach"),
            (4, "update m1 w1 --detach"),
            (0, "update --group web"),
            (4, "job cancel LAST"),
        ],
    ),
];

/// Orders that are rejected while a job of w1 is open.
const RUNNING: &[(i32, &str)] = &[
    (4, "resetup w1 --force --detach"),
    (4, "resetup w1 --force --now --detach"),
    (4, "commission m1 w1 --detach"),
    (4, "decommission w1 --confirm w1 --detach"),
    (4, "decommission w1 --confirm w1 --force --detach"),
    (4, "adopt w1"),
    (4, "resetup m1 w1 --force --detach"),
    (4, "decommission m1 w1 --confirm m1,w1 --detach"),
];

/// Orders while a commissioned w1 has an open job. `commission` has nothing to do; the others are
/// rejected.
const BEING_SET_UP: &[(i32, &str)] = &[
    (4, "resetup w1 --force --detach"),
    (4, "resetup w1 --force --now --detach"),
    (0, "commission m1 w1 --detach"),
    (4, "decommission w1 --confirm w1 --detach"),
    (4, "decommission w1 --confirm w1 --force --detach"),
    (4, "adopt w1"),
    (4, "resetup m1 w1 --force --detach"),
    (4, "decommission m1 w1 --confirm m1,w1 --detach"),
];

#[test]
fn refused_orders_change_nothing_from_any_state() -> Result<()> {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
        eprintln!("SKIPPED: REFUSALS ON REAL HOSTS: {why}");
        return Ok(());
    }
    const NAME: &str = "X3 refused orders";
    if super::left_out_of_the_gate(NAME) {
        return Ok(());
    }
    super::retry_policy::run_with_retry(NAME, refused_from_any_state)
}

fn refused_from_any_state() -> Result<()> {
    let name = std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "it".into());
    let pair = Pair { lab: Lab::start(&format!("x3-{name}"), &["m1", "w1"])? };
    pair.form()?;
    for (state, orders) in IN_STATE {
        let begun = Instant::now();
        pair.bring_to(state).with_context(|| format!("bringing w1 to {state}"))?;
        pair.wait_until_at_rest()?;
        for (code, order) in ALWAYS.iter().chain(*orders) {
            pair.check_rejected(*code, order).with_context(|| format!("while w1 is {state}: remoor {order}"))?;
        }
        eprintln!("ok    X3 from {state} ({:.1} s)", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

/// A manager and a worker of the same group.
struct Pair {
    lab: Lab,
}

impl Pair {
    fn run_on_m1(&self, line: &str) -> Result<crate::lab::Output> {
        let argv: Vec<&str> = std::iter::once(REMOOR).chain(line.split(' ')).collect();
        self.lab.exec("m1", &argv)
    }

    fn run_successfully(&self, line: &str) -> Result<String> {
        self.run_on_m1(line)?.require_success(&format!("remoor {line}")).map(|o| o.text())
    }

    fn status(&self) -> Result<Value> {
        serde_json::from_str(&self.run_successfully("status -o json")?).context("what status printed")
    }

    fn form(&self) -> Result<()> {
        let lab = &self.lab;
        lab.give_identity(&["m1"])?;
        five::install_agent(lab, "m1", &five::built_program("remoor")?)?;
        let (m1, w1) = (lab.host("m1").ip.to_string(), lab.host("w1").ip.to_string());
        self.run_successfully(&format!("init --name m1 --advertise {m1}"))?;
        lab.shell("m1", "systemctl enable --now remoor 2>&1")?;
        wait_for("m1 to lead", PATIENCE, || self.status().ok())?;
        let key = lab.exec("w1", &["ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub"])?.text();
        let print = key.split(' ').nth(1).context("a fingerprint")?.to_owned();
        self.run_successfully(&format!("node add {w1} --name w1 --fingerprint {print}"))?;
        let inventory = format!("web:\n  hosts:\n    m1: {{ansible_host: {m1}}}\n    w1: {{ansible_host: {w1}}}\n");
        for (name, text) in [("remoor.yml", CONFIG), ("inventory.yml", &inventory), ("up.yml", UP), ("down.yml", DOWN)]
        {
            lab.push("m1", text.as_bytes(), &format!("/root/fleet/{name}"), 0o644)?;
        }
        lab.shell("m1", "cp -r /root/fleet /root/bad; echo 'nonsense: 1' >> /root/bad/remoor.yml")?;
        self.run_successfully("apply /root/fleet")?;
        self.run_successfully("commission m1").map(drop)
    }

    fn hook(&self, which: &str, script: &str) -> Result<()> {
        self.lab.push("w1", script.as_bytes(), &format!("/root/hook-{which}"), 0o644)
    }

    fn unhook(&self) -> Result<()> {
        self.lab.shell("w1", "rm -f /root/hook-*; pkill -x sleep || :").map(drop)
    }

    fn wait(&self, what: &str, mut ask: impl FnMut(&Value) -> bool) -> Result<()> {
        let mut last = Value::Null;
        wait_for(what, PATIENCE, || {
            last = row(&self.status().ok()?, "w1")?.clone();
            ask(&last).then_some(())
        })
        .with_context(|| format!("w1: {last:#}"))
    }

    /// Waits until the agent of w1 has fetched its new manifest, which happens soon after the job
    /// begins. Without this wait, a rejected order would seem to have changed the manifest.
    fn wait_for_manifest(&self, nothing: bool) -> Result<()> {
        wait_for("w1's agent to receive its manifest", PATIENCE, || {
            let state: Value = serde_json::from_slice(&self.lab.read("w1", MANIFEST).ok()?).ok()?;
            (state["manifest"]["services"].as_array()?.is_empty() == nothing).then_some(())
        })
    }

    /// Brings w1 to `state` from the previous state in [`IN_STATE`].
    fn bring_to(&self, state: &str) -> Result<()> {
        let phase = |phase: &'static str| {
            move |w1: &Value| {
                let matches = |c: &Value| c["is"] == "resetup" && c["why"].to_string().contains(phase);
                w1["conditions"].as_array().is_some_and(|all| all.iter().any(matches))
            }
        };
        let is = |lifecycle: &'static str| {
            move |w1: &Value| w1["lifecycle"] == lifecycle && w1["job"].is_null() && w1["failed"].is_null()
        };
        let held = |w1: &Value| !w1["failed"].is_null() && w1["conditions"].to_string().contains("\"held\"");
        match state {
            "accepted" => self.wait("w1 to be accepted", is("accepted")),
            "commissioning" => {
                self.hook("up", "sleep 300 || :\n")?;
                self.run_successfully("commission w1 --detach")?;
                self.wait("the provisioning", phase("provision"))?;
                self.wait_for_manifest(false)
            }
            "commissioned" => {
                self.unhook()?;
                self.wait("w1 to be commissioned", is("commissioned"))
            }
            "being set up" => {
                self.hook("up", "sleep 300 || :\n")?;
                self.run_successfully("resetup w1 --force --detach")?;
                self.wait("the provisioning", phase("provision"))
            }
            "failed" => {
                self.hook("up", "exit 2\n")?;
                self.lab.shell("w1", "pkill -x sleep")?;
                self.wait("the re-setup under way to end", |w1| w1["job"].is_null())?;
                let failed = self.run_on_m1("resetup w1 --force")?;
                ensure!(failed.code == 5, "a failing re-setup ends with {}", failed.code);
                self.wait("w1 to be held", held)
            }
            "decommissioning" => {
                self.unhook()?;
                self.run_successfully("resume w1")?;
                self.wait("w1 to be set up", is("commissioned"))?;
                self.hook("down", "sleep 300 || :\n")?;
                self.run_successfully("decommission w1 --confirm w1 --detach")?;
                self.wait("the cleanup", phase("cleanup"))?;
                self.wait_for_manifest(true)
            }
            "decommissioning failed" => {
                self.unhook()?;
                self.wait("w1 to be decommissioned", is("decommissioned"))?;
                self.run_successfully("commission w1")?;
                self.hook("down", "exit 2\n")?;
                let failed = self.run_on_m1("decommission w1 --confirm w1")?;
                ensure!(failed.code == 5, "a failing cleanup ends with {}", failed.code);
                self.wait("w1 to be held", |w1| held(w1) && w1["lifecycle"] == "decommissioning")?;
                self.wait_for_manifest(true)
            }
            "decommissioned" => {
                self.unhook()?;
                self.run_successfully("resume w1")?;
                self.wait("w1 to be decommissioned", is("decommissioned"))
            }
            other => anyhow::bail!("there is no way to bring w1 to {other}"),
        }
    }

    /// Waits until the status has not changed for longer than an agent's check interval.
    fn wait_until_at_rest(&self) -> Result<()> {
        let mut last = (Value::Null, Instant::now());
        wait_for("the fleet to be at rest", PATIENCE, || {
            let now = without_volatile_fields(self.status().ok()?);
            if now != last.0 {
                last = (now, Instant::now());
            }
            (last.1.elapsed().as_secs() >= 7).then_some(())
        })
    }

    fn jobs(&self) -> Result<Value> {
        let view: Value = serde_json::from_str(&self.run_successfully("job list -o json")?)?;
        Ok(view["jobs"].clone())
    }

    fn check_rejected(&self, code: i32, order: &str) -> Result<()> {
        let (before, jobs) = (without_volatile_fields(self.status()?), self.jobs()?);
        let last = jobs.as_array().and_then(|all| all.last()).map(|j| j["id"].to_string()).unwrap_or_default();
        let output = self.run_on_m1(&order.replace("LAST", &last))?;
        let message = format!("{} {}", output.text(), String::from_utf8_lossy(&output.stderr));
        ensure!(output.code == code, "ended with {}, not {code}: {message}", output.code);
        ensure!(!message.contains("panicked"), "{message}");
        check_unchanged(&before, || self.status())?;
        ensure!(jobs == self.jobs()?, "the order changed the jobs");
        Ok(())
    }
}
