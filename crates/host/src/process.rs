//! Protects a process whose memory contains keys.

use rustix::fs::Mode;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, geteuid, getrlimit, set_dumpable_behavior, setrlimit, umask,
};
use std::io;

/// If this process runs as root, only root with the right to trace may read its memory from now on.
/// No core file is written, and new files are for their owner only. Programs that this process
/// starts inherit the umask 077 and the soft limit of 0 for core files. Call this function before
/// the first thread starts, because a thread may create a file.
pub fn protect_process() -> io::Result<()> {
    umask(Mode::from_raw_mode(0o077));
    // The hard limit stays, so that a program that a check starts can raise its own limit and write
    // a core file.
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum })?;
    // If kernel.core_pattern is a pipe, the kernel ignores the limit, but not this setting. A
    // daemon without root is not protected, because its user can read its keys from its files
    // anyway. In addition, a demo that such a user runs must find its daemons' sockets in /proc.
    if geteuid().is_root() {
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}
