//! Stories about failures at a bad moment: services that did not start again, a silent agent, and
//! leaders that die or are cut off while a node needs them. Before and after each story, no job is
//! open and every node is as desired.

use super::steps::{
    NETPLUGIN, absences, check_one_verdict, drift, has_condition, kill_daemon, last_job, leader, logins_of, new_leader,
    no_restart, presence, revive, run_expecting, wait_quiet as quiet, wait_until_repaired,
};
use super::stories::{self, Story, during_absence};
use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::host::Power;
use crate::lab::{five, wait_for};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::time::Duration;

pub const ALL: &[Story] = &[
    ("A06 reboot with netplugin not enabled", not_enabled),
    ("A09 agent dead, host up", agent_down),
    ("A11 a missing and an extra file", missing_and_extra),
    ("A12 service stopped, files intact", service_stopped),
    ("A14 ports changed while away", ports),
    ("A15 leader killed while a node is away", leader_killed),
    ("A17a leader killed in cleanup", killed_in_cleanup),
    ("A17b leader killed between the phases", killed_between),
    ("A17c leader killed in provision", killed_in_provision),
    ("A18 target reboots in provision", target_reboots),
    ("A25b leader and target cut from the rest", leader_in_minority),
    ("A25c leader and target cut while a re-setup runs", minority_running),
];

/// The fleet of these stories. The playbooks of contiv_network sleep for ten minutes if a certain
/// file exists on the host. They create `/run/twice` if two of them ever run at the same time.
pub fn fleet(path: &str, text: String) -> String {
    let text = stories::fleet_with_short_durations(path, text);
    let Some(phase) = path.strip_prefix("playbooks/").and_then(|p| p.strip_suffix(".yml")) else { return text };
    let stop = format!(
        "    - name: Stop here if asked to\n      shell: |\n        \
         flock -n -E 77 /run/busy.lock sh -c 'if rm /run/slow-{phase} 2>/dev/null; then sleep 600; fi'\n        \
         if [ $? = 77 ]; then touch /run/twice; fi\n      changed_when: false\n      tags: [contiv_network]\n\n"
    );
    let after = match phase {
        "cleanup" => "    - name: Stop netmaster and netplugin\n",
        _ => "    - name: Configure netplugin\n",
    };
    let ended = "    # --- etcd ---";
    let mark = "    - name: Say that the files are gone\n      file:\n        path: /run/gone\n        state: touch\n      \
                changed_when: false\n      tags: [contiv_network]\n\n";
    let text = text.replacen(after, &format!("{stop}{after}"), 1);
    if phase == "cleanup" { text.replacen(ended, &format!("{mark}{ended}"), 1) } else { text }
}

/// Checks that one cleanup and one provisioning of contiv_network ran in this order, and that
/// nothing else ran.
fn check_one_resetup(c: &Cluster, host: &str, before: usize) -> Result<()> {
    let ran = c.ran_since(host, before)?;
    ensure!(ran == pairs(&["contiv_network"]), "ran {ran:?}");
    Ok(())
}

fn pairs(services: &[&str]) -> Vec<(String, String)> {
    let of = |phase: &'static str| services.iter().map(move |s| (phase.to_owned(), (*s).to_owned()));
    of("cleanup").chain(of("provision")).collect()
}

/// Whether a reason of the verdict says that netplugin's unit lacks `property`.
fn names(verdict: &Value, property: &str) -> bool {
    let mentions = |r: &Value| r["text"].as_str().is_some_and(|t| t.contains("netplugin") && t.contains(property));
    verdict["reasons"].as_array().is_some_and(|all| all.iter().any(mentions))
}

fn not_enabled(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let (runs, no) = (five::runs(&c.lab, "w1")?.len(), absences(c, "w1")? + 1);
    c.lab.shell("w1", "systemctl disable netplugin 2>&1")?;
    c.lab.reboot("w1", Power::Cut)?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "reboot" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    let reasons = verdict["reasons"].to_string();
    ensure!(names(&verdict, "running") && names(&verdict, "enabled"), "{reasons}");
    ensure!(verdict["remedy"]["what"] == json!(["contiv_network"]), "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    check_one_resetup(c, "w1", runs)?;
    let state = c.lab.shell("w1", "systemctl is-active netplugin; systemctl is-enabled netplugin")?;
    ensure!(state.split_whitespace().eq(["active", "enabled"]), "netplugin is {state}");
    let no = absences(c, "w1")? + 1;
    c.lab.reboot("w1", Power::Orderly)?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "reboot" && verdict["remedy"]["do"] == "none", "{verdict:#}");
    check_one_resetup(c, "w1", runs)?;
    quiet(c)
}

fn agent_down(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let (runs, no) = (five::runs(&c.lab, "w1")?.len(), absences(c, "w1")? + 1);
    let count_notices = || -> Result<usize> {
        let script = "journalctl -u remoor --no-pager | grep -c 'w1: its host answers on SSH' || :";
        let each = five::MASTERS.iter().map(|m| Ok(c.lab.shell(m, script)?.trim().parse::<usize>()?));
        each.sum()
    };
    let before = count_notices()?;
    kill_daemon(c, "w1")?;
    presence(c, "w1", "agent-down")?;
    wait_for("a notice to be sent", PATIENCE, || count_notices().ok().filter(|count| *count > before))?;
    let check = c.run("m1", &["check", "w1"])?;
    ensure!(check.code == 0, "check says {} {}", check.code, String::from_utf8_lossy(&check.stderr));
    // Drift occurs on a host whose agent is silent. The managers only test whether the host
    // answers; they do not log in.
    let good = c.lab.read("w1", NETPLUGIN)?;
    drift(c, "w1")?;
    let logins = logins_of(c, "w1")?;
    std::thread::sleep(Duration::from_secs(10));
    ensure!(c.ran_since("w1", runs)?.is_empty() && c.node("w1")?["job"].is_null(), "something was run");
    ensure!(logins_of(c, "w1")? == logins, "there was a login");
    let check = c.run("m1", &["check", "w1"])?;
    ensure!(check.code == 1 && check.text().contains(NETPLUGIN), "check says {} {}", check.code, check.text());
    c.lab.push("w1", &good, NETPLUGIN, 0o644)?;
    let plain = c.run("m1", &["resetup", "w1", "--service", "nginx", "--detach"])?;
    ensure!(plain.code == 4, "without --force: exit {}", plain.code);
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    c.run_successfully("m1", &["resetup", "w1", "--service", "nginx", "--force", "--detach"])?;
    wait_for("the forced re-setup", PATIENCE, || {
        let ended = c.history("w1").ok()?.iter().rev().find(|i| i["what"] != "examined")?["what"] == "job-done";
        ended.then_some(())
    })?;
    ensure!(c.ran_since("w1", runs)? == pairs(&["nginx"]), "ran {:?}", c.ran_since("w1", runs)?);
    presence(c, "w1", "agent-down")?;
    ensure!(count_notices()? == before + 1, "{} notices", count_notices()? - before);
    revive(c, "w1")?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "agent" && verdict["verdict"]["is"] == "same", "{verdict:#}");
    quiet(c)
}

fn missing_and_extra(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let unit = c.lab.read("w1", "/etc/systemd/system/netplugin.service")?;
    let no = during_absence(c, "w1", |c| {
        let script = "rm /etc/systemd/system/netplugin.service; echo '# mine' > /etc/nginx/conf.d/mine.conf; \
                      echo mine > /etc/nginx/mine.txt";
        c.lab.shell("w1", script).map(drop)
    })?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    let reasons = verdict["reasons"].to_string();
    for reason in
        ["contiv_network: /etc/systemd/system/netplugin.service missing", "nginx: /etc/nginx/conf.d/mine.conf extra"]
    {
        ensure!(reasons.contains(reason), "{reason} is not in {reasons}");
    }
    ensure!(verdict["remedy"]["what"] == json!(["contiv_network", "nginx"]), "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    ensure!(c.lab.read("w1", "/etc/systemd/system/netplugin.service")? == unit, "the unit is another");
    ensure!(c.lab.read("w1", "/etc/nginx/conf.d/mine.conf").is_err(), "the extra file is still there");
    ensure!(c.lab.read("w1", "/etc/nginx/mine.txt")? == b"mine\n", "an undeclared file was changed");
    c.lab.shell("w1", "rm /etc/nginx/mine.txt")?;
    quiet(c)
}

fn service_stopped(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let (runs, no) = (five::runs(&c.lab, "w1")?.len(), absences(c, "w1")? + 1);
    kill_daemon(c, "w1")?;
    presence(c, "w1", "agent-down")?;
    c.lab.shell("w1", "systemctl stop netplugin")?;
    revive(c, "w1")?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "agent" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    let reasons = verdict["reasons"].as_array().context("reasons")?;
    ensure!(!reasons.is_empty() && reasons.iter().all(|r| r["by"] == "check"), "the content is no reason: {verdict:#}");
    ensure!(names(&verdict, "running"), "{verdict:#}");
    ensure!(verdict["remedy"]["what"] == json!(["contiv_network"]), "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    check_one_resetup(c, "w1", runs)?;
    quiet(c)
}

fn ports(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let runs = five::runs(&c.lab, "w2")?.len();
    let address = format!("w2: {{ansible_host: {}", c.lab.host("w2").ip);
    let no = during_absence(c, "w2", |c| {
        c.apply(|path, text| match path {
            "inventory.yml" => super::operator::fleet_with_hooks(
                path,
                text.replace(&address, &format!("{address}, etcd_client_port: 2389")),
            ),
            _ => super::operator::fleet_with_hooks(path, text),
        })
    })?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["verdict"]["is"] == "outdated" && verdict["cause"] == "network", "{verdict:#}");
    ensure!(c.ran_since("w2", runs)?.is_empty(), "something was run");
    c.run_successfully("m1", &["update", "w2", "--detach"])?;
    let updated = |port: &str| {
        c.wait(&format!("w2 to be on {port}"), |s| {
            let row = row(s, "w2")?;
            let listens = c.lab.shell("w2", &format!("ss -Hltn sport = :{port}")).ok()?;
            (row["job"].is_null() && row["outdated"] == false && listens.contains(port)).then_some(())
        })
    };
    updated("2389")?;
    let env = String::from_utf8_lossy(&c.lab.read("w2", "/etc/etcd-proxy-contiv.env")?).into_owned();
    ensure!(env.contains("2389") && !env.contains("2379"), "{env}");
    // After this command, the file `etcd-proxy-contiv.env` says port 2389, and the process listens
    // on port 2379.
    let dir = "/run/systemd/system/etcd-proxy-contiv.service.d";
    c.lab.shell(
        "w2",
        &format!(
            "mkdir -p {dir} && sed s/2389/2379/ /etc/etcd-proxy-contiv.env > /run/old.env && \
             printf '[Service]\\nExecStartPost=\\nEnvironmentFile=/run/old.env\\n' > {dir}/old.conf && \
             systemctl daemon-reload && systemctl restart etcd-proxy-contiv"
        ),
    )?;
    let check = wait_for("the check of the socket", PATIENCE, || {
        let check = c.run("m1", &["check", "w2", "-o", "json"]).ok()?;
        (check.code == 1 && check.text().contains("2389")).then(|| check.text())
    })?;
    let check: Value = serde_json::from_str(&check)?;
    let fails = |k: &Value| {
        k["check"].as_str().is_some_and(|t| t.contains("2389")) && k["property"] == "listening" && k["state"] == "fail"
    };
    ensure!(check["checks"].as_array().is_some_and(|all| all.iter().any(fails)), "not by its socket: {check:#}");
    ensure!(check["differences"].as_array().is_some_and(Vec::is_empty), "the file is as it should be: {check:#}");
    c.lab.shell("w2", &format!("rm -r {dir}; systemctl daemon-reload; systemctl restart etcd-proxy-contiv"))?;
    c.apply(super::operator::fleet_with_hooks)?;
    c.run_successfully("m1", &["update", "w2", "--detach"])?;
    updated("2379")?;
    quiet(c)
}

fn leader_killed(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let runs = five::runs(&c.lab, "w1")?.len();
    let (old, _) = leader(c)?;
    let no = during_absence(c, "w1", |c| {
        kill_daemon(c, &old)?;
        drift(c, "w1")?;
        new_leader(c, &old).map(drop)
    })?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    ensure!(verdict["by"] != json!(old), "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    check_one_resetup(c, "w1", runs)?;
    revive(c, &old)?;
    quiet(c)?;
    check_one_resetup(c, "w1", runs)?;
    check_one_verdict(c, "w1", no)
}

/// Starts a re-setup of w1, and kills the leader as soon as `moment` returns a value. Another
/// manager completes the re-setup.
fn kill_leader_at(c: &Cluster, slow: &str, moment: impl Fn(&Cluster, usize) -> Option<()>) -> Result<()> {
    quiet(c)?;
    let runs = five::runs(&c.lab, "w1")?.len();
    c.lab.shell("w1", &format!("rm -f /run/gone /run/twice; {slow}"))?;
    let no = during_absence(c, "w1", |c| drift(c, "w1"))?;
    wait_for("the moment to kill the leader", PATIENCE, || moment(c, runs))?;
    let (old, _) = leader(c)?;
    no_restart(c, &old)?;
    ensure!(c.lab.kill(&old, "remoor", Signal::KILL)? > 0, "no daemon was running");
    // Only the first attempt sleeps. The second attempt begins after an election.
    c.lab.shell("w1", "rm -f /run/slow-cleanup /run/slow-provision")?;
    new_leader(c, &old)?;
    wait_until_repaired(c, "w1")?;
    let job = last_job(c, "w1")?;
    let attempts = job["attempts"].as_array().context("attempts")?;
    ensure!(attempts.len() == 2 && attempts[1]["runner"] != json!(old), "{job:#}");
    ensure!(attempts[0]["closed"].to_string().contains("superseded"), "{job:#}");
    ensure!(attempts[1]["why"].as_str().is_some_and(|why| why.contains("leader changed")), "{job:#}");
    let ran: Vec<_> = five::runs(&c.lab, "w1")?.split_off(runs);
    let id = job["id"].to_string();
    ensure!(ran.iter().all(|r| r.job == id && r.service == "contiv_network"), "{ran:?}");
    let of = |attempt: &Value| -> Vec<&str> {
        let id = attempt["id"].to_string();
        ran.iter().filter(|r| r.attempt == id).map(|r| r.phase.as_str()).collect()
    };
    ensure!(of(&attempts[1]) == ["cleanup", "provision"], "{ran:?}");
    ensure!(["cleanup", "provision"].starts_with(&of(&attempts[0])), "{ran:?}");
    ensure!(c.lab.read("w1", "/run/twice").is_err(), "two playbooks ran at once");
    ensure!(c.lab.shell("w1", "pgrep -x sleep || :")?.trim().is_empty(), "the old run was not ended");
    revive(c, &old)?;
    quiet(c)?;
    ensure!(five::runs(&c.lab, "w1")?.len() == runs + ran.len(), "something was run on the old leader's return");
    check_one_verdict(c, "w1", no)
}

/// Whether the playbook sleeps. The playbook removes the file that made it sleep.
fn is_asleep(c: &Cluster, phase: &str) -> Option<()> {
    c.lab.shell("w1", &format!("test ! -e /run/slow-{phase} && pgrep -x sleep")).ok().map(drop)
}

fn killed_in_cleanup(c: &Cluster) -> Result<()> {
    kill_leader_at(c, "touch /run/slow-cleanup", |c, _| is_asleep(c, "cleanup"))
}

fn killed_between(c: &Cluster) -> Result<()> {
    kill_leader_at(c, "touch /run/slow-provision", |c, _| c.lab.read("w1", "/run/gone").ok().map(drop))
}

fn killed_in_provision(c: &Cluster) -> Result<()> {
    kill_leader_at(c, "touch /run/slow-provision", |c, _| is_asleep(c, "provision"))
}

fn target_reboots(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let runs = five::runs(&c.lab, "w1")?.len();
    c.lab.shell("w1", "touch /run/slow-provision")?;
    let no = during_absence(c, "w1", |c| drift(c, "w1"))?;
    wait_for("the provisioning to be under way", PATIENCE, || is_asleep(c, "provision"))?;
    c.lab.poweroff("w1", Power::Cut)?;
    c.wait("the rollout to wait for the failed node", |s| {
        let row = row(s, "w1")?;
        let waits = row["presence"] == "away" && !row["failed"].is_null() && has_condition(row, "waiting");
        (waits && row["finding"]["verdict"]["is"] != "same").then_some(())
    })?;
    c.lab.poweron("w1")?;
    let verdict = c.verdict("w1", no + 1)?;
    ensure!(verdict["cause"] == "reboot", "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    quiet(c)?;
    let job = last_job(c, "w1")?;
    let attempts = job["attempts"].as_array().context("attempts")?;
    ensure!(job["state"] == "done" && attempts.len() >= 2, "{job:#}");
    // Each attempt except the last ended because the node or the leader was unavailable. No attempt
    // failed by itself.
    let ends: Vec<String> = attempts.iter().map(|a| a["closed"].to_string()).collect();
    let (last, before) = ends.split_last().context("attempts")?;
    ensure!(before.iter().any(|end| end.contains("unreachable")) && last.contains("done"), "{job:#}");
    ensure!(before.iter().all(|end| end.contains("unreachable") || end.contains("superseded")), "{job:#}");
    ensure!(job["failures"] == 0, "{job:#}");
    let ran = c.ran_since("w1", runs)?;
    let twice = [pairs(&["contiv_network"]), pairs(&["contiv_network"])].concat();
    ensure!(ran == twice, "ran {ran:?}");
    Ok(())
}

fn leader_in_minority(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let runs = five::runs(&c.lab, "w1")?.len();
    let no = absences(c, "w1")? + 1;
    let (old, _) = leader(c)?;
    let rest: Vec<&str> = five::HOSTS.into_iter().filter(|h| *h != old && *h != "w1").collect();
    c.lab.partition(&[&[&old, "w1"], &rest])?;
    drift(c, "w1")?;
    wait_for("the minority to say that it has no quorum", PATIENCE, || {
        (c.run(&old, &["status"]).ok()?.code == 3).then_some(())
    })?;
    c.wait("w1 to be missed by the majority", |s| {
        (s["as_of"]["leader"] != json!(old) && row(s, "w1")?["presence"] == "away").then_some(())
    })?;
    ensure!(c.run(&old, &["status"])?.code == 3, "the minority has a quorum again");
    run_expecting(c, &old, 3, &["resetup", "w1", "--force", "--detach"])?;
    ensure!(c.ran_since("w1", runs)?.is_empty(), "the minority ran something");
    c.lab.heal()?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    quiet(c)?;
    check_one_resetup(c, "w1", runs)?;
    check_one_verdict(c, "w1", no)
}

fn minority_running(c: &Cluster) -> Result<()> {
    quiet(c)?;
    let runs = five::runs(&c.lab, "w1")?.len();
    c.lab.shell("w1", "rm -f /run/gone /run/twice; touch /run/slow-cleanup")?;
    let no = during_absence(c, "w1", |c| drift(c, "w1"))? + 1;
    wait_for("the cleanup to be running", PATIENCE, || is_asleep(c, "cleanup"))?;
    // The leadership may have been handed to a manager that reached the returned w1 sooner. So the
    // leader is determined only now.
    let (old, _) = leader(c)?;
    let rest: Vec<&str> = five::HOSTS.into_iter().filter(|h| *h != old && *h != "w1").collect();
    c.lab.partition(&[&[&old, "w1"], &rest])?;
    wait_for("the minority to say that it has no quorum", PATIENCE, || {
        (c.run(&old, &["status"]).ok()?.code == 3).then_some(())
    })?;
    c.wait("w1 to be missed by the majority", |s| {
        (s["as_of"]["leader"] != json!(old) && row(s, "w1")?["presence"] == "away").then_some(())
    })?;
    // The current task may finish. No other task begins after it.
    c.lab.kill("w1", "sleep", Signal::TERM)?;
    wait_for("the run on w1 to stop", PATIENCE, || {
        c.lab.shell("w1", "tail -n1 /var/lib/remoor/runs.log").ok().filter(|line| line.ends_with("stopped"))
    })?;
    ensure!(c.lab.read("w1", "/run/gone").is_err(), "the cleanup went on without a quorum");
    ensure!(c.ran_since("w1", runs)? == pairs(&["contiv_network"])[..1], "ran {:?}", c.ran_since("w1", runs)?);
    c.lab.heal()?;
    c.verdict("w1", no)?;
    wait_until_repaired(c, "w1")?;
    quiet(c)?;
    let job = last_job(c, "w1")?;
    let last = job["attempts"].as_array().and_then(|all| all.last()).context("attempts")?["id"].to_string();
    let ran = five::runs(&c.lab, "w1")?.split_off(runs);
    let of_last: Vec<&str> = ran.iter().filter(|r| r.attempt == last).map(|r| r.phase.as_str()).collect();
    ensure!(of_last == ["cleanup", "provision"], "{ran:?} {job:#}");
    let id = job["id"].to_string();
    ensure!(ran.iter().all(|r| r.job == id), "more than one job: {ran:?}");
    ensure!(ran.iter().filter(|r| r.phase == "provision").count() == 1, "{ran:?}");
    ensure!(c.lab.read("w1", "/run/twice").is_err(), "two playbooks ran at once");
    check_one_verdict(c, "w1", no)
}
