//! The cost of the daemons at rest: resident memory and processor time from `/proc`, over a time
//! without queries.

use crate::lab::cluster::Cluster;
use crate::lab::five;
use anyhow::{Context, Result};
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

/// The memory and processor time of one daemon.
#[derive(Debug, Clone, Default)]
pub struct Cost {
    rss_kb: u64,
    /// Processor time of the daemon's own process, in ms. `children_ms` is the processor time of
    /// its ended children.
    own_ms: u64,
    children_ms: u64,
    over: Duration,
}

/// The costs of the most expensive agent and of the most expensive manager.
#[derive(Debug, Clone, Default)]
pub struct Rest {
    pub agent: Cost,
    pub manager: Cost,
}

impl Cost {
    pub fn rss_mb(&self) -> f64 {
        self.rss_kb as f64 / 1024.0
    }

    /// Processor time of the daemon's own process, in percent of one core.
    pub fn percent(&self) -> f64 {
        percent(self.own_ms, self.over)
    }

    fn max(self, other: Cost) -> Cost {
        let more = if other.own_ms > self.own_ms { &other } else { &self };
        Cost { rss_kb: self.rss_kb.max(other.rss_kb), ..more.clone() }
    }
}

fn percent(ms: u64, over: Duration) -> f64 {
    ms as f64 / over.as_millis().max(1) as f64 * 100.0
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children = percent(self.children_ms, self.over);
        write!(
            f,
            "{:.1} MB RSS, {:.2} % of a core, {children:.2} % by the programs of checks",
            self.rss_mb(),
            self.percent()
        )
    }
}

impl Rest {
    pub fn max(self, other: Rest) -> Rest {
        Rest { agent: self.agent.max(other.agent), manager: self.manager.max(other.manager) }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent {}; manager {}", self.agent, self.manager)
    }
}

/// Measures the costs of all five daemons at the same time.
pub fn measure(cluster: &Cluster, time: Duration) -> Result<Rest> {
    let pids = five::HOSTS.map(|host| {
        let all = cluster.lab.processes(host);
        all.iter().find(|p| p.comm == "remoor" && p.command.ends_with(" agent")).map(|p| p.outer)
    });
    let begun = Instant::now();
    let before = pids.map(|pid| pid.and_then(|pid| read(pid).ok()));
    std::thread::sleep(time);
    let mut rest = Rest::default();
    for ((host, pid), before) in five::HOSTS.into_iter().zip(pids).zip(before) {
        let (pid, before) = pid.zip(before).with_context(|| format!("no daemon on {host}"))?;
        let after = read(pid)?;
        let cost = Cost {
            rss_kb: after.rss_kb,
            own_ms: after.own_ms - before.own_ms,
            children_ms: after.children_ms - before.children_ms,
            over: begun.elapsed(),
        };
        println!("  {host}: {cost}");
        let place = if five::MASTERS.contains(&host) { &mut rest.manager } else { &mut rest.agent };
        *place = std::mem::take(place).max(cost);
    }
    Ok(rest)
}

fn read(pid: i32) -> Result<Cost> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let rss_kb = rss.trim().trim_end_matches(" kB").parse()?;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The fields of `/proc/ID/stat` after the name in brackets: state is field 3, utime field 14,
    // then stime, cutime, cstime.
    let fields = stat.rsplit_once(") ").context("no name in stat")?.1;
    let ticks: Vec<u64> = fields.split(' ').skip(11).take(4).map(str::parse).collect::<Result<_, _>>()?;
    let ms = |at: usize| ticks.get(at).copied().unwrap_or(0) * 1000 / rustix::param::clock_ticks_per_second();
    Ok(Cost { rss_kb, own_ms: ms(0) + ms(1), children_ms: ms(2) + ms(3), over: Duration::ZERO })
}
