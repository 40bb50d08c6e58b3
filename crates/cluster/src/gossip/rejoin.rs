//! Rejoins the cluster after a network partition, because memberlist does not do so by itself.
//! [`plan`] decides which nodes to dial. This file has the clock, the random numbers, the cache
//! file and the dials.

pub mod cache;
pub mod netlink;
pub mod plan;

use super::config::GossipTiming;
use super::error::GossipError;
use super::handle::Gossip;
use cache::Addresses;
use plan::DialState;
use remoor_model::NodeName;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The functions of the gossip member that the rejoin loop needs.
pub trait DialledNetwork: Clone + Send + Sync + 'static {
    /// This node's own address.
    fn own_address(&self) -> SocketAddr;
    /// The address of each live member, and whether its signature verifies.
    fn live_addresses(&self) -> Vec<(NodeName, SocketAddr, bool)>;
    /// Whether the node is a live member.
    fn is_live(&self, name: &NodeName) -> bool;
    /// A counter that changes whenever a member came or went.
    fn follow_changes(&self) -> watch::Receiver<u64>;
    /// Exchanges state with the member at `addr`.
    fn dial(&self, addr: SocketAddr) -> impl Future<Output = Result<(), GossipError>> + Send;
}

impl DialledNetwork for Gossip {
    fn own_address(&self) -> SocketAddr {
        self.addr()
    }

    fn live_addresses(&self) -> Vec<(NodeName, SocketAddr, bool)> {
        self.addresses()
    }

    fn is_live(&self, name: &NodeName) -> bool {
        self.has_member(name)
    }

    fn follow_changes(&self) -> watch::Receiver<u64> {
        self.changes()
    }

    async fn dial(&self, addr: SocketAddr) -> Result<(), GossipError> {
        self.join(addr).await
    }
}

/// The handle of the running rejoin loop. Dropping this handle stops the loop. Drop it before the
/// member leaves. Dials under way end by their own timeout.
pub struct RejoinLoop {
    known: watch::Sender<Option<Addresses>>,
    wake: Arc<Notify>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for RejoinLoop {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl RejoinLoop {
    /// Starts the loop. It dials the addresses in the cache file until the inventory's nodes are
    /// known.
    ///
    /// A cache that cannot be read is logged and counts as empty. The function must be called
    /// within a Tokio runtime.
    pub fn new(gossip: impl DialledNetwork, cache_path: PathBuf, me: NodeName, timing: GossipTiming) -> Self {
        let (known, changes) = watch::channel(None);
        let wake = Arc::new(Notify::new());
        let mut task = Task {
            state: DialState::new(me, gossip.own_address(), timing),
            gossip,
            cache_path,
            stored: Addresses::new(),
            wake: wake.clone(),
            known: changes,
            started: Instant::now(),
        };
        let ear = wake.clone();
        let tasks = [
            tokio::spawn(async move { task.run().await }),
            tokio::spawn(async move {
                let error = netlink::listen(ear).await;
                tracing::warn!(%error, "network changes cannot be watched; missing nodes are dialled by timer only");
            }),
        ];
        Self { known, wake, tasks }
    }

    /// Sets the nodes of the cluster and their possible addresses. From now on no other node is
    /// dialled.
    pub fn set_known(&self, known: Addresses) {
        self.known.send_replace(Some(known));
    }

    /// Requests an early dial. Call it after an event that makes a dial worthwhile, such as the end
    /// of a suspend or an SSH probe that succeeds again.
    pub fn nudge(&self) {
        self.wake.notify_one();
    }
}

struct Task<M> {
    gossip: M,
    cache_path: PathBuf,
    /// The content of the cache file.
    stored: Addresses,
    state: DialState,
    wake: Arc<Notify>,
    known: watch::Receiver<Option<Addresses>>,
    started: Instant,
}

/// A change after which the loop decides again for every node whether to dial it.
enum Change {
    Members,
    Known,
    Nudge,
}

impl<M: DialledNetwork> Task<M> {
    async fn run(&mut self) {
        match cache::load(&self.cache_path) {
            Ok(found) => self.stored = found,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "address cache could not be read; starting with an empty one"
                );
                if matches!(error, cache::CacheError::Form { .. })
                    && let Err(error) = remoor_host::disk::rename_damaged(&self.cache_path, &error.to_string())
                {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "damaged address cache could not be archived"
                    );
                }
            }
        }
        let mut members = self.gossip.follow_changes();
        // The interval ticks at once. The first tick applies the addresses that were loaded from
        // the cache file.
        let mut refresh = tokio::time::interval(self.state.timing().cache_interval);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut dials: JoinSet<NodeName> = JoinSet::new();
        self.update_members();
        let mut rested = tokio::time::Instant::now();
        loop {
            self.state.set_address(self.gossip.own_address());
            self.dial(&mut dials);
            let wait = plan::next_ms(&self.state).map(|due| Duration::from_millis(due.saturating_sub(self.now_ms())));
            // A burst of changes is handled as one change, because the handling goes through all
            // nodes.
            let change = async {
                tokio::time::sleep_until(rested).await;
                tokio::select! {
                    changed = members.changed() => changed.map(|()| Change::Members),
                    changed = self.known.changed() => changed.map(|()| Change::Known),
                    () = self.wake.notified() => Ok(Change::Nudge),
                }
            };
            tokio::select! {
                change = change => {
                    let Ok(change) = change else { return };
                    rested = tokio::time::Instant::now() + self.state.timing().change_spacing;
                    match change {
                        Change::Members => self.update_members(),
                        Change::Known => {
                            self.refresh_cache();
                            self.nudge();
                        }
                        Change::Nudge => self.nudge(),
                    }
                }
                Some(ended) = dials.join_next() => if let Ok(name) = ended {
                    self.state.end(&name);
                },
                _ = refresh.tick() => self.refresh_cache(),
                () = sleep(wait) => {}
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn nudge(&mut self) {
        let now = self.now_ms();
        self.state.nudge(now);
    }

    fn update_members(&mut self) {
        let members = self.gossip.live_addresses().into_iter().map(|(name, addr, _)| (name, addr)).collect();
        let (now, before) = (self.now_ms(), self.state.is_isolated());
        if self.state.set_members(now, members) {
            self.nudge();
        }
        match (before, self.state.is_isolated()) {
            (false, true) => tracing::warn!("no live peer is left"),
            (true, false) => tracing::info!("live peers found again"),
            _ => {}
        }
    }

    fn dial(&mut self, dials: &mut JoinSet<NodeName>) {
        let mut dice = [0; 2];
        if getrandom::fill(&mut dice).is_ok() {
            self.state.set_jitter(u16::from_le_bytes(dice) % 1001);
        }
        let now = self.now_ms();
        for (name, addr) in plan::plan(now, &self.state) {
            let first = self.state.tries(&name).is_none_or(|tries| !tries.dialled);
            self.state.begin(now, &name);
            // The node may have become a member since the members were last read.
            if self.gossip.is_live(&name) {
                self.state.end(&name);
                continue;
            }
            if first {
                tracing::info!(node = %name, %addr, "dialling a missing node");
            }
            let gossip = self.gossip.clone();
            dials.spawn(async move {
                if let Err(error) = gossip.dial(addr).await {
                    tracing::debug!(node = %name, error = &error as &dyn std::error::Error, "missing node was not reached");
                }
                name
            });
        }
    }

    /// Merges the addresses of the live members with the known and the cached addresses of all
    /// nodes. Writes the cache file if the merge changed the addresses.
    fn refresh_cache(&mut self) {
        let known = self.known.borrow_and_update().clone().unwrap_or_else(|| self.stored.clone());
        let signed = self.gossip.live_addresses().into_iter().filter(|(_, _, signed)| *signed);
        let seen: BTreeMap<_, _> = signed.map(|(name, addr, _)| (name, addr)).collect();
        let merged = cache::merge(&known, &seen, &self.stored);
        let now = self.now_ms();
        self.state.set_known(now, merged.clone());
        if merged == self.stored {
            return;
        }
        match cache::save(&self.cache_path, &merged) {
            Ok(()) => self.stored = merged,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "address cache could not be written")
            }
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "rejoin/loop_tests.rs"]
mod tests;
