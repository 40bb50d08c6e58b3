//! How fast a playbook is done: 20 tasks on 1 and on 5 hosts, the first time and when nothing is to be changed, beside
//! `ssh host true` and the tools that do the like, in the same run. The hosts are addresses of this machine's loopback with an
//! sshd, keys and homes of their own; nothing of the machine is changed. `make bench-playbooks`, as any user;
//! `REMOOR_BENCH_ROUNDS` (5) says how often. Peers come by pip into a directory below target; one that pip can't have is
//! named and left out.

#[path = "../figures.rs"]
mod figures;
mod node;
mod tools;

use anyhow::{Context, Result, bail, ensure};
use figures::Figure;
use node::{HOSTS, Node};
use tools::{Tool, peers};

const COMMAND: &str = "make bench-playbooks";

/// What one run cost, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub wall: f64,
    /// Processor time of the tool here.
    pub local: f64,
    /// Of everything that sshd started, for all hosts.
    pub node: f64,
}

/// The middle of several runs, each value by itself.
fn middle(costs: &[Cost]) -> Cost {
    let of = |value: fn(&Cost) -> f64| {
        let mut all: Vec<f64> = costs.iter().map(value).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Cost { wall: of(|c| c.wall), local: of(|c| c.local), node: of(|c| c.node) }
}

/// A tool on so many hosts.
struct Pair {
    first: Cost,
    again: Cost,
}

fn main() -> Result<()> {
    let rounds: usize = match std::env::var("REMOOR_BENCH_ROUNDS") {
        Ok(text) => text.parse().context("REMOOR_BENCH_ROUNDS is a number")?,
        Err(_) => 5,
    };
    ensure!(rounds > 0, "REMOOR_BENCH_ROUNDS is at least 1");
    let node = Node::up()?;
    println!("{rounds} rounds on an sshd of its own at 127.0.0.2 to 127.0.0.6; seconds; CPU of all hosts together");
    let remoor = Tool::remoor(&node);
    let tools: Vec<Tool> = std::iter::once(remoor).chain(peers(&node)).collect();
    let mut rows = Vec::new();
    for hosts in [1, HOSTS] {
        let bare = login(&node, hosts, rounds)?;
        println!("{hosts} hosts: ssh true {:.2}", bare.wall);
        let mut pairs: Vec<(&str, Pair)> = Vec::new();
        for tool in &tools {
            match pair(&node, tool, hosts, rounds) {
                Ok(pair) => pairs.push((tool.name, pair)),
                Err(why) if tool.peer => println!("{} ON {hosts} HOSTS, LEFT OUT: {why:#}", tool.name),
                Err(why) => return Err(why.context(tool.name)),
            }
        }
        for (name, Pair { first, again }) in &pairs {
            println!(
                "{hosts} hosts: {name}: first {:.2}, again {:.2}; local CPU {:.2}, {:.2}; node CPU {:.2}, {:.2}",
                first.wall, again.wall, first.local, again.local, first.node, again.node
            );
        }
        rows.push((hosts, bare, pairs));
    }
    let peak = tools::peak(&node)?;
    figures::publish("playbooks", &table(&rows, peak));
    Ok(())
}

/// `ssh host true` on each host, all at once.
fn login(node: &Node, hosts: usize, rounds: usize) -> Result<Cost> {
    let costs: Result<Vec<Cost>> = (0..rounds)
        .map(|_| {
            let list = node::names(hosts).join(" ");
            let line = format!("for h in {list}; do ssh -F \"$0\" $h true & done; wait");
            node.timed(node.command("sh").arg("-c").arg(line).arg(node.path("ssh_config")))
        })
        .collect();
    Ok(middle(&costs?))
}

fn pair(node: &Node, tool: &Tool, hosts: usize, rounds: usize) -> Result<Pair> {
    // Uploads, caches of bytecode and the like come once in a host's life.
    node.timed(&mut (tool.command)(node, hosts))?;
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        node.empty()?;
        first.push(node.timed(&mut (tool.command)(node, hosts))?);
        node.made(hosts)?;
        again.push(node.timed(&mut (tool.command)(node, hosts))?);
    }
    Ok(Pair { first: middle(&first), again: middle(&again) })
}

type Row<'a> = (usize, Cost, Vec<(&'a str, Pair)>);

fn table(rows: &[Row], peak: f64) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (hosts, bare, pairs) in rows {
        let Some((_, ours)) = pairs.first() else { continue };
        let slower: Vec<String> = pairs.iter().map(|(name, pair)| compared(name, pair, ours)).collect();
        let ansible = pairs.iter().find(|(name, _)| *name == tools::ANSIBLE);
        let times = |at_least: f64| {
            ansible.is_none_or(|(_, a)| {
                a.first.wall >= at_least * ours.first.wall && a.again.wall >= at_least * ours.again.wall
            })
        };
        let one = *hosts == 1;
        figures.push(Figure {
            what: if one { "20 tasks, 1 host" } else { "20 tasks, 5 hosts" },
            wanted: if one {
                "20 times faster than ansible-core with pipelining, at most 2 times `ssh host true`"
            } else {
                "25 times faster than ansible-core with pipelining, at most 0.8 s"
            },
            found: format!("{}; `ssh host true` {:.2} s", slower.join("; "), bare.wall),
            met: if one {
                times(20.0) && ours.again.wall <= 2.0 * bare.wall
            } else {
                times(25.0) && ours.first.wall.max(ours.again.wall) <= 0.8
            },
            command: COMMAND,
        });
        if one {
            figures.push(Figure {
                what: "the node's part of such a run",
                wanted: "0.1 s of CPU, 15 MB",
                found: format!("{:.2} s first, {:.2} s again, {peak:.1} MB", ours.first.node, ours.again.node),
                met: ours.first.node.max(ours.again.node) <= 0.1 && peak <= 15.0,
                command: COMMAND,
            });
        }
    }
    figures
}

fn compared(name: &str, pair: &Pair, ours: &Pair) -> String {
    let (first, again) = (pair.first.wall, pair.again.wall);
    let times = match name {
        tools::REMOOR => String::new(),
        _ => format!(" ({:.0} and {:.0} times)", first / ours.first.wall, again / ours.again.wall),
    };
    format!("{name} {first:.2} s first, {again:.2} s again{times}")
}

/// A command that has to succeed, with what it said if it does not.
pub fn well(command: &mut std::process::Command) -> Result<String> {
    let out = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        let all = format!("{said}{}", String::from_utf8_lossy(&out.stderr));
        let tail: Vec<&str> = all.lines().rev().take(8).collect();
        bail!("{}: {}", out.status, tail.into_iter().rev().collect::<Vec<_>>().join(" | "));
    }
    Ok(said)
}
