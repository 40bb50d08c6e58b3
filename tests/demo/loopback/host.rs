//! The first process of one loopback host. It adopts orphaned processes of the host, runs sshd, and
//! restarts the agent when the agent ends, as systemd would. It ends together with the base
//! process.

use super::place::{self, Place, Programs};
use super::tree;
use anyhow::{Context, Result};
use rustix::process::{Pid, WaitOptions, getppid, set_child_subreaper, wait};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(50);
/// Pause before a restart, as RestartSec of the systemd unit.
const RESTART: Duration = Duration::from_secs(1);

/// Runs until the base process ends.
pub fn run(place: &Place, host: &str) -> Result<()> {
    let ground = getppid();
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let programs = Programs::find()?;
    let mut sshd = Command::new(&programs.sshd);
    sshd.args(["-D", "-e", "-f"]).arg(place.dir(host).join("ssh/sshd_config"));
    let _reaped_below = spawn(sshd, place, host, "sshd")?;
    let mut agent: Option<Pid> = None;
    let mut due = Instant::now();
    while getppid() == ground {
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            if agent == Some(pid) {
                (agent, due) = (None, Instant::now() + RESTART);
            }
        }
        if agent.is_none() && Instant::now() >= due && place.data(host).join("identity.json").exists() {
            let mut command = Command::new(&programs.remoor);
            command.arg("agent").arg("--dir").arg(place.data(host)).arg("--socket").arg(place.socket(host));
            agent = Some(Pid::from_child(&spawn(command, place, host, "remoor")?));
        }
        std::thread::sleep(TICK);
    }
    tree::end_all_below_me()
}

fn spawn(mut command: Command, place: &Place, host: &str, name: &str) -> Result<Child> {
    let log = place.dir(host).join(format!("log/{name}.log"));
    let log = File::options().create(true).append(true).open(&log).with_context(|| log.display().to_string())?;
    command.env("PATH", place::search_path()).env("REMOOR_HOST", host).current_dir(place.dir(host));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("starting {name} of {host}"))
}
