//! Orders that an operator gives in advance: announced maintenance of a node, a paused node, and a
//! group that is set up after every reboot.

use super::operator::{
    NETPLUGIN, Story, drift, fleet_with_limits, has_condition, number, phases, run_expecting, wait_quiet,
    wait_until_repaired,
};
use super::roles::with_fleet;
use super::stories::during_absence;
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use crate::lab::host::Power;
use anyhow::{Result, ensure};

pub const ALL: &[Story] = &[
    ("A05 an announced reboot", drift_after_announced_maintenance),
    ("A05 set up after every reboot", reboot_with_resetup_policy),
    ("A02 a paused node", drift_of_a_paused_node),
];

/// A node is absent during an announced maintenance, so its absence is planned. Its drift is
/// repaired after the end of the maintenance and not before.
fn drift_after_announced_maintenance(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    run_expecting(c, "m1", 0, &["maintenance", "w2", "--for", "1h"])?;
    ensure!(has_condition(&c.node("w2")?, "maintenance"), "{:#}", c.node("w2")?);
    let no = number(&c.node("w2")?, "absences")? + 1;
    drift(c, "w2")?;
    c.lab.reboot("w2", Power::Cut)?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "reboot" && verdict["planned"] == true, "{verdict:#}");
    ensure!(verdict["verdict"]["is"] == "drifted" && verdict["reasons"].to_string().contains(NETPLUGIN), "{verdict:#}");
    c.wait("its repair to wait", |s| row(s, "w2")?["conditions"].to_string().contains("in maintenance").then_some(()))?;
    let why = run_expecting(c, "m1", 0, &["why", "w2"])?;
    ensure!(why.contains("in maintenance"), "{why}");
    ensure!(c.ran_since("w2", runs)?.is_empty() && c.node("w2")?["job"].is_null(), "something was run");
    run_expecting(c, "m1", 0, &["maintenance", "w2", "--end"])?;
    wait_until_repaired(c, "w2")?;
    ensure!(phases(&c.ran_since("w2", runs)?, "contiv_network") == ["cleanup", "provision"], "not once each");
    ensure!(!has_condition(&c.node("w2")?, "maintenance"), "{:#}", c.node("w2")?);
    wait_quiet(c)
}

/// Nothing drifted, but the group's policy requires the re-setup (docs/design/scenarios.md, R11).
fn reboot_with_resetup_policy(c: &Cluster) -> Result<()> {
    const GROUP: &str = "  service-worker:\n";
    let policy = format!("{GROUP}    policy: {{reboot: resetup}}\n");
    with_fleet(c, fleet_with_limits(&[(GROUP, &policy)]), |c| {
        let (runs, no) = (five::runs(&c.lab, "w1")?.len(), number(&c.node("w1")?, "absences")? + 1);
        c.lab.reboot("w1", Power::Cut)?;
        let verdict = c.verdict("w1", no)?;
        ensure!(verdict["cause"] == "reboot" && verdict["verdict"]["is"] == "same", "{verdict:#}");
        ensure!(verdict["remedy"]["do"] == "resetup", "{verdict:#}");
        c.wait("w1 to be set up", |s| {
            let ran = c.ran_since("w1", runs).ok()?;
            (ran.len() >= 6 && row(s, "w1")?["job"].is_null()).then_some(())
        })?;
        let ran = c.ran_since("w1", runs)?;
        for service in ["etcd", "contiv_network", "nginx"] {
            ensure!(phases(&ran, service) == ["cleanup", "provision"], "{service}: {ran:?}");
        }
        wait_quiet(c)
    })
}

/// A paused node drifts during an absence. It is examined and its drift is reported. Nothing is
/// changed on it until an operator resumes it.
fn drift_of_a_paused_node(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    run_expecting(c, "m1", 0, &["pause", "w2"])?;
    let no = during_absence(c, "w2", |c| drift(c, "w2"))?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    ensure!(verdict["remedy"]["do"] == "blocked" && verdict["remedy"].to_string().contains("paused"), "{verdict:#}");
    ensure!(c.ran_since("w2", runs)?.is_empty() && c.node("w2")?["job"].is_null(), "something was run");
    run_expecting(c, "m1", 0, &["resume", "w2"])?;
    wait_until_repaired(c, "w2")?;
    ensure!(phases(&c.ran_since("w2", runs)?, "contiv_network") == ["cleanup", "provision"], "not once each");
    wait_quiet(c)
}
