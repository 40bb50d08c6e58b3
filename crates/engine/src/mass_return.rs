//! Handles the return of many nodes at once, for example after a power failure. Their verdicts
//! arrive one by one. No re-setup may begin until it is clear whether all these verdicts together
//! open a breaker.

use remoor_model::{Inventory, Node, Wall};

/// The number of returned nodes that have no verdict yet. None if a breaker could not open even if
/// all of them drifted. A re-setup then need not wait. Nodes that drifted or went away recently
/// count as affected in this calculation. Nodes that returned before an operator's resume do not
/// count. Nodes with a changed host key do not count, because they are not examined.
pub fn nodes_without_verdict(inventory: &Inventory, at: Wall) -> Option<u32> {
    if inventory.breaker.is_some() {
        return None;
    }
    let limits = inventory.limits();
    let counts = |moment: Wall| moment > inventory.breaker_closed_at && at.ms_since(moment) <= limits.breaker_window_ms;
    let open = |n: &Node| {
        let returned = n.absence.as_ref().filter(|a| a.returned.is_some_and(counts));
        returned.is_some() && n.host_key.changed.is_none() && n.serves()
    };
    let waiting = inventory.nodes.values().filter(|n| open(n)).count() as u32;
    if waiting == 0 {
        return None;
    }
    let missing = |n: &Node| n.is_away() && n.absence.as_ref().is_some_and(|a| counts(a.opened) && !a.planned);
    let hit = |n: &Node| n.examination.drifted_since.is_some_and(counts) || open(n) || missing(n);
    super::budget::find_tripped(inventory, hit, None).map(|_| waiting)
}
