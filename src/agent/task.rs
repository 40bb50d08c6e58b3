//! The agent's loop: gossip, files, checks, manifest.

use super::book::{KeyBook, PeerBook};
use super::due::Due;
use super::look::{Eyes, Look};
use super::now;
use super::own::{Kept, Own, Parted};
use super::record::RecordKeeper;
use crate::disk::{CLOSED, FENCE, Found, LEFT, atomic_write, read_or_set_aside};
use crate::files;
use crate::gossip::{Gossip, Member, MemberEvent, RejoinLoop, Timing};
use crate::model::{CheckSummary, Epoch, GenerationSeq, NodeName, Report, Wall, amiss};
use crate::rpc::agent::{ManifestReply, PeersReply};
use crate::rpc::client::{ApiError, Client};
use crate::rpc::join::Peer;
use crate::rpc::tls::ClientTls;
use crate::rpc::wire::Code;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Until a first manifest is here, managers are asked this often.
const FIRST: Duration = Duration::from_secs(2);
/// Afterwards, while gossip shows what no manager has told, or no manager answers.
const REFRESH: Duration = Duration::from_secs(20);
/// While they have told everything. Each question is a TLS handshake, and one more thing that an agent at rest wakes up for.
const QUIET: Duration = Duration::from_secs(120);
/// However often somebody comes whom the node does not know, no two questions are closer than this.
const AGAIN: Duration = Duration::from_secs(1);
/// What all nodes see at once they don't ask about at once: each waits by chance, at most so long for each peer.
const SPREAD: Duration = Duration::from_millis(20);

pub struct AgentConfig {
    pub name: NodeName,
    /// Holds `agent.json`, `manifest.json` and `peers.json`.
    pub state_dir: PathBuf,
    pub tls: ClientTls,
    pub keys: KeyBook,
    /// Told what the agent comes to know.
    pub own: Own,
    /// Counts what is over: looks at the node, and questions to managers.
    pub worked: watch::Sender<u64>,
}

pub struct AgentTask {
    config: AgentConfig,
    gossip: Gossip,
    rejoin: RejoinLoop,
    record: RecordKeeper,
    peers: PeerBook,
    known: Option<ManifestReply>,
    report: Report,
    present: BTreeSet<NodeName>,
    most: u32,
    /// Since when peers were lost one after the other, until all are or one is back.
    dwindling: Option<Wall>,
    rejoin_ms: u64,
    eyes: Arc<Mutex<Eyes>>,
    stirs: mpsc::UnboundedReceiver<files::Event>,
}

/// What came of asking the managers.
struct Answer {
    /// Who answered, or why nobody did; None: nobody is known to ask.
    by: Option<Result<NodeName, String>>,
    peers: Option<PeersReply>,
    manifest: Option<ManifestReply>,
    /// A manager says that this node was removed, or left, and when.
    removed: Option<Parted>,
}

impl AgentTask {
    /// `peers` is `peers.json` of the state directory.
    pub fn new(
        config: AgentConfig,
        peers: PeerBook,
        gossip: Gossip,
        rejoin: RejoinLoop,
        record: RecordKeeper,
        report: Report,
    ) -> Self {
        let (stirred, stirs) = mpsc::unbounded_channel();
        let saved = read_or_set_aside::<Option<ManifestReply>>(&config.state_dir.join("manifest.json"));
        let known = saved.map_or(None, Found::or_default);
        // Whoever asks before the loop runs is told what is known.
        config.own.told(&peers.peers, &peers.managers, known.as_ref());
        Self {
            peers,
            known,
            config,
            gossip,
            rejoin,
            record,
            report,
            present: BTreeSet::new(),
            most: 0,
            dwindling: None,
            rejoin_ms: 0,
            eyes: Arc::new(Mutex::new(Eyes::new(stirred))),
            stirs,
        }
    }

    /// Until `shutdown`; then says goodbye.
    pub async fn run(mut self, mut events: mpsc::UnboundedReceiver<MemberEvent>, mut shutdown: watch::Receiver<bool>) {
        self.config.own.record(self.record.record());
        // What it said itself holds also where no manager can be asked; a join takes it away.
        if let Ok(why) = std::fs::read_to_string(self.config.state_dir.join(LEFT)) {
            return self.park(Parted { why: why.trim().to_owned(), left: true }, shutdown).await;
        }
        let (look_tx, mut looks) = mpsc::channel::<Look>(1);
        let (news_tx, mut news) = mpsc::channel(1);
        let mut asking = false;
        let mut ask_at = tokio::time::Instant::now();
        let mut due = Due::new(ask_at);
        let mut asked_at = ask_at;
        let mut runs = self.runs();
        let mut standing = self.config.own.follow_standing();
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
                Some(_) = self.stirs.recv() => {
                    while self.stirs.try_recv().is_ok() {}
                    due.stir(tokio::time::Instant::now());
                }
                () = due.come(), if self.known.is_some() => {
                    due.begin();
                    self.look(look_tx.clone());
                }
                Some(look) = looks.recv() => {
                    let every = self.known.as_ref().map_or(60_000, |k| k.check_interval_ms).max(500);
                    due.end(tokio::time::Instant::now(), Duration::from_millis(every), chance());
                    self.looked(look).await;
                    if runs != self.runs() {
                        ask_at = tokio::time::Instant::now();
                    }
                }
                () = tokio::time::sleep_until(ask_at), if !asking => {
                    asking = true;
                    runs = self.runs();
                    let (tls, managers, tx) = (self.config.tls.clone(), self.managers(), news_tx.clone());
                    let (own, epoch) = (self.config.own.clone(), self.config.own.epoch());
                    let named = self.peers.managers.len();
                    tokio::spawn(async move {
                        let _ = tx.send(ask(&own, &tls, &managers, named, epoch).await).await;
                    });
                }
                parted = self.config.own.until_parting() => return self.park(parted, shutdown).await,
                () = self.config.own.told_to_ask(), if !asking => {
                    ask_at = ask_at.min((asked_at + AGAIN).max(tokio::time::Instant::now()));
                }
                Some(Answer { by, peers, manifest, removed }) = news.recv() => {
                    asking = false;
                    if let Some(parted) = removed {
                        return self.park(parted, shutdown).await;
                    }
                    if let Some(outcome) = by {
                        // Not of one that was a manager.
                        if let (Ok(_), Some(reply)) = (&outcome, &peers) {
                            self.config.own.hear_epoch(reply.epoch);
                        }
                        self.config.own.asked(outcome, now());
                    }
                    self.config.worked.send_modify(|works| *works += 1);
                    let answered = peers.is_some() && manifest.is_some();
                    if self.news(peers, manifest).await {
                        due.news(tokio::time::Instant::now());
                    }
                    asked_at = tokio::time::Instant::now();
                    ask_at = asked_at + match () {
                        () if self.known.is_none() => FIRST,
                        () if answered && self.is_told() => QUIET,
                        () => REFRESH,
                    };
                }
            }
        }
        self.leave().await;
    }

    /// Whether gossip says something that managers should be asked about.
    fn is_news(&self, event: &MemberEvent) -> bool {
        match event {
            MemberEvent::Alive { name, addr, report, signed } | MemberEvent::Update { name, addr, report, signed } => {
                *name != self.config.name
                    && !self.peers.told(name, *addr, *signed, report.generation, self.generation())
            }
            MemberEvent::Gone { name, .. } => self.peers.managers.iter().any(|m| m.name == *name),
            _ => false,
        }
    }

    /// Whether managers have told everything that gossip shows. A manager's own agent asks on: the others see by its report
    /// that there is a new generation.
    fn is_told(&self) -> bool {
        let told = |m: &Member| {
            m.name == self.config.name
                || self.peers.told(&m.name, m.addr, m.signed, m.report.generation, self.generation())
        };
        !self.config.own.manages() && self.gossip.members().iter().all(told)
    }

    /// When a run last began and ended here: with it the node may have come into service, or gone out of it, and another
    /// manifest is its, which gossip doesn't show. A look compares it, so that waiting for it costs an agent at rest nothing.
    fn runs(&self) -> [Option<std::time::SystemTime>; 2] {
        [FENCE, CLOSED].map(|name| self.config.state_dir.join(name).metadata().and_then(|m| m.modified()).ok())
    }

    fn generation(&self) -> GenerationSeq {
        self.known.as_ref().map(|k| k.manifest.generation).unwrap_or_default()
    }

    fn spread(&self) -> Duration {
        let most = SPREAD * u32::try_from(self.peers.peers.len()).unwrap_or(u32::MAX).min(1_000);
        most * u32::from(chance()) / u32::from(u16::MAX)
    }

    /// The known managers, each where it gossips now by its own signature: one that moved is found again.
    fn managers(&self) -> Vec<Peer> {
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

    /// Tells gossip and the rejoin loop of the peers that the cache names.
    fn introduce(&self) {
        self.config.keys.set(self.peers.peers.iter().map(|p| (&p.name, p.public_key.as_str())));
        self.rejoin.set_known(self.peers.addresses());
        self.config.own.told(&self.peers.peers, &self.peers.managers, self.known.as_ref());
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
        self.most = if before == 0 { after } else { self.most.max(after) };
        self.dwindling = if here { None } else { self.dwindling.or(Some(now())) };
        let saved = match (changed, before, after) {
            (true, 1, 0) => self.record.alone(self.most, self.dwindling.unwrap_or_else(now)),
            (true, 0, 1) => self.record.together(now()),
            _ => return,
        };
        if let Err(error) = saved {
            tracing::error!(%error, "the agent's record could not be saved");
        }
        self.config.own.record(self.record.record());
        self.report.isolation = self.record.record().isolation;
        self.publish().await;
    }

    fn look(&self, tx: mpsc::Sender<Look>) {
        let Some(known) = self.known.clone() else { return };
        let eyes = self.eyes.clone();
        tokio::task::spawn_blocking(move || {
            let look = eyes.lock().unwrap_or_else(|p| p.into_inner()).look(&known);
            let _ = tx.blocking_send(look);
        });
    }

    async fn looked(&mut self, look: Look) {
        let unreadable = look.digest.services.values().any(|s| !s.unreadable.is_empty());
        let before = self.report.clone();
        self.report.digest = look.digest.root;
        self.report.checks =
            if unreadable && look.checks == CheckSummary::Pass { CheckSummary::Unknown } else { look.checks };
        self.report.amiss = amiss(&look.digest, &look.results);
        self.report.generation = self.generation();
        if self.report != before {
            self.publish().await;
        }
        let Look { digest, results, generation, began, took_ms, .. } = look;
        self.config.own.looked(Kept::new(began, took_ms, generation.0, &digest, results));
        self.config.worked.send_modify(|works| *works += 1);
    }

    /// True if there is another manifest than before.
    async fn news(&mut self, peers: Option<PeersReply>, manifest: Option<ManifestReply>) -> bool {
        if let Some(reply) = &peers {
            self.config.own.forget(&reply.removed);
            if self.config.keys.remove(reply.removed.iter()) {
                self.gossip.recheck().await;
            }
            self.config.own.told_gossip(reply.gossip);
            self.config.own.told_ca(reply.ca);
        }
        if let Some(reply) = peers
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
            let timing =
                Timing { rejoin_interval: Duration::from_millis(reply.rejoin_ms.max(500)), ..Timing::default() };
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
        self.config.own.told(&self.peers.peers, &self.peers.managers, self.known.as_ref());
        new
    }

    async fn publish(&self) {
        if let Err(error) = self.gossip.publish(self.report.clone()).await {
            tracing::warn!(%error, "the report could not be gossiped");
        }
    }

    /// The node was removed, or left: nobody is gossiped with, nothing is looked at, and nothing is deleted, until the daemon ends.
    async fn park(self, parted: Parted, mut shutdown: watch::Receiver<bool>) {
        let (why, dir) = (&parted.why, self.config.state_dir.display());
        if parted.left {
            tracing::warn!(
                "{why}; this daemon does nothing any more and has deleted nothing; next: systemctl disable --now remoor; or, if \
                 the machine is to be a node again, stop it, and remoor join with {dir} as it is"
            );
            if let Err(error) = atomic_write(&self.config.state_dir.join(LEFT), format!("{why}\n").as_bytes(), 0o600) {
                tracing::warn!(%error, "that it left could not be written down; the managers say it at the next start");
            }
        } else {
            tracing::error!(
                "{why}; this daemon does nothing any more and has deleted nothing; next: systemctl disable --now remoor; or, if \
                 the machine is to be a node again, move {dir} aside and remoor join"
            );
        }
        self.config.own.set_removed(parted);
        let Self { gossip, rejoin, mut record, .. } = self;
        drop(rejoin);
        gossip.leave().await;
        let _ = shutdown.wait_for(|stop| *stop).await; // a dropped sender is an end too
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

/// Without it all nodes ask and look at once, and are answered all the same.
fn chance() -> u16 {
    let mut dice = [0; 2];
    let _ = getrandom::fill(&mut dice);
    u16::from_le_bytes(dice)
}

/// Asks one manager after the other until one answers that still is one. Who is of an older epoch than this node is none. The first
/// `named` ones are by the word of managers, the others by their certificates alone, which one that was demoted keeps.
async fn ask(own: &Own, tls: &ClientTls, managers: &[Peer], named: usize, epoch: Epoch) -> Answer {
    let (mut why, mut told) = (None, None);
    for (at, manager) in managers.iter().enumerate() {
        let client = Client::tls(manager.api_addr.clone(), tls, Some(manager.id)).within(ASK_TIMEOUT);
        match client.get::<PeersReply>("/agent/v1/peers").await {
            Ok(peers) if peers.epoch != Epoch(0) && peers.epoch < epoch => {
                let (name, theirs) = (&manager.name, peers.epoch);
                why.get_or_insert(Err(format!("{name} is of epoch {theirs}, this node is of {epoch}")));
            }
            Ok(peers) => {
                let manifest = client.get::<ManifestReply>("/agent/v1/manifest").await;
                if matches!(&manifest, Err(error) if error.code() == Some("not-found")) {
                    // One that was a manager: what it knows counts where nobody else answers.
                    told.get_or_insert(peers);
                    why.get_or_insert(Err(format!("{} is no manager any more", manager.name)));
                    continue;
                }
                let manifest = manifest.map_err(|error| tracing::debug!(%error, "no manifest")).ok();
                return Answer { by: Some(Ok(manager.name.clone())), peers: Some(peers), manifest, removed: None };
            }
            // Only a manager of this cluster is believed: the connection proves who answers.
            Err(ApiError::Status { code, message, details, .. })
                if code == Code::NodeRemoved.as_str() && at < named =>
            {
                let removed = Some(Parted { why: message, left: details["left"] == true });
                return Answer { by: None, peers: None, manifest: None, removed };
            }
            Err(error) => {
                if error.code() == Some(Code::CredentialExpired.as_str()) {
                    own.told_refused();
                }
                tracing::debug!(manager = %manager.name, %error, "a manager does not answer");
                why.get_or_insert(Err(format!("{}: {error}", manager.name)));
            }
        }
    }
    Answer { by: why, peers: told, manifest: None, removed: None }
}
