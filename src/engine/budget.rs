//! The breakers: when much of a group or of the fleet drifts or goes away at once, the cause is rarely on the nodes.

use crate::model::{Absence, Command, Gone, GroupName, Inventory, Node, Wall, counted};
use std::collections::BTreeMap;

/// The breaker that must open now, if any. One that is open for a group does not hide the trouble of others: it is replaced by
/// one for the whole fleet.
///
/// More than `breaker_*_percent` and at least `breaker_min` nodes drifted or went away within `breaker_window_ms`; what
/// happened before an operator's `resume` counts no more.
pub fn breaker(inventory: &Inventory, at: Wall) -> Option<Command> {
    let but = match &inventory.breaker {
        Some(open) => Some(open.group.as_ref()?),
        None => None,
    };
    let limits = inventory.limits();
    let counts = |moment: Wall| moment > inventory.resumed && at.since(moment) <= limits.breaker_window_ms;
    // An absence that is told from its traces is over: it is no sign of trouble now, as after a restart of all managers.
    let missed = |a: &Absence| counts(a.opened) && a.gone == Gone::Away && !a.planned && !a.seen_by.is_empty();
    let troubled = |n: &Node| n.drifted_since.is_some_and(counts) || n.absence.as_ref().is_some_and(missed);
    let Tripped { group, hit, of } = tripped(inventory, troubled, but)?;
    let what = group.map_or("the fleet".to_owned(), |name| format!("group {name}"));
    let mut why = format!("{hit} of {} of {what} drifted or went away", counted(of, "node"));
    if let Some(open) = inventory.breaker.as_ref().filter(|_| group.is_some()) {
        why = format!("{why}, beside {}", open.why);
    }
    Some(Command::BreakerOpened { group: group.filter(|_| but.is_none()).cloned(), why })
}

/// Too many of the fleet, or of a group.
pub(super) struct Tripped<'a> {
    pub group: Option<&'a GroupName>,
    pub hit: usize,
    pub of: usize,
}

/// Whether too many of those in service are hit: of the fleet, else of the first group, `but` left out. Asked at every step: one pass, and
/// no look at the groups while there are too few in all.
pub(super) fn tripped<'a>(
    inventory: &'a Inventory,
    is_hit: impl Fn(&Node) -> bool,
    but: Option<&GroupName>,
) -> Option<Tripped<'a>> {
    let generation = inventory.generation()?;
    let limits = &generation.summary.limits;
    let trips = |hit: usize, of: usize, percent: u32| {
        hit as u64 >= u64::from(limits.breaker_min) && hit as u64 * 100 > u64::from(percent) * of as u64
    };
    let serving = || inventory.nodes.values().filter(|n| n.in_service());
    let (hit, of) = serving().fold((0, 0), |(hit, of), node| (hit + usize::from(is_hit(node)), of + 1));
    if trips(hit, of, limits.breaker_fleet_percent) {
        return Some(Tripped { group: None, hit, of });
    }
    if (hit as u64) < u64::from(limits.breaker_min) {
        return None;
    }
    let mut groups = BTreeMap::<&GroupName, (usize, usize)>::new();
    for node in serving() {
        if let Some(name) = generation.group_of(node.name()).filter(|name| Some(*name) != but) {
            let (hit, of) = groups.entry(name).or_default();
            *of += 1;
            *hit += usize::from(is_hit(node));
        }
    }
    let first = groups.into_iter().find(|(_, (hit, of))| trips(*hit, *of, limits.breaker_group_percent));
    first.map(|(name, (hit, of))| Tripped { group: Some(name), hit, of })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::fleet;

    #[test]
    fn machines_that_only_joined_keep_no_breaker_closed() {
        for joined in [0, 40] {
            let inventory = fleet(10, joined);
            let hit = |n: &Node| n.id.0 <= 6;
            let tripped = tripped(&inventory, hit, None).expect("more than half of those in service");
            assert_eq!((tripped.hit, tripped.of), (6, 10));
        }
    }
}
