//! The daemon's start, the connections between its components, and its shutdown.

use super::address;
use super::admin::random_hex;
use super::archive;
use super::authority;
use super::copied_identity::CopiedIdentityProbe;
use super::epochs::{self, Epochs};
use super::gossip_key;
use super::keyring::Keyring;
use super::layout::{Layout, NodeConfig};
use super::manager_lifecycle::{ManagerLifecycle, ManagerResources};
use super::manager_service::{MemberEventSender, begin_log};
use super::rebuild::RebuildError;
use super::transport::PermanentEnd;
use super::trim_memory::{self, TrimSchedule};
use super::{node_keys, renewal, scrape};
use crate::agent::{self, AgentConfig, AgentState, AgentTask, KeyBook, Metrics, NodeIdentity, PeerBook, RecordKeeper};
use crate::manager::{api, wall};
use crate::telemetry::Registry;
use remoor_cluster::gossip::{self, Gossip, GossipError, Member, MemberEvent, RejoinLoop};
use remoor_cluster::raft::RaftError;
use remoor_cluster::rpc::identity::{Credentials, IdentityError};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::server::ServerLimits;
use remoor_cluster::rpc::unix;
use remoor_host::disk::{DataDir, DiskError, Identity, archived_logs};
use remoor_host::files::LoadedFiles;
use remoor_model::{Epoch, RaftId, Report};
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// Maximum time of the shutdown.
const END_MAX: Duration = Duration::from_secs(15);

#[derive(Debug, Clone)]
pub struct DaemonOptions {
    pub dir: PathBuf,
    pub socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("the data directory can't be used")]
    Disk(#[from] DiskError),
    #[error("{dir} has no identity yet; next: remoor init, or remoor join", dir = .0.display())]
    NoIdentity(PathBuf),
    #[error(
        "{dir}/credentials.json is missing, with the certificates of this node; next: put the file back; without a copy \
         of it, move {dir} away, copy its node.key into a new and empty {dir}, and run remoor join, which restores the \
         same node (a manager: first remoor demote it on another manager)", dir = .0.display()
    )]
    NoCredentials(PathBuf),
    #[error("{0}")]
    Config(String),
    #[error("{0}")]
    NodeFile(String),
    #[error("keys and certificates can't be used")]
    Identity(#[from] IdentityError),
    #[error("gossip could not be started")]
    Gossip(#[from] GossipError),
    #[error("a recovery that was interrupted can't be finished")]
    Rebuild(#[from] RebuildError),
    #[error("Raft could not be started")]
    Raft(#[from] RaftError),
    #[error("{what} can't be listened on")]
    Listen { what: String, source: std::io::Error },
    #[error("the local socket can't be used")]
    Socket(#[from] unix::SocketError),
    #[error("no manager has sent the cluster's CA yet")]
    NoCa,
    #[error("the manager service can't start again")]
    PermanentEnd(#[from] PermanentEnd),
    #[error("the threads of the manager service can't be started")]
    Threads(#[source] std::io::Error),
    #[error("Raft stopped unexpectedly; the daemon exits so that it is restarted")]
    RaftStopped,
    #[error(
        "this node's identity is in use at {0}: a copied data directory or disk; next: decide which copy to keep; on \
         the other machine, move the data directory away and run remoor join with a new name"
    )]
    CopiedIdentity(std::net::SocketAddr),
    #[error(
        "another daemon of this node, at {addr}, has a certificate of epoch {epoch}, which is newer than the one \
         here: the cluster was rebuilt there; next: systemctl disable --now remoor on this machine, and move this \
         data directory away"
    )]
    RebuiltElsewhere { addr: std::net::SocketAddr, epoch: Epoch },
    #[error("signals can't be caught")]
    Signals(#[source] std::io::Error),
}

impl DaemonError {
    /// Whether a required file of the data directory is damaged. A full or failing disk and missing
    /// permissions are not damage, because the file may be intact.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Disk(e) | Self::Raft(RaftError::Disk(e)) => e.is_damage(),
            Self::Raft(e) => matches!(e, RaftError::Corrupt { .. }),
            Self::Identity(e) => matches!(e, IdentityError::Damaged { .. } | IdentityError::Malformed { .. }),
            _ => false,
        }
    }
}

/// Runs the daemon until SIGTERM or SIGINT; it then leaves gossip cleanly. The metrics include the
/// counts that `registry` already contains.
pub async fn run(options: &DaemonOptions, registry: Registry) -> Result<(), DaemonError> {
    let data = DataDir::open(&options.dir)?;
    let (node, peers) = open_node(&options.dir, &data).await?;
    let (stop, stopped) = watch::channel(false);
    let (fatal_tx, mut fatal) = mpsc::channel(1);
    let ends = EndSignals { stopped, fatal: fatal_tx };
    keep_own_binary(&node.layout);
    warn_of_archives(&node.layout);
    let api = address::listen(&node.config).await?;
    let (membership, inputs) = start_membership(&node, &peers, &ends).await?;
    let agent = start_agent(&node, peers, &membership, inputs, registry.clone(), &ends).await?;
    let manage = start_manager_lifecycle(data, &node, &membership, &agent, registry, &ends).await?;
    spawn_background_tasks(&node, &membership, &agent.own, &manage, &ends);
    let listeners = Listeners { api, address: membership.address, metrics: agent.metrics_listener };
    serve(&options.socket, &node, listeners, agent.metrics, &manage, &ends).await?;
    let (name, cluster) = (&node.identity.name, &node.identity.cluster);
    tracing::info!(node = %name, cluster = %cluster, manager = agent.own.manages(), "up");

    let ended = wait_for_end(&mut fatal).await;
    shut_down(&ended, membership.gossip, &stop, agent.task, &manage).await;
    ended
}

/// The content of an opened data directory.
struct OpenNode {
    layout: Layout,
    identity: Identity,
    credentials: Credentials,
    keyring: Keyring,
    /// The node's address in `node.json`. If the machine does not have this address, `config`
    /// contains another one.
    own_address: IpAddr,
    config: NodeConfig,
    /// Validity of the certificates that this node issues as a manager.
    certificate_life: Duration,
    /// The missing log file of this manager. If it is set, no manager service is started.
    lost_log: Option<PathBuf>,
}

/// Two channels about the end of the daemon: one tells its tasks to stop, and on the other a task
/// reports a fatal error.
struct EndSignals {
    /// Every task stops once this value is true.
    stopped: watch::Receiver<bool>,
    /// A task sends an error here to end the daemon.
    fatal: mpsc::Sender<DaemonError>,
}

/// This node as a member of gossip.
struct Membership {
    gossip: Gossip,
    keys: KeyBook,
    /// The current address of this node.
    address: watch::Receiver<IpAddr>,
    /// A starting manager service sends a channel here, on which it then receives gossip's events.
    ears: mpsc::Sender<MemberEventSender>,
}

/// Values that the start of gossip returns and that the agent takes over.
struct AgentInputs {
    record: RecordKeeper,
    report: Report,
    rejoin: RejoinLoop,
    events: mpsc::UnboundedReceiver<MemberEvent>,
    address_follower: address::AddressFollower,
}

/// The running agent.
struct RunningAgent {
    own: AgentState,
    task: tokio::task::JoinHandle<()>,
    metrics: Metrics,
    metrics_listener: Option<TcpListener>,
    /// The peers and managers that were on disk before this start.
    saved: (Vec<PeerInfo>, Vec<PeerInfo>),
}

/// The sockets on which the daemon listens.
struct Listeners {
    api: TcpListener,
    /// The current address of the node. After a change, the API listens on the new address.
    address: watch::Receiver<IpAddr>,
    metrics: Option<TcpListener>,
}

/// Completes an interrupted command in the data directory, then loads the directory. Also returns
/// the peers that were saved on disk.
async fn open_node(dir: &Path, data: &DataDir) -> Result<(OpenNode, PeerBook), DaemonError> {
    let layout = Layout(dir.to_owned());
    if let Some(founded) = super::rebuild::finish(data)? {
        tracing::warn!(epoch = %founded.epoch, "a recovery that was interrupted was finished");
    }
    let mut identity = data.identity()?.ok_or_else(|| DaemonError::NoIdentity(dir.to_owned()))?;
    let credentials = Credentials::load(dir)?.ok_or_else(|| DaemonError::NoCredentials(dir.to_owned()))?;
    let written = NodeConfig::load(dir).map_err(DaemonError::NodeFile)?;
    super::incomplete_init::end(dir)?;
    if identity.raft.is_none() {
        archive_leftovers(&layout, identity.retired);
    }
    let peers = PeerBook::load(layout.peers())?;
    let lost_log = match begin_log(data, &layout, &mut identity) {
        // This manager runs without its log. If there are other managers, they remove its vote and
        // later give it a new one.
        Err(DaemonError::Raft(RaftError::Gone { file, .. }))
            if peers.managers.iter().any(|m| m.id != identity.node) =>
        {
            Some(file)
        }
        begun => begun.map(|()| None)?,
    };
    let (own_address, certificate_life) = (written.advertise, written.certificate_life());
    let config = address::at_start(written, &layout).await;
    let keyring = Keyring::new(dir.to_owned(), credentials.clone())?;
    let node = OpenNode { layout, identity, credentials, keyring, own_address, config, certificate_life, lost_log };
    Ok((node, peers))
}

async fn start_membership(
    node: &OpenNode,
    peers: &PeerBook,
    ends: &EndSignals,
) -> Result<(Membership, AgentInputs), DaemonError> {
    let OpenNode { layout, identity, credentials, config, .. } = node;
    let keys = KeyBook::default();
    keys.set(peers.peers.iter().map(|p| (&p.name, p.public_key.as_str())));
    let record = begin_record(layout)?;
    let report = Report {
        boot: record.record().boot.clone(),
        instance: record.record().instance.clone(),
        isolation: record.record().isolation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        epoch: node.keyring.certificate_epoch(),
        api: config.api().port(),
        sequence: u64::from(record.record().starts) << 32,
        ..Report::default()
    };
    let is_manager = identity.raft.is_some();
    let timing = if is_manager { gossip::GossipTiming::default() } else { gossip::GossipTiming::for_worker() };
    let (gossip, events) = start_gossip(credentials, config, &keys, report.clone(), timing).await?;
    let others: Vec<_> = credentials.gossip_others.iter().map(|key| key.0).collect();
    gossip.set_keys(credentials.gossip_key.0, &others);
    let rejoin =
        RejoinLoop::new(gossip.clone(), layout.addresses(), identity.name.clone(), gossip::GossipTiming::default());
    rejoin.set_known(peers.addresses());
    let (now, address) = watch::channel(config.advertise);
    let address_follower = address::AddressFollower {
        own: node.own_address,
        config: config.clone(),
        layout: layout.clone(),
        gossip: gossip.clone(),
        now,
        stopped: false,
    };
    let (agent_tx, agent_rx) = mpsc::unbounded_channel();
    let (ears, ear) = mpsc::channel(1);
    let key = hex::encode(credentials.key()?.public());
    let probe = CopiedIdentityProbe::new(node.keyring.client(), (identity.node, key), &report, ends.fatal.clone());
    tokio::spawn(fan_out(events, gossip.clone(), agent_tx, ear, probe));
    let inputs = AgentInputs { record, report, rejoin, events: agent_rx, address_follower };
    Ok((Membership { gossip, keys, address, ears }, inputs))
}

async fn start_agent(
    node: &OpenNode,
    peers: PeerBook,
    membership: &Membership,
    inputs: AgentInputs,
    registry: Registry,
    ends: &EndSignals,
) -> Result<RunningAgent, DaemonError> {
    let (identity, dir, stopped) = (&node.identity, &node.layout.0, &ends.stopped);
    let own = AgentState::new(NodeIdentity {
        id: identity.node,
        name: identity.name.clone(),
        cluster: identity.cluster.clone(),
        epoch: identity.epoch,
        dir: dir.clone(),
    });
    own.set_certified(node.keyring.certificate_epoch());
    tokio::spawn(follow_address(inputs.address_follower, own.clone(), stopped.clone()));
    let metrics = Metrics::new(registry, own.clone()).with_gossip(membership.gossip.clone());
    let metrics_listener = listen_metrics(&node.config).await?;
    let config = AgentConfig {
        name: identity.name.clone(),
        state_dir: dir.clone(),
        tls: node.keyring.client(),
        keys: membership.keys.clone(),
        own: own.clone(),
        worked: watch::Sender::new(0),
    };
    start_memory_trimming(config.worked.subscribe(), own.clone());
    let saved = (peers.peers.clone(), peers.managers.clone());
    let AgentInputs { record, report, rejoin, events, .. } = inputs;
    let task = AgentTask::new(config, peers, membership.gossip.clone(), rejoin, record, report);
    let task = tokio::spawn(task.run(events, stopped.clone()));
    Ok(RunningAgent { own, task, metrics, metrics_listener, saved })
}

/// Starts the manager service if this node is a manager.
async fn start_manager_lifecycle(
    data: DataDir,
    node: &OpenNode,
    membership: &Membership,
    agent: &RunningAgent,
    registry: Registry,
    ends: &EndSignals,
) -> Result<ManagerLifecycle, DaemonError> {
    let OpenNode { identity, keyring, .. } = node;
    let RunningAgent { own, metrics, saved: (peers, managers), .. } = agent;
    let leaving = agent::LeaveService { own: own.clone(), tls: keyring.client() }.routes();
    // The check for a newer epoch comes before the start of the manager service. Otherwise a
    // manager of an older epoch could make decisions that are lost once it hears of the newer
    // epoch.
    if identity.raft.is_some()
        && let Some(epoch) = epochs::newer_epoch_at_start(peers, managers, &keyring.client(), identity.epoch).await
    {
        own.learn_epoch(epoch);
    }
    let claims = Epochs {
        gossip: membership.gossip.clone(),
        own: own.clone(),
        tls: keyring.client(),
        key: hex::encode(node.credentials.key()?.public()),
        fatal: ends.fatal.clone(),
    };
    tokio::spawn(claims.follow(ends.stopped.clone()));
    let resources = ManagerResources {
        data,
        layout: node.layout.clone(),
        keyring: keyring.clone(),
        certificate_life: node.certificate_life,
        join_requests: node.config.join_requests.unwrap_or(true),
        own: own.clone(),
        counts: registry,
        ears: membership.ears.clone(),
        fatal: ends.fatal.clone(),
        agent_routes: agent::routes(own.clone(), metrics.clone(), wall).merge(leaving.clone()),
        worker_routes: agent::worker(own.clone(), metrics.clone(), wall).merge(leaving),
    };
    let manage = ManagerLifecycle::new(resources, identity.clone());
    match &node.lost_log {
        None => manage.begin().await?,
        Some(file) => manage.begin_without(file, identity),
    }
    Ok(manage)
}

/// Starts the tasks that need both the agent and the manager lifecycle.
fn spawn_background_tasks(
    node: &OpenNode,
    membership: &Membership,
    own: &AgentState,
    manage: &ManagerLifecycle,
    ends: &EndSignals,
) {
    let (name, keyring, stopped) = (&node.identity.name, &node.keyring, &ends.stopped);
    let Membership { gossip, keys, .. } = membership;
    tokio::spawn(gossip_key::follow(keyring.clone(), gossip.clone(), own.clone(), stopped.clone()));
    tokio::spawn(node_keys::follow(manage.clone(), keys.clone(), gossip.clone(), stopped.clone()));
    tokio::spawn(authority::follow_former(manage.clone(), keyring.clone(), stopped.clone()));
    let operator = node.layout.operator();
    tokio::spawn(authority::follow(keyring.clone(), own.clone(), manage.clone(), operator, stopped.clone()));
    let (managing, ring) = (own.clone(), keyring.clone());
    super::expiry::warn_in_log(name, move || ring.ends(), move || managing.manages(), stopped.clone());
    tokio::spawn(renewal::run(name.clone(), keyring.clone(), own.clone(), manage.clone(), stopped.clone()));
}

/// Serves the API, the local socket and, if enabled, the metrics.
async fn serve(
    socket: &Path,
    node: &OpenNode,
    listeners: Listeners,
    metrics: Metrics,
    manage: &ManagerLifecycle,
    ends: &EndSignals,
) -> Result<(), DaemonError> {
    let (config, stopped) = (node.config.clone(), &ends.stopped);
    let served = (node.keyring.server(), manage.port());
    tokio::spawn(address::serve(listeners.api, config, listeners.address, served, stopped.clone()));
    serve_socket(socket, manage.socket(), stopped.clone()).await?;
    if let Some(listener) = listeners.metrics {
        let manage = manage.clone();
        let text = move || {
            let manager = manage.manager_context().map(|shared| api::metrics(&shared).to_vec());
            metrics.render(wall(), &manager.unwrap_or_default())
        };
        tokio::spawn(scrape::serve(listener, Arc::new(text), wait_for_stop(stopped.clone())));
    }
    Ok(())
}

/// Stops all parts of the daemon, within [`END_MAX`].
async fn shut_down(
    ended: &Result<(), DaemonError>,
    gossip: Gossip,
    stop: &watch::Sender<bool>,
    agent: tokio::task::JoinHandle<()>,
    manage: &ManagerLifecycle,
) {
    if let Err(DaemonError::CopiedIdentity(_) | DaemonError::RebuiltElsewhere { .. }) = ended {
        // Another daemon with this node's name continues. If gossip said goodbye, the other nodes
        // would apply this goodbye to that daemon. So gossip is stopped without a goodbye.
        gossip.shutdown().await;
    }
    let _ = stop.send(true);
    let ending = async { tokio::join!(agent, manage.end()) };
    if tokio::time::timeout(END_MAX, ending).await.is_err() {
        tracing::warn!("the shutdown took too long; exiting without waiting further");
    }
}

/// Follows this node's address until the node is removed, because a removed node does not gossip.
async fn follow_address(follow: address::AddressFollower, own: AgentState, stopped: watch::Receiver<bool>) {
    tokio::select! {
        () = follow.run(stopped) => {}
        () = own.until_removed() => {}
    }
}

/// Archives manager files of a node without a Raft id, which remain after a crash. If the archiving
/// fails, the agent still starts; an order to become a manager retries the archiving.
fn archive_leftovers(layout: &Layout, retired: Option<RaftId>) {
    match archive::archive_raft_dir(layout, retired) {
        Ok(None) => {}
        Ok(Some(kept)) => {
            tracing::warn!(kept = %kept.display(), "manager files of an earlier role were archived; this node is a worker");
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "manager files of an earlier role can't be archived; this node is a worker");
        }
    }
}

/// Starts the task that trims memory. An idle agent needs little memory between its examinations
/// and requests. A manager is not trimmed, because it uses most of the program all the time.
fn start_memory_trimming(worked: watch::Receiver<u64>, own: AgentState) {
    match LoadedFiles::now() {
        Ok(loaded) => {
            let pass = move || if own.manages() { Ok(0) } else { loaded.give_back() };
            tokio::spawn(trim_memory::trim_when_idle(TrimSchedule::default(), worked, pass));
        }
        Err(error) => tracing::info!(%error, "memory can't be trimmed; the pages of the program stay resident"),
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

async fn serve_socket(path: &Path, router: axum::Router, stopped: watch::Receiver<bool>) -> Result<(), DaemonError> {
    if let Some(parent) = path.parent() {
        // If the socket's directory can't be created, the bind below reports an error.
        let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent);
    }
    let socket = unix::LocalSocket::bind(path).await?;
    tokio::spawn(unix::serve_unix(socket, router, ServerLimits::default(), wait_for_stop(stopped)));
    Ok(())
}

/// The file to which a panicking daemon writes the reason.
pub fn panic_file(dir: &Path) -> PathBuf {
    dir.join(crate::agent::LAST_WORDS)
}

fn begin_record(layout: &Layout) -> Result<RecordKeeper, DaemonError> {
    let boot = remoor_host::disk::boot_id()?;
    let instance = random_hex(8).map_err(|e| DaemonError::Config(e.to_string()))?;
    Ok(RecordKeeper::begin(layout.0.join("agent.json"), boot, instance.into(), wall())?)
}

async fn start_gossip(
    credentials: &Credentials,
    config: &NodeConfig,
    keys: &KeyBook,
    report: Report,
    timing: gossip::GossipTiming,
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

/// Sends every event to each consumer, in order. A manager service that starts later first receives
/// all current members, and then every later event. So it misses no member and no change.
async fn fan_out(
    mut events: mpsc::UnboundedReceiver<MemberEvent>,
    gossip: Gossip,
    agent: mpsc::UnboundedSender<MemberEvent>,
    mut ears: mpsc::Receiver<MemberEventSender>,
    probe: CopiedIdentityProbe,
) {
    let mut manager: Option<MemberEventSender> = None;
    loop {
        let event = tokio::select! {
            Some(event) = events.recv() => event,
            Some(ear) = ears.recv() => {
                for Member { name, addr, report, signed } in gossip.members() {
                    let _ = ear.send(MemberEvent::Alive { name, addr, report, signed });
                }
                manager = Some(ear);
                continue;
            }
            else => return,
        };
        match &event {
            MemberEvent::SignedElsewhere { addr, api } => probe.start(*addr, *api),
            // This daemon's gossip record outranks the record of another daemon of the same node.
            // No other node forwards the record to that daemon. So `join` sends it there, and the
            // other daemon exits.
            MemberEvent::OutrankedElsewhere { addr, .. } => {
                let (gossip, addr) = (gossip.clone(), *addr);
                tokio::spawn(async move {
                    let told = gossip.join(addr).await;
                    let error = told.as_ref().err().map(ToString::to_string);
                    tracing::warn!(%addr, error, "another daemon of this node is older, or is not a manager: it is told to exit");
                });
            }
            _ => {}
        }
        // A manager service that has stopped does not receive events any more, so its channel is
        // dropped.
        manager = manager.filter(|manager| manager.send(event.clone()).is_ok());
        let _ = agent.send(event);
    }
}

/// Logs the number of archived logs, because archives fill the disk and contain keys of the
/// cluster.
fn warn_of_archives(layout: &Layout) {
    let archives = archived_logs(&layout.0);
    if let Some(oldest) = archives.first() {
        tracing::warn!(
            count = archives.len(),
            oldest = %oldest.path.display(),
            "archived logs with keys of the cluster are in the data directory; next: remoor recover --delete-archives 30d"
        );
    }
}

/// Stores a copy of this program under the hash of its content. A manager of the same version then
/// need not upload the program as the executor.
fn keep_own_binary(layout: &Layout) {
    let layout = layout.clone();
    std::thread::spawn(move || {
        if let Err(error) = remoor_exec::ssh::keep_binary(&layout.0.join("bin")) {
            tracing::warn!(%error, "the program could not be stored for the executor; managers will upload it");
        }
    });
}

async fn wait_for_stop(mut stopped: watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}
