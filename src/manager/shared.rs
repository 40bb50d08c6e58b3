//! State that the loop of a manager and its API share.

use super::ansible::Keys;
use super::engine_snapshot::EngineSnapshot;
use super::notify::Notices;
use super::recorder::{RecordedStep, Recorder};
use super::trusted_peers::Sponsors;
use crate::fleet::FleetCache;
use crate::telemetry::{self, Registry};
use remoor_cluster::raft::Raft;
use remoor_cluster::rpc::view::StreamItem;
use remoor_exec::ssh::{self, ClusterKey, Remote};
use remoor_host::disk::BlobStore;
use remoor_model::{
    ClusterContext, ClusterId, ClusterRole, Inventory, Job, JobVars, NodeId, NodeName, Phase, Report, Wall,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use tokio::sync::{broadcast, watch};

/// Items that a watcher may fall behind. One that falls further behind is told how many items it
/// missed.
const STREAM_DEPTH: usize = 4_096;

#[derive(Debug, Clone)]
pub struct ManagerTiming {
    /// Interval at which the engine derives its work again, in milliseconds.
    pub tick_ms: u64,
}

impl Default for ManagerTiming {
    fn default() -> Self {
        Self { tick_ms: 1_000 }
    }
}

/// The daemon's input to its manager service at start.
pub struct Startup {
    pub me: NodeName,
    pub id: NodeId,
    pub cluster: ClusterId,
    pub raft: Raft<Inventory>,
    pub blobs: Arc<BlobStore>,
    pub remote: Remote,
    pub peers: Arc<super::Peers>,
    /// Path of the cluster's SSH private key; the file may not exist.
    pub ssh_key_file: PathBuf,
    /// Directory with the output logs of attempts.
    pub runs: PathBuf,
    pub sponsors: Sponsors,
    /// Secret of the managers. Each node's digest key is derived from it, so no node can compute
    /// the key of another.
    pub secret: [u8; 32],
    pub cas: Arc<super::Authorities>,
    pub timing: ManagerTiming,
    /// Counters of this process.
    pub counts: Registry,
}

pub struct ManagerContext {
    pub me: NodeName,
    pub id: NodeId,
    pub cluster: ClusterId,
    pub raft: Raft<Inventory>,
    pub blobs: Arc<BlobStore>,
    pub book: FleetCache,
    pub remote: Remote,
    pub peers: Arc<super::Peers>,
    pub notices: Notices,
    pub ssh_key_file: PathBuf,
    /// The key read from `ssh_key_file`; empty in a cluster that was created before this key
    /// existed.
    pub ssh_key: OnceLock<ClusterKey>,
    pub runs: PathBuf,
    pub sponsors: Sponsors,
    pub timing: ManagerTiming,
    pub started: Instant,
    pub counts: Registry,
    /// Counters of entries that were applied while this process ran.
    pub applied: Registry,
    /// Which nodes this manager reaches over SSH, and what other managers reported.
    pub reaches: super::reach::ReachabilityReports,
    pub certificates: super::certificates::Certificates,
    pub backups: super::backup::Backups,
    /// Which step of the gossip key rotation each node has confirmed.
    pub key_confirmed: super::gossip_key::Confirmations,
    /// Which step of the CA rotation each node has confirmed.
    pub ca_confirmed: super::gossip_key::Confirmations,
    /// The CAs that issue certificates.
    pub cas: Arc<super::Authorities>,
    secret: [u8; 32],
    snapshot: watch::Sender<Option<Arc<EngineSnapshot>>>,
    stream: broadcast::Sender<StreamItem>,
    /// Gossip addresses of members, each signed by the member itself.
    signed_addresses: Mutex<BTreeMap<NodeName, SocketAddr>>,
    /// Every `ansible_host` of the applied fleet's inventory.
    ansible_hosts: Mutex<BTreeMap<NodeName, String>>,
    reports: Mutex<BTreeMap<NodeName, Report>>,
    recorder: Mutex<Recorder>,
    /// For each node, what its role change waits for. Filled only while this manager leads.
    role_waits: Mutex<BTreeMap<NodeId, String>>,
    /// When a leader was last heard from.
    leader_heard_at: Mutex<Option<Instant>>,
}

impl ManagerContext {
    pub fn new(s: Startup) -> Self {
        Self {
            me: s.me,
            id: s.id,
            cluster: s.cluster,
            raft: s.raft,
            book: FleetCache::new(s.blobs.clone()),
            blobs: s.blobs,
            remote: s.remote,
            peers: s.peers,
            notices: Notices::default(),
            ssh_key_file: s.ssh_key_file,
            ssh_key: OnceLock::new(),
            runs: s.runs,
            sponsors: s.sponsors,
            timing: s.timing,
            started: Instant::now(),
            counts: s.counts,
            applied: super::metrics::counters(),
            reaches: super::reach::ReachabilityReports::default(),
            certificates: super::certificates::Certificates::default(),
            backups: super::backup::Backups::default(),
            key_confirmed: super::gossip_key::Confirmations::default(),
            ca_confirmed: super::gossip_key::Confirmations::default(),
            cas: s.cas,
            secret: s.secret,
            snapshot: watch::channel(None).0,
            stream: broadcast::channel(STREAM_DEPTH).0,
            signed_addresses: Mutex::default(),
            ansible_hosts: Mutex::default(),
            reports: Mutex::default(),
            recorder: Mutex::default(),
            role_waits: Mutex::default(),
            leader_heard_at: Mutex::default(),
        }
    }

    pub(super) fn set_role_waits(&self, waits: BTreeMap<NodeId, String>) {
        *self.role_waits.lock().unwrap_or_else(|p| p.into_inner()) = waits;
    }

    /// For each node, what its role change waits for, as text. Only the leader knows this.
    pub fn role_waits(&self) -> BTreeMap<NodeId, String> {
        self.role_waits.lock().unwrap_or_else(|p| p.into_inner()).clone()
    }

    /// Notes that entries or a heartbeat of a leader arrived.
    pub fn note_leader_heard(&self) {
        *self.leader_heard_at.lock().unwrap_or_else(|p| p.into_inner()) = Some(Instant::now());
    }

    /// Milliseconds since a majority last agreed, as far as this manager knows: since a quorum
    /// acknowledged this leader, or since a leader was last heard from. None if neither has
    /// happened since this process started.
    pub fn age_ms(&self) -> Option<u64> {
        let led = || *self.leader_heard_at.lock().unwrap_or_else(|p| p.into_inner());
        let acked = self.raft.status().borrow().quorum_acked_ms;
        acked.or_else(|| Some(u64::try_from(led()?.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// The applied state as it is now.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.raft.state().borrow().clone()
    }

    /// The engine's view of the nodes; None if this manager does not lead.
    pub fn engine_snapshot(&self) -> Option<Arc<EngineSnapshot>> {
        self.snapshot.borrow().clone()
    }

    pub(super) fn set_snapshot(&self, snapshot: Option<EngineSnapshot>) {
        self.snapshot.send_replace(snapshot.map(Arc::new));
    }

    /// Key for hashing the secret files of a node.
    pub fn digest_key(&self, node: NodeId) -> [u8; 32] {
        use hmac::{KeyInit, Mac};
        let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(&self.secret).expect("any key length will do");
        mac.update(b"remoor digest key");
        mac.update(&node.0.to_be_bytes());
        mac.finalize().into_bytes().into()
    }

    /// The `authorized_keys` line that gives the managers access to a host.
    pub fn ssh_line(&self) -> Option<String> {
        self.ssh_key.get().map(ClusterKey::line)
    }

    /// Private keys that ssh offers after those of the operator's configuration.
    pub(super) fn last_keys(&self, identity_given: bool) -> Vec<PathBuf> {
        let file = self.ssh_key.get().map(|_| self.ssh_key_file.clone());
        file.map(|file| ssh::last_offered_keys(file, identity_given)).unwrap_or_default()
    }

    /// The same keys for Ansible's ssh.
    pub(super) fn play_keys(&self) -> Keys {
        Keys { with_identity: self.last_keys(true), without_identity: self.last_keys(false) }
    }

    pub fn watch_stream(&self) -> broadcast::Receiver<StreamItem> {
        self.stream.subscribe()
    }

    pub(super) fn emit(&self, item: StreamItem) {
        let _ = self.stream.send(item); // an error means that nobody watches
    }

    /// Streams the journal items that the entry at `index` created.
    pub(super) fn publish_history(&self, index: u64) {
        let (inventory, leads) = (self.inventory(), self.raft.status().borrow().leads());
        let made = inventory.history.iter().rev().skip_while(|i| i.index > index).take_while(|i| i.index == index);
        for item in made.collect::<Vec<_>>().into_iter().rev() {
            let node = item.node.and_then(|id| inventory.name_of(id)).map(|name| name.to_string());
            super::metrics::count(&self.applied, &item.what);
            let named = node.as_deref().unwrap_or("-");
            // Only the leader logs at info level, so that each item appears there once.
            match leads {
                true => tracing::info!(index, node = named, what = ?item.what, "journal"),
                false => tracing::debug!(index, node = named, what = ?item.what, "journal"),
            }
            self.emit(StreamItem::History { item: Box::new(item.clone()), node });
        }
    }

    /// Number of this manager's gossip pings that the node left unanswered since this daemon
    /// started.
    pub fn unanswered_pings(&self, name: &NodeName) -> u64 {
        telemetry::unanswered_pings(&self.counts, name.as_str())
    }

    /// Stores the signed gossip address of a member. None: the member is gone, or its address is
    /// not signed.
    pub(super) fn set_signed_address(&self, name: &NodeName, addr: Option<SocketAddr>) {
        let mut signed = self.signed_addresses.lock().unwrap_or_else(|p| p.into_inner());
        match addr {
            Some(addr) => signed.insert(name.clone(), addr),
            None => signed.remove(name),
        };
    }

    /// The gossip address of a member as signed by the member itself.
    pub(super) fn signed_address(&self, name: &NodeName) -> Option<SocketAddr> {
        self.signed_addresses.lock().unwrap_or_else(|p| p.into_inner()).get(name).copied()
    }

    /// Stores the `ansible_host` of each node in the applied fleet.
    pub(super) fn learn_hosts(&self, fleet: &remoor_config::Fleet) {
        let names = fleet.inventory.hosts.keys();
        let hosts = names.filter_map(|name| Some((NodeName::from(name.as_str()), fleet.ansible_host(name)?))).collect();
        *self.ansible_hosts.lock().unwrap_or_else(|p| p.into_inner()) = hosts;
    }

    pub(super) fn ansible_host(&self, name: &NodeName) -> Option<String> {
        self.ansible_hosts.lock().unwrap_or_else(|p| p.into_inner()).get(name).cloned()
    }

    /// Starts a new flight record when a leadership begins.
    pub(super) fn begin_record(&self, at: Wall) {
        self.recorder.lock().unwrap_or_else(|p| p.into_inner()).begin(at);
    }

    pub(super) fn record(&self, step: RecordedStep) {
        self.recorder.lock().unwrap_or_else(|p| p.into_inner()).add(step);
    }

    /// When this leadership began, how many steps were dropped, and the steps about `node`, oldest
    /// first.
    pub(super) fn recorded_steps(&self, node: NodeId) -> (Option<Wall>, u64, Vec<Arc<RecordedStep>>) {
        let recorder = self.recorder.lock().unwrap_or_else(|p| p.into_inner());
        (recorder.leading_since(), recorder.dropped_count(), recorder.steps_about(node))
    }

    /// Stores the latest gossip report of a member; None: it is gone.
    pub(super) fn set_report(&self, name: &NodeName, report: Option<Report>) {
        let mut reports = self.reports.lock().unwrap_or_else(|p| p.into_inner());
        match report {
            Some(report) => reports.insert(name.clone(), report),
            None => reports.remove(name),
        };
    }

    /// The latest gossip report of a member. It is a hint, not replicated state.
    pub fn report_of(&self, name: &NodeName) -> Option<Report> {
        self.reports.lock().unwrap_or_else(|p| p.into_inner()).get(name).cloned()
    }

    /// The render input of a fleet in addition to its own files.
    pub fn render_context(&self) -> ClusterContext {
        known_of(&self.inventory())
    }

    /// IP addresses of the nodes by name: as joined, or as entered after a move.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.inventory().addresses()
    }
}

/// The render input of a fleet in this state: addresses and managers, without job variables.
pub fn known_of(inventory: &Inventory) -> ClusterContext {
    let managers = inventory.nodes.values().filter(|n| n.role == ClusterRole::Manager);
    let managers = managers.map(|n| n.name().to_string()).collect();
    ClusterContext { addresses: inventory.addresses(), managers, vars: JobVars::new() }
}

/// The render input of `phase` of `job`. `before` is the input of the installed configuration. The
/// job's own variables take precedence. A job for some services also keeps the earlier variables,
/// so that its services agree with those that it leaves alone.
pub fn known_in(phase: Phase, job: &Job, before: ClusterContext, inventory: &Inventory) -> ClusterContext {
    // Some services of a node use the same addresses and variables as its other services.
    let as_before = phase == Phase::Cleanup || !job.services.is_empty();
    let mut known = if as_before { before } else { known_of(inventory) };
    known.vars.extend(job.vars.clone());
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vars(pairs: &[(&str, i32)]) -> JobVars {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect()
    }

    #[test]
    fn job_variables_end_with_the_job_except_for_untouched_services() {
        let job = |services: &[&str], own: &[(&str, i32)]| -> Job {
            let job = json!({
                "id": 7, "node": 1, "opened": 1, "occasion": "live", "reasons": [], "services": services, "generation": 1,
                "by": null, "now": false, "decommission": false, "state": "open", "attempts": [], "failures": 0,
                "retry_at": null, "closed": null, "result": null, "attempts_dropped": 0, "vars": vars(own),
            });
            serde_json::from_value(job).expect("a job")
        };
        let before = ClusterContext { vars: vars(&[("a", 1), ("b", 1)]), ..ClusterContext::default() };
        let with = |phase: Phase, job: Job| known_in(phase, &job, before.clone(), &Inventory::default()).vars;
        assert_eq!(with(Phase::Provision, job(&[], &[("a", 2)])), vars(&[("a", 2)]));
        assert_eq!(with(Phase::Provision, job(&[], &[])), vars(&[]));
        assert_eq!(with(Phase::Provision, job(&["app"], &[])), before.vars, "a repair restores what was set up");
        assert_eq!(with(Phase::Cleanup, job(&[], &[])), before.vars, "the cleanup uses what was installed");
        assert_eq!(with(Phase::Cleanup, job(&[], &[("a", 2)])), vars(&[("a", 2), ("b", 1)]));
    }
}
