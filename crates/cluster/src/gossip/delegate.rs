//! Callbacks from memberlist. No callback may await, because memberlist aborts its task in the
//! middle of `notify_leave`. memberlist also calls them while its member table is locked. So a call
//! back into memberlist would deadlock.

use super::config::GossipTiming;
use super::event::{EpochClaim, MemberEvent};
use super::judge::{Judge, Judgement};
use super::meta;
use super::view::{MemberEntry, MembershipView};
use crate::incarnation::{OwnRecordVerdict, judge_own_record};
use bytes::Bytes;
use memberlist::delegate::{
    AliveDelegate, ConflictDelegate, Delegate, EventDelegate, MergeDelegate, NodeDelegate, PingDelegate,
};
use memberlist::proto::{Meta, NodeState};
use remoor_model::{Instance, NodeName, Report, Wall};
use smol_str::SmolStr;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

type Node = Arc<NodeState<SmolStr, SocketAddr>>;

/// The reason why a gossip record was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordRejection {
    #[error("the signature is not this node's")]
    Forged,
    #[error("the node was removed from the cluster")]
    Removed,
    #[error("the name is not a node name")]
    BadName,
    #[error("too many nodes that are not in the inventory")]
    Crowded,
    #[error("the record has this node's own name at another address")]
    OwnElsewhere,
    #[error("the node has signed a newer report")]
    Outdated,
}

/// Maximum nodes whose signed claims of a newer epoch are kept. The number may be small, because
/// one verified claim is enough. Beyond it, a manager's claim replaces a worker's.
const CLAIMS_MAX: usize = 64;
/// Maximum nodes unknown to the inventory whose claims of a newer epoch are kept. It is smaller
/// than [`CLAIMS_MAX`], because anybody with the gossip key can invent such nodes.
const STRANGE_CLAIMS_MAX: usize = 16;

/// The state that the delegate and the handle share.
pub struct GossipState {
    pub judge: Judge,
    /// The report that this node publishes. If a record at another address has the same instance as
    /// this report, this process signed the record at an earlier address.
    own_report: Mutex<Report>,
    /// The nodes that claim a newer epoch.
    claims: Arc<watch::Sender<BTreeMap<NodeName, EpochClaim>>>,
    view: Mutex<MembershipView>,
    /// The encoded and signed form of `own_report`.
    meta: Mutex<Bytes>,
    /// The channel is unbounded, because sending to a full channel would have to await. The number
    /// of members and the alarm interval limit the events.
    events: mpsc::UnboundedSender<MemberEvent>,
    /// Incremented whenever a member came or went.
    changed: Arc<watch::Sender<u64>>,
    /// Set when the address changed and another `GossipState` took over. Later callbacks concern
    /// the old address and are ignored.
    closed: AtomicBool,
    /// Incremented when this node has to sign its report again, because others have raised the
    /// incarnation number close to the limit of the report.
    renewals: Arc<watch::Sender<u64>>,
}

impl GossipState {
    /// The state of a new member, which knows no other members yet.
    pub fn new(judge: Judge, meta: Bytes, timing: &GossipTiming, events: mpsc::UnboundedSender<MemberEvent>) -> Self {
        Self {
            judge,
            own_report: Mutex::default(),
            claims: Arc::default(),
            view: Mutex::new(MembershipView::new(timing)),
            meta: Mutex::new(meta),
            events,
            changed: Arc::new(watch::Sender::new(0)),
            closed: AtomicBool::new(false),
            renewals: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Creates the state of the same node at another address. The new state has no members. First,
    /// all present members are reported `Gone`, because the node left their network. After that,
    /// `self` emits no events.
    pub fn create_successor(&self, judge: Judge, meta: Bytes, timing: &GossipTiming) -> Self {
        let mut view = self.view();
        for name in view.names().into_iter().filter(|name| *name != judge.me) {
            let event = view.remove(&name);
            self.emit(&view, event);
        }
        self.closed.store(true, Ordering::SeqCst);
        let fresh = view.successor(timing);
        Self {
            judge,
            own_report: Mutex::new(self.own_report().clone()),
            claims: self.claims.clone(),
            view: Mutex::new(fresh),
            meta: Mutex::new(meta),
            events: self.events.clone(),
            changed: self.changed.clone(),
            closed: AtomicBool::new(false),
            renewals: self.renewals.clone(),
        }
    }

    /// Locks the view.
    pub fn view(&self) -> MutexGuard<'_, MembershipView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the report that this node publishes, and its signed form. Drops the claims of
    /// epochs that are not newer than the report's epoch.
    pub fn set_own(&self, report: &Report, meta: Bytes) {
        *self.own_report() = report.clone();
        *self.meta.lock().unwrap_or_else(PoisonError::into_inner) = meta;
        self.claims.send_if_modified(|claims| {
            let before = claims.len();
            claims.retain(|_, claim| claim.epoch > report.epoch);
            claims.len() != before
        });
    }

    pub fn own_report(&self) -> MutexGuard<'_, Report> {
        self.own_report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the node's claim of a newer epoch.
    pub fn remove_claim(&self, name: &NodeName) {
        self.claims.send_if_modified(|claims| claims.remove(name).is_some());
    }

    /// A map of the claims of a newer epoch. It is updated as claims arrive.
    pub fn claims(&self) -> watch::Receiver<BTreeMap<NodeName, EpochClaim>> {
        self.claims.subscribe()
    }

    /// Records the epoch that a record claims. If the epoch is not newer than that of this node's
    /// report, an earlier claim of the same node is removed.
    fn claim(&self, name: &NodeName, addr: SocketAddr, report: &Report, signed: bool) {
        if report.epoch <= self.own_report().epoch {
            // Two daemons may report under this node's own name. For this name, a report removes
            // only a claim from the same address.
            self.claims.send_if_modified(|claims| {
                let its = claims.get(name).is_some_and(|claim| *name != self.judge.me || claim.addr == addr);
                its && claims.remove(name).is_some()
            });
            return;
        }
        let claim = EpochClaim { addr, epoch: report.epoch, api: report.api, manages: report.manages, signed };
        self.claims.send_if_modified(|claims| {
            if claims.get(name) == Some(&claim) {
                return false;
            }
            let most = if signed { CLAIMS_MAX } else { STRANGE_CLAIMS_MAX };
            if !claims.contains_key(name) && claims.values().filter(|c| c.signed == signed).count() >= most {
                let lesser =
                    claims.iter().find(|(_, c)| c.signed == signed && !c.manages).map(|(name, _)| name.clone());
                let Some(lesser) = lesser.filter(|_| signed && claim.manages) else { return false };
                claims.remove(&lesser);
            }
            claims.insert(name.clone(), claim);
            true
        });
    }

    /// A counter that changes whenever a member came or went.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The time at which this node signed its report, and the signed report.
    pub fn own_record(&self) -> (Wall, Bytes) {
        let signed_at = self.own_report().signed_at;
        (signed_at, self.meta.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Asks for a new signature of this node's report.
    pub fn request_renewal(&self) {
        self.renewals.send_modify(|count| *count += 1);
    }

    /// A counter of the requests for a new signature.
    pub fn renewals(&self) -> watch::Receiver<u64> {
        self.renewals.subscribe()
    }

    /// Emits an event of the view. The caller still holds the view's lock, so that events have the
    /// order of the view's changes.
    pub fn emit(&self, view: &MembershipView, event: Option<MemberEvent>) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        if let Some(event) = event {
            // An error means that the consumer has closed the channel.
            let _ = self.events.send(event);
        }
        self.changed.send_if_modified(|seen| std::mem::replace(seen, view.population) != view.population);
    }

    /// Stores a record in the view if it is accepted.
    pub fn take_in(&self, name: NodeName, addr: SocketAddr, meta: Bytes) {
        self.take_into(&mut self.view(), name, addr, meta);
    }

    /// Like [`Self::take_in`], for a caller that already holds the view's lock.
    pub fn take_into(&self, view: &mut MembershipView, name: NodeName, addr: SocketAddr, meta: Bytes) {
        let entry = match self.judge.judge(&name, addr, &meta) {
            Judgement::Member { report, signed, key } => MemberEntry { addr, meta, report, signed, key },
            Judgement::Own { report } => {
                MemberEntry { addr, meta, report, signed: true, key: Some(self.judge.own_key.to_bytes()) }
            }
            other => {
                tracing::debug!(node = %name, %addr, judgement = ?other, "member is not shown");
                return;
            }
        };
        // Record the node's claim of a newer epoch here too. When the record first arrived, the
        // node's key may have been unknown, so the claim was not recorded as signed.
        if entry.signed && name != self.judge.me {
            self.claim(&name, addr, &entry.report, true);
        }
        // A record that is signed with the known key but cannot be decoded has another version of
        // the report.
        let strange = (entry.key.is_some() && !entry.signed).then(|| meta::version_of(&entry.meta)).flatten();
        let alarm = strange.and_then(|version| view.alarm_unreadable(&name, addr, version, Instant::now()));
        let event = view.put(name, entry);
        self.emit(view, event);
        if alarm.is_some() {
            self.emit(view, alarm);
        }
    }

    fn is_unknown(&self, name: &NodeName) -> bool {
        matches!((self.judge.verify)(name), super::KeyLookup::Unknown)
    }

    /// Decides whether memberlist may receive a record of a live node. Emits an alarm if the record
    /// is forged.
    pub fn admit(&self, name: &NodeName, addr: SocketAddr, meta: &[u8]) -> Result<(), RecordRejection> {
        if self.is_verified(&self.view(), name, addr, meta) {
            return Ok(());
        }
        let judgement = self.judge.judge(name, addr, meta);
        let now = Instant::now();
        let mut view = self.view();
        let (event, answer) = match judgement {
            Judgement::Own { .. } => (None, Ok(())),
            Judgement::Member { key: None, .. } if !view.admit_stranger(name, |name| self.is_unknown(name)) => {
                (None, Err(RecordRejection::Crowded))
            }
            Judgement::Member { report, key: Some(key), signed: true } if view.has_newer(name, &key, &report, now) => {
                (None, Err(RecordRejection::Outdated))
            }
            Judgement::Member { report, signed, key } => {
                if signed || key.is_none() {
                    self.claim(name, addr, &report, signed);
                }
                (None, Ok(()))
            }
            // The record is admitted on purpose. memberlist never stores such a record; it answers
            // with the true record and a higher SWIM incarnation number. Without that answer, a
            // reinstalled node could not replace the record of its earlier key.
            Judgement::OwnUnsigned => (view.alarm_forged(name, addr, now), Ok(())),
            Judgement::OwnForged | Judgement::Forged => {
                (view.alarm_forged(name, addr, now), Err(RecordRejection::Forged))
            }
            Judgement::OwnElsewhere { report } => {
                self.claim(name, addr, &report, true);
                let own = self.own_report().clone();
                let event = match judge_own_record(&own, &report) {
                    OwnRecordVerdict::Echo => None,
                    OwnRecordVerdict::OtherStops => view.note_outranked(addr, report.instance, now),
                    OwnRecordVerdict::ThisStops => view.note_elsewhere(addr, &report, now),
                };
                (event, Err(RecordRejection::OwnElsewhere))
            }
            Judgement::Removed => (None, Err(RecordRejection::Removed)),
            Judgement::BadName => (None, Err(RecordRejection::BadName)),
        };
        self.emit(&view, event);
        answer
    }

    /// Whether the same bytes from the same address were already verified with the node's current
    /// key. Another judgement would have the same result.
    pub fn is_verified(&self, view: &MembershipView, name: &NodeName, addr: SocketAddr, meta: &[u8]) -> bool {
        if *name == self.judge.me {
            return false;
        }
        let key = match (self.judge.verify)(name) {
            super::KeyLookup::Known(key) => key,
            super::KeyLookup::Unknown | super::KeyLookup::Removed => return false,
        };
        view.get(name).is_some_and(|e| e.key == Some(key.to_bytes()) && e.addr == addr && e.meta == *meta)
    }
}

/// The delegate that memberlist calls.
pub struct NodeEventDelegate(pub Arc<GossipState>);

fn node_parts(node: &Node) -> (NodeName, SocketAddr, Bytes) {
    (NodeName::from(node.id().as_str()), *node.address(), Bytes::copy_from_slice(node.meta().as_bytes()))
}

impl AliveDelegate for NodeEventDelegate {
    type Id = SmolStr;
    type Address = SocketAddr;
    type Error = RecordRejection;

    async fn notify_alive(&self, _peer: Node) -> Result<(), RecordRejection> {
        // The guard has admitted the record before memberlist received it.
        Ok(())
    }
}

impl EventDelegate for NodeEventDelegate {
    type Id = SmolStr;
    type Address = SocketAddr;

    async fn notify_join(&self, node: Node) {
        let (name, addr, meta) = node_parts(&node);
        self.0.take_in(name, addr, meta);
    }

    async fn notify_update(&self, node: Node) {
        let (name, addr, meta) = node_parts(&node);
        self.0.take_in(name, addr, meta);
    }

    async fn notify_leave(&self, node: Node) {
        let mut view = self.0.view();
        let name = NodeName::from(node.id().as_str());
        if name != self.0.judge.me {
            self.0.remove_claim(&name);
        }
        let event = view.remove(&name);
        self.0.emit(&view, event);
    }
}

impl ConflictDelegate for NodeEventDelegate {
    type Id = SmolStr;
    type Address = SocketAddr;

    async fn notify_conflict(&self, existing: Node, other: Node) {
        let (name, addr, meta) = node_parts(&other);
        // If the process that is known under this name signed the record, the node has moved. Its
        // old address is then soon found dead. If both addresses stay alive, a running machine was
        // copied.
        let moved = match self.0.judge.judge(&name, addr, &meta) {
            Judgement::Member { report, key: Some(_), .. } => report.instance,
            _ => Instance::default(),
        };
        let mut view = self.0.view();
        // If the member was already removed from the view, only memberlist still has its old
        // address. In that case the process at the new address is the only one.
        let same = !moved.0.is_empty() && view.get(&name).is_none_or(|e| e.report.instance == moved);
        if same && view.note_move(&name, addr, moved, Instant::now()) {
            tracing::info!(node = %name, %addr, "has moved");
            return;
        }
        let event = view.alarm_conflict(&name, *existing.address(), *other.address(), Instant::now());
        self.0.emit(&view, event);
    }
}

impl NodeDelegate for NodeEventDelegate {
    async fn node_meta(&self, _limit: usize) -> Meta {
        let meta = self.0.meta.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // The size of `meta` is limited by its construction. A `meta` that is too long would become
        // an empty record here, which every peer rejects.
        Meta::try_from(meta).unwrap_or_default()
    }

    async fn notify_message(&self, _msg: Cow<'_, [u8]>) {}

    async fn broadcast_messages<F>(&self, _limit: usize, _encoded_len: F) -> impl Iterator<Item = Bytes> + Send
    where
        F: Fn(Bytes) -> (usize, Bytes) + Send,
    {
        std::iter::empty()
    }

    async fn local_state(&self, _join: bool) -> Bytes {
        Bytes::new()
    }

    async fn merge_remote_state(&self, _buf: &[u8], _join: bool) {}
}

impl PingDelegate for NodeEventDelegate {
    type Id = SmolStr;
    type Address = SocketAddr;

    async fn ack_payload(&self) -> Bytes {
        Bytes::new()
    }

    async fn notify_ping_complete(&self, _node: Node, _rtt: Duration, _payload: Bytes) {}

    fn disable_reliable_pings(&self, _target: &SmolStr) -> bool {
        false
    }
}

impl MergeDelegate for NodeEventDelegate {
    type Id = SmolStr;
    type Address = SocketAddr;
    type Error = RecordRejection;

    async fn notify_merge(&self, _peers: Arc<[NodeState<SmolStr, SocketAddr>]>) -> Result<(), RecordRejection> {
        // The guard has admitted each record of the exchange.
        Ok(())
    }
}

impl Delegate for NodeEventDelegate {
    type Id = SmolStr;
    type Address = SocketAddr;
}

#[cfg(test)]
mod tests {
    use super::super::config::KeyLookup;
    use super::super::meta::SignatureScope;
    use super::*;
    use ed25519_dalek::SigningKey;

    #[test]
    fn a_report_that_is_sent_again_is_refused_also_while_its_node_is_away() {
        let (me, them) = (SigningKey::from_bytes(&[1; 32]), SigningKey::from_bytes(&[2; 32]));
        let public = them.verifying_key();
        let judge = Judge {
            cluster: "c".into(),
            me: "me".into(),
            addr: ([10, 0, 0, 1], 7946).into(),
            own_key: me.verifying_key(),
            verify: Arc::new(move |_| KeyLookup::Known(public)),
        };
        let (events, _received) = mpsc::unbounded_channel();
        let state = GossipState::new(judge, Bytes::new(), &GossipTiming::default(), events);
        let (name, addr) = (NodeName::from("w1"), SocketAddr::from(([10, 0, 0, 2], 7946)));
        let signed = |sequence| {
            let report = Report { sequence, signed_at: Wall(sequence * 1_000), ..Report::default() };
            let scope = SignatureScope { cluster: &"c".into(), name: &name, addr };
            Bytes::from(meta::encode(&report, scope, &them).expect("encoded"))
        };
        let (first, second, third) = (signed(1), signed(2), signed(3));
        assert_eq!(state.admit(&name, addr, &first), Ok(()));
        state.take_in(name.clone(), addr, second.clone());
        assert_eq!(state.admit(&name, addr, &first), Err(RecordRejection::Outdated));
        assert_eq!(state.admit(&name, addr, &second), Ok(()));
        let _gone = state.view().remove(&name);
        assert_eq!(state.admit(&name, addr, &first), Err(RecordRejection::Outdated));
        assert_eq!(state.admit(&name, addr, &third), Ok(()));
    }
}
