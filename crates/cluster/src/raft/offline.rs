//! Works on the log of a member that is not running: reads the last state, and starts a new cluster
//! from a state.
//!
//! It serves the recovery without a quorum and the restoring of a backup. The caller decides
//! whether such an operation is allowed, and increments the epoch. The old directory is only read.

use super::StateMachine;
use super::error::RaftError;
use super::handle::{self, RaftConfig};
use super::log::{self, Owner};
use super::record;
use super::snapshot::{Image, SnapshotFile};
use super::types::{LogId, SnapshotMeta, StoredMembership, Vote};
use super::writer::{self, Slot};
use openraft::impls::leader_id_adv::LeaderId;
use openraft::{BasicNode, EntryPayload, Membership};
use remoor_host::disk::{DiskError, sync_dir};
use remoor_model::RaftId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::{mpsc, watch};

/// A state and its position in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastState<S> {
    pub state: S,
    /// Index of the last entry in the state. `term` is the term of that entry.
    pub index: u64,
    pub term: u64,
    /// The voters of the last list of members, with addresses. While a change of the voters is half
    /// done, these are the voters of both lists.
    pub voters: BTreeMap<RaftId, String>,
}

/// Reads the log of `cfg` and applies all its entries. No process may have the log open.
///
/// Entries that are not known to be committed are applied too. They may have been acknowledged by a
/// leader that is lost, and such entries must not be lost. Of several surviving directories, use
/// the one with the greatest (term, index).
pub async fn last_state<S: StateMachine>(cfg: &RaftConfig) -> Result<LastState<S>, RaftError> {
    let (publish, state) = watch::channel(Arc::<S>::default());
    let (feed, _) = mpsc::unbounded_channel();
    let read = cfg.clone();
    let opened =
        tokio::task::spawn_blocking(move || handle::open::<S>(&read, publish, feed, Arc::new(AtomicBool::new(false))));
    let (log, machine) = opened.await.map_err(|e| RaftError::Stopped { why: e.to_string() })??;
    let mut state = S::clone(&state.borrow());
    let mut last = machine.last_applied();
    let mut members = machine.members().clone();
    for entry in log.range(last.map_or(0, |id| id.index + 1).., usize::MAX) {
        match &entry.payload {
            EntryPayload::Normal(command) => {
                state.apply(entry.log_id.index, &command.0);
            }
            EntryPayload::Membership(list) => members = list.clone(),
            EntryPayload::Blank => {}
        }
        last = Some(entry.log_id);
    }
    log.close().await;
    let (index, term) = last.map_or((0, 0), |id| (id.index, id.leader_id.term));
    let votes: BTreeSet<u64> = members.voter_ids().collect();
    let voters = members.nodes().filter(|(id, _)| votes.contains(id));
    let voters = voters.map(|(id, node)| (RaftId(*id), node.addr.clone())).collect();
    Ok(LastState { state, index, term, voters })
}

/// The index of the last entry in the log of `cfg`, or of the last purged entry if the log is
/// empty. No process may have the log open. Blocks.
pub fn last_index<S: StateMachine>(cfg: &RaftConfig) -> Result<u64, RaftError> {
    let path = cfg.dir.join(log::FILE);
    let (_, stored) = writer::open(&path)?;
    let purged = stored.get(Slot::Purged).map(record::decode::<LogId<S>>).transpose();
    let purged = purged.map_err(|why| RaftError::Corrupt { path, why })?;
    let last = stored.log.last_key_value().map(|(index, _)| *index);
    Ok(last.max(purged.map(|id| id.index)).unwrap_or(0))
}

/// Creates a log in the directory of `cfg` for a cluster whose single voter is `cfg.id` at `addr`.
/// The directory must not contain a log.
///
/// The log continues from `last`, so that indexes, and the ids derived from them, are never
/// assigned twice. `cfg.epoch` must be a new epoch, so that members of the former cluster are
/// rejected. After an error the directory contains no log that can be opened.
pub fn seed<S: StateMachine>(cfg: &RaftConfig, addr: String, last: LastState<S>) -> Result<(), RaftError> {
    std::fs::create_dir_all(&cfg.dir).map_err(DiskError::io("creating directory", &cfg.dir))?;
    let (log_path, snapshot_path) = (cfg.dir.join(log::FILE), cfg.dir.join("snapshot"));
    for path in [&log_path, &snapshot_path] {
        if path.exists() {
            return Err(RaftError::InitializeRefused { why: format!("{} exists", path.display()) });
        }
    }
    let id = cfg.id.0;
    let at = LogId::<S>::new(LeaderId { term: last.term, node_id: id }, last.index);
    let nodes = BTreeMap::from([(id, BasicNode { addr })]);
    let membership = Membership::new(vec![BTreeSet::from([id])], nodes)
        .map_err(|e| RaftError::InitializeRefused { why: e.to_string() })?;
    let meta =
        SnapshotMeta::<S> { last_log_id: Some(at), last_membership: StoredMembership::<S>::new(Some(at), membership) };
    let encoding = |e| RaftError::from(DiskError::io("encoding the state for", &cfg.dir)(e));
    let image = Image::encode(Arc::new(last.state)).map_err(encoding)?;
    SnapshotFile::new(&snapshot_path)
        .store::<S>(&meta, &image.bytes)
        .map_err(DiskError::io("writing", &snapshot_path))?;
    let owner = record::encode(&Owner::for_config(cfg)).map_err(encoding)?;
    let purged = record::encode(&at).map_err(encoding)?;
    let vote = record::encode(&Vote::<S>::new(last.term, id)).map_err(encoding)?;
    writer::create(&log_path, &[(Slot::Owner, owner), (Slot::Purged, purged), (Slot::Vote, vote)])?;
    Ok(sync_dir(cfg.dir.parent().unwrap_or(&cfg.dir))?)
}
