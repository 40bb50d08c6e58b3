//! Drift without an absence, large output, garbage packets, a stopped daemon, and rejected orders
//! (docs/design/scenarios.md, X).

use super::operator::{HOOK_PROVISION, Story, both_outputs, number, phases, run_expecting, wait_quiet};
use super::stories::{check_interval, during_absence};
use crate::lab::cluster::{Cluster, row};
use crate::lab::{five, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::time::{Duration, Instant};

pub const ALL: &[Story] = &[
    ("X1 drift without absence", live_drift),
    ("X2 garbage on every port", garbage),
    ("X2 every verb with the daemon down", daemon_down),
    ("X3 refused commands change nothing", refusals),
];

fn live_drift(c: &Cluster) -> Result<()> {
    let (runs, absences) = (five::runs(&c.lab, "w2")?.len(), number(&c.node("w2")?, "absences")?);
    c.lab.shell("w2", "echo '# somebody was here' >> /etc/etcd-proxy-contiv.env")?;
    let finding = c.wait("the drift to be shown", |s| {
        let finding = &row(s, "w2")?["finding"];
        (finding["verdict"]["is"] == "drifted").then(|| finding.clone())
    })?;
    ensure!(finding["remedy"]["do"] == "report" && finding["absence"].is_null(), "{finding:#}");
    ensure!(finding["occasion"] == "live", "{finding:#}");
    let text = run_expecting(c, "m1", 1, &["status", "--exit-code"])?;
    ensure!(text.contains("w2"), "{text}");
    ensure!(c.ran_since("w2", runs)?.is_empty() && c.node("w2")?["job"].is_null(), "reported means reported");
    run_expecting(c, "m1", 0, &["resetup", "w2"])?;
    let ran = c.ran_since("w2", runs)?;
    for service in ["etcd", "contiv_network"] {
        ensure!(phases(&ran, service) == ["cleanup", "provision"], "{service}: {ran:?}");
    }
    ensure!(phases(&ran, "nginx").is_empty(), "{ran:?}");
    let text = run_expecting(c, "m1", 0, &["resetup", "w2"])?;
    ensure!(text.contains("nothing to do"), "{text}");
    ensure!(c.ran_since("w2", runs)? == ran, "something was run again");
    ensure!(number(&c.node("w2")?, "absences")? == absences, "a re-setup was taken for an absence");
    wait_quiet(c)?;
    run_expecting(c, "m1", 0, &["status", "--exit-code"]).map(drop)
}

fn garbage(c: &Cluster) -> Result<()> {
    use std::io::Write;
    use std::net::{SocketAddr, TcpStream, UdpSocket};
    let pids = |c: &Cluster| -> Result<Vec<u32>> {
        five::HOSTS.iter().map(|h| five::main_pid(&c.lab, h, "remoor.service")).collect()
    };
    wait_until_at_rest(c)?;
    let (before, then) = (without_volatile_fields(c.status()?), pids(c)?);
    let targets: Vec<_> = ["m1", "m2", "w1"].map(|h| c.lab.host(h).ip).into();
    c.lab.in_net(|| -> Result<()> {
        let udp = UdpSocket::bind("0.0.0.0:0")?;
        // xorshift makes the same garbage in every run.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..1000_usize {
            let packet: Vec<u8> = (0..round % 1400)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            for ip in &targets {
                udp.send_to(&packet, SocketAddr::from((*ip, 7946)))?;
                if round % 25 == 0 {
                    for port in [7946, 7947, 22] {
                        let to = SocketAddr::from((*ip, port));
                        if let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_secs(2)) {
                            let _ = stream.write_all(&packet);
                        }
                    }
                }
            }
        }
        Ok(())
    })??;
    wait_until_at_rest(c)?;
    ensure!(pids(c)? == then, "a daemon was restarted");
    check_unchanged(&before, || c.status())
}

fn daemon_down(c: &Cluster) -> Result<()> {
    const VERBS: &[&str] = &[
        "status",
        "nodes",
        "nodes w1",
        "raft-members",
        "promote w1",
        "demote m2",
        "watch",
        "history",
        "why w1",
        "job list",
        "job show 1",
        "job logs 1",
        "job cancel 1",
        "undo 1",
        "wait w1 --for=clean --timeout=2s",
        "check w1",
        "diff w1",
        "adopt w1",
        "resetup w1",
        "update w1",
        "inventory --list",
        "inventory --host w1",
        "commission w1",
        "decommission w1 --confirm w1",
        "pause w1",
        "resume w1",
        "resume",
        "maintenance w1 --for 1h",
        "trust-key w1 SHA256:x",
    ];
    let no = number(&c.node("m3")?, "absences")? + 1;
    c.lab.shell("m3", "systemctl stop remoor")?;
    let mut wrong = Vec::new();
    for verb in VERBS {
        let argv: Vec<&str> = verb.split(' ').collect();
        let output = c.run("m3", &argv)?;
        let text = both_outputs(&output);
        if output.code != 3 || !text.contains("error: ") || !text.contains("next: ") || text.contains("panicked") {
            wrong.push(format!("remoor {verb}: {} {text}", output.code));
        }
    }
    c.lab.shell("m3", "systemctl start remoor")?;
    c.verdict("m3", no)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    wait_quiet(c)
}

/// A status without the fields that change without an order: times, the answering manager, the
/// leader, and details of presence. A node that misses a ping on a busy machine is suspect for a
/// moment, so it counts as alive.
pub fn without_volatile_fields(mut status: Value) -> Value {
    status["as_of"] = Value::Null;
    for node in status["nodes"].as_array_mut().into_iter().flatten() {
        node["unanswered"] = Value::Null;
        // An agent signs its report again every few minutes.
        if let Some(report) = node.get_mut("report").and_then(Value::as_object_mut) {
            report.remove("signed_at");
        }
        if node["presence"] == "suspect" {
            node["presence"] = "alive".into();
        }
        if node["manager"] == "leader" {
            node["manager"] = "voter".into();
        }
    }
    status
}

/// A status without the fields that agents and gossip report themselves. The other fields change
/// only by log entries.
fn logged_fields(mut status: Value) -> Value {
    for node in status["nodes"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        ["presence", "presence_since", "report", "agent_version"].iter().for_each(|key| drop(node.remove(*key)));
    }
    status
}

/// Checks that the status equals `before`. The fields that change only by log entries must be equal
/// at once. The fields that agents and gossip report must be equal after some seconds.
pub fn check_unchanged(before: &Value, mut ask: impl FnMut() -> Result<Value>) -> Result<()> {
    let mut after = without_volatile_fields(ask()?);
    let (was, is) = (logged_fields(before.clone()), logged_fields(after.clone()));
    ensure!(was == is, "changed {}", difference(&was, &is));
    let same = wait_for("the state to be as before", Duration::from_secs(30), || {
        after = without_volatile_fields(ask().ok()?);
        (after == *before).then_some(())
    });
    // The difference is the root cause of the error, because the last lines of a log show the root
    // cause.
    ensure!(same.is_ok(), "changed {}", difference(before, &after));
    Ok(())
}

fn difference(a: &Value, b: &Value) -> String {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys: std::collections::BTreeSet<_> = x.keys().chain(y.keys()).collect();
            let describe = |k: &&String| format!("{k}: {}", difference(&a[k.as_str()], &b[k.as_str()]));
            keys.iter().filter(|k| a[k.as_str()] != b[k.as_str()]).map(describe).collect::<Vec<_>>().join("; ")
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).filter(|(a, b)| a != b).map(|(a, b)| difference(a, b)).collect::<Vec<_>>().join("; ")
        }
        _ => format!("{a} -> {b}"),
    }
}

/// Waits until the status has not changed for longer than an agent's check interval. Then agents
/// and managers have ended their work of the previous story.
fn wait_until_at_rest(c: &Cluster) -> Result<()> {
    let mut last = (without_volatile_fields(c.status()?), Instant::now());
    c.wait("the fleet to be at rest", |status| {
        let now = without_volatile_fields(status.clone());
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() >= check_interval() + Duration::from_secs(3)).then_some(())
    })
}

fn refusals(c: &Cluster) -> Result<()> {
    const HOLD: &str = "/run/hold-provision";
    wait_until_at_rest(c)?;
    let refused = |code: i32, line: &str| -> Result<()> {
        let (before, jobs) =
            (without_volatile_fields(c.status()?), c.run_successfully("m1", &["job", "list", "-o", "json"])?);
        let argv: Vec<&str> = line.split(' ').collect();
        run_expecting(c, "m1", code, &argv)?;
        check_unchanged(&before, || c.status()).with_context(|| format!("remoor {line}"))?;
        let strip = |text: &str| serde_json::from_str::<Value>(text).map(|v| v["jobs"].clone());
        let now = c.run_successfully("m1", &["job", "list", "-o", "json"])?;
        ensure!(strip(&jobs)? == strip(&now)?, "remoor {line} changed the jobs");
        Ok(())
    };
    let last = c.history("w1")?.iter().rev().find_map(|i| i["job"].as_u64()).context("a job of before")?;
    refused(4, "resetup nobody")?;
    refused(4, "resetup w1 nobody --force")?;
    refused(4, "resetup w1 --service nothing --force")?;
    refused(4, "decommission w1 --no-input")?;
    refused(4, "decommission w1 --confirm w2")?;
    refused(4, "pause w1 nobody")?;
    refused(4, "resume w1 nobody")?;
    refused(4, "maintenance w1 nobody --for 1h")?;
    refused(4, "trust-key w1 SHA256:nonsense")?;
    refused(4, "resume")?;
    refused(4, "job cancel 999999")?;
    refused(4, &format!("job cancel {last}"))?;
    refused(2, "resetup w1 --no-such-flag")?;
    refused(2, "apply /root/nowhere")?;
    c.lab.shell("m1", "rm -rf /root/bad; cp -r /root/fleet /root/bad; echo 'nonsense: 1' >> /root/bad/remoor.yml")?;
    refused(2, "apply /root/bad")?;
    let no = during_absence(c, "w2", |c| {
        c.wait("w2 to be examined by a probe", |s| (row(s, "w2")?["presence"] == "away").then_some(()))?;
        refused(4, "decommission w1 w2 --confirm w1,w2")?;
        refused(4, "resetup w1 w2 --force --no-queue")?;
        refused(4, "decommission w2 --confirm w2")?;
        refused(4, "commission w2 nobody")
    })?;
    c.verdict("w2", no)?;
    // During the following orders a job is open. The job continues as if no order had been given.
    c.lab.push("w1", format!("while [ -e {HOLD} ]; do sleep 1; done\n").as_bytes(), HOOK_PROVISION, 0o644)?;
    c.lab.push("w1", b"", HOLD, 0o644)?;
    run_expecting(c, "m1", 0, &["resetup", "w1", "--force", "--service", "contiv_network", "--detach"])?;
    c.wait("the provisioning of w1", |s| row(s, "w1")?["conditions"].to_string().contains("provision").then_some(()))?;
    // The agent reports the cleaned host, independently of rejected orders. This wait lets the
    // report arrive.
    wait_until_at_rest(c)?;
    refused(4, "resetup w1 --force")?;
    refused(4, "decommission w1 --confirm w1")?;
    c.lab.shell("w1", &format!("rm {HOOK_PROVISION} {HOLD}"))?;
    wait_quiet(c)
}
