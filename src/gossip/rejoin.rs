//! Brings the cluster together again after a cut, which memberlist does not do by itself. The decision whom to dial
//! is in [`plan`]; here are the clock, the dice, the cache file and the dials.

pub mod cache;
pub mod netlink;
pub mod plan;

use super::config::Timing;
use super::handle::Gossip;
use crate::model::NodeName;
use cache::Addresses;
use plan::State;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The running loop. Stops when it is dropped, which should come before the member leaves; dials under way end by their
/// own timeout.
pub struct RejoinLoop {
    known: watch::Sender<Option<Addresses>>,
    bell: Arc<Notify>,
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
    /// Starts dialling from the addresses in the cache file, before anybody has said who is known.
    ///
    /// A cache that can't be read is reported and counts as empty. Must be called within a tokio runtime.
    pub fn new(gossip: Gossip, cache_path: PathBuf, me: NodeName, timing: Timing) -> Self {
        let (known, changes) = watch::channel(None);
        let bell = Arc::new(Notify::new());
        let mut task = Task {
            state: State::new(me, gossip.addr(), timing),
            gossip,
            cache_path,
            stored: Addresses::new(),
            bell: bell.clone(),
            known: changes,
            started: Instant::now(),
        };
        let ear = bell.clone();
        let tasks = [
            tokio::spawn(async move { task.run().await }),
            tokio::spawn(async move {
                let error = netlink::listen(ear).await;
                tracing::warn!(%error, "network changes are not noticed; missing nodes are dialled by the timer alone");
            }),
        ];
        Self { known, bell, tasks }
    }

    /// Says who belongs to the cluster, and where they may be reached. Others are not dialled any more.
    pub fn set_known(&self, known: Addresses) {
        self.known.send_replace(Some(known));
    }

    /// Says that something happened that makes a dial worthwhile: a wake-up, an SSH probe that answers again.
    pub fn nudge(&self) {
        self.bell.notify_one();
    }
}

struct Task {
    gossip: Gossip,
    cache_path: PathBuf,
    /// What the file holds.
    stored: Addresses,
    state: State,
    bell: Arc<Notify>,
    known: watch::Receiver<Option<Addresses>>,
    started: Instant,
}

impl Task {
    async fn run(&mut self) {
        match cache::load(&self.cache_path) {
            Ok(found) => self.stored = found,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the address cache starts empty");
                if matches!(error, cache::CacheError::Form { .. })
                    && let Err(error) = crate::disk::set_aside(&self.cache_path, &error.to_string())
                {
                    tracing::warn!(error = &error as &dyn std::error::Error, "it can't be kept aside");
                }
            }
        }
        let mut members = self.gossip.changes();
        // Ticks at once, which takes the loaded addresses into use.
        let mut refresh = tokio::time::interval(self.state.timing.cache_interval);
        refresh.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut dials: JoinSet<NodeName> = JoinSet::new();
        loop {
            self.look();
            self.dial(&mut dials);
            let wait = plan::next_ms(&self.state).map(|due| Duration::from_millis(due.saturating_sub(self.now_ms())));
            tokio::select! {
                changed = members.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.look();
                    self.nudge();
                }
                changed = self.known.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.refresh_cache();
                    self.nudge();
                }
                () = self.bell.notified() => self.nudge(),
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

    fn look(&mut self) {
        self.state.my_addr = self.gossip.addr();
        let members = self.gossip.members().into_iter().map(|m| (m.name, m.addr)).collect();
        let (now, before) = (self.now_ms(), self.state.isolated());
        self.state.set_members(now, members);
        match (before, self.state.isolated()) {
            (false, true) => tracing::warn!("no live peer is left"),
            (true, false) => tracing::info!("there are live peers"),
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
                    tracing::debug!(node = %name, error = &error as &dyn std::error::Error, "missing node is not reached");
                }
                name
            });
        }
    }

    /// Brings the addresses in use and the known ones together, and writes them down if that changed anything.
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
            Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the address cache is not kept"),
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
