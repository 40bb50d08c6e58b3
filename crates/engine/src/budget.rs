//! The circuit breakers. If a large part of a group or of the fleet drifts or goes away at once,
//! the cause is rarely on the nodes. So an open breaker stops all automatic re-setups.

use remoor_model::{Absence, AbsenceKind, Command, GroupName, Inventory, Node, Wall, count_noun};
use std::collections::BTreeMap;

/// The command that opens a breaker, if one must open now. If the breaker of one group is open and
/// another group is affected, the breaker of the whole fleet opens instead.
///
/// A breaker opens if more than `breaker_*_percent` of the nodes, and at least `breaker_min`,
/// drifted or went away within `breaker_window_ms`. Events before an operator's `resume` do not
/// count.
pub fn breaker(inventory: &Inventory, at: Wall) -> Option<Command> {
    let but = match &inventory.breaker {
        Some(open) => Some(open.group.as_ref()?),
        None => None,
    };
    let limits = inventory.limits();
    let counts = |moment: Wall| moment > inventory.breaker_closed_at && at.ms_since(moment) <= limits.breaker_window_ms;
    // An absence that was detected afterwards has already ended, so it is not a sign of current
    // trouble. After a restart of all managers, many absences are of this kind.
    let missed = |a: &Absence| counts(a.opened) && a.kind == AbsenceKind::Away && !a.planned && !a.seen_by.is_empty();
    let troubled = |n: &Node| n.examination.drifted_since.is_some_and(counts) || n.absence.as_ref().is_some_and(missed);
    let TrippedBreaker { group, hit, of } = find_tripped(inventory, troubled, but)?;
    let what = group.map_or("the fleet".to_owned(), |name| format!("group {name}"));
    let mut why = format!("{hit} of {} of {what} drifted or went away", count_noun(of, "node"));
    if let Some(open) = inventory.breaker.as_ref().filter(|_| group.is_some()) {
        why = format!("{why}, in addition to {}", open.why);
    }
    Some(Command::BreakerOpened { group: group.filter(|_| but.is_none()).cloned(), why })
}

/// The fleet or group in which too many nodes are affected.
pub(super) struct TrippedBreaker<'a> {
    pub group: Option<&'a GroupName>,
    pub hit: usize,
    pub of: usize,
}

/// Finds a part of the fleet in which too many nodes in service are affected, as `is_hit` defines.
/// Checks the whole fleet first, then every group except `but`. The check runs at every step, so it
/// passes over the nodes as few times as possible. If there are fewer than `breaker_min` affected
/// nodes in the fleet, no group is checked.
pub(super) fn find_tripped<'a>(
    inventory: &'a Inventory,
    is_hit: impl Fn(&Node) -> bool,
    but: Option<&GroupName>,
) -> Option<TrippedBreaker<'a>> {
    let generation = inventory.generation()?;
    let limits = &generation.summary.limits;
    let trips = |hit: usize, of: usize, percent: u32| {
        hit as u64 >= u64::from(limits.breaker_min) && hit as u64 * 100 > u64::from(percent) * of as u64
    };
    let serving = || inventory.nodes.values().filter(|n| n.in_service());
    let (hit, of) = serving().fold((0, 0), |(hit, of), node| (hit + usize::from(is_hit(node)), of + 1));
    if trips(hit, of, limits.breaker_fleet_percent) {
        return Some(TrippedBreaker { group: None, hit, of });
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
    first.map(|(name, (hit, of))| TrippedBreaker { group: Some(name), hit, of })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::sample::fleet;

    #[test]
    fn machines_that_only_joined_do_not_count_for_the_breaker() {
        for joined in [0, 40] {
            let inventory = fleet(10, joined);
            let hit = |n: &Node| n.id.0 <= 6;
            let tripped = find_tripped(&inventory, hit, None).expect("more than half of those in service");
            assert_eq!((tripped.hit, tripped.of), (6, 10));
        }
    }
}
