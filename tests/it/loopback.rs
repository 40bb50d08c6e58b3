//! The demo, from its first line until all its traces are removed. With root, the story runs on
//! real hosts, which are kept and then removed. Without root, the story runs on loopback hosts and
//! is also ended by Ctrl-C.
//!
//! If root runs this test, the demo without root runs as an ordinary user. This user exists only in
//! the demo's own view of `/etc/passwd`, because sshd rejects a user without a name and a shell. If
//! a requirement is missing, the test prints a notice and is skipped. With `REMOOR_LAB_REQUIRED` it
//! fails instead.

use crate::lab::Lab;
use crate::lab::five::built_program;
use crate::lab::tool::{Output, command, find_program, run, run_tool, wait_for};
use crate::time_limit::TimeLimit;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Timeout of the demo. The demo takes far less time.
const LIMIT: Duration = Duration::from_secs(900);
const END: Duration = Duration::from_secs(120);
/// A user id that is neither that of "nobody" nor that of a user of the system.
const UID: u32 = 64021;

/// A copy of the programs that every user may read, and a temporary directory that belongs to the
/// user of the demo.
struct Stage {
    dir: tempfile::TempDir,
}

impl Stage {
    fn set() -> Result<Stage> {
        let dir = tempfile::Builder::new().prefix("rl").tempdir()?;
        let path = dir.path().to_str().context("a path in UTF-8")?;
        for part in ["debug/examples", "tmp"] {
            fs::create_dir_all(dir.path().join(part))?;
        }
        fs::copy(built_program("demo")?, dir.path().join("debug/examples/demo"))?;
        fs::copy(built_program("remoor")?, dir.path().join("debug/remoor"))?;
        if let Some(tools) = tools_dir() {
            run_tool(&["cp", "-a", tools.to_str().context("a path in UTF-8")?, &format!("{path}/tools")])?;
        }
        if geteuid().is_root() {
            run_tool(&["chmod", "755", path])?;
            run_tool(&["chown", &UID.to_string(), &format!("{path}/tmp")])?;
            let user_line = format!("player:x:{UID}:{UID}::{path}/tmp:/bin/sh\n");
            fs::write(dir.path().join("passwd"), fs::read_to_string("/etc/passwd")? + &user_line)?;
        }
        Ok(Stage { dir })
    }

    fn demo(&self) -> Command {
        let path = self.dir.path();
        let demo = path.join("debug/examples/demo");
        let mut command = if geteuid().is_root() {
            let mut command = command(&["unshare", "--mount", "--propagation", "private", "sh", "-c"]);
            command.arg("mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"").arg("sh").arg(path.join("passwd"));
            command.args(["setpriv", "--reuid", &UID.to_string(), "--regid", &UID.to_string(), "--clear-groups"]);
            command.arg("--no-new-privs").arg(demo);
            command
        } else {
            Command::new(demo)
        };
        command.env_remove("KEEP").env("REMOOR_HOSTS", "loopback");
        command.env("TMPDIR", path.join("tmp")).env("HOME", path.join("tmp")).current_dir("/");
        command
    }

    /// What is left of a demo: files, and processes whose command lines contain the directory of
    /// this stage.
    fn leftovers(&self) -> Vec<String> {
        let stage = self.dir.path().display().to_string();
        let lines = fs::read_dir("/proc").into_iter().flatten().flatten();
        let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
        let mut left: Vec<String> = lines.filter(|line| line.contains(&stage)).collect();
        let files = fs::read_dir(self.dir.path().join("tmp")).into_iter().flatten().flatten();
        left.extend(files.map(|file| file.path().display().to_string()));
        left
    }
}

/// The directory of the downloads of `tests/tools.sh`.
fn tools_dir() -> Option<PathBuf> {
    let dir = std::env::current_exe().ok()?.ancestors().nth(3)?.join("tools");
    dir.is_dir().then_some(dir)
}

/// The reason why the demo can't run on this machine.
fn lacks() -> Option<String> {
    let here = |name: &str| {
        tools_dir().is_some_and(|dir| dir.join("bin").join(name).is_file()) || find_program(name).is_some()
    };
    let missing: Vec<&str> = ["ssh", "ssh-keygen", "sshd", "nginx", "etcd"].into_iter().filter(|p| !here(p)).collect();
    if !missing.is_empty() {
        return Some(format!("{} missing; tests/tools.sh test says which packages they are in", missing.join(", ")));
    }
    if !geteuid().is_root() {
        return None;
    }
    let private = run(command(&["unshare", "--mount", "setpriv", "--reuid", "1", "true"]), None, END);
    match private.and_then(|output| output.require_success("unshare --mount")) {
        Ok(_) => None,
        Err(why) => Some(format!("root can't become an ordinary user here: {why:#}")),
    }
}

#[test]
fn the_fleet_of_the_loopback_hosts_is_valid() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fleets/loopback");
    let fleet = remoor_config::Fleet::load(&dir).expect("the fleet loads");
    let faults: Vec<String> = remoor::fleet::lint(&fleet).iter().map(ToString::to_string).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_demo_without_root() -> Result<()> {
    if let Some(why) = lacks() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no loopback hosts: {why}");
        eprintln!("SKIPPED: THE DEMO WITHOUT ROOT: {why}");
        return Ok(());
    }
    let stage = Stage::set()?;
    let output = run(stage.demo(), None, LIMIT)?;
    let text = output.text();
    eprintln!("{text}");
    let parts = ["worker_connections", "-> resetup(nginx)", "changed  Stop nginx"];
    check_story(&output, &text, "remoor demo: loopback hosts", 8, &parts)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(stage.leftovers().is_empty(), "the demo left: {:#?}", stage.leftovers());
    check_interrupt(&stage)
}

/// The demo's hosts. Their names differ from those of a demo that a developer keeps. They are
/// always removed when the value is dropped.
struct Kept;

impl Kept {
    const NAME: &str = "kept";

    fn demo(word: &str) -> Result<Command> {
        let mut command = Command::new(built_program("demo")?);
        command.arg(word).env("REMOOR_LAB_NAME", Self::NAME);
        Ok(command)
    }

    /// What is left of the demo's hosts on this machine.
    fn leftovers() -> Result<Vec<String>> {
        let spaces = run_tool(&["ip", "netns", "list"])?;
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let is_ours = |line: &&str| line.contains(&format!(".{}.", Self::NAME)) || line.contains("/labs/kept/");
        Ok(spaces.lines().chain(mounts.lines()).filter(is_ours).map(str::to_owned).collect())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Err(why) = Lab::remove(Self::NAME) {
            eprintln!("the hosts of the demo are still there: {why:#}");
        }
    }
}

#[test]
fn the_demo_with_root() -> Result<()> {
    if let Err(why) = Lab::available() {
        assert!(std::env::var_os("REMOOR_LAB_REQUIRED").is_none(), "no real hosts: {why}");
        eprintln!("SKIPPED: THE DEMO WITH ROOT: {why}");
        return Ok(());
    }
    let kept = Kept;
    let output = run(Kept::demo("--keep")?, None, LIMIT)?;
    let text = output.text();
    eprintln!("{text}");
    let parts = ["vlan-if eth0", "-> resetup(contiv_network)", "changed  Stop netmaster and netplugin", "demo -- down"];
    check_story(&output, &text, "remoor demo: systemd-nspawn hosts", 7, &parts)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(!Kept::leftovers()?.is_empty(), "the hosts were not kept");
    run(Kept::demo("down")?, None, END)?.require_success("demo down")?;
    ensure!(Kept::leftovers()?.is_empty(), "the demo left: {:#?}", Kept::leftovers()?);
    drop(kept);
    Ok(())
}

fn check_story(output: &Output, text: &str, first_line: &str, stages: usize, parts: &[&str]) -> Result<()> {
    ensure!(output.ok(), "the demo ended with {}", output.code);
    let first = text.lines().next().unwrap_or_default();
    ensure!(first.starts_with(first_line), "the first line: {first}");
    for stage in 1..=stages {
        ensure!(text.contains(&format!("\n[{stage}] ")), "no stage {stage}");
    }
    let always = ["(network): drifted", "(agent): same -> nothing to do", "\ndone in "];
    // The story is wrapped between words, so the line ends are removed here.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in always.iter().chain(parts) {
        let words = part.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(flat.contains(&words), "it does not say {part:?}");
    }
    // The demo prints two histories and an explanation of w1. Each of the three contains the
    // evidence for the verdict on w1.
    let evidence = flat.matches("evidence: boot id is the same").count();
    ensure!(evidence >= 3, "evidence is shown {evidence} times");
    let pids = text.lines().find_map(|line| line.trim().strip_prefix("nginx on w2: process "));
    let (before, after) = pids.and_then(|pids| pids.split_once(" before, ")).context("no process of nginx")?;
    ensure!(after == format!("{before} after"), "nginx was restarted: {before}, {after}");
    Ok(())
}

fn check_interrupt(stage: &Stage) -> Result<()> {
    let mut child = stage.demo().stdout(Stdio::piped()).spawn()?;
    // A demo that hangs is killed, which ends its output.
    let _limit = TimeLimit::start(&child, LIMIT);
    let mut lines = BufReader::new(child.stdout.take().context("the demo's output")?).lines();
    let third = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("[3]")));
    ensure!(third.is_some(), "the demo ended before its third stage");
    ensure!(Path::new("/proc").join(child.id().to_string()).exists(), "the demo is gone");
    kill_process(Pid::from_child(&child), Signal::INT)?;
    child.wait()?;
    wait_for("the interrupted demo to be gone", END, || stage.leftovers().is_empty().then_some(()))
        .with_context(|| format!("left: {:#?}", stage.leftovers()))
}
