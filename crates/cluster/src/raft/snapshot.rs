//! The snapshot file: the state up to one entry, with a SHA-256 over all of it. There is at most
//! one snapshot, and a new one replaces the whole file.
//!
//! Layout: the line `remoor snapshot 1` with its line end, 32 bytes of SHA-256 over the rest, 4
//! bytes length of the metadata, metadata, state.

use super::StateMachine;
use super::error::RaftError;
use super::types::{SnapshotMeta, Types};
use openraft::type_config::alias::SnapshotOf;
use remoor_host::disk::{DiskError, atomic_write};
use remoor_model::Sha256;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const MAGIC: &[u8] = b"remoor snapshot 1\n";
const SUM: usize = 32;
const LENGTH: usize = 4;

/// A state together with its encoded form.
pub struct Image<S> {
    pub bytes: Arc<Vec<u8>>,
    pub state: Arc<S>,
}

/// A snapshot as openraft handles it: metadata and image.
pub type RaftSnapshot<S> = SnapshotOf<Types<S>, Image<S>>;

impl<S: StateMachine> Image<S> {
    /// Encodes a state as MessagePack.
    pub fn encode(state: Arc<S>) -> io::Result<Self> {
        let bytes = rmp_serde::to_vec_named(&*state).map_err(io::Error::other)?;
        Ok(Self { bytes: Arc::new(bytes), state })
    }

    /// Decodes a state. The error is the reason as text.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, String> {
        let state = rmp_serde::from_slice(&bytes).map_err(|e| format!("an unreadable state: {e}"))?;
        Ok(Self { bytes: Arc::new(bytes), state: Arc::new(state) })
    }
}

/// The snapshot's file. Clones share a lock, so that an older snapshot cannot replace a newer one.
/// Calls block.
#[derive(Clone)]
pub struct SnapshotFile {
    path: PathBuf,
    /// Index of the last log entry that the file includes.
    reaches: Arc<Mutex<Option<u64>>>,
}

impl SnapshotFile {
    /// The snapshot file at `path`, which need not exist.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), reaches: Arc::default() }
    }

    /// Reads and verifies the file. None if it does not exist.
    pub fn load<S: StateMachine>(&self) -> Result<Option<RaftSnapshot<S>>, RaftError> {
        let mut reaches = self.reaches.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(DiskError::io("reading", &self.path)(e).into()),
        };
        let snapshot = parse(&bytes).map_err(|why| RaftError::Corrupt { path: self.path.clone(), why })?;
        *reaches = snapshot.meta.last_log_id.map(|id| id.index);
        Ok(Some(snapshot))
    }

    /// Replaces the file, unless it already includes a later entry. The file is on disk when this
    /// returns.
    pub fn store<S: StateMachine>(&self, meta: &SnapshotMeta<S>, state: &[u8]) -> io::Result<()> {
        let head = rmp_serde::to_vec_named(meta).map_err(io::Error::other)?;
        let length = u32::try_from(head.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(MAGIC.len() + SUM + LENGTH + head.len() + state.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; SUM]);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(state);
        let sum = Sha256::digest(&bytes[MAGIC.len() + SUM..]);
        bytes[MAGIC.len()..MAGIC.len() + SUM].copy_from_slice(&sum.0);

        let index = meta.last_log_id.map(|id| id.index);
        let mut reaches = self.reaches.lock().unwrap_or_else(PoisonError::into_inner);
        if *reaches > index {
            return Ok(());
        }
        atomic_write(&self.path, &bytes, 0o600).map_err(io::Error::other)?;
        *reaches = index;
        Ok(())
    }
}

fn parse<S: StateMachine>(bytes: &[u8]) -> Result<RaftSnapshot<S>, String> {
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or("not a snapshot of a format that this program knows: install the newer program if one wrote it")?;
    let (sum, rest) = rest.split_at_checked(SUM).ok_or("cut short")?;
    if Sha256::digest(rest).0 != sum {
        return Err("wrong checksum".to_owned());
    }
    let (length, rest) = rest.split_first_chunk::<LENGTH>().ok_or("cut short")?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, state) = rest.split_at_checked(length).ok_or("cut short")?;
    let meta = rmp_serde::from_slice(head).map_err(|e| format!("unreadable metadata: {e}"))?;
    Ok(RaftSnapshot { meta, snapshot: Image::decode(state.to_vec())? })
}
