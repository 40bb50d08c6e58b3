//! Makes absences and reads their ends from the journal. After the return of a host, the journal is
//! queried only once a second, so that the queries do not change the result.

use crate::lab::cluster::{Cluster, PATIENCE, row};
use crate::lab::wait_for;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const CUT: Duration = Duration::from_secs(75);
/// Time between the network cuts of the two workers of a round. The first worker is repaired before
/// the second one returns.
const LATER: Duration = Duration::from_secs(37);

/// One measured time for each round, in milliseconds.
#[derive(Debug, Default)]
pub struct Times(Vec<u64>);

impl Times {
    pub fn add(&mut self, ms: u64) {
        self.0.push(ms);
    }

    pub fn median(&self) -> u64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        match sorted.len() {
            0 => u64::MAX,
            n => (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
        }
    }
}

impl FromIterator<u64> for Times {
    fn from_iter<T: IntoIterator<Item = u64>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = |ms: Option<&u64>| ms.map_or(0.0, |ms| *ms as f64 / 1000.0);
        let (least, most) = (s(self.0.iter().min()), s(self.0.iter().max()));
        write!(f, "{:.2} s ({least:.2} to {most:.2}, {} rounds)", s(Some(&self.median())), self.0.len())
    }
}

/// The repair of one node that came back drifted.
pub struct Repair {
    /// Time from the node's return, as the journal records it, to the end of the repairing job.
    pub rejoin_ms: u64,
    /// Time from the reconnection of the host's network cable to the end of the repairing job.
    pub cable_ms: u64,
    /// Number of connections that the host's sshd logged between the verdict and the end of the
    /// repairing job.
    pub connections: usize,
}

/// Cuts a host off for a short time without drift. Returns the time in ms from the node's return,
/// as the journal records it, to the verdict.
pub fn returns(cluster: &Cluster, host: &str) -> Result<u64> {
    let no = next_absence(cluster, host)?;
    cluster.lab.cut(host)?;
    wait_until_missed(cluster, host)?;
    cluster.lab.wait_isolated(host)?;
    let healed = now_ms();
    cluster.lab.heal_host(host)?;
    let journal = Journal::read_until(cluster, host, healed, |j| j.conclusion_of(no).is_some())?;
    let finding = &journal.conclusion_of(no).context("a verdict")?["finding"];
    ensure!(finding["verdict"]["is"] == "same", "{host} was not changed: {finding:#}");
    wait_until_quiet(cluster, host)?;
    Ok(time_of(journal.conclusion_of(no))? - time_of(journal.return_of(no))?)
}

/// Cuts off both workers for 75 s each and changes a file of each meanwhile. The second cut begins
/// 37 s after the first, so that no repair waits for the other.
pub fn repairs(cluster: &Cluster, count: usize) -> Result<Vec<Repair>> {
    let mut done = Vec::new();
    while done.len() < count {
        let first = Cut::make(cluster, "w1")?;
        std::thread::sleep(LATER);
        let second = if done.len() + 1 < count { Some(Cut::make(cluster, "w2")?) } else { None };
        done.push(first.end(cluster)?);
        done.extend(second.map(|cut| cut.end(cluster)).transpose()?);
    }
    Ok(done)
}

struct Cut {
    host: &'static str,
    no: u64,
    since: Instant,
}

impl Cut {
    fn make(cluster: &Cluster, host: &'static str) -> Result<Cut> {
        let no = next_absence(cluster, host)?;
        cluster.lab.cut(host)?;
        let since = Instant::now();
        wait_until_missed(cluster, host)?;
        let edit = "sed -i 's/worker_connections 512/worker_connections 500/' /etc/nginx/nginx.conf";
        cluster.lab.shell(host, edit)?;
        Ok(Cut { host, no, since })
    }

    fn end(self, cluster: &Cluster) -> Result<Repair> {
        let Cut { host, no, since } = self;
        if since.elapsed() > CUT {
            bail!("the repair before took so long that {host} was cut for more than {CUT:?}");
        }
        std::thread::sleep(CUT - since.elapsed());
        let healed = now_ms();
        cluster.lab.heal_host(host)?;
        let journal = Journal::read_until(cluster, host, healed, |j| j.end_of_job().is_some())?;
        let finding = &journal.conclusion_of(no).context("a verdict")?["finding"];
        ensure!(finding["verdict"]["is"] == "drifted", "{host} was changed: {finding:#}");
        wait_until_quiet(cluster, host)?;
        let (verdict, done) = (time_of(journal.conclusion_of(no))?, time_of(journal.end_of_job())?);
        let connections = connections(cluster, host, verdict, done)?;
        Ok(Repair { rejoin_ms: done - time_of(journal.return_of(no))?, cable_ms: done - healed, connections })
    }
}

/// One node's journal events since a given time.
struct Journal(Vec<Value>);

impl Journal {
    fn read_until(cluster: &Cluster, host: &str, since: u64, enough: impl Fn(&Journal) -> bool) -> Result<Journal> {
        let end = Instant::now() + PATIENCE;
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let text = cluster.ask(&["history", host, "-o", "json", "--limit", "100"])?;
            let view: Value = serde_json::from_str(&text)?;
            let items = view["items"].as_array().cloned().unwrap_or_default();
            let journal = Journal(items.into_iter().filter(|i| i["at"].as_u64().unwrap_or(0) >= since).collect());
            if enough(&journal) {
                journal.print(host, since);
                return Ok(journal);
            }
            if Instant::now() > end {
                bail!("{host}: nothing came of it: {:#?}", journal.0);
            }
        }
    }

    /// Prints the events with their times, in milliseconds since the cable was reconnected.
    fn print(&self, host: &str, since: u64) {
        let steps: Vec<String> = self
            .0
            .iter()
            .map(|i| {
                let word = if i["what"] == "phase" { &i["phase"] } else { &i["what"] };
                format!("{} {}", word.as_str().unwrap_or("?"), i["at"].as_u64().unwrap_or(since) - since)
            })
            .collect();
        println!("  {host}: {}", steps.join(", "));
    }

    fn find(&self, what: &str, absence: Option<u64>) -> Option<&Value> {
        self.0.iter().find(|i| {
            let no = if what == "concluded" { &i["finding"]["absence"] } else { &i["absence"] };
            i["what"] == what && absence.is_none_or(|absence| *no == absence)
        })
    }

    fn return_of(&self, no: u64) -> Option<&Value> {
        self.find("returned", Some(no))
    }

    fn conclusion_of(&self, no: u64) -> Option<&Value> {
        self.find("concluded", Some(no))
    }

    fn end_of_job(&self) -> Option<&Value> {
        self.find("job-done", None)
    }
}

fn time_of(item: Option<&Value>) -> Result<u64> {
    item.and_then(|i| i["at"].as_u64()).context("the journal lacks an item")
}

fn next_absence(cluster: &Cluster, host: &str) -> Result<u64> {
    Ok(cluster.node(host)?["absences"].as_u64().context("a number of absences")? + 1)
}

fn wait_until_missed(cluster: &Cluster, host: &str) -> Result<()> {
    cluster.wait(&format!("{host} to be missed"), |s| (row(s, host)?["presence"] == "away").then_some(()))
}

fn wait_until_quiet(cluster: &Cluster, host: &str) -> Result<()> {
    cluster.wait(&format!("{host} to be as desired"), |s| {
        let row = row(s, host)?;
        let same = row["finding"]["verdict"]["is"] == "same" && row["presence"] == "alive";
        (same && row["job"].is_null()).then_some(())
    })
}

/// Number of TCP connections that the host's sshd logged between two moments, in ms since 1970.
fn connections(cluster: &Cluster, host: &str, from: u64, to: u64) -> Result<usize> {
    let log = wait_for("sshd's log", PATIENCE, || {
        cluster.lab.shell(host, "journalctl --sync; journalctl -u ssh -o short-unix --no-pager").ok()
    })?;
    let inside = |line: &&str| -> Option<bool> {
        let seconds: f64 = line.split_whitespace().next()?.parse().ok()?;
        let ms = (seconds * 1000.0) as u64;
        Some(line.contains(": Connection from ") && ms >= from && ms <= to)
    };
    Ok(log.lines().filter(|line| inside(line).unwrap_or(false)).count())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
