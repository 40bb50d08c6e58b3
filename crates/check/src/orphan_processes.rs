//! Kills processes that a command left running outside its process group. They are found by a mark
//! in the environment, which child processes inherit.
//!
//! A process is not found if it clears its environment. It is not found either if it runs as
//! another user and remoor cannot read its environment.

use remoor_host::files::environment;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "REMOOR_CHECK";
/// Maximum duration of the search. Processes that start others faster than they can be killed are
/// left running.
const SEARCH: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// The mark of one command and of all processes that it starts.
pub(super) struct EnvironmentMark(String);

impl EnvironmentMark {
    /// Puts a new random mark into the environment of `command`.
    pub fn put_into(command: &mut Command) -> Result<Self, String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|e| e.to_string())?;
        let mark = hex::encode(random);
        command.env(NAME, &mark);
        Ok(Self(format!("{NAME}={mark}")))
    }

    /// Kills all processes with this mark until none is left. Returns false if some may still run.
    pub fn kill_all(&self) -> bool {
        let deadline = Instant::now() + SEARCH;
        while self.kill_each() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    /// Kills each process with this mark once. Returns true if a process was found.
    fn kill_each(&self) -> bool {
        let Ok(entries) = fs::read_dir("/proc") else { return false };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).filter(|pid| self.is_on(*pid)).fold(false, |_, pid| {
            // The process may have ended, and its id may belong to another process. The mark is
            // therefore checked again after opening the pidfd, which pins the process.
            if let Ok(held) = pidfd_open(pid, PidfdFlags::empty())
                && self.is_on(pid)
            {
                let _ = pidfd_send_signal(held, Signal::KILL);
            }
            true
        })
    }

    fn is_on(&self, pid: Pid) -> bool {
        let variables = environment(pid.as_raw_nonzero().get());
        variables.is_some_and(|all| all.iter().any(|variable| variable == self.0.as_bytes()))
    }
}
