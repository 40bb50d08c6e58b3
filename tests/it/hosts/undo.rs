//! Stories about cancelled orders: undo, cancel, removal from the queue, and dry runs.

use super::operator::{HOOK_PROVISION, NETPLUGIN, Story, run_expecting, wait_quiet};
use super::steps::jobs_of;
use super::stories::during_absence;
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub const ALL: &[Story] = &[
    ("A20 a queued request is cancelled", drop_a_queued_request),
    ("A22 an attempt is undone", undo_a_resetup),
    ("A22 a cancelled task may finish", cancel_a_job),
    ("X3 one invalid node rejects the batch", batch),
];

fn undo_a_resetup(c: &Cluster) -> Result<()> {
    c.lab.shell("w1", &format!("echo '# by hand' >> {NETPLUGIN}"))?;
    let by_hand = c.lab.read("w1", NETPLUGIN)?;
    let output = run_expecting(c, "m1", 1, &["resetup", "w1", "--check"])?;
    ensure!(output.contains("contiv_network") && output.contains("provision:"), "{output}");
    ensure!(c.lab.read("w1", NETPLUGIN)? == by_hand, "asking has changed something");
    run_expecting(c, "m1", 0, &["resetup", "w1"])?;
    ensure!(c.lab.read("w1", NETPLUGIN)? != by_hand, "not repaired");
    let job = jobs_of(c, "w1")?.pop().context("a job")?;
    let attempt = job["attempts"][0]["id"].to_string();
    let runs = five::runs(&c.lab, "w1")?.len();
    run_expecting(c, "m1", 0, &["undo", &attempt])?;
    ensure!(c.lab.read("w1", NETPLUGIN)? == by_hand, "the copy was not put back");
    ensure!(c.ran_since("w1", runs)?.is_empty(), "an undo runs no playbook");
    c.wait("the drift to be reported", |s| (row(s, "w1")?["finding"]["verdict"]["is"] == "drifted").then_some(()))?;
    let why = c.run_successfully("m1", &["why", "w1"])?;
    ensure!(why.contains("undone by ") && why.contains("remoor resume w1"), "{why}");
    let audit = c.lab.shell("w1", "cat /var/lib/remoor/runs.log")?;
    ensure!(audit.lines().rev().take(2).all(|l| l.contains(" undo ")), "{audit}");
    run_expecting(c, "m1", 4, &["undo", "999999"])?;
    c.lab.shell("w1", "rm -rf /var/lib/remoor/backups/*")?;
    let output = run_expecting(c, "m1", 4, &["undo", &attempt])?;
    ensure!(output.contains("no copies of attempt"), "{output}");
    run_expecting(c, "m1", 0, &["resume", "w1"])?;
    run_expecting(c, "m1", 0, &["resetup", "w1", "--now"])?;
    run_expecting(c, "m1", 0, &["resetup", "w1", "--check"])?;
    wait_quiet(c)
}

fn drop_a_queued_request(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    let no = during_absence(c, "w2", |c| {
        let output = run_expecting(c, "m1", 0, &["resetup", "w2", "--force"])?;
        ensure!(output.contains("queued"), "{output}");
        let list = c.run_successfully("m1", &["job", "list", "--node", "w2"])?;
        ensure!(list.lines().any(|l| l.starts_with('-') && l.contains("queued")), "{list}");
        let why = c.run_successfully("m1", &["why", "w2"])?;
        ensure!(why.contains("remoor job cancel w2"), "{why}");
        run_expecting(c, "m1", 3, &["resetup", "w2", "--check"])?;
        run_expecting(c, "m1", 0, &["job", "cancel", "w2"])?;
        run_expecting(c, "m1", 4, &["job", "cancel", "w2"])?;
        Ok(())
    })?;
    c.verdict("w2", no)?;
    wait_quiet(c)?;
    ensure!(c.ran_since("w2", runs)?.is_empty(), "what was called off was run");
    Ok(())
}

/// The current task takes a minute. `cancel` lets the task finish. `cancel --now` ends the task at
/// once.
fn cancel_a_job(c: &Cluster) -> Result<()> {
    for now in [false, true] {
        c.lab.shell("w2", "rm -f /root/began /root/ended /root/go")?;
        let hook = b"touch /root/began; for i in $(seq 1200); do [ -e /root/go ] && break; sleep 0.1; done; touch /root/ended\n";
        c.lab.push("w2", hook, HOOK_PROVISION, 0o644)?;
        run_expecting(c, "m1", 0, &["resetup", "w2", "--force", "--now", "--detach", "--service", "contiv_network"])?;
        crate::lab::wait_for("the task to begin", crate::lab::cluster::PATIENCE, || {
            c.lab.read("w2", "/root/began").ok().map(|_| ())
        })?;
        let mut line = vec!["job", "cancel", "w2"];
        line.extend(now.then_some("--now"));
        run_expecting(c, "m1", 0, &line)?;
        c.lab.shell("w2", &format!("rm -f {HOOK_PROVISION}"))?;
        let ended = |c: &Cluster| c.lab.read("w2", "/root/ended").is_ok();
        if now {
            crate::lab::wait_for("the task to be gone", crate::lab::cluster::PATIENCE, || {
                c.lab.shell("w2", "! pgrep -f '[s]eq 1200'").ok().map(|_| ())
            })?;
            ensure!(!ended(c), "it was allowed to finish");
        } else {
            ensure!(!ended(c), "it ended without an order");
            c.lab.shell("w2", "touch /root/go")?;
            crate::lab::wait_for("the task to finish", crate::lab::cluster::PATIENCE, || ended(c).then_some(()))?;
        }
        let audit = || c.lab.shell("w2", "tail -n 1 /var/lib/remoor/runs.log");
        crate::lab::wait_for("the run to be over", crate::lab::cluster::PATIENCE, || {
            audit().ok().filter(|l| l.ends_with("stopped")).map(|_| ())
        })?;
        run_expecting(c, "m1", 0, &["resume", "w2"])?;
        run_expecting(c, "m1", 0, &["resetup", "w2", "--force", "--now"])?;
        wait_quiet(c)?;
    }
    Ok(())
}

fn batch(c: &Cluster) -> Result<()> {
    run_expecting(c, "m1", 0, &["pause", "w1"])?;
    let orders = |c: &Cluster| -> Result<usize> {
        let ordered = |i: &&Value| i["what"].as_str().is_some_and(|what| what == "wanted" || what.starts_with("job"));
        Ok(c.history("w2")?.iter().filter(ordered).count())
    };
    let before = orders(c)?;
    let no = during_absence(c, "w1", |c| {
        let output = run_expecting(c, "m1", 4, &["resetup", "w2", "w1", "--force", "--no-queue"])?;
        ensure!(output.contains("w1") && output.contains("nothing was ordered"), "{output}");
        Ok(())
    })?;
    c.verdict("w1", no)?;
    ensure!(orders(c)? == before, "w2 was ordered");
    run_expecting(c, "m1", 0, &["resume", "w1", "w2"])?;
    wait_quiet(c)
}
