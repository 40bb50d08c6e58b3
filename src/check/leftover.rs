//! Ends what a command left running outside its process group: found by a mark in the environment, which children inherit.
//!
//! Whatever clears its environment, or runs as somebody into whose environment this process may not look, is not found.

use crate::files::environment;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "REMOOR_CHECK";
/// Longest search: what starts others faster than they are ended is left to itself.
const SEARCH: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// The mark of one command and of all that it starts.
pub(super) struct Mark(String);

impl Mark {
    /// Puts a mark of its own into the environment of `command`.
    pub fn put(command: &mut Command) -> Result<Self, String> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|e| e.to_string())?;
        let mark = hex::encode(random);
        command.env(NAME, &mark);
        Ok(Self(format!("{NAME}={mark}")))
    }

    /// Kills all that carry the mark, until none is left. False: some may be.
    pub fn end_all(&self) -> bool {
        let deadline = Instant::now() + SEARCH;
        while self.kill_each() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(PAUSE);
        }
        true
    }

    /// True: there was one.
    fn kill_each(&self) -> bool {
        let Ok(entries) = fs::read_dir("/proc") else { return false };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).filter(|pid| self.is_on(*pid)).fold(false, |_, pid| {
            // Gone meanwhile, or its number another's: the mark is looked for again through what holds the number.
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
