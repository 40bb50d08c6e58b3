//! The manager service of a daemon: Raft, the engine's loop and the API. The service has its own
//! threads. `manager_lifecycle.rs` starts, stops and archives it.

use super::keyring::Keyring;
use super::layout::Layout;
use super::run::DaemonError;
use super::ssh_key;
use super::transport::{PermanentEnd, Retirement, TlsTransport, end_of};
use crate::agent::AgentState;
use crate::manager::api::{self, JoinConfig, JoinService};
use crate::manager::backup::Keeper;
use crate::manager::{
    Authorities, CaPair, ManagerContext, ManagerIdentity, ManagerTask, ManagerTiming, Peers, Sponsors, Startup,
    authority, gossip_key, wall,
};
use crate::telemetry::Registry;
use axum::Router;
use remoor_cluster::gossip::MemberEvent;
use remoor_cluster::incarnation::{NamedManager, SenderVerdict, judge_sender};
use remoor_cluster::raft::{CLAIM, News, Raft, RaftConfig};
use remoor_cluster::rpc::ca::ClusterCa;
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::clocks::PeerClocks;
use remoor_cluster::rpc::join::SKEW_MAX_MS;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::wire::Code;
use remoor_exec::ssh::{Build, Launch, Remote, RemoteConfig, SshError};
use remoor_host::disk::{BlobStore, DataDir, Identity};
use remoor_model::{Inventory, NodeId, RaftId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// Context string from which the managers' secret for digest keys is derived.
const DIGEST_SECRET: &str = "remoor digest secret 1";
/// Number of attempts to fetch the CA, one second apart. Each attempt asks all managers.
const CA_TRIES: u32 = 5;
/// Timeout of each request for the CA to another manager.
const CA_WITHIN: Duration = Duration::from_secs(5);
/// Maximum time for all attempts to fetch the CA. During this time, no other order to run the
/// manager service is accepted.
const CA_MAX: Duration = Duration::from_secs(30);
/// Time without a leader after which a manager asks the others whether its Raft id is still valid.
/// It is well above the heartbeat interval. A removed learner, or a voter that knows of its
/// removal, sends no other messages, so it learns of the retirement only by this question.
const UNLED: Duration = Duration::from_secs(3);
/// Interval of the questions whether this manager's Raft id is still valid.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// Interval at which this manager reports its log position to each other manager, as long as there
/// is a leader.
const TELL_EVERY: Duration = Duration::from_secs(10);
const CLAIM_WITHIN: Duration = Duration::from_secs(2);
/// Minimum interval between two reactions to a manager that rejects this node's certificate. A
/// manager with a wrong clock would reject the certificate forever.
const REFUSED_EVERY: Duration = Duration::from_secs(300);
/// Timeout of the question at the start whether the other managers accept this data directory. It
/// is short, because managers that start at the same time do not answer.
const START_ASK_WITHIN: Duration = Duration::from_secs(1);

/// A channel for gossip's events. It first receives all current members, then every change.
pub type MemberEventSender = mpsc::UnboundedSender<MemberEvent>;

/// The daemon's resources for starting the service.
pub struct Parts {
    pub layout: Layout,
    pub identity: Identity,
    pub raft: RaftId,
    /// The tokio runtime on which Raft runs.
    pub raft_thread: tokio::runtime::Handle,
    pub keyring: Keyring,
    /// Validity of the certificates that this manager issues.
    pub certificate_life: Duration,
    /// Whether machines without the secret of a token may ask an operator to accept them.
    pub join_requests: bool,
    pub sponsors: Sponsors,
    pub counts: Registry,
    pub ears: mpsc::Sender<MemberEventSender>,
    pub retired: Retirement,
    pub stopped: watch::Receiver<bool>,
    pub fatal: mpsc::Sender<DaemonError>,
}

/// A running manager service.
pub struct ManagerService {
    pub task: tokio::task::JoinHandle<()>,
    pub raft: Raft<Inventory>,
    pub shared: Arc<ManagerContext>,
    pub router: Router,
    /// The service that issues certificates.
    pub desk: Arc<JoinService>,
}

impl Parts {
    /// Starts the service. After an error nothing of it runs, except tasks that end with its
    /// threads.
    pub async fn start(self) -> Result<ManagerService, DaemonError> {
        let peers = Arc::new(Peers::new(self.keyring.client()));
        let transport = TlsTransport { peers: peers.clone(), retired: self.retired.clone() };
        let config = raft_config(&self.layout, &self.identity, self.raft);
        let (tls, me, sponsors) = (self.keyring.client(), self.identity.node, self.sponsors.clone());
        let by = tls.clone();
        let ask = async move |body: Vec<u8>| ask_at_start(&sponsors, me, &by, body).await;
        let raft = self.raft_thread.spawn(Raft::start_asking(config, Arc::new(transport), ask)).await;
        let (raft, applied) = raft.map_err(|e| DaemonError::Config(format!("the manager service ended: {e}")))??;
        let (sponsors, ring, clocks) = (self.sponsors.clone(), self.keyring.clone(), peers.clocks().clone());
        tokio::spawn(claim(raft.clone(), sponsors, me, ring, clocks, self.retired.clone()));
        tokio::spawn(super::applied_watermark::keep(
            raft.clone(),
            self.layout.clone(),
            self.raft,
            self.stopped.clone(),
        ));
        tokio::spawn(watch_own(raft.clone(), self.identity.node, self.raft, self.retired.clone()));
        let stop = raft.clone();
        let started = self.start_manager(raft, applied, peers).await;
        if started.is_err() {
            stop.shutdown().await;
        }
        started
    }

    async fn start_manager(
        self,
        raft: Raft<Inventory>,
        applied: mpsc::UnboundedReceiver<News<Inventory>>,
        peers: Arc<Peers>,
    ) -> Result<ManagerService, DaemonError> {
        let mut retired = self.retired.follow();
        let cas = tokio::select! {
            cas = tokio::time::timeout(CA_MAX, self.cas()) => cas.map_err(|_| DaemonError::NoCa)??,
            Ok(end) = retired.wait_for(Option::is_some) => {
                return Err(end.clone().unwrap_or(PermanentEnd::Retired).into());
            }
        };
        std::fs::create_dir_all(self.layout.runs())
            .map_err(|source| DaemonError::Listen { what: self.layout.runs().display().to_string(), source })?;
        let remote = remote(&self.layout).map_err(|e| DaemonError::Config(e.to_string()))?;
        let shared = Arc::new(ManagerContext::new(Startup {
            identity: ManagerIdentity {
                name: self.identity.name.clone(),
                node: self.identity.node,
                cluster: self.identity.cluster.clone(),
            },
            raft: raft.clone(),
            blobs: Arc::new(BlobStore::new(&self.layout.blobs())?),
            remote,
            peers,
            ssh_key_file: self.layout.ssh_key(),
            // The secret is always derived from the first CA, because a secret from another CA
            // would change every recorded digest of a secret file.
            secret: cas.first().derive_secret(DIGEST_SECRET)?,
            cas: Arc::new(cas),
            runs: self.layout.runs(),
            vaults: self.layout.vaults(),
            sponsors: self.sponsors.clone(),
            timing: ManagerTiming::default(),
            counts: self.counts.clone(),
        }));
        ssh_key::take(&shared, self.sponsors.peers(), self.keyring.client(), self.stopped.clone());
        shared.observed.certificates.record_expiry(self.identity.node, self.keyring.ends());
        let told = shared.clone();
        let tell = move || told.send_certificate_notices(wall());
        super::expiry::warn_on_manager(&self.identity.name, self.keyring.ends(), self.stopped.clone(), tell);
        let (ring, life) = (self.keyring.clone(), self.certificate_life);
        let held = Box::new(move || ring.gossip_keys());
        let join_requests = self.join_requests;
        let config = JoinConfig { shared: shared.clone(), held, certificate_validity: life, join_requests };
        let desk = Arc::new(JoinService::new(config));
        tokio::spawn(gossip_key::lead(shared.clone(), self.stopped.clone()));
        tokio::spawn(authority::lead(shared.clone(), self.stopped.clone()));
        tokio::spawn(authority::follow(shared.clone(), self.stopped.clone()));
        let keeper = Keeper::new(shared.clone(), &self.layout.0)?;
        tokio::spawn(keeper.clone().run(self.stopped.clone()));
        let router = api::router(desk.clone(), keeper);
        tokio::spawn(guard(raft.clone(), self.stopped.clone(), self.fatal));
        let (ear, events) = mpsc::unbounded_channel();
        if self.ears.send(ear).await.is_err() {
            tracing::error!("gossip ended before the manager service started");
        }
        let task = tokio::spawn(ManagerTask::new(shared.clone()).run(events, applied, self.stopped));
        Ok(ManagerService { task, raft, shared, router, desk })
    }

    /// Loads the CAs from disk, or fetches them from another manager over mTLS. Only managers
    /// receive them.
    async fn cas(&self) -> Result<Authorities, DaemonError> {
        let me = self.identity.node;
        let others = || self.sponsors.peers().into_iter().filter(move |m| m.id != me);
        match Authorities::load(&self.layout.ca()) {
            Ok(cas) => return Ok(cas),
            Err(error) if others().next().is_none() => {
                // `init` created the CA of the founder, so no other manager can send it.
                let own = self.raft == RaftId(1) || self.layout.ca().exists();
                return Err(if own { error.into() } else { DaemonError::NoCa });
            }
            Err(error) if self.layout.ca().exists() => {
                tracing::warn!(%error, "the CA can't be read; fetching it from another manager");
            }
            Err(_) => {}
        }
        let tls = self.keyring.client();
        for _ in 0..CA_TRIES {
            for manager in others() {
                let client = Client::tls(manager.api_addr.clone(), &tls, Some(manager.id)).with_timeout(CA_WITHIN);
                match client.get::<api::CaKeysReply>(authority::CA_KEYS_PATH).await {
                    Ok(reply) => {
                        let cas = match reply.cas.is_empty() {
                            true => vec![ClusterCa::from_pem(&self.keyring.now().ca_pem, &reply.key_pem)?],
                            false => reply.cas.iter().map(CaPair::open).collect::<Result<_, _>>()?,
                        };
                        return Ok(Authorities::take(&self.layout.ca(), cas)?);
                    }
                    Err(error) => tracing::debug!(from = %manager.name, %error, "the CA could not be fetched"),
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Err(DaemonError::NoCa)
    }
}

/// Checks the log before anything is started, because a manager whose log is gone must not vote
/// again (docs/design/design.md, section 4). A flag in the identity says that the log was begun.
/// The flag is written after the log is on disk and before the first vote. So a crash before the
/// flag is written does not look like a lost log. Blocks.
pub fn begin_log(data: &DataDir, layout: &Layout, identity: &mut Identity) -> Result<(), DaemonError> {
    let Some(raft) = identity.raft else { return Ok(()) };
    // The identity of an older version has no flag. The CA then proves that the log was begun,
    // because the CA is fetched only once Raft runs.
    let begun = identity.log_begun || layout.ca().exists();
    let config = raft_config(layout, identity, raft);
    remoor_cluster::raft::begin_log(&config, begun)?;
    super::applied_watermark::check(layout, identity, &config)?;
    if !identity.log_begun {
        identity.log_begun = true;
        data.store_identity(identity)?;
    }
    Ok(())
}

fn raft_config(layout: &Layout, identity: &Identity, raft: RaftId) -> RaftConfig {
    RaftConfig {
        dir: layout.raft(),
        id: raft,
        cluster: identity.cluster.clone(),
        epoch: identity.epoch,
        timing: remoor_cluster::raft::RaftTiming::default(),
    }
}

/// The SSH client of this manager. It uploads this program to the nodes as the executor.
fn remote(layout: &Layout) -> Result<Remote, SshError> {
    let local = |e: std::io::Error| SshError::Local(e.to_string());
    remoor_exec::ssh::clean_control_dir(&layout.ssh()).map_err(local)?;
    Remote::new(RemoteConfig {
        control_dir: layout.ssh(),
        builds: vec![Build::of_this_program().map_err(local)?],
        launch: Launch::Upload,
        state_dir: remoor_exec::STATE_DIR.to_owned(),
        arguments: ["exec", "-"].map(str::to_owned).to_vec(),
    })
}

/// Asks the other managers, before anything else starts, whether they accept this data directory.
/// Managers that do not answer now are asked again later by `claim`.
async fn ask_at_start(sponsors: &Sponsors, me: NodeId, tls: &ClientTls, body: Vec<u8>) -> Result<(), DaemonError> {
    let others = sponsors.peers().into_iter().filter(|m| m.id != me);
    let asked = others.map(|manager| {
        let client = Client::tls(manager.api_addr.clone(), tls, Some(manager.id)).with_timeout(START_ASK_WITHIN);
        let body = body.clone();
        async move { client.post_bytes(&format!("/raft/{CLAIM}"), body.into()).await.err() }
    });
    let said = futures_util::future::join_all(asked).await;
    match said.iter().flatten().find_map(end_of) {
        Some(end @ PermanentEnd::Stale(_)) => Err(end.into()),
        // A retired Raft id does not stop the start. The managers report the retirement again
        // later, and the whole service is archived then.
        _ => Ok(()),
    }
}

/// Regularly reports this member's log position to each manager, because the leader and the other
/// managers need it. While there is no leader, the same message asks whether this member's Raft id
/// is still valid. The managers are asked in turn. If always the same one were asked and it lagged
/// behind, it would always confirm the id.
///
/// The answers also serve to compare the clocks. If one of the two certificates is rejected, a
/// wrong clock may be the cause. The manager is then asked only for its time.
async fn claim(
    raft: Raft<Inventory>,
    sponsors: Sponsors,
    me: NodeId,
    keyring: Keyring,
    clocks: PeerClocks,
    retired: Retirement,
) {
    let tls = keyring.client();
    let mut refused: Option<Instant> = None;
    let mut status = raft.status();
    let mut next = 0;
    let mut met = BTreeMap::<NodeId, Instant>::new();
    loop {
        tokio::time::sleep(CLAIM_EVERY).await;
        let now = status.borrow_and_update().clone();
        if !now.running {
            return;
        }
        let mut managers = sponsors.peers();
        managers.retain(|m| m.id != me);
        let led = raft.time_without_leader() < UNLED && now.last_log.is_some();
        met.retain(|_, at| at.elapsed() < TELL_EVERY);
        if led || now.is_leader {
            managers.retain(|m| !met.contains_key(&m.id));
        }
        if managers.is_empty() {
            continue;
        }
        next = (next + 1) % managers.len();
        let manager = &managers[next];
        let Ok(body) = raft.claim(RaftId(0)) else { return };
        let client = Client::tls(manager.api_addr.clone(), &tls, Some(manager.id)).with_timeout(CLAIM_WITHIN);
        match client.comparing_clocks(&clocks).post_bytes(&format!("/raft/{CLAIM}"), body.into()).await {
            Ok(_) => drop(met.insert(manager.id, Instant::now())),
            Err(error) => {
                // The rejection may mean that another daemon has replaced this node at its address.
                // No manager can tell this node so until the node has a new certificate. So the
                // certificate is renewed.
                let lapsed = error.code() == Some(Code::CredentialExpired.as_str())
                    && clocks.difference_ms(manager.id, wall(), Instant::now()).is_none_or(is_small);
                if lapsed && refused.is_none_or(|at| at.elapsed() > REFUSED_EVERY) {
                    refused = Some(Instant::now());
                    keyring.mark_rejected();
                }
                if matches!(error, ApiError::Identity { .. })
                    && let Ok(tls) = keyring.client_ignoring_dates()
                {
                    let client = Client::tls(manager.api_addr.clone(), &tls, Some(manager.id));
                    // The answer is an error. Only the time in the answer is needed.
                    let _ = client.with_timeout(CLAIM_WITHIN).comparing_clocks(&clocks).get_bytes("/").await;
                }
                retired.evaluate_error(&error, manager.name.as_str());
            }
        }
    }
}

/// Whether two clocks with this difference judge a certificate in the same way.
fn is_small(difference_ms: i64) -> bool {
    difference_ms.unsigned_abs() <= SKEW_MAX_MS
}

/// Watches the applied state until this member's Raft id is retired. Other managers do not always
/// inform this member of the retirement. Examples are a removed voter, and a member whose directory
/// was used for another join.
async fn watch_own(raft: Raft<Inventory>, node: NodeId, id: RaftId, retired: Retirement) {
    let mut state = raft.state();
    let over = |inventory: &Arc<Inventory>| {
        judge_sender(inventory, node, id, NamedManager::default()) == SenderVerdict::Retired
    };
    if state.wait_for(over).await.is_ok() {
        retired.report_end(PermanentEnd::Retired, "the own log");
    }
}

/// Ends the daemon if Raft stops unexpectedly. A regular stop of the service is not an error.
async fn guard(raft: Raft<Inventory>, mut stopped: watch::Receiver<bool>, fatal: mpsc::Sender<DaemonError>) {
    let mut status = raft.status();
    let ended = tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => return,
        ended = status.wait_for(|s| !s.running) => ended.is_ok(),
    };
    if ended && !*stopped.borrow() {
        let _ = fatal.send(DaemonError::RaftStopped).await;
    }
}

/// Makes the agent of this manager ask for the list of managers whenever the list changes. If this
/// manager is demoted later, it can redirect callers to the managers of this list.
pub(super) async fn tell_agent(mut state: watch::Receiver<Arc<Inventory>>, own: AgentState) {
    let mut known: Vec<NodeId> = Vec::new();
    loop {
        let inventory = state.borrow_and_update().clone();
        let managers: Vec<NodeId> = inventory.nodes.values().filter(|n| n.manages()).map(|n| n.id).collect();
        if managers != known {
            known = managers;
            own.ask_soon();
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
