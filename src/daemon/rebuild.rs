//! Turns a data directory into that of the only manager of a new epoch. After a crash before the
//! marker is written, the directory is still the old one. After a later crash, the change is
//! completed by the next start or by a repetition of the command.
//!
//! The new log is created next to the old one. Then the marker is written, and from that point the
//! change is always completed. The old log is renamed as an archive, the new log is moved into its
//! place, and the new epoch is written to the identity.

use super::admin::save_peers;
use super::archive;
use super::layout::{Layout, NodeConfig};
use crate::manager::api::managers_of;
use remoor_cluster::raft::{LastState, RaftConfig, RaftError};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_host::disk::{DataDir, DiskError, Identity, atomic_write, sync_dir};
use remoor_model::{Epoch, Inventory, RaftId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The marker file. It exists from the moment when the new log is valid until the rebuild is
/// complete.
const MARK: &str = "refounding.json";
const MARK_VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error("the data directory can't be used")]
    Disk(#[from] DiskError),
    #[error("the new log can't be made")]
    Raft(#[from] RaftError),
}

/// The content of the marker: the values that the rebuild writes.
#[derive(Serialize, Deserialize)]
struct RebuildMarker {
    version: u32,
    epoch: Epoch,
    raft: RaftId,
    /// Path to which the old log is renamed.
    parked: PathBuf,
    config: NodeConfig,
    peers: Vec<PeerInfo>,
    managers: Vec<PeerInfo>,
}

/// The result of a rebuild: the new epoch and Raft id, and the path of the old log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildResult {
    pub epoch: Epoch,
    pub raft: RaftId,
    pub parked: PathBuf,
}

/// Turns the directory into that of the only voter, `raft`, in the epoch that the state `last`
/// contains. `data` holds the lock of the directory, and `config` is the new `node.json`. Blocks.
pub fn rebuild_cluster(
    data: &DataDir,
    identity: &Identity,
    last: LastState<Inventory>,
    raft: RaftId,
    config: NodeConfig,
) -> Result<RebuildResult, RebuildError> {
    let layout = Layout(data.path().to_owned());
    let new = new_log(&layout);
    clear(&new)?;
    let mark = RebuildMarker {
        version: MARK_VERSION,
        epoch: last.state.epoch,
        raft,
        parked: archive::free_archive_path(&layout.0, identity.raft),
        peers: last.state.nodes.values().map(|node| PeerInfo::for_node(node)).collect(),
        managers: managers_of(&last.state),
        config,
    };
    let settings = RaftConfig {
        dir: new,
        id: raft,
        cluster: last.state.cluster.clone(),
        epoch: last.state.epoch,
        timing: remoor_cluster::raft::RaftTiming::default(),
    };
    remoor_cluster::raft::seed(&settings, mark.config.api().to_string(), last)?;
    let path = layout.0.join(MARK);
    let bytes =
        serde_json::to_vec_pretty(&mark).map_err(|e| DiskError::io("encoding", &path)(std::io::Error::other(e)))?;
    atomic_write(&path, &bytes, 0o600)?;
    carry_out(data, &layout, mark)
}

/// Completes a rebuild that a crash interrupted after the marker was written. Returns None if there
/// is no marker; a new log without a marker is removed. Blocks.
pub fn finish(data: &DataDir) -> Result<Option<RebuildResult>, RebuildError> {
    let layout = Layout(data.path().to_owned());
    let path = layout.0.join(MARK);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            clear(&new_log(&layout))?;
            return Ok(None);
        }
        Err(e) => return Err(DiskError::io("reading", &path)(e).into()),
    };
    let corrupt = |why: String| DiskError::Corrupt { path: path.clone(), why };
    let mark: RebuildMarker = serde_json::from_slice(&bytes).map_err(|e| corrupt(e.to_string()))?;
    if mark.version != MARK_VERSION {
        return Err(DiskError::TooNew { path, found: mark.version, known: MARK_VERSION }.into());
    }
    carry_out(data, &layout, mark).map(Some)
}

/// Carries out the rebuild that the marker describes. Every step is idempotent.
fn carry_out(data: &DataDir, layout: &Layout, mark: RebuildMarker) -> Result<RebuildResult, RebuildError> {
    let (raft, new) = (layout.raft(), new_log(layout));
    if new.exists() {
        if raft.exists() {
            std::fs::rename(&raft, &mark.parked).map_err(DiskError::io("moving to", &mark.parked))?;
        }
        std::fs::rename(&new, &raft).map_err(DiskError::io("moving to", &raft))?;
        sync_dir(&layout.0)?;
    }
    mark.config.save(&layout.0)?;
    save_peers(layout, &mark.peers, &mark.managers)?;
    if let Some(mut identity) = data.identity()? {
        identity.epoch = mark.epoch;
        (identity.raft, identity.log_begun, identity.retired) = (Some(mark.raft), true, None);
        data.store_identity(&identity)?;
    }
    let path = layout.0.join(MARK);
    std::fs::remove_file(&path).map_err(DiskError::io("removing", &path))?;
    sync_dir(&layout.0)?;
    Ok(RebuildResult { epoch: mark.epoch, raft: mark.raft, parked: mark.parked })
}

fn new_log(layout: &Layout) -> PathBuf {
    layout.0.join("raft.new")
}

fn clear(dir: &Path) -> Result<(), DiskError> {
    match std::fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(DiskError::io("removing", dir)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::admin::tests::options;
    use super::super::{init, mark_tokens_printed};
    use super::*;
    use remoor_model::{ClusterRebuild, Wall};
    use std::collections::BTreeMap;

    fn raft_config(dir: PathBuf, identity: &Identity) -> RaftConfig {
        RaftConfig {
            dir,
            id: identity.raft.expect("an id"),
            cluster: identity.cluster.clone(),
            epoch: identity.epoch,
            timing: remoor_cluster::raft::RaftTiming::default(),
        }
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).expect("made");
        for entry in std::fs::read_dir(from).expect("listed").flatten() {
            let target = to.join(entry.file_name());
            match entry.file_type().expect("a kind").is_dir() {
                true => copy(&entry.path(), &target),
                false => drop(std::fs::copy(entry.path(), target).expect("copied")),
            }
        }
    }

    /// Opens the directory as a daemon does, and returns its identity and state.
    async fn open_like_daemon(dir: &Path) -> (Identity, Inventory) {
        let data = DataDir::open(dir).expect("open");
        finish(&data).expect("finished");
        let identity = data.identity().expect("read").expect("an identity");
        let config = raft_config(dir.join("raft"), &identity);
        let last = remoor_cluster::raft::last_state::<Inventory>(&config).await.expect("a state");
        (identity, last.state)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_crash_at_any_step_leaves_the_old_directory_or_one_that_becomes_the_new() {
        let top = tempfile::tempdir().expect("a folder");
        let whole = options(&top.path().join("m1"));
        init(&whole).await.expect("a cluster");
        mark_tokens_printed(&whole.dir).expect("told");
        let (old, state) = open_like_daemon(&whole.dir).await;
        let with = ClusterRebuild {
            epoch: Epoch(7),
            founder: old.node,
            at: Wall(5),
            by: "root".to_owned(),
            how: "recovered".to_owned(),
            new_addresses: BTreeMap::new(),
            next_ca: false,
        };
        let mut new = state.clone();
        let raft = new.rebuild_cluster(&with).expect("a new epoch");
        let last = LastState { index: new.applied, term: 3, voters: BTreeMap::new(), state: new.clone() };
        let found = |dir: &Path| {
            let data = DataDir::open(dir).expect("open");
            rebuild_cluster(&data, &old, last.clone(), raft, whole.config.clone()).expect("founded")
        };

        // A crash before the marker is written changes nothing.
        let early = top.path().join("early");
        copy(&whole.dir, &early);
        std::fs::create_dir(early.join("raft.new")).expect("made");
        std::fs::write(early.join("raft.new/snapshot"), "half").expect("written");
        assert_eq!(open_like_daemon(&early).await, (old.clone(), state.clone()));
        assert!(!early.join("raft.new").exists());

        let finished = top.path().join("finished");
        copy(&whole.dir, &finished);
        let founded = found(&finished);
        assert_eq!((founded.epoch, founded.raft), (Epoch(7), raft));
        assert!(founded.parked.join("log.redb").exists(), "nothing is deleted");
        let (identity, state) = open_like_daemon(&finished).await;
        assert_eq!((identity.epoch, identity.raft, identity.retired), (Epoch(7), Some(raft), None));
        assert_eq!(state, new);

        // The crashes that are tested after the marker is written: before any move, after the move
        // of the old log, and after the move of both logs.
        let mark = |dir: &Path| RebuildMarker {
            version: MARK_VERSION,
            epoch: Epoch(7),
            raft,
            parked: dir.join("raft.removed-1-9"),
            config: whole.config.clone(),
            peers: Vec::new(),
            managers: Vec::new(),
        };
        for moved in 0..3 {
            let dir = top.path().join(format!("late-{moved}"));
            copy(&whole.dir, &dir);
            copy(&finished.join("raft"), &dir.join("raft.new"));
            std::fs::write(dir.join(MARK), serde_json::to_vec(&mark(&dir)).expect("encoded")).expect("written");
            if moved > 0 {
                std::fs::rename(dir.join("raft"), dir.join("raft.removed-1-9")).expect("moved");
            }
            if moved > 1 {
                std::fs::rename(dir.join("raft.new"), dir.join("raft")).expect("moved");
            }
            let (identity, state) = open_like_daemon(&dir).await;
            assert_eq!((identity.epoch, identity.raft), (Epoch(7), Some(raft)), "{moved}");
            assert_eq!(state, new, "{moved}");
            assert!(dir.join("raft.removed-1-9/log.redb").exists() && !dir.join(MARK).exists(), "{moved}");
        }
    }
}
