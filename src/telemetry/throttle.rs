//! Limits the log lines of one source that may write many. A few lines per minute are allowed, and
//! the others are counted. The code is pure: the time is an argument.

/// Length of the window for which lines are limited, in milliseconds.
pub const WINDOW_MS: u64 = 60_000;

#[derive(Debug)]
pub struct Throttle {
    lines_max: u32,
    window_start_ms: u64,
    lines: u32,
    suppressed: u64,
}

impl Throttle {
    pub fn new(lines_max: u32) -> Self {
        Self { lines_max, window_start_ms: 0, lines: 0, suppressed: 0 }
    }

    /// Whether one more line may be written at `now_ms`, a monotonic time.
    pub fn allow(&mut self, now_ms: u64) -> bool {
        if now_ms.saturating_sub(self.window_start_ms) >= WINDOW_MS {
            self.window_start_ms = now_ms;
            self.lines = 0;
        }
        if self.lines < self.lines_max {
            self.lines += 1;
            return true;
        }
        self.suppressed += 1;
        false
    }

    /// The number of lines that were suppressed since the last call.
    pub fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_per_window_and_the_rest_counted() {
        let mut throttle = Throttle::new(3);
        let passed = (0..4000).filter(|n| throttle.allow(*n)).count();
        assert_eq!((passed, throttle.take_suppressed(), throttle.take_suppressed()), (3, 3997, 0));
        assert!(!throttle.allow(WINDOW_MS - 1));
        assert!(throttle.allow(WINDOW_MS));
        assert_eq!(throttle.take_suppressed(), 1);
    }
}
