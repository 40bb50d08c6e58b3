//! The journal that people read: what was decided and what came of it, newest last, bounded.

use super::{
    AbsenceNo, AttemptId, Cause, Finding, GenerationSeq, Gone, JobId, NodeId, NodeName, Outcome, Phase, Reason,
    ServiceName, Wall,
};
use serde::{Deserialize, Serialize};

/// So many items are kept; older ones are dropped.
pub const HISTORY_MAX: usize = 5_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryItem {
    /// Index of the log entry.
    pub index: u64,
    pub at: Wall,
    pub by: String,
    pub node: Option<NodeId>,
    #[serde(flatten)]
    pub what: Happening,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Happening {
    Accepted {
        name: NodeName,
    },
    Generation {
        seq: GenerationSeq,
    },
    Away {
        absence: AbsenceNo,
        last_seen: Wall,
        gone: Gone,
        seen_by: Vec<NodeName>,
        retrospect: bool,
    },
    Gone {
        absence: AbsenceNo,
        gone: Gone,
    },
    Returned {
        absence: AbsenceNo,
    },
    Concluded {
        finding: Box<Finding>,
    },
    Wanted {
        services: Vec<ServiceName>,
        operator: Option<String>,
        #[serde(default)]
        undo: Option<AttemptId>,
    },
    WantDropped {
        why: String,
    },
    JobOpened {
        job: JobId,
        services: Vec<ServiceName>,
        reasons: Vec<Reason>,
        generation: GenerationSeq,
        #[serde(default)]
        undo: Option<AttemptId>,
    },
    AttemptOpened {
        job: JobId,
        attempt: AttemptId,
        no: u32,
        runner: NodeName,
        why: String,
    },
    Phase {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
    },
    AttemptClosed {
        job: JobId,
        attempt: AttemptId,
        outcome: Outcome,
    },
    JobHeld {
        job: JobId,
        why: String,
    },
    JobCancelled {
        job: JobId,
        why: String,
    },
    JobDone {
        job: JobId,
    },
    Adopted {
        files: bool,
    },
    KeyChanged {
        fingerprint: String,
    },
    KeyTrusted {
        keys: Vec<String>,
    },
    /// Addresses of gossip.
    Moved {
        from: String,
        to: String,
    },
    /// After moves: so many hosts are to be something else now.
    Rendered {
        changed: u32,
        fault: Option<String>,
    },
    Breaker {
        why: String,
    },
    Resumed,
    AgentFault {
        cause: Cause,
        count: u32,
    },
    Operator {
        text: String,
    },
}
