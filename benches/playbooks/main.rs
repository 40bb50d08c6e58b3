//! The speed of a playbook of 20 tasks, compared with `ssh host true` and similar tools in the same
//! run. Cases: 1, 5, 20 and 50 hosts, for the first time and again without changes; check mode; a
//! slow link; and this machine itself.
//!
//! The hosts are addresses of this machine's loopback with their own sshds, keys and homes. Nothing
//! of the machine is changed. Any user can run the bench with `make bench-playbooks`.
//! `REMOOR_BENCH_ROUNDS` (5) is the number of repetitions, `REMOOR_BENCH_HOSTS` (50) the maximum
//! number of hosts. Other tools are installed with pip or unpacked from Debian packages into
//! directories below target. A missing tool is named and left out.

#[path = "../figures.rs"]
mod figures;
mod here;
mod node;
mod relay;
mod table;
mod tools;

use anyhow::{Context, Result, bail, ensure};
use node::{COUNTS, HOSTS, Node};
use std::fmt;
use tools::{Case, Kind, Tool};

/// The times of one run of a tool, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub wall: f64,
    /// Processor time that the tool takes on this machine, outside of the sshds.
    pub local: f64,
    /// Processor time of all processes that the sshds started, for all hosts.
    pub node: f64,
}

/// The median of several values, and their spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub middle: f64,
    pub least: f64,
    pub most: f64,
    pub runs: usize,
}

impl Spread {
    pub fn median_of(costs: &[Cost], value: impl Fn(&Cost) -> f64) -> Self {
        let mut all: Vec<f64> = costs.iter().map(value).collect();
        all.sort_by(f64::total_cmp);
        let at = |n: usize| all.get(n).copied().unwrap_or(f64::NAN);
        Self { middle: at(all.len() / 2), least: at(0), most: at(all.len().saturating_sub(1)), runs: all.len() }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.runs {
            1 => write!(f, "{:.2} s (once)", self.middle),
            _ => write!(f, "{:.2} s ({:.2} to {:.2})", self.middle, self.least, self.most),
        }
    }
}

/// The runs of a tool in one case. `again` is empty if the tool was too slow for a second run.
pub struct Runs {
    pub name: &'static str,
    pub kind: Kind,
    pub first: Vec<Cost>,
    pub again: Vec<Cost>,
}

impl Runs {
    pub fn wall(&self) -> (Spread, Spread) {
        (Spread::median_of(&self.first, |c| c.wall), Spread::median_of(&self.again, |c| c.wall))
    }
}

/// The results of all cases.
pub struct Found {
    /// The results for each number of hosts.
    pub near: Vec<(usize, Vec<Runs>)>,
    pub far: Vec<Runs>,
    pub check: Vec<Runs>,
    pub local: Vec<here::Local>,
    /// Time of a run on a host that lacks the program remoor. The run includes the upload of the
    /// program.
    pub upload: Spread,
    /// Memory of the executor in MB, for each of several runs.
    pub peaks: Vec<f64>,
}

fn main() -> Result<()> {
    let rounds = number_from_env("REMOOR_BENCH_ROUNDS", 5)?;
    let most = number_from_env("REMOOR_BENCH_HOSTS", HOSTS)?;
    let node = Node::start()?;
    println!("{rounds} rounds on sshds of its own at 127.0.0.2 to 127.0.0.51; seconds; CPU of all hosts together");
    let upload = upload(&node, rounds)?;
    let mut tools = tools::available_tools(&node);
    // This run is not measured. It fills the tools' caches, such as bytecode. Each tool fills its
    // cache only once for a host.
    tools.retain(|tool| match node.measure(&mut (tool.command)(&node, Case::on_hosts(1))) {
        Err(why) if tool.kind == Kind::Peer => {
            println!("{} DOES NOT RUN HERE, LEFT OUT: {why:#}", tool.name);
            false
        }
        _ => true,
    });
    let near = |hosts| -> Result<_> { Ok((hosts, runs(&node, &tools, Case::on_hosts(hosts), rounds)?)) };
    let near = COUNTS.into_iter().filter(|count| *count <= most).map(near).collect::<Result<_>>()?;
    let far = runs(&node, &tools, Case { far: true, ..Case::on_hosts(1) }, rounds)?;
    let check = checks(&node, &tools, rounds)?;
    let local = here::runs(&node, rounds)?;
    let peaks = (0..rounds).map(|_| tools::peak(&node)).collect::<Result<_>>()?;
    figures::publish("playbooks", &table::rows(&Found { near, far, check, local, upload, peaks }));
    Ok(())
}

/// The value of an environment variable, or `otherwise` if it is not set. The value must be at
/// least 1.
fn number_from_env(name: &str, otherwise: usize) -> Result<usize> {
    let Ok(text) = std::env::var(name) else { return Ok(otherwise) };
    text.parse().ok().filter(|n| *n > 0).with_context(|| format!("{name} is a number, at least 1"))
}

/// Measures the upload of the program remoor to a host that has never had it. Afterwards all hosts
/// have the program.
fn upload(node: &Node, rounds: usize) -> Result<Spread> {
    let mut costs = Vec::new();
    for _ in 0..rounds {
        node.forget()?;
        costs.push(node.measure(&mut tools::remoor(node, Case::on_hosts(1)))?.0);
    }
    node.spread()?;
    Ok(Spread::median_of(&costs, |c| c.wall))
}

/// The number of runs of a tool. It is smaller for cases in which some tools take a minute.
fn repetitions(kind: Kind, case: Case, rounds: usize) -> usize {
    match (kind, case.hosts) {
        (Kind::Peer, 20..) => 1,
        (Kind::Peer, hosts) if hosts > 1 || case.far => rounds.min(3),
        _ => rounds,
    }
}

/// Runs all tools in a case. The tools alternate in each round, so that other load on this machine
/// affects all of them.
fn runs(node: &Node, tools: &[Tool], case: Case, rounds: usize) -> Result<Vec<Runs>> {
    let new = |tool: &Tool| Runs { name: tool.name, kind: tool.kind, first: Vec::new(), again: Vec::new() };
    let mut all: Vec<Runs> = tools.iter().map(new).collect();
    let mut out = Vec::new();
    for round in 0..rounds {
        for (tool, runs) in tools.iter().zip(&mut all) {
            if round >= repetitions(tool.kind, case, rounds) || out.contains(&tool.name) {
                continue;
            }
            match run_twice(node, tool, case, runs) {
                Ok(()) => {}
                Err(why) if tool.kind == Kind::Peer => {
                    println!("{} ON {} HOSTS, LEFT OUT: {why:#}", tool.name, case.hosts);
                    out.push(tool.name);
                }
                Err(why) => return Err(why.context(tool.name)),
            }
        }
    }
    all.retain(|runs| !out.contains(&runs.name));
    for runs in &all {
        let (first, again) = runs.wall();
        let cpu = |value: fn(&Cost) -> f64| {
            (Spread::median_of(&runs.first, value).middle, Spread::median_of(&runs.again, value).middle)
        };
        let (local, there) = (cpu(|c| c.local), cpu(|c| c.node));
        let (hosts, name) = (case.hosts, runs.name);
        let far = if case.far { ", a long way" } else { "" };
        println!(
            "{hosts} hosts{far}: {name}: first {first}, again {again}; local CPU {:.2}, {:.2}; node CPU {:.2}, {:.2}",
            local.0, local.1, there.0, there.1
        );
    }
    Ok(all)
}

/// Runs a tool for the first time, and again without changes.
fn run_twice(node: &Node, tool: &Tool, case: Case, runs: &mut Runs) -> Result<()> {
    let run = || Ok::<_, anyhow::Error>(node.measure(&mut (tool.command)(node, case))?.0);
    if tool.name == tools::LOGIN {
        runs.first.push(run()?);
        runs.again.push(run()?);
        return Ok(());
    }
    node.empty()?;
    runs.first.push(run()?);
    node.check_done(case.hosts)?;
    // On 50 hosts the other tools are known to be slow: a second run of all of them would take a
    // third of an hour.
    if tool.kind == Kind::Peer && case.hosts >= 50 {
        return Ok(());
    }
    runs.again.push(run()?);
    node.check_done(case.hosts)
}

/// Runs the tools in check mode with differences. Five of the twenty tasks would change something.
fn checks(node: &Node, tools: &[Tool], rounds: usize) -> Result<Vec<Runs>> {
    let case = Case { check: true, ..Case::on_hosts(1) };
    node.measure(&mut tools::remoor(node, Case::on_hosts(1)))?;
    node.spoil(1)?;
    let mut all = Vec::new();
    for tool in tools.iter().filter(|tool| tool.checks) {
        let mut runs = Runs { name: tool.name, kind: tool.kind, first: Vec::new(), again: Vec::new() };
        for _ in 0..repetitions(tool.kind, Case { hosts: 5, ..case }, rounds) {
            let (cost, text) = node.measure(&mut (tool.command)(node, case)).context(tool.name)?;
            ensure!(text.contains("-port 0"), "{} shows no difference: {text}", tool.name);
            node.check_spoilt(1).context(tool.name)?;
            runs.first.push(cost);
        }
        println!("1 host, checked: {}: {}", tool.name, runs.wall().0);
        all.push(runs);
    }
    Ok(all)
}

/// Runs a command that must succeed. The error contains its output.
pub fn run_tool(command: &mut std::process::Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        let all = format!("{text}{}", String::from_utf8_lossy(&out.stderr));
        let tail: Vec<&str> = all.lines().rev().take(8).collect();
        bail!("{}: {}", out.status, tail.into_iter().rev().collect::<Vec<_>>().join(" | "));
    }
    Ok(text)
}
