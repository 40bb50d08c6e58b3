//! What the engine is told, and what it asks for. Both are plain values, so that a test compares them and a log replays them.

use super::drift::Evidence;
use crate::model::{
    AbsenceNo, Applied, AttemptId, Baseline, Command, Failure, GenerationSeq, JobId, Marks, NodeId, NodeName, Occasion,
    Phase, Report, Sha256, Wall,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers the examinations of one engine, so that a late answer is known as late.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ticket(pub u64);

/// What a proposal is about; one is in flight for each at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum About {
    Fleet,
    Node(NodeId),
}

/// Why a node is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    Absence(AbsenceNo),
    Live(Occasion),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Gossip has the node as a member, new or with another report.
    Alive {
        node: NodeId,
        report: Report,
    },
    /// Where gossip has the node, `ip:port`, by its own signature; told before the `Alive` of the same record.
    Sighted {
        node: NodeId,
        gossip: String,
    },
    /// Gossip has lost it.
    Gone {
        node: NodeId,
    },
    /// The SSH port was asked; no login.
    Probed {
        node: NodeId,
        answers: bool,
    },
    /// The manager `by` found out whether it reaches the SSH port of a node that is alive; no login.
    Reach {
        node: NodeId,
        by: NodeId,
        line: Line,
    },
    Examined {
        node: NodeId,
        ticket: Ticket,
        outcome: Box<ExamOutcome>,
    },
    Ran {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        result: Box<PhaseResult>,
    },
    /// The generation was rendered for the move at `moved`: the hosts whose hash is another than the one applied.
    Rendered {
        generation: GenerationSeq,
        moved: u64,
        result: Result<BTreeMap<NodeName, Sha256>, String>,
    },
    /// An own proposal was applied, or is lost (None: outcome unknown or refused by Raft).
    Proposed {
        about: About,
        applied: Option<Applied>,
    },
    /// The inventory changed by somebody else's entry.
    Changed,
    /// Once a second: re-derive everything.
    Tick,
}

/// One manager's way to one node's SSH port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Line {
    Open,
    /// Since when it was never open, by that manager's clock.
    Dead {
        why: String,
        since: Wall,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ExamOutcome {
    Found(Evidence),
    /// No login: refused, timed out, no route.
    Unreachable(String),
    /// Another host key than the recorded one was offered; nothing was sent.
    HostKey(String),
    /// Logged in, and no usable answer came.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PhaseResult {
    Ok,
    /// Of the verify phase.
    Verified(Verified),
    Failed(Failure),
}

/// What the last phase saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    pub evidence: Evidence,
    /// Already stored as a blob by a majority.
    pub baseline: Baseline,
    /// None: the agent left no record, and nothing else tells.
    pub marks: Option<Marks>,
    /// Paths whose content is not what the manager rendered.
    pub wrong: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    Propose {
        about: About,
        command: Command,
    },
    Probe {
        node: NodeId,
    },
    /// Ask these managers, of which the leader may be one, whether they reach the node.
    Reach {
        node: NodeId,
        managers: Vec<NodeId>,
    },
    Examine {
        node: NodeId,
        ticket: Ticket,
        purpose: Purpose,
        /// Another manager is to do it, which reaches the node; None: the leader itself.
        from: Option<NodeId>,
    },
    /// Begin this phase of this committed, open attempt.
    Run {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
        node: NodeId,
    },
    /// Stop what runs for this attempt, which is no longer open: after its current task, or `now`.
    Stop {
        attempt: AttemptId,
        now: bool,
    },
    /// Say what each host is to be at the addresses that are entered now.
    Render {
        generation: GenerationSeq,
        moved: u64,
    },
    /// Somebody else must lead first: the leader itself is to be set up again, or has no way to a node that is.
    HandOver {
        why: String,
        /// This one, once it has the whole log, and nobody else; None: whoever takes it.
        to: Option<NodeId>,
    },
    /// Tell people. `key` is the same for the same trouble, so that it is told once.
    Notify {
        key: String,
        node: Option<NodeId>,
        text: String,
    },
}
