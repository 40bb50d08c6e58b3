//! How much of a command's output is told while it runs: the rest is counted and left out.

use std::time::{Duration, Instant};

/// Output events of one task: lines, bytes, and lines per second.
const LINES_MAX: usize = 5_000;
const BYTES_MAX: usize = 1 << 20;
const PER_SECOND: usize = 2_000;

/// Lets so many lines through, and counts the rest.
#[derive(Default)]
pub struct Faucet {
    lines: usize,
    bytes: usize,
    window: Option<(Instant, usize)>,
    /// Lines that were not let through.
    pub dropped: usize,
}

impl Faucet {
    /// Whether this line is let through.
    pub fn lets(&mut self, line: &str) -> bool {
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
