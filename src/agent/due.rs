//! When the agent looks at its node: at each interval, and sooner when something stirred there. Has no clock and no chance of
//! its own: both are handed in.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A change of files is hashed once they were quiet for so long.
const SETTLE: Duration = Duration::from_secs(2);
/// So often at most that is doubled.
const DOUBLED_MAX: u32 = 5;

pub(super) struct Due {
    /// None: a look is under way, and nothing has stirred since it began.
    at: Option<Instant>,
    looking: bool,
    stirred: bool,
    /// Looks in a row during which something stirred. It may be what their own checks write, which must not make looks
    /// without end: each of them is followed after twice the time, and none later than after an interval.
    row: u32,
}

impl Due {
    pub(super) fn new(now: Instant) -> Self {
        Self { at: Some(now), looking: false, stirred: false, row: 0 }
    }

    /// Ends when the next look is due; not while one is under way.
    pub(super) async fn come(&self) {
        match self.next() {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn next(&self) -> Option<Instant> {
        self.at.filter(|_| !self.looking)
    }

    pub(super) fn begin(&mut self) {
        *self = Self { at: None, looking: true, stirred: false, row: self.row };
    }

    /// Something may have changed. What stirs while a look is under way may be what it has seen already, or not.
    pub(super) fn stir(&mut self, now: Instant) {
        let after = if self.looking { SETTLE * 2_u32.pow(self.row) } else { SETTLE };
        self.stirred = true;
        self.by(now + after);
    }

    /// There is something else to look at.
    pub(super) fn news(&mut self, now: Instant) {
        self.by(now);
    }

    /// `chance` moves the next look by a tenth of `every` at most, so that nodes that were started together do not look together.
    pub(super) fn end(&mut self, now: Instant, every: Duration, chance: u16) {
        self.looking = false;
        self.row = if self.stirred { (self.row + 1).min(DOUBLED_MAX) } else { 0 };
        self.by(now + every * 9 / 10 + every / 5 * u32::from(chance) / u32::from(u16::MAX));
    }

    fn by(&mut self, at: Instant) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(60);
    const LOOK: Duration = Duration::from_millis(500);

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn intervals_differ_by_a_tenth_to_both_sides() {
        let now = Instant::now();
        let next = |chance| {
            let mut due = Due::new(now);
            due.begin();
            due.end(now, EVERY, chance);
            due.next().unwrap() - now
        };
        assert_eq!((next(0), next(u16::MAX)), (secs(54), secs(66)));
        assert!((secs(59)..secs(61)).contains(&next(u16::MAX / 2)));
    }

    #[test]
    fn what_comes_during_a_look_makes_another() {
        let now = Instant::now();
        let mut due = Due::new(now);
        due.begin();
        due.stir(now);
        assert_eq!(due.next(), None, "one at a time");
        due.end(now + LOOK, EVERY, 0);
        assert_eq!(due.next(), Some(now + SETTLE));
        due.begin();
        due.news(now + LOOK);
        due.end(now + secs(1), EVERY, 0);
        assert_eq!(due.next(), Some(now + LOOK), "another manifest does not wait for an interval");
        due.stir(now + secs(1));
        assert_eq!(due.next(), Some(now + LOOK), "nothing puts a look off");
    }

    #[test]
    fn checks_that_write_where_is_watched_make_no_looks_without_end() {
        let mut now = Instant::now();
        let mut due = Due::new(now);
        let mut stirring = |now, stirs: bool| {
            due.begin();
            if stirs {
                due.stir(now);
            }
            due.end(now, EVERY, 0);
            due.next().unwrap()
        };
        let mut waits = Vec::new();
        for _ in 0..7 {
            let next = stirring(now, true);
            waits.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 54, 54]);
        assert_eq!(stirring(now, false), now + secs(54));
        assert_eq!(stirring(now, true), now + SETTLE, "after a quiet look the next change is seen at once");
    }
}
