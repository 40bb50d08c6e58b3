//! Removes the hosts when the demo ends in any way, also by Ctrl-C or kill -9. The guard is a
//! second process of the same program, in its own process group. It waits until the demo's end of a
//! pipe is closed.

use super::lab::Lab;
use anyhow::{Context, Result};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The argument that makes the program a guard.
pub const WORD: &str = "guard";

pub struct Guard(Child);

impl Guard {
    pub fn post() -> Result<Guard> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        command.spawn().map(Guard).context("starting the demo's guard")
    }

    /// Ends the guard without removing the hosts.
    pub fn keep(mut self) -> Result<()> {
        self.0.stdin.take().context("the guard's pipe")?.write_all(b"keep").context("writing to the demo's guard")?;
        self.0.wait().map(drop).context("the demo's guard")
    }

    /// Lets the guard remove the hosts, and waits until it has done so.
    pub fn end(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        self.0.wait().map(drop).context("the demo's guard")
    }
}

/// The main function of the guard process.
pub fn watch(lab: &str) -> Result<()> {
    let mut message = Vec::new();
    std::io::stdin().read_to_end(&mut message)?;
    if message.is_empty() { Lab::remove(lab) } else { Ok(()) }
}
