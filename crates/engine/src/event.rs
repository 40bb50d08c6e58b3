//! The engine's input and output. Both are plain values, so that tests can compare them and the
//! flight recorder can store them.

use super::drift::Evidence;
use remoor_model::{
    AbsenceNo, Applied, AttemptId, Baseline, Command, Failure, GenerationSeq, HostFingerprint, JobId, NodeId, NodeName,
    Phase, Report, Sha256, Trigger, Wall,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of an examination by this engine. The engine recognizes late answers by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExaminationTicket(pub u64);

/// The subject of a proposal. At most one proposal is in flight for each subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum About {
    Fleet,
    Node(NodeId),
}

/// The reason why a node is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    Absence(AbsenceNo),
    Live(Trigger),
}

/// An input of the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EngineEvent {
    /// Gossip lists the node as a member. The member is new or has a new report.
    Alive {
        node: NodeId,
        report: Report,
    },
    /// A member's agent signed its last report again.
    Renewed {
        node: NodeId,
    },
    /// The node's gossip address `ip:port`, signed by the node. This event comes before the `Alive`
    /// event of the same gossip record.
    Sighted {
        node: NodeId,
        gossip: String,
    },
    /// The agent sent this report to a manager, and gossip does not show the report.
    Reported {
        node: NodeId,
        report: Report,
    },
    /// Gossip lost the node.
    Gone {
        node: NodeId,
    },
    /// Result of the leader's TLS handshake with the node's daemon. `answers` is true if the daemon
    /// proved the key of this node.
    Greeted {
        node: NodeId,
        answers: bool,
    },
    /// Result of the leader's connection to the node's SSH port, without a login.
    Probed {
        node: NodeId,
        answers: bool,
    },
    /// Result of a connection by the manager `by` to the SSH port of a living node, without a
    /// login.
    Reach {
        node: NodeId,
        by: NodeId,
        line: Reachability,
    },
    Examined {
        node: NodeId,
        ticket: ExaminationTicket,
        outcome: Box<ExamOutcome>,
    },
    Ran {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        result: Box<PhaseResult>,
    },
    /// Result of rendering the generation after the address change at log index `moved`. `result`
    /// contains each host whose desired state changed, with the hash of its new desired state.
    Rendered {
        generation: GenerationSeq,
        moved: u64,
        result: Result<BTreeMap<NodeName, Sha256>, String>,
    },
    /// Result of the engine's own proposal. `applied` is None if the outcome is unknown or Raft
    /// refused the proposal.
    Proposed {
        about: About,
        applied: Option<Applied>,
    },
    /// An entry of another proposer changed the inventory.
    Changed,
    /// The event of every second, at which the engine derives all work from the inventory again.
    Tick,
}

/// Result of one manager's connection to one node's SSH port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reachability {
    #[serde(rename = "Open")]
    Reachable,
    /// The manager cannot connect. `since` is the time at which the current failure began, by that
    /// manager's clock.
    #[serde(rename = "Dead")]
    Unreachable { why: String, since: Wall },
}

/// The outcome of an examination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ExamOutcome {
    Found(Evidence),
    /// The login failed: it was refused, it timed out, or there is no route.
    Unreachable(String),
    /// The node offered a host key that differs from the recorded one. Nothing was sent.
    HostKey(String),
    /// The login succeeded, but no usable answer arrived.
    Failed(String),
}

/// The outcome of a phase of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PhaseResult {
    Ok,
    /// Result of the verify phase.
    Verified(Verified),
    Failed(Failure),
}

/// The findings of the verify phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    pub evidence: Evidence,
    /// The new baseline. A majority of managers has already stored its blob.
    pub baseline: Baseline,
    /// The node's boot id, agent instance and isolation count. None if the agent has no record and
    /// no other source is available.
    pub marks: Option<HostFingerprint>,
    /// Paths whose content differs from the content that the manager rendered.
    pub wrong: Vec<String>,
}

/// An effect that the engine requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    Propose {
        about: About,
        command: Command,
    },
    Probe {
        node: NodeId,
    },
    /// Try a TLS handshake with the daemon of a node that gossip lost.
    Greet {
        node: NodeId,
    },
    /// Ask these managers, which may include the leader, whether they reach the node.
    Reach {
        node: NodeId,
        managers: Vec<NodeId>,
    },
    Examine {
        node: NodeId,
        ticket: ExaminationTicket,
        purpose: Purpose,
        /// The manager that must examine the node because it reaches the node. None means the
        /// leader.
        from: Option<NodeId>,
    },
    /// Begin this phase of the attempt, which is committed and open.
    Run {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        node: NodeId,
    },
    /// Stop the run of this attempt, because the attempt is closed. The current task may finish,
    /// unless `now` is set.
    Stop {
        attempt: AttemptId,
        now: bool,
    },
    /// Render the desired state of each host with the currently recorded addresses.
    Render {
        generation: GenerationSeq,
        moved: u64,
    },
    /// Make another manager the leader. The leader itself needs a re-setup, or it cannot reach a
    /// node that needs one.
    HandOver {
        why: String,
        /// The only manager that may take over, after it has the complete log. None allows any
        /// manager.
        to: Option<NodeId>,
    },
    /// Notify people. Notices with the same `key` are about the same problem and are sent once.
    Notify {
        key: String,
        node: Option<NodeId>,
        text: String,
    },
}
