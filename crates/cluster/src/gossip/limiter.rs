//! A rate limit for alarms, by kind and subject. It remembers a bounded number of subjects. The
//! time is passed in.

use crate::keyed_limiter::{KeyedLimiter, Overflow};
use std::time::{Duration, Instant};

/// Maximum remembered subjects. Beyond it, the subject with the oldest alarm is forgotten.
const SUBJECTS_MAX: usize = 1024;

/// Remembers the time of the last alarm of each kind about each subject.
#[derive(Debug)]
pub struct Limiter(KeyedLimiter<(&'static str, String)>);

impl Limiter {
    /// Allows one alarm per kind and subject in each `interval`.
    pub fn new(interval: Duration) -> Self {
        Self(KeyedLimiter::new(1, interval, SUBJECTS_MAX, Overflow::ForgetOldest))
    }

    /// Whether an alarm of this kind about `subject` may be raised at `now`. If the answer is true,
    /// the alarm counts as raised.
    pub fn allow(&mut self, kind: &'static str, subject: &str, now: Instant) -> bool {
        self.0.take((kind, subject.to_owned()), now).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_each_kind_and_subject_through_once_per_interval() {
        let start = Instant::now();
        let mut limiter = Limiter::new(Duration::from_secs(60));
        assert!(limiter.allow("forged", "w1", start));
        assert!(!limiter.allow("forged", "w1", start + Duration::from_secs(59)));
        assert!(limiter.allow("forged", "w2", start));
        assert!(limiter.allow("conflict", "w1", start));
        assert!(limiter.allow("forged", "w1", start + Duration::from_secs(60)));
    }

    #[test]
    fn stays_bounded_under_a_stream_of_new_names() {
        let start = Instant::now();
        let mut limiter = Limiter::new(Duration::from_secs(60));
        for n in 0..3 * SUBJECTS_MAX as u64 {
            assert!(limiter.allow("forged", &n.to_string(), start + Duration::from_millis(n)));
        }
        assert_eq!(limiter.0.remembered_keys(), SUBJECTS_MAX);
        let last = 3 * SUBJECTS_MAX as u64 - 1;
        let end = start + Duration::from_millis(last);
        assert!(!limiter.allow("forged", &last.to_string(), end), "the newest subjects are remembered");
        assert!(!limiter.allow("forged", &(2 * SUBJECTS_MAX).to_string(), end), "and all up to the maximum");
        assert!(limiter.allow("forged", "0", end), "the oldest is forgotten");
    }
}
