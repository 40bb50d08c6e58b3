//! The incarnation numbers that may be passed on to memberlist. A node increments its number when
//! it publishes a report and when it contradicts an accusation. The higher number wins. So no other
//! node may raise the number of a node to a value that the node itself cannot exceed. Pure; the
//! time is passed in.
//!
//! No message proves a number. But the time at which a node signed its report limits the number:
//! [`highest_at`] increases by 8 a second, and a node uses far fewer numbers. All nodes compute the
//! same limit from the same signed report, so they refuse the same numbers. If another node raised
//! the number close to the limit, the node signs its report again, which raises the limit.
//! `docs/design/gossip.md` has the reasons.

use remoor_model::{NodeName, Wall};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The start of October 2026. No report was signed with a time before then.
const START: Wall = Wall(1_790_812_800_000);
/// The limit increases by one in this time, in milliseconds.
const PER_NUMBER_MS: u64 = 125;
/// The minimum of the limit, for a node whose clock is wrong. A node that signs a report every
/// minute needs two years for this many numbers.
const LEAST_LIMIT: u32 = 1 << 20;
/// The maximum of the limit. memberlist increments a number without a check for an overflow.
const LAST_LIMIT: u32 = u32::MAX - (1 << 20);
/// Maximum contradictions of this node at once.
const CONTRADICTIONS: u32 = 4;
/// After [`CONTRADICTIONS`], this node contradicts once in this time. A contradiction and the
/// report that follows it use fewer numbers than the limit gains.
const PER_CONTRADICTION: Duration = Duration::from_millis(4 * PER_NUMBER_MS);

/// The highest number that a node may have reached when it signed a report at `at`.
pub fn highest_at(at: Wall) -> u32 {
    let numbers = at.ms_since(START) / PER_NUMBER_MS;
    u32::try_from(numbers).unwrap_or(u32::MAX).clamp(LEAST_LIMIT, LAST_LIMIT)
}

/// The messages about one name that were passed on.
#[derive(Debug, Default)]
struct Passed {
    /// The highest number of an `alive` message.
    number: u32,
    /// Whether the report with this number announces that the node leaves.
    leaving: bool,
    /// The number and the time of the first `suspect` message about this number.
    suspected: Option<(u32, Instant)>,
}

/// The numbers that were passed on to memberlist, by name. The names are those in memberlist's
/// table, so this table has the same limit.
#[derive(Debug)]
pub struct IncarnationLedger {
    names: BTreeMap<NodeName, Passed>,
    /// The time from which [`CONTRADICTIONS`] are allowed at once again.
    contradicted: Instant,
}

impl IncarnationLedger {
    pub fn new(now: Instant) -> Self {
        Self { names: BTreeMap::new(), contradicted: now }
    }

    /// Records that an `alive` message with this number was passed on.
    pub fn pass_alive(&mut self, name: &NodeName, number: u32, leaving: bool) {
        let passed = self.names.entry(name.clone()).or_default();
        if number > passed.number {
            *passed = Passed { number, leaving, suspected: None };
        }
    }

    /// Whether the newest report that was passed on announces that the node leaves.
    pub fn is_leaving(&self, name: &NodeName) -> bool {
        self.names.get(name).is_some_and(|passed| passed.leaving)
    }

    /// The highest number that was passed on for the name. An accusation with a higher number is
    /// not believed.
    pub fn known_number(&self, name: &NodeName) -> Option<u32> {
        self.names.get(name).map(|passed| passed.number)
    }

    /// Records that a `suspect` message with this number was passed on.
    pub fn pass_suspect(&mut self, name: &NodeName, number: u32, now: Instant) {
        let Some(passed) = self.names.get_mut(name) else { return };
        if passed.suspected.is_none_or(|(suspected, _)| suspected < number) {
            passed.suspected = Some((number, now));
        }
    }

    /// Whether the node had `least` time to contradict a suspicion of this number, and did not.
    pub fn was_suspected_for(&self, name: &NodeName, number: u32, least: Duration, now: Instant) -> bool {
        let suspected = self.names.get(name).and_then(|passed| passed.suspected);
        suspected.is_some_and(|(first, at)| first == number && now.saturating_duration_since(at) >= least)
    }

    /// Whether this node may contradict a message about itself now. Each contradiction uses one of
    /// its numbers, and other nodes can cause contradictions as fast as they send.
    pub fn may_contradict(&mut self, now: Instant) -> bool {
        let next = self.contradicted.max(now) + PER_CONTRADICTION;
        let allowed = next <= now + PER_CONTRADICTION * CONTRADICTIONS;
        if allowed {
            self.contradicted = next;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_grows_with_time_and_never_overflows() {
        assert_eq!(highest_at(Wall(0)), LEAST_LIMIT);
        assert_eq!(highest_at(Wall(u64::MAX)), LAST_LIMIT);
        let later = START.plus_ms(400 * 86_400_000);
        assert_eq!(highest_at(later.plus_ms(1_000)), highest_at(later) + 8);
        assert!(highest_at(START.plus_ms(16 * 365 * 86_400_000)) < LAST_LIMIT, "16 years");
    }

    #[test]
    fn a_contradiction_ends_a_suspicion() {
        let (w1, start, grace) = (NodeName::from("w1"), Instant::now(), Duration::from_secs(4));
        let mut ledger = IncarnationLedger::new(start);
        ledger.pass_suspect(&w1, 0, start);
        assert_eq!(ledger.known_number(&w1), None, "an accusation makes no name known");
        ledger.pass_alive(&w1, 7, true);
        ledger.pass_suspect(&w1, 7, start);
        assert!(!ledger.was_suspected_for(&w1, 7, grace, start + Duration::from_secs(3)));
        ledger.pass_suspect(&w1, 7, start + Duration::from_secs(3));
        ledger.pass_alive(&w1, 6, false);
        assert!(ledger.is_leaving(&w1));
        let later = start + grace;
        assert!(ledger.was_suspected_for(&w1, 7, grace, later));
        assert!(!ledger.was_suspected_for(&w1, 8, grace, later));
        ledger.pass_alive(&w1, 8, false);
        assert!(!ledger.is_leaving(&w1));
        assert_eq!(ledger.known_number(&w1), Some(8));
        assert!(!ledger.was_suspected_for(&w1, 7, grace, later));
    }

    #[test]
    fn others_cannot_use_up_the_numbers_of_a_node() {
        let start = Instant::now();
        let mut ledger = IncarnationLedger::new(start);
        let mut used = (0..1_000).filter(|_| ledger.may_contradict(start)).count();
        assert_eq!(used, CONTRADICTIONS as usize);
        for second in 1..60 {
            let demands = (0..100).map(|n| start + Duration::from_millis(1_000 * (second - 1) + 10 * n));
            used += demands.filter(|at| ledger.may_contradict(*at)).count();
            // The node signs its report again at most once a second, which also uses a number.
            assert!((used as u64 + second) * PER_NUMBER_MS <= 1_000 * second, "second {second}");
        }
    }
}
