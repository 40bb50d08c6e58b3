//! Compares this machine's wall clock with those of other nodes. Each answer of a node contains the
//! time of its clock. The layers above decide what follows from a difference.

use remoor_model::{NodeId, Wall};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time for which a reading is valid. Managers send requests to each other every 10 s.
const FRESH: Duration = Duration::from_secs(45);
/// If there are this many readings, the readings that are no longer valid are dropped.
const READINGS_MAX: usize = 256;

/// The latest reading of each node's clock. Clones share the readings.
#[derive(Debug, Clone, Default)]
pub struct PeerClocks(Arc<Mutex<BTreeMap<NodeId, Reading>>>);

/// The time that a node's clock showed at some moment between the request and its answer.
#[derive(Debug, Clone, Copy)]
struct Reading {
    wall: Wall,
    asked: Instant,
    answered: Instant,
}

impl PeerClocks {
    /// Records the time in an answer of `node`.
    pub fn record(&self, node: NodeId, wall: Wall, asked: Instant, answered: Instant) {
        let mut readings = self.readings();
        if readings.len() >= READINGS_MAX {
            readings.retain(|_, reading| answered.saturating_duration_since(reading.answered) < FRESH);
        }
        readings.insert(node, Reading { wall, asked, answered });
    }

    /// The number of milliseconds by which the clock of `node` is certainly ahead of this machine's
    /// clock; negative if it is behind. `wall` is the time of this machine's clock at `now`. None
    /// if there is no valid reading.
    pub fn difference_ms(&self, node: NodeId, wall: Wall, now: Instant) -> Option<i64> {
        let reading = self.readings().get(&node).copied()?;
        let since = |then: Instant| now.saturating_duration_since(then);
        if since(reading.answered) >= FRESH {
            return None;
        }
        let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let ahead = |age: Duration| {
            let theirs = reading.wall.plus_ms(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            signed(theirs.0).saturating_sub(signed(wall.0))
        };
        let (least, most) = (ahead(since(reading.answered)), ahead(since(reading.asked)));
        Some(least.max(0) + most.min(0))
    }

    fn readings(&self) -> MutexGuard<'_, BTreeMap<NodeId, Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_what_the_duration_of_the_request_does_not_explain() {
        let (clocks, node, start) = (PeerClocks::default(), NodeId(2), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        assert_eq!(clocks.difference_ms(node, Wall(0), start), None);
        // The request was sent at 100 s of our clock, and answered at 104 s.
        clocks.record(node, Wall(102_000), at(0), at(4));
        let ours = |s: u64| Wall(100_000 + s * 1_000);
        assert_eq!(clocks.difference_ms(node, ours(4), at(4)), Some(0), "the request explains it");
        clocks.record(node, Wall(190_000), at(0), at(4));
        assert_eq!(clocks.difference_ms(node, ours(4), at(4)), Some(86_000));
        assert_eq!(clocks.difference_ms(node, ours(24), at(24)), Some(86_000), "both clocks went on");
        clocks.record(node, Wall(20_000), at(0), at(4));
        assert_eq!(clocks.difference_ms(node, ours(4), at(4)), Some(-80_000));
        // The clock of this machine is set to another time. The difference is correct at once,
        // without another answer of the node.
        assert_eq!(clocks.difference_ms(node, Wall(20_000), at(4)), Some(0));
        assert_eq!(clocks.difference_ms(node, ours(60), at(60)), None, "too old");
        clocks.record(node, Wall(u64::MAX), at(0), at(4));
        assert!(clocks.difference_ms(node, ours(4), at(4)).is_some_and(|ahead| ahead > 1_000_000));
    }

    #[test]
    fn readings_that_no_longer_count_are_dropped() {
        let (clocks, start) = (PeerClocks::default(), Instant::now());
        (0..READINGS_MAX as u64).for_each(|node| clocks.record(NodeId(node), Wall(1), start, start));
        let later = start + FRESH;
        clocks.record(NodeId(9_999), Wall(1), later, later);
        assert_eq!(clocks.readings().len(), 1);
    }
}
