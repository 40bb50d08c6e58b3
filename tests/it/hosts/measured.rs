//! Checks of measured values on a real host: properties of a unit, the runs of a timer, the journal
//! and a file system. First all of them hold. Then the timer is stopped and the service runs
//! once more, and some of the same checks fail.

use super::operator::Story;
use crate::lab::cluster::Cluster;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub const ALL: &[Story] = &[("measured values: units, timers, the journal and file systems", measured_values)];

const FILE: &str = "/root/measured.yml";
const SERVICE: &str = "/etc/systemd/system/measured.service";
const TIMER: &str = "/etc/systemd/system/measured.timer";

const CHECKS: &str = r#"remoor: {service: measured, template: none}
service:
  measured.timer:
    running: true
    meta:
      remoor:
        last-run-age: {and: [{ge: 0}, {lt: 1h}]}
        next-run-in: {and: [{gt: 0}, {le: 2h}]}
        last-result: exit-code
  measured.service:
    running: false
    meta:
      remoor:
        properties: {Result: exit-code, ExecMainStatus: 3, NRestarts: {lt: 1}, FragmentPath: {have-suffix: measured.service}}
  no-such.timer:
    meta: {remoor: {last-run-age: {lt: 1h}, severity: info}}
journal:
  measured: {messages: [measured error 42, '!unexpected'], count: {ge: 2}}
  errors: {unit: measured, pattern: 'error \d+', count: 1}
  emergencies: {unit: '*', priority: emerg, count: 0}
filesystem:
  /var/log/journal/..: {usage: {le: 100}, free-bytes: {gt: 1MiB}, inode-usage: {le: 100}}
"#;

fn measured_values(c: &Cluster) -> Result<()> {
    let service = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo measured error 42; echo all; exit 3'\n";
    let timer = "[Timer]\nOnActiveSec=0\nOnUnitInactiveSec=2h\nAccuracySec=100ms\n";
    c.lab.push("w1", service.as_bytes(), SERVICE, 0o644)?;
    c.lab.push("w1", timer.as_bytes(), TIMER, 0o644)?;
    c.lab.push("w1", CHECKS.as_bytes(), FILE, 0o644)?;
    c.lab.shell("w1", "systemctl daemon-reload; systemctl start measured.timer")?;
    c.wait("the first run of the timer", |_| {
        let shown =
            c.lab.shell("w1", "systemctl show -p ActiveState,Result --value measured; journalctl --sync").ok()?;
        shown.split_whitespace().eq(["exit-code", "failed"]).then_some(())
    })?;
    let results = run_checks(c, 0)?;
    let failed = failures(&results);
    ensure!(failed == ["no-such.timer last-run-age"], "{results:#?}");
    ensure!(results.len() == 17, "{} assertions: {results:#?}", results.len());

    c.lab.shell("w1", "systemctl stop measured.timer; systemctl start measured 2>&1 || :; journalctl --sync")?;
    let results = run_checks(c, 1)?;
    // systemd may forget the last run of a timer that is stopped.
    let failed: Vec<String> = failures(&results).into_iter().filter(|f| f != "measured.timer last-run-age").collect();
    let wanted = ["measured.timer running", "measured.timer next-run-in", "no-such.timer last-run-age", "errors count"];
    ensure!(failed == wanted, "{results:#?}");
    let hint = |id: &str| results.iter().find(|r| r["resource-id"] == id).map(|r| r["hint"].clone());
    let hint = hint("measured.timer").context("a hint")?;
    ensure!(hint.as_str().is_some_and(|hint| hint.contains("next: systemctl status measured.timer")), "{hint}");
    c.lab.shell("w1", &format!("rm {SERVICE} {TIMER} {FILE}; systemctl daemon-reload; systemctl reset-failed"))?;
    Ok(())
}

fn run_checks(c: &Cluster, code: i32) -> Result<Vec<Value>> {
    let output = c.run("w1", &["check", "--file", FILE, "-o", "json"])?;
    ensure!(output.code == code, "check ended with {}, not {code}: {}", output.code, output.text());
    let all: Value = serde_json::from_str(&output.text()).with_context(|| output.text())?;
    Ok(all["results"].as_array().context("results")?.clone())
}

/// `ID PROPERTY` of the assertions that do not hold.
fn failures(results: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bad = results.iter().filter(|result| result["successful"] == false);
    bad.map(|result| format!("{} {}", text(&result["resource-id"]), text(&result["property"]))).collect()
}
