//! The list of the stories. Before and after each story, no job is open and every node is as
//! desired.

use crate::lab::cluster::Cluster;
use crate::lab::five;
use crate::lab::tool::has_production_durations;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

pub type Story = (&'static str, fn(&Cluster) -> Result<()>);

pub const ALL: &[Story] = &[
    ("A01 network loss, nothing changed", network_loss),
    ("A02 network loss and drift", network_loss_and_drift),
    ("A05 reboot, all enabled", reboot),
    ("A07 the agent is killed", agent_killed),
    ("A08 the agent is stopped gracefully", agent_stopped),
];

/// Limits for all stories. With the default values of these limits, nodes would count as flapping
/// and the circuit breaker would open, because the stories cause many absences.
const LENIENT: &str = "breaker-min: 6, flap-count: 50";
/// Short durations. The services of a host are up long before the settle time ends, even on a slow
/// machine that boots all five hosts at once.
const QUICK: &str = "settle: 40s, leader-grace: 2s, probe: 3s, check-interval: 5s, rejoin: 5s, retry: [2s, 3s, 5s]";

/// The interval at which agents in the stories' fleet hash files and run checks (`check-interval`).
pub fn check_interval() -> std::time::Duration {
    std::time::Duration::from_secs(if has_production_durations() { 60 } else { 5 })
}

/// The fleet with the short durations of CI, or the default durations with `REMOOR_LONG`. The short
/// durations change only waiting times and no decision.
pub fn fleet_with_short_durations(path: &str, text: String) -> String {
    match path {
        "remoor.yml" if has_production_durations() => format!("{text}\nlimits: {{{LENIENT}}}\n"),
        "remoor.yml" => format!("{text}\nlimits: {{{LENIENT}, {QUICK}}}\n"),
        _ => text,
    }
}

/// Cuts a host off, waits until it is missed, calls `meanwhile`, and heals the network. Returns the
/// number of the absence.
pub fn during_absence(c: &Cluster, host: &str, meanwhile: impl FnOnce(&Cluster) -> Result<()>) -> Result<u64> {
    let before = c.node(host)?["absences"].as_u64().context("a number of absences")?;
    c.lab.cut(host)?;
    c.wait(&format!("{host} to be missed"), |s| {
        (crate::lab::cluster::row(s, host)?["presence"] == "away").then_some(())
    })?;
    meanwhile(c)?;
    c.lab.heal_host(host)?;
    Ok(before + 1)
}

fn pids(c: &Cluster, host: &str) -> Result<Vec<u32>> {
    let units = ["etcd-proxy-contiv.service", "netplugin.service", "nginx.service"];
    units.into_iter().map(|unit| five::main_pid(&c.lab, host, unit)).collect()
}

fn network_loss(c: &Cluster) -> Result<()> {
    let (runs, before) = (five::runs(&c.lab, "w1")?.len(), pids(c, "w1")?);
    let no = during_absence(c, "w1", |c| {
        ensure!(c.node("w1")?["lifecycle"] == "commissioned");
        c.lab.wait_isolated("w1")
    })?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "network", "{verdict:#}");
    ensure!(verdict["verdict"]["is"] == "same" && verdict["remedy"]["do"] == "none", "{verdict:#}");
    let evidence = verdict["evidence"].to_string();
    for seen in ["boot id is the same", "agent instance is the same", "lost 4 peers"] {
        ensure!(evidence.contains(seen), "{evidence}");
    }
    ensure!(verdict["checks"][0].as_u64() > Some(10) && verdict["checks"][1] == 0, "{verdict:#}");
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    ensure!(pids(c, "w1")? == before, "a service was restarted");
    Ok(())
}

fn network_loss_and_drift(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w1")?.len();
    let (etcd, nginx) = (pids(c, "w1")?[0], pids(c, "w1")?[2]);
    let good = c.lab.read("w1", "/etc/default/netplugin")?;
    let no = during_absence(c, "w1", |c| c.lab.shell("w1", "sed -i s/eth0/eth9/ /etc/default/netplugin").map(drop))?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    let reasons = verdict["reasons"].to_string();
    ensure!(reasons.contains("contiv_network: /etc/default/netplugin sha256 expected"), "{reasons}");
    ensure!(reasons.contains(" got "), "{reasons}");
    ensure!(verdict["remedy"]["what"] == serde_json::json!(["contiv_network"]), "{verdict:#}");
    c.wait("w1 to be repaired", |s| {
        let row = crate::lab::cluster::row(s, "w1")?;
        (row["job"].is_null() && row["finding"]["verdict"]["is"] == "same").then_some(())
    })?;
    ensure!(c.lab.read("w1", "/etc/default/netplugin")? == good, "the file is not as it was provisioned");
    let ran = c.ran_since("w1", runs)?;
    let wanted = [("cleanup", "contiv_network"), ("provision", "contiv_network")];
    ensure!(ran == wanted.map(|(p, s)| (p.to_owned(), s.to_owned())), "ran {ran:?}");
    let job = super::steps::last_job(c, "w1")?["id"].to_string();
    ensure!(five::runs(&c.lab, "w1")?[runs..].iter().all(|r| r.job == job), "more than one job");
    ensure!(pids(c, "w1")?[0] == etcd && pids(c, "w1")?[2] == nginx, "another service was restarted");
    Ok(())
}

/// One service starts slowly. w1 settles until the service is up, and gets no verdict before.
fn reboot(c: &Cluster) -> Result<()> {
    const DIR: &str = "/etc/systemd/system/netplugin.service.d";
    const LATE: &str = "[Service]\\nExecStartPre=/bin/sh -c \"until [ -e /run/go ]; do sleep 0.2; done\"\\n";
    let runs = five::runs(&c.lab, "w1")?.len();
    let no = c.node("w1")?["absences"].as_u64().context("a number")? + 1;
    c.lab.shell("w1", &format!("mkdir {DIR} && printf '{LATE}' > {DIR}/late.conf"))?;
    c.lab.reboot("w1", crate::lab::host::Power::Cut)?;
    c.wait("w1 to settle", |s| {
        let w1 = crate::lab::cluster::row(s, "w1")?;
        super::steps::has_condition(w1, "settling").then_some(())
    })?;
    ensure!(c.verdicts("w1")?.iter().all(|f| f["absence"] != no), "concluded before it settled");
    c.lab.shell("w1", "touch /run/go")?;
    let verdict = c.verdict("w1", no)?;
    c.lab.shell("w1", &format!("rm -r {DIR} && systemctl daemon-reload"))?;
    ensure!(verdict["cause"] == "reboot" && verdict["planned"] == false, "{verdict:#}");
    ensure!(verdict["verdict"]["is"] == "same" && verdict["remedy"]["do"] == "none", "{verdict:#}");
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    Ok(())
}

fn agent_killed(c: &Cluster) -> Result<()> {
    let (runs, before) = (five::runs(&c.lab, "w2")?.len(), pids(c, "w2")?);
    let row = c.node("w2")?;
    let (no, faults) = (row["absences"].as_u64().context("a number")? + 1, row["agent_faults"].as_u64().unwrap_or(0));
    ensure!(c.lab.kill("w2", "remoor", Signal::KILL)? > 0, "no agent was running");
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "agent" && verdict["verdict"]["is"] == "same", "{verdict:#}");
    ensure!(verdict["evidence"].to_string().contains("(before: ended by signal KILL)"), "{verdict:#}");
    ensure!(verdict["remedy"]["do"] == "none", "{verdict:#}");
    ensure!(c.node("w2")?["agent_faults"].as_u64() == Some(faults + 1), "the fault was not counted");
    ensure!(c.ran_since("w2", runs)?.is_empty(), "something was run");
    ensure!(pids(c, "w2")? == before, "a service was restarted");
    Ok(())
}

fn agent_stopped(c: &Cluster) -> Result<()> {
    let (runs, before) = (five::runs(&c.lab, "w2")?.len(), pids(c, "w2")?);
    let no = c.node("w2")?["absences"].as_u64().context("a number")? + 1;
    c.lab.shell("w2", "systemctl stop remoor")?;
    c.wait("w2 to be known as left", |s| (crate::lab::cluster::row(s, "w2")?["presence"] == "left").then_some(()))?;
    c.lab.shell("w2", "systemctl start remoor")?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "left" && verdict["planned"] == true, "{verdict:#}");
    ensure!(verdict["verdict"]["is"] == "same" && verdict["remedy"]["do"] == "none", "{verdict:#}");
    ensure!(verdict["checks"][0].as_u64() > Some(10), "{verdict:#}");
    ensure!(pids(c, "w2")? == before, "a service was restarted");
    ensure!(c.ran_since("w2", runs)?.is_empty(), "something was run");
    Ok(())
}
