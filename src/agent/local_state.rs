//! The agent's knowledge about its own node, shared between its loop and the local API. The values
//! are hints: nothing is decided here, and no other node is asked.

use remoor_cluster::gossip::MemberEvent;
use remoor_cluster::rpc::agent::{ManifestReply, PeersReply};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::view::{
    AgentNode, AgentView, AsOf, ContactView, ExaminationView, IsolationView, ManifestView, PeerView, ReportView,
};
use remoor_cluster::rpc::wire::rfc3339;
use remoor_model::{
    AgentRecord, CheckResult, CheckState, ClusterId, ClusterRole, Epoch, Instance, NodeDigest, NodeId, NodeName,
    Report, Sha256, Wall,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

/// Maximum number of check results that are stored for one examination by the agent. Failed results
/// come first.
pub const CHECKS_MAX: usize = 500;
/// Maximum number of unreadable files that the summary of an examination by the agent names, for
/// all services together.
const UNREADABLE_NAMED: usize = 100;
/// Maximum number of managers that are stored although no manager reported them; only their
/// certificates are known.
const MET_MAX: usize = 4;
/// Maximum number of stored peers that no manager reported, because anybody with the gossip key can
/// invent peers.
const STRANGERS_MAX: usize = 1_024;

/// The identity of this node.
#[derive(Debug, Clone)]
pub struct NodeIdentity {
    pub id: NodeId,
    pub name: NodeName,
    pub cluster: ClusterId,
    /// The epoch of the cluster's decisions that this node knew when the daemon started.
    pub epoch: Epoch,
    /// The data directory. Renamed damaged files are in it too.
    pub dir: PathBuf,
}

/// The facts about this node that its gossip report contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublishedFacts {
    /// The epoch of the node's certificate.
    pub certified: Epoch,
    /// Whether the manager service runs on this node.
    pub manages: bool,
}

/// A handle to the state; all clones share one state.
#[derive(Clone)]
pub struct AgentState {
    id: Arc<NodeIdentity>,
    state: Arc<Mutex<AgentStateInner>>,
    managers: Arc<watch::Sender<Vec<PeerInfo>>>,
    standing: Arc<watch::Sender<PublishedFacts>>,
    gossip: Arc<watch::Sender<u64>>,
    ca: Arc<watch::Sender<u64>>,
    /// Number of times that a manager has rejected the certificate of this node.
    refused: Arc<watch::Sender<u64>>,
    ask: Arc<Notify>,
    /// The newest epoch that a manager reported since the daemon started. Before the first such
    /// report, it is the epoch that the node knew at the start.
    epoch: Arc<watch::Sender<Epoch>>,
    removed: Arc<watch::Sender<Option<Departure>>>,
    /// The reason to stop the agent, if a manager's answer to a request outside of the agent's loop
    /// gave one.
    parting: Arc<watch::Sender<Option<Departure>>>,
}

/// The reason why a node is no longer in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departure {
    /// The reason as a manager sent it.
    pub why: String,
    /// Whether the node left because of `remoor leave`.
    pub left: bool,
}

#[derive(Default)]
struct AgentStateInner {
    record: AgentRecord,
    /// The reason why the last attempt to save the record failed.
    unsaved: Option<String>,
    met: BTreeMap<NodeName, SeenPeer>,
    peers: Vec<PeerInfo>,
    known: Option<ManifestReply>,
    look: Option<ExaminationSummary>,
    /// Managers of a newer epoch that are known only by their certificates. No manager has reported
    /// them yet.
    met_managers: Vec<PeerInfo>,
    answered: Option<(NodeName, Wall)>,
    silence: Option<String>,
}

/// The last state of a peer in gossip.
struct SeenPeer {
    here: bool,
    since: Wall,
    addr: SocketAddr,
    report: Report,
}

/// A shortened form of the agent's last examination of files and checks.
pub struct ExaminationSummary {
    pub at: Wall,
    pub took_ms: u64,
    pub root: Sha256,
    pub generation: u64,
    /// Messages about unreadable files. The last message counts the omitted ones.
    pub unreadable: Vec<String>,
    /// Numbers of the examination's assertions that passed, failed, and are unknown.
    pub tally: (u32, u32, u32),
    pub checks: Vec<CheckResult>,
    pub left_out: u64,
}

impl ExaminationSummary {
    pub fn new(at: Wall, took_ms: u64, generation: u64, digest: &NodeDigest, mut checks: Vec<CheckResult>) -> Self {
        let services = digest.services.iter();
        let unreadable =
            services.flat_map(|(name, s)| s.describe_unreadable().map(move |line| format!("{name}: {line}")));
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

impl AgentState {
    pub fn new(id: NodeIdentity) -> Self {
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

    /// Whether the manager service runs on this node now.
    pub fn manages(&self) -> bool {
        self.standing.borrow().manages
    }

    pub fn set_manages(&self, manages: bool) {
        self.show(|shown| shown.manages = manages);
    }

    /// Records the epoch of the node's certificate.
    pub fn set_certified(&self, epoch: Epoch) {
        self.show(|shown| shown.certified = epoch);
    }

    /// The epoch of the node's certificate.
    pub fn certificate_epoch(&self) -> Epoch {
        self.standing.borrow().certified
    }

    fn show(&self, change: impl FnOnce(&mut PublishedFacts)) {
        self.standing.send_if_modified(|shown| {
            let before = *shown;
            change(shown);
            *shown != before
        });
    }

    /// A channel that has the current published facts and every later change of them.
    pub fn follow_published(&self) -> watch::Receiver<PublishedFacts> {
        self.standing.subscribe()
    }

    /// The newest known epoch of the cluster. It never decreases.
    pub fn epoch(&self) -> Epoch {
        *self.epoch.borrow()
    }

    /// Records the epoch that a manager of the cluster reported.
    pub fn learn_epoch(&self, epoch: Epoch) {
        self.epoch.send_if_modified(|known| {
            let newer = epoch > *known;
            *known = epoch.max(*known);
            newer
        });
    }

    pub fn follow_epoch(&self) -> watch::Receiver<Epoch> {
        self.epoch.subscribe()
    }

    /// Records that this node is no longer in the cluster.
    pub(super) fn set_removed(&self, parted: Departure) {
        self.state().met.clear();
        self.removed.send_replace(Some(parted));
    }

    /// The reason why this node is no longer a member. None as long as this node knows no such
    /// reason.
    pub(super) fn departure(&self) -> Option<Departure> {
        self.removed.borrow().clone()
    }

    /// Makes the agent stop, because a manager reported that this node is no longer a member.
    pub fn request_departure(&self, parted: Departure) {
        self.parting.send_replace(Some(parted));
    }

    pub(super) async fn until_parting(&self) -> Departure {
        match self.parting.subscribe().wait_for(Option::is_some).await.map(|parted| parted.clone()) {
            Ok(Some(parted)) => parted,
            // `self` holds the sender, so the channel can't close.
            _ => std::future::pending().await,
        }
    }

    /// Waits until a manager reports the removal of this node.
    pub async fn until_removed(&self) {
        // `self` holds the sender, so the channel can't close.
        let _ = self.removed.subscribe().wait_for(Option::is_some).await;
    }

    /// Deletes the gossip state of the names in `removed`. The names must not belong to current
    /// nodes.
    pub(super) fn forget(&self, removed: &[NodeName]) {
        self.state().met.retain(|name, _| !removed.contains(name));
    }

    /// The role of another node as managers reported it. None if no manager reported the node.
    pub fn role_of(&self, node: NodeId) -> Option<ClusterRole> {
        let state = self.state();
        let named = |peers: &[PeerInfo]| peers.iter().any(|p| p.id == node);
        let worker = || named(&state.peers).then_some(ClusterRole::Worker);
        if named(&self.managers.borrow()) { Some(ClusterRole::Manager) } else { worker() }
    }

    /// The public key (hex) of another node, as managers reported it. None if no manager reported
    /// the node.
    pub fn key_of(&self, node: NodeId) -> Option<String> {
        let key = |peers: &[PeerInfo]| peers.iter().find(|p| p.id == node).map(|p| p.public_key.clone());
        key(&self.managers.borrow()).or_else(|| key(&self.state().peers))
    }

    /// The peers that managers reported.
    pub(super) fn peers_reply(&self) -> PeersReply {
        let state = self.state();
        let (peers, managers) = (state.peers.clone(), self.managers.borrow().clone());
        let (gossip, ca) = (*self.gossip.borrow(), *self.ca.borrow());
        PeersReply { peers, managers, epoch: self.epoch(), gossip, ca, ..PeersReply::default() }
    }

    /// Id and key (hex) of a node that managers reported.
    pub fn named_peer(&self, name: &NodeName) -> Option<(NodeId, String)> {
        let state = self.state();
        state.peers.iter().find(|p| p.name == *name).map(|p| (p.id, p.public_key.clone()))
    }

    /// A channel that has the list of known managers and every later change of the list.
    pub fn follow_managers(&self) -> watch::Receiver<Vec<PeerInfo>> {
        self.managers.subscribe()
    }

    /// A channel with the log index of the last change of the gossip keys, as managers reported it.
    pub fn follow_gossip(&self) -> watch::Receiver<u64> {
        self.gossip.subscribe()
    }

    /// A channel with the log index of the last change of the CAs. Each answer of a manager
    /// notifies the receivers, even if the index is the same.
    pub fn follow_ca(&self) -> watch::Receiver<u64> {
        self.ca.subscribe()
    }

    pub(super) fn set_ca_index(&self, changed: u64) {
        self.ca.send_modify(|before| *before = changed.max(*before));
    }

    /// Number of nodes that managers reported.
    pub fn known_peers(&self) -> usize {
        self.state().peers.len()
    }

    /// A channel with the number of answers in which managers rejected this node's certificate.
    pub fn follow_refused(&self) -> watch::Receiver<u64> {
        self.refused.subscribe()
    }

    pub(super) fn count_rejection(&self) {
        self.refused.send_modify(|times| *times += 1);
    }

    pub(super) fn set_gossip_index(&self, changed: u64) {
        self.gossip.send_if_modified(|before| {
            let newer = changed > *before;
            *before = changed.max(*before);
            newer
        });
    }

    /// Makes the agent ask the managers soon, for example because gossip shows a node that the
    /// managers have not reported.
    pub fn ask_soon(&self) {
        self.ask.notify_one();
    }

    pub(super) async fn wait_for_ask_request(&self) {
        self.ask.notified().await;
    }

    pub fn id(&self) -> &NodeIdentity {
        &self.id
    }

    fn state(&self) -> MutexGuard<'_, AgentStateInner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of this start of the agent. It is empty before the agent's loop runs.
    pub fn instance(&self) -> Instance {
        self.state().record.instance.clone()
    }

    pub(super) fn record(&self, record: &AgentRecord, unsaved: Option<&str>) {
        let mut state = self.state();
        (state.record, state.unsaved) = (record.clone(), unsaved.map(str::to_owned));
    }

    /// Adds a manager that is known by its certificate. The agent asks it like the reported
    /// managers, until a reported manager answers. Returns true if no manager with this id was
    /// known at this address.
    pub fn add_met_manager(&self, peer: PeerInfo) -> bool {
        let same = |p: &PeerInfo| (p.id, &p.api_addr) == (peer.id, &peer.api_addr);
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

    /// Managers that are known by their certificates and that no manager has reported, the latest
    /// first.
    pub fn met_managers(&self) -> Vec<PeerInfo> {
        self.state().met_managers.clone()
    }

    pub(super) fn set_peers(&self, peers: &[PeerInfo], managers: &[PeerInfo], known: Option<&ManifestReply>) {
        let mut state = self.state();
        (state.peers, state.known) = (peers.to_vec(), known.cloned());
        drop(state);
        self.managers.send_if_modified(|before| {
            let changed = before.as_slice() != managers;
            *before = managers.to_vec();
            changed
        });
    }

    pub(super) fn set_examination(&self, look: ExaminationSummary) {
        self.state().look = Some(look);
    }

    /// Records the name of the manager that answered, or the reason why no manager answered.
    pub(super) fn set_manager_contact(&self, outcome: Result<NodeName, String>, at: Wall) {
        let mut state = self.state();
        match outcome {
            Ok(name) => {
                // The answer names all managers, so managers that are known only by their
                // certificates are no longer needed.
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
                        let met = SeenPeer { here: true, since: at, addr: *addr, report: report.clone() };
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

    /// The number of live peers, and the number of all peers that managers reported or gossip
    /// showed.
    pub fn peers(&self) -> (u64, u64) {
        let state = self.state();
        let names: BTreeSet<&NodeName> = state.met.keys().chain(state.peers.iter().map(|p| &p.name)).collect();
        let all = names.into_iter().filter(|n| **n != self.id.name).count();
        (state.met.values().filter(|m| m.here).count() as u64, all as u64)
    }

    pub fn start_time(&self) -> Wall {
        self.state().record.started
    }

    /// API addresses of the known managers except this node. The list of known managers contains
    /// this node too if it is or was a manager.
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
                damaged: remoor_host::disk::damaged_files(&self.id.dir),
                unsaved: state.unsaved.clone(),
                archived_logs: remoor_host::disk::archived_logs(&self.id.dir).len() as u32,
                removed: self.departure().map(|parted| parted.why),
                left: self.departure().is_some_and(|parted| parted.left),
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
                age_ms: state.answered.as_ref().map(|(_, then)| at.ms_since(*then)),
                error: state.silence.clone(),
                known: self.managers.borrow().iter().map(|m| m.api_addr.clone()).collect(),
            },
            manifest: state.known.as_ref().map(|known| ManifestView {
                group: known.manifest.group.to_string(),
                generation: known.manifest.generation.0,
                services: known.manifest.services.iter().map(|s| s.name.to_string()).collect(),
                check_interval_ms: known.check_interval_ms,
            }),
            look: state.look.as_ref().map(|look| ExaminationView {
                at: rfc3339(look.at),
                age_ms: at.ms_since(look.at),
                took_ms: look.took_ms,
                digest: look.root.short_hex(),
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

    fn peer_views(&self, state: &AgentStateInner) -> Vec<PeerView> {
        let named: BTreeMap<&NodeName, &PeerInfo> = state.peers.iter().map(|p| (&p.name, p)).collect();
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
                report: met.and_then(|m| ReportView::from_report(&m.report)),
            }
        };
        names.into_iter().filter(|name| **name != self.id.name).map(view).collect()
    }
}

#[cfg(test)]
#[path = "own_tests.rs"]
pub mod tests;
