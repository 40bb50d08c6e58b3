//! Starting, joining the parts, ending.

use super::address;
use super::admin::random_hex;
use super::layout::{Layout, NodeConfig};
use super::pages::{self, Loaded, Pace};
use super::scrape;
use super::ssh_key;
use super::transport::TlsTransport;
use crate::agent::{self, AgentConfig, AgentTask, KeyBook, Metrics, Own, OwnId, PeerBook, RecordKeeper};
use crate::disk::{BlobStore, DataDir, DiskError, Identity};
use crate::gossip::{self, Gossip, GossipError, MemberEvent, RejoinLoop};
use crate::manager::api::{self, JoinDesk, JoinParts};
use crate::manager::{ManagerTask, Peers, Shared, Startup, Timing, wall};
use crate::model::{Inventory, RaftId, Report};
use crate::raft::{News, Raft, RaftConfig, RaftError};
use crate::rpc::ca::ClusterCa;
use crate::rpc::client::Client;
use crate::rpc::identity::{Credentials, IdentityError, certificate_not_after};
use crate::rpc::join::Peer;
use crate::rpc::server::Limits;
use crate::rpc::tls::{ClientTls, ServerTls};
use crate::rpc::token::Secret;
use crate::rpc::unix;
use crate::ssh::{Build, Launch, Remote, RemoteConfig, SshError};
use crate::telemetry::Registry;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// What the managers' secret for digest keys is derived by. Another one makes every recorded digest of a secret file another.
const DIGEST_SECRET: &str = "remoor digest secret 1";
/// A daemon that is told to end has this long.
const END_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub struct RunOptions {
    pub dir: PathBuf,
    pub socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("the data directory can't be used")]
    Disk(#[from] DiskError),
    #[error("{dir} has no identity yet; next: remoor init, or remoor join", dir = .0.display())]
    NoIdentity(PathBuf),
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    NodeFile(String),
    #[error("keys and certificates can't be used")]
    Identity(#[from] IdentityError),
    #[error("gossip could not be started")]
    Gossip(#[from] GossipError),
    #[error("Raft could not be started")]
    Raft(#[from] RaftError),
    #[error("{what} can't be listened on")]
    Listen { what: String, source: std::io::Error },
    #[error("the local socket can't be used")]
    Socket(#[from] unix::SocketError),
    #[error("no manager hands out the cluster's CA yet")]
    NoCa,
    #[error("Raft stopped by itself; the daemon ends so that it is started anew")]
    RaftStopped,
    #[error("this node's identity is in use at {0}: a copied data directory or disk")]
    CopiedIdentity(std::net::SocketAddr),
    #[error("signals can't be caught")]
    Signals(#[source] std::io::Error),
}

impl DaemonError {
    /// A file of the data directory is not what was written, and nothing can do without it. Not a disk that is full or fails,
    /// nor rights that are missing: what is in the file may be whole.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Disk(e) | Self::Raft(RaftError::Disk(e)) => e.is_damage(),
            Self::Raft(e) => matches!(e, RaftError::Corrupt { .. }),
            Self::Identity(e) => matches!(e, IdentityError::Damaged { .. } | IdentityError::Malformed { .. }),
            _ => false,
        }
    }
}

/// Runs until SIGTERM or SIGINT, then says goodbye. `registry` may count already; it is what the metrics show.
pub async fn run(options: &RunOptions, registry: Registry) -> Result<(), DaemonError> {
    let layout = Layout(options.dir.clone());
    let data = DataDir::open(&options.dir)?;
    let agent_lock = data.agent_lock()?;
    let mut identity = data.identity()?.ok_or_else(|| DaemonError::NoIdentity(options.dir.clone()))?;
    let credentials = Credentials::load(&options.dir)?.ok_or_else(|| DaemonError::NoIdentity(options.dir.clone()))?;
    let written = NodeConfig::load(&options.dir).map_err(DaemonError::NodeFile)?;
    super::half_made::end(&options.dir)?;
    begin_log(&data, &layout, &mut identity)?;
    let own_address = written.advertise;
    let config = address::at_start(written, &layout).await;
    let client_tls = ClientTls::member(&credentials.tls())?;
    let peers = Arc::new(Peers::new(client_tls.clone()));
    let (stop, stopped) = watch::channel(false);
    keep_own_binary(&layout);

    let keys = KeyBook::default();
    let saved = PeerBook::load(layout.peers())?;
    keys.set(saved.peers.iter().map(|p| (&p.name, p.public_key.as_str())));
    let listener = address::listen(&config).await?;

    let record = begin_record(&layout)?;
    let report = Report {
        boot: record.record().boot.clone(),
        instance: record.record().instance.clone(),
        isolation: record.record().isolation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Report::default()
    };
    let is_manager = identity.raft.is_some();
    let timing = if is_manager { gossip::Timing::default() } else { gossip::Timing::of_worker() };
    let (gossip, events) = start_gossip(&credentials, &config, &keys, report.clone(), timing).await?;
    let rejoin = RejoinLoop::new(gossip.clone(), layout.addresses(), identity.name.clone(), gossip::Timing::default());
    rejoin.set_known(saved.addresses());
    let (now, address) = watch::channel(config.advertise);
    let follow = address::Follow {
        own: own_address,
        config: config.clone(),
        layout: layout.clone(),
        gossip: gossip.clone(),
        now,
        stopped: false,
    };
    tokio::spawn(follow.run(stopped.clone()));

    let (agent_tx, agent_rx) = mpsc::unbounded_channel();
    let (manager_tx, manager_rx) = mpsc::unbounded_channel();
    let (fatal_tx, mut fatal) = mpsc::channel(1);
    tokio::spawn(fan_out(events, agent_tx, is_manager.then_some(manager_tx), fatal_tx.clone()));

    let own = Own::new(OwnId {
        id: identity.node,
        name: identity.name.clone(),
        cluster: identity.cluster.clone(),
        epoch: identity.epoch,
        manager: is_manager,
        dir: options.dir.clone(),
    });
    let metrics = Metrics::new(registry.clone(), own.clone());
    let scraped = listen_metrics(&config).await?;
    let agent_config = AgentConfig {
        name: identity.name.clone(),
        state_dir: options.dir.clone(),
        tls: client_tls,
        keys: keys.clone(),
        own: own.clone(),
        worked: watch::Sender::new(0),
    };
    if !is_manager {
        rest(agent_config.worked.subscribe());
    }
    let managers = saved.managers.clone();
    let agent = tokio::spawn(
        AgentTask::new(agent_config, saved, gossip.clone(), rejoin, record, report).run(agent_rx, stopped.clone()),
    );

    let agent_routes = agent::routes(own.clone(), metrics.clone(), wall);
    let manager = match identity.raft {
        Some(raft) => {
            let (identity, credentials) = (&identity, &credentials);
            let parts = Parts { layout: &layout, identity, credentials, peers, managers, raft, counts: registry };
            let socket = (options.socket.as_path(), agent_routes);
            Some(
                parts
                    .start((listener, &config, address), manager_rx, socket, &keys, &gossip, stopped.clone(), fatal_tx)
                    .await?,
            )
        }
        None => {
            super::expiry::log(&identity.name, certificate_not_after(&credentials.cert_pem)?, stopped.clone());
            let router = agent::worker(own, metrics.clone(), wall);
            serve_socket(&options.socket, router, stopped.clone()).await?;
            None
        }
    };
    if let Some(listener) = scraped {
        let shared = manager.as_ref().map(|m| m.shared.clone());
        let text = move || metrics.render(wall()) + &shared.as_ref().map(|s| api::metrics(s)).unwrap_or_default();
        tokio::spawn(scrape::serve(listener, Arc::new(text), ended(stopped.clone())));
    }
    tracing::info!(node = %identity.name, cluster = %identity.cluster, manager = is_manager, "up");

    let ended = wait_for_end(&mut fatal).await;
    let _ = stop.send(true);
    let ending = async {
        let _ = agent.await;
        drop(agent_lock);
        if let Some(manager) = manager {
            let _ = manager.task.await;
            manager.raft.shutdown().await;
        }
    };
    if tokio::time::timeout(END_MAX, ending).await.is_err() {
        tracing::warn!("ending took too long; stopped without waiting further");
    }
    drop(data);
    ended
}

/// An agent alone takes little room between looks and questions; a manager uses most of the program all the time.
fn rest(worked: watch::Receiver<u64>) {
    match Loaded::now() {
        Ok(loaded) => drop(tokio::spawn(pages::rest(Pace::default(), worked, move || loaded.give_back()))),
        Err(error) => tracing::info!(%error, "the pages of the program stay resident"),
    }
}

async fn wait_for_end(fatal: &mut mpsc::Receiver<DaemonError>) -> Result<(), DaemonError> {
    let mut term = signal(SignalKind::terminate()).map_err(DaemonError::Signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(DaemonError::Signals)?;
    tokio::select! {
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
        Some(error) = fatal.recv() => Err(error),
    }
}

async fn listen_metrics(config: &NodeConfig) -> Result<Option<TcpListener>, DaemonError> {
    let Some(addr) = config.metrics else { return Ok(None) };
    let listener = TcpListener::bind(addr).await;
    listener.map(Some).map_err(|source| DaemonError::Listen { what: format!("{addr} (metrics)"), source })
}

async fn serve_socket(
    path: &std::path::Path,
    router: axum::Router,
    stopped: watch::Receiver<bool>,
) -> Result<(), DaemonError> {
    if let Some(parent) = path.parent() {
        let _ = std::fs::create_dir_all(parent); // bind says what is wrong
    }
    let socket = unix::Socket::bind(path).await?;
    tokio::spawn(unix::serve_unix(socket, router, Limits::default(), ended(stopped)));
    Ok(())
}

/// Where a daemon that panics says why.
pub fn last_words(dir: &std::path::Path) -> std::path::PathBuf {
    dir.join(crate::agent::LAST_WORDS)
}

fn begin_record(layout: &Layout) -> Result<RecordKeeper, DaemonError> {
    let boot = crate::disk::boot_id()?;
    let instance = random_hex(8).map_err(|e| DaemonError::Config(e.to_string()))?;
    Ok(RecordKeeper::begin(layout.0.join("agent.json"), boot, instance.into(), wall())?)
}

async fn start_gossip(
    credentials: &Credentials,
    config: &NodeConfig,
    keys: &KeyBook,
    report: Report,
    timing: gossip::Timing,
) -> Result<(Gossip, mpsc::UnboundedReceiver<MemberEvent>), DaemonError> {
    let keys = keys.clone();
    let gossip_config = gossip::Config {
        cluster: credentials.cluster.clone(),
        name: credentials.name.clone(),
        bind: config.gossip_bind(),
        advertise: config.gossip(),
        key: credentials.gossip_key.0,
        signer: credentials.key()?.signing_key().clone(),
        verify: Arc::new(move |name| keys.look_up(name)),
        timing,
    };
    Ok(gossip::start(gossip_config, report).await?)
}

/// Each consumer gets every event, in order.
async fn fan_out(
    mut events: mpsc::UnboundedReceiver<MemberEvent>,
    agent: mpsc::UnboundedSender<MemberEvent>,
    manager: Option<mpsc::UnboundedSender<MemberEvent>>,
    fatal: mpsc::Sender<DaemonError>,
) {
    while let Some(event) = events.recv().await {
        if let MemberEvent::SignedElsewhere { addr } = &event {
            let _ = fatal.try_send(DaemonError::CopiedIdentity(*addr));
        }
        if let Some(manager) = &manager {
            let _ = manager.send(event.clone());
        }
        let _ = agent.send(event);
    }
}

/// The executor is found under the hash of its content: a manager of the same version need not upload it.
fn keep_own_binary(layout: &Layout) {
    let layout = layout.clone();
    std::thread::spawn(move || {
        if let Err(error) = crate::ssh::keep_binary(&layout.0.join("bin")) {
            tracing::warn!(%error, "the own binary could not be kept for the executor; managers upload it");
        }
    });
}

/// Before anything is started: a manager whose log is gone may not vote again (DESIGN section 4). That the log was begun is
/// written down after the log is on disk and before the first vote, so no crash in between makes a false alarm.
fn begin_log(data: &DataDir, layout: &Layout, identity: &mut Identity) -> Result<(), DaemonError> {
    let Some(raft) = identity.raft else { return Ok(()) };
    // The CA is fetched once Raft runs, so it tells the same of a directory of before the field.
    let begun = identity.log_begun || layout.ca().exists();
    crate::raft::begin_log(&raft_config(layout, identity, raft), begun)?;
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
        timing: crate::raft::Timing::default(),
    }
}

/// How this manager logs in: its own program is what runs on the nodes.
fn remote(layout: &Layout) -> Result<Remote, SshError> {
    let local = |e: std::io::Error| SshError::Local(e.to_string());
    crate::ssh::clean_control_dir(&layout.ssh()).map_err(local)?;
    Remote::new(RemoteConfig {
        control_dir: layout.ssh(),
        builds: vec![Build::own().map_err(local)?],
        launch: Launch::Upload,
        state_dir: crate::exec::STATE_DIR.to_owned(),
        arguments: ["exec", "-"].map(str::to_owned).to_vec(),
    })
}

struct Parts<'a> {
    layout: &'a Layout,
    identity: &'a Identity,
    credentials: &'a Credentials,
    peers: Arc<Peers>,
    /// As they were known at the start.
    managers: Vec<Peer>,
    raft: RaftId,
    counts: Registry,
}

struct ManagerParts {
    task: tokio::task::JoinHandle<()>,
    raft: Raft<Inventory>,
    shared: Arc<Shared>,
}

impl Parts<'_> {
    #[allow(clippy::too_many_arguments, reason = "the one place where all parts meet")]
    async fn start(
        self,
        (listener, config, address): (TcpListener, &NodeConfig, watch::Receiver<IpAddr>),
        events: mpsc::UnboundedReceiver<MemberEvent>,
        (socket, agent_routes): (&std::path::Path, axum::Router),
        keys: &KeyBook,
        gossip: &Gossip,
        stopped: watch::Receiver<bool>,
        fatal: mpsc::Sender<DaemonError>,
    ) -> Result<ManagerParts, DaemonError> {
        let (raft, applied) = self.start_raft().await?;
        let ca = self.ca().await?;
        std::fs::create_dir_all(self.layout.runs())
            .map_err(|source| DaemonError::Listen { what: self.layout.runs().display().to_string(), source })?;
        let remote = remote(self.layout).map_err(|e| DaemonError::Config(e.to_string()))?;
        let shared = Arc::new(Shared::new(Startup {
            me: self.identity.name.clone(),
            id: self.identity.node,
            cluster: self.identity.cluster.clone(),
            raft: raft.clone(),
            blobs: Arc::new(BlobStore::new(&self.layout.blobs())?),
            remote,
            peers: self.peers.clone(),
            ssh_key_file: self.layout.ssh_key(),
            secret: ca.derived(DIGEST_SECRET)?,
            runs: self.layout.runs(),
            sponsors: self.managers.iter().map(|m| m.id).collect(),
            timing: Timing::default(),
            counts: self.counts.clone(),
        }));
        ssh_key::take(&shared, self.managers.clone(), self.credentials, stopped.clone())?;
        let ends = certificate_not_after(&self.credentials.cert_pem)?;
        shared.certificates.seen(self.identity.node, ends);
        let told = shared.clone();
        super::expiry::tell(&self.identity.name, ends, stopped.clone(), move || told.tell_of_certificates(wall()));
        let desk =
            JoinDesk::new(JoinParts { shared: shared.clone(), ca, gossip_key: self.credentials.gossip_key.clone() });
        let router = api::router(shared.clone(), Arc::new(desk));
        let tls = ServerTls::new(&self.credentials.tls())?;
        let served = (tls, router.clone());
        tokio::spawn(address::serve(listener, config.clone(), address, served, stopped.clone()));
        serve_socket(socket, router.merge(agent_routes), stopped.clone()).await?;
        tokio::spawn(follow_keys(raft.clone(), keys.clone(), gossip.clone()));
        tokio::spawn(guard(raft.clone(), fatal));
        let task = tokio::spawn(ManagerTask::new(shared.clone()).run(events, applied, stopped));
        Ok(ManagerParts { task, raft, shared })
    }

    async fn start_raft(&self) -> Result<(Raft<Inventory>, mpsc::UnboundedReceiver<News<Inventory>>), DaemonError> {
        let config = raft_config(self.layout, self.identity, self.raft);
        Ok(Raft::start(config, Arc::new(TlsTransport(self.peers.clone()))).await?)
    }

    /// From disk, or from another manager over mTLS: only managers are given it.
    async fn ca(&self) -> Result<ClusterCa, DaemonError> {
        let managers = &self.managers;
        match ClusterCa::load(&self.layout.ca()) {
            Ok(ca) => return Ok(ca),
            Err(error) if !managers.iter().any(|m| m.id != self.credentials.node) => return Err(error.into()),
            Err(error) if self.layout.ca().exists() => {
                tracing::warn!(%error, "the CA can't be read, and is fetched from another manager");
            }
            Err(_) => {}
        }
        let tls = ClientTls::member(&self.credentials.tls())?;
        for _ in 0..30 {
            for manager in managers {
                let client = Client::tls(manager.api_addr.clone(), &tls, Some(manager.id));
                if let Ok(reply) = client.get::<api::CaReply>("/manager/v1/ca").await {
                    let ca = ClusterCa::from_pem(&self.credentials.ca_pem, &Secret::from(reply.key_pem))?;
                    ca.save(&self.layout.ca())?;
                    return Ok(ca);
                }
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Err(DaemonError::NoCa)
    }
}

async fn ended(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Gossip believes the keys of the applied inventory.
async fn follow_keys(raft: Raft<Inventory>, keys: KeyBook, gossip: Gossip) {
    let mut state = raft.state();
    loop {
        let inventory = state.borrow_and_update().clone();
        if keys.set(inventory.nodes.values().map(|n| (n.name(), n.spec.public_key.as_str()))) {
            gossip.recheck().await;
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

async fn guard(raft: Raft<Inventory>, fatal: mpsc::Sender<DaemonError>) {
    let mut status = raft.status();
    if status.wait_for(|s| !s.running).await.is_ok() {
        let _ = fatal.send(DaemonError::RaftStopped).await;
    }
}
