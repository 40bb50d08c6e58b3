//! [`Raft`], the handle for the rest of the program: start, propose, read, answer other members,
//! stop.

use super::error::{ProposeError, RaftError, ReadError};
use super::incarnation_table::IncarnationTable;
use super::log::{self, LogStore, Owner};
use super::machine::{Machine, News};
use super::network::{Network, Transport};
use super::snapshot::{Image, RaftSnapshot, SnapshotFile};
use super::status::{self, RaftStatus};
use super::types::{self, ProposedEntry, SnapshotMeta, Types, Vote};
use super::wire::{self, LocalMember, MessageAddress};
use super::{RaftTiming, StateMachine};
use crate::incarnation::IncarnationRejection;
use openraft::errors::{ClientWriteError, InitializeError, LinearizableReadError, RaftError as CoreError};
use openraft::impls::ProgressResponder;
use openraft::{BasicNode, ReadPolicy, SnapshotPolicy};
use remoor_host::disk::DiskError;
use remoor_model::{ClusterId, Epoch, RaftId, Wall};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, RwLock, mpsc, watch};

/// Maximum wait for a proposal. After this time the outcome is unknown.
const PROPOSE_MAX: Duration = Duration::from_secs(10);
/// Maximum wait for a quorum to confirm a read.
const READ_MAX: Duration = Duration::from_secs(5);

/// openraft's handle, with the types of this project.
pub type Core<S> = openraft::Raft<Types<S>, Machine<S>>;

/// The log to open, and the member that owns it.
#[derive(Debug, Clone)]
pub struct RaftConfig {
    /// The directory of `log.redb` and `snapshot`. It is created if it does not exist. The lock of
    /// the data directory ensures that only one process uses it.
    pub dir: PathBuf,
    pub id: RaftId,
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub timing: RaftTiming,
}

/// A member of the Raft cluster. Clones are handles of the same member. Call [`Raft::shutdown`]
/// before the same directory is opened again.
pub struct Raft<S: StateMachine> {
    pub(super) inner: Arc<Inner<S>>,
}

impl<S: StateMachine> Clone for Raft<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

/// The state that all clones of [`Raft`] share.
pub(super) struct Inner<S: StateMachine> {
    pub core: Core<S>,
    pub local: LocalMember,
    pub status: watch::Receiver<RaftStatus>,
    /// The sender of `status`. Only a hand-over of the leadership may use it.
    pub publish_status: watch::Sender<RaftStatus>,
    /// The term in which this member last handed its leadership over; 0 if it never did.
    pub handed_over: Arc<AtomicU64>,
    /// Locked during a change of members.
    pub change: Mutex<()>,
    /// Locked while a snapshot that the leader sent is written.
    pub installing: Arc<Mutex<()>>,
    /// Proposals hold the lock shared while they are passed to the core. While it is held
    /// exclusively, no proposal enters the log.
    pub proposal_gate: RwLock<()>,
    pub log: LogStore<S>,
    state: watch::Receiver<Arc<S>>,
    /// The time at which entries or a heartbeat of a leader were last accepted. At first the time
    /// of the start.
    last_leader_contact: std::sync::Mutex<Instant>,
}

impl<S: StateMachine> Raft<S> {
    /// Opens the log in `cfg.dir` and takes part from then on. A member with an empty directory
    /// waits until it is initialised or added.
    ///
    /// The state is restored from the snapshot and from the entries that are known to be committed.
    /// The feed of applied entries does not contain the restored ones. It contains every entry that
    /// is applied later, in log order. If a snapshot from the leader replaces entries, the feed
    /// contains `Resync`, and its reader must read the state again. After an error nothing runs and
    /// nothing on disk has changed.
    pub async fn start(
        cfg: RaftConfig,
        transport: Arc<dyn Transport>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<News<S>>), RaftError> {
        Self::start_asking(cfg, transport, async |_| Ok(())).await
    }

    /// Like [`Raft::start`], but first calls `ask` with a message like that of [`Raft::claim`],
    /// which `ask` sends to any other member. The member neither votes nor answers while `ask`
    /// runs. If `ask` returns an error, the member does not start.
    pub async fn start_asking<E: From<RaftError>>(
        cfg: RaftConfig,
        transport: Arc<dyn Transport>,
        ask: impl AsyncFnOnce(Vec<u8>) -> Result<(), E>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<News<S>>), E> {
        let settings = Arc::new(settings(&cfg)?);
        let (publish, state) = watch::channel(Arc::<S>::default());
        let (feed, entries) = mpsc::unbounded_channel();
        let announce = Arc::new(AtomicBool::new(false));
        let (log, machine, lives) = {
            let announce = announce.clone();
            let cfg = cfg.clone();
            let opening = move || {
                let (log, machine) = open::<S>(&cfg, publish, feed, announce)?;
                let lives = IncarnationTable::begin(&cfg.dir, log.log_mark(), log.durable_log());
                Ok::<_, RaftError>((log, machine, lives))
            };
            let opened = tokio::task::spawn_blocking(opening).await;
            opened.map_err(|e| RaftError::Stopped { why: e.to_string() })??
        };
        let asked = async {
            let lives = Arc::new(lives?);
            let us = LocalMember { cluster: cfg.cluster.clone(), epoch: cfg.epoch, id: cfg.id, incarnations: lives };
            ask(claim(&us, RaftId(0))?).await?;
            Ok(us)
        };
        let us = match asked.await {
            Ok(us) => us,
            Err(error) => {
                log.close().await;
                return Err(error);
            }
        };
        let network = Network { local: us.clone(), transport, timing: cfg.timing.clone() };
        let core = match openraft::Raft::build(cfg.id.0, settings, network, log.clone(), machine).await {
            Ok(core) => core,
            Err(error) => {
                log.close().await;
                return Err(RaftError::Corrupt { path: cfg.dir, why: error.to_string() }.into());
            }
        };
        announce.store(true, Ordering::Release);
        core.run();
        let lease = Duration::from_millis(cfg.timing.election_max_ms);
        let tick = Duration::from_millis(cfg.timing.heartbeat_ms);
        let metrics = core.metrics();
        let first = {
            use openraft::async_runtime::WatchReceiver;
            let report = metrics.borrow_watched().clone();
            status::project::<S>(&report, lease)
        };
        let (status, followed) = watch::channel(first);
        let led = std::sync::Mutex::new(Instant::now());
        let (change, door) = (Mutex::new(()), RwLock::new(()));
        let handed_over = Arc::new(AtomicU64::new(0));
        let inner = Arc::new(Inner {
            core,
            local: us,
            status: followed,
            publish_status: status.clone(),
            handed_over: handed_over.clone(),
            change,
            installing: Arc::default(),
            proposal_gate: door,
            log,
            state,
            last_leader_contact: led,
        });
        // The task ends by itself when openraft's core ends.
        let followed = (status, handed_over);
        tokio::spawn(status::follow::<S>(metrics, Arc::downgrade(&inner), followed, tick, lease));
        Ok((Self { inner }, entries))
    }

    /// Makes this member the only voter of a new cluster. Only the founder, Raft id 1, may do so,
    /// and only with an empty log.
    pub async fn initialize(&self, addr: String) -> Result<(), RaftError> {
        let id = self.inner.local.id;
        if id != RaftId(1) {
            return Err(RaftError::InitializeRefused { why: format!("this is raft id {id}, only the founder 1 may") });
        }
        let members = BTreeMap::from([(id.0, BasicNode { addr })]);
        self.inner.core.initialize(members).await.map_err(|e| match e {
            CoreError::APIError(InitializeError::NotAllowed(_)) => {
                RaftError::InitializeRefused { why: "the log is not empty".to_owned() }
            }
            CoreError::APIError(other) => RaftError::InitializeRefused { why: other.to_string() },
            CoreError::Fatal(fatal) => RaftError::Stopped { why: fatal.to_string() },
        })
    }

    /// Appends `entry` and waits until it is committed and applied here, at most 10 s. Returns the
    /// entry's index and the result of applying it.
    pub async fn propose(&self, entry: S::Entry) -> Result<(u64, S::Applied), ProposeError> {
        self.write(None, entry).await
    }

    /// Like [`Raft::propose`], but only if this member still leads in `term`. A leader that lost
    /// leadership and got it again must read the state before it acts.
    pub async fn propose_in(&self, term: u64, entry: S::Entry) -> Result<(u64, S::Applied), ProposeError> {
        self.write(Some(term), entry).await
    }

    async fn write(&self, term: Option<u64>, entry: S::Entry) -> Result<(u64, S::Applied), ProposeError> {
        let ours = self.inner.local.id;
        let (responder, answer) = ProgressResponder::complete_only();
        let mut request = self.inner.core.write(ProposedEntry(Arc::new(entry))).responder(responder);
        if let Some(term) = term {
            request = request.with_leader(openraft::impls::leader_id_adv::LeaderId { term, node_id: ours.0 });
        }
        let unknown = |why: String| ProposeError::Unknown { why };
        let written = tokio::time::timeout(PROPOSE_MAX, async {
            let open = self.inner.proposal_gate.read().await;
            request.await.map_err(|fatal| unknown(fatal.to_string()))?;
            drop(open);
            answer.await.map_err(|_| unknown("raft has stopped".to_owned()))
        });
        let answer = match written.await {
            Ok(answer) => answer?,
            Err(_) => return Err(unknown(format!("no answer within {} s", PROPOSE_MAX.as_secs()))),
        };
        match answer {
            Ok(response) => match response.data {
                Some(applied) => Ok((response.log_id.index, applied)),
                None => Err(unknown("the entry was applied without a result".to_owned())),
            },
            Err(ClientWriteError::ForwardToLeader(forward)) => {
                Err(ProposeError::NotLeader { leader: types::leader::<S>(&forward, ours) })
            }
            Err(other) => Err(unknown(other.to_string())),
        }
    }

    /// The latest state that this member has applied. Every member has one, also a follower.
    pub fn state(&self) -> watch::Receiver<Arc<S>> {
        self.inner.state.clone()
    }

    /// This member's view of itself and of the other members.
    pub fn status(&self) -> watch::Receiver<RaftStatus> {
        self.inner.status.clone()
    }

    /// Returns once the state here includes everything that any member acknowledged before the
    /// call. It works on the leader only, and a quorum must confirm the read within 5 s.
    pub async fn linearizable(&self) -> Result<(), ReadError> {
        let read = self.inner.core.ensure_linearizable(ReadPolicy::ReadIndex);
        match tokio::time::timeout(READ_MAX, read).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(CoreError::APIError(LinearizableReadError::ForwardToLeader(forward)))) => {
                match types::leader::<S>(&forward, self.inner.local.id) {
                    Some(leader) => Err(ReadError::NotLeader { leader }),
                    None => Err(ReadError::NoQuorum { why: "no leader is known".to_owned() }),
                }
            }
            Ok(Err(CoreError::APIError(LinearizableReadError::QuorumNotEnough(few)))) => {
                Err(ReadError::NoQuorum { why: format!("answered: {:?}", few.got) })
            }
            Ok(Err(CoreError::Fatal(fatal))) => Err(ReadError::Stopped { why: fatal.to_string() }),
            Err(_) => Err(ReadError::NoQuorum { why: format!("no answer within {} s", READ_MAX.as_secs()) }),
        }
    }

    /// Term and index of the last entry of the log here, committed or not. Of two members, the one
    /// with the greater pair has the longer log.
    pub fn last_entry(&self) -> Option<(u64, u64)> {
        self.inner.log.last()
    }

    /// The epoch in which this member takes part.
    pub fn epoch(&self) -> Epoch {
        self.inner.local.epoch
    }

    /// Time since the last message from a leader, or since the start if there was none.
    pub fn time_without_leader(&self) -> Duration {
        self.inner.last_leader_contact.lock().unwrap_or_else(|p| p.into_inner()).elapsed()
    }

    /// A message without a body that identifies this member. The receiver answers whether this
    /// member's Raft id is still valid.
    ///
    /// Only member `to` answers the message. If `to` is 0, any receiver answers. This is for a
    /// member with an empty log, which knows no ids.
    pub fn claim(&self, to: RaftId) -> Result<Vec<u8>, RaftError> {
        claim(&self.inner.local, to)
    }

    /// Reads the sender that a request names. The result is an error if the request is not of this
    /// cluster and epoch, or not for this member. The caller compares the sender with the
    /// certificate, and then calls [`Raft::admit`].
    pub fn sender(&self, body: &[u8]) -> Result<MessageAddress, RaftError> {
        let address = wire::sender_of(body)?;
        let us = &self.inner.local;
        address.check_cluster(us)?;
        if address.to != RaftId(0) && address.to != us.id {
            return Err(RaftError::WrongTarget { found: address.to, ours: us.id });
        }
        Ok(address)
    }

    /// Checks whether the sender's data directory is its latest one. Before the call, the caller
    /// must have verified that the sender holds the Raft id.
    pub async fn admit(&self, sender: &MessageAddress) -> Result<(), RaftError> {
        self.inner.local.incarnations.check_claim(sender.from, sender.claim).await
    }

    /// Members whose last claim was rejected, because their data directory is a copy or outdated.
    /// Rejections from before the start of this member are not included. The values are the reason,
    /// and the time at which the accepted incarnation was first met.
    pub fn refusals(&self) -> BTreeMap<RaftId, (String, Wall)> {
        let told = |refused: IncarnationRejection| (refused.reason.to_string(), refused.since);
        self.inner.local.incarnations.rejections().into_iter().map(|(id, refused)| (id, told(refused))).collect()
    }

    /// Saves the log marks that the other members reported, so that they are known after a restart.
    pub async fn save_incarnations(&self) {
        self.inner.local.incarnations.save().await;
    }

    /// The server side of [`Transport`]. Handles a request of another member and returns the
    /// answer, which the caller sends back.
    pub async fn handle(&self, kind: &str, body: Vec<u8>) -> Result<Vec<u8>, RaftError> {
        let us = &self.inner.local;
        let core = &self.inner.core;
        let stopped = |e: &dyn std::fmt::Display| RaftError::Stopped { why: e.to_string() };
        let reply = match kind {
            "append" => {
                let (request, _) = wire::open_request(&body, us)?;
                wire::reply(&core.append_entries(request).await.map_err(|e| stopped(&e))?, us)
            }
            "vote" => {
                let (request, _) = wire::open_request(&body, us)?;
                wire::reply(&core.vote(request).await.map_err(|e| stopped(&e))?, us)
            }
            "pre-vote" => {
                let (request, _) = wire::open_request(&body, us)?;
                wire::reply(&core.pre_vote(request).await.map_err(|e| stopped(&e))?, us)
            }
            "snapshot" => {
                let ((vote, meta), state): ((Vote<S>, SnapshotMeta<S>), _) = wire::open_request(&body, us)?;
                let image = Image::decode(state.to_vec()).map_err(|why| RaftError::BadMessage { why })?;
                let snapshot = RaftSnapshot::<S> { meta, snapshot: image };
                // While the disk is full, the first snapshot is written again and again. Further
                // snapshots would wait for it in memory, also after their senders have given up.
                let installing = self.inner.installing.clone();
                let turn = installing.try_lock_owned().map_err(|_| RaftError::SnapshotUnderWay)?;
                let core = core.clone();
                let installed = tokio::spawn(async move {
                    let _turn = turn;
                    core.install_full_snapshot(vote, snapshot).await
                });
                let installed = installed.await.map_err(|e| stopped(&e))?;
                wire::reply(&installed.map_err(|e| stopped(&e))?, us)
            }
            "transfer" => {
                let (request, _) = wire::open_request(&body, us)?;
                wire::reply(&core.handle_transfer_leader(request).await.map_err(|e| stopped(&e))?, us)
            }
            other => Err(RaftError::BadMessage { why: format!("unknown kind {other:?}") }),
        }?;
        if matches!(kind, "append" | "snapshot") {
            *self.inner.last_leader_contact.lock().unwrap_or_else(|p| p.into_inner()) = Instant::now();
        }
        Ok(reply)
    }

    /// Stops taking part, writes the queued log operations and closes the files. After this
    /// function returned, the files may be opened again.
    pub async fn shutdown(&self) {
        if let Err(error) = self.inner.core.shutdown().await {
            tracing::warn!(%error, "raft did not end cleanly");
        }
        self.inner.log.close().await;
    }
}

/// Creates the empty log of a member that takes part for the first time. It is on disk when this
/// returns. If `begun` is set, the log must already exist, and nothing is created. The same holds
/// for the founder, whose log `init` created. Blocks.
pub fn begin_log(cfg: &RaftConfig, begun: bool) -> Result<(), RaftError> {
    let file = cfg.dir.join(log::FILE);
    if file.exists() {
        return Ok(());
    }
    if begun || cfg.id == RaftId(1) || cfg.dir.join("snapshot").exists() {
        let data = cfg.dir.parent().unwrap_or(&cfg.dir).to_owned();
        return Err(RaftError::Gone { file, data });
    }
    std::fs::create_dir_all(&cfg.dir).map_err(DiskError::io("creating directory", &cfg.dir))?;
    log::create(&file, &Owner::for_config(cfg))?;
    remoor_host::disk::sync_dir(cfg.dir.parent().unwrap_or(&cfg.dir))?;
    Ok(())
}

fn claim(us: &LocalMember, to: RaftId) -> Result<Vec<u8>, RaftError> {
    wire::request(&us.address(to), &(), &[]).map_err(|e| RaftError::BadMessage { why: e.to_string() })
}

type Opened<S> = (LogStore<S>, Machine<S>);

/// Opens the log and the snapshot, and checks that they belong together. Blocks.
pub(super) fn open<S: StateMachine>(
    cfg: &RaftConfig,
    publish: watch::Sender<Arc<S>>,
    feed: mpsc::UnboundedSender<News<S>>,
    announce: Arc<AtomicBool>,
) -> Result<Opened<S>, RaftError> {
    std::fs::create_dir_all(&cfg.dir).map_err(DiskError::io("creating directory", &cfg.dir))?;
    let (log_path, snapshot_path) = (cfg.dir.join(log::FILE), cfg.dir.join("snapshot"));
    if snapshot_path.exists() && !log_path.exists() {
        // With a new log beside an old snapshot, the member would have forgotten its vote.
        let why = "it is missing, but a snapshot exists".to_owned();
        return Err(RaftError::Corrupt { path: log_path, why });
    }
    let machine = Machine::open(SnapshotFile::new(&snapshot_path), publish, feed, announce)?;
    let log = LogStore::open(&log_path, &Owner::for_config(cfg))?;
    if let Some(purged) = log.last_purged()
        && machine.last_applied().is_none_or(|applied| applied.index < purged.index)
    {
        let why = format!("it does not include entry {}, up to which the log was purged", purged.index);
        return Err(RaftError::Corrupt { path: snapshot_path, why });
    }
    Ok((log, machine))
}

fn settings(cfg: &RaftConfig) -> Result<openraft::Config, RaftError> {
    let timing = &cfg.timing;
    let settings = openraft::Config {
        cluster_name: cfg.cluster.to_string(),
        // openraft uses this interval as the deadline of a heartbeat's answer. `status::follow`
        // sends the heartbeats, so that they can be more frequent.
        heartbeat_interval: timing.answer_ms,
        enable_heartbeat: false,
        election_timeout_min: timing.election_min_ms,
        election_timeout_max: timing.election_max_ms,
        install_snapshot_timeout: timing.snapshot_timeout_ms,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(timing.snapshot_every),
        max_in_snapshot_log_to_keep: timing.keep,
        quorum_loss_probe_interval: Some(timing.quorum_probe_ms),
        enable_pre_vote: Some(true),
        allow_log_reversion: Some(false),
        // A leader sends entries before they are on its own disk. Without this setting, a leader
        // that crashed could continue to lead in its term and assign the ids of such entries to
        // other entries. A follower that already has the first entries would not notice the
        // difference.
        enable_leader_restore: Some(false),
        ..Default::default()
    };
    settings.validate().map_err(|e| RaftError::Settings { why: e.to_string() })
}
