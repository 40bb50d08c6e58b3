//! The manager part of this node as it comes and goes, by the leader's order and by the end of its Raft id, while the agent
//! goes on: its process, its instance and its gossip know nothing of it.
//!
//! ```text
//! worker --order: older log aside, identity, log, threads--> manager --retired: identity, threads, log aside--> worker
//! ```
//! The identity is written before and after everything else: where it names a Raft id there is a log, or one that was never
//! begun and is made; where it names none, what is here of a manager is put aside at the next start.

use super::keyring::Keyring;
use super::layout::Layout;
use super::park;
use super::parts::{Ear, ManagerPart, Parts, begin_log};
use super::run::DaemonError;
use super::runtime::Threads;
use super::switch::Switch;
use super::transport::{End, Retirement};
use crate::agent::{self, Own};
use crate::disk::{DataDir, DiskError, Identity};
use crate::manager::{Shared, Sponsors, wall};
use crate::model::{ClusterRole, Epoch, Inventory, NodeId, RaftId};
use crate::rpc::caller::Caller;
use crate::rpc::join::Peer;
use crate::rpc::node::{ASK_PATH, MANAGE_PATH, ManageReply, ManageRequest};
use crate::rpc::renew::RenewReply;
use crate::rpc::server::Served;
use crate::rpc::wire::{self, Code, Failure, Json};
use crate::telemetry::Registry;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, watch};

/// The loop of a manager part that is to end, and its Raft, have this long each. Their threads have another second.
const LOOP_END_MAX: Duration = Duration::from_secs(1);
const RAFT_END_MAX: Duration = Duration::from_secs(2);
/// A manager part that could not be started, since no manager answered, is tried again after this time.
const AGAIN: Duration = Duration::from_secs(5);
/// Managers that an order may name.
const MANAGERS_MAX: usize = 64;

/// What the daemon has for its manager part, whenever that runs.
pub struct Ground {
    pub data: DataDir,
    pub layout: Layout,
    pub keyring: Keyring,
    /// How long the certificates hold that this node issues as a manager.
    pub certificate_life: Duration,
    pub own: Own,
    pub counts: Registry,
    pub ears: mpsc::Sender<Ear>,
    pub fatal: mpsc::Sender<DaemonError>,
    /// The agent's own answers, which stand beside a manager's on the socket.
    pub agent_routes: Router,
    /// All that a worker answers there.
    pub worker_routes: Router,
}

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Manage {
    ground: Arc<Ground>,
    /// Held while a part is started or stopped.
    state: Arc<Mutex<Now>>,
    shared: Arc<watch::Sender<Option<Arc<Shared>>>>,
    port: Switch,
    socket: Switch,
}

struct Now {
    identity: Identity,
    running: Option<Running>,
    /// A part that could not be started is tried again under this id.
    trying: Option<RaftId>,
    /// The daemon ends: nothing is begun any more.
    closed: bool,
}

struct Running {
    id: RaftId,
    part: ManagerPart,
    threads: Threads,
    stop: watch::Sender<bool>,
}

impl Manage {
    /// Nothing runs yet, and the routes are a worker's.
    pub fn new(ground: Ground, identity: Identity) -> Self {
        let (port, socket) = (Switch::new(idle(&ground, &identity)), Switch::new(ground.worker_routes.clone()));
        let state = Arc::new(Mutex::new(Now { identity, running: None, trying: None, closed: false }));
        Self { ground: Arc::new(ground), state, shared: Arc::new(watch::channel(None).0), port, socket }
    }

    /// At the start of the daemon: the part runs where the identity says so. Where only other managers are missing for it,
    /// that is tried again, and the agent goes on meanwhile.
    pub async fn begin(&self) -> Result<(), DaemonError> {
        self.enter(self.ground.own.epoch()).await;
        tokio::spawn(self.clone().follow_epochs());
        let mut now = self.state.lock().await;
        let Some(id) = now.identity.raft else { return Ok(()) };
        match self.start(&mut now, id, Vec::new()).await {
            Err(error @ DaemonError::NoCa) => {
                tracing::warn!(%error, "the manager part does not run; tried again");
                self.try_again(&mut now, id, Vec::new());
                Ok(())
            }
            Err(error) => match end_of(&error) {
                Some(end) => {
                    self.retire(&mut now, end).await;
                    Ok(())
                }
                None => Err(error),
            },
            Ok(()) => Ok(()),
        }
    }

    /// At the start of a daemon whose log is gone: nothing is begun under the id that it had, at which another manager has to
    /// take its vote away (SCENARIOS E12). The identity keeps the id, so that a log that was only moved is gone on with, and
    /// an order under that id fails here as the start did.
    pub fn begin_without(&self, file: &std::path::Path, identity: &Identity) {
        tokio::spawn(self.clone().follow_epochs());
        let (file, name, id) = (file.display(), &identity.name, identity.raft.unwrap_or(RaftId(0)));
        tracing::error!(
            raft = %id,
            "{file} is gone, but this node has taken part in raft with it: with an empty log it would break promises that the \
             other managers rely on, so it manages nothing under this Raft id, and goes on as a worker; next: put the file back \
             if it was moved, and restart; else remoor demote {name} on another manager, then remoor promote {name}, by which it \
             gets another id and all of the log, and stays the node that it is"
        );
    }

    /// What is answered at the API address.
    pub fn port(&self) -> Served {
        let order = Router::new().route(MANAGE_PATH, post(manage)).route(ASK_PATH, post(ask)).with_state(self.clone());
        let router = wire::finish(order).fallback_service(self.port.router());
        let manage = self.clone();
        let manages = move |node| manage.role_of(node) == Some(ClusterRole::Manager);
        let raft = self.port.clone();
        // Anybody else waits for Raft's thread behind all that managers say.
        Served { router, place: Arc::new(move |node| raft.raft().filter(|_| manages(node))) }
    }

    /// What is answered on the socket of the machine.
    pub fn socket(&self) -> Router {
        self.socket.router()
    }

    /// Of the part that runs, if one does.
    pub fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.borrow().clone()
    }

    /// The same, now and later.
    pub fn follow(&self) -> watch::Receiver<Option<Arc<Shared>>> {
        self.shared.subscribe()
    }

    /// A certificate for this node itself, by the CA of its manager part; None: no part runs.
    pub async fn issue(&self, csr_pem: &str) -> Option<Result<RenewReply, String>> {
        let desk = self.state.lock().await.running.as_ref().map(|running| running.part.desk.clone())?;
        Some(desk.issue_own(csr_pem))
    }

    /// The daemon ends; the part is one of the next start.
    pub async fn end(&self) {
        let mut now = self.state.lock().await;
        now.closed = true;
        self.stop(&mut now).await;
    }

    async fn start(&self, now: &mut Now, id: RaftId, order: Vec<Peer>) -> Result<(), DaemonError> {
        let ground = &self.ground;
        let threads = Threads::start().map_err(DaemonError::Threads)?;
        let (stop, stopped) = watch::channel(false);
        let retired = Retirement::new();
        let ask = ground.own.clone();
        let parts = Parts {
            layout: ground.layout.clone(),
            identity: now.identity.clone(),
            raft: id,
            raft_thread: threads.raft(),
            keyring: ground.keyring.clone(),
            certificate_life: ground.certificate_life,
            sponsors: Sponsors::new(order, ground.own.follow_managers(), move || ask.ask_soon()),
            counts: ground.counts.clone(),
            ears: ground.ears.clone(),
            retired: retired.clone(),
            stopped,
            fatal: ground.fatal.clone(),
        };
        let started = threads.handle().spawn(parts.start()).await;
        let part = match started.unwrap_or_else(|e| Err(DaemonError::Config(format!("the manager part ended: {e}")))) {
            Ok(part) => part,
            Err(error) => {
                threads.end().await;
                return Err(error);
            }
        };
        self.port.set(part.router.clone(), Some(threads.handle()), Some(threads.raft()));
        let socket = part.router.clone().merge(ground.agent_routes.clone());
        self.socket.set(socket, Some(threads.handle()), None);
        threads.handle().spawn(tell_agent(part.raft.state(), ground.own.clone()));
        self.shared.send_replace(Some(part.shared.clone()));
        ground.own.set_manages(true);
        now.running = Some(Running { id, part, threads, stop });
        tokio::spawn(self.clone().park_once(id, retired.follow()));
        let (own, mut epochs) = (ground.own.clone(), retired.follow_epoch());
        tokio::spawn(async move {
            while epochs.changed().await.is_ok() {
                own.hear_epoch(*epochs.borrow_and_update());
            }
        });
        tracing::info!(raft = %id, "the manager part runs");
        Ok(())
    }

    /// Parks the part once it has heard of its end.
    async fn park_once(self, id: RaftId, mut retired: watch::Receiver<Option<End>>) {
        let Ok(Some(end)) = retired.wait_for(Option::is_some).await.map(|end| end.clone()) else {
            return; // it was stopped
        };
        let mut now = self.state.lock().await;
        if now.running.as_ref().is_some_and(|r| r.id == id) {
            self.retire(&mut now, end).await;
        }
    }

    /// Starts what could not be started, until it runs or is not wanted any more.
    fn try_again(&self, now: &mut Now, id: RaftId, order: Vec<Peer>) {
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
                    Err(error) => match end_of(&error) {
                        Some(end) => {
                            manage.retire(&mut now, end).await;
                            break;
                        }
                        None => tracing::warn!(error = chain(&error), "the manager part does not run; tried again"),
                    },
                }
            }
            let mut now = manage.state.lock().await;
            now.trying = now.trying.filter(|trying| *trying != id);
        });
    }

    /// The end of a part whose id is nobody's any more, or whose log is not what it was, whether it runs or not: this node is
    /// a worker, and nothing is begun under that id again.
    async fn retire(&self, now: &mut Now, end: End) {
        let Some(id) = now.identity.raft else { return };
        (now.identity.raft, now.identity.log_begun, now.identity.retired) = (None, false, Some(id));
        // The end of the id may be that of the node.
        self.ground.own.ask_soon();
        self.end_backups();
        let stored = self.store(now).await;
        self.stop(now).await;
        let name = &now.identity.name;
        // Where the identity still names the id, the log belongs to it.
        let aside = match stored {
            Ok(()) => self.aside(Some(id)).await,
            Err(error) => Err(error),
        };
        match (aside, end) {
            (Ok(to), End::Stale(why)) => tracing::error!(
                raft = %id, kept = %to.unwrap_or_default().display(), why,
                "stale-directory: this data directory is a copy, or an older one that was put back: it would vote twice and \
                 forget what it has acknowledged, so this node manages the cluster no more; its log was put aside, with the \
                 cluster's keys, and nothing was deleted; next: put nothing back; remoor demote {name} on another manager, \
                 then remoor promote {name}; of a machine that is a copy of one that lives, move the data directory away"
            ),
            (Ok(to), End::Retired) => tracing::warn!(
                raft = %id, kept = %to.unwrap_or_default().display(),
                "this node manages the cluster no more: its Raft id is retired; its log was put aside, with the cluster's \
                 keys, and it goes on as a worker; next: delete what was kept once it is not needed, or remoor promote {name}"
            ),
            (Err(error), end) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(
                    raft = %id, error, ?end,
                    "this node manages the cluster no more; its log could not be put aside, which is tried at the next \
                     start; it goes on as a worker"
                );
            }
        }
    }

    /// The cluster was founded anew without this node's word: what it has of a manager is of the epoch before.
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

    /// The node is of this epoch from now on, on disk first; an older one is never gone back to.
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
                Ok(()) => tracing::info!(%epoch, "the cluster was founded anew; this node is of its new epoch"),
                Err(error) => tracing::error!(%epoch, error = chain(&error), "the new epoch could not be stored"),
            }
            return;
        };
        self.end_backups();
        self.stop(&mut now).await;
        let aside = match stored {
            Ok(()) => self.aside(Some(id)).await,
            Err(error) => Err(error),
        };
        match aside {
            Ok(to) => tracing::warn!(
                %epoch, raft = %id, kept = %to.unwrap_or_default().display(),
                "wrong-epoch: the cluster was founded anew without this manager; its log was put aside, with the cluster's \
                 keys, and it goes on as a worker; next: remoor promote {name} on a manager"
            ),
            Err(error) => tracing::error!(
                %epoch, raft = %id, error = chain(&error),
                "wrong-epoch: the cluster was founded anew without this manager; its log could not be put aside, which is \
                 tried at the next start; it goes on as a worker"
            ),
        }
    }

    /// A worker makes no backups, and who ordered them here may count on them.
    fn end_backups(&self) {
        let Some(shared) = self.shared() else { return };
        let planned = shared.backups.view(&shared.me, wall()).and_then(|backups| backups.every_ms);
        if let Some(every) = planned {
            tracing::warn!(
                every_s = every / 1_000,
                "the backups that were planned here are made no more while this node is a worker; next: remoor backup FOLDER \
                 --every on a manager"
            );
        }
    }

    /// Ends what runs, and answers as a worker.
    async fn stop(&self, now: &mut Now) {
        self.port.set(idle(&self.ground, &now.identity), None, None);
        self.socket.set(self.ground.worker_routes.clone(), None, None);
        self.shared.send_replace(None);
        self.ground.own.set_manages(false);
        let Some(Running { id, part, threads, stop }) = now.running.take() else { return };
        stop.send_replace(true);
        let ManagerPart { task, raft, .. } = part;
        if tokio::time::timeout(LOOP_END_MAX, task).await.is_err() {
            tracing::warn!(raft = %id, "the manager's loop took too long to end");
        }
        if tokio::time::timeout(RAFT_END_MAX, raft.shutdown()).await.is_err() {
            tracing::warn!(raft = %id, "Raft took too long to end");
        }
        threads.end().await;
    }

    async fn store(&self, now: &Now) -> Result<(), DiskError> {
        let (ground, identity) = (self.ground.clone(), now.identity.clone());
        apart("storing the identity", &self.ground.layout, move || ground.data.store_identity(&identity)).await
    }

    async fn aside(&self, id: Option<RaftId>) -> Result<Option<std::path::PathBuf>, DiskError> {
        let layout = self.ground.layout.clone();
        apart("putting the log aside in", &self.ground.layout, move || park::aside(&layout, id)).await
    }

    /// Carries out an order that was found to be in order.
    async fn take(&self, now: &mut Now, order: ManageRequest) -> Result<ManageReply, Failure> {
        let id = order.raft;
        let reply = ManageReply { raft: id };
        if now.running.as_ref().is_some_and(|r| r.id == id) {
            return Ok(reply);
        }
        if now.closed {
            return Err(Failure::new(Code::Unavailable, "the daemon of this node ends"));
        }
        let before = now.identity.raft;
        if id <= RaftId(1) && before != Some(id) {
            return Err(Failure::new(Code::BadRequest, format!("Raft id {id} is nobody's to be given")));
        }
        if now.identity.retired.is_some_and(|last| id <= last) {
            return Err(Failure::new(Code::Retired, format!("this node has parked what it had of Raft id {id}")));
        }
        if before.is_some_and(|before| id < before) {
            return Err(Failure::new(Code::Conflict, format!("this node has a newer Raft id than {id}")));
        }
        let failed = |error: &dyn std::error::Error| {
            let why = chain(error);
            tracing::warn!(raft = %id, error = why, "the manager part does not run");
            Failure::new(Code::Unavailable, format!("the manager part does not run: {why}"))
        };
        if before != Some(id) {
            if before.is_some() {
                self.retire(now, End::Retired).await;
            }
            // Nothing is moved while the disk still names an id: a log that is gone is no leftover, and ends the next start.
            self.store(now).await.map_err(|e| failed(&e))?;
            // Also what a start could not put aside: an old CA would say that a log was there.
            self.aside(now.identity.retired).await.map_err(|e| failed(&e))?;
            now.identity.raft = Some(id);
            if let Err(error) = self.store(now).await {
                now.identity.raft = None;
                return Err(failed(&error));
            }
        }
        self.log(now).await.map_err(|e| failed(&e))?;
        match self.start(now, id, order.managers.clone()).await {
            Ok(()) => Ok(reply),
            Err(error) => match end_of(&error) {
                Some(end) => {
                    self.retire(now, end).await;
                    Err(Failure::new(Code::Retired, format!("this node has parked what it had of Raft id {id}")))
                }
                None => {
                    self.try_again(now, id, order.managers);
                    Err(failed(&error))
                }
            },
        }
    }

    /// The log is there, and the identity says that it was begun.
    async fn log(&self, now: &mut Now) -> Result<(), DaemonError> {
        let (ground, mut identity) = (self.ground.clone(), now.identity.clone());
        let begun = tokio::task::spawn_blocking(move || {
            begin_log(&ground.data, &ground.layout, &mut identity)?;
            Ok::<_, DaemonError>(identity)
        });
        now.identity = begun.await.map_err(|e| DaemonError::Config(e.to_string()))??;
        Ok(())
    }

    /// Whether a manager of this cluster asks, by what this node knows of it.
    fn judge(&self, caller: &Caller) -> Result<(), Failure> {
        let Caller::Node { id, .. } = caller else {
            return Err(Failure::new(Code::Unauthenticated, "only managers of the cluster may ask this"));
        };
        if self.shared().is_some_and(|shared| shared.inventory().is_out(*id)) {
            return Err(Failure::new(Code::NodeRemoved, format!("node {id} is none of the cluster any more")));
        }
        let asked_as = self.role_of(*id);
        if asked_as != Some(ClusterRole::Manager) {
            // A new manager may be newer than what the managers said last.
            self.ground.own.ask_soon();
        }
        match asked_as {
            Some(ClusterRole::Manager) => Ok(()),
            Some(ClusterRole::Worker) => {
                Err(Failure::new(Code::Forbidden, format!("node {id} is no manager by what this node knows")))
            }
            None => Err(Failure::new(Code::Retry, format!("this node does not know node {id} yet"))),
        }
    }

    /// A manager by either of what the agent was told and what is applied here is one.
    fn role_of(&self, node: NodeId) -> Option<ClusterRole> {
        let applied = self.shared().and_then(|shared| shared.inventory().node(node).map(|n| n.role));
        let told = self.ground.own.role_of(node);
        [applied, told].into_iter().flatten().max_by_key(|role| *role == ClusterRole::Manager)
    }

    fn meant(&self, order: &ManageRequest) -> Result<(), Failure> {
        let (own, epoch) = (self.ground.own.id(), self.ground.own.epoch());
        let (code, text) = if order.cluster != own.cluster {
            (Code::WrongCluster, format!("an order of cluster {}, this is {}", order.cluster, own.cluster))
        } else if order.epoch != epoch {
            if order.epoch > epoch {
                self.ground.own.ask_soon(); // its managers say whether that is so
            }
            (Code::WrongEpoch, format!("an order of epoch {}, this is epoch {epoch}", order.epoch))
        } else if order.node != own.id {
            (Code::WrongNode, format!("an order for node {}, this is node {}", order.node, own.id))
        } else if order.managers.len() > MANAGERS_MAX {
            (Code::BadRequest, format!("more than {MANAGERS_MAX} managers"))
        } else {
            return Ok(());
        };
        Err(Failure::new(code, text))
    }
}

/// Whether a part that could not be started never will be.
fn end_of(error: &DaemonError) -> Option<End> {
    match error {
        DaemonError::Retired(_) => Some(End::Retired),
        DaemonError::Stale(why) => Some(End::Stale(why.clone())),
        _ => None,
    }
}

/// What is answered at the API address where no manager part runs, beside the order to run one.
fn idle(ground: &Ground, identity: &Identity) -> Router {
    let former = identity.retired.map(|_| agent::former_manager(ground.own.clone()));
    wire::finish(former.unwrap_or_default().merge(agent::no_desk(ground.own.clone())))
}

/// A manager's own agent learns at once who the managers are: when this one is none any more, it says so to those that ask it.
async fn tell_agent(mut state: watch::Receiver<Arc<Inventory>>, own: Own) {
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

/// The order: answered once the part runs. One that is begun is carried out, whether its asker waits or not.
async fn manage(
    State(manage): State<Manage>,
    caller: Caller,
    Json(order): Json<ManageRequest>,
) -> Result<axum::Json<ManageReply>, Failure> {
    manage.judge(&caller)?;
    manage.meant(&order)?;
    let Ok(mut now) = manage.state.clone().try_lock_owned() else {
        return Err(Failure::new(Code::Retry, "a manager part is being started or stopped here"));
    };
    let taken = tokio::spawn(async move { manage.take(&mut now, order).await });
    let taken = taken.await.map_err(|_| Failure::new(Code::Internal, "a task of this node ended early"))?;
    taken.map(axum::Json)
}

/// What a manager says has no effect but that the agent asks soon.
async fn ask(State(manage): State<Manage>, caller: Caller) -> Result<(), Failure> {
    manage.judge(&caller)?;
    manage.ground.own.ask_soon();
    Ok(())
}

/// Disk work beside the thread of the agent.
async fn apart<T: Send + 'static>(
    what: &'static str,
    layout: &Layout,
    work: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(DiskError::io(what, &layout.0)(std::io::Error::other(e))))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
