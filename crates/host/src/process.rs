//! Protects a process whose memory contains keys.

use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit, umask};
use std::io;

/// Only root with the right to trace may read the memory of this process from now on, no core dump
/// is written, and new files are for their owner only. Programs that this process starts inherit
/// the umask 077 and the soft limit of 0 for core files. Call it before the first thread starts,
/// because a thread may create a file.
pub fn protect_process() -> io::Result<()> {
    umask(Mode::from_raw_mode(0o077));
    // The hard limit stays, so that a program that a check starts may write a core file if it asks
    // for that.
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })?;
    // A pipe in kernel.core_pattern ignores the limit, but not this.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
