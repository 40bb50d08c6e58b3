//! Orders that an operator gives in advance: announced maintenance of a node, a paused node, and a
//! group that is set up after every reboot.

use super::operator::{NETPLUGIN, Story, clean, drift, ends, is, limits, number, phases, repaired};
use super::roles::under;
use super::stories::away;
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use crate::lab::host::Power;
use anyhow::{Result, ensure};

pub const ALL: &[Story] =
    &[("A05 an announced reboot", announced), ("A05 set up after every reboot", always), ("A02 a paused node", paused)];

/// The absence is planned by its maintenance. The repair follows after the maintenance ends, not
/// before.
fn announced(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    ends(c, "m1", 0, &["maintenance", "w2", "--for", "1h"])?;
    ensure!(is(&c.node("w2")?, "maintenance"), "{:#}", c.node("w2")?);
    let no = number(&c.node("w2")?, "absences")? + 1;
    drift(c, "w2")?;
    c.lab.reboot("w2", Power::Cut)?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "reboot" && verdict["planned"] == true, "{verdict:#}");
    ensure!(verdict["verdict"]["is"] == "drifted" && verdict["reasons"].to_string().contains(NETPLUGIN), "{verdict:#}");
    c.wait("its repair to wait", |s| row(s, "w2")?["conditions"].to_string().contains("in maintenance").then_some(()))?;
    let why = ends(c, "m1", 0, &["why", "w2"])?;
    ensure!(why.contains("in maintenance"), "{why}");
    ensure!(c.ran_since("w2", runs)?.is_empty() && c.node("w2")?["job"].is_null(), "something was run");
    ends(c, "m1", 0, &["maintenance", "w2", "--end"])?;
    repaired(c, "w2")?;
    ensure!(phases(&c.ran_since("w2", runs)?, "contiv_network") == ["cleanup", "provision"], "not once each");
    ensure!(!is(&c.node("w2")?, "maintenance"), "{:#}", c.node("w2")?);
    clean(c)
}

/// Nothing drifted; the group's policy asks for the re-setup (docs/design/scenarios.md, R11).
fn always(c: &Cluster) -> Result<()> {
    const GROUP: &str = "  service-worker:\n";
    let policy = format!("{GROUP}    policy: {{reboot: resetup}}\n");
    under(c, limits(&[(GROUP, &policy)]), |c| {
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
        clean(c)
    })
}

/// The node is examined and reported, and left unchanged until an operator resumes it.
fn paused(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    ends(c, "m1", 0, &["pause", "w2"])?;
    let no = away(c, "w2", |c| drift(c, "w2"))?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    ensure!(verdict["remedy"]["do"] == "blocked" && verdict["remedy"].to_string().contains("paused"), "{verdict:#}");
    ensure!(c.ran_since("w2", runs)?.is_empty() && c.node("w2")?["job"].is_null(), "something was run");
    ends(c, "m1", 0, &["resume", "w2"])?;
    repaired(c, "w2")?;
    ensure!(phases(&c.ran_since("w2", runs)?, "contiv_network") == ["cleanup", "provision"], "not once each");
    clean(c)
}
