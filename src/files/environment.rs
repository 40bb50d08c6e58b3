//! What another process has in its environment, as `/proc` tells it. Knows no variable.

use std::fs::File;
use std::io::Read;

/// So much of one environment is read; the kernel's bound for one argument or variable is less.
const ENVIRON_MAX: u64 = 1 << 20;

/// `NAME=VALUE` each, as bytes. None: it is gone, has ended and was not waited for, or is not ours to look into.
pub fn environment(pid: i32) -> Option<Vec<Vec<u8>>> {
    let mut environ = Vec::new();
    File::open(format!("/proc/{pid}/environ")).ok()?.take(ENVIRON_MAX).read_to_end(&mut environ).ok()?;
    Some(environ.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}
