//! Limits for probes and examinations. Probes and examinations have separate slots, because probes
//! of hosts that do not answer must not delay the examination of a node that is back. Such probes
//! are many if many nodes are absent at once.

use remoor_model::{EXAMINATIONS_MAX, NodeId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of probes at the same time. A probe is one connection that waits for a banner, at
/// most 3 s.
const PROBES_MAX: usize = 64;
/// Maximum number of handshakes with daemons at the same time. Gossip may lose many nodes at once,
/// and the engine waits only 5 s for each result.
const GREETINGS_MAX: usize = 256;

/// The slots for examinations and probes. Free slots go to the longest waiting request.
#[derive(Debug, Clone)]
pub struct ExaminationLimits {
    examinations: Arc<Semaphore>,
    probes: Arc<Semaphore>,
    greetings: Arc<Semaphore>,
    probed_nodes: Arc<Mutex<BTreeSet<NodeId>>>,
}

/// A probe that runs or waits for a slot. As long as it exists, no second probe of its node begins.
#[derive(Debug)]
pub struct ProbeTicket {
    node: NodeId,
    looks: ExaminationLimits,
}

impl Default for ExaminationLimits {
    fn default() -> Self {
        Self {
            examinations: Arc::new(Semaphore::new(EXAMINATIONS_MAX)),
            probes: Arc::new(Semaphore::new(PROBES_MAX)),
            greetings: Arc::new(Semaphore::new(GREETINGS_MAX)),
            probed_nodes: Arc::default(),
        }
    }
}

impl ExaminationLimits {
    /// Waits for an examination slot. The slot is free again when the value is dropped.
    pub async fn examination(&self) -> Option<OwnedSemaphorePermit> {
        self.examinations.clone().acquire_owned().await.ok()
    }

    /// Waits for the slot of a handshake. The slot is free again when the value is dropped.
    pub async fn wait_for_greeting_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.greetings.clone().acquire_owned().await.ok()
    }

    /// Registers a probe of the node. Returns None if an earlier probe of the node still runs or
    /// waits. A timer requests the probes, so without this check they would accumulate.
    pub fn probe(&self, node: NodeId) -> Option<ProbeTicket> {
        self.probed_nodes().insert(node).then(|| ProbeTicket { node, looks: self.clone() })
    }

    fn probed_nodes(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.probed_nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProbeTicket {
    /// Waits for a probe slot. The slot is free again when the value is dropped.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.looks.probes.clone().acquire_owned().await.ok()
    }
}

impl Drop for ProbeTicket {
    fn drop(&mut self) {
        self.looks.probed_nodes().remove(&self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn probes_of_silent_hosts_take_no_examination_slots() {
        let looks = ExaminationLimits::default();
        let tickets: Vec<ProbeTicket> =
            (1..=400).map(|n| looks.probe(NodeId(n)).expect("the first of its node")).collect();
        let places: Vec<_> = tickets.iter().map(|t| t.place().now_or_never()).collect();
        assert_eq!(places.iter().flatten().count(), PROBES_MAX, "probes are bounded");
        let back: Vec<_> = (0..=EXAMINATIONS_MAX).map(|_| looks.examination().now_or_never()).collect();
        assert_eq!(
            back.iter().flatten().count(),
            EXAMINATIONS_MAX,
            "and so are examinations, by a number of their own"
        );
        assert!(looks.probe(NodeId(7)).is_none(), "one probe of a node at a time");
        drop((places, tickets));
        assert!(looks.probe(NodeId(7)).is_some());
    }
}
