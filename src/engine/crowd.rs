//! Many come back at once, as after a power cut: their verdicts come one by one, and the first ones must not be acted upon
//! before it is known whether together they open a breaker.

use crate::model::{Inventory, Node, Wall};

/// How many returned nodes have no verdict yet, if together with those in trouble they could open a breaker; none: no
/// reason to wait. Whoever an operator has resumed over, or whose host key changed so that nobody examines it, counts not.
pub fn undecided(inventory: &Inventory, at: Wall) -> Option<u32> {
    if inventory.breaker.is_some() {
        return None;
    }
    let limits = inventory.limits();
    let counts = |moment: Wall| moment > inventory.resumed && at.since(moment) <= limits.breaker_window_ms;
    let open = |n: &Node| {
        let returned = n.absence.as_ref().filter(|a| a.returned.is_some_and(counts));
        returned.is_some() && n.key_changed.is_none() && n.serves()
    };
    let waiting = inventory.nodes.values().filter(|n| open(n)).count() as u32;
    if waiting == 0 {
        return None;
    }
    let missing = |n: &Node| n.away() && n.absence.as_ref().is_some_and(|a| counts(a.opened) && !a.planned);
    let hit = |n: &Node| n.drifted_since.is_some_and(counts) || open(n) || missing(n);
    super::budget::tripped(inventory, hit, None).map(|_| waiting)
}
