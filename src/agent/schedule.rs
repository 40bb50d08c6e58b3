//! Decides when the agent hashes its node's files and runs the checks: at a regular interval, and
//! sooner after a file change. The caller passes in the time and the random number.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Time without a further file change after which changed files are hashed.
const SETTLE: Duration = Duration::from_secs(2);
/// Maximum number of times that the delay before the agent's next examination doubles.
const DOUBLED_MAX: u32 = 5;

pub(super) struct ExaminationSchedule {
    /// The time of the agent's next examination of its node. None if an examination is running and
    /// no file has changed since it began.
    at: Option<Instant>,
    looking: bool,
    stirred: bool,
    /// Number of consecutive examinations by the agent during which files changed. The checks of an
    /// examination may write these files, which must not cause endless examinations. So the delay
    /// before the next examination doubles each time, up to the regular interval.
    row: u32,
}

impl ExaminationSchedule {
    pub(super) fn new(now: Instant) -> Self {
        Self { at: Some(now), looking: false, stirred: false, row: 0 }
    }

    /// Waits until the agent's next examination is due. It never returns while an examination is
    /// running.
    pub(super) async fn wait(&self) {
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

    /// Records a possible change of a file. The result of an examination by the agent that is
    /// running now may lack the change.
    pub(super) fn file_changed(&mut self, now: Instant) {
        let after = if self.looking { SETTLE * 2_u32.pow(self.row) } else { SETTLE };
        self.stirred = true;
        self.schedule_by(now + after);
    }

    /// Makes the agent's next examination due now, because the manifest is new.
    pub(super) fn examine_now(&mut self, now: Instant) {
        self.schedule_by(now);
    }

    /// Records the end of an examination by the agent. `chance` shifts the next examination by at
    /// most a tenth of `every`, so that agents that start together do not examine at the same time.
    pub(super) fn end(&mut self, now: Instant, every: Duration, chance: u16) {
        self.looking = false;
        self.row = if self.stirred { (self.row + 1).min(DOUBLED_MAX) } else { 0 };
        self.schedule_by(now + every * 9 / 10 + every / 5 * u32::from(chance) / u32::from(u16::MAX));
    }

    fn schedule_by(&mut self, at: Instant) {
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
            let mut due = ExaminationSchedule::new(now);
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
        let mut due = ExaminationSchedule::new(now);
        due.begin();
        due.file_changed(now);
        assert_eq!(due.next(), None, "one at a time");
        due.end(now + LOOK, EVERY, 0);
        assert_eq!(due.next(), Some(now + SETTLE));
        due.begin();
        due.examine_now(now + LOOK);
        due.end(now + secs(1), EVERY, 0);
        assert_eq!(due.next(), Some(now + LOOK), "another manifest does not wait for an interval");
        due.file_changed(now + secs(1));
        assert_eq!(due.next(), Some(now + LOOK), "nothing puts a look off");
    }

    #[test]
    fn checks_that_write_where_is_watched_make_no_looks_without_end() {
        let mut now = Instant::now();
        let mut due = ExaminationSchedule::new(now);
        let mut stirring = |now, stirs: bool| {
            due.begin();
            if stirs {
                due.file_changed(now);
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
