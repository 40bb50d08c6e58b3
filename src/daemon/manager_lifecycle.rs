//! The lifecycle of this node's manager service. An order of the leader starts the service, and the
//! retirement of the node's Raft id stops it. The agent continues unaffected: its process, instance
//! and gossip do not change.
//!
//! ```text
//! worker  --order of the leader: archive old log, write identity,
//!           create log, start threads------------------------------> manager
//! manager --Raft id retired: write identity, stop threads,
//!           archive log--------------------------------------------> worker
//! ```
//! The stored identity decides what the next start does. With a Raft id, the log must exist, or it
//! is created if it was never begun. Without a Raft id, manager files in the directory are
//! leftovers, and the next start archives them.

use super::archive;
use super::keyring::Keyring;
use super::layout::Layout;
use super::manager_service::{ManagerService, MemberEventSender, Parts, begin_log, tell_agent};
use super::position;
use super::run::DaemonError;
use super::runtime::Threads;
use super::swappable_router::SwappableRouter;
use super::transport::{PermanentEnd, Retirement};
use crate::agent::{self, AgentState};
use crate::manager::{ManagerContext, Sponsors, api, wall};
use crate::telemetry::Registry;
use axum::Router;
use axum::extract::{FromRequest, Request, State};
use axum::routing::post;
use remoor_cluster::incarnation::{OrderedRaftId, judge_order};
use remoor_cluster::rpc::caller::Caller;
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::node::{ASK_PATH, MANAGE_PATH, ManageReply, ManageRequest};
use remoor_cluster::rpc::renew::RenewReply;
use remoor_cluster::rpc::server::Served;
use remoor_cluster::rpc::wire::{self, ApiFailure, Code, Json};
use remoor_host::disk::{DataDir, DiskError, Identity};
use remoor_model::{ClusterRole, Epoch, NodeId, RaftId, error_with_causes};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

/// Maximum time for the engine's loop and for Raft to end. The threads of the manager service then
/// have one more second to end.
const LOOP_END_MAX: Duration = Duration::from_secs(1);
const RAFT_END_MAX: Duration = Duration::from_secs(2);
/// Interval of the retries if the manager service could not start because no manager answered.
const AGAIN: Duration = Duration::from_secs(5);
/// Maximum number of managers that an order to run the manager service may name.
const MANAGERS_MAX: usize = 64;

/// The daemon's resources for its manager service. They exist even if the service does not run.
pub struct ManagerResources {
    pub data: DataDir,
    pub layout: Layout,
    pub keyring: Keyring,
    /// Validity of the certificates that this node issues as a manager.
    pub certificate_life: Duration,
    /// Whether machines without the secret of a token may ask an operator to accept them.
    pub join_requests: bool,
    pub own: AgentState,
    pub counts: Registry,
    pub ears: mpsc::Sender<MemberEventSender>,
    pub fatal: mpsc::Sender<DaemonError>,
    /// The agent's routes. On a manager, the socket serves them in addition to the manager's
    /// routes.
    pub agent_routes: Router,
    /// All routes that the socket of a worker serves.
    pub worker_routes: Router,
}

/// A handle to the manager service; all clones share one state.
#[derive(Clone)]
pub struct ManagerLifecycle {
    ground: Arc<ManagerResources>,
    /// Locked during a start or stop of the service.
    state: Arc<Mutex<LifecycleState>>,
    shared: Arc<watch::Sender<Option<Arc<ManagerContext>>>>,
    port: SwappableRouter,
    socket: SwappableRouter,
}

struct LifecycleState {
    identity: Identity,
    running: Option<Running>,
    /// The Raft id under which a failed start is retried.
    trying: Option<RaftId>,
    /// Whether the daemon is stopping; nothing is started then.
    closed: bool,
}

struct Running {
    id: RaftId,
    part: ManagerService,
    threads: Threads,
    stop: watch::Sender<bool>,
}

impl ManagerLifecycle {
    /// Initially no manager service runs, and the routes are those of a worker.
    pub fn new(ground: ManagerResources, identity: Identity) -> Self {
        let (port, socket) =
            (SwappableRouter::new(idle(&ground, &identity)), SwappableRouter::new(ground.worker_routes.clone()));
        let state = Arc::new(Mutex::new(LifecycleState { identity, running: None, trying: None, closed: false }));
        Self { ground: Arc::new(ground), state, shared: Arc::new(watch::channel(None).0), port, socket }
    }

    /// Starts the service at the start of the daemon, if the identity contains a Raft id. If no
    /// other manager can send the CA yet, the start is retried while the agent already runs.
    pub async fn begin(&self) -> Result<(), DaemonError> {
        self.enter(self.ground.own.epoch()).await;
        tokio::spawn(self.clone().follow_epochs());
        let mut now = self.state.lock().await;
        let Some(id) = now.identity.raft else { return Ok(()) };
        match self.start(&mut now, id, Vec::new()).await {
            Err(error @ DaemonError::NoCa) => {
                tracing::warn!(%error, "the manager service does not run; will retry");
                self.try_again(&mut now, id, Vec::new());
                Ok(())
            }
            Err(DaemonError::PermanentEnd(end)) => {
                self.retire(&mut now, end).await;
                Ok(())
            }
            started => started,
        }
    }

    /// Starts the daemon of a manager whose log is missing, without its manager service. With an
    /// empty log, the manager could vote twice in one term. Another manager has to remove the vote
    /// of this manager (docs/design/scenarios.md, E12). The identity keeps the Raft id. So the next
    /// start uses a log that was only moved away and put back. An order to run the service under
    /// this id fails like this start.
    pub fn begin_without(&self, file: &std::path::Path, identity: &Identity) {
        tokio::spawn(self.clone().follow_epochs());
        let (file, name, id) = (file.display(), &identity.name, identity.raft.unwrap_or(RaftId(0)));
        tracing::error!(
            raft = %id,
            "{file} is gone, but this node has taken part in raft with it: with an empty log it would break promises \
             that the other managers rely on, so its manager service does not run under this Raft id and it acts as a \
             worker; next: put the file back if it was moved, and restart; otherwise remoor demote {name} on another \
             manager, then remoor promote {name}: the node then receives a new Raft id and a full copy of the log, \
             and remains the same node"
        );
    }

    /// The routes that are served at the API address of the node.
    pub fn port(&self) -> Served {
        let order = Router::new().route(MANAGE_PATH, post(manage)).route(ASK_PATH, post(ask)).with_state(self.clone());
        let router = wire::finish(order).fallback_service(self.port.router());
        let (manage, judge, raft) = (self.clone(), self.clone(), self.port.clone());
        let manages = move |node| manage.role_of(node) == Some(ClusterRole::Manager);
        // Only requests of managers run on Raft's thread, because other requests would delay the
        // managers' messages.
        let thread_chooser = Arc::new(move |node| raft.raft().filter(|_| manages(node)));
        Served { router, thread_chooser, reserved: Arc::new(move |caller| judge.takes_precedence(caller)) }
    }

    /// The routes that are served on the local socket of the node.
    pub fn socket(&self) -> Router {
        self.socket.router()
    }

    /// The context of the running manager service; None if the service does not run.
    pub fn manager_context(&self) -> Option<Arc<ManagerContext>> {
        self.shared.borrow().clone()
    }

    /// A channel with the context of [`manager_context`](Self::manager_context) and its later
    /// changes.
    pub fn follow(&self) -> watch::Receiver<Option<Arc<ManagerContext>>> {
        self.shared.subscribe()
    }

    /// A certificate for this node itself, issued by the CA of its manager service. None if the
    /// service does not run.
    pub async fn issue(&self, csr_pem: &str) -> Option<Result<RenewReply, String>> {
        let desk = self.state.lock().await.running.as_ref().map(|running| running.part.desk.clone())?;
        Some(desk.issue_own(csr_pem))
    }

    /// Stops the service, because the daemon is stopping. The next daemon starts it again.
    pub async fn end(&self) {
        let mut now = self.state.lock().await;
        now.closed = true;
        self.stop(&mut now).await;
    }

    async fn start(&self, now: &mut LifecycleState, id: RaftId, order: Vec<PeerInfo>) -> Result<(), DaemonError> {
        let ground = &self.ground;
        let threads = Threads::start().map_err(DaemonError::Threads)?;
        let (stop, stopped) = watch::channel(false);
        let (ask, own) = (ground.own.clone(), ground.own.clone());
        let retired = Retirement::new(move |epoch| own.learn_epoch(epoch));
        let parts = Parts {
            layout: ground.layout.clone(),
            identity: now.identity.clone(),
            raft: id,
            raft_thread: threads.raft(),
            keyring: ground.keyring.clone(),
            certificate_life: ground.certificate_life,
            join_requests: ground.join_requests,
            sponsors: Sponsors::new(order, ground.own.follow_managers(), move || ask.ask_soon()),
            counts: ground.counts.clone(),
            ears: ground.ears.clone(),
            retired: retired.clone(),
            stopped,
            fatal: ground.fatal.clone(),
        };
        let started = threads.handle().spawn(parts.start()).await;
        let part = match started.unwrap_or_else(|e| Err(DaemonError::Config(format!("the manager service ended: {e}"))))
        {
            Ok(part) => part,
            Err(error) => {
                threads.end().await;
                return Err(error);
            }
        };
        let port = part.router.clone().merge(agent::instance(ground.own.clone()));
        self.port.set(port, Some(threads.handle()), Some(threads.raft()));
        let socket = part.router.clone().merge(ground.agent_routes.clone());
        self.socket.set(socket, Some(threads.handle()), None);
        threads.handle().spawn(tell_agent(part.raft.state(), ground.own.clone()));
        self.shared.send_replace(Some(part.shared.clone()));
        ground.own.set_manages(true);
        now.running = Some(Running { id, part, threads, stop });
        tokio::spawn(self.clone().park_once(id, retired.follow()));
        tracing::info!(raft = %id, "the manager service runs");
        Ok(())
    }

    /// Waits until the Raft id is known to be retired, or the data directory is found to be stale.
    /// Then stops and archives the service.
    async fn park_once(self, id: RaftId, mut retired: watch::Receiver<Option<PermanentEnd>>) {
        let Ok(Some(end)) = retired.wait_for(Option::is_some).await.map(|end| end.clone()) else {
            return; // the service was stopped for another reason
        };
        let mut now = self.state.lock().await;
        if now.running.as_ref().is_some_and(|r| r.id == id) {
            self.retire(&mut now, end).await;
        }
    }

    /// Retries a failed start until the service runs or must not run any more.
    fn try_again(&self, now: &mut LifecycleState, id: RaftId, order: Vec<PeerInfo>) {
        if now.trying.replace(id) == Some(id) {
            return;
        }
        let manage = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(AGAIN).await;
                let mut now = manage.state.lock().await;
                if now.closed || now.trying != Some(id) || now.identity.raft != Some(id) || now.running.is_some() {
                    break;
                }
                match manage.start(&mut now, id, order.clone()).await {
                    Ok(()) => break,
                    Err(DaemonError::PermanentEnd(end)) => {
                        manage.retire(&mut now, end).await;
                        break;
                    }
                    Err(error) => tracing::warn!(
                        error = error_with_causes(&error),
                        "the manager service does not run; will retry"
                    ),
                }
            }
            let mut now = manage.state.lock().await;
            now.trying = now.trying.filter(|trying| *trying != id);
        });
    }

    /// Makes this node a worker, because its Raft id is retired or its log is stale. Stops the
    /// service if it runs, and archives its files. Nothing is started under this id again.
    async fn retire(&self, now: &mut LifecycleState, end: PermanentEnd) {
        let Some(id) = now.identity.raft else { return };
        (now.identity.raft, now.identity.log_begun, now.identity.retired) = (None, false, Some(id));
        // The node may also have been removed from the cluster. The managers' answer to the agent
        // shows that.
        self.ground.own.ask_soon();
        self.end_backups();
        let stored = self.store(now).await;
        self.stop(now).await;
        let name = &now.identity.name;
        // If the Raft id could not be removed from the stored identity, the log must not be moved.
        let aside = match stored {
            Ok(()) => self.archive_raft_dir(Some(id)).await,
            Err(error) => Err(error),
        };
        match (aside, end) {
            (Ok(to), PermanentEnd::Stale(why)) => tracing::error!(
                raft = %id, kept = %to.unwrap_or_default().display(), why,
                "stale-directory: this data directory is a copy, or an older one that was restored: it would vote \
                 twice and forget acknowledged entries, so this node is no longer a manager; its log was archived, \
                 with the cluster's keys, and nothing was deleted; next: do not restore the files; remoor demote \
                 {name} on another manager, then remoor promote {name}; if this machine is a copy of a running one, \
                 move its data directory away"
            ),
            (Ok(to), PermanentEnd::Retired) => tracing::warn!(
                raft = %id, kept = %to.unwrap_or_default().display(),
                "this node is no longer a manager: its Raft id is retired; its log was archived, with the cluster's \
                 keys, and it continues as a worker; next: delete the archive once it is not needed, or remoor \
                 promote {name}"
            ),
            (Err(error), end) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    raft = %id, error, ?end,
                    "this node is no longer a manager; its log could not be archived, which is retried at the next \
                     start; it continues as a worker"
                );
            }
        }
    }

    /// Follows the newest known epoch of the cluster. If the cluster was rebuilt without this node,
    /// this node's manager service belongs to the old epoch and is stopped.
    async fn follow_epochs(self) {
        let mut epochs = self.ground.own.follow_epoch();
        loop {
            let epoch = *epochs.borrow_and_update();
            self.enter(epoch).await;
            if epochs.changed().await.is_err() {
                return;
            }
        }
    }

    /// Moves the node to this epoch. The epoch is written to disk before it is used. The node never
    /// returns to an older epoch.
    async fn enter(&self, epoch: Epoch) {
        let mut now = self.state.lock().await;
        if epoch <= now.identity.epoch || now.closed {
            return;
        }
        let managed = now.identity.raft;
        now.identity.epoch = epoch;
        (now.identity.raft, now.identity.log_begun, now.identity.retired) = (None, false, None);
        let stored = self.store(&now).await;
        let name = now.identity.name.clone();
        let Some(id) = managed else {
            match stored {
                Ok(()) => tracing::info!(%epoch, "the cluster was rebuilt; this node has joined the new epoch"),
                Err(error) => {
                    tracing::error!(%epoch, error = error_with_causes(&error), "the new epoch could not be stored")
                }
            }
            return;
        };
        self.end_backups();
        self.stop(&mut now).await;
        let aside = match stored {
            Ok(()) => self.archive_raft_dir(Some(id)).await,
            Err(error) => Err(error),
        };
        match aside {
            Ok(to) => tracing::warn!(
                %epoch, raft = %id, kept = %to.unwrap_or_default().display(),
                "wrong-epoch: the cluster was rebuilt without this manager; its log was archived, with the cluster's \
                 keys, and it continues as a worker; next: remoor promote {name} on a manager"
            ),
            Err(error) => tracing::error!(
                %epoch, raft = %id, error = error_with_causes(&error),
                "wrong-epoch: the cluster was rebuilt without this manager; its log could not be archived, which is \
                 retried at the next start; it continues as a worker"
            ),
        }
    }

    /// Logs that the scheduled backups of this node stop. A worker makes no backups, but the
    /// operator may rely on them.
    fn end_backups(&self) {
        let Some(shared) = self.manager_context() else { return };
        let planned = shared.backups.view(&shared.identity.name, wall()).and_then(|backups| backups.every_ms);
        if let Some(every) = planned {
            tracing::warn!(
                every_s = every / 1_000,
                "the backups scheduled on this node have stopped because it is a worker now; next: remoor backup \
                 FOLDER --every on a manager"
            );
        }
    }

    /// Stops the running service and serves the routes of a worker.
    async fn stop(&self, now: &mut LifecycleState) {
        self.port.set(idle(&self.ground, &now.identity), None, None);
        self.socket.set(self.ground.worker_routes.clone(), None, None);
        self.shared.send_replace(None);
        self.ground.own.set_manages(false);
        let Some(Running { id, part, threads, stop }) = now.running.take() else { return };
        stop.send_replace(true);
        let ManagerService { task, raft, .. } = part;
        if tokio::time::timeout(LOOP_END_MAX, task).await.is_err() {
            tracing::warn!(raft = %id, "the manager's loop took too long to end");
        }
        if tokio::time::timeout(RAFT_END_MAX, raft.shutdown()).await.is_err() {
            tracing::warn!(raft = %id, "Raft took too long to end");
        }
        threads.end().await;
    }

    async fn store(&self, now: &LifecycleState) -> Result<(), DiskError> {
        let (ground, identity) = (self.ground.clone(), now.identity.clone());
        run_blocking("storing the identity", &self.ground.layout, move || ground.data.store_identity(&identity)).await
    }

    async fn archive_raft_dir(&self, id: Option<RaftId>) -> Result<Option<std::path::PathBuf>, DiskError> {
        let layout = self.ground.layout.clone();
        run_blocking("archiving the log in", &self.ground.layout, move || archive::archive_raft_dir(&layout, id)).await
    }

    /// Carries out an order to run the manager service. The caller and the content of the order
    /// must be checked already.
    async fn take(&self, now: &mut LifecycleState, order: ManageRequest) -> Result<ManageReply, ApiFailure> {
        let id = order.raft;
        let reply = ManageReply { raft: id };
        if now.running.as_ref().is_some_and(|r| r.id == id) {
            return Ok(reply);
        }
        if now.closed {
            return Err(ApiFailure::new(Code::Unavailable, "the daemon of this node is stopping"));
        }
        let failed = |error: &dyn std::error::Error| {
            let why = error_with_causes(error);
            tracing::warn!(raft = %id, error = why, "the manager service does not run");
            ApiFailure::new(Code::Unavailable, format!("the manager service does not run: {why}"))
        };
        let archived = || ApiFailure::new(Code::Retired, format!("this node has archived its log of Raft id {id}"));
        match judge_order(id, now.identity.raft, now.identity.retired) {
            OrderedRaftId::Reserved => {
                return Err(ApiFailure::new(Code::BadRequest, format!("Raft id {id} can't be assigned")));
            }
            OrderedRaftId::Retired => return Err(archived()),
            OrderedRaftId::Older => {
                return Err(ApiFailure::new(Code::Conflict, format!("this node has a newer Raft id than {id}")));
            }
            OrderedRaftId::Held => {}
            OrderedRaftId::New => {
                self.retire(now, PermanentEnd::Retired).await;
                // Nothing is moved while the stored identity still contains a Raft id. Otherwise
                // the moved log would look like a lost one, and the next start would fail.
                self.store(now).await.map_err(|e| failed(&e))?;
                // This call also archives files that an earlier start could not archive. If the CA
                // of an earlier manager service stayed, it would look like evidence of a lost log.
                self.archive_raft_dir(now.identity.retired).await.map_err(|e| failed(&e))?;
                now.identity.raft = Some(id);
                if let Err(error) = self.store(now).await {
                    now.identity.raft = None;
                    return Err(failed(&error));
                }
            }
        }
        self.log(now).await.map_err(|e| failed(&e))?;
        match self.start(now, id, order.managers.clone()).await {
            Ok(()) => Ok(reply),
            Err(DaemonError::PermanentEnd(end)) => {
                self.retire(now, end).await;
                Err(archived())
            }
            Err(error) => {
                self.try_again(now, id, order.managers);
                Err(failed(&error))
            }
        }
    }

    /// Creates the log if needed, and records in the identity that the log was begun.
    async fn log(&self, now: &mut LifecycleState) -> Result<(), DaemonError> {
        let (ground, mut identity) = (self.ground.clone(), now.identity.clone());
        let begun = tokio::task::spawn_blocking(move || {
            begin_log(&ground.data, &ground.layout, &mut identity)?;
            Ok::<_, DaemonError>(identity)
        });
        now.identity = begun.await.map_err(|e| DaemonError::Config(e.to_string()))??;
        Ok(())
    }

    /// Accepts the order to run the manager service only from a caller that this node knows as a
    /// manager of this cluster.
    fn judge(&self, caller: &Caller) -> Result<(), ApiFailure> {
        let Caller::Node { id, key, .. } = caller else {
            return Err(ApiFailure::new(Code::Unauthenticated, "only managers of the cluster may ask this"));
        };
        if self.has_other_key(*id, key) {
            let text = format!("this certificate is not for the key of node {id} as far as this node knows");
            return Err(ApiFailure::new(Code::Forbidden, text));
        }
        if self.manager_context().is_some_and(|shared| shared.inventory().membership(*id).is_out()) {
            return Err(ApiFailure::new(Code::NodeRemoved, format!("node {id} was removed from the cluster")));
        }
        let asked_as = self.role_of(*id);
        if asked_as != Some(ClusterRole::Manager) {
            // The list of managers that this node received last may lack a new manager.
            self.ground.own.ask_soon();
        }
        match asked_as {
            Some(ClusterRole::Manager) => Ok(()),
            Some(ClusterRole::Worker) => {
                Err(ApiFailure::new(Code::Forbidden, format!("node {id} is not a manager as far as this node knows")))
            }
            None => Err(ApiFailure::new(Code::Retry, format!("this node does not know node {id} yet"))),
        }
    }

    /// The role of a node as far as this machine knows. Without a manager service, only the agent's
    /// list of managers is known.
    fn role_of(&self, node: NodeId) -> Option<ClusterRole> {
        let shared = self.manager_context();
        if shared.as_ref().is_some_and(|shared| shared.is_manager(node)) {
            return Some(ClusterRole::Manager);
        }
        let entered = shared.is_some_and(|shared| shared.inventory().node(node).is_some());
        self.ground.own.role_of(node).or(entered.then_some(ClusterRole::Worker))
    }

    /// Whether this machine knows another key than `key` for the node. Then the certificate with
    /// `key` was minted by somebody who has the CA's key.
    fn has_other_key(&self, node: NodeId, key: &str) -> bool {
        let inventory = self.manager_context().map(|shared| shared.inventory());
        let recorded = inventory.and_then(|i| i.node(node).map(|known| known.spec.public_key.clone()));
        recorded.or_else(|| self.ground.own.key_of(node)).is_some_and(|known| known != key)
    }

    /// Whether connections are reserved for this caller: a manager, or an operator on the list.
    fn takes_precedence(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Node { id, key, .. } => {
                self.role_of(*id) == Some(ClusterRole::Manager) && !self.has_other_key(*id, key)
            }
            Caller::Operator { name, key, .. } => {
                self.manager_context().is_some_and(|shared| api::check_listed(&shared.inventory(), name, key).is_ok())
            }
            Caller::Local { .. } | Caller::Anonymous => false,
        }
    }

    fn check_order(&self, order: &ManageRequest) -> Result<(), ApiFailure> {
        let (own, epoch) = (self.ground.own.id(), self.ground.own.epoch());
        let (code, text) = if order.cluster != own.cluster {
            (Code::WrongCluster, format!("the order is for cluster {}, this is {}", order.cluster, own.cluster))
        } else if order.epoch != epoch {
            if order.epoch > epoch {
                self.ground.own.ask_soon(); // the managers confirm or deny the newer epoch
            }
            (Code::WrongEpoch, format!("the order is for epoch {}, this is epoch {epoch}", order.epoch))
        } else if order.node != own.id {
            (Code::WrongNode, format!("the order is for node {}, this is node {}", order.node, own.id))
        } else if order.managers.len() > MANAGERS_MAX {
            (Code::BadRequest, format!("more than {MANAGERS_MAX} managers"))
        } else {
            return Ok(());
        };
        Err(ApiFailure::new(code, text))
    }
}

/// The routes at the API address while no manager service runs. The route of the order that starts
/// the service is not one of them.
fn idle(ground: &ManagerResources, identity: &Identity) -> Router {
    let former = identity.retired.map(|_| agent::former_manager(ground.own.clone()));
    let own = agent::instance(ground.own.clone()).merge(agent::worker_redirects(ground.own.clone()));
    let position = position::routes(&ground.layout, &identity.name, identity.raft);
    wire::finish(former.unwrap_or_default().merge(own).merge(position))
}

/// Handles the order to run the manager service. The answer is sent once the service runs. Once the
/// node has begun to carry out the order, it completes the order even if the caller disconnects.
async fn manage(
    State(manage): State<ManagerLifecycle>,
    caller: Caller,
    request: Request,
) -> Result<axum::Json<ManageReply>, ApiFailure> {
    manage.judge(&caller)?;
    let Json(order): Json<ManageRequest> = Json::from_request(request, &()).await?;
    manage.check_order(&order)?;
    let Ok(mut now) = manage.state.clone().try_lock_owned() else {
        return Err(ApiFailure::new(Code::Retry, "the manager service is being started or stopped on this node"));
    };
    let taken = tokio::spawn(async move { manage.take(&mut now, order).await });
    let taken = taken.await.map_err(|_| ApiFailure::new(Code::Internal, "a task of this node ended unexpectedly"))?;
    taken.map(axum::Json)
}

/// Handles the request of a manager that the agent of this node ask the managers soon.
async fn ask(State(manage): State<ManagerLifecycle>, caller: Caller) -> Result<(), ApiFailure> {
    manage.judge(&caller)?;
    manage.ground.own.ask_soon();
    Ok(())
}

/// Runs disk work on a blocking thread, so that the agent's thread is not delayed.
async fn run_blocking<T: Send + 'static>(
    what: &'static str,
    layout: &Layout,
    work: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(DiskError::io(what, &layout.0)(std::io::Error::other(e))))
}
