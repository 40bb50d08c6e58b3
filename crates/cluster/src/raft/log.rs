//! The log for openraft. All entries are in memory. Every change is sent to the writer thread, in
//! order.
//!
//! Reading never uses the disk. An append is readable at once, and is acknowledged when it is
//! synced.

use super::StateMachine;
use super::error::RaftError;
use super::handle::RaftConfig;
use super::incarnation_table::DurableLogMark;
use super::record;
use super::types::{LogEntry, LogId, Types, Vote};
use super::writer::{self, Op, PendingCommit, Slot};
use crate::incarnation::LogMark;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{LogState, RaftLogReader};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Maximum encoded size of the entries in one message, in bytes. A single entry may be larger.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// The log's file name in its directory.
pub const FILE: &str = "log.redb";

/// The owner of a log. It is stored in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub cluster: String,
    pub epoch: u64,
    pub raft: u64,
}

impl Owner {
    /// The owner of the log that `cfg` describes.
    pub fn for_config(cfg: &RaftConfig) -> Self {
        Self { cluster: cfg.cluster.0.clone(), epoch: cfg.epoch.0, raft: cfg.id.0 }
    }
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "raft id {} of cluster {} in epoch {}", self.raft, self.cluster, self.epoch)
    }
}

/// A handle of the log. Clones are handles of the same log.
pub struct LogStore<S: StateMachine> {
    memory: Arc<Mutex<Memory<S>>>,
    writer: mpsc::Sender<Op>,
    /// The commit position that the writer thread has not written yet.
    pending_commit: Arc<PendingCommit>,
    durable_log: Arc<DurableLogMark>,
}

impl<S: StateMachine> Clone for LogStore<S> {
    fn clone(&self) -> Self {
        let Self { memory, writer, pending_commit: late, durable_log: kept } = self;
        Self { memory: memory.clone(), writer: writer.clone(), pending_commit: late.clone(), durable_log: kept.clone() }
    }
}

struct Memory<S: StateMachine> {
    /// The entries after `purged`, without a gap.
    entries: BTreeMap<u64, CachedEntry<S>>,
    purged: Option<LogId<S>>,
    vote: Option<Vote<S>>,
    committed: Option<LogId<S>>,
    /// `synced` is the last entry that is on disk. `truncations` counts the truncations, because an
    /// entry may be truncated before its sync is reported.
    synced: u64,
    truncations: u64,
}

impl<S: StateMachine> Memory<S> {
    fn last(&self) -> Option<LogId<S>> {
        self.entries.last_key_value().map(|(_, held)| held.entry.log_id()).or(self.purged)
    }

    /// Records in `kept` the log mark that is durable. Committed entries are never truncated, so a
    /// committed entry is durable once it is synced.
    fn record_durable(&self, kept: &DurableLogMark) {
        kept.record_index(self.committed.map_or(0, |id| id.index).min(self.synced));
    }
}

struct CachedEntry<S: StateMachine> {
    entry: LogEntry<S>,
    /// The size of the encoded entry, in bytes.
    bytes: usize,
}

impl<S: StateMachine> LogStore<S> {
    /// Opens the log at `path`. If there is none, creates an empty one. A damaged log, or a log of
    /// another owner, is rejected.
    pub fn open(path: &Path, owner: &Owner) -> Result<Self, RaftError> {
        let corrupt = |why: String| record::record_error(path, why);
        if !path.exists() {
            create(path, owner)?;
        }
        let (db, stored) = writer::open(path)?;
        let slot = |slot| stored.get(slot);
        let found: Owner = slot(Slot::Owner)
            .ok_or_else(|| "it names no owner".to_owned())
            .and_then(record::decode)
            .map_err(corrupt)?;
        if found != *owner {
            let (found, wanted) = (found.to_string(), owner.to_string());
            return Err(RaftError::Foreign { path: path.to_owned(), found, wanted });
        }
        let mut memory = Memory {
            entries: BTreeMap::new(),
            purged: optional(slot(Slot::Purged)).map_err(corrupt)?,
            vote: optional(slot(Slot::Vote)).map_err(corrupt)?,
            committed: optional(slot(Slot::Committed)).map_err(corrupt)?,
            synced: 0,
            truncations: 0,
        };
        let first = memory.purged.map_or(0, |id| id.index + 1);
        for (expected, (index, bytes)) in (first..).zip(&stored.log) {
            let entry: LogEntry<S> = record::decode(bytes).map_err(|why| corrupt(format!("entry {index}: {why}")))?;
            if *index != expected || entry.log_id.index != expected {
                return Err(corrupt(format!("entry {expected} is missing")));
            }
            memory.entries.insert(expected, CachedEntry { entry, bytes: bytes.len() });
        }
        memory.synced = memory.last().map_or(0, |id| id.index);
        let kept = Arc::new(DurableLogMark::default());
        kept.record_term(memory.vote.map_or(0, |vote| vote.leader_id.term));
        memory.record_durable(&kept);
        let (writer, late) = writer::spawn(db, path)?;
        Ok(Self { memory: Arc::new(Mutex::new(memory)), writer, pending_commit: late, durable_log: kept })
    }

    /// The last entry that was removed from the front of the log. A snapshot must include it.
    pub fn last_purged(&self) -> Option<LogId<S>> {
        self.memory().purged
    }

    /// Term and index of the last entry, committed or not.
    pub fn last(&self) -> Option<(u64, u64)> {
        self.memory().last().map(|id| (id.leader_id.term, id.index))
    }

    /// The term of the last vote and the last entry, committed or not.
    pub fn log_mark(&self) -> LogMark {
        let memory = self.memory();
        let term = memory.vote.map_or(0, |vote| vote.leader_id.term);
        LogMark { term, index: memory.last().map_or(0, |id| id.index) }
    }

    /// The mark of everything that is durably on disk. It is updated with each change.
    pub fn durable_log(&self) -> Arc<DurableLogMark> {
        self.durable_log.clone()
    }

    /// Writes queued operations and closes the file. Later operations fail. A second call is not an
    /// error.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        if self.writer.send(Op::Close { done }).await.is_ok() {
            // An error means that the thread has already ended.
            let _ = closed.await;
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory<S>> {
        // A poisoned lock is harmless, because no code below panics between two changes that belong
        // together.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, op: Op) -> io::Result<()> {
        self.writer.send(op).await.map_err(|_| io::Error::other("the replicated log is closed"))
    }

    /// The entries in `range`. The first entry is always included, and further ones while their
    /// encoded size stays within `bytes_max`.
    pub fn range(&self, range: impl RangeBounds<u64>, bytes_max: usize) -> Vec<LogEntry<S>> {
        // BTreeMap panics on an inverted range, which openraft may request.
        let empty = match (range.start_bound(), range.end_bound()) {
            (Bound::Included(a), Bound::Excluded(b)) | (Bound::Excluded(a), Bound::Included(b)) => a >= b,
            (Bound::Included(a), Bound::Included(b)) => a > b,
            (Bound::Excluded(a), Bound::Excluded(b)) => a.saturating_add(1) >= *b,
            _ => false,
        };
        if empty {
            return Vec::new();
        }
        let mut left = bytes_max;
        let memory = self.memory();
        let mut found = Vec::new();
        for held in memory.entries.range(range).map(|(_, held)| held) {
            if held.bytes > left && !found.is_empty() {
                break;
            }
            left = left.saturating_sub(held.bytes);
            found.push(held.entry.clone());
        }
        found
    }
}

/// Creates an empty log of this owner.
pub fn create(path: &Path, owner: &Owner) -> Result<(), RaftError> {
    let corrupt = |e: io::Error| RaftError::Corrupt { path: path.to_owned(), why: e.to_string() };
    writer::create(path, &[(Slot::Owner, record::encode(owner).map_err(corrupt)?)])
}

fn optional<T: DeserializeOwned>(bytes: Option<&[u8]>) -> Result<Option<T>, String> {
    bytes.map(record::decode).transpose()
}

impl<S: StateMachine> RaftLogReader<Types<S>> for LogStore<S> {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + Send>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<LogEntry<S>>> {
        Ok(self.range(range, usize::MAX))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<LogEntry<S>>> {
        Ok(self.range(start..end, MESSAGE_BYTES_MAX))
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote<S>>> {
        Ok(self.memory().vote)
    }
}

impl<S: StateMachine> RaftLogStorage<Types<S>> for LogStore<S> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types<S>>> {
        let memory = self.memory();
        Ok(LogState { last_purged_log_id: memory.purged, last_log_id: memory.last() })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<S>) -> io::Result<()> {
        let (done, synced) = oneshot::channel();
        let done: writer::WriteDone = Box::new(move |result| {
            // An error means that the receiver is gone, because openraft's core has ended.
            let _ = done.send(result);
        });
        self.write(Op::Set { slot: Slot::Vote, record: record::encode(vote)?, done }).await?;
        synced.await.map_err(|_| io::Error::other("the writer of the replicated log has ended"))??;
        self.memory().vote = Some(*vote);
        self.durable_log.record_term(vote.leader_id.term);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId<S>>) -> io::Result<()> {
        let Some(committed) = committed else { return Ok(()) };
        {
            let mut memory = self.memory();
            memory.committed = Some(committed);
            memory.record_durable(&self.durable_log);
        }
        match self.pending_commit.put(record::encode(&committed)?) {
            true => self.write(Op::Look).await,
            false => Ok(()),
        }
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId<S>>> {
        Ok(self.memory().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types<S>>) -> io::Result<()>
    where
        I: IntoIterator<Item = LogEntry<S>> + Send,
        I::IntoIter: Send,
    {
        let mut records = Vec::new();
        let mut held = Vec::new();
        for entry in entries {
            let record = record::encode(&entry)?;
            let index = entry.log_id.index;
            held.push((index, CachedEntry { entry, bytes: record.len() }));
            records.push((index, record));
        }
        let last = records.last().map_or(0, |(index, _)| *index);
        let taken_back = {
            let mut memory = self.memory();
            memory.entries.extend(held);
            memory.truncations
        };
        let (memory, kept) = (self.memory.clone(), self.durable_log.clone());
        let done: writer::WriteDone = Box::new(move |result| {
            let mut memory = memory.lock().unwrap_or_else(PoisonError::into_inner);
            if result.is_ok() && memory.truncations == taken_back {
                memory.synced = memory.synced.max(last);
                memory.record_durable(&kept);
            }
            drop(memory);
            callback.io_completed(result);
        });
        self.write(Op::Append { records, done }).await
    }

    async fn truncate_after(&mut self, last: Option<LogId<S>>) -> io::Result<()> {
        let from = last.map_or(0, |id| id.index + 1);
        {
            let mut memory = self.memory();
            memory.entries.split_off(&from);
            memory.truncations += 1;
            memory.synced = memory.synced.min(from.saturating_sub(1));
        }
        self.write(Op::Truncate { from }).await
    }

    async fn purge(&mut self, last: LogId<S>) -> io::Result<()> {
        let record = record::encode(&last)?;
        {
            let mut memory = self.memory();
            memory.entries = memory.entries.split_off(&(last.index + 1));
            memory.purged = Some(last);
        }
        self.write(Op::Purge { upto: last.index, record }).await
    }
}
