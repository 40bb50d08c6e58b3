//! The engine's input and output. Both are plain values, so that tests can compare them and logs
//! can replay them.

use super::drift::Evidence;
use remoor_model::{
    AbsenceNo, Applied, AttemptId, Baseline, Command, Failure, GenerationSeq, HostFingerprint, JobId, NodeId, NodeName,
    Phase, Report, Sha256, Trigger, Wall,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers the examinations of one engine, so that a late answer is recognized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExaminationTicket(pub u64);

/// The subject of a proposal. For each subject, at most one proposal is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum About {
    Fleet,
    Node(NodeId),
}

/// Why a node is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    Absence(AbsenceNo),
    Live(Trigger),
}

/// An input of the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EngineEvent {
    /// Gossip lists the node as a member: a new one, or one with a new report.
    Alive {
        node: NodeId,
        report: Report,
    },
    /// A member's agent signed its last report again.
    Renewed {
        node: NodeId,
    },
    /// The node's gossip address `ip:port`, signed by the node. Sent before the `Alive` of the same
    /// record.
    Sighted {
        node: NodeId,
        gossip: String,
    },
    /// Gossip lost the node.
    Gone {
        node: NodeId,
    },
    /// Result of a connection to the SSH port, without login.
    Probed {
        node: NodeId,
        answers: bool,
    },
    /// The manager `by` checked whether it reaches the SSH port of a node that is alive, without
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
    /// The generation was rendered for the address change at entry `moved`: the hosts whose hash
    /// differs from the applied one.
    Rendered {
        generation: GenerationSeq,
        moved: u64,
        result: Result<BTreeMap<NodeName, Sha256>, String>,
    },
    /// The engine's own proposal was applied, or it is lost (None: outcome unknown or refused by
    /// Raft).
    Proposed {
        about: About,
        applied: Option<Applied>,
    },
    /// An entry of another proposer changed the inventory.
    Changed,
    /// Once a second: derive all work again.
    Tick,
}

/// Whether one manager reaches one node's SSH port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reachability {
    #[serde(rename = "Open")]
    Reachable,
    /// `since`: start of the current failure, by that manager's clock.
    #[serde(rename = "Dead")]
    Unreachable { why: String, since: Wall },
}

/// How an examination ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ExamOutcome {
    Found(Evidence),
    /// The login failed: refused, timed out or no route.
    Unreachable(String),
    /// The node offered another host key than the recorded one; nothing was sent.
    HostKey(String),
    /// The login succeeded, but there was no usable answer.
    Failed(String),
}

/// How a phase of an attempt ended.
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
    /// A majority of managers stores this blob already.
    pub baseline: Baseline,
    /// The node's identity. None: the agent has no record, and no other source is available.
    pub marks: Option<HostFingerprint>,
    /// Paths whose content differs from what the manager rendered.
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
    /// Ask these managers, which may include the leader, whether they reach the node.
    Reach {
        node: NodeId,
        managers: Vec<NodeId>,
    },
    Examine {
        node: NodeId,
        ticket: ExaminationTicket,
        purpose: Purpose,
        /// The manager that must perform it because it reaches the node; None: the leader itself.
        from: Option<NodeId>,
    },
    /// Begin this phase of this committed, open attempt.
    Run {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        node: NodeId,
    },
    /// Stop the run of this attempt, which is no longer open: after its current task, or at once
    /// with `now`.
    Stop {
        attempt: AttemptId,
        now: bool,
    },
    /// Render the desired state of each host with the currently recorded addresses.
    Render {
        generation: GenerationSeq,
        moved: u64,
    },
    /// Another manager must lead: the leader itself is to be set up again, or cannot reach a node
    /// that is.
    HandOver {
        why: String,
        /// The only manager that may take over, once it has the complete log; None: any manager.
        to: Option<NodeId>,
    },
    /// Notify people. Notices with the same `key` are about the same trouble and are sent once.
    Notify {
        key: String,
        node: Option<NodeId>,
        text: String,
    },
}
