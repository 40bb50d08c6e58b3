//! Values that the loop of a manager publishes for the API.

use super::leader_engine::LeaderEngine;
use super::recorder::{RecordedStep, Recorder};
use crate::telemetry::Registry;
use remoor_cluster::rpc::view::StreamItem;
use remoor_model::{NodeId, Wall};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Maximum number of journal items that a watcher may lag behind. A watcher that lags further
/// behind gets the number of lost items.
const STREAM_DEPTH: usize = 4_096;

pub struct Publications {
    /// Counters of the log entries that were applied while this process ran.
    pub applied: Registry,
    /// The engine, from which the API makes views of nodes.
    pub engine: LeaderEngine,
    stream: broadcast::Sender<StreamItem>,
    recorder: Mutex<Recorder>,
    /// For each node, the condition that its role change waits for. The map is empty if this
    /// manager does not lead.
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
        let _ = self.stream.send(item); // an error means that there is no watcher
    }

    pub(super) fn set_role_waits(&self, waits: BTreeMap<NodeId, String>) {
        *self.role_waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    /// For each node, the condition that its role change waits for, as text. The map is empty if
    /// this manager does not lead.
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

    /// The beginning of this leadership, the number of dropped steps, and the steps about `node`,
    /// oldest first.
    pub(super) fn recorded_steps(&self, node: NodeId) -> (Option<Wall>, u64, Vec<Arc<RecordedStep>>) {
        let recorder = self.flight_record();
        (recorder.leading_since(), recorder.dropped_count(), recorder.steps_about(node))
    }

    fn flight_record(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
