//! The state that this member knows: live members and recent alarms. Plain state behind a lock;
//! nothing here uses the network.

use super::config::GossipTiming;
use super::event::{Member, MemberEvent};
use super::limiter::Limiter;
use bytes::Bytes;
use remoor_model::{Instance, NodeName, Report, ReportOrder, report_stale_ms};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Maximum names that the inventory does not know. Further ones are rejected, because anybody with
/// the gossip key can invent names, and memberlist never forgets a name.
const STRANGERS_MAX: usize = 256;
/// The maximum in a small cluster. memberlist sends each message to a few random nodes. So with
/// more strangers, the known nodes would seldom receive a message.
pub const STRANGERS_MIN: usize = 2;
/// One stranger is allowed for this number of known members.
const MEMBERS_PER_STRANGER: usize = 4;

/// An accepted record of a live member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEntry {
    pub addr: SocketAddr,
    /// The record as it was received. It is kept because comparing its bytes is cheap.
    pub meta: Bytes,
    pub report: Report,
    pub signed: bool,
    /// The key with which the signature was checked.
    pub key: Option<[u8; 32]>,
}

/// The observation of a node's record at another address than the known one.
#[derive(Debug)]
struct Sighting {
    addr: SocketAddr,
    instance: Instance,
    first: Instant,
    last: Instant,
}

/// The newest signed report of a node.
#[derive(Debug, Clone)]
struct NewestReport {
    key: [u8; 32],
    order: ReportOrder,
    received: Instant,
}

/// The live members and the state of the alarms.
pub struct MembershipView {
    members: BTreeMap<NodeName, MemberEntry>,
    /// The names of the members, by address.
    names: BTreeMap<SocketAddr, NodeName>,
    /// The number of `members` that the inventory knows.
    known: usize,
    /// The admitted names that the inventory did not know at that time. They are kept after their
    /// members are gone, because memberlist keeps them too.
    strangers: BTreeSet<NodeName>,
    alarms: Limiter,
    sighting: Option<Sighting>,
    /// Members whose current process also signs at another address. Either the node moved, or a
    /// running machine was copied.
    moves: BTreeMap<NodeName, Sighting>,
    /// The newest signed report of each node of the inventory, and the key that signed it. It is
    /// kept while the node is away, so that an old record cannot be replayed.
    newest: BTreeMap<NodeName, NewestReport>,
    copy_grace: Duration,
    /// If a record was not observed for longer than this, its next observation starts `copy_grace`
    /// again.
    copy_gap: Duration,
    /// Incremented by every change of the view. A copy of the view with a lower number is outdated.
    pub version: u64,
    /// Incremented whenever a member came or went.
    pub population: u64,
}

impl MembershipView {
    /// An empty view.
    pub fn new(timing: &GossipTiming) -> Self {
        Self {
            members: BTreeMap::new(),
            names: BTreeMap::new(),
            known: 0,
            strangers: BTreeSet::new(),
            alarms: Limiter::new(timing.alarm_interval),
            sighting: None,
            moves: BTreeMap::new(),
            newest: BTreeMap::new(),
            copy_grace: timing.copy_grace,
            copy_gap: timing.copy_grace.saturating_add(timing.exchange_interval * 6),
            version: 0,
            population: 0,
        }
    }

    /// Stores an accepted record. Returns the resulting event, or None if nothing changed.
    pub fn put(&mut self, name: NodeName, entry: MemberEntry) -> Option<MemberEvent> {
        let (addr, report, signed) = (entry.addr, entry.report.clone(), entry.signed);
        self.version += 1;
        if let Some(key) = entry.key.filter(|_| signed) {
            let (order, known) = (report.order(), self.newest.get(&name));
            if known.is_none_or(|newest| (newest.key, newest.order) != (key, order)) {
                self.newest.insert(name.clone(), NewestReport { key, order, received: Instant::now() });
            }
        }
        self.known += usize::from(entry.key.is_some());
        let old = self.members.insert(name.clone(), entry);
        if let Some(old) = &old {
            self.known -= usize::from(old.key.is_some());
            self.remove_address(old.addr, &name);
        }
        self.names.insert(addr, name.clone());
        match old {
            None => {
                self.population += 1;
                Some(MemberEvent::Alive { name, addr, report, signed })
            }
            Some(old) if (old.addr, &old.report, old.signed) == (addr, &report, signed) => None,
            Some(_) => Some(MemberEvent::Update { name, addr, report, signed }),
        }
    }

    /// Removes a member. Returns the resulting event, or None if there was no such member.
    pub fn remove(&mut self, name: &NodeName) -> Option<MemberEvent> {
        self.version += 1;
        self.moves.remove(name);
        let old = self.members.remove(name)?;
        self.known -= usize::from(old.key.is_some());
        self.remove_address(old.addr, name);
        self.population += 1;
        Some(MemberEvent::Gone { name: name.clone(), addr: old.addr })
    }

    fn remove_address(&mut self, addr: SocketAddr, name: &NodeName) {
        if self.names.get(&addr) == Some(name) {
            self.names.remove(&addr);
        }
    }

    /// The live member with this address.
    pub fn member_at(&self, addr: SocketAddr) -> Option<(&NodeName, &MemberEntry)> {
        self.members.get_key_value(self.names.get(&addr)?)
    }

    /// Whether a newer report was signed with the same key. Then `report` is a late echo or a
    /// replay. A report without a sequence number is accepted again once the newest report is
    /// stale. The node may run an older program again, which sends no number.
    pub fn has_newer(&self, name: &NodeName, key: &[u8; 32], report: &Report, now: Instant) -> bool {
        let Some(newest) = self.newest.get(name).filter(|newest| newest.key == *key) else { return false };
        let stale = Duration::from_millis(report_stale_ms(self.newest.len()));
        let replaced = report.sequence == 0 && now.saturating_duration_since(newest.received) >= stale;
        report.order().is_older_than(newest.order) && !replaced
    }

    /// Forgets the newest reports of nodes that are no longer in the inventory.
    pub fn retain_newest(&mut self, is_known: impl Fn(&NodeName) -> bool) {
        self.newest.retain(|name, _| is_known(name));
    }

    /// An empty view of the same node at another address. It keeps the newest reports.
    pub fn successor(&self, timing: &GossipTiming) -> Self {
        Self { version: self.version, population: self.population, newest: self.newest.clone(), ..Self::new(timing) }
    }

    /// The record of a live member.
    pub fn get(&self, name: &NodeName) -> Option<&MemberEntry> {
        self.members.get(name)
    }

    /// All live members, sorted by name.
    pub fn members(&self) -> Vec<Member> {
        let member = |(name, e): (&NodeName, &MemberEntry)| Member {
            name: name.clone(),
            addr: e.addr,
            report: e.report.clone(),
            signed: e.signed,
        };
        self.members.iter().map(member).collect()
    }

    /// The address of each live member, and whether its signature verifies.
    pub fn addresses(&self) -> Vec<(NodeName, SocketAddr, bool)> {
        self.members.iter().map(|(name, e)| (name.clone(), e.addr, e.signed)).collect()
    }

    /// The names of all live members.
    pub fn names(&self) -> Vec<NodeName> {
        self.members.keys().cloned().collect()
    }

    /// The number of live members without `me`.
    pub fn len_without(&self, me: &NodeName) -> usize {
        self.members.len() - usize::from(self.members.contains_key(me))
    }

    /// Whether a name that the inventory does not know may be admitted. If there are too many such
    /// names, first forgets those that the inventory knows by now.
    pub fn admit_stranger(&mut self, name: &NodeName, is_unknown: impl Fn(&NodeName) -> bool) -> bool {
        if self.strangers.contains(name) {
            return true;
        }
        let most = (self.known / MEMBERS_PER_STRANGER).clamp(STRANGERS_MIN, STRANGERS_MAX);
        if self.strangers.len() >= most {
            self.strangers.retain(is_unknown);
        }
        self.strangers.len() < most && self.strangers.insert(name.clone())
    }

    /// The event for a record with a bad signature. None while such events are rate-limited.
    pub fn alarm_forged(&mut self, name: &NodeName, addr: SocketAddr, now: Instant) -> Option<MemberEvent> {
        let allowed = self.alarms.allow("forged", name.as_str(), now);
        allowed.then(|| MemberEvent::Forged { name: name.clone(), addr })
    }

    /// The event for a report of an unknown version. None while such events are rate-limited.
    pub fn alarm_unreadable(
        &mut self,
        name: &NodeName,
        addr: SocketAddr,
        version: u8,
        now: Instant,
    ) -> Option<MemberEvent> {
        let allowed = self.alarms.allow("unreadable", name.as_str(), now);
        allowed.then(|| MemberEvent::Unreadable { name: name.clone(), addr, version })
    }

    /// The event for two addresses that claim one name. None while such events are rate-limited.
    pub fn alarm_conflict(
        &mut self,
        name: &NodeName,
        existing: SocketAddr,
        other: SocketAddr,
        now: Instant,
    ) -> Option<MemberEvent> {
        let allowed = self.alarms.allow("conflict", name.as_str(), now);
        allowed.then(|| MemberEvent::Conflict { name: name.clone(), existing, other })
    }

    /// Records that a live member's process also signs at `addr`. Returns whether this may still be
    /// a move of the node. After a move, the old address is soon found dead. A copy of a running
    /// machine keeps both addresses alive, so it does not count as a move after `copy_grace`.
    pub fn note_move(&mut self, name: &NodeName, addr: SocketAddr, instance: Instance, now: Instant) -> bool {
        match self.moves.get_mut(name) {
            Some(seen) if seen.instance == instance && now.saturating_duration_since(seen.last) <= self.copy_gap => {
                // A change of the address does not restart `copy_grace`. Otherwise two copies could
                // alternate.
                (seen.addr, seen.last) = (addr, now);
                now.saturating_duration_since(seen.first) < self.copy_grace
            }
            _ => {
                if self.members.contains_key(name) {
                    self.moves.insert(name.clone(), Sighting { addr, instance, first: now, last: now });
                }
                true
            }
        }
    }

    /// Records that this node's own signed record was observed at another address, and that the
    /// daemon there has to stop. Returns the event, or None while such events are rate-limited.
    pub fn note_outranked(&mut self, addr: SocketAddr, instance: Instance, now: Instant) -> Option<MemberEvent> {
        let lasting = self.sighting_duration(addr, instance, now) >= self.copy_grace;
        let kind = if lasting { "outranked" } else { "outranked at first" };
        let allowed = self.alarms.allow(kind, &addr.to_string(), now);
        allowed.then_some(MemberEvent::OutrankedElsewhere { addr, lasting })
    }

    /// The time for which this node's own signed record has been observed at `addr`. An
    /// interruption of more than `copy_gap` starts it again at 0.
    fn sighting_duration(&mut self, addr: SocketAddr, instance: Instance, now: Instant) -> Duration {
        match &mut self.sighting {
            Some(seen)
                if seen.addr == addr
                    && seen.instance == instance
                    && now.saturating_duration_since(seen.last) <= self.copy_gap =>
            {
                seen.last = now;
                now.saturating_duration_since(seen.first)
            }
            _ => {
                self.sighting = Some(Sighting { addr, instance, first: now, last: now });
                Duration::ZERO
            }
        }
    }

    /// Records that this node's own signed record was observed at another address. Returns the
    /// event once the record was observed there for `copy_grace`.
    ///
    /// After a quick restart at a new address, other members still report the old address until
    /// they find it dead. A copy of the machine continues to answer, so its record is reported
    /// again and again.
    pub fn note_elsewhere(&mut self, addr: SocketAddr, report: &Report, now: Instant) -> Option<MemberEvent> {
        let lasting = self.sighting_duration(addr, report.instance.clone(), now) >= self.copy_grace;
        let allowed = lasting && self.alarms.allow("elsewhere", &addr.to_string(), now);
        allowed.then_some(MemberEvent::SignedElsewhere { addr, api: report.api })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::Wall;

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 7946))
    }

    fn entry(isolation: u32) -> MemberEntry {
        let report = Report { isolation, ..Report::default() };
        MemberEntry { addr: addr(1), meta: Bytes::new(), report, signed: true, key: None }
    }

    fn report_of_start(instance: &str) -> Report {
        Report { instance: instance.into(), api: 7947, ..Report::default() }
    }

    #[test]
    fn a_report_that_was_superseded_is_refused_also_while_its_node_is_away() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let (w1, now) = (NodeName::from("w1"), Instant::now());
        let signed = |sequence, at| Report { sequence, signed_at: Wall(at), ..Report::default() };
        let refused = |view: &MembershipView, report: &Report| view.has_newer(&w1, &[1; 32], report, now);
        assert!(!refused(&view, &signed(7, 100)), "nothing is known yet");
        view.put(w1.clone(), MemberEntry { report: signed(7, 100), key: Some([1; 32]), ..entry(0) });
        view.remove(&w1);
        assert!(refused(&view, &signed(6, 90)));
        assert!(!refused(&view, &signed(7, 100)));
        assert!(!refused(&view, &signed(8, 110)));
        assert!(!view.has_newer(&w1, &[2; 32], &signed(6, 90), now), "the node has a new key");
        // The node runs an older program again. Its report is accepted once the newest report is
        // stale.
        assert!(refused(&view, &Report::default()));
        let later = now + Duration::from_millis(2 * report_stale_ms(1));
        assert!(!view.has_newer(&w1, &[1; 32], &Report::default(), later));
        assert!(view.has_newer(&w1, &[1; 32], &signed(6, 90), later));
        view.retain_newest(|_| false);
        assert!(!refused(&view, &signed(6, 90)), "the node was removed");
    }

    #[test]
    fn events_tell_new_from_changed_from_same() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let w1 = NodeName::from("w1");
        assert!(matches!(view.put(w1.clone(), entry(0)), Some(MemberEvent::Alive { .. })));
        assert_eq!(view.put(w1.clone(), entry(0)), None);
        assert!(matches!(view.put(w1.clone(), entry(1)), Some(MemberEvent::Update { .. })));
        assert_eq!(view.len_without(&w1), 0);
        assert!(matches!(view.remove(&w1), Some(MemberEvent::Gone { .. })));
        assert_eq!(view.remove(&w1), None);
    }

    #[test]
    fn an_echo_of_the_old_address_is_no_copy() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let start = Instant::now();
        for second in [0, 5, 29] {
            assert_eq!(view.note_elsewhere(addr(9), &report_of_start("a"), start + Duration::from_secs(second)), None);
        }
        // A machine that was suspended resumes an hour later and reports the node's old address
        // again.
        assert_eq!(view.note_elsewhere(addr(9), &report_of_start("a"), start + Duration::from_secs(3600)), None);
    }

    #[test]
    fn a_record_that_keeps_coming_is_a_copy() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let start = Instant::now();
        assert_eq!(view.note_elsewhere(addr(9), &report_of_start("a"), start), None);
        let later = start + Duration::from_secs(31);
        assert_eq!(
            view.note_elsewhere(addr(9), &report_of_start("a"), later),
            Some(MemberEvent::SignedElsewhere { addr: addr(9), api: 7947 })
        );
        assert_eq!(view.note_elsewhere(addr(9), &report_of_start("a"), later), None, "not at every packet");
    }

    #[test]
    fn a_process_at_two_addresses_is_a_move_for_a_while_only() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let (w1, start) = (NodeName::from("w1"), Instant::now());
        let mut at = |last, second| view.note_move(&w1, addr(last), "a".into(), start + Duration::from_secs(second));
        assert!(at(9, 0), "no member has this name: nothing is recorded");
        view.put(w1.clone(), entry(0));
        let mut at = |last, second| view.note_move(&w1, addr(last), "a".into(), start + Duration::from_secs(second));
        assert!(at(9, 100) && at(9, 129));
        assert!(!at(9, 131), "both live on");
        assert!(!at(8, 132), "a second copy");
        assert!(at(9, 3600), "another story");
        view.remove(&w1);
        view.put(w1.clone(), entry(0));
        assert!(
            view.note_move(&w1, addr(9), "a".into(), start + Duration::from_secs(3640)),
            "the old address was found dead"
        );
    }

    #[test]
    fn a_report_of_another_version_is_told_once_in_a_while() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let (name, now) = (NodeName::from("w1"), Instant::now());
        let told = view.alarm_unreadable(&name, addr(1), 2, now);
        assert_eq!(told, Some(MemberEvent::Unreadable { name: name.clone(), addr: addr(1), version: 2 }));
        assert_eq!(view.alarm_unreadable(&name, addr(1), 2, now), None);
    }

    #[test]
    fn names_nobody_knows_are_bounded_also_after_their_members_are_gone() {
        let mut view = MembershipView::new(&GossipTiming::default());
        let admitted = |view: &mut MembershipView, prefix: &str| {
            let names = (0..25_000).map(|n| NodeName(format!("{prefix}{n}")));
            let names: Vec<_> = names.filter(|name| view.admit_stranger(name, |_| true)).collect();
            for name in &names {
                view.put(name.clone(), entry(0));
                view.remove(name);
            }
            names.len()
        };
        assert_eq!(admitted(&mut view, "a"), STRANGERS_MIN);
        assert_eq!(admitted(&mut view, "b"), 0);
        assert!(view.admit_stranger(&"a0".into(), |_| true));
        assert!(view.admit_stranger(&"c".into(), |name| name.as_str() != "a0"), "the inventory knows a0 now");
        for n in 0..4 * 20 {
            view.put(NodeName(format!("known{n}")), MemberEntry { key: Some([0; 32]), ..entry(0) });
        }
        assert_eq!(admitted(&mut view, "d"), 20 - STRANGERS_MIN);
        for n in 0..8 * STRANGERS_MAX {
            view.put(NodeName(format!("known{n}")), MemberEntry { key: Some([0; 32]), ..entry(0) });
        }
        assert_eq!(admitted(&mut view, "e"), STRANGERS_MAX - 20);
    }
}
