//! The figures of five real hosts: the times until a returning node has its verdict and until it is
//! repaired, the cost of the daemons at rest, and the logins of managers. Run the bench as root
//! with `cargo bench --bench hosts`. `REMOOR_BENCH_ROUNDS` (20) is the number of repetitions. Times
//! come from remoor's journal, except the moment at which the bench reconnects a host's cable.

#[path = "../figures.rs"]
mod figures;
#[path = "../../tests/lab/mod.rs"]
mod lab;
mod rest;
mod rounds;

use anyhow::{Context, Result, bail};
use figures::Figure;
use lab::cluster::Cluster;
use lab::{Lab, five};
use rest::Rest;
use rounds::{Repair, Times};
use std::time::Duration;

const COMMAND: &str = "cargo bench --bench hosts";
/// A wait that is longer than `leader-grace`, the time in which a new leader repairs nothing.
const GRACE: Duration = Duration::from_secs(70);
const AT_REST: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    if let Err(why) = Lab::available() {
        bail!("no real hosts on this machine: {why}");
    }
    let count = match std::env::var("REMOOR_BENCH_ROUNDS") {
        Ok(text) => text.parse().context("REMOOR_BENCH_ROUNDS is a number")?,
        Err(_) => 20,
    };
    println!(
        "{}; {count} rounds; defaults, but flap-count: 1000 (3), so that so many absences are not flapping",
        Lab::describe()
    );
    println!("and sshd's LogLevel VERBOSE on the workers, so that it logs each TCP connection");
    let name = std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "bench".into());
    let hosts = Lab::start(&name, &five::HOSTS)?;
    hosts.give_identity(&five::MASTERS)?;
    five::install_contiv(&hosts, &five::built_program("contiv-standin")?)?;
    let cluster = Cluster::create(hosts)?;
    let measured = measure(&cluster, count);
    if measured.is_err() {
        cluster.save_logs("bench")?;
    }
    figures::publish("hosts", &measured?);
    Ok(())
}

fn fleet_without_flapping(path: &str, text: String) -> String {
    if path == "remoor.yml" { format!("{text}\nlimits: {{flap-count: 1000}}\n") } else { text }
}

fn measure(cluster: &Cluster, count: usize) -> Result<Vec<Figure>> {
    for host in five::WORKERS {
        let line = "echo LogLevel VERBOSE > /etc/ssh/sshd_config.d/bench.conf; systemctl reload ssh";
        cluster.lab.shell(host, line)?;
    }
    cluster.apply(fleet_without_flapping)?;
    cluster.commission()?;
    std::thread::sleep(GRACE);
    let first = rest::measure(cluster, AT_REST)?;
    println!("at rest, before: {first}");
    let mut verdicts = Times::default();
    for round in 0..count {
        verdicts.add(rounds::returns(cluster, five::WORKERS[round % 2])?);
    }
    println!("rejoin to verdict: {verdicts}");
    let repairs = rounds::repairs(cluster, count)?;
    let times = |of: fn(&Repair) -> u64| repairs.iter().map(of).collect::<Times>();
    let (rejoin, cable) = (times(|r| r.rejoin_ms), times(|r| r.cable_ms));
    println!("rejoin to repaired: {rejoin}\ncable back to repaired: {cable}");
    let logins = repairs.iter().map(|r| r.connections).collect::<Vec<_>>();
    println!("connections from verdict to closed job: {logins:?}");
    std::thread::sleep(GRACE);
    let last = rest::measure(cluster, AT_REST)?;
    println!("at rest, after: {last}");
    Ok(table(&verdicts, &rejoin, &cable, &logins, &first.max(last)))
}

fn table(verdicts: &Times, rejoin: &Times, cable: &Times, logins: &[usize], rest: &Rest) -> Vec<Figure> {
    let time = |what, wanted, most, times: &Times| Figure {
        what,
        wanted,
        found: times.to_string(),
        met: times.median() <= most,
        command: COMMAND,
    };
    let (least, most) = (logins.iter().min().copied().unwrap_or(0), logins.iter().max().copied().unwrap_or(0));
    let (agent, manager) = (&rest.agent, &rest.manager);
    vec![
        time("rejoin to verdict, no drift", "2 s", 2_000, verdicts),
        time("rejoin to repaired (nginx and one template)", "5 s", 5_000, rejoin),
        time("cable back to repaired, after a cut of 75 s", "10 s", 10_000, cable),
        Figure {
            what: "agent at rest",
            wanted: "12 MB RSS, 0.1 % of a core",
            found: agent.to_string(),
            met: agent.rss_mb() <= 12.0 && agent.percent() <= 0.1,
            command: COMMAND,
        },
        Figure {
            what: "manager at rest, 5 nodes",
            wanted: "30 MB RSS",
            found: manager.to_string(),
            met: manager.rss_mb() <= 30.0,
            command: COMMAND,
        },
        Figure {
            what: "TCP connections in the node's sshd log, from verdict to closed job",
            wanted: "1",
            found: format!("{least} to {most}, {} jobs", logins.len()),
            met: (least, most) == (1, 1),
            command: COMMAND,
        },
    ]
}
