//! Compares the clocks of the managers. If they differ, the managers do nothing that a wrong clock
//! would damage for months. No certificate is issued, and no record of a removed node or of a node
//! that left is deleted.
//!
//! The clocks are in memory only. They are known because every answer of another manager contains
//! that manager's time (`rpc/clocks.rs`).

use super::{ManagerContext, wall};
use remoor_cluster::rpc::join::SKEW_MAX_MS;
use remoor_cluster::rpc::wire::{ApiFailure, Code};
use remoor_model::{Inventory, NodeId, NodeName, Wall};
use std::time::{Duration, Instant};

/// Key prefix of notices about clocks.
pub const CLOCK: &str = "clock";
/// Difference of clocks in milliseconds above which operators are warned. NTP keeps clocks within
/// milliseconds.
const WARN_MS: u64 = 10_000;
/// Maximum time that a starting manager waits for another manager's clock before it issues a
/// certificate for itself. Meanwhile it asks the managers in turn for their time, one each second.
const FIRST_WITHIN: Duration = Duration::from_secs(10);
/// Interval of the clock comparisons for notices. A notice is sent only if two consecutive
/// comparisons find a difference. One comparison is not enough, because after a suspension of the
/// machine it may use an answer from before the suspension.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// The clocks of the other managers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ClockComparison {
    /// For each other manager, the difference of its clock to this manager's clock in milliseconds,
    /// positive if the other clock is ahead. None if the other clock is not known.
    others: Vec<(NodeId, NodeName, Option<i64>)>,
    /// Whether this manager started so recently that the other managers may not have sent their
    /// time yet.
    starting: bool,
}

impl ClockComparison {
    /// The managers whose clocks are known to differ from this manager's clock by more than `ms`.
    fn differing_by(&self, ms: u64) -> impl Iterator<Item = (NodeId, &NodeName, i64)> {
        self.known_differences().filter(move |(_, _, ahead)| ahead.unsigned_abs() > ms)
    }

    fn known_differences(&self) -> impl Iterator<Item = (NodeId, &NodeName, i64)> {
        self.others.iter().filter_map(|(id, name, ahead)| Some((*id, name, (*ahead)?)))
    }

    /// The reason why this manager may not issue certificates for other nodes now.
    pub fn objection(&self) -> Option<String> {
        let (_, name, ahead) = self.differing_by(SKEW_MAX_MS).max_by_key(|(_, _, ahead)| ahead.unsigned_abs())?;
        Some(format!(
            "the clock of {name} is {} this manager's: no certificate is issued until the clocks of the managers agree",
            describe_difference(ahead)
        ))
    }

    /// The reason why this manager may not issue a certificate for itself now. One other clock that
    /// agrees with its own is enough. Otherwise a manager with a wrong clock would prevent the
    /// others from renewing their certificates.
    pub fn own_objection(&self) -> Option<String> {
        match self.known_differences().next() {
            None if self.starting && !self.others.is_empty() => {
                Some("no other manager's clock is known yet".to_owned())
            }
            None => None,
            Some(_) if self.known_differences().any(|(_, _, ahead)| ahead.unsigned_abs() <= SKEW_MAX_MS) => None,
            Some(_) => self.objection(),
        }
    }

    /// Whether this manager's clock is good enough to delete records of removed nodes and of nodes
    /// that left.
    pub fn may_forget(&self) -> bool {
        self.others.is_empty()
            || self.known_differences().next().is_some() && self.differing_by(SKEW_MAX_MS).next().is_none()
    }

    /// One line for each manager whose clock differs from this manager's clock by more than ten
    /// seconds.
    pub fn warnings(&self, own: &NodeName) -> Vec<String> {
        self.warnings_by_node(own).map(|(_, _, line)| line).collect()
    }

    fn warnings_by_node(&self, own: &NodeName) -> impl Iterator<Item = (NodeId, &NodeName, String)> {
        self.differing_by(WARN_MS).map(move |(id, name, ahead)| {
            let held = match ahead.unsigned_abs() > SKEW_MAX_MS {
                true => "; until it is corrected, no certificate is issued and no removed node is forgotten",
                false => "",
            };
            let line = format!(
                "the clock of {name} is {} that of {own}{held}; next: compare both with the true time (timedatectl)",
                describe_difference(ahead)
            );
            (id, name, line)
        })
    }

    /// For each known clock, the manager's name and the difference to this manager's clock in
    /// seconds.
    pub fn seconds(&self) -> Vec<(String, f64)> {
        self.known_differences().map(|(_, name, ahead)| (name.to_string(), ahead as f64 / 1e3)).collect()
    }
}

/// Describes the difference between two clocks, for example `80 d ahead of`.
fn describe_difference(ahead_ms: i64) -> String {
    let seconds = ahead_ms.unsigned_abs() / 1_000;
    let amount = match seconds {
        0..600 => format!("{seconds} s"),
        600..172_800 => format!("{} min", (seconds + 30) / 60),
        _ => format!("{} d", (seconds + 43_200) / 86_400),
    };
    format!("{amount} {}", if ahead_ms > 0 { "ahead of" } else { "behind" })
}

/// The time for a new log entry. It is `wall` if this manager's clock is good enough to delete
/// records. Otherwise it is limited to a time at which the entry deletes no record.
fn entry_time(comparison: &ClockComparison, inventory: &Inventory, wall: Wall) -> Wall {
    if comparison.may_forget() {
        return wall;
    }
    inventory.next_forgetting_at().map_or(wall, |at| wall.min(Wall(at.0.saturating_sub(1))))
}

impl ManagerContext {
    /// Compares this manager's clock with the clocks of the others.
    pub fn compare_clocks(&self) -> ClockComparison {
        let (inventory, wall, now) = (self.inventory(), wall(), Instant::now());
        let others = inventory.managers().filter(|node| node.id != self.identity.node);
        let ahead = |id: NodeId| self.peers.clocks().difference_ms(id, wall, now);
        let others = others.map(|node| (node.id, node.name().clone(), ahead(node.id))).collect();
        ClockComparison { others, starting: self.started.elapsed() < FIRST_WITHIN }
    }

    /// The time for entries that this manager proposes, and for its engine.
    pub fn entry_time(&self) -> Wall {
        entry_time(&self.compare_clocks(), &self.inventory(), wall())
    }

    /// Returns an error if this manager may not issue certificates for other nodes now.
    pub fn check_clocks(&self) -> Result<(), ApiFailure> {
        match self.compare_clocks().objection() {
            None => Ok(()),
            Some(text) => Err(ApiFailure::new(Code::ClockSkew, text)
                .next("remoor status names the clocks that differ; correct the wrong one, then the same command")),
        }
    }
}

/// Sends notices about clocks that differ.
#[derive(Debug)]
pub struct ClockMonitor {
    last: Instant,
    apart: Vec<NodeId>,
}

impl Default for ClockMonitor {
    fn default() -> Self {
        Self { last: Instant::now(), apart: Vec::new() }
    }
}

impl ClockMonitor {
    pub fn tick(&mut self, shared: &ManagerContext) {
        if self.last.elapsed() < LOOK_EVERY {
            return;
        }
        self.last = Instant::now();
        let comparison = shared.compare_clocks();
        let before = std::mem::take(&mut self.apart);
        for (id, name, text) in comparison.warnings_by_node(&shared.identity.name) {
            self.apart.push(id);
            if before.contains(&id) {
                shared.notices.notify(&format!("{CLOCK} {id}"), Some(name.as_str()), &text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::RemovedRecord;
    use std::sync::Arc;

    const DAY_MS: i64 = 24 * 3_600_000;

    fn comparison(others: &[Option<i64>], starting: bool) -> ClockComparison {
        let other = |(id, ahead): (u64, &Option<i64>)| (NodeId(id), format!("m{id}").as_str().into(), *ahead);
        ClockComparison { others: (2..).zip(others).map(other).collect(), starting }
    }

    #[test]
    fn certificates_are_issued_only_while_the_known_clocks_agree() {
        // The columns: the other clocks; whether this manager is starting; whether it may issue
        // certificates for other nodes, may issue a certificate for itself, and may delete records.
        for (others, starting, expected) in [
            (&[][..], true, (true, true, true)),
            (&[None, None], true, (true, false, false)),
            (&[None, None], false, (true, true, false)),
            (&[Some(0), None], true, (true, true, true)),
            (&[Some(60_000), Some(-60_000)], false, (true, true, true)),
            (&[Some(0), Some(80 * DAY_MS)], false, (false, true, false)),
            (&[Some(-61_000), Some(80 * DAY_MS)], false, (false, false, false)),
            (&[Some(-80 * DAY_MS), None], false, (false, false, false)),
        ] {
            let found = comparison(others, starting);
            let may = (found.objection().is_none(), found.own_objection().is_none(), found.may_forget());
            assert_eq!(may, expected, "{others:?} {starting}");
        }
    }

    #[test]
    fn a_difference_is_reported_from_ten_seconds_on() {
        let warnings = |ahead| comparison(&[Some(ahead)], false).warnings(&"m1".into());
        assert_eq!(warnings(10_000), Vec::<String>::new());
        let soft = warnings(-12_000);
        assert!(soft[0].starts_with("the clock of m2 is 12 s behind that of m1; next: "), "{soft:?}");
        let hard = warnings(80 * DAY_MS);
        assert!(hard[0].starts_with("the clock of m2 is 80 d ahead of that of m1; until it is"), "{hard:?}");
        assert_eq!(comparison(&[Some(-1_500), None], false).seconds(), [("m2".to_owned(), -1.5)]);
    }

    #[test]
    fn a_wrong_clock_makes_no_entry_forget_a_removed_node() {
        let record = |until| RemovedRecord {
            name: "w1".into(),
            public_key: String::new(),
            machine_id: String::new(),
            at: Wall(1),
            by: String::new(),
            until: Wall(until),
            rotate_gossip_after: 0,
        };
        let mut inventory = Inventory::default();
        let (agree, differ) = (comparison(&[Some(0)], false), comparison(&[Some(80 * DAY_MS)], false));
        assert_eq!(entry_time(&differ, &inventory, Wall(500)), Wall(500), "there is nothing to forget");
        inventory.departed.removed.insert(NodeId(7), Arc::new(record(300)));
        inventory.departed.removed.insert(NodeId(8), Arc::new(record(400)));
        assert_eq!(entry_time(&agree, &inventory, Wall(500)), Wall(500));
        assert_eq!(entry_time(&differ, &inventory, Wall(299)), Wall(299));
        assert_eq!(entry_time(&differ, &inventory, Wall(500)), Wall(299));
    }
}
