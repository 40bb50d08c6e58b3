//! Reads the environment of another process from `/proc`.

use std::fs::File;
use std::io::Read;

/// Maximum bytes of one environment. The kernel's limit for a single argument or variable is lower.
const ENVIRON_MAX: u64 = 1 << 20;

/// The variables of the process as `NAME=VALUE` bytes. None if the process is gone or is a zombie,
/// or if the caller has no permission to read them.
pub fn environment(pid: i32) -> Option<Vec<Vec<u8>>> {
    let mut environ = Vec::new();
    File::open(format!("/proc/{pid}/environ")).ok()?.take(ENVIRON_MAX).read_to_end(&mut environ).ok()?;
    Some(environ.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}
