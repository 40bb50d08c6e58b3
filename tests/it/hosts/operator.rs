//! Stories about managers that are all down, orders of an operator for absent nodes, a changed SSH
//! host key, a forged node and a hanging check.
//!
//! The fleet of these stories has hooks. A hook is a file on a host that makes the playbooks or
//! checks of the host misbehave, so that no story needs its own generation.

use super::noise::{check_unchanged, without_volatile_fields};
pub use super::steps::{
    NETPLUGIN, both_outputs, check_one_verdict, drift, has_condition, logins_of, number, phases, run_expecting,
    wait_quiet, wait_until_repaired,
};
use super::stories::during_absence;
use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::five;
use crate::lab::host::Power;
use crate::lab::wait_for;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

pub type Story = (&'static str, fn(&Cluster) -> Result<()>);

pub const ALL: &[Story] = &[
    ("A16 all managers down", all_managers_down),
    ("A20 update while away", update_while_away),
    ("A21 decommissioned while away", decommissioned_while_away),
    ("A23 another host key", another_host_key),
    ("A23 an impostor", impostor),
    ("A24 a check hangs", hanging_check),
];

pub const HOOK_CLEANUP: &str = "/root/hook-cleanup";
pub const HOOK_PROVISION: &str = "/root/hook-provision";
/// A script that the playbook runs after it wrote [`NETPLUGIN`].
pub const HOOK_WRITTEN: &str = "/root/hook-written";
const HOOK_CHECK: &str = "/root/hook-check";

/// The file with the manifest that a manager sent to the agent: its checks and files.
pub const MANIFEST: &str = "/var/lib/remoor/manifest.json";

/// The fleet of the leader stories, with hooks.
pub fn fleet_with_hooks(path: &str, text: String) -> String {
    let text = super::leader::fleet(path, text);
    let before = |text: String, task: &str, hook: &str| {
        let name = format!("    - name: {task}\n");
        assert!(text.contains(&name), "{path} has no task {task}");
        let hook = format!(
            "    - name: Do what the test asks\n      shell: if [ -e {hook} ]; then . {hook}; fi\n      \
             changed_when: false\n      tags: [contiv_network]\n\n"
        );
        text.replace(&name, &(hook + &name))
    };
    match path {
        "playbooks/cleanup.yml" => before(text, "Stop netmaster and netplugin", HOOK_CLEANUP),
        "playbooks/provision.yml" => {
            let text = before(text, "Configure netplugin", HOOK_PROVISION);
            before(text, "Configure netmaster", HOOK_WRITTEN)
        }
        "checks/nginx.yml" => text.replace(
            "command:\n",
            &format!(
                "command:\n  hook:\n    exec: if [ -e {HOOK_CHECK} ]; then sleep 600; fi\n    exit-status: 0\n    timeout: 3000\n"
            ),
        ),
        _ => text,
    }
}

/// [`fleet_with_hooks`] with other values in the `limits`.
pub fn fleet_with_limits(change: &[(&str, &str)]) -> impl FnMut(&str, String) -> String {
    let change: Vec<(String, String)> = change.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    move |path, text| {
        let text = fleet_with_hooks(path, text);
        if path != "remoor.yml" {
            return text;
        }
        change.iter().fold(text, |text, (from, to)| {
            assert!(text.contains(from.as_str()), "no {from} in remoor.yml");
            text.replace(from, to)
        })
    }
}

// --- absences ---

fn all_managers_down(c: &Cluster) -> Result<()> {
    let (w1, w2) = (number(&c.node("w1")?, "absences")? + 1, number(&c.node("w2")?, "absences")? + 1);
    let runs = [five::runs(&c.lab, "w1")?.len(), five::runs(&c.lab, "w2")?.len()];
    for host in five::MASTERS {
        c.lab.shell(host, "systemctl stop remoor")?;
    }
    let stopped = now_ms()?;
    drift(c, "w1")?;
    c.lab.reboot("w1", Power::Cut)?;
    ensure!(c.lab.kill("w2", "remoor", Signal::KILL)? > 0, "no agent was running");
    for host in five::MASTERS {
        c.lab.shell(host, "systemctl start remoor")?;
    }
    let (first, second) = (c.verdict("w1", w1)?, c.verdict("w2", w2)?);
    ensure!(first["cause"] == "reboot" && first["verdict"]["is"] == "drifted", "{first:#}");
    ensure!(first["remedy"]["what"] == json!(["contiv_network"]), "{first:#}");
    ensure!(second["cause"] == "agent" && second["verdict"]["is"] == "same", "{second:#}");
    ensure!(second["remedy"]["do"] == "none", "{second:#}");
    for (host, no) in [("w1", w1), ("w2", w2)] {
        let items = c.history(host)?;
        let went = items.iter().find(|i| i["what"] == "away" && i["absence"] == no).context("an absence")?;
        let seen = went["last_seen"].as_u64().context("a moment")?;
        ensure!(seen <= stopped, "{host} was last seen {seen}, the managers stopped {stopped}: {went:#}");
    }
    wait_until_repaired(c, "w1")?;
    ensure!(phases(&c.ran_since("w1", runs[0])?, "contiv_network") == ["cleanup", "provision"], "not once each");
    ensure!(c.ran_since("w2", runs[1])?.is_empty(), "something was run on w2");
    check_one_verdict(c, "w1", w1)?;
    check_one_verdict(c, "w2", w2)?;
    wait_quiet(c)
}

fn now_ms() -> Result<u64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(since.as_millis() as u64)
}

fn update_while_away(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    let mut generation = 0;
    let no = during_absence(c, "w2", |c| {
        c.apply(|path, text| {
            let text = fleet_with_hooks(path, text);
            if path == "inventory.yml" { text.replace("nginx_workers: 2", "nginx_workers: 3") } else { text }
        })?;
        let message = run_expecting(c, "m1", 4, &["update", "w2", "--no-queue"])?;
        ensure!(message.contains("w2 is away since"), "{message}");
        let message = run_expecting(c, "m1", 0, &["update", "w2"])?;
        ensure!(message.contains("w2 is away since"), "{message}");
        generation = number(&c.status()?, "generation")?;
        Ok(())
    })?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["verdict"]["is"] == "outdated" && verdict["cause"] == "network", "{verdict:#}");
    c.wait("w2 to be updated", |s| {
        let row = row(s, "w2")?;
        (row["job"].is_null() && row["outdated"] == false && !has_condition(row, "waiting")).then_some(())
    })?;
    let ran = c.ran_since("w2", runs)?;
    for service in ["etcd", "contiv_network", "nginx"] {
        ensure!(phases(&ran, service) == ["cleanup", "provision"], "{service}: {ran:?}");
    }
    let conf = String::from_utf8(c.lab.read("w2", "/etc/nginx/nginx.conf")?)?;
    ensure!(conf.contains("worker_processes 3"), "{conf}");
    ensure!(c.node("w2")?["baseline"]["generation"] == generation, "not of this generation");
    c.apply(fleet_with_hooks)?;
    run_expecting(c, "m1", 0, &["update", "w2"])?;
    wait_quiet(c)
}

fn decommissioned_while_away(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w2")?.len();
    let no = number(&c.node("w2")?, "absences")? + 1;
    c.lab.poweroff("w2", Power::Cut)?;
    c.wait("w2 to be missed", |s| (row(s, "w2")?["presence"] == "away").then_some(()))?;
    let text = run_expecting(c, "m1", 4, &["decommission", "w2", "--confirm", "w2"])?;
    ensure!(text.contains("w2 is away since") && text.contains("--force"), "{text}");
    ensure!(c.node("w2")?["lifecycle"] == "commissioned", "a refused order changed the lifecycle");
    run_expecting(c, "m1", 0, &["decommission", "w2", "--confirm", "w2", "--force"])?;
    c.lab.poweron("w2")?;
    let verdict = c.verdict("w2", no)?;
    ensure!(verdict["cause"] == "reboot", "{verdict:#}");
    c.wait("w2 to be decommissioned", |s| (row(s, "w2")?["lifecycle"] == "decommissioned").then_some(()))?;
    let check = |c: &Cluster| -> Result<()> {
        let ran = c.ran_since("w2", runs)?;
        ensure!(ran.len() == 3 && ran.iter().all(|(phase, _)| phase == "cleanup"), "{ran:?}");
        Ok(())
    };
    check(c)?;
    ensure!(c.lab.read("w2", NETPLUGIN).is_err(), "{NETPLUGIN} is still there");
    // w2 is decommissioned, so the managers send its agent a manifest without services.
    wait_for("w2's agent to have forgotten its services", PATIENCE, || {
        let manifest: Value = serde_json::from_slice(&c.lab.read("w2", MANIFEST).ok()?).ok()?;
        manifest["manifest"]["services"].as_array()?.is_empty().then_some(())
    })?;
    let no = during_absence(c, "w2", |_| Ok(()))?;
    let verdict = c.verdict("w2", no)?;
    // The manifest of the decommissioned node w2 has neither files nor checks, so its examination
    // finds no difference.
    ensure!(verdict["verdict"]["is"] == "same" && verdict["remedy"]["do"] == "report", "{verdict:#}");
    ensure!(verdict["checks"] == serde_json::json!([0, 0, 0]), "{verdict:#}");
    let list: Value = serde_json::from_str(&c.run_successfully("m2", &["inventory", "--list"])?)?;
    ensure!(list["service-worker"]["hosts"] == serde_json::json!(["w1"]), "{list:#}");
    ensure!(list["remoor_decommissioned"]["hosts"] == serde_json::json!(["w2"]), "{list:#}");
    let text = run_expecting(c, "m1", 4, &["resetup", "w2", "--force"])?;
    ensure!(text.contains("decommissioned"), "{text}");
    check(c)?;
    let no = during_absence(c, "w2", |c| {
        run_expecting(c, "m1", 4, &["commission", "w2", "--no-queue"])?;
        let text = run_expecting(c, "m1", 0, &["commission", "w2"])?;
        ensure!(text.contains("w2 is away since"), "{text}");
        Ok(())
    })?;
    c.verdict("w2", no)?;
    c.wait("w2 to be commissioned", |s| (row(s, "w2")?["lifecycle"] == "commissioned").then_some(()))?;
    wait_quiet(c)
}

// --- forged nodes and hanging checks ---

fn another_host_key(c: &Cluster) -> Result<()> {
    // A restart leaves the connections alone. One that a manager began with the old key before the
    // absence would end in a login after it, so all processes of sshd are ended.
    const NEW: &str = "cd /etc/ssh && mkdir -p /root/oldkeys && mv ssh_host_* /root/oldkeys/ && \
        ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key && systemctl stop ssh && \
        { pkill -f '^sshd' || true; } && systemctl start ssh";
    const OLD: &str = "cd /etc/ssh && rm ssh_host_* && mv /root/oldkeys/* . && systemctl restart ssh";
    let print = |c: &Cluster| c.lab.shell("w1", "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2");
    let (runs, mut logins) = (five::runs(&c.lab, "w1")?.len(), 0);
    let before = print(c)?;
    let no = during_absence(c, "w1", |c| {
        drift(c, "w1")?;
        c.lab.shell("w1", NEW)?;
        logins = logins_of(c, "w1")?;
        Ok(())
    })?;
    c.wait("the other host key to be noticed", |s| has_condition(row(s, "w1")?, "host-key-changed").then_some(()))?;
    let node = c.node("w1")?;
    let print_now = print(c)?;
    ensure!(node["conditions"].to_string().contains(&print_now), "the offered key {print_now} is not named: {node:#}");
    ensure!(node["ssh_fingerprints"].to_string().contains(&before), "the old key {before} is not named: {node:#}");
    let text = run_expecting(c, "m1", 4, &["check", "w1"])?;
    ensure!(text.contains("host key"), "{text}");
    run_expecting(c, "m1", 4, &["trust-key", "w1", "SHA256:0000000000000000000000000000000000000000000"])?;
    ensure!(has_condition(&c.node("w1")?, "host-key-changed"), "another fingerprint was trusted");
    ensure!(logins_of(c, "w1")? == logins, "there was a login on a host with another key");
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    run_expecting(c, "m1", 0, &["trust-key", "w1", &print_now])?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["verdict"]["is"] == "drifted", "{verdict:#}");
    wait_until_repaired(c, "w1")?;
    ensure!(phases(&c.ran_since("w1", runs)?, "contiv_network") == ["cleanup", "provision"], "not once each");
    c.lab.shell("w1", OLD)?;
    run_expecting(c, "m1", 0, &["trust-key", "w1", &before])?;
    run_expecting(c, "m1", 0, &["check", "w1"])?;
    wait_quiet(c)
}

/// A sixth host on the network claims to be w1. It has the gossip key and the certificate of w2.
fn impostor(c: &Cluster) -> Result<()> {
    let dir = tempfile::tempdir()?;
    for name in ["identity.json", "node.json", "node.key", "credentials.json", "peers.json"] {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.path().join(name))?;
        file.write_all(&c.lab.read("w2", &format!("/var/lib/remoor/{name}"))?)?;
    }
    let (ip, sixth) = (c.lab.host("w2").ip.to_string(), c.lab.operator_ip().to_string());
    for (name, was, is) in [("credentials.json", "\"w2\"", "\"w1\""), ("node.json", &ip, &sixth)] {
        let path = dir.path().join(name);
        let before = std::fs::read_to_string(&path)?;
        ensure!(before.contains(was), "no {was} in {name}: {before}");
        std::fs::write(&path, before.replace(was, is))?;
    }
    // The agent of w1 soon learns the generation with which w1 was set up. Later the agent hashes
    // the files of w1 again and reports them.
    let before = c.wait("w1's agent to know its generation and to have looked", |s| {
        let row = row(s, "w1")?;
        let (root, reported) = (row["baseline"]["root"].as_str()?, row["report"]["digest"].as_str()?);
        let same = row["report"]["generation"] == row["baseline"]["generation"] && root.starts_with(reported);
        (same && !reported.is_empty() && row["report"]["checks"] == "pass").then(|| row.clone())
    })?;
    let (remoor, log, socket) = (five::built_program("remoor")?, dir.path().join("log"), dir.path().join("socket"));
    let mut command = c.lab.op_command(&[text(&remoor), "agent", "--dir", text(dir.path()), "--socket", text(&socket)]);
    let file = std::fs::File::create(&log)?;
    let mut impostor = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()?;
    let log_line = crate::lab::wait_for("the impostor to be rejected", crate::lab::cluster::PATIENCE, || {
        five::MASTERS.iter().find_map(|host| {
            let log = c.lab.shell(host, "journalctl -u remoor --no-pager -n 400").ok()?;
            log.lines().find(|l| l.contains("gossips as w1 without its key")).map(str::to_owned)
        })
    })
    .with_context(|| std::fs::read_to_string(&log).unwrap_or_default());
    impostor.kill()?;
    impostor.wait()?;
    let log_line = log_line?;
    ensure!(log_line.contains(&format!("{sixth}:")), "not {sixth} in: {log_line}");
    c.wait("the status to tell of it", |s| s["warnings"].to_string().contains(&format!("{sixth}:")).then_some(()))?;
    let of = |row: &Value| -> Value {
        let keys = ["presence", "absences", "gossip", "api", "report", "lifecycle"];
        json!({"nodes": [keys.iter().map(|key| ((*key).to_owned(), row[*key].clone())).collect::<Value>()]})
    };
    check_unchanged(&without_volatile_fields(of(&before)), || Ok(of(&c.node("w1")?)))
        .context("w1 with an impostor about")?;
    wait_quiet(c)
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().expect("a path of this test")
}

fn hanging_check(c: &Cluster) -> Result<()> {
    let runs = five::runs(&c.lab, "w1")?.len();
    let no = during_absence(c, "w1", |c| c.lab.push("w1", b"", HOOK_CHECK, 0o644))?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["verdict"]["is"] == "unknown" && verdict["remedy"]["do"] == "report", "{verdict:#}");
    ensure!(verdict["checks"][0].as_u64() > Some(10), "the other checks have no results: {verdict:#}");
    let message = run_expecting(c, "m1", 1, &["check", "w1"])?;
    ensure!(message.contains("unknown") && message.contains("hook"), "{message}");
    let answer: Value = serde_json::from_str(&c.run("m1", &["check", "w1", "-o", "json"])?.text())?;
    let passed = answer["checks"].as_array().map(|all| all.iter().filter(|k| k["state"] == "pass").count());
    ensure!(passed > Some(10), "the other checks have no results: {answer:#}");
    c.wait("the alert", |s| {
        s["warnings"].to_string().contains("w1: two examinations in a row were inconclusive").then_some(())
    })?;
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    c.lab.shell("w1", &format!("rm {HOOK_CHECK}"))?;
    crate::lab::wait_for("the hung checks to be gone", crate::lab::cluster::PATIENCE, || {
        c.lab.processes("w1").iter().all(|p| p.comm != "sleep").then_some(())
    })?;
    wait_quiet(c)?;
    ensure!(c.ran_since("w1", runs)?.is_empty(), "something was run");
    Ok(())
}

// --- further ---
