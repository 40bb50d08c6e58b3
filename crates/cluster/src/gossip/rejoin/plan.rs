//! Decides which nodes to dial now: only known nodes that are not members. Pure; time and random
//! numbers are passed in.

use super::super::config::GossipTiming;
use remoor_model::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Maximum dials under way at once.
pub const PARALLEL_MAX: usize = 4;

/// Up to this number of members, each member dials a missing node at the full rate. In a larger
/// cluster each member dials the node less often, so the total rate stays the same.
const DIALLERS: usize = 16;
/// The first dials of nodes that went missing together are spread over the wait. The dial of each
/// node is this part of the wait after that of the node before it, in permille, modulo the wait. It
/// is the golden ratio, because its multiples are spread evenly.
const GOLDEN_PERMILLE: u16 = 618;

/// The recent dials of one missing node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tries {
    /// Start of the last dial. Before the first dial: the time at which the node went missing or
    /// the isolation began.
    pub last_ms: u64,
    /// The number of dials since the latest of three events: the node went missing, the isolation
    /// began, or [`DialState::nudge`] was called.
    pub count: u32,
    /// Whether the node was dialled at `last_ms`.
    pub dialled: bool,
    /// A random number from 0 to 1000. It spreads the dials of several nodes that begin to wait at
    /// the same moment.
    pub jitter_permille: u16,
}

/// The wait of an isolated node doubles with each dial, up to this multiple of the minimum wait.
const DOUBLED_MAX: u64 = 4;
/// Beyond [`DOUBLED_MAX`], the maximum wait grows as this fraction (1/16) of the isolation's
/// length. So a node returns soon after an isolation of a minute, but dials rarely after an
/// isolation of hours.
const ALONE_PART: u64 = 16;

/// A missing node in the order of the dials: the time of its next dial, its last dial, its name.
type Due = (u64, Option<u64>, NodeName);

/// The input of the decision. Times are monotonic milliseconds of this process.
///
/// A change of the members, of the known nodes or of this node's own address takes time that grows
/// with the number of all nodes. So does [`DialState::nudge`]. The loop therefore applies such
/// changes at most once in [`GossipTiming::change_spacing`]. A dial, its end, [`plan`] and
/// [`next_ms`] only read the dialled nodes.
#[derive(Debug, Clone)]
pub struct DialState {
    me: NodeName,
    my_addr: SocketAddr,
    /// The nodes of the cluster. The possible addresses of a node are in the order in which they
    /// are tried.
    known: BTreeMap<NodeName, Vec<SocketAddr>>,
    /// Live members, with or without this node.
    members: BTreeMap<NodeName, SocketAddr>,
    /// The addresses of the members.
    taken: BTreeSet<SocketAddr>,
    /// The nodes to which a dial is under way.
    dialling: BTreeSet<NodeName>,
    tries: BTreeMap<NodeName, Tries>,
    /// The missing nodes that can be dialled and are not in `dialling`.
    queue: BTreeSet<Due>,
    /// Time of the last call of [`DialState::nudge`].
    nudged_ms: Option<u64>,
    /// The time at which the last peer was lost. None while there are peers, and before the first
    /// peer.
    alone_since_ms: Option<u64>,
    /// A random number from 0 to 1000. It spreads the dials of nodes that lost each other at the
    /// same moment.
    jitter_permille: u16,
    timing: GossipTiming,
}

impl DialState {
    /// The state of a node that knows no other nodes yet.
    pub fn new(me: NodeName, my_addr: SocketAddr, timing: GossipTiming) -> Self {
        Self {
            me,
            my_addr,
            known: BTreeMap::new(),
            members: BTreeMap::new(),
            taken: BTreeSet::new(),
            dialling: BTreeSet::new(),
            tries: BTreeMap::new(),
            queue: BTreeSet::new(),
            nudged_ms: None,
            alone_since_ms: None,
            jitter_permille: 500,
            timing,
        }
    }

    /// Whether there is no live peer.
    pub fn is_isolated(&self) -> bool {
        !self.members.keys().any(|name| *name != self.me)
    }

    /// The durations by which the dials are planned.
    pub fn timing(&self) -> &GossipTiming {
        &self.timing
    }

    /// The recent dials of a missing node. None if it was not dialled and does not wait for a dial.
    pub fn tries(&self, name: &NodeName) -> Option<Tries> {
        self.tries.get(name).copied()
    }

    /// Sets the random number for the waits that begin from now on, 0 to 1000.
    pub fn set_jitter(&mut self, permille: u16) {
        self.jitter_permille = permille.min(1000);
    }

    /// Sets this node's own address, which is never dialled.
    pub fn set_address(&mut self, addr: SocketAddr) {
        if self.my_addr != addr {
            self.my_addr = addr;
            self.rebuild_queue();
        }
    }

    /// Replaces the list of the cluster's nodes and their possible addresses.
    pub fn set_known(&mut self, now_ms: u64, known: BTreeMap<NodeName, Vec<SocketAddr>>) {
        self.known = known;
        self.spread_first_dials(now_ms);
        self.rebuild_queue();
    }

    /// Updates the set of members. Returns true if at least an eighth of the members are new,
    /// because then a network may have healed. A single node that returns to a large cluster proves
    /// nothing about other nodes.
    pub fn set_members(&mut self, now_ms: u64, members: BTreeMap<NodeName, SocketAddr>) -> bool {
        let was_isolated = self.is_isolated();
        let before = std::mem::replace(&mut self.members, members);
        self.taken = self.members.values().copied().collect();
        let (known, members) = (&self.known, &self.members);
        self.tries.retain(|name, _| known.contains_key(name) && !members.contains_key(name));
        if !self.is_isolated() {
            self.alone_since_ms = None;
            self.spread_first_dials(now_ms);
        } else if !was_isolated {
            self.alone_since_ms = Some(now_ms);
            // The wait for the next dial restarts at its minimum for every node, also for a node
            // that was dialled a short time ago.
            for name in self.known.keys() {
                self.tries.insert(
                    name.clone(),
                    Tries { last_ms: now_ms, count: 0, dialled: false, jitter_permille: self.jitter_permille },
                );
            }
        }
        self.rebuild_queue();
        let came = self.members.keys().filter(|name| !before.contains_key(*name)).count();
        came > 0 && came * 8 >= self.members.len()
    }

    /// In a large cluster, sets the first dial of each missing node to a random time within the
    /// wait. Otherwise all members would dial a failed node at the same moment, and each dial
    /// exchanges the whole state.
    fn spread_first_dials(&mut self, now_ms: u64) {
        if self.members.len() <= DIALLERS {
            return;
        }
        let mut part = self.jitter_permille;
        for name in self.known.keys().filter(|name| !self.members.contains_key(*name)) {
            self.tries.entry(name.clone()).or_insert_with(|| {
                part = (part + GOLDEN_PERMILLE) % 1000;
                Tries { last_ms: now_ms, count: 0, dialled: false, jitter_permille: part }
            });
        }
    }

    /// Records an event after which dials may succeed again, so that the next dials come earlier.
    pub fn nudge(&mut self, now_ms: u64) {
        self.nudged_ms = Some(now_ms);
        for tries in self.tries.values_mut() {
            tries.count = 0;
        }
        self.rebuild_queue();
    }

    /// Records that a planned dial has begun.
    pub fn begin(&mut self, now_ms: u64, name: &NodeName) {
        let due = self.due(name);
        self.queue.remove(&due);
        self.dialling.insert(name.clone());
        let count = self.tries.get(name).map_or(0, |tries| tries.count).saturating_add(1);
        let jitter_permille = self.jitter_permille;
        self.tries.insert(name.clone(), Tries { last_ms: now_ms, count, dialled: true, jitter_permille });
    }

    /// Records that a dial has ended. The members show whether it succeeded.
    pub fn end(&mut self, name: &NodeName) {
        self.dialling.remove(name);
        if self.is_missing(name) {
            let due = self.due(name);
            self.queue.insert(due);
        }
    }

    /// Whether the node can be dialled: the cluster knows it, it is not a member, and no dial to it
    /// is under way.
    fn is_missing(&self, name: &NodeName) -> bool {
        *name != self.me
            && !self.members.contains_key(name)
            && !self.dialling.contains(name)
            && self.next_address(name).is_some()
    }

    /// The address for the next dial of a known node. Addresses that members use are skipped.
    fn next_address(&self, name: &NodeName) -> Option<SocketAddr> {
        let addrs = self.known.get(name)?;
        let free: Vec<_> =
            addrs.iter().copied().filter(|addr| !self.taken.contains(addr) && *addr != self.my_addr).collect();
        let turn = self.tries.get(name).map_or(0, |t| t.count as usize);
        free.get(turn % free.len().max(1)).copied()
    }

    fn rebuild_queue(&mut self) {
        self.queue = self.known.keys().filter(|name| self.is_missing(name)).map(|name| self.due(name)).collect();
    }

    fn due(&self, name: &NodeName) -> Due {
        #[cfg(test)]
        tests::count_consideration();
        match self.tries.get(name) {
            None => (0, None, name.clone()),
            Some(tries) => (self.due_ms(tries), Some(tries.last_ms), name.clone()),
        }
    }

    fn due_ms(&self, tries: &Tries) -> u64 {
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let (min, max) = (ms(self.timing.isolated_min), ms(self.timing.isolated_max));
        let isolated = self.is_isolated();
        // While there are peers, the members share the dials. So the wait between two dials of a
        // node grows with the number of members. The first dial of a node comes after a random part
        // of the wait.
        let shared = |wait: std::time::Duration| {
            let crowd = self.members.len().max(DIALLERS) as u64;
            let part = if tries.dialled { 1000 } else { u64::from(tries.jitter_permille) };
            ms(wait).saturating_mul(crowd) / DIALLERS as u64 * part / 1000
        };
        let wait = if isolated {
            let alone = tries.last_ms.saturating_sub(self.alone_since_ms.unwrap_or(0));
            let most = max.min((alone / ALONE_PART).max(DOUBLED_MAX * min));
            let doubled = min.saturating_mul(1 << tries.count.min(20)).min(most);
            // The wait is between half and all of the doubled value, so the maximum holds for any
            // jitter.
            doubled / 2 + doubled / 2 * u64::from(tries.jitter_permille) / 1000
        } else {
            shared(self.timing.rejoin_interval)
        };
        let due = tries.last_ms.saturating_add(wait);
        match self.nudged_ms {
            Some(nudged) if nudged > tries.last_ms => {
                let spacing = if isolated { min } else { shared(self.timing.nudge_spacing) };
                due.min(nudged.max(tries.last_ms.saturating_add(spacing)))
            }
            _ => due,
        }
    }
}

/// The dials to begin at `now_ms`; the node that has waited longest is the first. At most
/// [`PARALLEL_MAX`] dials are under way, these included.
pub fn plan(now_ms: u64, state: &DialState) -> Vec<(NodeName, SocketAddr)> {
    let due = state.queue.iter().take_while(|(due, _, _)| *due <= now_ms);
    let dials = due.filter_map(|(_, _, name)| Some((name.clone(), state.next_address(name)?)));
    dials.take(PARALLEL_MAX.saturating_sub(state.dialling.len())).collect()
}

/// The time at which [`plan`] may return a dial again if nothing else happens. None if no node is
/// missing, or if the maximum number of dials is under way, because then a dial must end first.
pub fn next_ms(state: &DialState) -> Option<u64> {
    if state.dialling.len() >= PARALLEL_MAX {
        return None;
    }
    state.queue.first().map(|(due, _, _)| *due)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
