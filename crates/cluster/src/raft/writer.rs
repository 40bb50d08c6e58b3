//! The single thread that writes the log's database. It collects queued operations into one
//! transaction, syncs once, and answers all of them.
//!
//! The queue keeps the order of votes, appends, truncations and purges. After a failed write the
//! thread rejects all later operations. So no later entry can be on disk without an earlier one.

use super::error::RaftError;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// Maximum operations in one transaction, which is synced once.
const BATCH_MAX: usize = 512;
/// Maximum operations that wait for the disk: two full batches. Beyond it, the producer waits.
const QUEUE_MAX: usize = 2 * BATCH_MAX;
/// Size of redb's cache, in bytes. redb's default is up to a gigabyte, but reads use the log in
/// memory.
const CACHE_BYTES: usize = 2 << 20;
/// The commit position is written with a batch at most once in this time. If there is no batch, the
/// position is written alone after this time. It has a tree of its own, whose pages would double
/// the bytes that a batch of one entry writes.
const IDLE: Duration = Duration::from_millis(100);

/// The name of the thread that opens the database. A panic on the thread is caught and becomes an
/// error that names the file. So a panic hook that ends the process must exempt this thread.
pub const OPENING_THREAD: &str = "raft-open";

/// A function that is called once the operation is on disk or has failed.
pub type WriteDone = Box<dyn FnOnce(io::Result<()>) + Send>;

/// The name of a single value in the database, in contrast to the numbered entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// The owner of the log; written once.
    Owner,
    Vote,
    Purged,
    /// The index up to which entries are known to be committed. It is written late, so it may be
    /// slightly old after a crash.
    Committed,
}

impl Slot {
    fn key(self) -> &'static str {
        match self {
            Slot::Owner => "owner",
            Slot::Vote => "vote",
            Slot::Purged => "purged",
            Slot::Committed => "committed",
        }
    }
}

/// A change of the database.
pub enum Op {
    Append {
        records: Vec<(u64, Vec<u8>)>,
        done: WriteDone,
    },
    /// Removes all entries with this index and above.
    Truncate {
        from: u64,
    },
    /// Removes all entries up to and including this index.
    Purge {
        upto: u64,
        record: Vec<u8>,
    },
    Set {
        slot: Slot,
        record: Vec<u8>,
        done: WriteDone,
    },
    /// Wakes the thread, because a commit position must be written.
    Look,
    /// Writes the remaining operations, closes the file and ends the thread.
    Close {
        done: oneshot::Sender<()>,
    },
}

/// The content of the database when it was opened, still encoded.
#[derive(Default)]
pub struct Stored {
    pub log: BTreeMap<u64, Vec<u8>>,
    pub meta: BTreeMap<String, Vec<u8>>,
}

impl Stored {
    /// The stored value of a slot.
    pub fn get(&self, slot: Slot) -> Option<&[u8]> {
        self.meta.get(slot.key()).map(Vec::as_slice)
    }
}

/// Creates a database with these values. The file gets its final name only when it is complete, so
/// a crash leaves no empty log.
pub fn create(path: &Path, values: &[(Slot, Vec<u8>)]) -> Result<(), RaftError> {
    let unfinished = path.with_extension("new");
    match std::fs::remove_file(&unfinished) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(remoor_host::disk::DiskError::io("removing", &unfinished)(e).into());
        }
        _ => {}
    }
    let make = || -> Result<(), redb::Error> {
        let db = Database::builder().set_cache_size(CACHE_BYTES).create(&unfinished)?;
        let txn = db.begin_write()?;
        txn.open_table(LOG)?;
        {
            let mut meta = txn.open_table(META)?;
            for (slot, record) in values {
                meta.insert(slot.key(), record.as_slice())?;
            }
        }
        txn.commit()?;
        Ok(())
    };
    make().map_err(|source| RaftError::Database { path: unfinished.clone(), source })?;
    std::fs::rename(&unfinished, path).map_err(remoor_host::disk::DiskError::io("renaming to", path))?;
    remoor_host::disk::sync_dir(path.parent().unwrap_or(Path::new(".")))?;
    Ok(())
}

/// Opens an existing database and reads all of it.
pub fn open(path: &Path) -> Result<(Database, Stored), RaftError> {
    // redb would treat an empty file as a new database.
    let size = std::fs::metadata(path).map_err(remoor_host::disk::DiskError::io("reading", path))?.len();
    if size == 0 {
        return Err(RaftError::Corrupt { path: path.to_owned(), why: "the file is empty".to_owned() });
    }
    let guarded = {
        let path = path.to_owned();
        // redb panics on some damaged files. On a separate thread the panic becomes an error.
        std::thread::Builder::new().name(OPENING_THREAD.to_owned()).spawn(move || read(&path))
    };
    let corrupt = |why: String| RaftError::Corrupt { path: path.to_owned(), why };
    match guarded.map_err(remoor_host::disk::DiskError::io("starting the reader of", path))?.join() {
        Ok(Ok((db, stored, true))) => Ok((db, stored)),
        Ok(Ok((_, _, false))) => Err(corrupt("its pages are inconsistent".to_owned())),
        // redb reports unreadable files with the kinds `InvalidData` and `UnexpectedEof`. Other
        // kinds are errors of the disk.
        Ok(Err(redb::Error::Io(e)))
            if matches!(e.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
        {
            Err(corrupt(e.to_string()))
        }
        Ok(Err(source @ (redb::Error::Io(_) | redb::Error::DatabaseAlreadyOpen))) => {
            Err(RaftError::Database { path: path.to_owned(), source })
        }
        Ok(Err(other)) => Err(corrupt(other.to_string())),
        Err(_) => Err(corrupt("the database library panicked while reading it".to_owned())),
    }
}

fn read(path: &Path) -> Result<(Database, Stored, bool), redb::Error> {
    let mut db = Database::builder().set_cache_size(CACHE_BYTES).open(path)?;
    // Check all pages, also the free ones, because a wrong list of free pages would let later
    // writes destroy entries.
    let sound = db.check_integrity()?;
    let mut stored = Stored::default();
    let txn = db.begin_read()?;
    for row in txn.open_table(LOG)?.iter()? {
        let (index, record) = row?;
        stored.log.insert(index.value(), record.value().to_vec());
    }
    for row in txn.open_table(META)?.iter()? {
        let (key, record) = row?;
        stored.meta.insert(key.value().to_owned(), record.value().to_vec());
    }
    txn.close()?;
    Ok((db, stored, sound))
}

/// A commit position that waits for a later batch, because no caller waits for it.
#[derive(Default)]
pub struct PendingCommit {
    record: Mutex<Option<Vec<u8>>>,
    /// Whether the thread waits only for its queue, without a timeout.
    asleep: AtomicBool,
}

impl PendingCommit {
    /// Stores a commit position. Returns whether the caller must wake the thread for it. For a
    /// short time after entries, the thread checks for a position by itself.
    #[must_use]
    pub fn put(&self, record: Vec<u8>) -> bool {
        *self.record() = Some(record);
        self.asleep.swap(false, Ordering::AcqRel)
    }

    fn record(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the thread waits only for its queue. Returns false if a commit position is
    /// waiting; the thread must then not wait.
    fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        let empty = self.record().is_none();
        if !empty {
            self.asleep.store(false, Ordering::Release);
        }
        empty
    }
}

/// Starts the thread. It ends with `Close`, or when all senders are dropped.
pub fn spawn(db: Database, path: &Path) -> Result<(mpsc::Sender<Op>, Arc<PendingCommit>), RaftError> {
    let (tx, queue) = mpsc::channel(QUEUE_MAX);
    let late = Arc::<PendingCommit>::default();
    let writer = Writer {
        db,
        path: path.to_owned(),
        pending_commit: late.clone(),
        committed_written_at: Instant::now(),
        failed: None,
    };
    std::thread::Builder::new()
        .name("raft-log".to_owned())
        .spawn(move || writer.run(queue))
        .map_err(remoor_host::disk::DiskError::io("starting the writer of", path))?;
    Ok((tx, late))
}

struct Writer {
    db: Database,
    path: PathBuf,
    pending_commit: Arc<PendingCommit>,
    /// The time at which a commit position was last written.
    committed_written_at: Instant,
    failed: Option<String>,
}

impl Writer {
    fn run(mut self, mut queue: mpsc::Receiver<Op>) {
        // This runtime only provides waiting with a timeout. No IO and no other task runs on it.
        let clock = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(clock) => clock,
            Err(error) => {
                tracing::error!(%error, "the writer of the replicated log could not start its timer");
                return;
            }
        };
        let closed = loop {
            let first = if self.pending_commit.sleep() {
                queue.blocking_recv()
            } else {
                match clock.block_on(async { tokio::time::timeout(IDLE, queue.recv()).await }) {
                    Ok(first) => first,
                    Err(_) => {
                        self.write(Vec::new());
                        continue;
                    }
                }
            };
            let Some(first) = first else { break None };
            let (mut batch, close) = gather(first, &mut queue);
            // A `Look` only wakes this thread. The commit position waits for a batch or for `IDLE`.
            batch.retain(|op| !matches!(op, Op::Look));
            if !batch.is_empty() {
                self.write(batch);
            }
            if let Some(done) = close {
                break Some(done);
            }
        };
        if self.pending_commit.record().is_some() {
            self.write(Vec::new());
        }
        drop(queue);
        drop(self.db);
        if let Some(done) = closed {
            // An error means that the caller has stopped waiting.
            let _ = done.send(());
        }
    }

    /// Writes the batch in one transaction. If the last write of the commit position is older than
    /// `IDLE`, the transaction also contains the commit position. An empty batch writes only the
    /// commit position.
    fn write(&mut self, batch: Vec<Op>) {
        if self.failed.is_none() {
            let alone = batch.is_empty();
            let late = if alone || self.committed_written_at.elapsed() >= IDLE {
                self.pending_commit.record().take()
            } else {
                None
            };
            if alone && late.is_none() {
                return;
            }
            // A panic must not leave waiting callers without an answer.
            let committed = std::panic::catch_unwind(AssertUnwindSafe(|| self.commit(&batch, late.as_deref())));
            self.failed = match committed {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the database library panicked".to_owned()),
            };
            if let Some(why) = &self.failed {
                tracing::error!(%why, file = %self.path.display(), "writing the replicated log failed; the log is closed");
            }
            if late.is_some() {
                self.committed_written_at = Instant::now();
            }
        }
        if self.failed.is_some() {
            *self.pending_commit.record() = None;
        }
        for op in batch {
            if let Op::Append { done, .. } | Op::Set { done, .. } = op {
                done(match &self.failed {
                    None => Ok(()),
                    Some(why) => Err(io::Error::other(format!("writing {}: {why}", self.path.display()))),
                });
            }
        }
    }

    fn commit(&self, batch: &[Op], late: Option<&[u8]>) -> Result<(), redb::Error> {
        let mut txn = self.db.begin_write()?;
        txn.set_durability(redb::Durability::Immediate)?;
        {
            // Only the table of entries is opened for every batch. Most batches contain only
            // entries, and opening a table that is not used has a cost.
            let mut log = txn.open_table(LOG)?;
            let set = |slot: Slot, record: &[u8]| -> Result<(), redb::Error> {
                txn.open_table(META)?.insert(slot.key(), record)?;
                Ok(())
            };
            for op in batch {
                match op {
                    Op::Append { records, .. } => {
                        for (index, record) in records {
                            log.insert(index, record.as_slice())?;
                        }
                    }
                    Op::Truncate { from } => log.retain_in(*from.., |_, _| false)?,
                    Op::Purge { upto, record } => {
                        log.retain_in(..=*upto, |_, _| false)?;
                        set(Slot::Purged, record)?;
                    }
                    Op::Set { slot, record, .. } => set(*slot, record)?,
                    Op::Look | Op::Close { .. } => {}
                }
            }
            if let Some(record) = late {
                set(Slot::Committed, record)?;
            }
        }
        txn.commit()?;
        Ok(())
    }
}

/// Collects `first` and the queued operations, up to the size of a batch. A `Close` ends the batch.
fn gather(first: Op, queue: &mut mpsc::Receiver<Op>) -> (Vec<Op>, Option<oneshot::Sender<()>>) {
    let mut batch = Vec::new();
    let mut next = Some(first);
    while let Some(op) = next {
        if let Op::Close { done } = op {
            return (batch, Some(done));
        }
        batch.push(op);
        next = if batch.len() < BATCH_MAX { queue.try_recv().ok() } else { None };
    }
    (batch, None)
}
