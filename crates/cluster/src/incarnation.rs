//! Decides whether a process may act as a node of this cluster, in this epoch and with this data
//! directory. Each function takes the claim of the process and the facts that are known here, and
//! returns a decision with its reason. Gossip, Raft, the API and the agent call these functions and
//! act on the decision. This file reads, stores and sends nothing.
//! `docs/design/manager-lifecycle.md` lists all the decisions.
//!
//! # Starts of a manager
//!
//! A manager with a copied or outdated data directory starts normally. But as a member of Raft it
//! would vote twice in a term, or forget entries that it has acknowledged.
//!
//! Each start of a member is an incarnation. An incarnation has a number and a nonce. The number is
//! one more than that of the previous incarnation. Both are on disk before the first message. Every
//! message and answer contains them, together with two log marks. The first mark is the end of the
//! log when the log was opened. The second mark is the durable part of the log now: the term of the
//! last vote, and the last entry that is committed and synced. On an intact directory neither mark
//! ever decreases. For each Raft id, the other members store the last incarnation that they met and
//! the highest durable mark that it reported. They reject three kinds of incarnations:
//! - The same number with another nonce, or a successor of another nonce. One directory became two.
//! - A lower number. The directory is an older copy.
//! - A later incarnation whose first mark is below the mark that the previous incarnation had
//!   reported. The directory is an older copy too, however often it was started meanwhile.
//!
//! A peer with outdated knowledge may accept a cloned directory as the successor. The original may
//! then prove that it has more log than the clone had at its start. In that case the peer accepts
//! the original again and rejects the clone.
//!
//! At its start, a member sends its claim to the other members before it takes part. Answers are
//! checked like requests, so a leader does not count a rejected follower's acknowledgements.
//!
//! Four cases are not detected:
//! - No running member has met the later incarnation, because all managers, or all except absent
//!   ones, were restored together. Everything that was decided since the copy is lost, and no node
//!   can notice the loss.
//! - An older directory lacks only entries that were acknowledged in the last moments and not yet
//!   reported as committed. The peers also forget the last reported marks if they all stop, because
//!   they write marks only every few seconds. They write incarnations at once.
//! - A machine whose memory is restored together with its disk continues in the same incarnation.
//! - A copy of a member that has reported nothing new since the copy has as much log as the
//!   original. The one that was started last continues, and the other one is rejected. Gossip stops
//!   both if their addresses differ.

use remoor_model::{Epoch, Inventory, Node, NodeId, RaftId, Report, Wall};
use serde::{Deserialize, Serialize};

/// A message of the previous incarnation may arrive shortly after the first message of the next
/// incarnation. A message that arrives within this time was probably sent before the new
/// incarnation began.
const LATE_MS: u64 = 1_000;

/// A durable position in a log: the term of the last vote, and a committed entry. Both are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogMark {
    pub term: u64,
    pub index: u64,
}

impl LogMark {
    fn is_behind(self, other: Self) -> bool {
        self.term < other.term || self.index < other.index
    }

    fn max_with(self, other: Self) -> Self {
        Self { term: self.term.max(other.term), index: self.index.max(other.index) }
    }
}

/// One start of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// The number of the start. The first start has the number 1.
    pub number: u64,
    pub nonce: u64,
    /// Nonce of the previous incarnation. 0 if there was none.
    #[serde(rename = "after")]
    pub previous_nonce: u64,
    /// The term of the last vote and the last entry, committed or not, at the time when the log was
    /// opened.
    #[serde(rename = "born")]
    pub log_at_start: LogMark,
}

/// The claim about itself that a member sends with each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncarnationClaim {
    #[serde(rename = "life")]
    pub incarnation: Incarnation,
    #[serde(rename = "kept")]
    pub durable_log: LogMark,
}

/// The reason why a member is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectedIncarnation {
    /// Another incarnation of the same member, with the same number or the same predecessor, is
    /// known.
    Cloned { number: u64 },
    /// A later incarnation of the same member is known.
    Older { number: u64, known: u64 },
    /// At the start of the incarnation, its log was shorter than the log that the previous
    /// incarnation had reported.
    RolledBack {
        number: u64,
        known: u64,
        /// The log mark at the start of incarnation `number`.
        log_at_start: LogMark,
        /// The log mark that incarnation `known` had reported.
        told: LogMark,
    },
}

impl std::fmt::Display for RejectedIncarnation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cloned { number } => {
                write!(f, "its start {number} differs from the known one: there are two copies of its data directory")
            }
            Self::Older { number, known } => {
                write!(f, "it reports start {number}, but start {known} is known: its data directory is an older copy")
            }
            Self::RolledBack { number, known, log_at_start: born, told } => write!(
                f,
                "start {number} began with entry {} and term {}, but start {known} had reported entry {} and term {}: \
                 its data directory is an older copy",
                born.index, born.term, told.index, told.term
            ),
        }
    }
}

/// The rejection of a member by this member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncarnationRejection {
    pub reason: RejectedIncarnation,
    /// The time at which the accepted incarnation was first met.
    pub since: Wall,
}

impl IncarnationRejection {
    /// Whether the rejected claim may be one of the last messages of the previous incarnation. Such
    /// a message may arrive after the first message of the next incarnation.
    pub fn may_be_late(&self, now: Wall) -> bool {
        matches!(self.reason, RejectedIncarnation::Older { .. }) && now.ms_since(self.since) < LATE_MS
    }
}

/// The last accepted incarnation of another member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownIncarnation {
    pub number: u64,
    nonce: u64,
    since: Wall,
    #[serde(rename = "told")]
    reported_log: LogMark,
    /// The log mark at the start of the incarnation. None in a record of an earlier program, which
    /// did not store the mark.
    #[serde(default, rename = "born")]
    log_at_start: Option<LogMark>,
    /// Nonce of the previous incarnation. None in a record of an earlier program, which did not
    /// store this nonce.
    #[serde(default, rename = "after")]
    previous_nonce: Option<u64>,
}

impl KnownIncarnation {
    fn check(&self, claim: &IncarnationClaim) -> Result<(), RejectedIncarnation> {
        let Incarnation { number, nonce, previous_nonce: after, log_at_start: born } = claim.incarnation;
        let known = self.number;
        if number < known {
            return Err(RejectedIncarnation::Older { number, known });
        }
        if (number == known && nonce != self.nonce) || (number == known.saturating_add(1) && after != self.nonce) {
            return Err(RejectedIncarnation::Cloned { number });
        }
        if number > known && born.is_behind(self.reported_log) {
            return Err(RejectedIncarnation::RolledBack { number, known, log_at_start: born, told: self.reported_log });
        }
        Ok(())
    }

    /// Whether a claim of the direct predecessor refutes this incarnation. This incarnation began
    /// with the predecessor's disk. So the log with which it began must not be shorter than the
    /// durable log that the predecessor claimed. A claim of a still earlier incarnation proves
    /// nothing. Its directory may have been restored, and then filled by a leader with newer terms
    /// and entries.
    fn is_refuted_by(&self, claim: &IncarnationClaim) -> bool {
        let parent = self.number == claim.incarnation.number.saturating_add(1)
            && self.previous_nonce == Some(claim.incarnation.nonce);
        parent && self.log_at_start.is_some_and(|born| born.is_behind(claim.durable_log))
    }
}

/// Judges a claim by the last accepted incarnation of the same member. Returns the record of the
/// member that replaces `known`.
pub fn judge_incarnation(
    known: Option<KnownIncarnation>,
    claim: &IncarnationClaim,
    now: Wall,
) -> Result<KnownIncarnation, IncarnationRejection> {
    let Incarnation { number, nonce, previous_nonce, log_at_start } = claim.incarnation;
    let mut reported_log = LogMark::default();
    // The log marks that a refuted copy reported are not marks of the original.
    if let Some(known) = known.filter(|known| !known.is_refuted_by(claim)) {
        known.check(claim).map_err(|reason| IncarnationRejection { reason, since: known.since })?;
        reported_log = known.reported_log;
        if number == known.number {
            return Ok(KnownIncarnation { reported_log: reported_log.max_with(claim.durable_log), ..known });
        }
    }
    // Entries that were not committed when the log was opened may still be truncated, so they do
    // not count.
    let first = LogMark { term: log_at_start.term.max(claim.durable_log.term), index: claim.durable_log.index };
    Ok(KnownIncarnation {
        number,
        nonce,
        since: now,
        reported_log: reported_log.max_with(first),
        log_at_start: Some(log_at_start),
        previous_nonce: Some(previous_nonce),
    })
}

/// The newest epoch that this node knows, and the epoch of its certificate.
#[derive(Debug, Clone, Copy)]
pub struct OwnEpochs {
    /// The newest epoch that was proved to this node, or that a manager reported.
    pub known: Epoch,
    /// The epoch of the node's certificate.
    pub certified: Epoch,
}

/// The kind of node that claims an epoch by gossip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochClaimant {
    Worker,
    /// A manager. It can also renew this node's certificate.
    Manager,
    /// Another daemon of this node. Of the two daemons, the one with the older certificate stops.
    ThisNode,
}

impl OwnEpochs {
    /// Whether a claim of an epoch must be proved by a certificate.
    pub fn needs_proof(self, claimed: Epoch, by: EpochClaimant) -> bool {
        match by {
            EpochClaimant::Worker => claimed > self.known,
            EpochClaimant::Manager => claimed > self.known.min(self.certified),
            EpochClaimant::ThisNode => claimed > self.certified,
        }
    }
}

/// The decision about a record that has this node's name and signature, but names another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnRecordVerdict {
    /// This daemon signed the record, at an earlier address.
    Echo,
    /// Another daemon of this node signed the record, and the other daemon has to stop.
    OtherStops,
    /// Another daemon of this node signed the record. If the other daemon still runs, this one has
    /// to stop.
    ThisStops,
}

/// Compares this daemon's report `own` with the report `other` in a record with the same name and
/// signature. If a worker was copied, both daemons stop. Of a manager and a worker, the worker
/// stops. If the node was set up again in a rebuilt cluster, the daemon of the older epoch stops.
pub fn judge_own_record(own: &Report, other: &Report) -> OwnRecordVerdict {
    let reported = own.epoch != Epoch(0) && other.epoch != Epoch(0);
    match () {
        () if own.instance == other.instance => OwnRecordVerdict::Echo,
        () if reported && (own.epoch, own.manages) > (other.epoch, other.manages) => OwnRecordVerdict::OtherStops,
        () => OwnRecordVerdict::ThisStops,
    }
}

/// Facts, besides this node's log, which show that the node of a sender is a manager.
#[derive(Debug, Clone, Copy, Default)]
pub struct NamedManager {
    /// Whether this node's agent knows the sender's node as a manager.
    pub by_agent: bool,
    /// Whether the order that started this node's manager service names the sender's node as a
    /// manager. The order is as old as the manager service, so it may be outdated.
    pub by_order: bool,
    /// Whether this node's log is older than the order that started this manager service. In that
    /// case the sender's node may be a manager again although it is a worker in the log.
    pub log_is_behind: bool,
}

impl NamedManager {
    /// Whether a node with these facts may act as a manager before its Raft id is known here.
    /// `applied` is the node in the applied state. A node that is no longer a manager must not act
    /// because of an old order.
    pub fn speaks(self, applied: Option<&Node>) -> bool {
        self.by_agent || self.by_order && (self.log_is_behind || applied.is_none_or(Node::manages))
    }
}

/// The decision about a node that sends Raft messages under a Raft id.
#[derive(Debug, PartialEq, Eq)]
pub enum SenderVerdict<'a> {
    /// The sender is accepted for one of two reasons. Either the id belongs to the sender's node.
    /// The node's desired role does not matter, because a leaving manager may send until it is
    /// removed from Raft. Or the entry that grants the id is not applied here yet, but the node is
    /// known as a manager. Then its messages bring the missing entries.
    Accept,
    /// The id belongs to no node and is never used again.
    Retired,
    /// The id belongs to another node.
    HeldByOther(&'a Node),
    /// The node left or was removed.
    Out,
    /// The applied state does not contain the entry that grants the id yet.
    Unknown,
}

/// Judges a node that sends messages under the id `raft`, by the applied state and by the facts in
/// `named`.
pub fn judge_sender(inventory: &Inventory, node: NodeId, raft: RaftId, named: NamedManager) -> SenderVerdict<'_> {
    // The founder's id is not a log index. The first `Grant` entry of a cluster grants it, and the
    // founder may use it before that.
    let is_ungranted_founder = || raft == RaftId(1) && inventory.nodes.values().all(|n| n.raft.is_none());
    match inventory.raft_id_holder(raft) {
        Some(holder) if holder.id == node => SenderVerdict::Accept,
        Some(other) => SenderVerdict::HeldByOther(other),
        None if inventory.is_retired(raft) && !is_ungranted_founder() => SenderVerdict::Retired,
        None if inventory.membership(node).is_out() => SenderVerdict::Out,
        None if named.speaks(inventory.node(node)) => SenderVerdict::Accept,
        None => SenderVerdict::Unknown,
    }
}

/// The decision about the Raft id in an order to run a manager service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderedRaftId {
    /// The node already has the ordered id.
    Held,
    /// The node takes the ordered id. If the node has another id, the log of that id is archived.
    New,
    /// No order may contain this id: 0 is no id, and 1 is the founder's id.
    Reserved,
    /// The node has archived its log under the ordered id, or under a later one.
    Retired,
    /// The node has a Raft id that was granted later than the ordered one.
    Older,
}

/// Judges the ordered `raft` by the id that the node has, and by the last id that it lost in this
/// epoch. Ids are log indices, so a lower id is older.
pub fn judge_order(raft: RaftId, held: Option<RaftId>, retired: Option<RaftId>) -> OrderedRaftId {
    match held {
        _ if raft <= RaftId(1) && held != Some(raft) => OrderedRaftId::Reserved,
        _ if retired.is_some_and(|last| raft <= last) => OrderedRaftId::Retired,
        Some(held) if raft < held => OrderedRaftId::Older,
        Some(held) if raft == held => OrderedRaftId::Held,
        _ => OrderedRaftId::New,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::{Applied, ClusterRole, Command, InventoryEntry, NodeSpec};

    fn mark(term: u64, index: u64) -> LogMark {
        LogMark { term, index }
    }

    fn make_claim(number: u64, nonce: u64, after: u64, born: LogMark, kept: LogMark) -> IncarnationClaim {
        let incarnation = Incarnation { number, nonce, previous_nonce: after, log_at_start: born };
        IncarnationClaim { incarnation, durable_log: kept }
    }

    #[test]
    fn each_claim_is_judged_by_the_last_start_that_is_known() {
        let (born, kept, more) = (mark(2, 20), mark(3, 30), mark(9, 99));
        let known = make_claim(5, 50, 40, born, kept);
        let behind = |number, born| {
            Some(RejectedIncarnation::RolledBack { number, known: 5, log_at_start: born, told: mark(3, 30) })
        };
        let cloned = |number| Some(RejectedIncarnation::Cloned { number });
        let older = |number| Some(RejectedIncarnation::Older { number, known: 5 });
        let rows = [
            ("the same start", make_claim(5, 50, 40, born, more), None),
            ("the same number of another start", make_claim(5, 51, 40, born, more), cloned(5)),
            ("the next start", make_claim(6, 60, 50, kept, kept), None),
            ("the next start of another one", make_claim(6, 60, 51, more, more), cloned(6)),
            ("the next start with an older term", make_claim(6, 60, 50, mark(2, 30), more), behind(6, mark(2, 30))),
            ("the next start with fewer entries", make_claim(6, 60, 50, mark(3, 29), more), behind(6, mark(3, 29))),
            ("a start after one that nobody met", make_claim(7, 70, 60, kept, kept), None),
            ("the same with fewer entries", make_claim(7, 70, 60, mark(3, 29), more), behind(7, mark(3, 29))),
            ("the start before, with no more log", make_claim(4, 40, 30, born, born), older(4)),
            ("the start before, which holds more entries", make_claim(4, 40, 30, born, mark(2, 21)), None),
            ("the start before, which holds a later vote", make_claim(4, 40, 30, born, mark(3, 0)), None),
            ("another start of that number", make_claim(4, 41, 30, born, more), older(4)),
            ("a start before that", make_claim(3, 30, 20, born, more), older(3)),
        ];
        for (what, claim, rejected) in rows {
            let known = judge_incarnation(None, &known, Wall(1_000)).expect("new here");
            let judged = judge_incarnation(Some(known), &claim, Wall(2_000));
            assert_eq!(judged.err().map(|rejection| rejection.reason), rejected, "{what}");
        }
    }

    #[test]
    fn of_two_daemons_of_one_node_the_one_of_a_newer_epoch_or_with_a_manager_goes_on() {
        let report = |(epoch, manages), instance: &str| Report {
            epoch: Epoch(epoch),
            manages,
            instance: instance.into(),
            ..Report::default()
        };
        assert_eq!(judge_own_record(&report((3, true), "a"), &report((7, true), "a")), OwnRecordVerdict::Echo);
        let rows = [
            ((7, false), (3, true), true, false),
            ((7, true), (7, false), true, false),
            ((7, true), (7, true), false, false),
            ((7, false), (7, false), false, false),
            // An earlier program does not report its epoch.
            ((7, true), (0, false), false, false),
            ((0, true), (0, false), false, false),
        ];
        for (one, other, first_stays, second_stays) in rows {
            let stays = |own, other| match judge_own_record(&report(own, "a"), &report(other, "b")) {
                OwnRecordVerdict::OtherStops => true,
                OwnRecordVerdict::ThisStops => false,
                OwnRecordVerdict::Echo => panic!("two instances"),
            };
            assert_eq!(stays(one, other), first_stays, "{one:?} and {other:?}");
            assert_eq!(stays(other, one), second_stays, "{other:?} and {one:?}");
        }
    }

    #[test]
    fn an_id_is_retired_only_once_its_grant_is_applied() {
        fn status(state: &Inventory, node: NodeId, raft: RaftId) -> SenderVerdict<'_> {
            judge_sender(state, node, raft, NamedManager::default())
        }
        let mut state = Inventory::default();
        let mut write = |command: Command| {
            let index = state.applied + 1;
            let applied = state.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command });
            assert_eq!(applied.refusal(), None);
            (state.clone(), applied)
        };
        let accept = |name: &str| {
            let spec = NodeSpec { name: name.into(), public_key: name.to_owned(), ..NodeSpec::default() };
            Command::Accept { spec, role: ClusterRole::Manager }
        };
        assert_eq!(status(&Inventory::default(), NodeId(1), RaftId(1)), SenderVerdict::Unknown);
        let (seen, Applied::Node(m1)) = write(accept("m1")) else { panic!("not let in") };
        assert_eq!(status(&seen, m1, RaftId(1)), SenderVerdict::Unknown, "the founder speaks before its grant");
        let (seen, _) = write(Command::Grant { node: m1, founder: true });
        assert_eq!(status(&seen, m1, RaftId(1)), SenderVerdict::Accept);
        let (seen, Applied::Node(m2)) = write(accept("m2")) else { panic!("not let in") };
        assert_eq!(status(&seen, m2, RaftId(4)), SenderVerdict::Unknown, "not granted here yet");
        let (seen, Applied::Raft(second)) = write(Command::Grant { node: m2, founder: false }) else { panic!("no id") };
        assert_eq!(status(&seen, m2, second), SenderVerdict::Accept);
        assert!(matches!(status(&seen, m1, second), SenderVerdict::HeldByOther(n) if n.id == m2));
        let (seen, _) = write(Command::Role { node: m2, role: ClusterRole::Worker });
        assert_eq!(status(&seen, m2, second), SenderVerdict::Accept, "it leaves, but is still a member");
        let (seen, _) = write(Command::Retire { node: m2, raft: second });
        assert_eq!(status(&seen, m2, second), SenderVerdict::Retired);
        write(Command::Role { node: m2, role: ClusterRole::Manager });
        write(Command::Grant { node: m2, founder: false });
        write(Command::Role { node: m1, role: ClusterRole::Worker });
        let (seen, _) = write(Command::Retire { node: m1, raft: RaftId(1) });
        assert_eq!(status(&seen, m1, RaftId(1)), SenderVerdict::Retired, "the founder's id too");
        assert_eq!(status(&seen, NodeId(99), second), SenderVerdict::Retired, "of a node that was removed");
    }

    #[test]
    fn an_unknown_raft_id_speaks_if_its_node_is_named_and_the_log_does_not_say_otherwise() {
        let mut log = remoor_model::sample::fleet(0, 2);
        let (manager, worker, stranger) = (NodeId(1), NodeId(2), NodeId(99));
        let command = Command::Role { node: manager, role: ClusterRole::Manager };
        let index = log.applied + 1;
        let applied = log.apply(index, &InventoryEntry { at: Wall(index), by: "m1".to_owned(), command });
        assert_eq!(applied.refusal(), None);
        let named = |by_agent, by_order, log_is_behind| NamedManager { by_agent, by_order, log_is_behind };
        let rows = [
            (named(false, false, true), [false, false, false]),
            (named(true, false, false), [true, true, true]),
            (named(false, true, true), [true, true, true]),
            (named(false, true, false), [true, false, true]),
        ];
        for (named, speaks) in rows {
            for (node, speaks) in [manager, worker, stranger].into_iter().zip(speaks) {
                let verdict = judge_sender(&log, node, RaftId(log.applied + 1), named);
                let expected = if speaks { SenderVerdict::Accept } else { SenderVerdict::Unknown };
                assert_eq!(verdict, expected, "node {node}, {named:?}");
            }
        }
    }

    #[test]
    fn an_order_gives_the_held_raft_id_or_a_newer_one() {
        let rows = [
            (0, None, None, OrderedRaftId::Reserved),
            (1, None, None, OrderedRaftId::Reserved),
            (1, Some(1), None, OrderedRaftId::Held),
            (1, Some(7), None, OrderedRaftId::Reserved),
            (7, None, None, OrderedRaftId::New),
            (7, Some(7), None, OrderedRaftId::Held),
            (7, Some(5), None, OrderedRaftId::New),
            (5, Some(7), None, OrderedRaftId::Older),
            (7, None, Some(7), OrderedRaftId::Retired),
            (5, None, Some(7), OrderedRaftId::Retired),
            (5, Some(9), Some(7), OrderedRaftId::Retired),
            (8, None, Some(7), OrderedRaftId::New),
            (8, Some(9), Some(7), OrderedRaftId::Older),
        ];
        for (raft, held, retired, verdict) in rows {
            let judged = judge_order(RaftId(raft), held.map(RaftId), retired.map(RaftId));
            assert_eq!(judged, verdict, "{raft} while {held:?} is held and {retired:?} is retired");
        }
    }

    #[test]
    fn a_claimed_epoch_needs_proof_if_it_would_change_something_here() {
        let rows = [
            // The node's certificate is of the newest epoch that the node knows.
            (7, 7, 7, [false, false, false]),
            (7, 7, 8, [true, true, true]),
            // The node has moved to a newer epoch, and waits for a certificate of that epoch.
            (7, 3, 3, [false, false, false]),
            (7, 3, 5, [false, true, true]),
            (7, 3, 7, [false, true, true]),
            (7, 3, 8, [true, true, true]),
            // The node already has a certificate of a newer epoch, but no manager has reported that
            // epoch yet.
            (3, 7, 5, [true, true, false]),
            (3, 7, 8, [true, true, true]),
            // An earlier program does not report its epoch.
            (1, 1, 0, [false, false, false]),
        ];
        for (known, certified, claimed, expected) in rows {
            let own = OwnEpochs { known: Epoch(known), certified: Epoch(certified) };
            let by = [EpochClaimant::Worker, EpochClaimant::Manager, EpochClaimant::ThisNode];
            assert_eq!(by.map(|by| own.needs_proof(Epoch(claimed), by)), expected, "{claimed} to {own:?}");
        }
    }
}
