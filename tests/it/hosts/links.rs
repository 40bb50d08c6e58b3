//! Stories about single links: some managers can't reach a node over SSH, while gossip reaches it
//! by another route.

use super::operator::{fleet_with_hooks, fleet_with_limits};
use super::roles::with_usual_fleet_after;
use super::stories::Story;
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use crate::lab::tool::has_production_durations;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub const ALL: &[Story] = &[("A04 links from managers to a node are cut", links_cut)];

/// The fleet in which drift on a worker is repaired without an absence and without an order.
fn fleet_with_live_repair(path: &str, text: String) -> String {
    const GROUP: &str = "  service-worker:\n";
    fleet_with_limits(&[(GROUP, &format!("{GROUP}    policy: {{live: check}}\n"))])(path, text)
}

/// The managers that the status reports as unable to reach w1.
fn unreachable_from(status: &Value) -> Option<Vec<&str>> {
    row(status, "w1")?["unreachable_from"].as_array()?.iter().map(Value::as_str).collect()
}

fn wait_until_reachable(c: &Cluster) -> Result<()> {
    c.wait("w1 to be reached by all", |s| unreachable_from(s)?.is_empty().then_some(()))
}

fn has_condition(row: &Value, is: &str, why: &str) -> bool {
    let matches_it = |one: &Value| one["is"] == is && one["why"].as_str().is_some_and(|text| text.contains(why));
    row["conditions"].as_array().is_some_and(|all| all.iter().any(matches_it))
}

/// Checks for a while that w1 is alive, that nothing runs on it, and that it has no new absence and
/// no failure.
fn check_unchanged_for_a_while(c: &Cluster, absences: &Value, runs: usize) -> Result<()> {
    let ends = Instant::now() + Duration::from_secs(if has_production_durations() { 180 } else { 15 });
    while Instant::now() < ends {
        let w1 = c.node("w1")?;
        ensure!(w1["presence"] == "alive" && w1["absences"] == *absences, "{w1:#}");
        ensure!(w1["job"].is_null() && w1["failed"].is_null(), "{w1:#}");
        std::thread::sleep(Duration::from_secs(1));
    }
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    Ok(())
}

fn drift(c: &Cluster) -> Result<()> {
    c.lab.shell("w1", "sed -i s/eth0/eth9/ /etc/default/netplugin").map(drop)
}

/// The managers that ran the attempts on w1 after the log entry `after`, oldest first. The journal
/// shows only the last attempts, so their total number is not available.
fn runners(c: &Cluster, after: u64) -> Result<Vec<String>> {
    let items = c.history("w1")?;
    let opened = items.iter().filter(|i| i["what"] == "attempt-opened" && i["index"].as_u64() > Some(after));
    opened.map(|i| i["runner"].as_str().map(str::to_owned).context("a runner")).collect()
}

/// The last log entry that the journal of w1 shows.
fn last_entry(c: &Cluster) -> Result<u64> {
    Ok(c.history("w1")?.iter().filter_map(|i| i["index"].as_u64()).max().unwrap_or(0))
}

fn wait_until_repaired(c: &Cluster, runs: usize) -> Result<()> {
    c.wait("w1 to be repaired", |s| {
        let row = row(s, "w1")?;
        let same = row["finding"].is_null() || row["finding"]["verdict"]["is"] == "same";
        (row["job"].is_null() && same && c.ran_since("w1", runs).ok()?.len() == 2).then_some(())
    })
}

fn links_cut(c: &Cluster) -> Result<()> {
    with_usual_fleet_after(c, links_cut_under_two_fleets)
}

fn links_cut_under_two_fleets(c: &Cluster) -> Result<()> {
    c.wait_quiet()?;
    let absences = c.node("w1")?["absences"].clone();
    let old = c.leader()?;
    let before = last_entry(c)?;
    let other = five::MASTERS.into_iter().find(|m| *m != old).context("another manager")?;
    let good = c.lab.read("w1", "/etc/default/netplugin")?;

    // Only the link from the leader to w1 is blocked.
    let runs = five::runs(&c.lab, "w1")?.len();
    c.lab.block(&old, "w1")?;
    c.wait("the leader to say that it does not reach w1", |s| (unreachable_from(s)? == [old.as_str()]).then_some(()))?;
    let output = c.ask(&["status"])?;
    ensure!(output.contains(&format!("unreachable-from: {old} since")), "{output}");
    ensure!(!c.node("w1")?["unreachable_since"][&old].is_null(), "since when?");
    check_unchanged_for_a_while(c, &absences, runs)?;
    ensure!(c.leader()? == old, "the leadership was transferred without need");
    let check = c.run(other, &["check", "w1"])?;
    ensure!(check.code == 0, "check: {} {}", check.code, String::from_utf8_lossy(&check.stderr));
    // The agent reports drift by gossip, and the drift is repaired without an order.
    c.apply(fleet_with_live_repair)?;
    drift(c)?;
    wait_until_repaired(c, runs)?;
    let ran_by = runners(c, before)?;
    ensure!(ran_by.len() == 1 && ran_by[0] != old, "run by {ran_by:?}, and {old} does not reach it");
    let before = last_entry(c)?;
    ensure!(c.leader()? == ran_by[0], "the runner leads");
    ensure!(c.lab.read("w1", "/etc/default/netplugin")? == good, "the file is not as it was provisioned");
    ensure!(c.node("w1")?["absences"] == absences, "an absence");

    // No manager can reach w1, but w2 forwards the gossip.
    let runs = five::runs(&c.lab, "w1")?.len();
    five::MASTERS.iter().try_for_each(|m| c.lab.block(m, "w1"))?;
    c.wait("all managers to miss w1", |s| (unreachable_from(s)?.len() == 3).then_some(()))?;
    c.apply(fleet_with_hooks)?;
    drift(c)?;
    let order = c.run(other, &["resetup", "w1", "--detach"])?;
    let message = order.text() + &String::from_utf8_lossy(&order.stderr);
    ensure!(message.contains("blocked: no route to w1"), "exit {}: {message}", order.code);
    c.wait("the order to be blocked", |s| has_condition(row(s, "w1")?, "blocked", "no route to w1").then_some(()))?;
    for output in [c.ask(&["status"])?, c.ask(&["why", "w1"])?, c.ask(&["job", "list"])?] {
        ensure!(output.contains("blocked: no route to w1"), "{output}");
    }
    check_unchanged_for_a_while(c, &absences, runs)?;
    ensure!(has_condition(&c.node("w1")?, "blocked", "no route to w1"), "{:#}", c.node("w1")?);
    ensure!(runners(c, before)?.is_empty(), "an attempt was opened");
    c.lab.heal()?;
    c.wait("w1 to be set up", |s| {
        let row = row(s, "w1")?;
        (row["job"].is_null() && c.ran_since("w1", runs).ok()?.iter().any(|(phase, _)| phase == "provision"))
            .then_some(())
    })?;
    wait_until_reachable(c)?;
    ensure!(c.lab.read("w1", "/etc/default/netplugin")? == good, "the file is not as it was provisioned");
    let w1 = c.node("w1")?;
    ensure!(w1["failed"] == json!(null) && w1["absences"] == absences, "{w1:#}");
    c.wait_quiet()
}
