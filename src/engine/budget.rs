//! The breakers: when much of a group or of the fleet drifts or goes away at once, the cause is rarely on the nodes.

use crate::model::{Absence, Command, Gone, GroupName, Inventory, Node, Wall};

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
    let trips = |members: &[&Node], percent: u32| {
        let hit = members.iter().filter(|n| troubled(n)).count() as u32;
        (hit >= limits.breaker_min && hit * 100 > percent * members.len() as u32).then_some(hit)
    };
    let all: Vec<&Node> = inventory.nodes.values().map(|n| n.as_ref()).collect();
    if let Some(hit) = trips(&all, limits.breaker_fleet_percent) {
        let why = format!("{hit} of {} nodes of the fleet drifted or went away", all.len());
        return Some(Command::BreakerOpened { group: None, why });
    }
    for name in generation.summary.groups.keys() {
        let of = |n: &&&Node| generation.group_of(n.name()) == Some(name);
        let members: Vec<&Node> = all.iter().filter(of).copied().collect();
        if let Some(hit) = trips(&members, limits.breaker_group_percent) {
            return Some(opened(name, hit, members.len()));
        }
    }
    None
}

fn opened(group: &GroupName, hit: u32, of: usize) -> Command {
    let why = format!("{hit} of {of} nodes of group {group} drifted or went away");
    Command::BreakerOpened { group: Some(group.clone()), why }
}
