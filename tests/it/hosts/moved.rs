//! Scenario A10 of docs/design/scenarios.md: a node returns with another address, and later with
//! its old address. Meanwhile another host answers at the old address.

use super::operator::{NETPLUGIN, Story, fleet_with_hooks, has_condition, logins_of, wait_quiet};
use super::stories::during_absence;
use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::{five, wait_for};
use anyhow::{Context, Result, ensure};
use std::net::Ipv4Addr;

pub const ALL: &[Story] = &[("A10 a node comes back with another address", address_changes_and_returns)];

fn address_changes_and_returns(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    let home = c.lab.host("w1").ip;
    // remoor never changes an `ansible_host` that the operator set. In this fleet w1 has none, so
    // remoor determines the address of w1.
    let home_line = format!("w1: {{ansible_host: {home}}}");
    c.apply(|path, text| match path {
        "inventory.yml" => {
            assert!(text.contains(&home_line), "no {home_line}");
            fleet_with_hooks(path, text.replace(&home_line, "w1: {}"))
        }
        _ => fleet_with_hooks(path, text),
    })?;
    let result = there_and_back(c, home);
    c.apply(fleet_with_hooks)?;
    result?;
    wait_quiet(c)
}

fn there_and_back(c: &Cluster, home: Ipv4Addr) -> Result<()> {
    let new = c.lab.address(77);
    comes_back(c, new, |c| another_host_answers(c, home))?;
    // w2 has given up the old address of w1, so nobody answers there now. w2 is still known by its
    // own address.
    ensure!(c.node("w2")?["gossip"].as_str().is_some_and(|g| g.starts_with(&c.lab.host("w2").ip.to_string())));
    comes_back(c, home, |_| Ok(()))
}

/// Cuts w1 off, changes its address to `ip`, and connects it again. The new address must be
/// recorded, and the node must be marked outdated and set up for the new address.
fn comes_back(c: &Cluster, ip: Ipv4Addr, meanwhile: impl FnOnce(&Cluster) -> Result<()>) -> Result<()> {
    let before = c.lab.host("w1").ip;
    let runs = five::runs(&c.lab, "w1")?.len();
    let no = during_absence(c, "w1", |c| {
        c.lab.wait_isolated("w1")?;
        c.lab.readdress("w1", ip)?;
        meanwhile(c)
    })?;
    let verdict = c.verdict("w1", no)?;
    ensure!(verdict["cause"] == "network" && verdict["verdict"]["is"] == "outdated", "{verdict:#}");
    let evidence = format!("its address was {before}, is {ip}");
    ensure!(verdict["evidence"].as_array().is_some_and(|all| all.iter().any(|e| e == &evidence)), "{verdict:#}");
    c.wait(&format!("w1 to be set up at {ip}"), |s| {
        let w1 = row(s, "w1")?;
        let there = w1["gossip"] == format!("{ip}:7946") && w1["ssh"] == ip.to_string();
        let right = w1["outdated"] == false && w1["finding"]["verdict"]["is"] == "same" && !has_condition(w1, "moved");
        (there && right && w1["job"].is_null()).then_some(())
    })?;
    let ran = c.ran_since("w1", runs)?;
    for phase in ["cleanup", "provision"] {
        let of = |service: &str| ran.iter().filter(|(p, s)| p == phase && s == service).count();
        ensure!((of("etcd"), of("contiv_network")) == (1, 1), "once and complete: {ran:?}");
    }
    // Not only the file but also the running process has the new address.
    let wanted = format!("-vtep-ip {ip} -ctrl-ip {ip} ");
    let file = String::from_utf8_lossy(&c.lab.read("w1", NETPLUGIN)?).into_owned();
    ensure!(file.contains(&wanted), "{file}");
    let pid = five::main_pid(&c.lab, "w1", "netplugin.service")?;
    let line = c.lab.shell("w1", "tr '\\0' ' ' < /proc/$(systemctl show -P MainPID netplugin)/cmdline")?;
    ensure!(line.contains(&wanted), "process {pid}: {line}");
    let table = c.ask(&["status"])?;
    ensure!(table.contains("w1"), "{table}");
    let shown = c.ask(&["nodes", "w1"])?;
    ensure!(shown.contains(&ip.to_string()) && !shown.contains(&format!("{before}:")), "{shown}");
    let host: serde_json::Value = serde_json::from_str(&c.ask(&["inventory", "--host", "w1"])?)?;
    ensure!(host["ansible_host"] == ip.to_string(), "{host:#}");
    // The address caches (`addresses.json`) of the other nodes list the new address first.
    wait_for("w2 to have it in its cache", PATIENCE, || {
        let cache = c.lab.read("w2", "/var/lib/remoor/addresses.json").ok()?;
        let cache: serde_json::Value = serde_json::from_slice(&cache).ok()?;
        (cache["nodes"]["w1"][0] == format!("{ip}:7946")).then_some(())
    })
}

/// Lets w2 answer at the recorded address of w1. The managers reach w2 there, but none of them logs
/// in.
fn another_host_answers(c: &Cluster, old: Ipv4Addr) -> Result<()> {
    let let_in = logins_of(c, "w2")?;
    // w2 announces the address to its neighbours, because their tables may still have the MAC
    // address of w1.
    c.lab.shell("w2", &format!("ip addr add {old}/24 dev eth0 && (arping -q -c 2 -A -I eth0 {old} || true)"))?;
    let result = (|| {
        c.wait("its host to answer", |s| (row(s, "w1")?["presence"] == "agent-down").then_some(()))?;
        let leader = c.leader()?;
        let check = c.run(&leader, &["check", "w1"])?;
        let message = format!("{}{}", check.text(), String::from_utf8_lossy(&check.stderr));
        ensure!(check.code != 0 && message.contains("host key"), "{message}");
        let after = logins_of(c, "w2")?;
        ensure!(after == let_in, "w2 was taken for w1: {let_in} logins became {after}");
        Ok(())
    })();
    c.lab.shell("w2", &format!("ip addr del {old}/24 dev eth0")).context("giving the address back")?;
    result
}
