//! The shipped checks for services that no playbook sets up (sshd, chrony, the base of every node),
//! on a real host. First all checks pass. Then one item of each service is broken. The alerts name
//! the item, and nothing runs.

use super::operator::{Story, fleet_with_hooks, run_expecting, wait_quiet};
use super::roles::with_fleet;
use crate::lab::cluster::{Cluster, row};
use crate::lab::five;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub const ALL: &[Story] = &[("shipped checks of sshd, chrony and every node", shipped_checks)];

/// A unit that runs chronyd without setting the clock. A host must not set the clock, because the
/// clock is that of this machine. chronyd follows its own clock instead. systemd would skip
/// Debian's own unit, because a host lacks the right to set the clock.
pub const CHRONY: &str = "[Unit]
Description=chronyd that leaves the clock alone
[Service]
ExecStart=/usr/sbin/chronyd -n -x -F 0
[Install]
WantedBy=multi-user.target
";
pub const UNIT: &str = "/etc/systemd/system/chrony.service";
const OWN_CLOCK: &str = "/etc/chrony/conf.d/lab.conf";
const RESOLV: &str = "/etc/resolv.conf";

/// The findings that sshd, chrony and base must report after [`break_each`].
const AMISS: [&str; 7] = [
    "base: file:/etc/shadow mode: ",
    "chrony: command:offset exit-status: ",
    "chrony: command:synchronised exit-status: ",
    "chrony: command:synchronised stdout: ",
    "chrony: service:chrony.service running: ",
    "sshd: command:config exit-status: ",
    "sshd: command:config stdout: ",
];

/// The usual fleet, in which the workers also have the services sshd, chrony and base.
fn fleet_with_monitored_services(path: &str, text: String) -> String {
    const GROUP: &str = "\n  service-worker:\n";
    const RETRY: &str = ", retry: {count: 3, delay: 2s}";
    let text = fleet_with_hooks(path, text);
    match path {
        "remoor.yml" => {
            // The limit of the disk usage is above 100 %, because the disk usage of this machine
            // does not matter here.
            let vars = format!("{GROUP}    vars: {{base_timezone: Etc/UTC, base_usage_max: 101}}\n");
            five::with_monitored_services(&text, &["service-worker"]).replacen(GROUP, &vars, 1)
        }
        "checks/chrony.yml" => {
            assert!(text.contains(RETRY), "{text}");
            text.replace(RETRY, "")
        }
        _ => text,
    }
}

fn shipped_checks(c: &Cluster) -> Result<()> {
    c.lab.push("w1", CHRONY.as_bytes(), UNIT, 0o644)?;
    c.lab.push("w1", b"local stratum 10\n", OWN_CLOCK, 0o644)?;
    // The hosts have no DNS server. Without this `nameserver` line, the DNS server of this machine
    // would be queried.
    c.lab.push("w1", b"nameserver 127.0.0.1\n", RESOLV, 0o644)?;
    // `reset-failed` makes systemd forget units that failed in other stories.
    c.lab.shell("w1", "systemctl daemon-reload; systemctl enable --now chrony 2>&1; systemctl reset-failed")?;
    with_fleet(c, fleet_with_monitored_services, break_and_check)?;
    run_expecting(c, "m1", 0, &["update", "w1"])?;
    c.lab.shell(
        "w1",
        &format!("systemctl disable --now chrony 2>&1; rm {UNIT} {OWN_CLOCK} {RESOLV}; systemctl daemon-reload"),
    )?;
    wait_quiet(c)
}

fn break_and_check(c: &Cluster) -> Result<()> {
    let pids = || -> Result<[u32; 2]> {
        Ok([five::main_pid(&c.lab, "w1", "ssh.service")?, five::main_pid(&c.lab, "w1", "chrony.service")?])
    };
    let (before, runs) = (pids()?, five::runs(&c.lab, "w1")?.len());
    ensure!(before.iter().all(|pid| *pid > 0), "sshd and chronyd are to run: {before:?}");
    // A complete re-setup stops none of the services sshd, chrony and base.
    run_expecting(c, "m1", 0, &["update", "w1"])?;
    let ran = c.ran_since("w1", runs)?;
    ensure!(ran.len() == 6 && ran.iter().all(|(_, service)| !five::MONITORED.contains(&service.as_str())), "{ran:?}");
    ensure!(pids()? == before, "sshd or chronyd was restarted");

    let checks = run_checks(c, 0)?;
    for service in five::MONITORED {
        let passed = checks.iter().filter(|k| k["service"] == service && k["state"] == "pass").count();
        ensure!(passed >= 7, "{service}: {passed} assertions passed: {checks:#?}");
    }
    ensure!(failed_checks(&checks).is_empty(), "{:#?}", failed_checks(&checks));
    let runs = five::runs(&c.lab, "w1")?.len();
    break_each(c)?;

    let finding = c.wait("the alerts about w1", |s| {
        let finding = &row(s, "w1")?["finding"];
        let reasons = finding["reasons"].to_string();
        AMISS.iter().all(|amiss| reasons.contains(amiss)).then(|| finding.clone())
    })?;
    let reasons = finding["reasons"].as_array().context("reasons")?;
    ensure!(reasons.len() == AMISS.len(), "{reasons:#?}");
    ensure!(reasons.iter().all(|r| r["by"] == "check" && r["grave"] == false), "{reasons:#?}");
    ensure!(finding["verdict"]["is"] == "same" && finding["remedy"]["do"] == "none", "{finding:#}");
    c.wait("the notice", |s| {
        let warnings = s["warnings"].to_string();
        (warnings.contains("w1: ") && AMISS.iter().all(|amiss| warnings.contains(amiss))).then_some(())
    })?;
    let why = run_expecting(c, "m1", 0, &["why", "w1"])?.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(AMISS.iter().all(|amiss| why.contains(amiss.trim_end())), "{why}");
    ensure!(failed_checks(&run_checks(c, 1)?) == AMISS, "{:#?}", failed_checks(&run_checks(c, 1)?));
    // An order can't set up sshd, chrony or base either, because they have no playbooks.
    let text = run_expecting(c, "m1", 4, &["resetup", "w1", "--service", "chrony"])?;
    ensure!(text.contains("only looked at"), "{text}");
    ensure!(c.ran_since("w1", runs)?.is_empty() && c.node("w1")?["job"].is_null(), "something was run");
    ensure!(pids()? == [before[0], 0], "sshd or chronyd was started");

    c.lab.shell("w1", "mv /root/sshd_config /etc/ssh/; systemctl start chrony; chmod 0640 /etc/shadow")?;
    c.wait("w1 to be well", |s| {
        let finding = &row(s, "w1")?["finding"];
        (finding["verdict"]["is"] == "same" && finding["reasons"].as_array()?.is_empty()).then_some(())
    })?;
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    Ok(())
}

/// Breaks one item of each service: sshd runs but could not start again, nothing adjusts the clock,
/// and all users may read the password hashes.
fn break_each(c: &Cluster) -> Result<()> {
    let script = "cp -p /etc/ssh/sshd_config /root/ && sed -i 's/^UsePAM yes/UsePAM yex/' /etc/ssh/sshd_config && \
                  ! cmp -s /root/sshd_config /etc/ssh/sshd_config && ! /usr/sbin/sshd -t 2>/dev/null && \
                  systemctl stop chrony && chmod 0644 /etc/shadow";
    c.lab.shell("w1", script).map(drop)
}

/// The findings of `remoor check w1`. The command must end with `code`.
fn run_checks(c: &Cluster, code: i32) -> Result<Vec<Value>> {
    let output = c.run("m1", &["check", "w1", "-o", "json"])?;
    ensure!(output.code == code, "check ended with {}, not {code}: {}", output.code, output.text());
    let found: Value = serde_json::from_str(&output.text())?;
    Ok(found["checks"].as_array().context("checks")?.clone())
}

/// The failed checks that require an action, in the form of [`AMISS`].
fn failed_checks(checks: &[Value]) -> Vec<String> {
    let text = |k: &Value, key: &str| k[key].as_str().unwrap_or_default().to_owned();
    let bad = |k: &&Value| matches!(k["state"].as_str(), Some("fail" | "unknown")) && k["on_fail"] != "none";
    let line = |k: &Value| format!("{}: {} {}: ", text(k, "service"), text(k, "check"), text(k, "property"));
    let mut all: Vec<String> = checks.iter().filter(bad).map(line).collect();
    all.sort();
    all
}
