//! openraft's own test suite, run on remoor's log, state machine and snapshot file.

use super::*;
use crate::raft::log::{LogStore, Owner};
use crate::raft::machine::Machine;
use crate::raft::snapshot::SnapshotFile;
use crate::raft::types::Types;
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use std::sync::atomic::AtomicBool;
use tokio::sync::watch;

struct Builder;

impl StoreBuilder<Types<Words>, LogStore<Words>, Machine<Words>, tempfile::TempDir> for Builder {
    async fn build(&self) -> Result<(tempfile::TempDir, LogStore<Words>, Machine<Words>), StorageError<Types<Words>>> {
        let dir = tempfile::tempdir().unwrap();
        let owner = Owner { cluster: "c1".to_owned(), epoch: 1, raft: 1 };
        let log = LogStore::open(&dir.path().join("log.redb"), &owner).unwrap();
        let (publish, _) = watch::channel(Arc::<Words>::default());
        let (feed, _) = mpsc::unbounded_channel();
        let file = SnapshotFile::new(&dir.path().join("snapshot"));
        let machine = Machine::open(file, publish, feed, Arc::new(AtomicBool::new(true))).unwrap();
        Ok((dir, log, machine))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openrafts_storage_suite_passes() {
    Suite::test_all(Builder).await.unwrap();
}
