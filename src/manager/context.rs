//! State that the loop of a manager and its API share.

use super::manager_keys::ManagerKeys;
use super::notify::Notices;
use super::observations::Observations;
use super::publications::Publications;
use super::trusted_peers::Sponsors;
use crate::fleet::{FleetCache, VaultDirectory};
use crate::telemetry::Registry;
use remoor_cluster::raft::Raft;
use remoor_cluster::rpc::view::StreamItem;
use remoor_cluster::rpc::wire::rfc3339;
use remoor_exec::ssh::Remote;
use remoor_host::disk::{BlobStore, archived_logs};
use remoor_model::{
    ClusterContext, ClusterId, ClusterRole, Inventory, Job, JobVars, NodeId, NodeName, Now, Phase, count_noun,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Age in milliseconds from which the status warns about an archived log: 7 days. A younger archive
/// may still be needed after a recovery.
const ARCHIVE_OLD_MS: u64 = 7 * 86_400_000;

#[derive(Debug, Clone)]
pub struct ManagerTiming {
    /// Interval at which the engine derives all work from the inventory again, in milliseconds.
    pub tick_ms: u64,
}

impl Default for ManagerTiming {
    fn default() -> Self {
        Self { tick_ms: 1_000 }
    }
}

/// The identity of this manager.
#[derive(Debug, Clone)]
pub struct ManagerIdentity {
    pub name: NodeName,
    pub node: NodeId,
    pub cluster: ClusterId,
}

/// The daemon's input to its manager service at start.
pub struct Startup {
    pub identity: ManagerIdentity,
    pub raft: Raft<Inventory>,
    pub blobs: Arc<BlobStore>,
    pub remote: Remote,
    pub peers: Arc<super::Peers>,
    /// Path of the cluster's SSH private key; the file may not exist.
    pub ssh_key_file: PathBuf,
    /// Directory with the output logs of attempts.
    pub runs: PathBuf,
    /// Directory with the vault passwords of this manager; it may not exist.
    pub vaults: PathBuf,
    pub sponsors: Sponsors,
    /// Secret of the managers. Each node's digest key is derived from it, so no node can compute
    /// another node's key.
    pub secret: [u8; 32],
    pub cas: Arc<super::Authorities>,
    pub timing: ManagerTiming,
    /// The registry of this process's counters for metrics.
    pub counts: Registry,
}

pub struct ManagerContext {
    pub identity: ManagerIdentity,
    pub keys: ManagerKeys,
    pub raft: Raft<Inventory>,
    pub blobs: Arc<BlobStore>,
    pub fleets: FleetCache,
    pub remote: Remote,
    pub peers: Arc<super::Peers>,
    pub sponsors: Sponsors,
    pub notices: Notices,
    pub backups: super::backup::Backups,
    /// Directory with the output logs of attempts.
    pub runs: PathBuf,
    pub timing: ManagerTiming,
    pub started: Instant,
    pub observed: Observations,
    pub published: Publications,
    pub peer_lists: super::api::PeerListCache,
    /// Every `ansible_host` of the applied fleet's inventory.
    ansible_hosts: Mutex<BTreeMap<NodeName, String>>,
}

impl ManagerContext {
    pub fn new(s: Startup) -> Self {
        Self {
            identity: s.identity,
            keys: ManagerKeys::new(s.cas, s.ssh_key_file, s.secret),
            raft: s.raft,
            fleets: FleetCache::new(s.blobs.clone(), VaultDirectory::new(s.vaults)),
            blobs: s.blobs,
            remote: s.remote,
            peers: s.peers,
            sponsors: s.sponsors,
            notices: Notices::default(),
            backups: super::backup::Backups::default(),
            runs: s.runs,
            timing: s.timing,
            started: Instant::now(),
            observed: Observations::new(s.counts),
            published: Publications::new(),
            peer_lists: super::api::PeerListCache::default(),
            ansible_hosts: Mutex::default(),
        }
    }

    /// Milliseconds since this manager last knew of a majority that agrees. On a leader, they count
    /// from the last acknowledgement by a quorum, and on another manager from the last message of a
    /// leader. None if there was no such acknowledgement or message since this process started.
    pub fn age_ms(&self) -> Option<u64> {
        let acked = self.raft.status().borrow().quorum_acked_ms;
        let heard_at = || self.observed.leader_heard_at();
        acked.or_else(|| Some(u64::try_from(heard_at()?.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }

    /// Warnings that only this manager can give, about its backups and about old archived logs on
    /// this machine.
    pub(super) fn own_warnings(&self) -> Vec<String> {
        let (name, now) = (&self.identity.name, super::wall());
        let archives = self.runs.parent().map(archived_logs).unwrap_or_default();
        let old: Vec<_> = archives.iter().filter(|log| now.ms_since(log.at) > ARCHIVE_OLD_MS).collect();
        let archived = old.first().map(|oldest| {
            format!(
                "{name}: {} with keys of the cluster, the oldest of {}; next: on {name}, remoor recover \
                 --delete-archives 30d",
                count_noun(old.len(), "archived log"),
                rfc3339(oldest.at)
            )
        });
        self.backups.warning(name, now).into_iter().chain(archived).collect()
    }

    /// The current monotonic time for this manager's engine.
    pub fn now(&self) -> Now {
        Now(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The applied state.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.raft.state().borrow().clone()
    }

    /// Streams the journal items that the entry at `index` created.
    pub(super) fn publish_history(&self, index: u64) {
        let (inventory, leads) = (self.inventory(), self.raft.status().borrow().leads());
        let made = inventory.history.iter().rev().skip_while(|i| i.index > index).take_while(|i| i.index == index);
        for item in made.collect::<Vec<_>>().into_iter().rev() {
            let node = item.node.and_then(|id| inventory.membership(id).name()).map(|name| name.to_string());
            super::metrics::count(&self.published.applied, &item.what);
            let named = node.as_deref().unwrap_or("-");
            // Only the leader logs at info level, so that each item is logged once at this level.
            match leads {
                true => tracing::info!(index, node = named, what = ?item.what, "journal"),
                false => tracing::debug!(index, node = named, what = ?item.what, "journal"),
            }
            self.published.emit(StreamItem::History { item: Box::new(item.clone()), node });
        }
    }

    /// Stores the `ansible_host` of each node in the applied fleet.
    pub(super) fn learn_hosts(&self, fleet: &remoor_config::Fleet) {
        let names = fleet.inventory.hosts.keys();
        let hosts = names.filter_map(|name| Some((NodeName::from(name.as_str()), fleet.ansible_host(name)?))).collect();
        *self.ansible_hosts.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }

    pub(super) fn ansible_host(&self, name: &NodeName) -> Option<String> {
        self.ansible_hosts.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The input for rendering a fleet, in addition to the fleet's own files.
    pub fn render_context(&self) -> ClusterContext {
        known_of(&self.inventory())
    }

    /// IP addresses of the nodes by name. A node has the address with which it joined, or the
    /// address that was recorded after a move.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.inventory().addresses()
    }
}

/// The input for rendering a fleet in this state: addresses and managers, but no job variables.
pub fn known_of(inventory: &Inventory) -> ClusterContext {
    let managers = inventory.nodes.values().filter(|n| n.role == ClusterRole::Manager);
    let managers = managers.map(|n| n.name().to_string()).collect();
    ClusterContext { addresses: inventory.addresses(), managers, vars: JobVars::new() }
}

/// The input for rendering in `phase` of `job`. `before` is the input of the installed
/// configuration. The job's own variables take precedence. A job for some services keeps the
/// earlier variables, so that its services agree with the services outside of the job.
pub fn known_in(phase: Phase, job: &Job, before: ClusterContext, inventory: &Inventory) -> ClusterContext {
    // A job for some services uses the same addresses and variables as the node's other services.
    let as_before = phase == Phase::Cleanup || !job.spec.services.is_empty();
    let mut known = if as_before { before } else { known_of(inventory) };
    known.vars.extend(job.spec.vars.clone());
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
