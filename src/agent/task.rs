//! The agent's loop. It handles gossip, file changes, the agent's examinations of its node, and
//! requests to the managers.

use super::book::{KeyBook, PeerBook};
use super::examination::{AgentExamination, Examiner};
use super::local_state::{AgentState, Departure, ExaminationSummary};
use super::now;
use super::question::{HeardState, ManagersAnswer, ManagersQuestion};
use super::record::RecordKeeper;
use super::schedule::ExaminationSchedule;
use remoor_cluster::gossip::{Gossip, GossipTiming, Member, MemberEvent, RejoinLoop};
use remoor_cluster::rpc::agent::{ManifestReply, PeersReply};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_host::disk::{CLOSED, FENCE, LEFT, StoredFile, atomic_write, read_or_rename_damaged};
use remoor_host::files;
use remoor_model::{CheckSummary, GenerationSeq, NodeName, Report, Wall, failure_hash, report_renewal_ms};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Interval of the agent's requests to managers until it has received its first manifest.
const FIRST: Duration = Duration::from_secs(2);
/// Interval of the requests to managers if no manager answers, or while gossip shows a state that
/// no manager has reported.
const REFRESH: Duration = Duration::from_secs(20);
/// Interval of the requests to managers if they have reported everything. It is long, because each
/// request costs a TLS handshake and wakes an idle agent.
const QUIET: Duration = Duration::from_secs(120);
/// Delay of the request to managers after a change of the report. Gossip has normally delivered the
/// report by then, so the managers ignore the report in the request. If the node's gossip is
/// suppressed, the managers learn of the change from the request.
const REPORTED: Duration = Duration::from_secs(5);
/// Minimum time between two requests to managers, even if unknown nodes appear often.
const AGAIN: Duration = Duration::from_secs(1);
/// Random delay before a request to the managers, for each peer of this node. Without it, an event
/// that all nodes see would cause simultaneous requests.
const SPREAD: Duration = Duration::from_millis(20);

pub struct AgentConfig {
    pub name: NodeName,
    /// The directory with `agent.json`, `manifest.json` and `peers.json`.
    pub state_dir: PathBuf,
    pub tls: ClientTls,
    pub keys: KeyBook,
    /// The state to which the agent writes its knowledge.
    pub own: AgentState,
    /// Counter of the agent's completed examinations and of its requests to managers.
    pub worked: watch::Sender<u64>,
}

pub struct AgentTask {
    config: AgentConfig,
    gossip: Gossip,
    rejoin: RejoinLoop,
    record: RecordKeeper,
    peers: PeerBook,
    known: Option<ManifestReply>,
    heard: HeardState,
    /// Time at which a manager last reported a generation that is newer than the earlier ones.
    newest_since: Option<tokio::time::Instant>,
    /// Number of requests to the managers so far.
    asked: u64,
    report: Report,
    /// Time at which an unchanged report is signed and gossiped again.
    renew_at: tokio::time::Instant,
    present: BTreeSet<NodeName>,
    most_peers: u32,
    /// Time at which the first peer was lost in the current sequence of losses. None once a peer
    /// returns.
    peers_lost_since: Option<Wall>,
    rejoin_ms: u64,
    examiner: Arc<Mutex<Examiner>>,
    file_events: mpsc::UnboundedReceiver<files::FileEvent>,
}

impl AgentTask {
    /// `peers` is the loaded `peers.json` of the state directory.
    pub fn new(
        config: AgentConfig,
        peers: PeerBook,
        gossip: Gossip,
        rejoin: RejoinLoop,
        record: RecordKeeper,
        report: Report,
    ) -> Self {
        let (stirred, file_events) = mpsc::unbounded_channel();
        let saved = read_or_rename_damaged::<Option<ManifestReply>>(&config.state_dir.join("manifest.json"));
        let known = saved.map_or(None, StoredFile::or_default);
        // The peers and the manifest that were saved on disk answer local requests that arrive
        // before the loop runs.
        config.own.set_peers(&peers.peers, &peers.managers, known.as_ref());
        Self {
            peers,
            known,
            config,
            gossip,
            rejoin,
            record,
            report,
            renew_at: tokio::time::Instant::now() + renewal_interval(0),
            present: BTreeSet::new(),
            most_peers: 0,
            peers_lost_since: None,
            rejoin_ms: 0,
            heard: HeardState::default(),
            newest_since: None,
            asked: 0,
            examiner: Arc::new(Mutex::new(Examiner::new(stirred))),
            file_events,
        }
    }

    /// Runs until `shutdown`, then says goodbye in gossip.
    pub async fn run(mut self, mut events: mpsc::UnboundedReceiver<MemberEvent>, mut shutdown: watch::Receiver<bool>) {
        self.config.own.record(self.record.record(), self.record.save_error());
        // The file `LEFT` exists if the node left voluntarily. It stops the agent even if no
        // manager answers. When the machine joins again, the file is removed.
        if let Ok(why) = std::fs::read_to_string(self.config.state_dir.join(LEFT)) {
            return self.stop_after_departure(Departure { why: why.trim().to_owned(), left: true }, shutdown).await;
        }
        let (look_tx, mut looks) = mpsc::channel::<AgentExamination>(1);
        let (news_tx, mut news) = mpsc::channel(1);
        let mut asking = false;
        let mut ask_at = tokio::time::Instant::now();
        let mut due = ExaminationSchedule::new(ask_at);
        let mut asked_at = ask_at;
        let mut runs = self.runs();
        let mut standing = self.config.own.follow_published();
        standing.mark_changed();
        self.introduce();
        loop {
            tokio::select! {
                _ = shutdown.changed() => break,
                Some(event) = events.recv() => {
                    if self.is_news(&event) {
                        ask_at = ask_at.min((asked_at + REFRESH).max(tokio::time::Instant::now() + self.spread()));
                    }
                    self.member(event).await;
                }
                Ok(()) = standing.changed() => {
                    let shown = *standing.borrow_and_update();
                    let report = Report { epoch: shown.certified, manages: shown.manages, ..self.report.clone() };
                    if report != self.report {
                        self.report = report;
                        self.publish().await;
                    }
                }
                () = tokio::time::sleep_until(self.renew_at) => self.publish().await,
                Some(_) = self.file_events.recv() => {
                    while self.file_events.try_recv().is_ok() {}
                    due.file_changed(tokio::time::Instant::now());
                }
                () = due.wait(), if self.known.is_some() => {
                    due.begin();
                    self.start_examination(look_tx.clone());
                }
                Some(look) = looks.recv() => {
                    let every = self.known.as_ref().map_or(60_000, |k| k.check_interval_ms).max(500);
                    due.end(tokio::time::Instant::now(), Duration::from_millis(every), chance());
                    if self.examination_finished(look).await {
                        ask_at = ask_at.min((asked_at + REFRESH).max(tokio::time::Instant::now() + REPORTED));
                    }
                    if runs != self.runs() {
                        ask_at = tokio::time::Instant::now();
                    }
                }
                () = tokio::time::sleep_until(ask_at), if !asking => {
                    asking = true;
                    runs = self.runs();
                    let (own, tls, tx) = (self.config.own.clone(), self.config.tls.clone(), news_tx.clone());
                    let question = self.question();
                    tokio::spawn(async move {
                        let _ = tx.send(question.ask(&own, &tls).await).await;
                    });
                }
                parted = self.config.own.until_parting() => return self.stop_after_departure(parted, shutdown).await,
                () = self.config.own.wait_for_ask_request(), if !asking => {
                    ask_at = ask_at.min((asked_at + AGAIN).max(tokio::time::Instant::now()));
                }
                Some(ManagersAnswer { by, peers, manifest, removed }) = news.recv() => {
                    asking = false;
                    if let Some(parted) = removed {
                        return self.stop_after_departure(parted, shutdown).await;
                    }
                    if let Some(outcome) = by {
                        // The epoch that a former manager reports is not used.
                        if let (Ok(_), Some(reply)) = (&outcome, &peers) {
                            self.config.own.learn_epoch(reply.epoch);
                        }
                        self.config.own.set_manager_contact(outcome, now());
                    }
                    self.config.worked.send_modify(|works| *works += 1);
                    if self.record.retry_save() {
                        tracing::info!("the agent's record is saved now");
                        self.config.own.record(self.record.record(), self.record.save_error());
                    }
                    let answered = peers.is_some() && manifest.is_some();
                    if self.news(peers, manifest).await {
                        due.examine_now(tokio::time::Instant::now());
                    }
                    asked_at = tokio::time::Instant::now();
                    ask_at = asked_at + match () {
                        () if self.known.is_none() => FIRST,
                        () if answered && self.is_all_reported() && !self.awaits_generation() => QUIET,
                        () => REFRESH,
                    };
                }
            }
        }
        self.leave().await;
    }

    /// Whether the gossip event shows a state that the managers have not reported.
    fn is_news(&self, event: &MemberEvent) -> bool {
        match event {
            MemberEvent::Alive { name, addr, report, signed } | MemberEvent::Update { name, addr, report, signed } => {
                *name != self.config.name
                    && !self.peers.is_reported(name, *addr, *signed, report.generation, self.newest_generation())
            }
            MemberEvent::Gone { name, .. } => self.peers.managers.iter().any(|m| m.name == *name),
            _ => false,
        }
    }

    /// Whether the managers have reported everything that gossip shows. The result is always false
    /// on a manager, so that its agent asks at the short interval. Other nodes learn of a new
    /// generation from the gossip report of a manager's agent.
    fn is_all_reported(&self) -> bool {
        let told = |m: &Member| {
            m.name == self.config.name
                || self.peers.is_reported(&m.name, m.addr, m.signed, m.report.generation, self.newest_generation())
        };
        !self.config.own.manages() && self.gossip.members().iter().all(told)
    }

    /// The times at which the last attempt on this node began and ended. An attempt that
    /// commissions or decommissions the node changes its manifest, but gossip does not show this
    /// change. So after each examination by the agent, the times are compared with the earlier
    /// ones. This needs no extra wakeup of an idle agent.
    fn runs(&self) -> [Option<std::time::SystemTime>; 2] {
        [FENCE, CLOSED].map(|name| self.config.state_dir.join(name).metadata().and_then(|m| m.modified()).ok())
    }

    fn generation(&self) -> GenerationSeq {
        self.known.as_ref().map(|k| k.manifest.generation).unwrap_or_default()
    }

    /// The newest generation that a manager reported. During a partial rollout, the generation of
    /// this node may be older.
    fn newest_generation(&self) -> GenerationSeq {
        self.generation().max(self.heard.newest)
    }

    /// Whether a manager recently reported a generation that is newer than this node's, and that
    /// this node may get soon.
    fn awaits_generation(&self) -> bool {
        self.generation() < self.heard.newest && self.newest_since.is_some_and(|since| since.elapsed() < QUIET)
    }

    fn question(&mut self) -> ManagersQuestion {
        self.asked += 1;
        let (own, named) = (&self.config.own, self.peers.managers.len());
        ManagersQuestion::new(own.id().id, self.asked, self.managers(), named, own.epoch(), self.heard.clone())
            .with_report(self.gossip.own_report())
    }

    fn spread(&self) -> Duration {
        let most = SPREAD * u32::try_from(self.peers.peers.len()).unwrap_or(u32::MAX).min(1_000);
        most * u32::from(chance()) / u32::from(u16::MAX)
    }

    /// The known managers. The signed gossip address of each replaces its known address, so that a
    /// manager that moved is found again.
    fn managers(&self) -> Vec<PeerInfo> {
        let members = self.gossip.members();
        let mut managers = self.peers.managers.clone();
        for manager in &mut managers {
            let signed = members.iter().find(|m| m.signed && m.name == manager.name);
            let known = manager.api_addr.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            if let Some(member) = signed
                && let Some(port) = Some(member.report.api).filter(|port| *port != 0).or(known)
            {
                manager.api_addr = std::net::SocketAddr::from((member.addr.ip(), port)).to_string();
            }
        }
        managers.extend(self.config.own.met_managers());
        managers
    }

    /// Passes the cached peers to gossip, the rejoin loop and the shared state.
    fn introduce(&self) {
        self.config.keys.set(self.peers.peers.iter().map(|p| (&p.name, p.public_key.as_str())));
        self.rejoin.set_known(self.peers.addresses());
        self.config.own.set_peers(&self.peers.peers, &self.peers.managers, self.known.as_ref());
    }

    async fn member(&mut self, event: MemberEvent) {
        self.config.own.member(&event, now());
        let (name, here) = match event {
            MemberEvent::Alive { name, .. } | MemberEvent::Update { name, .. } => (name, true),
            MemberEvent::Gone { name, .. } => (name, false),
            _ => return,
        };
        if name == self.config.name {
            return;
        }
        let before = self.present.len() as u32;
        let changed = if here { self.present.insert(name) } else { self.present.remove(&name) };
        let after = self.present.len() as u32;
        self.most_peers = if before == 0 { after } else { self.most_peers.max(after) };
        self.peers_lost_since = if here { None } else { self.peers_lost_since.or(Some(now())) };
        let saved = match (changed, before, after) {
            (true, 1, 0) => self.record.begin_isolation(self.most_peers, self.peers_lost_since.unwrap_or_else(now)),
            (true, 0, 1) => self.record.end_isolation(now()),
            _ => return,
        };
        if let Err(error) = saved {
            tracing::error!(%error, "the agent's record could not be saved");
        }
        self.config.own.record(self.record.record(), self.record.save_error());
        self.report.isolation = self.record.record().isolation;
        self.publish().await;
    }

    fn start_examination(&self, tx: mpsc::Sender<AgentExamination>) {
        let Some(known) = self.known.clone() else { return };
        let eyes = self.examiner.clone();
        tokio::task::spawn_blocking(move || {
            let look = eyes.lock().unwrap_or_else(|p| p.into_inner()).examine(&known);
            let _ = tx.blocking_send(look);
        });
    }

    /// Publishes the result of an examination. Returns whether the report changed.
    async fn examination_finished(&mut self, look: AgentExamination) -> bool {
        let unreadable = look.digest.services.values().any(|s| !s.unreadable.is_empty());
        let before = self.report.clone();
        self.report.digest = look.digest.root;
        self.report.checks =
            if unreadable && look.checks == CheckSummary::Pass { CheckSummary::Unknown } else { look.checks };
        self.report.failure_hash = failure_hash(&look.digest, &look.results);
        self.report.generation = self.generation();
        let changed = self.report != before;
        if changed {
            self.publish().await;
        }
        let AgentExamination { digest, results, generation, began, took_ms, .. } = look;
        self.config.own.set_examination(ExaminationSummary::new(began, took_ms, generation.0, &digest, results));
        self.config.worked.send_modify(|works| *works += 1);
        changed
    }

    /// Uses the answer of a manager. Returns true if the manifest changed.
    async fn news(&mut self, peers: Option<PeersReply>, manifest: Option<ManifestReply>) -> bool {
        if let Some(reply) = &peers {
            if self.heard.learn(reply) {
                self.newest_since = Some(tokio::time::Instant::now());
            }
            self.config.own.forget(&reply.removed);
            if self.config.keys.remove(reply.removed.iter()) {
                self.gossip.recheck().await;
            }
            self.config.own.set_gossip_index(reply.gossip);
            self.config.own.set_ca_index(reply.ca);
        }
        if let Some(reply) = peers.filter(|reply| !reply.unchanged)
            && (reply.peers != self.peers.peers || reply.managers != self.peers.managers)
        {
            if let Err(error) = self.peers.update(reply.peers, reply.managers) {
                tracing::warn!(%error, "the list of peers could not be saved");
            }
            self.introduce();
            self.gossip.recheck().await;
        }
        let Some(reply) = manifest else { return false };
        if reply.rejoin_ms > 0 && self.rejoin_ms != reply.rejoin_ms {
            self.rejoin_ms = reply.rejoin_ms;
            let timing = GossipTiming {
                rejoin_interval: Duration::from_millis(reply.rejoin_ms.max(500)),
                ..GossipTiming::default()
            };
            let cache = self.config.state_dir.join("addresses.json");
            self.rejoin = RejoinLoop::new(self.gossip.clone(), cache, self.config.name.clone(), timing);
            self.rejoin.set_known(self.peers.addresses());
        }
        let new = self.known.as_ref().is_none_or(|k| k.manifest != reply.manifest || k.digest_key != reply.digest_key);
        if new {
            let bytes = serde_json::to_vec(&reply).unwrap_or_default();
            if let Err(error) = atomic_write(&self.config.state_dir.join("manifest.json"), &bytes, 0o600) {
                tracing::warn!(%error, "the manifest could not be saved");
            }
        }
        self.known = Some(reply);
        self.config.own.set_peers(&self.peers.peers, &self.peers.managers, self.known.as_ref());
        new
    }

    async fn publish(&mut self) {
        self.renew_at = tokio::time::Instant::now() + renewal_interval(self.peers.peers.len());
        if let Err(error) = self.gossip.publish(self.report.clone()).await {
            tracing::warn!(%error, "the report could not be gossiped");
        }
    }

    /// Waits for the end of the daemon, because the node was removed or left. Until the daemon
    /// ends, the agent does not gossip, runs no checks and deletes nothing.
    async fn stop_after_departure(self, parted: Departure, mut shutdown: watch::Receiver<bool>) {
        let (why, dir) = (&parted.why, self.config.state_dir.display());
        if parted.left {
            tracing::warn!(
                "{why}; this daemon is inactive now and has deleted nothing; next: systemctl disable --now remoor; or, to make \
                 the machine a node again, stop the daemon and run remoor join with {dir} unchanged"
            );
            if let Err(error) = atomic_write(&self.config.state_dir.join(LEFT), format!("{why}\n").as_bytes(), 0o600) {
                tracing::warn!(%error, "the departure could not be recorded; the managers will report it at the next start");
            }
        } else {
            tracing::error!(
                "{why}; this daemon is inactive now and has deleted nothing; next: systemctl disable --now remoor; or, to make \
                 the machine a node again, move {dir} away and run remoor join"
            );
        }
        self.config.own.set_removed(parted);
        let Self { gossip, rejoin, mut record, .. } = self;
        drop(rejoin);
        gossip.leave().await;
        let _ = shutdown.wait_for(|stop| *stop).await; // a dropped sender also ends the wait
        if let Err(error) = record.goodbye() {
            tracing::warn!(%error, "the goodbye could not be recorded");
        }
    }

    async fn leave(mut self) {
        if let Err(error) = self.record.goodbye() {
            tracing::warn!(%error, "the goodbye could not be recorded");
        }
        self.gossip.leave().await;
    }
}

/// Interval after which the report is signed again in a cluster of `nodes` nodes. It is shortened
/// at random by at most a tenth, so that nodes that start together do not sign their reports
/// together.
fn renewal_interval(nodes: usize) -> Duration {
    let all = Duration::from_millis(report_renewal_ms(nodes));
    all - all / 10 * u32::from(chance()) / u32::from(u16::MAX)
}

/// A random number. 0 if the system provides none; all nodes then ask and examine at the same time,
/// which still works.
fn chance() -> u16 {
    let mut dice = [0; 2];
    let _ = getrandom::fill(&mut dice);
    u16::from_le_bytes(dice)
}
