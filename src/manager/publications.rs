//! What the loop of a manager publishes for the API to read.

use super::leader_engine::LeaderEngine;
use super::recorder::{RecordedStep, Recorder};
use crate::telemetry::Registry;
use remoor_cluster::rpc::view::StreamItem;
use remoor_model::{NodeId, Wall};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Items that a watcher may fall behind. One that falls further behind is told how many items it
/// missed.
const STREAM_DEPTH: usize = 4_096;

pub struct Publications {
    /// Counters of entries that were applied while this process ran.
    pub applied: Registry,
    /// The engine, for the views of nodes.
    pub engine: LeaderEngine,
    stream: broadcast::Sender<StreamItem>,
    recorder: Mutex<Recorder>,
    /// For each node, what its role change waits for. Filled only while this manager leads.
    role_waits: Mutex<BTreeMap<NodeId, String>>,
}

impl Publications {
    pub(super) fn new() -> Self {
        Self {
            applied: super::metrics::counters(),
            engine: LeaderEngine::default(),
            stream: broadcast::channel(STREAM_DEPTH).0,
            recorder: Mutex::default(),
            role_waits: Mutex::default(),
        }
    }

    pub fn watch_stream(&self) -> broadcast::Receiver<StreamItem> {
        self.stream.subscribe()
    }

    pub(super) fn emit(&self, item: StreamItem) {
        let _ = self.stream.send(item); // an error means that nobody watches
    }

    pub(super) fn set_role_waits(&self, waits: BTreeMap<NodeId, String>) {
        *self.role_waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    /// For each node, what its role change waits for, as text. Only the leader knows this.
    pub fn role_waits(&self) -> BTreeMap<NodeId, String> {
        self.role_waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts a new flight record when a leadership begins.
    pub(super) fn begin_record(&self, at: Wall) {
        self.flight_record().begin(at);
    }

    pub(super) fn record(&self, step: RecordedStep) {
        self.flight_record().add(step);
    }

    /// When this leadership began, how many steps were dropped, and the steps about `node`, oldest
    /// first.
    pub(super) fn recorded_steps(&self, node: NodeId) -> (Option<Wall>, u64, Vec<Arc<RecordedStep>>) {
        let recorder = self.flight_record();
        (recorder.leading_since(), recorder.dropped_count(), recorder.steps_about(node))
    }

    fn flight_record(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
