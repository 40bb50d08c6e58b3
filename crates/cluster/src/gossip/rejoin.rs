//! Rejoins the cluster after a network partition, which memberlist does not do by itself. [`plan`]
//! decides which nodes to dial; this file has the clock, the random numbers, the cache file and the
//! dials.

pub mod cache;
pub mod netlink;
pub mod plan;

use super::config::GossipTiming;
use super::handle::Gossip;
use cache::Addresses;
use plan::DialState;
use remoor_model::NodeName;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The running loop. It stops when dropped; drop it before the member leaves. Dials under way end
/// by their own timeout.
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
    /// Starts dialling the addresses in the cache file, before the inventory's nodes are known.
    ///
    /// A cache that cannot be read is logged and counts as empty. Must be called within a Tokio
    /// runtime.
    pub fn new(gossip: Gossip, cache_path: PathBuf, me: NodeName, timing: GossipTiming) -> Self {
        let (known, changes) = watch::channel(None);
        let wake = Arc::new(Notify::new());
        let mut task = Task {
            state: DialState::new(me, gossip.addr(), timing),
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

    /// Sets the nodes of the cluster and their possible addresses. Other nodes are not dialled any
    /// more.
    pub fn set_known(&self, known: Addresses) {
        self.known.send_replace(Some(known));
    }

    /// Requests an early dial after an event that makes one worthwhile, such as a wake-up or an SSH
    /// probe that succeeds again.
    pub fn nudge(&self) {
        self.wake.notify_one();
    }
}

struct Task {
    gossip: Gossip,
    cache_path: PathBuf,
    /// The content of the file.
    stored: Addresses,
    state: DialState,
    wake: Arc<Notify>,
    known: watch::Receiver<Option<Addresses>>,
    started: Instant,
}

impl Task {
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
        let mut members = self.gossip.changes();
        // Ticks at once, which applies the loaded addresses.
        let mut refresh = tokio::time::interval(self.state.timing.cache_interval);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut dials: JoinSet<NodeName> = JoinSet::new();
        loop {
            self.update_members();
            self.dial(&mut dials);
            let wait = plan::next_ms(&self.state).map(|due| Duration::from_millis(due.saturating_sub(self.now_ms())));
            tokio::select! {
                changed = members.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.update_members();
                    self.nudge();
                }
                changed = self.known.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.refresh_cache();
                    self.nudge();
                }
                () = self.wake.notified() => self.nudge(),
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
        self.state.my_addr = self.gossip.addr();
        let members = self.gossip.members().into_iter().map(|m| (m.name, m.addr)).collect();
        let (now, before) = (self.now_ms(), self.state.is_isolated());
        self.state.set_members(now, members);
        match (before, self.state.is_isolated()) {
            (false, true) => tracing::warn!("no live peer is left"),
            (true, false) => tracing::info!("live peers found again"),
            _ => {}
        }
    }

    fn dial(&mut self, dials: &mut JoinSet<NodeName>) {
        let mut dice = [0; 2];
        if getrandom::fill(&mut dice).is_ok() {
            self.state.jitter_permille = u16::from_le_bytes(dice) % 1001;
        }
        let now = self.now_ms();
        for (name, addr) in plan::plan(now, &self.state) {
            let first = !self.state.tries.contains_key(&name);
            if first {
                tracing::info!(node = %name, %addr, "dialling a missing node");
            }
            self.state.begin(now, &name);
            let gossip = self.gossip.clone();
            dials.spawn(async move {
                if let Err(error) = gossip.join(addr).await {
                    tracing::debug!(node = %name, error = &error as &dyn std::error::Error, "missing node was not reached");
                }
                name
            });
        }
    }

    /// Merges the addresses in use with the known ones. Writes the cache file if that changed
    /// anything.
    fn refresh_cache(&mut self) {
        let known = self.known.borrow_and_update().clone().unwrap_or_else(|| self.stored.clone());
        let signed = self.gossip.members().into_iter().filter(|m| m.signed);
        let seen: BTreeMap<_, _> = signed.map(|m| (m.name, m.addr)).collect();
        let merged = cache::merge(&known, &seen, &self.stored);
        self.state.known = merged.clone();
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
