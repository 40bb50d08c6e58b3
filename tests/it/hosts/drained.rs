//! A manager that is drained: its services are cleaned up, and it stays a voter.

use super::operator::{Story, wait_quiet};
use super::steps::{has_condition, run_expecting};
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub const ALL: &[Story] = &[("A21 a drained manager", drain_a_manager)];

const ETCD: &str = "/etc/etcd-contiv.env";

fn drain_a_manager(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    let result = drain_and_check(c);
    // If the story failed, m3 is possibly drained or decommissioned. The next commands end both
    // states.
    c.run_with_retry("m1", &["resume", "m3"])?;
    c.run_with_retry("m1", &["commission", "m3"])?;
    result?;
    wait_quiet(c)
}

fn drain_and_check(c: &Cluster) -> Result<()> {
    let text = run_expecting(c, "m1", 4, &["drain", "m3", "--no-input"])?;
    ensure!(text.contains("--confirm m3"), "{text}");
    ensure!(c.node("m3")?["availability"] == "active", "a refused order changed it");
    run_expecting(c, "m1", 0, &["drain", "m3", "--confirm", "m3"])?;
    let m3 = c.node("m3")?;
    ensure!(m3["availability"] == "drain" && m3["lifecycle"] == "decommissioned", "{m3:#}");
    ensure!(c.lab.read("m3", ETCD).is_err(), "{ETCD} is still there");
    ensure!(matches!(m3["manager_state"].as_str(), Some("voter" | "leader")), "{m3:#}");
    let raft: Value =
        serde_json::from_str(&c.run_successfully("m1", &["raft-members", "-o", "json"])?).context("raft-members")?;
    let voters = raft["members"].as_array().into_iter().flatten().filter(|m| m["is"] != "learner").count();
    ensure!(voters == 3, "{raft:#}");
    // Two of three etcd members are left, and etcd needs both. So an order to drain m2 is refused.
    let text = run_expecting(c, "m1", 4, &["drain", "m2", "--confirm", "m2"])?;
    ensure!(text.contains("m2 is needed"), "{text}");
    let runs = five::runs(&c.lab, "m3")?.len();
    for order in [&["commission", "m3"][..], &["resetup", "m3", "--force"], &["adopt", "m3"]] {
        run_expecting(c, "m1", 4, order)?;
    }
    ensure!(c.ran_since("m3", runs)?.is_empty(), "something ran on a drained node");
    run_expecting(c, "m1", 0, &["status", "--exit-code"])?;
    let text = run_expecting(c, "m1", 0, &["resume", "m3"])?;
    ensure!(text.contains("remoor commission m3"), "{text}");
    run_expecting(c, "m1", 0, &["commission", "m3"])?;
    c.wait("m3 to serve again", |s| {
        let m3 = row(s, "m3")?;
        (m3["lifecycle"] == "commissioned" && !has_condition(m3, "held")).then_some(())
    })?;
    c.lab.read("m3", ETCD).map(drop)
}
