//! A re-setup of one node, as a series of attempts with their phases.

use super::{
    AttemptId, Baseline, GenerationSeq, JobId, NodeId, NodeName, Occasion, Reason, ServiceName, Vars, Wall, Want,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// In this order and no other; each is entered by a committed entry only (I1, I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Fence,
    Cleanup,
    Cleaned,
    Provision,
    Verify,
    /// Of an undo, in the place of all after `Fence`: copied files are put back.
    Undo,
}

/// What a job is to bring about; it decides which phases an attempt has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    Resetup,
    Decommission,
    Undo,
}

impl Phase {
    /// The next phase of an attempt of this kind; None after the last.
    pub fn next(self, kind: JobKind) -> Option<Phase> {
        match (self, kind) {
            (Phase::Fence, JobKind::Undo) => Some(Phase::Undo),
            (Phase::Fence, _) => Some(Phase::Cleanup),
            (Phase::Cleanup, _) => Some(Phase::Cleaned),
            (Phase::Cleaned, JobKind::Decommission) => None,
            (Phase::Cleaned, _) => Some(Phase::Provision),
            (Phase::Provision, _) => Some(Phase::Verify),
            (Phase::Verify | Phase::Undo, _) => None,
        }
    }
    pub fn word(self) -> &'static str {
        match self {
            Phase::Fence => "fence",
            Phase::Cleanup => "cleanup",
            Phase::Cleaned => "cleaned",
            Phase::Provision => "provision",
            Phase::Verify => "verify",
            Phase::Undo => "undo",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Whose fault a failure is; decides whether it eats a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// A task failed or took too long, the node was not clean, or the verification did not agree.
    Step,
    /// The node went away or refused the connection: waits for its return, eats no retry.
    Unreachable,
    /// The node offers another SSH host key: stops until `trust-key`.
    HostKey,
    /// Provisioned without error, and still not as desired: held at once.
    ProvisionedWrong,
    /// The playbooks or the fleet can't be compiled for this node: held at once.
    Plan,
}

impl FailureClass {
    /// As it is stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            FailureClass::Step => "step",
            FailureClass::Unreachable => "unreachable",
            FailureClass::HostKey => "host-key",
            FailureClass::ProvisionedWrong => "provisioned-wrong",
            FailureClass::Plan => "plan",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    pub phase: Phase,
    pub rc: Option<i32>,
    pub message: String,
    /// The last lines of output, at most 20.
    pub tail: Vec<String>,
}

impl Failure {
    /// As much of it as may enter the log.
    pub fn bounded(mut self) -> Self {
        self.message = super::clipped(self.message);
        self.tail.truncate(TAIL_MAX);
        self.tail = self.tail.into_iter().map(super::clipped).collect();
        self
    }
}

/// So many lines of a failure's tail are kept.
const TAIL_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Done,
    Failed(Failure),
    /// A later attempt took its place: why.
    Superseded(String),
    Cancelled(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub id: AttemptId,
    /// Within the job, from 1.
    pub no: u32,
    pub opened: Wall,
    pub why: String,
    /// The manager that runs it.
    pub runner: NodeName,
    pub phase: Phase,
    pub closed: Option<(Wall, Outcome)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    Open,
    /// Gave up: waits for an operator.
    Held,
    Done,
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub node: NodeId,
    pub opened: Wall,
    pub occasion: Occasion,
    pub reasons: Vec<Reason>,
    /// Empty: the whole group.
    pub services: Vec<ServiceName>,
    /// Provisioned from this generation; cleaned up from the baseline's.
    pub generation: GenerationSeq,
    pub by: Option<String>,
    pub now: bool,
    pub decommission: bool,
    /// Also where only the agent is down.
    #[serde(default)]
    pub force: bool,
    /// Puts back what this attempt copied aside, and nothing else.
    #[serde(default)]
    pub undo: Option<AttemptId>,
    /// Part of a roll-out that an operator ordered.
    #[serde(default)]
    pub rollout: bool,
    pub state: JobState,
    pub attempts: Vec<Attempt>,
    /// Failures that ate a retry.
    pub failures: u32,
    /// The next attempt is due then.
    pub retry_at: Option<Wall>,
    pub closed: Option<Wall>,
    pub result: Option<Baseline>,
    /// Older attempts than the last 16 are dropped from the record, their number kept here.
    pub attempts_dropped: u32,
    /// Stronger than all that the fleet says, for this job only.
    #[serde(default)]
    pub vars: Vars,
    /// Cancelled with the word that the task under way is ended too, and not let finish.
    #[serde(default)]
    pub cut: bool,
}

impl Job {
    pub fn kind(&self) -> JobKind {
        match (self.undo, self.decommission) {
            (Some(_), _) => JobKind::Undo,
            (None, true) => JobKind::Decommission,
            (None, false) => JobKind::Resetup,
        }
    }

    /// The same order once more, after the job was held. What remoor itself concluded is looked at again first.
    pub fn again(&self, since: Wall) -> Want {
        Want {
            reasons: self.reasons.clone(),
            services: self.services.clone(),
            examined: self.by.is_none().then_some(self.opened),
            by: self.by.clone(),
            now: self.now,
            decommission: self.decommission,
            force: self.force,
            undo: self.undo,
            vars: self.vars.clone(),
            rollout: self.rollout,
            ..Want::new(self.occasion, since)
        }
    }

    /// The attempt that is running, if any.
    pub fn open_attempt(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|a| a.closed.is_none())
    }
}
