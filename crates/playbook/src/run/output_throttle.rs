//! Limits the output lines that a running command sends. Lines beyond the limit are counted and
//! dropped.

use std::time::{Duration, Instant};

/// Limits of the output of one task: lines, bytes, and lines per second.
const LINES_MAX: usize = 5_000;
const BYTES_MAX: usize = 1 << 20;
const PER_SECOND: usize = 2_000;

/// Lets a limited number of output lines of one task pass, and counts the rest.
#[derive(Default)]
pub struct OutputThrottle {
    lines: usize,
    bytes: usize,
    window: Option<(Instant, usize)>,
    /// Number of output lines that were dropped.
    pub dropped: usize,
}

impl OutputThrottle {
    /// Counts this line and returns whether it is sent.
    pub fn allow_line(&mut self, line: &str) -> bool {
        let (since, count) =
            self.window.filter(|(since, _)| since.elapsed() < Duration::from_secs(1)).unwrap_or((Instant::now(), 0));
        self.window = Some((since, count + 1));
        if count >= PER_SECOND || self.lines >= LINES_MAX || self.bytes + line.len() > BYTES_MAX {
            self.dropped += 1;
            return false;
        }
        self.lines += 1;
        self.bytes += line.len();
        true
    }
}
