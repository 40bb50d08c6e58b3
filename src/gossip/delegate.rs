//! memberlist's questions and notices, answered. Nothing here awaits: memberlist aborts its task in the middle of
//! `notify_leave`, and calls with its member table locked, so calling it back from here would never return.

use super::config::Timing;
use super::event::{Claim, MemberEvent};
use super::judge::{Judge, Judgement};
use super::meta;
use super::view::{Entry, View};
use crate::model::{Epoch, Instance, NodeName, Report};
use bytes::Bytes;
use memberlist::delegate::{
    AliveDelegate, ConflictDelegate, Delegate, EventDelegate, MergeDelegate, NodeDelegate, PingDelegate,
};
use memberlist::proto::{Meta, NodeState};
use smol_str::SmolStr;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

type Node = Arc<NodeState<SmolStr, SocketAddr>>;

/// Why a record was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the signature is not this node's")]
    Forged,
    #[error("the node was removed from the cluster")]
    Removed,
    #[error("the name is not a node name")]
    BadName,
    #[error("too many nodes that nobody knows")]
    Crowded,
    #[error("it bears the own name at another address")]
    OwnElsewhere,
}

/// Nodes whose claims of a newer epoch are kept; one that is proved is enough. A manager takes the place of one that is none.
const CLAIMS_MAX: usize = 64;
/// The same of nodes that nobody named, whom anybody with the gossip key can invent.
const STRANGE_CLAIMS_MAX: usize = 16;

/// Shared by the delegate and the handle.
pub struct Shared {
    pub judge: Judge,
    /// What this node says itself: by the instance an earlier address of this very process is known.
    own: Mutex<Report>,
    /// Who says to be of a newer epoch.
    claims: Arc<watch::Sender<BTreeMap<NodeName, Claim>>>,
    view: Mutex<View>,
    /// The signed report in force.
    meta: Mutex<Bytes>,
    /// Unbounded, as a full channel would have to await; its length is bounded by the members and the alarm interval.
    events: mpsc::UnboundedSender<MemberEvent>,
    /// Counts members that came or went.
    changed: Arc<watch::Sender<u64>>,
    /// Another one has taken its place: what memberlist still says here is about an address that is given up.
    closed: AtomicBool,
}

impl Shared {
    pub fn new(judge: Judge, meta: Bytes, timing: &Timing, events: mpsc::UnboundedSender<MemberEvent>) -> Self {
        Self {
            judge,
            own: Mutex::default(),
            claims: Arc::default(),
            view: Mutex::new(View::new(timing)),
            meta: Mutex::new(meta),
            events,
            changed: Arc::new(watch::Sender::new(0)),
            closed: AtomicBool::new(false),
        }
    }

    /// The same node at another address, which knows nobody yet: from here on `self` is silent. Who was present is told
    /// to be gone, as they are for whoever has lost its address.
    pub fn succeed(&self, judge: Judge, meta: Bytes, timing: &Timing) -> Self {
        let mut view = self.view();
        for name in view.names().into_iter().filter(|name| *name != judge.me) {
            let event = view.remove(&name);
            self.emit(&view, event);
        }
        self.closed.store(true, Ordering::SeqCst);
        let mut fresh = View::new(timing);
        (fresh.version, fresh.population) = (view.version, view.population);
        Self {
            judge,
            own: Mutex::new(self.own().clone()),
            claims: self.claims.clone(),
            view: Mutex::new(fresh),
            meta: Mutex::new(meta),
            events: self.events.clone(),
            changed: self.changed.clone(),
            closed: AtomicBool::new(false),
        }
    }

    pub fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The report in force, and the same signed. With its epoch those claims end that are no newer.
    pub fn set_own(&self, report: &Report, meta: Bytes) {
        *self.own() = report.clone();
        *self.meta.lock().unwrap_or_else(PoisonError::into_inner) = meta;
        self.claims.send_if_modified(|claims| {
            let before = claims.len();
            claims.retain(|_, claim| claim.epoch > report.epoch);
            claims.len() != before
        });
    }

    fn own(&self) -> MutexGuard<'_, Report> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn unclaim(&self, name: &NodeName) {
        self.claims.send_if_modified(|claims| claims.remove(name).is_some());
    }

    pub fn claims(&self) -> watch::Receiver<BTreeMap<NodeName, Claim>> {
        self.claims.subscribe()
    }

    /// Notes what a record says of the epoch; a claim of before that it takes back is none any more.
    fn claim(&self, name: &NodeName, addr: SocketAddr, report: &Report, signed: bool) {
        if report.epoch <= self.own().epoch {
            // Of this node's own name an older daemon may tell, too.
            self.claims.send_if_modified(|claims| {
                let its = claims.get(name).is_some_and(|claim| *name != self.judge.me || claim.addr == addr);
                its && claims.remove(name).is_some()
            });
            return;
        }
        let claim = Claim { addr, epoch: report.epoch, api: report.api, manages: report.manages, signed };
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

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Sends what the view made of something, with the view still locked so that the order is the view's.
    pub fn emit(&self, view: &View, event: Option<MemberEvent>) {
        if self.closed.load(Ordering::SeqCst) {
            return;
        }
        if let Some(event) = event {
            // Nobody listening is the consumer's choice.
            let _ = self.events.send(event);
        }
        self.changed.send_if_modified(|seen| std::mem::replace(seen, view.population) != view.population);
    }

    /// Takes a record into the view as far as it is believed.
    pub fn take_in(&self, name: NodeName, addr: SocketAddr, meta: Bytes) {
        self.take_into(&mut self.view(), name, addr, meta);
    }

    /// The same for who holds the view already.
    pub fn take_into(&self, view: &mut View, name: NodeName, addr: SocketAddr, meta: Bytes) {
        let entry = match self.judge.judge(&name, addr, &meta) {
            Judgement::Member { report, signed, key } => Entry { addr, meta, report, signed, key },
            Judgement::Own { report } => {
                Entry { addr, meta, report, signed: true, key: Some(self.judge.own_key.to_bytes()) }
            }
            other => {
                tracing::debug!(node = %name, %addr, judgement = ?other, "member is not shown");
                return;
            }
        };
        // Also where its key was not known yet as it came.
        if entry.signed && name != self.judge.me {
            self.claim(&name, addr, &entry.report, true);
        }
        // Signed with its key and not understood: another version of the report.
        let strange = (entry.key.is_some() && !entry.signed).then(|| meta::version_of(&entry.meta)).flatten();
        let alarm = strange.and_then(|version| view.unreadable(&name, addr, version, Instant::now()));
        let event = view.put(name, entry);
        self.emit(view, event);
        if alarm.is_some() {
            self.emit(view, alarm);
        }
    }

    fn admit(&self, name: &NodeName, addr: SocketAddr, meta: &Bytes) -> Result<(), Refusal> {
        if self.is_unchanged(name, addr, meta) {
            return Ok(());
        }
        let judgement = self.judge.judge(name, addr, meta);
        let now = Instant::now();
        let mut view = self.view();
        let (event, answer) = match judgement {
            Judgement::Own { .. } => (None, Ok(())),
            Judgement::Member { key: None, .. } if !view.room_for(name) => (None, Err(Refusal::Crowded)),
            Judgement::Member { report, signed, key } => {
                if signed || key.is_none() {
                    self.claim(name, addr, &report, signed);
                }
                (None, Ok(()))
            }
            // Let through on purpose: memberlist never believes such a record but outbids it with the true one, and
            // without that a reinstalled node could not get past the record of its earlier key.
            Judgement::OwnUnsigned => (view.forged(name, addr, now), Ok(())),
            Judgement::OwnForged | Judgement::Forged => (view.forged(name, addr, now), Err(Refusal::Forged)),
            Judgement::OwnElsewhere { report } => {
                self.claim(name, addr, &report, true);
                let own = self.own().clone();
                let event = match () {
                    () if report.instance == own.instance => None,
                    () if outranks(&own, &report) => view.outranked(addr, report.instance, now),
                    () => view.elsewhere(addr, report.instance, now),
                };
                (event, Err(Refusal::OwnElsewhere))
            }
            Judgement::Removed => (None, Err(Refusal::Removed)),
            Judgement::BadName => (None, Err(Refusal::BadName)),
        };
        self.emit(&view, event);
        answer
    }

    /// The same bytes from the same address under the same key were checked before.
    fn is_unchanged(&self, name: &NodeName, addr: SocketAddr, meta: &Bytes) -> bool {
        if *name == self.judge.me {
            return false;
        }
        let key = match (self.judge.verify)(name) {
            super::KeyLookup::Known(key) => key,
            super::KeyLookup::Unknown | super::KeyLookup::Removed => return false,
        };
        self.view().get(name).is_some_and(|e| e.key == Some(key.to_bytes()) && e.addr == addr && e.meta == *meta)
    }
}

/// Of two daemons of one node: whether the first goes on where the second ends. Of a worker that was copied both end; of a
/// manager the one that manages nothing does, and of a node that was founded anew elsewhere the one from before.
fn outranks(own: &Report, other: &Report) -> bool {
    let told = own.epoch != Epoch(0) && other.epoch != Epoch(0);
    told && (own.epoch, own.manages) > (other.epoch, other.manages)
}

/// What memberlist is given.
pub struct Ears(pub Arc<Shared>);

fn parts(node: &Node) -> (NodeName, SocketAddr, Bytes) {
    (NodeName::from(node.id().as_str()), *node.address(), Bytes::copy_from_slice(node.meta().as_bytes()))
}

impl AliveDelegate for Ears {
    type Id = SmolStr;
    type Address = SocketAddr;
    type Error = Refusal;

    async fn notify_alive(&self, peer: Node) -> Result<(), Refusal> {
        let (name, addr, meta) = parts(&peer);
        self.0.admit(&name, addr, &meta)
    }
}

impl EventDelegate for Ears {
    type Id = SmolStr;
    type Address = SocketAddr;

    async fn notify_join(&self, node: Node) {
        let (name, addr, meta) = parts(&node);
        self.0.take_in(name, addr, meta);
    }

    async fn notify_update(&self, node: Node) {
        let (name, addr, meta) = parts(&node);
        self.0.take_in(name, addr, meta);
    }

    async fn notify_leave(&self, node: Node) {
        let mut view = self.0.view();
        let name = NodeName::from(node.id().as_str());
        if name != self.0.judge.me {
            self.0.unclaim(&name);
        }
        let event = view.remove(&name);
        self.0.emit(&view, event);
    }
}

impl ConflictDelegate for Ears {
    type Id = SmolStr;
    type Address = SocketAddr;

    async fn notify_conflict(&self, existing: Node, other: Node) {
        let (name, addr, meta) = parts(&other);
        // The very process that is known here, by its own signature: it has moved, and its old address is found dead soon;
        // or, where both stay alive, somebody has copied a running machine.
        let moved = match self.0.judge.judge(&name, addr, &meta) {
            Judgement::Member { report, key: Some(_), .. } => report.instance,
            _ => Instance::default(),
        };
        let mut view = self.0.view();
        // Where it is found dead already, memberlist still holds its old address for a moment: nobody else is there.
        let same = !moved.0.is_empty() && view.get(&name).is_none_or(|e| e.report.instance == moved);
        if same && view.moving(&name, addr, moved, Instant::now()) {
            tracing::info!(node = %name, %addr, "has moved");
            return;
        }
        let event = view.conflict(&name, *existing.address(), *other.address(), Instant::now());
        self.0.emit(&view, event);
    }
}

impl NodeDelegate for Ears {
    async fn node_meta(&self, _limit: usize) -> Meta {
        let meta = self.0.meta.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // `meta` is bounded by construction; an empty record would be vetoed by every peer, never a panic here.
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

impl PingDelegate for Ears {
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

impl MergeDelegate for Ears {
    type Id = SmolStr;
    type Address = SocketAddr;
    type Error = Refusal;

    async fn notify_merge(&self, _peers: Arc<[NodeState<SmolStr, SocketAddr>]>) -> Result<(), Refusal> {
        // Each record of the exchange goes through `notify_alive` on its own.
        Ok(())
    }
}

impl Delegate for Ears {
    type Id = SmolStr;
    type Address = SocketAddr;
}
