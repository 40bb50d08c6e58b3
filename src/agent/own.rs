//! What the agent knows itself, shared between its loop and whoever asks on this machine. Hints only: nothing is decided
//! here, and nobody is asked.

use crate::gossip::MemberEvent;
use crate::model::{
    AgentRecord, CheckResult, CheckState, ClusterId, ClusterRole, Epoch, NodeDigest, NodeId, NodeName, Report, Sha256,
    Wall,
};
use crate::rpc::agent::{ManifestReply, PeersReply};
use crate::rpc::join::Peer;
use crate::rpc::view::{
    AgentNode, AgentView, AsOf, ContactView, IsolationView, LookView, ManifestView, PeerView, ReportView,
};
use crate::rpc::wire::rfc3339;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// Results that are kept of one look; those that failed first.
pub const CHECKS_MAX: usize = 500;
/// Unreadable files that are named, of all services.
const UNREADABLE_NAMED: usize = 100;
/// Managers that are remembered by their certificates.
const MET_MAX: usize = 4;
/// Peers that are remembered beyond those that managers named: anybody with the gossip key can invent some.
const STRANGERS_MAX: usize = 1_024;

/// Who this node is.
#[derive(Debug, Clone)]
pub struct OwnId {
    pub id: NodeId,
    pub name: NodeName,
    pub cluster: ClusterId,
    /// As the daemon began.
    pub epoch: Epoch,
    /// The data directory, where damaged files are put aside.
    pub dir: PathBuf,
}

/// What of this node others are to know before they ask it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shown {
    /// The epoch of its certificate.
    pub certified: Epoch,
    /// A manager part runs.
    pub manages: bool,
}

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Own {
    id: Arc<OwnId>,
    state: Arc<Mutex<State>>,
    managers: Arc<watch::Sender<Vec<Peer>>>,
    standing: Arc<watch::Sender<Shown>>,
    gossip: Arc<watch::Sender<u64>>,
    ca: Arc<watch::Sender<u64>>,
    /// How often a manager said that the certificate of this node counts no more.
    refused: Arc<watch::Sender<u64>>,
    ask: Arc<Notify>,
    /// The newest that a manager told, or the own.
    epoch: Arc<watch::Sender<Epoch>>,
    removed: Arc<watch::Sender<Option<Parted>>>,
    /// It is to park, by a manager's word that did not come by its loop.
    parting: Arc<watch::Sender<Option<Parted>>>,
}

/// Why a node is none any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parted {
    /// In a manager's words.
    pub why: String,
    /// By its own word.
    pub left: bool,
}

#[derive(Default)]
struct State {
    record: AgentRecord,
    met: BTreeMap<NodeName, Met>,
    peers: Vec<Peer>,
    known: Option<ManifestReply>,
    look: Option<Kept>,
    /// Managers of a newer epoch by their certificates, whom nobody named yet.
    met_managers: Vec<Peer>,
    answered: Option<(NodeName, Wall)>,
    silence: Option<String>,
}

/// A peer as gossip had it last.
struct Met {
    here: bool,
    since: Wall,
    addr: SocketAddr,
    report: Report,
}

/// The last look at files and checks, with less than all of it.
pub struct Kept {
    pub at: Wall,
    pub took_ms: u64,
    pub root: Sha256,
    pub generation: u64,
    /// In words; how many more there are stands in the last.
    pub unreadable: Vec<String>,
    /// Passed, failed, could not tell.
    pub tally: (u32, u32, u32),
    pub checks: Vec<CheckResult>,
    pub left_out: u64,
}

impl Kept {
    pub fn new(at: Wall, took_ms: u64, generation: u64, digest: &NodeDigest, mut checks: Vec<CheckResult>) -> Self {
        let services = digest.services.iter();
        let unreadable = services.flat_map(|(name, s)| s.unclear().map(move |line| format!("{name}: {line}")));
        let count = |state| checks.iter().filter(|c| c.state == state).count() as u32;
        let tally = (count(CheckState::Pass), count(CheckState::Fail), count(CheckState::Unknown));
        checks.sort_by_key(|c| match c.state {
            CheckState::Fail => 0,
            CheckState::Unknown => 1,
            CheckState::Pass | CheckState::Skip | CheckState::Waived => 2,
        });
        let left_out = checks.len().saturating_sub(CHECKS_MAX) as u64;
        checks.truncate(CHECKS_MAX);
        let mut unreadable: Vec<String> = unreadable.collect();
        let more = unreadable.len().saturating_sub(UNREADABLE_NAMED);
        if more > 0 {
            unreadable.truncate(UNREADABLE_NAMED);
            unreadable.push(format!("and {more} more"));
        }
        Self { at, took_ms, root: digest.root, generation, unreadable, tally, checks, left_out }
    }
}

impl Own {
    pub fn new(id: OwnId) -> Self {
        Self {
            epoch: Arc::new(watch::channel(id.epoch).0),
            id: Arc::new(id),
            state: Arc::default(),
            managers: Arc::new(watch::channel(Vec::new()).0),
            standing: Arc::default(),
            gossip: Arc::new(watch::channel(0).0),
            ca: Arc::new(watch::channel(0).0),
            refused: Arc::new(watch::channel(0).0),
            ask: Arc::default(),
            removed: Arc::new(watch::channel(None).0),
            parting: Arc::new(watch::channel(None).0),
        }
    }

    /// Whether a manager part runs on this node now.
    pub fn manages(&self) -> bool {
        self.standing.borrow().manages
    }

    pub fn set_manages(&self, manages: bool) {
        self.show(|shown| shown.manages = manages);
    }

    /// The node's certificate is of this epoch.
    pub fn set_certified(&self, epoch: Epoch) {
        self.show(|shown| shown.certified = epoch);
    }

    /// The epoch of the node's certificate.
    pub fn certified(&self) -> Epoch {
        self.standing.borrow().certified
    }

    fn show(&self, change: impl FnOnce(&mut Shown)) {
        self.standing.send_if_modified(|shown| {
            let before = *shown;
            change(shown);
            *shown != before
        });
    }

    /// What the agent gossips of it, now and later.
    pub fn follow_standing(&self) -> watch::Receiver<Shown> {
        self.standing.subscribe()
    }

    /// In which the cluster is, as far as this node knows. It never goes back.
    pub fn epoch(&self) -> Epoch {
        *self.epoch.borrow()
    }

    /// A manager of the cluster is in this epoch.
    pub fn hear_epoch(&self, epoch: Epoch) {
        self.epoch.send_if_modified(|known| {
            let newer = epoch > *known;
            *known = epoch.max(*known);
            newer
        });
    }

    pub fn follow_epoch(&self) -> watch::Receiver<Epoch> {
        self.epoch.subscribe()
    }

    /// The cluster does not know this node any more.
    pub(super) fn set_removed(&self, parted: Parted) {
        self.state().met.clear();
        self.removed.send_replace(Some(parted));
    }

    /// Why this node is none any more, as far as it knows.
    pub(super) fn parted(&self) -> Option<Parted> {
        self.removed.borrow().clone()
    }

    /// A manager said that this node is none any more: the agent is to park.
    pub fn part(&self, parted: Parted) {
        self.parting.send_replace(Some(parted));
    }

    pub(super) async fn until_parting(&self) -> Parted {
        match self.parting.subscribe().wait_for(Option::is_some).await.map(|parted| parted.clone()) {
            Ok(Some(parted)) => parted,
            // The sender lives as long as this.
            _ => std::future::pending().await,
        }
    }

    /// Ends when a manager says so.
    pub async fn until_removed(&self) {
        // The sender lives as long as this.
        let _ = self.removed.subscribe().wait_for(Option::is_some).await;
    }

    /// Removed nodes are peers no more, unless another one has the name.
    pub(super) fn forget(&self, removed: &[NodeName]) {
        self.state().met.retain(|name, _| !removed.contains(name));
    }

    /// What the node was told that another one is to be; None: nobody told of it.
    pub fn role_of(&self, node: NodeId) -> Option<ClusterRole> {
        let state = self.state();
        let named = |peers: &[Peer]| peers.iter().any(|p| p.id == node);
        let worker = || named(&state.peers).then_some(ClusterRole::Worker);
        if named(&self.managers.borrow()) { Some(ClusterRole::Manager) } else { worker() }
    }

    /// Whom the node was told of.
    pub(super) fn known(&self) -> PeersReply {
        let state = self.state();
        let (peers, managers) = (state.peers.clone(), self.managers.borrow().clone());
        let (gossip, ca) = (*self.gossip.borrow(), *self.ca.borrow());
        PeersReply { peers, managers, removed: Vec::new(), epoch: self.epoch(), gossip, ca }
    }

    /// The id and the key, in hex, of a node that managers named.
    pub fn named(&self, name: &NodeName) -> Option<(NodeId, String)> {
        let state = self.state();
        state.peers.iter().find(|p| p.name == *name).map(|p| (p.id, p.public_key.clone()))
    }

    /// The managers that this node knows, now and later.
    pub fn follow_managers(&self) -> watch::Receiver<Vec<Peer>> {
        self.managers.subscribe()
    }

    /// By which entry the gossip keys are as they are, as far as the managers said, now and later.
    pub fn follow_gossip(&self) -> watch::Receiver<u64> {
        self.gossip.subscribe()
    }

    /// By which entry the CAs are as they are, likewise; whoever follows it hears of each answer, also where it is no newer one.
    pub fn follow_ca(&self) -> watch::Receiver<u64> {
        self.ca.subscribe()
    }

    pub(super) fn told_ca(&self, changed: u64) {
        self.ca.send_modify(|before| *before = changed.max(*before));
    }

    /// How many nodes managers named.
    pub fn known_peers(&self) -> usize {
        self.state().peers.len()
    }

    /// Managers that said that the certificate by which they were asked counts no more, now and later.
    pub fn follow_refused(&self) -> watch::Receiver<u64> {
        self.refused.subscribe()
    }

    pub(super) fn told_refused(&self) {
        self.refused.send_modify(|times| *times += 1);
    }

    pub(super) fn told_gossip(&self, changed: u64) {
        self.gossip.send_if_modified(|before| {
            let newer = changed > *before;
            *before = changed.max(*before);
            newer
        });
    }

    /// Has the managers asked soon: somebody came whom the node does not know well enough.
    pub fn ask_soon(&self) {
        self.ask.notify_one();
    }

    pub(super) async fn told_to_ask(&self) {
        self.ask.notified().await;
    }

    pub fn id(&self) -> &OwnId {
        &self.id
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn record(&self, record: &AgentRecord) {
        self.state().record = record.clone();
    }

    /// Another manager, by its certificate: it is asked as those are that managers named, until one of them answers. True: it was not
    /// known to be one at this address.
    pub fn meet_manager(&self, peer: Peer) -> bool {
        let same = |p: &Peer| (p.id, &p.api_addr) == (peer.id, &peer.api_addr);
        if self.managers.borrow().iter().any(same) {
            return false;
        }
        let met = &mut self.state().met_managers;
        if met.iter().any(same) {
            return false;
        }
        met.insert(0, peer);
        met.truncate(MET_MAX);
        true
    }

    /// Those whom nobody named yet, the latest first.
    pub fn met_managers(&self) -> Vec<Peer> {
        self.state().met_managers.clone()
    }

    pub(super) fn told(&self, peers: &[Peer], managers: &[Peer], known: Option<&ManifestReply>) {
        let mut state = self.state();
        (state.peers, state.known) = (peers.to_vec(), known.cloned());
        drop(state);
        self.managers.send_if_modified(|before| {
            let changed = before.as_slice() != managers;
            *before = managers.to_vec();
            changed
        });
    }

    pub(super) fn looked(&self, look: Kept) {
        self.state().look = Some(look);
    }

    /// Who answered, or why nobody did.
    pub(super) fn asked(&self, outcome: Result<NodeName, String>, at: Wall) {
        let mut state = self.state();
        match outcome {
            Ok(name) => {
                // It named all that there are.
                state.met_managers.clear();
                (state.answered, state.silence) = (Some((name, at)), None);
            }
            Err(why) => state.silence = Some(why),
        }
    }

    pub(super) fn member(&self, event: &MemberEvent, at: Wall) {
        let mut state = self.state();
        match event {
            MemberEvent::Alive { name, addr, report, .. } | MemberEvent::Update { name, addr, report, .. } => {
                let strangers = state.met.len().saturating_sub(state.peers.len());
                match state.met.get_mut(name) {
                    Some(met) => {
                        met.since = if met.here { met.since } else { at };
                        (met.here, met.addr, met.report) = (true, *addr, report.clone());
                    }
                    None if *name == self.id.name || strangers >= STRANGERS_MAX => {}
                    None => {
                        let met = Met { here: true, since: at, addr: *addr, report: report.clone() };
                        state.met.insert(name.clone(), met);
                    }
                }
            }
            MemberEvent::Gone { name, .. } => {
                if let Some(met) = state.met.get_mut(name) {
                    (met.here, met.since) = (false, at);
                }
            }
            _ => {}
        }
    }

    /// Live peers, and all that were named or met.
    pub fn peers(&self) -> (u64, u64) {
        let state = self.state();
        let names: BTreeSet<&NodeName> = state.met.keys().chain(state.peers.iter().map(|p| &p.name)).collect();
        let all = names.into_iter().filter(|n| **n != self.id.name).count();
        (state.met.values().filter(|m| m.here).count() as u64, all as u64)
    }

    pub fn started(&self) -> Wall {
        self.state().record.started
    }

    /// API addresses of the managers that this node knows, without its own, which may have been one until just now.
    pub fn other_managers(&self) -> Vec<String> {
        let managers = self.managers.borrow();
        managers.iter().filter(|m| m.id != self.id.id).map(|m| m.api_addr.clone()).collect()
    }

    pub fn view(&self, at: Wall) -> AgentView {
        let state = self.state();
        let peers = self.peer_views(&state);
        let record = &state.record;
        let episode = record.last_isolation.as_ref();
        AgentView {
            version: 1,
            kind: "agent".to_owned(),
            as_of: AsOf { by: self.id.name.to_string(), at: rfc3339(at), ..AsOf::default() },
            node: AgentNode {
                id: self.id.id.0,
                name: self.id.name.to_string(),
                cluster: self.id.cluster.to_string(),
                epoch: self.epoch().0,
                manager: self.manages(),
                agent_version: env!("CARGO_PKG_VERSION").to_owned(),
                boot: record.boot.to_string(),
                instance: record.instance.to_string(),
                started: rfc3339(record.started),
                crashes: record.crashes,
                previous_end: record.previous_end.clone(),
                damaged: crate::disk::damaged(&self.id.dir),
                removed: self.parted().map(|parted| parted.why),
                left: self.parted().is_some_and(|parted| parted.left),
            },
            peers_alive: peers.iter().filter(|p| p.presence == "alive").count() as u32,
            peers,
            isolation: IsolationView {
                episodes: record.isolation,
                alone: episode.is_some_and(|e| e.to.is_none()),
                from: episode.map(|e| rfc3339(e.from)),
                to: episode.and_then(|e| e.to).map(rfc3339),
                peers_lost: episode.map_or(0, |e| e.peers_lost),
            },
            manager: ContactView {
                name: state.answered.as_ref().map(|(name, _)| name.to_string()),
                at: state.answered.as_ref().map(|(_, at)| rfc3339(*at)),
                age_ms: state.answered.as_ref().map(|(_, then)| at.since(*then)),
                error: state.silence.clone(),
                known: self.managers.borrow().iter().map(|m| m.api_addr.clone()).collect(),
            },
            manifest: state.known.as_ref().map(|known| ManifestView {
                group: known.manifest.group.to_string(),
                generation: known.manifest.generation.0,
                services: known.manifest.services.iter().map(|s| s.name.to_string()).collect(),
                check_interval_ms: known.check_interval_ms,
            }),
            look: state.look.as_ref().map(|look| LookView {
                at: rfc3339(look.at),
                age_ms: at.since(look.at),
                took_ms: look.took_ms,
                digest: look.root.short(),
                generation: look.generation,
                unreadable: look.unreadable.clone(),
                passed: look.tally.0,
                failed: look.tally.1,
                unknown: look.tally.2,
                checks: look.checks.clone(),
                checks_left_out: look.left_out,
            }),
        }
    }

    fn peer_views(&self, state: &State) -> Vec<PeerView> {
        let named: BTreeMap<&NodeName, &Peer> = state.peers.iter().map(|p| (&p.name, p)).collect();
        let names: BTreeSet<&NodeName> = named.keys().copied().chain(state.met.keys()).collect();
        let view = |name: &NodeName| {
            let (peer, met) = (named.get(name), state.met.get(name));
            let presence = match met {
                None => "never-seen",
                Some(met) if met.here => "alive",
                Some(met) if met.report.leaving => "left",
                Some(_) => "gone",
            };
            PeerView {
                name: name.to_string(),
                id: peer.map(|p| p.id.0),
                manager: self.managers.borrow().iter().any(|m| m.name == *name),
                gossip: met.map(|m| m.addr.to_string()).or(peer.map(|p| p.gossip_addr.clone())).unwrap_or_default(),
                api: peer.map(|p| p.api_addr.clone()).unwrap_or_default(),
                presence: presence.to_owned(),
                since: met.map(|m| rfc3339(m.since)),
                report: met.and_then(|m| ReportView::of(&m.report)),
            }
        };
        names.into_iter().filter(|name| **name != self.id.name).map(view).collect()
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
pub mod tests;
