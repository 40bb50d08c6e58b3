//! The cleanups of the shipped playbooks, including chrony. They remove from a host everything that
//! the provisioning installed.
//!
//! The test compares files, units that start at boot, ports and packages. It covers the playbooks
//! of a worker. The playbooks of a master are in `played.rs`, because they need only a single host.

use super::operator::{Story, fleet_with_hooks, run_expecting, wait_quiet};
use super::roles::with_fleet;
use super::shipped::{CHRONY, UNIT};
use crate::lab::cluster::Cluster;
use crate::lab::five;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;

pub const ALL: &[Story] = &[("inverse: the shipped playbooks are undone by their cleanups", provision_and_clean_up)];

/// A script that prints one line for each file with its content, each unit that starts at boot,
/// each port and each package. It omits everything that remains on purpose: data (`state:` of the
/// services), logs, files that systemd, apt and remoor write for themselves, and files that a boot
/// removes.
pub const TREE: &str = "S='( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log \
                        -o -path /var/cache -o -path /var/lib/remoor -o -path /var/lib/etcd-contiv -o -path /var/lib/nginx \
                        -o -path /var/lib/chrony -o -path /var/lib/systemd -o -path /var/lib/private ) -prune -o'; \
                        set -f; \
                        find / -xdev $S -printf '%p %y %m %u:%g %l\\n'; \
                        find / -xdev $S -type f -path '/etc/*' -print0 | xargs -0 sha256sum; \
                        find / -xdev $S -type f -not -path '/etc/*' -printf '%p has %s\\n'; \
                        systemctl list-unit-files --state=enabled,enabled-runtime --no-legend --no-pager | sed 's/ .*//; s/^/unit /'; \
                        ss -Hltn | awk '{print \"port\", $4}'; \
                        dpkg-query -W -f 'package ${Package} ${Version} ${db:Status-Abbrev}\\n'";
const SERVICE: &str =
    "\n  chrony: {files: [/etc/chrony/chrony.conf], keep: [/etc/chrony/chrony.conf], units: [chrony.service]}\n";
const CHECK: &str = "remoor: {service: chrony}\nfile:\n  /etc/chrony/chrony.conf: {exists: true}\n";

/// The usual fleet, in which the workers also have chrony. The plays of chrony follow the others.
fn fleet_with_chrony(path: &str, text: String) -> String {
    let text = fleet_with_hooks(path, text);
    let beside = |name: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("playbooks").join(name);
        std::fs::read_to_string(file).expect("a shipped playbook").replacen("hosts: all", "hosts: service-worker", 1)
    };
    match path {
        "remoor.yml" => {
            let text = text.replacen("\nservices:\n", &format!("\nservices:{SERVICE}"), 1);
            let group = "\n  service-worker:\n    services: [";
            assert!(text.contains(group) && text.contains(SERVICE), "{text}");
            text.replacen(group, &format!("{group}chrony, "), 1)
        }
        "inventory.yml" => text.replacen("  vars:\n", "  vars:\n    chrony_servers: [192.0.2.1]\n", 1),
        // Chrony has no reachable time server on the hosts, so the shipped checks would fail. A
        // simpler check file replaces them.
        "checks/chrony.yml" => CHECK.to_owned(),
        "playbooks/provision.yml" => text + "\n" + &beside("chrony.yml"),
        "playbooks/cleanup.yml" => text + "\n" + &beside("chrony-cleanup.yml"),
        _ => text,
    }
}

fn provision_and_clean_up(c: &Cluster) -> Result<()> {
    // Debian's own unit would set the clock of this machine, so a unit that does not set the clock
    // replaces it. The original configuration of chrony is saved for another story.
    for host in ["w1", "w2"] {
        c.lab.push(host, CHRONY.as_bytes(), UNIT, 0o644)?;
        c.lab.shell(host, "systemctl daemon-reload; cp -p /etc/chrony/chrony.conf /root/chrony.conf")?;
    }
    let result = with_fleet(c, fleet_with_chrony, |c| {
        run_expecting(c, "m1", 0, &["update", "w2"])?;
        check_cleanup(c)
    });
    for host in ["w1", "w2"] {
        let script = format!("systemctl disable --now chrony 2>&1; rm -f {UNIT}; systemctl daemon-reload");
        c.lab.shell(host, &script)?;
    }
    result?;
    for host in ["w1", "w2"] {
        run_expecting(c, "m1", 0, &["update", host])?;
        c.lab.shell(host, "mv /root/chrony.conf /etc/chrony/chrony.conf")?;
    }
    wait_quiet(c)
}

fn check_cleanup(c: &Cluster) -> Result<()> {
    let down = || run_expecting(c, "m1", 0, &["decommission", "w1", "--confirm", "w1"]);
    down()?;
    let before = tree(c)?;
    run_expecting(c, "m1", 0, &["commission", "w1"])?;
    let set_up = tree(c)?;
    for made in [
        "/etc/etcd-proxy-contiv.env f 644 root:root",
        "/etc/default/netplugin f 644 root:root",
        "/etc/nginx/conf.d/healthz.conf f 644 root:root",
        "/etc/nginx/nginx.conf.package f 644 root:root",
        "/etc/chrony/chrony.conf.package f 644 root:root",
        "unit netplugin.service",
        "unit chrony.service",
    ] {
        let there = |tree: &BTreeSet<String>| tree.iter().any(|line| line.trim_end() == made);
        ensure!(there(&set_up), "{made} was not made: {:#?}", set_up.difference(&before));
        ensure!(!there(&before), "{made} is left by the first cleanup");
    }
    let runs = five::runs(&c.lab, "w1")?.len();
    down()?;
    let ran = c.ran_since("w1", runs)?;
    ensure!(ran.len() == 4 && ran.iter().all(|(phase, _)| phase == "cleanup"), "{ran:?}");
    let after = tree(c)?;
    let (left, lost): (Vec<_>, Vec<_>) = (after.difference(&before).collect(), before.difference(&after).collect());
    ensure!(left.is_empty() && lost.is_empty(), "left behind: {left:#?}, taken too: {lost:#?}");
    run_expecting(c, "m1", 0, &["commission", "w1"]).map(drop)
}

fn tree(c: &Cluster) -> Result<BTreeSet<String>> {
    Ok(c.lab.shell("w1", TREE)?.lines().map(str::to_owned).collect())
}
