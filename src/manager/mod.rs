//! Drives one manager. Gossip, the Raft log and results of work become events of the engine, and
//! the engine's actions become calls.
//!
//! Every manager runs this loop, but only the leader has an engine. Every decision is in the log.
//! So a new leader needs only the applied state and the current members of gossip.

mod addresses;
mod agent_reports;
mod ansible;
mod attempt;
mod attempt_error;
mod authorities;
pub mod authority;
pub mod backup;
mod blobs;
mod certificates;
mod cleanup_verification;
mod clocks;
mod context;
mod digest_summary;
mod examination_limits;
mod examine;
pub mod gossip_key;
mod leader_engine;
mod manager_keys;
pub mod members;
mod messages;
mod metrics;
mod notify;
mod observations;
mod peers;
mod perform;
mod publications;
mod reach;
mod recorder;
mod remote_examination;
mod sweep;
mod trusted_peers;

pub mod api;

pub use authorities::{Authorities, CaPair};
pub use context::{ManagerContext, ManagerIdentity, ManagerTiming, Startup};
pub use notify::Notices;
pub use peers::{ManagerAddresses, Peers};
pub use remoor_host::wall_clock::now as wall;
pub use trusted_peers::Sponsors;

use perform::Performer;
use remoor_cluster::gossip::MemberEvent;
use remoor_cluster::raft::{News, RaftStatus};
use remoor_cluster::rpc::view::StreamItem;
use remoor_engine::{EngineEvent, ManagerEngine};
use remoor_model::{GenerationSeq, Inventory, NodeName, Report};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Time without an answer of a quorum after which a leader drops its engine. By then the other
/// managers have usually elected a new leader.
const LAPSE_MAX: Duration = Duration::from_secs(3);

/// Pause between two reads of applied entries, so that a burst of entries is handled together.
const PAUSE: Duration = Duration::from_millis(5);

/// The loop of one manager. It ends at `shutdown`.
pub struct ManagerTask {
    shared: Arc<ManagerContext>,
    /// The leadership for which the engine was created.
    tenure: Leadership,
    performer: Performer,
    results: mpsc::UnboundedReceiver<EngineEvent>,
    /// The current members of gossip. Followers keep this list too, because a new leader needs it.
    members: BTreeMap<NodeName, Report>,
    scout: reach::PingMonitor,
    /// The generation whose `notify:` settings are in use.
    notified_by: GenerationSeq,
    sweep: sweep::Sweep,
    clocks: clocks::ClockMonitor,
}

impl ManagerTask {
    pub fn new(shared: Arc<ManagerContext>) -> Self {
        let (tx, results) = mpsc::unbounded_channel();
        let performer = Performer::new(shared.clone(), tx);
        Self {
            shared,
            tenure: Leadership::default(),
            performer,
            results,
            members: BTreeMap::new(),
            scout: reach::PingMonitor::default(),
            notified_by: GenerationSeq(0),
            sweep: sweep::Sweep::default(),
            clocks: clocks::ClockMonitor::default(),
        }
    }

    pub async fn run(
        mut self,
        mut gossip: mpsc::UnboundedReceiver<MemberEvent>,
        mut applied: mpsc::UnboundedReceiver<News<Inventory>>,
        mut shutdown: watch::Receiver<bool>,
    ) {
        let mut tick = tokio::time::interval(Duration::from_millis(self.shared.timing.tick_ms));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut status = self.shared.raft.status();
        let mut rested = tokio::time::Instant::now();
        loop {
            let news = async {
                tokio::time::sleep_until(rested).await;
                applied.recv().await
            };
            tokio::select! {
                _ = shutdown.changed() => break,
                Ok(()) = status.changed() => {
                    addresses::follow(&self.shared);
                    self.leadership().await;
                    self.roles();
                }
                Some(event) = gossip.recv() => self.gossip(event),
                Some(news) = news => {
                    rested = tokio::time::Instant::now() + PAUSE;
                    self.publish(news);
                    while let Ok(more) = applied.try_recv() {
                        self.publish(more);
                    }
                    addresses::follow(&self.shared);
                    self.feed(EngineEvent::Changed);
                }
                Some(event) = self.results.recv() => self.feed(event),
                _ = tick.tick() => {
                    self.leadership().await;
                    self.follow_fleet().await;
                    self.feed_agent_reports();
                    self.feed(EngineEvent::Tick);
                    self.roles();
                    self.sweep.tick(&self.shared);
                    self.clocks.tick(&self.shared);
                    self.scout.tick(&self.shared, &self.members, self.leads());
                }
            }
        }
        self.performer.stop_all();
    }

    /// Whether this manager leads and so has an engine.
    fn leads(&self) -> bool {
        self.shared.published.engine.leads()
    }

    fn roles(&mut self) {
        if self.leads() {
            self.performer.members_tick(self.shared.now(), &self.members);
        }
    }

    /// Reads the notice settings and the inventory's hosts from the applied fleet, if another
    /// generation was applied. This is also done once after a start.
    async fn follow_fleet(&mut self) {
        let inventory = self.shared.inventory();
        if self.notified_by == inventory.current || inventory.current.0 == 0 {
            return;
        }
        let Some(generation) = inventory.generations.get(&inventory.current).cloned() else { return };
        self.notified_by = generation.seq;
        let shared = self.shared.clone();
        tokio::spawn(async move {
            blobs::ensure(&shared, &generation.blob).await;
            let context = shared.clone();
            if let Ok(Ok(fleet)) = tokio::task::spawn_blocking(move || context.fleets.fleet(&generation)).await {
                shared.learn_hosts(&fleet);
                shared.notices.configure(Some(Arc::new(fleet.config.clone())));
            }
        });
    }

    /// Creates the engine when the leadership begins. At the end of the leadership, drops the
    /// engine and stops all its work.
    async fn leadership(&mut self) {
        let status = self.shared.raft.status().borrow().clone();
        if self.leads() && !self.tenure.lasts(&status, Instant::now()) {
            tracing::info!(node = %self.shared.identity.name, "leadership ended");
            self.shared.published.engine.set(None);
            self.performer.stop_all();
            self.performer.forget_roles();
        }
        if status.is_leader && !self.leads() {
            if self.shared.raft.linearizable().await.is_err() {
                return;
            }
            tracing::info!(node = %self.shared.identity.name, "leadership began");
            self.tenure = Leadership { term: status.term, lapsed: None };
            let engine = ManagerEngine::new(self.shared.identity.name.clone(), self.shared.now());
            self.shared.published.engine.set(Some(engine));
            self.shared.published.begin_record(wall());
            self.performer.forget_roles();
            for (name, report) in self.members.clone() {
                self.feed_sighted(&name);
                self.feed_alive(&name, report);
            }
            for (node, line) in self.shared.observed.reaches.all_unreachable() {
                self.feed(EngineEvent::Reach { node, by: self.shared.identity.node, line });
            }
            self.feed(EngineEvent::Tick);
        }
    }

    fn gossip(&mut self, event: MemberEvent) {
        match event {
            MemberEvent::Alive { name, addr, report, signed } | MemberEvent::Update { name, addr, report, signed } => {
                let before = self.members.insert(name.clone(), report.clone());
                // An address counts only if the node's own signature covers it.
                self.shared.observed.set_signed_address(&name, signed.then_some(addr));
                addresses::follow(&self.shared);
                self.feed_sighted(&name);
                self.shared.observed.set_report(&name, report.clone());
                match before {
                    Some(before) if before != report && report.is_renewal_of(&before) => self.feed_renewed(&name),
                    _ => self.feed_alive(&name, report),
                }
            }
            MemberEvent::Gone { name, .. } => {
                self.members.remove(&name);
                self.shared.observed.forget_member(&name);
                let node = self.shared.inventory().by_name(name.as_str()).map(|n| n.id);
                if let Some(node) = node {
                    self.feed(EngineEvent::Gone { node });
                }
            }
            MemberEvent::Conflict { name, existing, other } => {
                let text = format!("two nodes use the name {name}: {existing} and {other}");
                self.shared.notices.notify(&format!("conflict {name} {other}"), None, &text);
            }
            MemberEvent::Forged { name, addr } => {
                let text = format!("{addr} gossips as {name} without its key; refused");
                self.shared.notices.notify(&format!("forged {name} {addr}"), None, &text);
            }
            MemberEvent::Unreadable { name, version, .. } => {
                let text = format!(
                    "{name} gossips a report of version {version}, which remoor {} can't read: the node counts as alive, \
                     and its report is ignored; next: install the newer remoor on the managers first",
                    env!("CARGO_PKG_VERSION")
                );
                self.shared.notices.notify(&format!("unreadable {name} {version}"), Some(name.as_str()), &text);
            }
            MemberEvent::SignedElsewhere { .. } => {} // the daemon probes that address
            MemberEvent::OutrankedElsewhere { lasting: false, .. } => {} // an echo, or the other daemon exits now
            MemberEvent::OutrankedElsewhere { addr, lasting: true } => {
                let text = format!(
                    "two daemons run as {}, here and at {addr}; the other one stops, because it is of an older epoch or is not a \
                     manager; next: decide which one to keep, and move the data directory of the other away",
                    self.shared.identity.name
                );
                self.shared.notices.notify(&format!("twice {addr}"), None, &text);
            }
        }
    }

    fn feed_sighted(&mut self, name: &NodeName) {
        let node = self.shared.inventory().by_name(name.as_str()).map(|n| n.id);
        if let (Some(node), Some(addr)) = (node, self.shared.observed.signed_address(name)) {
            self.feed(EngineEvent::Sighted { node, gossip: addr.to_string() });
        }
    }

    fn feed_alive(&mut self, name: &NodeName, report: Report) {
        let node = self.shared.inventory().by_name(name.as_str()).map(|n| n.id);
        if let Some(node) = node {
            self.feed(EngineEvent::Alive { node, report });
        }
    }

    /// Gives the engine the reports of agents that gossip does not show. The engine receives at
    /// most one such report of each node at each tick, however many a node sends.
    fn feed_agent_reports(&mut self) {
        for (node, report) in self.shared.observed.agent_reports.take() {
            let Some(name) = self.shared.inventory().node(node).map(|n| n.name().clone()) else { continue };
            if let Some(known) = self.members.get_mut(&name) {
                *known = report.clone();
            }
            self.shared.observed.set_report(&name, report.clone());
            self.feed(EngineEvent::Reported { node, report });
        }
    }

    fn feed_renewed(&mut self, name: &NodeName) {
        let node = self.shared.inventory().by_name(name.as_str()).map(|n| n.id);
        if let Some(node) = node {
            self.feed(EngineEvent::Renewed { node });
        }
    }

    fn feed(&mut self, event: EngineEvent) {
        for ((node, by), line) in self.shared.observed.reaches.take() {
            self.step(EngineEvent::Reach { node, by, line });
        }
        self.step(event);
    }

    fn step(&mut self, event: EngineEvent) {
        if !self.leads() {
            return;
        }
        let (now, wall) = (self.shared.now(), self.shared.entry_time());
        let inventory = self.shared.inventory();
        let told = recorder::keep(&event);
        let Some(actions) = self.shared.published.engine.step(now, wall, &inventory, event) else { return };
        if let Some(step) = recorder::step(wall, &inventory, told, &actions) {
            self.shared.published.record(step);
        }
        for action in actions {
            self.performer.perform(action);
        }
    }

    fn publish(&self, news: News<Inventory>) {
        match news {
            News::Applied(entry) => match entry.applied.refusal() {
                None => self.shared.publish_history(entry.index),
                Some(refusal) => metrics::count_refusal(&self.shared.published.applied, &refusal.code),
            },
            News::Resync { index } => {
                tracing::info!(index, "a snapshot replaced entries; watchers are notified");
                self.shared.published.emit(StreamItem::Resync { index });
            }
        }
    }
}

/// A leadership of this manager. If the lease of the leadership expires, the leadership still
/// continues for a while. Otherwise a short stall of a disk or of the machine would restart every
/// open attempt. Without a lease, no proposal of this manager is committed. If another manager
/// leads, it opens new attempts, whose fences end the work of this manager that still runs.
#[derive(Debug, Default)]
struct Leadership {
    term: u64,
    /// The time since which this leader has had no answer of a majority; None while a majority
    /// answers.
    lapsed: Option<Instant>,
}

impl Leadership {
    /// Whether this leadership still continues at `now`, according to the Raft status.
    fn lasts(&mut self, status: &RaftStatus, now: Instant) -> bool {
        if status.term != self.term || status.leader != Some(status.id) || !status.running {
            return false;
        }
        if status.is_leader {
            self.lapsed = None;
            return true;
        }
        now.duration_since(*self.lapsed.get_or_insert(now)) < LAPSE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::RaftId;

    #[test]
    fn a_leadership_survives_a_short_lapse_but_not_another_leader() {
        let (now, me) = (Instant::now(), RaftId(1));
        let leads =
            RaftStatus { id: me, term: 4, leader: Some(me), is_leader: true, running: true, ..Default::default() };
        let lapsed = RaftStatus { is_leader: false, ..leads.clone() };
        let mut tenure = Leadership { term: 4, lapsed: None };
        assert!(tenure.lasts(&leads, now) && tenure.lasts(&lapsed, now));
        assert!(tenure.lasts(&lapsed, now + LAPSE_MAX / 2), "no other leader is known");
        assert!(tenure.lasts(&leads, now + LAPSE_MAX), "a majority answers again");
        assert!(tenure.lasts(&lapsed, now + 2 * LAPSE_MAX) && !tenure.lasts(&lapsed, now + 3 * LAPSE_MAX));
        let mut tenure = Leadership { term: 4, lapsed: None };
        assert!(!tenure.lasts(&RaftStatus { leader: Some(RaftId(2)), ..lapsed.clone() }, now));
        assert!(!tenure.lasts(&RaftStatus { leader: None, ..lapsed }, now));
        assert!(!tenure.lasts(&RaftStatus { term: 5, ..leads }, now), "a new term began between two checks");
    }
}
