//! The breakers: when much of a group or of the fleet drifts or goes away at once, the cause is rarely on the nodes.

use crate::model::{Absence, Command, Gone, GroupName, Inventory, Node, Wall};
use std::collections::BTreeMap;

/// The breaker that must open now, if any; none while one is open.
///
/// More than `breaker_*_percent` and at least `breaker_min` nodes drifted or went away within `breaker_window_ms`; what
/// happened before an operator's `resume` counts no more.
pub fn breaker(inventory: &Inventory, at: Wall) -> Option<Command> {
    if inventory.breaker.is_some() {
        return None;
    }
    let generation = inventory.generation()?;
    let limits = &generation.summary.limits;
    let counts = |moment: Wall| moment > inventory.resumed && at.since(moment) <= limits.breaker_window_ms;
    // An absence that is told from its traces is over: it is no sign of trouble now, as after a restart of all managers.
    let missed = |a: &Absence| counts(a.opened) && a.gone == Gone::Away && !a.planned && !a.seen_by.is_empty();
    let troubled = |n: &Node| n.drifted_since.is_some_and(counts) || n.absence.as_ref().is_some_and(missed);
    let trips = |hit: usize, of: usize, percent: u32| {
        hit as u64 >= u64::from(limits.breaker_min) && hit as u64 * 100 > u64::from(percent) * of as u64
    };
    let hit: Vec<&Node> = inventory.nodes.values().map(|n| n.as_ref()).filter(|n| troubled(n)).collect();
    if (hit.len() as u64) < u64::from(limits.breaker_min) {
        return None; // no group can have more; this is asked at every step, and is nearly always the end of it
    }
    let all = inventory.nodes.len();
    if trips(hit.len(), all, limits.breaker_fleet_percent) {
        let why = format!("{} of {all} nodes of the fleet drifted or went away", hit.len());
        return Some(Command::BreakerOpened { group: None, why });
    }
    let mut groups = BTreeMap::<&GroupName, (usize, usize)>::new();
    for node in inventory.nodes.values() {
        if let Some(name) = generation.group_of(node.name()) {
            let (hit, of) = groups.entry(name).or_default();
            *of += 1;
            *hit += usize::from(troubled(node));
        }
    }
    let tripped = groups.into_iter().find(|(_, (hit, of))| trips(*hit, *of, limits.breaker_group_percent));
    tripped.map(|(name, (hit, of))| opened(name, hit, of))
}

fn opened(group: &GroupName, hit: usize, of: usize) -> Command {
    let why = format!("{hit} of {of} nodes of group {group} drifted or went away");
    Command::BreakerOpened { group: Some(group.clone()), why }
}
