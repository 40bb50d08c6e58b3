//! Steps that several stories share: orders with their exit codes, conditions of a status row, the
//! killing and starting of daemons, leaders, and jobs. Each step waits for its result up to the
//! general time limit. This module contains no story.

use crate::lab::cluster::{Cluster, row};
use crate::lab::{Output, five};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;

/// A file of contiv_network that exists on every host.
pub const NETPLUGIN: &str = "/etc/default/netplugin";

// --- rows of the status ---

pub fn number(row: &Value, key: &str) -> Result<u64> {
    row[key].as_u64().with_context(|| format!("no number {key} in {row:#}"))
}

pub fn has_condition(row: &Value, condition: &str) -> bool {
    row["conditions"].as_array().is_some_and(|all| all.iter().any(|one| one["is"] == condition))
}

/// The number of absences of a host so far. It is also the number of the last absence.
pub fn absences(c: &Cluster, host: &str) -> Result<u64> {
    number(&c.node(host)?, "absences")
}

pub fn presence(c: &Cluster, host: &str, wanted: &str) -> Result<()> {
    c.wait(&format!("{host} to be {wanted}"), |s| (row(s, host)?["presence"] == wanted).then_some(()))
}

/// Waits until no job is open and every node is as desired. Each story begins and ends in this
/// state.
pub fn wait_quiet(c: &Cluster) -> Result<()> {
    c.wait_quiet()
}

pub fn wait_until_repaired(c: &Cluster, host: &str) -> Result<()> {
    c.wait(&format!("{host} to be repaired"), |s| {
        let row = row(s, host)?;
        (row["job"].is_null() && row["finding"]["verdict"]["is"] == "same" && !has_condition(row, "waiting"))
            .then_some(())
    })
}

/// Checks that absence `no` was the last absence of the host, and that this absence has one
/// verdict.
pub fn check_one_verdict(c: &Cluster, host: &str, no: u64) -> Result<()> {
    let (verdicts, last) = (c.verdicts(host)?.into_iter().filter(|f| f["absence"] == no).count(), absences(c, host)?);
    ensure!(verdicts == 1 && last == no, "{host}: {verdicts} verdicts on absence {no}, and {last} absences");
    Ok(())
}

/// The number of logins that the host's sshd has accepted. Returns an error if its log contains no
/// login at all.
pub fn logins_of(c: &Cluster, host: &str) -> Result<usize> {
    let log = c.lab.shell(host, "journalctl -t sshd -t sshd-session --no-pager -o cat")?;
    let logins = log.lines().filter(|line| line.starts_with("Accepted")).count();
    ensure!(logins > 0, "{host}'s sshd logged no login at all");
    Ok(logins)
}

// --- orders ---

/// Runs `remoor`, which must end with `code`. Returns its standard output and standard error.
pub fn run_expecting(c: &Cluster, host: &str, code: i32, argv: &[&str]) -> Result<String> {
    let output = c.run_with_retry(host, argv)?;
    let text = both_outputs(&output);
    ensure!(output.code == code, "remoor {} ended with {}, not {code}: {text}", argv.join(" "), output.code);
    ensure!(!text.contains("panicked"), "remoor {}: {text}", argv.join(" "));
    Ok(text)
}

pub fn both_outputs(output: &Output) -> String {
    format!("{}\n{}", output.text(), String::from_utf8_lossy(&output.stderr))
}

/// All jobs, oldest first.
pub fn jobs(c: &Cluster) -> Result<Vec<Value>> {
    let view: Value = serde_json::from_str(&c.ask(&["job", "list", "-o", "json"])?)?;
    Ok(view["jobs"].as_array().context("jobs")?.clone())
}

pub fn jobs_of(c: &Cluster, host: &str) -> Result<Vec<Value>> {
    let id = c.node(host)?["id"].clone();
    Ok(jobs(c)?.into_iter().filter(|job| job["node"] == id).collect())
}

pub fn last_job(c: &Cluster, host: &str) -> Result<Value> {
    jobs_of(c, host)?.pop().with_context(|| format!("no job of {host}"))
}

/// The phases of one service in `ran`, in order.
pub fn phases(ran: &[(String, String)], service: &str) -> Vec<String> {
    ran.iter().filter(|(_, s)| s == service).map(|(phase, _)| phase.clone()).collect()
}

// --- faults ---

/// Changes a file of contiv_network by hand.
pub fn drift(c: &Cluster, host: &str) -> Result<()> {
    c.lab.shell(host, &format!("sed -i s/eth0/eth9/ {NETPLUGIN}")).map(drop)
}

const NO_RESTART: &str = "/run/systemd/system/remoor.service.d";

/// Kills the daemon with SIGKILL. systemd does not start it again before [`revive`].
pub fn kill_daemon(c: &Cluster, host: &str) -> Result<()> {
    no_restart(c, host)?;
    ensure!(c.lab.kill(host, "remoor", Signal::KILL)? > 0, "no daemon was running on {host}");
    Ok(())
}

/// Tells systemd not to restart the daemon of a host, whatever ends it.
pub fn no_restart(c: &Cluster, host: &str) -> Result<()> {
    let script = format!(
        "mkdir -p {NO_RESTART} && printf '[Service]\\nRestart=no\\n' > {NO_RESTART}/no.conf && systemctl daemon-reload"
    );
    c.lab.shell(host, &script).map(drop)
}

/// Starts a daemon that was killed or stopped. systemd restarts it again from now on.
pub fn revive(c: &Cluster, host: &str) -> Result<()> {
    let script = format!(
        "rm -rf {NO_RESTART}; systemctl daemon-reload; systemctl reset-failed remoor 2>/dev/null; systemctl start remoor"
    );
    c.lab.shell(host, &script).map(drop)
}

// --- leaders ---

/// The leader, and a manager that does not lead.
pub fn leader(c: &Cluster) -> Result<(String, &'static str)> {
    let leader = c.leader()?;
    let other = five::MASTERS.into_iter().find(|m| *m != leader).context("another manager")?;
    Ok((leader, other))
}

pub fn new_leader(c: &Cluster, old: &str) -> Result<String> {
    c.wait("a new leader", |s| s["as_of"]["leader"].as_str().filter(|l| *l != old).map(str::to_owned))
}
