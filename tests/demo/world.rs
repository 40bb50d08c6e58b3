//! The operations on five hosts with remoor that the story needs, for all kinds of hosts; and the
//! queries that are the same for all kinds.

use crate::lab::tool::{Output, wait_for};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

pub use crate::lab::cluster::{PATIENCE, row};

/// The maximum time of an election on a busy machine.
const ELECTION: Duration = Duration::from_secs(120);

/// Five running hosts: m1, m2, m3, w1, w2.
pub trait World {
    /// Installs and starts remoor on all hosts. Returns when all nodes are alive in gossip.
    fn form(&mut self) -> Result<()>;
    /// Applies the fleet directory of the demo.
    fn apply(&self) -> Result<()>;
    /// A description of each host in one line.
    fn introduce(&self) -> Result<Vec<String>>;
    /// Runs `remoor` on a host.
    fn remoor(&self, host: &str, argv: &[&str]) -> Result<Output>;
    /// Runs a script on a host's console, even if the host is cut off. Returns an error unless the
    /// script ends with 0.
    fn console(&self, host: &str, script: &str) -> Result<()>;
    /// Disconnects the host's network cable.
    fn cut(&self, host: &str) -> Result<()>;
    fn heal(&self, host: &str) -> Result<()>;
    fn wait_isolated(&self, host: &str) -> Result<()>;
    /// The shell command by which a colleague damages a host. `occasion` is the number of the
    /// damage.
    fn mischief(&self, occasion: usize) -> String;
    /// Kills the agent of a host, as in a crash. No other process ends.
    fn kill_agent(&self, host: &str) -> Result<()>;
    fn nginx_pid(&self, host: &str) -> Result<u32>;
    /// The host's own log of its playbook runs, oldest first.
    fn runs(&self, host: &str) -> Result<Vec<String>>;
    /// Copies the logs of the daemons into the build directory, for the analysis of a failure.
    fn save_logs(&self) -> Result<PathBuf>;
    /// Leaves the hosts running. Returns a text about how to use and remove them.
    fn keep(self: Box<Self>) -> Result<String>;
    /// Removes all hosts, and waits until they have ended.
    fn end(self: Box<Self>) -> Result<()>;
}

/// Runs a command. If no leader is known, for example after a leadership transfer, the command is
/// repeated for at most `ELECTION`. Exit code 3 means that nothing was changed.
pub fn ask(world: &dyn World, host: &str, argv: &[&str]) -> Result<Output> {
    let asked = std::time::Instant::now();
    loop {
        let output = world.remoor(host, argv)?;
        if output.code != 3 || asked.elapsed() > ELECTION {
            return Ok(output);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The status that m1 reports.
pub fn status(world: &dyn World) -> Result<Value> {
    let output = world.remoor("m1", &["status", "-o", "json"])?.require_success("remoor status")?;
    serde_json::from_str(&output.text()).context("the output of status")
}

/// Repeats the status query until `ask` returns a value.
pub fn wait<T>(world: &dyn World, what: &str, mut ask: impl FnMut(&Value) -> Option<T>) -> Result<T> {
    let mut last = Value::Null;
    wait_for(what, PATIENCE, || {
        last = status(world).ok()?;
        ask(&last)
    })
    .with_context(|| format!("the last status: {last:#}"))
}

/// Waits for the verdict on absence `no` of a node.
pub fn verdict(world: &dyn World, node: &str, no: u64) -> Result<()> {
    let mut message = String::new();
    wait_for(&format!("the verdict on absence {no} of {node}"), PATIENCE, || {
        message = world.remoor("m1", &["history", node, "-o", "json"]).ok()?.text();
        let view: Value = serde_json::from_str(&message).ok()?;
        view["items"].as_array()?.iter().find(|i| i["what"] == "concluded" && i["finding"]["absence"] == no).map(drop)
    })
    .with_context(|| format!("the history: {message}"))
}

/// Commissions all five nodes, and waits until each is as desired.
pub fn commission(world: &dyn World) -> Result<()> {
    for host in crate::lab::five::HOSTS {
        ask(world, "m1", &["commission", host, "--detach"])?.require_success("remoor commission")?;
    }
    wait(world, "all to be commissioned", |status| {
        let mut nodes = status["nodes"].as_array()?.iter();
        nodes.all(|n| n["lifecycle"] == "commissioned" && n["job"].is_null()).then_some(())
    })
}
