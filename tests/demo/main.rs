//! The demo: three managers and two workers. With root they are real hosts of the tests' lab.
//! Without root they are ordinary processes of the user. `demo` plays the story and removes
//! everything. With `--keep` or `KEEP=1` it leaves the hosts running, and `demo down` removes them.

mod guard;
#[path = "../lab/mod.rs"]
mod lab;
mod loopback;
mod real;
mod story;
mod world;

use anyhow::{Context, Result, bail};
use lab::Lab;
use loopback::{Loopback, ground};
use real::Real;
use remoor::cli::fold::fold;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use story::Story;
use world::{World, ask, commission, row, status, verdict, wait};

/// The lab name of the hosts. Tests use other names, so that they do not change hosts of a kept
/// demo.
fn name() -> String {
    std::env::var("REMOOR_LAB_NAME").unwrap_or_else(|_| "demo".to_owned())
}

/// The width to which lines of the story are wrapped.
const WIDTH: usize = 130;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        None | Some("--keep") => play(),
        Some("down") => remove_hosts(),
        Some("cut" | "heal") => ground::order(&words.join(" ")),
        Some(guard::WORD) => guard::watch(&name()),
        Some(ground::WORD) => ground::run_base(),
        Some(ground::HOST_WORD) => ground::run_host(&words[1..]),
        Some(other) => {
            bail!("unknown argument {other:?}; use none, --keep, down, or for loopback hosts cut HOST or heal HOST")
        }
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether sudo is available without a password. `REMOOR_HOSTS=loopback` disables its use.
fn may_sudo() -> bool {
    let unwanted = std::env::var_os("REMOOR_HOSTS").is_some_and(|hosts| hosts == "loopback");
    let asks_nothing = || {
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        sudo.status().is_ok_and(|status| status.success())
    };
    !unwanted && asks_nothing()
}

/// Runs the same command as root. This function returns only after a failure.
fn as_root(words: &[&str]) -> anyhow::Error {
    let program = std::env::current_exe().unwrap_or_default();
    anyhow::Error::from(Command::new("sudo").arg("-n").arg(program).args(words).exec()).context("starting sudo")
}

fn remove_hosts() -> Result<()> {
    ground::remove_hosts()?;
    match is_root() {
        true => Lab::remove(&name()),
        false if may_sudo() => Err(as_root(&["down"])),
        false => Ok(()),
    }
}

fn play() -> Result<()> {
    let keep = std::env::args().any(|word| word == "--keep")
        || std::env::var_os("KEEP").is_some_and(|k| !k.is_empty() && k != "0");
    if !is_root() && may_sudo() {
        return Err(as_root(if keep { &["--keep"] } else { &[] }));
    }
    let first_line = if is_root() {
        Lab::available().map_err(|why| anyhow::anyhow!("no real hosts on this machine: {why}"))?;
        Lab::describe()
    } else {
        format!("{} (for real hosts run `sudo -v` first)", Loopback::describe()?)
    };
    let mut story = Story::begin(&format!("remoor demo: {first_line}"));
    let mut world: Box<dyn World> = if is_root() {
        story.stage("Five hosts, each with its own systemd, sshd, disk and address");
        Box::new(Real::start(&name())?)
    } else {
        story.stage("Five hosts, each with its own sshd, directory tree and address");
        Box::new(Loopback::start()?)
    };
    world.introduce()?.iter().for_each(|line| story.print(line));
    if let Err(error) = play_story(&mut story, &mut *world) {
        return Err(match world.save_logs() {
            Ok(dir) => error.context(format!("the daemons' logs are in {}", dir.display())),
            Err(_) => error,
        });
    }
    if keep {
        story.print(&world.keep()?);
        story.print("remove everything:  cargo run --example demo -- down");
    } else {
        story.stage("Remove everything");
        world.end()?;
    }
    story.end();
    Ok(())
}

fn play_story(story: &mut Story, world: &mut dyn World) -> Result<()> {
    story.stage("remoor on all of them: init on m1, the others join by token");
    world.form()?;
    show(story, world, "m1", &["nodes"])?;

    story.stage("Apply the fleet and set everything up");
    world.apply()?;
    commission(world)?;
    show(story, world, "m1", &["status"])?;

    away_and_drifted(story, world)?;
    never_away(story, world)?;
    agent_only(story, world)
}

fn away_and_drifted(story: &mut Story, world: &dyn World) -> Result<()> {
    story.stage("Disconnect w1 from the network, change its configuration meanwhile");
    world.cut("w1")?;
    wait(world, "w1 to be missed", |s| (row(s, "w1")?["presence"] == "away").then_some(()))?;
    show(story, world, "m1", &["status"])?;
    world.wait_isolated("w1")?;
    let script = world.mischief(0);
    world.console("w1", &script)?;
    story.print(&format!("on w1, cut off: {script}"));

    story.stage("Reconnect w1: remoor finds the cause and the drift, and sets w1 up again");
    world.heal("w1")?;
    verdict(world, "w1", 1)?;
    wait(world, "w1 to be repaired", |s| {
        let row = row(s, "w1")?;
        (row["job"].is_null() && row["finding"]["verdict"]["is"] == "same").then_some(())
    })?;
    show(story, world, "m1", &["history", "w1"])?;
    show(story, world, "m1", &["why", "w1"])?;
    story.print("runs on w1, from its own log:");
    for run in world.runs("w1")?.iter().rev().take(2).rev() {
        if let [time, phase, job, attempt, service] = run.split(' ').collect::<Vec<_>>()[..] {
            story.print(&format!("  {time} {phase} job {job} attempt {attempt} {service}"));
        }
    }
    Ok(())
}

fn never_away(story: &mut Story, world: &dyn World) -> Result<()> {
    story.stage("Change a file on w2, which was never away: remoor shows the drift and waits for an order");
    world.console("w2", &world.mischief(1))?;
    wait(world, "the drift of w2 to be seen", |s| {
        (row(s, "w2")?["finding"]["verdict"]["is"] == "drifted").then_some(())
    })?;
    show(story, world, "m1", &["diff", "w2"])?;
    show(story, world, "m1", &["resetup", "w2"])
}

fn agent_only(story: &mut Story, world: &dyn World) -> Result<()> {
    story.stage("Kill only the agent of w2: its services keep running, and remoor runs nothing");
    let before = world.nginx_pid("w2")?;
    let now = status(world)?;
    let absence = row(&now, "w2").context("w2 in the status")?["absences"].as_u64().unwrap_or(0) + 1;
    world.kill_agent("w2")?;
    verdict(world, "w2", absence)?;
    show(story, world, "m1", &["history", "w2", "--limit", "3"])?;
    let after = world.nginx_pid("w2")?;
    story.print(&format!("nginx on w2: process {before} before, {after} after"));
    Ok(())
}

/// Prints a command as an operator types it, and the output of the command. Exit code 1 is an
/// answer and not an error.
fn show(story: &Story, world: &dyn World, host: &str, argv: &[&str]) -> Result<()> {
    story.print(&format!("{host}$ remoor {}", argv.join(" ")));
    let output = ask(world, host, argv)?;
    // Prose is wrapped as on a terminal. A diff is not wrapped.
    let text = output.text();
    story.print(&if matches!(argv[0], "history" | "why") { fold(&text, WIDTH) } else { text });
    story.print(String::from_utf8_lossy(&output.stderr).trim_end());
    if output.code > 1 {
        bail!("remoor {} ended with {}", argv.join(" "), output.code);
    }
    Ok(())
}
