//! `node add` on real hosts, and real Ansible on them. A group is set up by the user's own Ansible
//! (docs/design/scenarios.md, X: provisioner kind `ansible`), and Ansible reads the inventory of
//! remoor.

use crate::lab::cluster::{PATIENCE, row};
use crate::lab::{Lab, five, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

const REMOOR: &str = "/usr/local/bin/remoor";
const CONFIG: &str = "version: 1
inventory: inventory.yml
ssh: {user: root}
groups:
  web: {services: [note], provision: site.yml, cleanup: gone.yml, provisioner: ansible}
  rest: {services: []}
services:
  note: {files: [/etc/note]}
limits: {settle: 5s, leader-grace: 2s, probe: 3s, check-interval: 5s, rejoin: 5s}
";
const SITE: &str = "- hosts: web
  tasks:
    - copy: {content: \"{{ colour }} by {{ ansible_version.full }}\\n\", dest: /etc/note, mode: '0644'}
      tags: [note]
    - shell: echo {{ remoor_phase }} {{ remoor_attempt }} >> /var/log/runs
      tags: [note]
";
const GONE: &str = "- hosts: web
  tasks:
    - file: {path: /etc/note, state: absent}
      tags: [note]
";

#[test]
fn a_machine_is_added_and_set_up_by_ansible() -> Result<()> {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
        eprintln!("SKIPPED: ADDING REAL HOSTS: {why}");
        return Ok(());
    }
    super::retry_policy::run_with_retry("X10 adding a machine", added_and_set_up)
}

fn added_and_set_up() -> Result<()> {
    let lab = Lab::start("add", &["m1", "w1", "w2", "w3"])?;
    lab.give_identity(&["m1"])?;
    five::install_agent(&lab, "m1", &five::built_program("remoor")?)?;
    run_on_m1(&lab, &["init", "--name", "m1", "--advertise", &lab.host("m1").ip.to_string()])?;
    lab.shell("m1", "systemctl enable --now remoor 2>&1")?;
    wait_for("m1 to lead", PATIENCE, || status(&lab).ok())?;
    check_addition(&lab)?;
    only_the_clusters_key(&lab)?;
    set_up(&lab)?;
    the_rest_of_the_inventory(&lab)?;
    read_by_ansible(&lab)
}

fn run_on_m1(lab: &Lab, argv: &[&str]) -> Result<String> {
    let output = lab.exec("m1", &[&[REMOOR], argv].concat())?;
    output.require_success(&format!("remoor {}", argv.join(" "))).map(|o| o.text())
}

fn status(lab: &Lab) -> Result<Value> {
    serde_json::from_str(&run_on_m1(lab, &["status", "-o", "json"])?).context("the output of status")
}

fn check_addition(lab: &Lab) -> Result<()> {
    let ip = lab.host("w1").ip.to_string();
    let listed = lab.exec("w1", &["ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key.pub"])?.text();
    let print = listed.split(' ').nth(1).context("a fingerprint")?;
    let add = ["node", "add", &ip, "--name", "w1"];
    // The host key is not confirmed, or another key is confirmed. In both cases nothing must change
    // on the machine.
    for more in [&[][..], &["--fingerprint", "SHA256:other"]] {
        let refused = lab.exec("m1", &[&[REMOOR], &add[..], more].concat())?;
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(refused.code == 4 && message.contains(print), "{message}");
    }
    ensure!(!lab.exec("w1", &["test", "-e", REMOOR])?.ok(), "something was installed");
    let add = [&add[..], &["--fingerprint", print]].concat();
    let message = run_on_m1(lab, &add)?;
    ensure!(message.starts_with("w1 is node "), "{message}");
    let shown = status(lab)?;
    let w1 = row(&shown, "w1").context("w1 in the status")?;
    ensure!(w1["presence"] == "alive" && w1["role"] == "worker", "{w1:#}");
    ensure!(w1["ssh_fingerprints"].to_string().contains(print), "{w1:#}");
    let again = run_on_m1(lab, &add)?;
    ensure!(again == message, "adding again: {again}");
    let other = lab.exec("m1", &[REMOOR, "node", "add", &ip, "--name", "w2", "--fingerprint", print])?;
    ensure!(other.code == 5 && String::from_utf8_lossy(&other.stderr).contains("already"), "w1 became w2");
    Ok(())
}

/// Checks that from now on the managers log in to w1 only with the key that was made at `init`.
fn only_the_clusters_key(lab: &Lab) -> Result<()> {
    let line = status(lab)?["ssh_key"].as_str().context("the cluster's key in the status")?.to_owned();
    let allowed = String::from_utf8_lossy(&lab.read("w1", "/root/.ssh/authorized_keys")?).into_owned();
    ensure!(allowed.lines().filter(|l| *l == line).count() == 1, "added twice, once is enough: {allowed}");
    ensure!(line.starts_with("restrict ssh-ed25519 "), "{line}");
    let modes = lab.exec("w1", &["stat", "-c", "%a", "/root/.ssh", "/root/.ssh/authorized_keys"])?.text();
    ensure!(modes.split_whitespace().eq(["700", "600"]), "{modes}");
    lab.push("w1", format!("{line}\n").as_bytes(), "/root/.ssh/authorized_keys", 0o600)?;
    let w1 = format!("root@{}", lab.host("w1").ip);
    let by = ["ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null"];
    let old = lab.exec("m1", &[&by[..], &[&w1, "true"]].concat())?;
    ensure!(!old.ok(), "m1's own key still opens w1");
    Ok(())
}

fn set_up(lab: &Lab) -> Result<()> {
    let [m1, w1, w2, w3] = ["m1", "w1", "w2", "w3"].map(|name| lab.host(name).ip);
    let inventory = format!(
        "web:\n  vars: {{colour: blue}}\n  hosts: {{w1: {{ansible_host: {w1}}}}}\nrest:\n  hosts: {{m1: {{ansible_host: {m1}}}, \
         w2: {{ansible_host: {w2}}}, w3: {{ansible_host: {w3}}}}}\n"
    );
    for (name, text) in [("remoor.yml", CONFIG), ("inventory.yml", &inventory), ("site.yml", SITE), ("gone.yml", GONE)]
    {
        lab.push("m1", text.as_bytes(), &format!("/root/fleet/{name}"), 0o644)?;
    }
    run_on_m1(lab, &["apply", "/root/fleet"])?;
    run_on_m1(lab, &["commission", "w1", "--detach"])?;
    let quiet = |what: &str| {
        wait_for(what, PATIENCE, || {
            let status = status(lab).ok()?;
            let w1 = row(&status, "w1")?.clone();
            (w1["lifecycle"] == "commissioned" && w1["job"].is_null()).then_some(())
        })
    };
    quiet("w1 to be commissioned").with_context(|| story(lab))?;
    let note = lab.read("w1", "/etc/note")?;
    ensure!(note.starts_with(b"blue by 2."), "{:?}", String::from_utf8_lossy(&note));
    lab.shell("w1", "echo drift > /etc/note")?;
    run_on_m1(lab, &["resetup", "w1", "--detach"])?;
    wait_for("w1 to be repaired", PATIENCE, || (lab.read("w1", "/etc/note").ok()? == note).then_some(()))
        .with_context(|| story(lab))?;
    quiet("the job to be closed").with_context(|| story(lab))?;
    let runs = lab.read("w1", "/var/log/runs")?;
    ensure!(String::from_utf8_lossy(&runs).lines().count() == 2, "{:?}", String::from_utf8_lossy(&runs));
    Ok(())
}

/// With one command, adds all hosts that are not nodes yet. The command is rejected as a whole if a
/// host key is not confirmed, and succeeds if a file confirms the keys.
fn the_rest_of_the_inventory(lab: &Lab) -> Result<()> {
    let add = |more: &[&str]| lab.exec("m1", &[&[REMOOR, "node", "add"], more].concat());
    let stderr_of = |output: &crate::lab::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let known = |names: &[&str]| -> Result<()> {
        let mut file = String::new();
        for name in names {
            let key = lab.read(name, "/etc/ssh/ssh_host_ed25519_key.pub")?;
            file.push_str(&format!("{} {}", lab.host(name).ip, String::from_utf8_lossy(&key)));
        }
        lab.push("m1", file.as_bytes(), "/root/known", 0o644)
    };
    let unseen = add(&["--all"])?;
    ensure!(unseen.code == 4 && stderr_of(&unseen).contains("was not confirmed"), "{}", stderr_of(&unseen));
    known(&["w2"])?;
    let half = add(&["--all", "--known-hosts", "/root/known"])?;
    ensure!(half.code == 4 && stderr_of(&half).contains("nothing was changed"), "{}", stderr_of(&half));
    for name in ["w2", "w3"] {
        ensure!(!lab.exec(name, &["test", "-e", REMOOR])?.ok(), "something was installed on {name}");
    }
    known(&["w2", "w3"])?;
    let done = add(&["--group", "rest", "--known-hosts", "/root/known"])?;
    ensure!(done.ok() && done.text().matches("and alive").count() == 2, "{}{}", done.text(), stderr_of(&done));
    let shown = status(lab)?;
    for name in ["w2", "w3"] {
        let node = row(&shown, name).with_context(|| format!("{name} in the status"))?;
        ensure!(node["presence"] == "alive", "{node:#}");
    }
    let again = add(&["--all", "--known-hosts", "/root/known"])?;
    ensure!(again.ok() && stderr_of(&again).contains("nothing to do"), "{}", stderr_of(&again));
    Ok(())
}

/// Uses `remoor inventory` as a dynamic inventory. Ansible accepts the inventory and reaches its
/// hosts.
fn read_by_ansible(lab: &Lab) -> Result<()> {
    lab.push("m1", format!("#!/bin/sh\nexec {REMOOR} inventory \"$@\"\n").as_bytes(), "/root/hosts", 0o755)?;
    let ask = |argv: &[&str]| -> Result<String> {
        let output = lab.exec("m1", &[argv, &["-i", "/root/hosts"]].concat())?;
        output.require_success(&argv.join(" ")).map(|o| o.text())
    };
    let all: Value = serde_json::from_str(&ask(&["ansible-inventory", "--list"])?)?;
    ensure!(all["web"]["hosts"] == serde_json::json!(["w1"]), "{all:#}");
    let one: Value = serde_json::from_str(&ask(&["ansible-inventory", "--host", "w1"])?)?;
    for of_w1 in [&all["_meta"]["hostvars"]["w1"], &one] {
        ensure!(of_w1["colour"] == "blue" && of_w1["ansible_host"] == lab.host("w1").ip.to_string(), "{of_w1:#}");
        ensure!(of_w1["remoor_lifecycle"] == "commissioned", "{of_w1:#}");
    }
    // Ansible reads the same variables for one host as the script prints. A verdict may arrive
    // between the two queries, so both queries are repeated.
    let host = |text: String| serde_json::from_str::<Value>(&text).context("a host's variables");
    let mut both = (one, Value::Null);
    let same = wait_for("remoor and Ansible to say the same", PATIENCE, || {
        let by_remoor = host(run_on_m1(lab, &["inventory", "--host", "w1"]).ok()?).ok()?;
        both = (host(ask(&["ansible-inventory", "--host", "w1"]).ok()?).ok()?, by_remoor);
        (both.0 == both.1).then_some(())
    });
    same.with_context(|| format!("remoor says {:#}, and Ansible {:#}", both.1, both.0))?;
    let ping = ["ansible", "web", "-m", "ping", "--private-key", "/var/lib/remoor/ssh.key"];
    // As in remoor, the trusted host key is the one that was recorded when the host was added.
    let key = lab.read("w1", "/etc/ssh/ssh_host_ed25519_key.pub")?;
    let known = format!("{} {}", lab.host("w1").ip, String::from_utf8_lossy(&key));
    lab.push("m1", known.as_bytes(), "/root/.ssh/known_hosts", 0o600)?;
    let message = ask(&ping)?;
    ensure!(message.contains("w1 | SUCCESS") && message.contains("pong"), "{message}");
    Ok(())
}

fn story(lab: &Lab) -> String {
    run_on_m1(lab, &["why", "w1"]).unwrap_or_else(|e| e.to_string())
}
