//! Scenario A25a of docs/design/scenarios.md: power returns on all hosts at once, and every node
//! has drifted. Nothing is set up before an operator runs `remoor resume`. Then the nodes are set
//! up one after the other. The test observes etcd from outside: etcd never loses its quorum.

use super::operator::{
    Story, fleet_with_hooks, fleet_with_limits, has_condition, number, phases, run_expecting, wait_quiet,
};
use super::steps::jobs;
use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::host::Power;
use crate::lab::{five, wait_for};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const ALL: &[Story] = &[("A25a power comes back with drift everywhere", power_back)];

/// Maximum time from the start of the second manager until there is a leader.
const LEADER: Duration = Duration::from_secs(30);
/// Maximum time without a leader of etcd. An election takes about a second; after a longer time
/// etcd has no quorum.
const NO_LEADER: Duration = Duration::from_secs(15);

/// The answer of one member of etcd: whether it has a quorum. None: the member does not answer at
/// all.
fn health(member: Ipv4Addr) -> Option<bool> {
    let limit = Duration::from_secs(3);
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((member, 2379)), limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    // An etcd without a quorum may answer only after the read timeout. The member counts as up
    // nevertheless.
    let _ = stream.take(4096).read_to_string(&mut answer);
    Some(answer.contains("\"health\":\"true\""))
}

/// Observations of etcd: the smallest number of members that answered at the same time, and the
/// longest time in which no member had a quorum.
#[derive(Debug)]
struct Watched {
    rounds: usize,
    fewest: usize,
    /// Number of rounds in which not all three members answered. Zero would mean that the test
    /// observed no failure.
    short: usize,
    longest_without: Duration,
}

fn watch(members: &[Ipv4Addr], stop: &AtomicBool) -> Watched {
    let mut seen = Watched { rounds: 0, fewest: members.len(), short: 0, longest_without: Duration::ZERO };
    let mut healthy = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        let answers: Vec<Option<bool>> = members.iter().map(|m| health(*m)).collect();
        let up = answers.iter().flatten().count();
        seen.rounds += 1;
        seen.fewest = seen.fewest.min(up);
        seen.short += usize::from(up < members.len());
        if answers.contains(&Some(true)) {
            healthy = Instant::now();
        }
        seen.longest_without = seen.longest_without.max(healthy.elapsed());
        std::thread::sleep(Duration::from_millis(150));
    }
    seen
}

fn power_back(c: &Cluster) -> Result<()> {
    wait_quiet(c)?;
    let result = c.apply(fleet_with_limits(&[("breaker-min: 6, ", "")])).and_then(|()| run_power_story(c));
    c.apply(fleet_with_hooks)?;
    result?;
    wait_quiet(c)
}

fn on_all_hosts(each: impl Fn(&'static str) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let each = &each;
        let all: Vec<_> = five::HOSTS.map(|host| scope.spawn(move || each(host))).into();
        all.into_iter().try_for_each(|one| one.join().expect("no thread panics"))
    })
}

/// Switches all hosts off, changes a file of each, and switches them on again. Checks that there is
/// a leader soon after the start of the second manager.
fn power_cycle(c: &Cluster) -> Result<()> {
    on_all_hosts(|host| c.lab.poweroff(host, Power::Cut))?;
    for host in five::HOSTS {
        let env = if five::MASTERS.contains(&host) { "/etc/etcd-contiv.env" } else { "/etc/etcd-proxy-contiv.env" };
        let text = [c.lab.read(host, env)?, b"# changed in the dark\n".to_vec()].concat();
        c.lab.push(host, &text, env, 0o644)?;
    }
    let on = std::sync::Mutex::new(Vec::new());
    let led = std::thread::scope(|scope| -> Result<Instant> {
        let leader = scope.spawn(|| {
            wait_for("a leader", PATIENCE, || c.status().ok().filter(|s| s["as_of"]["leader"].is_string()))?;
            Ok::<_, anyhow::Error>(Instant::now())
        });
        on_all_hosts(|host| {
            c.lab.poweron(host)?;
            if five::MASTERS.contains(&host) {
                on.lock().expect("no thread panics").push(Instant::now());
            }
            Ok(())
        })?;
        leader.join().expect("no thread panics")
    })?;
    let second = on.into_inner().expect("no thread panics")[1];
    let took = led.saturating_duration_since(second);
    ensure!(took <= LEADER, "a leader {took:?} after the second manager");
    Ok(())
}

fn run_power_story(c: &Cluster) -> Result<()> {
    let before = c.status()?;
    let runs: Vec<usize> = five::HOSTS.iter().map(|h| Ok(five::runs(&c.lab, h)?.len())).collect::<Result<_>>()?;
    power_cycle(c)?;
    let members: Vec<Ipv4Addr> = five::MASTERS.iter().map(|m| c.lab.host(m).ip).collect();
    wait_for("etcd to have all its members back", PATIENCE, || {
        let all = c.lab.in_net(|| members.iter().all(|m| health(*m) == Some(true)));
        all.is_ok_and(|all| all).then_some(())
    })?;
    let stop = AtomicBool::new(false);
    let (result, seen) = std::thread::scope(|scope| {
        let watched = scope.spawn(|| c.lab.in_net(|| watch(&members, &stop)));
        let result = check_resumed(c, &before, &runs);
        stop.store(true, Ordering::SeqCst);
        (result, watched.join().expect("no thread panics"))
    });
    result?;
    let seen = seen?;
    ensure!(seen.rounds > 50 && seen.short > 0, "etcd was not observed: {seen:?}");
    ensure!(seen.fewest >= 2 && seen.longest_without < NO_LEADER, "etcd lost its quorum: {seen:?}");
    Ok(())
}

fn is_waiting(node: &Value) -> bool {
    let breaker = |c: &Value| c["is"] == "waiting" && c["why"].to_string().contains("breaker");
    node["conditions"].as_array().is_some_and(|all| all.iter().any(breaker))
}

fn check_resumed(c: &Cluster, before: &Value, runs: &[usize]) -> Result<()> {
    for host in five::HOSTS {
        let no = number(row(before, host).context("a row")?, "absences")? + 1;
        let verdict = c.verdict(host, no)?;
        ensure!(verdict["cause"] == "reboot" && verdict["verdict"]["is"] == "drifted", "{host}: {verdict:#}");
    }
    let open = c.wait("all five to wait for an operator", |s| {
        let nodes = s["nodes"].as_array()?;
        (!s["breaker"].is_null() && nodes.iter().all(is_waiting)).then(|| s.clone())
    })?;
    std::thread::sleep(Duration::from_secs(10));
    for (host, before) in five::HOSTS.iter().zip(runs) {
        ensure!(c.ran_since(host, *before)?.is_empty(), "something was run on {host} with the breaker open: {open:#}");
    }
    let text = run_expecting(c, "m1", 1, &["status", "--exit-code"])?;
    ensure!(five::HOSTS.iter().all(|host| text.contains(host)) && text.contains("breaker"), "{text}");
    let last = jobs(c)?.last().map(|j| j["id"].as_u64().unwrap_or(0)).unwrap_or(0);
    run_expecting(c, "m1", 0, &["resume"])?;
    let mut most = 0;
    for done in 1..=five::HOSTS.len() {
        c.wait(&format!("{done} to be repaired"), |s| {
            let nodes = s["nodes"].as_array()?;
            most = most.max(nodes.iter().filter(|n| has_condition(n, "resetup")).count());
            let fine = |n: &&Value| {
                n["job"].is_null() && n["finding"]["verdict"]["is"] == "same" && !has_condition(n, "waiting")
            };
            (nodes.iter().filter(fine).count() >= done).then_some(())
        })?;
    }
    ensure!(most <= 1, "{most} were set up at once");
    for (host, before) in five::HOSTS.iter().zip(runs) {
        let ran = c.ran_since(host, *before)?;
        for service in ["etcd", "contiv_network"] {
            ensure!(phases(&ran, service) == ["cleanup", "provision"], "{host}: {ran:?}");
        }
        ensure!(ran.len() == 4, "{host}: {ran:?}");
    }
    check_sequential(&jobs(c)?.into_iter().filter(|j| j["id"].as_u64() > Some(last)).collect::<Vec<_>>())
}

/// Checks, by the times in the journal, that no attempt began before the previous attempt was
/// closed. So two nodes of a group are never set up at the same time.
fn check_sequential(jobs: &[Value]) -> Result<()> {
    ensure!(jobs.len() == five::HOSTS.len(), "{} jobs", jobs.len());
    let mut spans = Vec::new();
    for attempt in jobs.iter().flat_map(|j| j["attempts"].as_array().into_iter().flatten()) {
        spans.push((number(attempt, "opened")?, attempt["closed"][0].as_u64().context("a closed attempt")?));
    }
    spans.sort_unstable();
    ensure!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "two at once: {spans:?}");
    Ok(())
}
