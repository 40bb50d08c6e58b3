//! Stories about the limits of remoor: short network interruptions, flapping, failures and their
//! retries, the circuit breaker after a power cut, a hanging playbook, very large output. If a
//! limit is an hour in production, the story uses a shorter one.

use super::operator::{
    HOOK_CLEANUP, HOOK_PROVISION, HOOK_WRITTEN, NETPLUGIN, Story, both_outputs, drift, fleet_with_limits,
    has_condition, number, phases, run_expecting, wait_quiet, wait_until_repaired,
};
use super::roles::with_fleet;
use super::steps::last_job;
use super::stories::during_absence;
use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::machine::Stalls;
use crate::lab::tool::has_production_durations;
use crate::lab::{five, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub const ALL: &[Story] = &[
    ("A03 short interruptions", short_interruptions),
    ("A19 flapping", flapping_node_is_held),
    ("A22 cleanup fails", cleanup_fails),
    ("A22 provisioning fails", provisioning_fails),
    ("A22 provisioned files differ from the rendered ones", provisioned_wrong),
    ("A22 the cleanup of a decommissioning fails", decommissioning_fails),
    ("X2 large output", much_output),
    ("X2 a playbook hangs", hanging_playbook),
];

// --- absences ---

/// The number of journal items of a node about absences, their verdicts, and jobs.
fn events(c: &Cluster, host: &str) -> Result<usize> {
    let quiet = |i: &Value| i["what"] == "concluded" && i["finding"]["absence"].is_null();
    Ok(c.history(host)?.iter().filter(|i| !quiet(i)).count())
}

fn short_interruptions(c: &Cluster) -> Result<()> {
    let has_production_durations = has_production_durations();
    wait_quiet(c)?;
    let runs = five::runs(&c.lab, "w1")?.len();
    let mut before = c.node("w1")?;
    let (unanswered, mut known_events) = (number(&before, "unanswered")?, events(c, "w1")?);
    let units = ["etcd-proxy-contiv.service", "netplugin.service", "nginx.service", "remoor.service"];
    let pids = || units.iter().map(|unit| five::main_pid(&c.lab, "w1", unit)).collect::<Result<Vec<_>>>();
    let then = pids()?;
    let rounds = if has_production_durations { 20 } else { 5 };
    // The leader pings one peer a second, so not every interruption stops a ping. But out of twenty
    // interruptions, at least one stops a ping.
    let (mut round, mut tried) = (0, 0);
    while round < 20 {
        tried += 1;
        ensure!(tried <= 60, "this machine is too slow to disconnect a host for only two seconds");
        if round >= rounds && number(&c.node("w1")?, "unanswered")? > unanswered {
            break;
        }
        let (stalls, begun) = (Stalls::watch(), Instant::now());
        c.lab.cut("w1")?;
        std::thread::sleep(Duration::from_secs(2));
        c.lab.heal_host("w1")?;
        let took = begun.elapsed();
        c.wait("w1 to be seen", |s| (row(s, "w1")?["presence"] == "alive").then_some(()))?;
        let pause = if has_production_durations {
            Duration::from_secs(15).saturating_sub(begun.elapsed())
        } else {
            Duration::from_secs(2)
        };
        std::thread::sleep(pause);
        // If this machine stalled, the interruption lasted longer than intended.
        if took.as_millis() > 3500 || stalls.longest().as_millis() > 1000 {
            wait_quiet(c)?;
            (before, known_events) = (c.node("w1")?, events(c, "w1")?);
        } else {
            round += 1;
        }
    }
    let after = c.node("w1")?;
    ensure!(number(&after, "unanswered")? > unanswered, "no ping was missed: {after:#}");
    let shown = [c.ask(&["nodes", "w1"])?, c.ask(&["why", "w1"])?];
    ensure!(shown.iter().all(|text| text.contains("unanswered")), "{shown:?}");
    let why: Value = serde_json::from_str(&c.ask(&["why", "w1", "-o", "json"])?)?;
    ensure!(number(&why["node"], "unanswered")? > unanswered, "{why:#}");
    ensure!(after["absences"] == before["absences"], "a blip became an absence: {after:#}");
    ensure!(events(c, "w1")? == known_events && after["job"].is_null(), "{:#?}", c.history("w1")?.last());
    ensure!(c.ran_since("w1", runs)?.is_empty() && pids()? == then, "not quiet");
    Ok(())
}

/// The limits `flap-window` and `flap-hold` of this story. In production each is ten minutes. Three
/// absences and their verdicts must fit into the window, even on a slow machine.
const FLAPS: Duration = Duration::from_secs(150);

/// The time since the beginning of w2's last absence.
fn last_gone(c: &Cluster) -> Result<Duration> {
    let items = c.history("w2")?;
    let at = items.iter().rev().find(|i| i["what"] == "away").and_then(|i| i["at"].as_u64()).unwrap_or(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(now.saturating_sub(Duration::from_millis(at)))
}

fn flapping_node_is_held(c: &Cluster) -> Result<()> {
    // Absences of w2 in earlier stories must not count as flapping, so they must be older than the
    // window.
    wait_for("w2 to have been there for a while", PATIENCE, || (last_gone(c).ok()? > FLAPS).then_some(()))?;
    let words = format!("flap-count: 3, flap-window: {0}s, flap-hold: {0}s", FLAPS.as_secs());
    with_fleet(c, fleet_with_limits(&[("flap-count: 50", &words)]), flap_and_check)?;
    wait_quiet(c)
}

fn flap_and_check(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    let held = json!({"do": "held", "what": "flapping"});
    for round in 1..=2 {
        let no = during_absence(c, "w2", |_| Ok(()))?;
        let verdict = c.verdict("w2", no)?;
        ensure!(
            verdict["verdict"]["is"] == "same" && !has_condition(&c.node("w2")?, "flapping"),
            "round {round}: {verdict:#}"
        );
    }
    for round in 3..=4 {
        let no = during_absence(c, "w2", |c| if round == 3 { drift(c, "w2") } else { Ok(()) })?;
        let verdict = c.verdict("w2", no)?;
        ensure!(verdict["verdict"]["is"] == "drifted" && verdict["remedy"] == held, "round {round}: {verdict:#}");
        let node = c.node("w2")?;
        ensure!(has_condition(&node, "flapping") && has_condition(&node, "held"), "{node:#}");
        ensure!(c.ask(&["status"])?.contains("flapping"), "flapping is not shown");
    }
    ensure!(c.ran_since("w2", runs)?.is_empty(), "a flapping node was set up: {:?}", c.ran_since("w2", runs)?);
    run_expecting(c, "m1", 0, &["resetup", "w2", "--now"])?;
    let once = ["cleanup", "provision"];
    ensure!(phases(&c.ran_since("w2", runs)?, "contiv_network") == once, "{:?}", c.ran_since("w2", runs)?);
    // w2 is away once more, without an order. It is left unchanged until it was present for the
    // whole time of `flap-hold`. Then it is examined once.
    let runs = five::runs(&c.lab, "w2")?.len();
    let no = during_absence(c, "w2", |c| drift(c, "w2"))?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["remedy"] == held, "{verdict:#}");
    let items = c.history("w2")?;
    let reported =
        items.iter().rfind(|i| i["what"] == "concluded" && i["finding"]["absence"] == no).context("a verdict")?;
    let (from, reported) = (items.len(), number(reported, "at")?);
    c.wait("w2 to be set up", |s| (!row(s, "w2")?["job"].is_null()).then_some(()))?;
    // The time without a set-up is measured by the times in the journal, so that a slow machine
    // does not matter.
    let items = c.history("w2")?.split_off(from);
    let opened = items.iter().find(|i| i["what"] == "job-opened").context("a job")?;
    let held = Duration::from_millis(number(opened, "at")?.saturating_sub(reported));
    ensure!(held >= FLAPS, "set up {held:?} after the verdict");
    wait_until_repaired(c, "w2")?;
    let node = c.node("w2")?;
    ensure!(!has_condition(&node, "flapping") && !has_condition(&node, "held"), "{node:#}");
    ensure!(phases(&c.ran_since("w2", runs)?, "contiv_network") == once, "{:?}", c.ran_since("w2", runs)?);
    let items = c.history("w2")?.split_off(from);
    let looks = items.iter().take_while(|i| i["what"] != "job-opened").filter(|i| i["what"] == "concluded").count();
    ensure!(looks == 1, "examined {looks} times: {items:#?}");
    Ok(())
}

// --- failures ---

/// A script that prints thirty lines and fails. The last twenty lines are kept.
const FAIL: &[u8] = b"seq 1 29; echo the reason is here >&2; exit 2\n";

fn cleanup_fails(c: &Cluster) -> Result<()> {
    fail_and_retry(c, HOOK_CLEANUP, "cleanup", &["cleanup"])
}

fn provisioning_fails(c: &Cluster) -> Result<()> {
    fail_and_retry(c, HOOK_PROVISION, "provision", &["cleanup", "provision"])
}

/// Checks the output of `why` and `job show` about the last failure of a job.
fn check_failure_report(c: &Cluster, host: &str, job: u64, phase: &str) -> Result<()> {
    let shown: Value = serde_json::from_str(&c.ask(&["job", "show", &job.to_string(), "-o", "json"])?)?;
    let why: Value = serde_json::from_str(&c.ask(&["why", host, "-o", "json"])?)?;
    let lines: Vec<String> = (11..=29).map(|n| n.to_string()).chain(["the reason is here".to_owned()]).collect();
    for (from, job) in [("job show", &shown), ("why", &why["job"])] {
        let attempts = job["attempts"].as_array().with_context(|| format!("no attempts: {job:#}"))?;
        for attempt in attempts {
            let failure = &attempt["closed"][1]["failed"];
            ensure!(failure["rc"] == 2 && failure["phase"] == phase, "{from}: {attempt:#}");
            ensure!(failure["tail"] == json!(lines), "{from}: the last lines are {:#}", failure["tail"]);
        }
    }
    for text in [c.ask(&["job", "show", &job.to_string()])?, c.ask(&["why", host])?] {
        ensure!(text.contains(&format!("failed(step={phase} rc=2)")) && text.contains("the reason is here"), "{text}");
    }
    Ok(())
}

/// The phase `phase` of a job fails and is retried three times, then the node is held. No other
/// node is affected. An order of the operator resumes the work.
fn fail_and_retry(c: &Cluster, hook: &str, phase: &str, each: &[&str]) -> Result<()> {
    wait_quiet(c)?;
    c.lab.push("w1", FAIL, hook, 0o644)?;
    let result = check_failing_phase(c, hook, phase, each);
    c.lab.shell("w1", &format!("rm -f {hook}"))?;
    result
}

fn check_failing_phase(c: &Cluster, hook: &str, phase: &str, each: &[&str]) -> Result<()> {
    let runs = five::runs(&c.lab, "w1")?.len();
    let no = during_absence(c, "w1", |c| drift(c, "w1"))?;
    c.verdict("w1", no)?;
    let job = c.wait("the first attempt to fail", |s| {
        let row = row(s, "w1")?;
        if row["failed"] == phase { row["job"].as_u64() } else { None }
    })?;
    let other = five::runs(&c.lab, "w2")?.len();
    run_expecting(c, "m1", 0, &["resetup", "w2", "--force", "--service", "nginx"])?;
    ensure!(phases(&c.ran_since("w2", other)?, "nginx") == ["cleanup", "provision"], "w2 was not set up meanwhile");
    c.wait("the job to be held", |s| has_condition(row(s, "w1")?, "held").then_some(()))?;
    let node = c.node("w1")?;
    ensure!(node["lifecycle"] == "commissioned" && node["group"] == "service-worker", "{node:#}");
    ensure!(node["failed"] == phase, "{node:#}");
    let wanted: Vec<String> = (0..4).flat_map(|_| each.iter().map(|p| (*p).to_owned())).collect();
    let ran = c.ran_since("w1", runs)?;
    ensure!(phases(&ran, "contiv_network") == wanted && ran.len() == wanted.len(), "{ran:?}");
    check_failure_report(c, "w1", job, phase)?;
    run_expecting(c, "m1", 1, &["status", "--exit-code"])?;
    c.lab.shell("w1", &format!("rm {hook}"))?;
    // A held node is not retried automatically, although a retry would succeed now.
    std::thread::sleep(Duration::from_secs(7));
    ensure!(c.ran_since("w1", runs)?.len() == wanted.len(), "tried once more while held");
    run_expecting(c, "m1", 0, &["resume", "w1"])?;
    wait_until_repaired(c, "w1")?;
    wait_quiet(c)
}

/// The playbook leaves a file that differs from the file that the manager renders. Another attempt
/// would leave the same file.
fn provisioned_wrong(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    c.lab.push("w1", format!("echo '# as the playbook likes it' >> {NETPLUGIN}\n").as_bytes(), HOOK_WRITTEN, 0o644)?;
    let result = check_wrong_provisioning(c);
    c.lab.shell("w1", &format!("rm -f {HOOK_WRITTEN}"))?;
    result?;
    run_expecting(c, "m1", 0, &["resume", "w1"])?;
    wait_until_repaired(c, "w1")?;
    wait_quiet(c)?;
    let text = String::from_utf8(c.lab.read("w1", NETPLUGIN)?)?;
    ensure!(!text.contains("likes it"), "{text}");
    Ok(())
}

fn check_wrong_provisioning(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w1")?.len();
    let no = during_absence(c, "w1", |c| drift(c, "w1"))?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    c.wait("the job to be held", |s| has_condition(row(s, "w1")?, "held").then_some(()))?;
    let (node, job) = (c.node("w1")?, last_job(c, "w1")?);
    ensure!(node["lifecycle"] == "commissioned" && node["failed"] == "verify", "{node:#}");
    let attempts = job["attempts"].as_array().context("attempts")?;
    ensure!(job["state"] == "held" && attempts.len() == 1, "{job:#}");
    let failure = &attempts[0]["closed"][1]["failed"];
    ensure!(failure["class"] == "provisioned-wrong" && failure["phase"] == "verify", "{job:#}");
    for text in [c.ask(&["job", "show", &job["id"].to_string()])?, c.ask(&["why", "w1"])?] {
        ensure!(text.contains(&format!("not as rendered: {NETPLUGIN}")), "{text}");
    }
    run_expecting(c, "m1", 1, &["status", "--exit-code"])?;
    // The pause is longer than all pauses between retries, so a retry would have begun.
    std::thread::sleep(Duration::from_secs(12));
    let ran = c.ran_since("w1", runs)?;
    ensure!(phases(&ran, "contiv_network") == ["cleanup", "provision"] && ran.len() == 2, "{ran:?}");
    ensure!(has_condition(&c.node("w1")?, "held"), "no longer held");
    Ok(())
}

fn decommissioning_fails(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    c.lab.push("w2", FAIL, HOOK_CLEANUP, 0o644)?;
    let result = check_failing_decommission(c);
    c.lab.shell("w2", &format!("rm -f {HOOK_CLEANUP}"))?;
    result?;
    run_expecting(c, "m1", 0, &["commission", "w2"])?;
    wait_quiet(c)
}

fn check_failing_decommission(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    run_expecting(c, "m1", 5, &["decommission", "w2", "--confirm", "w2"])?;
    c.wait("the job to be held", |s| has_condition(row(s, "w2")?, "held").then_some(()))?;
    let node = c.node("w2")?;
    ensure!(node["lifecycle"] == "decommissioning" && node["failed"] == "cleanup", "{node:#}");
    ensure!(node["group"] == "service-worker", "{node:#}");
    check_failure_report(c, "w2", number(&node, "job")?, "cleanup")?;
    let ran = c.ran_since("w2", runs)?;
    ensure!(phases(&ran, "contiv_network") == ["cleanup"; 4], "{ran:?}");
    ensure!(ran.iter().all(|(phase, _)| phase == "cleanup"), "{ran:?}");
    c.lab.shell("w2", &format!("rm {HOOK_CLEANUP}"))?;
    run_expecting(c, "m1", 4, &["resetup", "w2", "--force", "--detach"])?;
    run_expecting(c, "m1", 0, &["resume", "w2"])?;
    c.wait("w2 to be decommissioned", |s| (row(s, "w2")?["lifecycle"] == "decommissioned").then_some(()))?;
    let node = c.node("w2")?;
    ensure!(node["lifecycle"] == "decommissioned" && node["failed"].is_null() && node["job"].is_null(), "{node:#}");
    ensure!(c.ran_since("w2", runs)?.iter().all(|(phase, _)| phase == "cleanup"), "it was provisioned");
    ensure!(c.lab.read("w2", NETPLUGIN).is_err(), "{NETPLUGIN} is still there");
    Ok(())
}

// --- playbooks ---

fn daemons(c: &Cluster) -> Result<Vec<u32>> {
    five::HOSTS.iter().map(|h| five::main_pid(&c.lab, h, "remoor.service")).collect()
}

fn much_output(c: &Cluster) -> Result<()> {
    const LINES: usize = 200_000;
    const NOISE: &[u8] = b"seq 200000; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo the last line\n";
    wait_quiet(c)?;
    let silent = Instant::now();
    run_expecting(c, "m1", 0, &["resetup", "w1", "--force", "--service", "contiv_network"])?;
    let (silent, then) = (silent.elapsed(), daemons(c)?);
    c.lab.push("w1", NOISE, HOOK_PROVISION, 0o644)?;
    let loud = Instant::now();
    let ended = c.run_successfully("m1", &["resetup", "w1", "--force", "--service", "contiv_network", "-o", "json"]);
    let loud = loud.elapsed();
    c.lab.shell("w1", &format!("rm {HOOK_PROVISION}"))?;
    let ended = ended?;
    let order: Value = serde_json::from_str(&ended).with_context(|| format!("no JSON: {ended}"))?;
    let job = number(&order["orders"][0]["job"], "id")?.to_string();
    ensure!(loud < silent * 2 + Duration::from_secs(10), "{loud:?}, and {silent:?} without output");
    let log = c.run("m1", &["job", "logs", &job])?;
    ensure!(log.ok(), "{}", both_outputs(&log));
    ensure!(log.stdout.len() < 5 << 20, "the log has {} bytes", log.stdout.len());
    let text = log.text();
    let numbers =
        text.lines().filter_map(|l| l.rsplit(' ').next()?.parse::<usize>().ok()).filter(|n| *n <= LINES).count();
    let (whole, cut) = (numbers >= LINES && text.contains("the last line"), text.contains("more lines]"));
    ensure!(numbers > 100, "there is no output: {:.2000}", text);
    ensure!(whole || cut, "only {numbers} of {LINES} numbers are printed, without a note about the missing ones");
    // The log also contains the output of the tasks after the large output.
    ensure!(
        text.contains("Configure netplugin"),
        "the log ends with the noise: {}",
        &text[text.len().saturating_sub(2000)..]
    );
    wait_quiet(c)?;
    ensure!(daemons(c)? == then, "a daemon was restarted");
    Ok(())
}

fn hanging_playbook(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    with_fleet(c, fleet_with_limits(&[("flap-count: 50", "phase-timeout: 30s, flap-count: 50")]), hang_and_check)?;
    wait_quiet(c)
}

fn hang_and_check(c: &Cluster) -> Result<()> {
    // The script starts a process in the background and a process that ignores SIGTERM. The shell
    // itself sleeps too.
    const HANG: &[u8] = b"sleep 6111 & sh -c 'trap \"\" TERM; sleep 6112; sleep 6113' & echo hanging; sleep 6114\n";
    let asleep = |c: &Cluster| c.lab.processes("w1").iter().filter(|p| p.command.contains("611")).count();
    let then = daemons(c)?;
    c.lab.push("w1", HANG, HOOK_PROVISION, 0o644)?;
    let result = (|| {
        run_expecting(c, "m1", 0, &["resetup", "w1", "--force", "--service", "contiv_network", "--detach"])?;
        wait_for("the playbook to hang", PATIENCE, || (asleep(c) >= 3).then_some(()))?;
        let job = c.wait("the playbook to be ended", |s| {
            let row = row(s, "w1")?;
            if row["failed"] == "provision" { row["job"].as_u64() } else { None }
        })?;
        c.lab.shell("w1", &format!("rm -f {HOOK_PROVISION}"))?;
        let shown = c.ask(&["job", "show", &job.to_string()])?;
        ensure!(shown.contains("timed out") || shown.contains("after 30 s"), "the timeout is not reported: {shown}");
        ensure!(shown.contains("| hanging"), "{shown}");
        Ok(())
    })();
    c.lab.shell("w1", &format!("rm -f {HOOK_PROVISION}"))?;
    result?;
    wait_until_repaired(c, "w1")?;
    // If another attempt began before the hook was removed, its processes are ended too.
    wait_for("the group of the playbook to be gone", PATIENCE, || (asleep(c) == 0).then_some(()))?;
    ensure!(daemons(c)? == then, "a daemon was restarted");
    Ok(())
}
