//! Decides which nodes to dial now: only known nodes that are not members. Pure; time and random
//! numbers are passed in.

use super::super::config::GossipTiming;
use remoor_model::NodeName;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Maximum dials under way at once.
pub const PARALLEL_MAX: usize = 4;

/// The recent dials of one missing node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tries {
    /// Start of the last dial, or of the isolation if that began later.
    pub last_ms: u64,
    /// Dials since the node went missing, the isolation began, or the last nudge.
    pub count: u32,
}

/// The wait of an isolated node doubles up to this factor of the minimum wait.
const DOUBLED_MAX: u64 = 4;
/// After that, the wait grows as this fraction (1/16) of the isolation's length. So a node returns
/// soon after a cut of a minute, but does not dial often after one of hours.
const ALONE_PART: u64 = 16;

/// The input of the decision. Times are monotonic milliseconds of this process.
#[derive(Debug, Clone)]
pub struct DialState {
    pub me: NodeName,
    pub my_addr: SocketAddr,
    /// The nodes of the cluster and where they were seen, best address first.
    pub known: BTreeMap<NodeName, Vec<SocketAddr>>,
    /// Live members, with or without this node.
    pub members: BTreeMap<NodeName, SocketAddr>,
    /// Dials under way.
    pub dialling: BTreeSet<NodeName>,
    pub tries: BTreeMap<NodeName, Tries>,
    /// Time of the last nudge: an event that makes a dial worthwhile.
    pub nudged_ms: Option<u64>,
    /// When the last peer was lost. None while there are peers, and before there was one.
    pub alone_since_ms: Option<u64>,
    /// 0 to 1000; spreads the dials of isolated nodes that lost each other at the same moment.
    pub jitter_permille: u16,
    pub timing: GossipTiming,
}

impl DialState {
    /// The state of a node that knows no other nodes yet.
    pub fn new(me: NodeName, my_addr: SocketAddr, timing: GossipTiming) -> Self {
        Self {
            me,
            my_addr,
            known: BTreeMap::new(),
            members: BTreeMap::new(),
            dialling: BTreeSet::new(),
            tries: BTreeMap::new(),
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

    /// Updates the set of members.
    pub fn set_members(&mut self, now_ms: u64, members: BTreeMap<NodeName, SocketAddr>) {
        let before = self.is_isolated();
        self.members = members;
        let (known, members) = (&self.known, &self.members);
        self.tries.retain(|name, _| known.contains_key(name) && !members.contains_key(name));
        if !self.is_isolated() {
            self.alone_since_ms = None;
        } else if !before {
            self.alone_since_ms = Some(now_ms);
            // Restart the wait at its minimum, also for nodes that were dialled a minute ago or
            // never.
            for name in self.known.keys() {
                self.tries.insert(name.clone(), Tries { last_ms: now_ms, count: 0 });
            }
        }
    }

    /// Records an event that makes a dial worthwhile.
    pub fn nudge(&mut self, now_ms: u64) {
        self.nudged_ms = Some(now_ms);
        for tries in self.tries.values_mut() {
            tries.count = 0;
        }
    }

    /// Records that a planned dial has begun.
    pub fn begin(&mut self, now_ms: u64, name: &NodeName) {
        self.dialling.insert(name.clone());
        let tries = self.tries.entry(name.clone()).or_default();
        *tries = Tries { last_ms: now_ms, count: tries.count.saturating_add(1) };
    }

    /// Records that a dial has ended. Whether it succeeded shows in the members.
    pub fn end(&mut self, name: &NodeName) {
        self.dialling.remove(name);
    }

    /// The nodes that could be dialled, with an address and the time when each is due.
    fn missing_nodes(&self) -> impl Iterator<Item = (&NodeName, SocketAddr, u64)> {
        self.known.iter().filter_map(|(name, addrs)| {
            if *name == self.me || self.members.contains_key(name) || self.dialling.contains(name) {
                return None;
            }
            let taken: BTreeSet<_> = self.members.values().copied().chain([self.my_addr]).collect();
            let free: Vec<_> = addrs.iter().copied().filter(|addr| !taken.contains(addr)).collect();
            let tries = self.tries.get(name);
            let turn = tries.map_or(0, |t| t.count as usize);
            let addr = *free.get(turn % free.len().max(1))?;
            Some((name, addr, tries.map_or(0, |t| self.due_ms(t))))
        })
    }

    fn due_ms(&self, tries: &Tries) -> u64 {
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let (min, max) = (ms(self.timing.isolated_min), ms(self.timing.isolated_max));
        let isolated = self.is_isolated();
        let wait = if isolated {
            let alone = tries.last_ms.saturating_sub(self.alone_since_ms.unwrap_or(0));
            let most = max.min((alone / ALONE_PART).max(DOUBLED_MAX * min));
            let doubled = min.saturating_mul(1 << tries.count.min(20)).min(most);
            // Between half and all of it, so that the maximum holds for any jitter.
            doubled / 2 + doubled / 2 * u64::from(self.jitter_permille.min(1000)) / 1000
        } else {
            ms(self.timing.rejoin_interval)
        };
        let due = tries.last_ms.saturating_add(wait);
        match self.nudged_ms {
            Some(nudged) if nudged > tries.last_ms => {
                let spacing = if isolated { min } else { ms(self.timing.nudge_spacing) };
                due.min(nudged.max(tries.last_ms.saturating_add(spacing)))
            }
            _ => due,
        }
    }
}

/// The dials to begin at `now_ms`, the longest waiting first. Together with those under way at most
/// [`PARALLEL_MAX`].
pub fn plan(now_ms: u64, state: &DialState) -> Vec<(NodeName, SocketAddr)> {
    let mut due: Vec<_> = state.missing_nodes().filter(|(_, _, due)| *due <= now_ms).collect();
    due.sort_by_key(|(name, _, _)| state.tries.get(*name).map(|t| t.last_ms));
    due.truncate(PARALLEL_MAX.saturating_sub(state.dialling.len()));
    due.into_iter().map(|(name, addr, _)| (name.clone(), addr)).collect()
}

/// When [`plan`] may return something again if nothing else happens. None: no node is missing, or
/// the maximum number of dials is under way, so the end of a dial comes first.
pub fn next_ms(state: &DialState) -> Option<u64> {
    if state.dialling.len() >= PARALLEL_MAX {
        return None;
    }
    state.missing_nodes().map(|(_, _, due)| due).min()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
