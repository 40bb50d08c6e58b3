//! The state machine for openraft. It applies entries in memory, publishes the state, and builds
//! snapshots from a published state.

use super::StateMachine;
use super::error::RaftError;
use super::snapshot::{Image, RaftSnapshot, SnapshotFile};
use super::types::{LogId, SnapshotMeta, StoredMembership, Types};
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{BasicNode, EntryPayload, Membership, RaftSnapshotBuilder};
use remoor_model::error_with_causes;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// An item of the feed of applied entries. The items are in log order.
pub enum News<S: StateMachine> {
    Applied(AppliedEntry<S>),
    /// A snapshot replaced the entries up to `index`. The feed does not contain these entries, but
    /// the published state contains their effects.
    Resync {
        index: u64,
    },
}

/// An applied entry. When the entry arrives in the feed, the published state already includes it.
pub struct AppliedEntry<S: StateMachine> {
    /// Log index. The feed has no items for changes of the membership and of the leader, so it
    /// skips their indexes.
    pub index: u64,
    pub entry: Arc<S::Entry>,
    pub applied: S::Applied,
}

/// The applied state, and the channels that publish it.
pub struct Machine<S: StateMachine> {
    file: SnapshotFile,
    state: Arc<S>,
    applied: Option<LogId<S>>,
    membership: StoredMembership<S>,
    publish: Published<S>,
    feed: mpsc::UnboundedSender<News<S>>,
    /// Whether applied entries are sent to the feed. False while the log is replayed at start.
    announce: Arc<AtomicBool>,
}

/// Publishes the latest state. Readers get it immediately. Waiters are notified at most every 5 ms,
/// because one notification for each entry of a burst would wake a dozen waiters each time.
struct Published<S> {
    state: watch::Sender<Arc<S>>,
    /// The time of the last notification of the waiters, or of the next one if it is scheduled.
    last_notified: Option<Instant>,
    /// Whether a task will notify the waiters soon.
    notify_scheduled: Arc<AtomicBool>,
}

/// The first and the longest pause before a snapshot is written again.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Minimum time between two notifications of the waiters.
const PAUSE: Duration = Duration::from_millis(5);

impl<S: StateMachine> Published<S> {
    fn set(&mut self, state: Arc<S>) {
        let at_once =
            self.last_notified.is_none_or(|at| at.elapsed() >= PAUSE) && !self.notify_scheduled.load(Ordering::Acquire);
        self.state.send_if_modified(|published| {
            *published = state;
            at_once
        });
        if at_once {
            self.last_notified = Some(Instant::now());
        } else if !self.notify_scheduled.swap(true, Ordering::AcqRel) {
            self.last_notified = Some(Instant::now() + PAUSE);
            let (state, due) = (self.state.clone(), self.notify_scheduled.clone());
            tokio::spawn(async move {
                tokio::time::sleep(PAUSE).await;
                due.store(false, Ordering::Release);
                state.send_modify(|_| {});
            });
        }
    }
}

impl<S: StateMachine> Machine<S> {
    /// Starts from the snapshot in `file`, or with an empty state if there is no snapshot.
    pub fn open(
        file: SnapshotFile,
        publish: watch::Sender<Arc<S>>,
        feed: mpsc::UnboundedSender<News<S>>,
        announce: Arc<AtomicBool>,
    ) -> Result<Self, RaftError> {
        let mut machine = Self {
            state: Arc::default(),
            applied: None,
            membership: StoredMembership::<S>::default(),
            publish: Published { state: publish, last_notified: None, notify_scheduled: Arc::default() },
            feed,
            announce,
            file,
        };
        if let Some(snapshot) = machine.file.load::<S>()? {
            machine.replace(&snapshot.meta, snapshot.snapshot.state);
        }
        Ok(machine)
    }

    /// The log id up to which the state has applied entries.
    pub fn last_applied(&self) -> Option<LogId<S>> {
        self.applied
    }

    /// The last applied list of members.
    pub fn members(&self) -> &Membership<u64, BasicNode> {
        self.membership.membership()
    }

    fn replace(&mut self, meta: &SnapshotMeta<S>, state: Arc<S>) {
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.state = state;
        self.publish.set(self.state.clone());
    }
}

impl<S: StateMachine> RaftStateMachine<Types<S>> for Machine<S> {
    type SnapshotData = Image<S>;
    type SnapshotBuilder = Builder<S>;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId<S>>, StoredMembership<S>)> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<E>(&mut self, mut entries: E) -> io::Result<()>
    where
        E: Stream<Item = io::Result<EntryResponder<Types<S>>>> + Unpin + Send,
    {
        // Clone the state once for each batch, because the watch holds the previous state. Answers
        // wait until the new state is published, so that a proposer finds its own entry in it.
        let mut announced = Vec::new();
        let mut answers = Vec::new();
        let mut failed = Ok(());
        while let Some(next) = entries.next().await {
            let (entry, responder) = match next {
                Ok(next) => next,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            };
            let index = entry.log_id.index;
            let answer = match entry.payload {
                EntryPayload::Blank => None,
                EntryPayload::Normal(command) => {
                    let applied = Arc::make_mut(&mut self.state).apply(index, &command.0);
                    announced.push(AppliedEntry { index, entry: command.0, applied: applied.clone() });
                    Some(applied)
                }
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::<S>::new(Some(entry.log_id), membership);
                    None
                }
            };
            self.applied = Some(entry.log_id);
            answers.extend(responder.map(|responder| (responder, answer)));
        }
        self.publish.set(self.state.clone());
        if self.announce.load(Ordering::Acquire) {
            for entry in announced {
                // An error means that the receiver is gone, because its owner is shutting down.
                let _ = self.feed.send(News::Applied(entry));
            }
        }
        for (responder, answer) in answers {
            responder.send(answer);
        }
        failed
    }

    async fn get_snapshot_builder(&mut self) -> Builder<S> {
        Builder {
            file: self.file.clone(),
            meta: SnapshotMeta::<S> { last_log_id: self.applied, last_membership: self.membership.clone() },
            state: self.state.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta<S>, image: Image<S>) -> io::Result<()> {
        store_until_done::<S>(&self.file, meta, &image.bytes).await;
        self.replace(meta, image.state);
        if self.announce.load(Ordering::Acquire) {
            // An error means that the receiver is gone, because its owner is shutting down.
            let _ = self.feed.send(News::Resync { index: meta.last_log_id.map_or(0, |id| id.index) });
        }
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot<S>>> {
        let file = self.file.clone();
        match run_blocking(move || file.load::<S>().map_err(io::Error::other)).await {
            Ok(found) => Ok(found),
            // The file was readable at the start, and can't be read now. A snapshot of the present
            // state replaces it.
            Err(error) => {
                tracing::error!(%error, "the snapshot can't be read; a new one is made");
                let builder = self.get_snapshot_builder().await;
                let made = builder.encode().await?;
                // openraft applies no entry meanwhile. So the write is not repeated, and its error
                // ends the manager.
                store::<S>(&builder.file, &made.meta, &made.snapshot.bytes).await?;
                Ok(Some(made))
            }
        }
    }
}

/// Encodes and stores one published state. Meanwhile the machine continues to apply entries.
pub struct Builder<S: StateMachine> {
    file: SnapshotFile,
    meta: SnapshotMeta<S>,
    state: Arc<S>,
}

impl<S: StateMachine> RaftSnapshotBuilder<Types<S>> for Builder<S> {
    type SnapshotData = Image<S>;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot<S>> {
        let made = self.encode().await?;
        store_until_done::<S>(&self.file, &made.meta, &made.snapshot.bytes).await;
        Ok(made)
    }
}

impl<S: StateMachine> Builder<S> {
    async fn encode(&self) -> io::Result<RaftSnapshot<S>> {
        let state = self.state.clone();
        let snapshot = run_blocking(move || Image::encode(state)).await?;
        Ok(RaftSnapshot::<S> { meta: self.meta.clone(), snapshot })
    }
}

async fn store<S: StateMachine>(file: &SnapshotFile, meta: &SnapshotMeta<S>, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
    let (file, meta, bytes) = (file.clone(), meta.clone(), bytes.clone());
    run_blocking(move || file.store::<S>(&meta, &bytes)).await
}

/// Stores a snapshot. If the snapshot can't be written, for example because the disk is full, the
/// write is repeated until it succeeds or the manager ends. An error would stop the whole manager,
/// although decisions need only the log. Until the snapshot is written, the log keeps all entries.
async fn store_until_done<S: StateMachine>(file: &SnapshotFile, meta: &SnapshotMeta<S>, bytes: &Arc<Vec<u8>>) {
    let mut pause = RETRY_FIRST;
    loop {
        let Err(error) = store::<S>(file, meta, bytes).await else { return };
        tracing::warn!(
            error = error_with_causes(&error),
            retry_s = pause.as_secs(),
            "a snapshot can't be written: the manager works, but its log grows; next: look at the disk of this machine"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
