//! The demo: three managers and two workers, real hosts of the tests' lab. `demo` plays the story and leaves nothing behind;
//! with `KEEP=1` it leaves the hosts up, and `demo down` removes them. What the hosts are made of is `tests/lab`.

mod guard;
#[path = "../lab/mod.rs"]
mod lab;
mod story;

use anyhow::{Result, bail};
use lab::cluster::{Cluster, row};
use lab::{Lab, five};
use story::Story;

const NAME: &str = "demo";

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        None | Some("--keep") => play(),
        Some(guard::WORD) => guard::watch(NAME),
        Some("down") => Lab::remove(NAME),
        Some(other) => bail!("demo knows no {other:?}; it takes nothing, or down"),
    }
}

fn play() -> Result<()> {
    if let Err(why) = Lab::available() {
        bail!("no real hosts on this machine: {why}");
    }
    let mut story = Story::begin(&format!("remoor demo: {}", Lab::describe()));
    let guard = guard::Guard::post()?;
    story.stage("Five hosts, each with its own systemd, sshd, disk and address");
    let hosts = Lab::up(NAME, &five::HOSTS)?;
    for host in five::hosts(&hosts) {
        story.say(&format!("{} {:<13} boot {}", host.name, host.ip, hosts.boot_id(&host.name)?));
    }
    hosts.give_identity(&five::MASTERS)?;
    five::install_contiv(&hosts, &five::built("contiv-standin")?)?;

    story.stage("remoor on all of them: init on m1, the others join by token");
    let cluster = Cluster::up(hosts)?;
    show(&story, &cluster, "m1", &["nodes"])?;

    story.stage("Apply the fleet and set everything up: etcd, contiv's network, nginx");
    cluster.apply(demo_limits)?;
    cluster.commission()?;
    show(&story, &cluster, "m1", &["status"])?;

    away_and_drifted(&mut story, &cluster)?;
    never_away(&mut story, &cluster)?;
    agent_only(&mut story, &cluster)?;

    if std::env::args().any(|word| word == "--keep")
        || std::env::var_os("KEEP").is_some_and(|k| !k.is_empty() && k != "0")
    {
        story.say(&cluster.lab.keep());
        story.say("use it:             sudo ip netns exec or the lab's console; `remoor status` on m1");
        guard.keep()?;
        story.say("remove it all:      cargo run --example demo -- down");
    } else {
        story.stage("Take it all down");
        drop(cluster);
        guard.end()?;
    }
    story.end();
    Ok(())
}

/// The defaults, but for the minute that a new leader waits before it repairs anything.
fn demo_limits(path: &str, text: String) -> String {
    if path == "remoor.yml" { format!("{text}\nlimits: {{leader-grace: 5s}}\n") } else { text }
}

fn away_and_drifted(story: &mut Story, cluster: &Cluster) -> Result<()> {
    story.stage("Pull w1's network, change its configuration meanwhile");
    let lab = &cluster.lab;
    lab.cut("w1")?;
    cluster.wait("w1 to be missed", |s| (row(s, "w1")?["presence"] == "away").then_some(()))?;
    show(story, cluster, "m1", &["status"])?;
    lab.wait_isolated("w1")?;
    lab.shell("w1", "sed -i s/eth0/eth9/ /etc/default/netplugin")?;
    story.say("on w1, cut off: sed -i s/eth0/eth9/ /etc/default/netplugin");

    story.stage("Plug it in again: why was it away, did it drift, set it up");
    lab.heal_host("w1")?;
    cluster.verdict("w1", 1)?;
    cluster.wait("w1 to be repaired", |s| {
        let row = row(s, "w1")?;
        (row["job"].is_null() && row["finding"]["verdict"]["is"] == "same").then_some(())
    })?;
    show(story, cluster, "m1", &["history", "w1"])?;
    show(story, cluster, "m1", &["why", "w1"])?;
    story.say("what was run on w1, from its own log:");
    for run in five::runs(lab, "w1")?.iter().rev().take(2).rev() {
        story.say(&format!("  {} {} job {} attempt {} {}", run.time, run.phase, run.job, run.attempt, run.service));
    }
    Ok(())
}

fn never_away(story: &mut Story, cluster: &Cluster) -> Result<()> {
    story.stage("Change a file on w2, which was never away: shown, not touched, until somebody says so");
    cluster.lab.shell("w2", "sed -i 's/eth0/eth7/' /etc/default/netplugin")?;
    cluster.wait("the drift of w2 to be seen", |s| {
        (row(s, "w2")?["finding"]["verdict"]["is"] == "drifted").then_some(())
    })?;
    show(story, cluster, "m1", &["diff", "w2"])?;
    show(story, cluster, "m1", &["resetup", "w2"])?;
    Ok(())
}

fn agent_only(story: &mut Story, cluster: &Cluster) -> Result<()> {
    story.stage("Kill only the agent of w2: its services run on, and nothing is run");
    let before = five::main_pid(&cluster.lab, "w2", "nginx.service")?;
    let absence = cluster.node("w2")?["absences"].as_u64().unwrap_or(0) + 1;
    cluster.lab.kill("w2", "remoor", rustix::process::Signal::KILL)?;
    cluster.verdict("w2", absence)?;
    show(story, cluster, "m1", &["history", "w2", "--limit", "3"])?;
    let after = five::main_pid(&cluster.lab, "w2", "nginx.service")?;
    story.say(&format!("nginx on w2: process {before} before, {after} after"));
    Ok(())
}

/// The command as an operator types it, and what it prints. `1` is an answer too.
fn show(story: &Story, cluster: &Cluster, host: &str, argv: &[&str]) -> Result<()> {
    story.say(&format!("{host}$ remoor {}", argv.join(" ")));
    let output = cluster.run(host, argv)?;
    story.say(&output.text());
    story.say(String::from_utf8_lossy(&output.stderr).trim_end());
    if output.code > 1 {
        bail!("remoor {} ended with {}", argv.join(" "), output.code);
    }
    Ok(())
}
