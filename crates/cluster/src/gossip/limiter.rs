//! Rate limit for alarms, by kind and subject. Holds a bounded number of subjects and has no clock
//! of its own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum subjects remembered; beyond it, the subject whose alarm is oldest is forgotten.
const SUBJECTS_MAX: usize = 1024;

/// Remembers when each kind of alarm about each subject was last raised.
#[derive(Debug)]
pub struct Limiter {
    interval: Duration,
    last: BTreeMap<(&'static str, String), Instant>,
}

impl Limiter {
    /// Allows one alarm per kind and subject in each `interval`.
    pub fn new(interval: Duration) -> Self {
        Self { interval, last: BTreeMap::new() }
    }

    /// Whether an alarm of this kind about `subject` may be raised at `now`. If so, it counts as
    /// raised.
    pub fn allow(&mut self, kind: &'static str, subject: &str, now: Instant) -> bool {
        let key = (kind, subject.to_owned());
        if self.last.get(&key).is_some_and(|last| now.saturating_duration_since(*last) < self.interval) {
            return false;
        }
        if self.last.len() >= SUBJECTS_MAX && !self.last.contains_key(&key) {
            let oldest = self.last.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.last.remove(&oldest);
            }
        }
        self.last.insert(key, now);
        true
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
        assert_eq!(limiter.last.len(), SUBJECTS_MAX);
    }
}
