//! `remoor play` from this machine on two real hosts, one of them without Python. The tests cover
//! real services and packages, a check that predicts the changes, and a second run that changes
//! nothing. They also cover obstacles: a full disk, and a sudo that requires a password. Then the
//! shipped playbooks of a master are run, first provisioning and then cleanup, because `inverse.rs`
//! covers only those of a worker.

use super::inverse::TREE;
use crate::lab::tool::run;
use crate::lab::{Lab, five};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// The maximum time of one play, which may install packages.
const PLAY_LIMIT: Duration = Duration::from_secs(900);
const HOSTS: [&str; 2] = ["p1", "p2"];
const STANDINS: [&str; 2] = ["/usr/local/bin/netplugin", "/usr/local/bin/netmaster"];
const SITE: &str = "- hosts: all
  tasks:
    - {name: package, apt: {name: nginx-light, state: present}}
    - {name: no package, apt: {name: chrony, state: absent}}
    - {name: program, copy: {dest: /usr/local/bin/played, mode: '0755', content: \"#!/bin/sh\\ncat /etc/played.conf >> /var/log/played\\nexec sleep infinity\\n\"}}
    - {name: configuration, copy: {content: '{{ word }} on {{ inventory_hostname }}', dest: /etc/played.conf}, notify: restart}
    - {name: unit, template: {src: played.service.j2, dest: /etc/systemd/system/played.service}, register: unit, notify: restart}
    - {name: reload, systemd: {daemon_reload: true}, when: unit is changed}
    - {name: service, service: {name: played, state: started, enabled: true}}
    - {name: another, systemd: {name: nginx, state: started, enabled: true}}
    - {name: asked, command: systemctl is-active played, changed_when: false, check_mode: false, failed_when: false, register: active}
    - {name: line, lineinfile: {path: /etc/environment, line: 'PLAYED={{ ansible_facts.os_family }}', create: true}}
    - {name: python, stat: {path: /usr/bin/python3}, register: python}
  handlers:
    - {name: restart, systemd: {name: played, state: restarted}}
";
const CREW: &str = "- hosts: p2
  tasks:
    - {name: group, group: {name: crew, gid: 4711}}
    - {name: user, user: {name: mate, uid: 4712, group: crew, groups: [games], comment: \"First {{ word }}\", home: /srv/mate, shell: /bin/sh}}
    - {name: key, authorized_key: {user: mate, key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqtpE8EKHzOxNdS4QgA5vvYbhoQPAP2I7wDzgSsIY8T mate'}}
    - {name: login, command: id -un, become: true, become_user: mate, register: login, changed_when: false, when: not ansible_check_mode}
    - {name: as mate, assert: {that: login.stdout == 'mate'}, when: not ansible_check_mode}
";
const ASHORE: &str = "- hosts: p2
  tasks:
    - {name: user, user: {name: mate, state: absent, remove: true}}
    - {name: group, group: {name: crew, state: absent}}
";
const UNIT: &str = "[Unit]\nDescription={{ word }}\n[Service]\nExecStart=/usr/local/bin/played\n[Install]\nWantedBy=multi-user.target\n";

#[test]
fn remoor_play_on_real_hosts() -> Result<()> {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
        eprintln!("SKIPPED: PLAYING ON REAL HOSTS: {why}");
        return Ok(());
    }
    super::retry_policy::run_with_retry("playing on real hosts", run_all)
}

/// The operator's directory and the hosts of these tests.
struct Stage {
    lab: Lab,
    dir: tempfile::TempDir,
}

fn run_all() -> Result<()> {
    let contiv = five::built_program("contiv-standin")?;
    let programs = STANDINS.map(|to| (contiv.as_path(), to));
    let stage = Stage { lab: Lab::start_with("play", &HOSTS, &programs)?, dir: tempfile::tempdir()? };
    stage.lab.shell("p2", "chmod a-x /usr/bin/python3*; ! /usr/bin/python3 -V 2>/dev/null")?;
    stage.write("site.yml", SITE)?;
    stage.write("templates/played.service.j2", UNIT)?;
    stage.write("hosts", "p1\np2\n")?;
    check_predictions(&stage)?;
    accounts(&stage)?;
    reboots(&stage)?;
    full_disk(&stage)?;
    sudo_wants_a_password(&stage)?;
    provision_and_clean_up_master(&stage)
}

impl Stage {
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().context("a parent")?)?;
        Ok(std::fs::write(path, text)?)
    }

    fn play(&self, args: &[&str]) -> Result<(i32, String)> {
        let (remoor, config) = (five::built_program("remoor")?, self.lab.ssh_config());
        let base = ["play", "-i", "hosts", "--ssh-config", config.to_str().context("UTF-8")?];
        let argv = [&[remoor.to_str().context("UTF-8")?], &base[..], args].concat();
        let mut command = self.lab.op_command(&argv);
        command.current_dir(self.dir.path()).env("HOME", self.dir.path());
        let out = run(command, None, PLAY_LIMIT)?;
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        Ok((out.code, text))
    }

    /// Host and name of each task and handler that changed something or would change something.
    fn changed_tasks(&self, args: &[&str]) -> Result<BTreeSet<String>> {
        let (code, text) = self.play(&[args, &["-o", "json"]].concat())?;
        ensure!(code == 0, "{args:?} ended with {code}: {text}");
        let mut out = BTreeSet::new();
        for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let status = event["status"].as_str().unwrap_or_default();
            ensure!(!["failed", "unknown"].contains(&status), "{event}");
            if ["changed", "would-run"].contains(&status) {
                out.insert(format!(
                    "{} {}",
                    event["host"].as_str().context("a host")?,
                    event["name"].as_str().context("a name")?
                ));
            }
        }
        Ok(out)
    }

    fn tree(&self, host: &str) -> Result<BTreeSet<String>> {
        Ok(self.lab.shell(host, TREE)?.lines().map(str::to_owned).collect())
    }
}

fn check_predictions(s: &Stage) -> Result<()> {
    let pid = |host: &str| five::main_pid(&s.lab, host, "played.service");
    let word = |word: &'static str| ["site.yml", "-e", word];
    let before = (s.tree("p1")?, s.tree("p2")?);
    let check = s.changed_tasks(&[&word("word=first")[..], &["--check"]].concat())?;
    ensure!(before == (s.tree("p1")?, s.tree("p2")?), "the check changed something");
    let tasks = ["no package", "program", "configuration", "unit", "reload", "service", "another", "line", "restart"];
    // A reload of systemd reports no change, as in Ansible.
    let wanted = |names: &[&str]| -> BTreeSet<String> {
        HOSTS.iter().flat_map(|h| names.iter().filter(|n| **n != "reload").map(move |n| format!("{h} {n}"))).collect()
    };
    ensure!(check == wanted(&tasks), "the check reported {check:#?}");
    let first = s.changed_tasks(&word("word=first"))?;
    ensure!(check == first, "check and run differ: {:#?}", check.symmetric_difference(&first));
    let second = s.changed_tasks(&word("word=first"))?;
    ensure!(second.is_empty(), "the second run changed {second:#?}");
    for host in HOSTS {
        let state = s.lab.shell(
            host,
            "systemctl is-active played nginx; systemctl is-enabled played nginx; command -v chronyd || echo gone",
        )?;
        ensure!(state.split_whitespace().eq(["active", "active", "enabled", "enabled", "gone"]), "{host}: {state}");
    }
    let pids = (pid("p1")?, pid("p2")?);
    let again = s.changed_tasks(&[&word("word=second")[..], &["--limit", "p2"]].concat())?;
    ensure!(again == ["configuration", "restart", "unit"].map(|n| format!("p2 {n}")).into(), "{again:#?}");
    ensure!(pid("p1")? == pids.0 && pid("p2")? != pids.1, "restarted was not p2's, and only that");
    let last_line = s.lab.shell("p2", "tail -c 12 /var/log/played")?;
    ensure!(last_line == "second on p2", "it runs with {last_line}");
    Ok(())
}

/// Real accounts on the host without Python are created, found unchanged, changed in one property,
/// and removed.
/// Both hosts are restarted by a handler, one after the other, and continue with their variables.
fn reboots(s: &Stage) -> Result<()> {
    let text = "- hosts: all
  tasks:
    - {name: before, command: cat /proc/sys/kernel/random/boot_id, register: before}
    - {name: change, command: touch /etc/restart-me, notify: restart}
    - {meta: flush_handlers}
    - {name: after, command: cat /proc/sys/kernel/random/boot_id, register: after}
    - {name: continued, copy: {content: '{{ before.stdout != after.stdout }} {{ done.rebooted }}', dest: /etc/restarted}}
  handlers:
    - {name: restart, reboot: {}, register: done, throttle: 1}
";
    s.write("reboot.yml", text)?;
    let boots = HOSTS.map(|host| s.lab.boot_id(host));
    let (code, text) = s.play(&["reboot.yml"])?;
    ensure!(code == 0, "the play with a reboot ended with {code}: {text}");
    for (host, boot) in HOSTS.into_iter().zip(boots) {
        ensure!(s.lab.boot_id(host)? != boot?, "{host} was not restarted: {text}");
        let continued = s.lab.shell(host, "cat /etc/restarted")?;
        ensure!(continued.trim() == "True True", "{host}: {continued}");
    }
    Ok(())
}

fn accounts(s: &Stage) -> Result<()> {
    s.write("crew.yml", CREW)?;
    s.write("ashore.yml", ASHORE)?;
    let on_p2 = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|n| format!("p2 {n}")).collect() };
    let made = s.changed_tasks(&["crew.yml", "-e", "word=mate"])?;
    ensure!(made == on_p2(&["group", "user", "key"]), "{made:#?}");
    let entry =
        s.lab.shell("p2", "getent passwd mate; id -Gn mate; stat -c %U:%G:%a ~mate ~mate/.ssh/authorized_keys")?;
    let lines: Vec<&str> = entry.lines().collect();
    let wanted = ["mate:x:4712:4711:First mate:/srv/mate:/bin/sh", "crew games", "mate:crew:7", "mate:crew:600"];
    ensure!(lines.len() == 4 && lines.iter().zip(wanted).all(|(line, begin)| line.starts_with(begin)), "{entry}");
    let again = s.changed_tasks(&["crew.yml", "-e", "word=mate"])?;
    ensure!(again.is_empty(), "the second run changed {again:#?}");
    for args in [&["--check"][..], &[]] {
        let other = s.changed_tasks(&[&["crew.yml", "-e", "word=officer"], args].concat())?;
        ensure!(other == on_p2(&["user"]), "{args:?}: {other:#?}");
    }
    ensure!(s.lab.shell("p2", "getent passwd mate")?.contains(":First officer:"), "the comment stayed");
    let gone = s.changed_tasks(&["ashore.yml"])?;
    ensure!(gone == on_p2(&["user", "group"]), "{gone:#?}");
    let left = s.lab.shell("p2", "getent passwd mate; getent group crew; ls -d /srv/mate 2>/dev/null; true")?;
    ensure!(left.trim().is_empty(), "{left}");
    let again = s.changed_tasks(&["ashore.yml"])?;
    ensure!(again.is_empty(), "the second time it took away {again:#?}");
    Ok(())
}

fn full_disk(s: &Stage) -> Result<()> {
    s.lab.shell(
        "p1",
        "mkdir -p /mnt/small && mount -t tmpfs -o size=64k none /mnt/small && echo old > /mnt/small/kept",
    )?;
    s.write("files/large", &"0123456789abcdef".repeat(1 << 14))?;
    s.write(
        "full.yml",
        "- hosts: p1\n  tasks:\n    - {copy: {src: large, dest: '/mnt/small/{{ name }}'}}\n    - {command: touch /root/later}\n",
    )?;
    for name in ["new", "kept"] {
        let (code, text) = s.play(&["full.yml", "-e", &format!("name={name}")])?;
        ensure!(code == 5 && text.contains("No space left on device"), "{code}: {text}");
        let left = s.lab.shell("p1", "ls -A /mnt/small; cat /mnt/small/kept; ls /root/later 2>/dev/null || true")?;
        ensure!(left.split_whitespace().eq(["kept", "old"]), "left: {left}");
    }
    s.lab.shell("p1", "umount /mnt/small")?;
    let (code, text) = s.play(&["full.yml", "-e", "name=new"])?;
    ensure!(code == 0, "{text}");
    s.lab.shell("p1", "rm -r /mnt/small /root/later").map(drop)
}

fn sudo_wants_a_password(s: &Stage) -> Result<()> {
    s.lab.shell(
        "p1",
        "useradd -m deploy && echo deploy:secret | chpasswd && echo 'deploy ALL=(ALL) ALL' > /etc/sudoers.d/deploy && \
         cp -r /root/.ssh ~deploy/ && chown -R deploy: ~deploy/.ssh",
    )?;
    s.write("sudo.yml", "- hosts: p1\n  become: true\n  tasks:\n    - {command: touch /root/by-sudo}\n")?;
    let (code, text) = s.play(&["sudo.yml", "-u", "deploy"])?;
    ensure!(code == 3 && text.contains("a password is required") && text.contains("NOPASSWD"), "{code}: {text}");
    ensure!(s.lab.read("p1", "/root/by-sudo").is_err(), "it ran");
    s.lab.shell("p1", "echo 'deploy ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/deploy")?;
    let (code, text) = s.play(&["sudo.yml", "-u", "deploy"])?;
    ensure!(code == 0 && s.lab.read("p1", "/root/by-sudo").is_ok(), "{code}: {text}");
    s.lab.shell("p1", "rm /root/by-sudo /etc/sudoers.d/deploy; userdel -r deploy 2>&1").map(drop)
}

/// A host is provisioned with a cluster of one, and then cleaned up. Afterwards the host is
/// unchanged.
fn provision_and_clean_up_master(s: &Stage) -> Result<()> {
    let ip = s.lab.host("p2").ip;
    let inventory = format!(
        "all:\n  hosts:\n    p2:\n      node: {{name: p2, addr: {ip}, group: service-master}}\n      masters: [{{name: p2, addr: {ip}}}]\n      \
         etcd_cluster: contiv\n      etcd_client_port: 2379\n      etcd_peer_port: 2380\n      netplugin_if: eth0\n      \
         contiv_bin: /usr/local/bin\n      nginx_port: 80\n      nginx_workers: 2\n"
    );
    s.write("hosts", &inventory)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["playbooks", "templates"] {
        for entry in std::fs::read_dir(source.join(folder))? {
            let entry = entry?;
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            s.write(&name, &std::fs::read_to_string(entry.path())?)?;
        }
    }
    let run = |name: &str| -> Result<()> {
        let (code, text) = s.play(&["--root", ".", &format!("playbooks/{name}.yml")])?;
        ensure!(code == 0, "{name} ended with {code}: {text}");
        Ok(())
    };
    s.lab.shell("p2", "systemctl disable --now nginx 2>&1")?;
    let before = s.tree("p2")?;
    run("provision")?;
    let up =
        s.lab.shell("p2", "systemctl is-active etcd-contiv netplugin netmaster nginx; grep -c netmaster /etc/hosts")?;
    ensure!(up.split_whitespace().eq(["active", "active", "active", "active", "1"]), "{up}");
    run("provision")?;
    run("cleanup")?;
    let after = s.tree("p2")?;
    let (left, lost): (Vec<_>, Vec<_>) = (after.difference(&before).collect(), before.difference(&after).collect());
    ensure!(left.is_empty() && lost.is_empty(), "left behind: {left:#?}, taken too: {lost:#?}");
    run("cleanup")?;
    ensure!(s.tree("p2")? == after, "a second cleanup takes more");
    Ok(())
}
