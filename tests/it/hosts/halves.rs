//! Stories about partitions: partitions that leave no side with a quorum, and managers cut off from
//! all other nodes. The nodes must find each other again by gossip alone, with addresses from disk.
//! Then each absence gets one verdict.
//!
//! The tests read the view of each agent from its own socket, because no manager answers meanwhile.

use super::steps::{absences, has_condition, kill_daemon, leader, revive, wait_quiet};
use super::stories::Story;
use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::tool::has_production_durations;
use crate::lab::{five, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub const ALL: &[Story] =
    &[("G1 two halves without a manager", halves), ("G2 each manager cut off from all others", managers_alone)];

/// Maximum time until the agents are one gossip cluster again after a partition heals. With the
/// durations of the stories, it takes a few seconds.
const TOGETHER: Duration = Duration::from_secs(65);
/// Length of a partition. It is longer than the period in which an isolated agent dials most often.
const APART: Duration = Duration::from_secs(30);

/// The peers of an agent with their presence, as the agent's own socket reports them.
fn peers(c: &Cluster, host: &str) -> Result<BTreeMap<String, String>> {
    // Exit code 3 means that the node is not a manager or has no leader. The node reports this and
    // answers nevertheless.
    let output = c.run(host, &["status", "-o", "json"])?;
    let view: Value = serde_json::from_str(&output.text()).with_context(|| format!("what {host} printed"))?;
    ensure!(view["kind"] == "agent", "not an agent's view: {view:#}");
    let rows = view["peers"].as_array().context("peers")?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(rows.iter().map(|peer| (word(&peer["name"]), word(&peer["presence"]))).collect())
}

/// Waits until the agent of `host` misses all nodes of `gone`.
fn misses(c: &Cluster, host: &str, gone: &[&str]) -> Result<()> {
    wait_for(&format!("{host} to miss {gone:?}"), PATIENCE, || {
        let peers = peers(c, host).ok()?;
        gone.iter().all(|name| peers.get(*name).is_some_and(|p| p == "gone" || p == "left")).then_some(())
    })
    .with_context(|| format!("{host} sees {:?}", peers(c, host)))
}

/// The time from `mended` until the agents of both workers report all nodes of `wanted` as alive.
fn wait_until_together(c: &Cluster, mended: Instant, wanted: &[&str]) -> Result<Duration> {
    for host in five::WORKERS {
        let others: Vec<&&str> = wanted.iter().filter(|name| **name != host).collect();
        wait_for(&format!("{host} to see {others:?}"), PATIENCE, || {
            let peers = peers(c, host).ok()?;
            others.iter().all(|name| peers.get(**name).is_some_and(|p| p == "alive")).then_some(())
        })
        .with_context(|| format!("{host} sees {:?}", peers(c, host)))?;
    }
    Ok(mended.elapsed())
}

/// The verdicts on the absences of each node. `before` has the number of absences of each node that
/// are ignored. Fails unless each later absence has one verdict and none of them found a
/// difference.
fn one_verdict_each(c: &Cluster, before: &BTreeMap<&'static str, u64>) -> Result<BTreeMap<&'static str, Vec<Value>>> {
    let mut all = BTreeMap::new();
    for (host, before) in before {
        let now = absences(c, host)?;
        let verdicts: Vec<Value> =
            c.verdicts(host)?.into_iter().filter(|f| f["absence"].as_u64() > Some(*before)).collect();
        let numbers: Vec<u64> = verdicts.iter().filter_map(|f| f["absence"].as_u64()).collect();
        ensure!(numbers.iter().copied().eq(*before + 1..=now), "{host}: {before} to {now}, verdicts on {numbers:?}");
        for verdict in &verdicts {
            ensure!(verdict["verdict"]["is"] == "same" && verdict["remedy"]["do"] == "none", "{host}: {verdict:#}");
        }
        all.insert(*host, verdicts);
    }
    Ok(all)
}

/// Waits until each of these hosts has more absences than `before` says. Perhaps no manager
/// observed the absence, so that only the host's own records show it.
fn wait_for_absences(c: &Cluster, before: &BTreeMap<&'static str, u64>, hosts: &[&'static str]) -> Result<()> {
    c.wait(&format!("the absences of {hosts:?} to be known"), |s| {
        let more = |host: &&str| row(s, host).is_some_and(|r| r["absences"].as_u64() > before.get(*host).copied());
        hosts.iter().all(more).then_some(())
    })
}

fn all_absences(c: &Cluster) -> Result<BTreeMap<&'static str, u64>> {
    five::HOSTS.into_iter().map(|host| Ok((host, absences(c, host)?))).collect()
}

fn all_runs(c: &Cluster) -> Result<Vec<usize>> {
    five::HOSTS.iter().map(|host| Ok(five::runs(&c.lab, host)?.len())).collect()
}

/// m1 and w1 are on one side. First the managers of the other side continue. Then all managers
/// stop: m1 by a signal, the others in an orderly way.
fn halves(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    let (before, runs) = (all_absences(c)?, all_runs(c)?);
    let (old, _) = leader(c)?;
    c.lab.partition(&[&["m1", "w1"], &["m2", "m3", "w2"]])?;
    c.wait("the two managers to miss the other half", |s| {
        let away = |host: &str| row(s, host).is_some_and(|r| r["presence"] == "away");
        (s["as_of"]["leader"] != "m1" && away("m1") && away("w1")).then_some(())
    })
    .with_context(|| format!("{old} led before"))?;
    kill_daemon(c, "m1")?;
    for host in ["m2", "m3"] {
        c.lab.shell(host, "systemctl stop remoor")?;
    }
    misses(c, "w1", &["m1", "m2", "m3", "w2"])?;
    misses(c, "w2", &["m1", "m2", "m3", "w1"])?;
    std::thread::sleep(if has_production_durations() { APART * 4 } else { APART });
    for host in five::WORKERS {
        ensure!(!peers(c, host)?.values().any(|presence| presence == "alive"), "{host} is not alone");
    }
    c.lab.heal()?;
    let took = wait_until_together(c, Instant::now(), &five::WORKERS)?;
    eprintln!("hosts: two halves without a manager are one gossip cluster after {:.1} s", took.as_secs_f64());
    ensure!(took <= TOGETHER, "one gossip cluster only after {took:?}");
    for host in five::MASTERS {
        revive(c, host)?;
    }
    wait_for_absences(c, &before, &five::HOSTS)?;
    wait_quiet(c)?;
    let verdicts = one_verdict_each(c, &before)?;
    for host in five::WORKERS {
        ensure!(verdicts[host].first().is_some_and(|v| v["cause"] == "network"), "{host}: {:#?}", verdicts[host]);
    }
    ensure!(verdicts["m1"].first().is_some_and(|v| v["cause"] == "agent"), "m1: {:#?}", verdicts["m1"]);
    ensure!(all_runs(c)? == runs, "something was run");
    Ok(())
}

fn managers_alone(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    let (before, runs) = (all_absences(c)?, all_runs(c)?);
    for host in five::MASTERS {
        c.lab.cut(host)?;
    }
    for host in five::MASTERS {
        c.lab.wait_isolated(host)?;
        wait_for(&format!("{host} to say that it has no leader"), PATIENCE, || {
            (c.run(host, &["status"]).ok()?.code == 3).then_some(())
        })?;
    }
    for host in five::WORKERS {
        misses(c, host, &five::MASTERS)?;
    }
    std::thread::sleep(if has_production_durations() { APART * 4 } else { APART });
    for (host, other) in [("w1", "w2"), ("w2", "w1")] {
        ensure!(peers(c, host)?[other] == "alive", "the workers lost each other although they were not cut off");
    }
    c.lab.heal()?;
    let took = wait_until_together(c, Instant::now(), &five::HOSTS)?;
    eprintln!("hosts: managers that were cut off are one gossip cluster with all after {:.1} s", took.as_secs_f64());
    ensure!(took <= TOGETHER, "one gossip cluster only after {took:?}");
    wait_for_absences(c, &before, &five::MASTERS)?;
    wait_quiet(c)?;
    for (host, verdicts) in one_verdict_each(c, &before)? {
        ensure!(verdicts.iter().all(|v| v["cause"] == "network"), "{host}: {verdicts:#?}");
        ensure!(!has_condition(&c.node(host)?, "flapping"), "{host} is taken for flapping");
    }
    ensure!(all_runs(c)? == runs, "something was run");
    Ok(())
}
