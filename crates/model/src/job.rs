//! A job on one node: a series of attempts with their phases.

use super::{
    AttemptId, Baseline, GenerationSeq, JobId, JobVars, NodeId, NodeName, Reason, ResetupRequest, ServiceName, Trigger,
    Wall,
};
use crate::flat_form;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The phases of an attempt, in their only order. Each begins when its log entry is committed
/// (invariants I1, I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Fence,
    Cleanup,
    Cleaned,
    Provision,
    Verify,
    /// The phase of an undo. It replaces all phases after `Fence`, and puts back the files that the
    /// undone attempt backed up.
    Undo,
}

/// The purpose of a job. It determines the phases of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    Resetup,
    Decommission,
    Undo,
}

impl Phase {
    /// The next phase of an attempt of this kind. None after the last phase.
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
    /// The name of the phase as it is stored and displayed.
    pub fn as_str(self) -> &'static str {
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
        f.write_str(self.as_str())
    }
}

/// The class of a failure. It decides whether the failure uses up a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// A task failed or timed out, the node was not clean, or the verification failed.
    Step,
    /// The node went away or refused the connection. The job waits for the node's return. No retry
    /// is used up.
    Unreachable,
    /// The node offered another SSH host key. The job stops until `trust-key`.
    HostKey,
    /// Provisioning succeeded, but the node differs from the desired state. The job is held at
    /// once.
    ProvisionedWrong,
    /// The playbooks or the fleet cannot be compiled for this node. The job is held at once.
    Plan,
}

impl FailureClass {
    /// The name of the class as it is stored and displayed.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureClass::Step => "step",
            FailureClass::Unreachable => "unreachable",
            FailureClass::HostKey => "host-key",
            FailureClass::ProvisionedWrong => "provisioned-wrong",
            FailureClass::Plan => "plan",
        }
    }
}

/// The reason why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    pub phase: Phase,
    pub rc: Option<i32>,
    pub message: String,
    /// The last lines of the output, at most 20.
    pub tail: Vec<String>,
}

impl Failure {
    /// Truncates the texts to the sizes that may enter the log.
    pub fn truncate_for_log(mut self) -> Self {
        self.message = super::truncate_text(self.message);
        self.tail.truncate(TAIL_MAX);
        self.tail = self.tail.into_iter().map(super::truncate_text).collect();
        self
    }
}

/// Maximum number of output lines that a failure keeps.
const TAIL_MAX: usize = 20;

/// The way in which an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttemptOutcome {
    Done,
    Failed(Failure),
    /// A later attempt replaced this one. The text is the reason.
    Superseded(String),
    Cancelled(String),
}

/// One run of a job's phases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub id: AttemptId,
    /// The number of the attempt within its job, counted from 1.
    pub no: u32,
    pub opened: Wall,
    pub why: String,
    /// The manager that runs the attempt.
    pub runner: NodeName,
    pub phase: Phase,
    pub closed: Option<(Wall, AttemptOutcome)>,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    Open,
    /// The job gave up and waits for an operator.
    Held,
    Done,
    Cancelled,
}

/// The content of a job: its work, its reasons, and the operator who ordered it. A request for a
/// job has the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    pub trigger: Trigger,
    pub reasons: Vec<Reason>,
    /// The services of the job. Empty stands for all services of the group.
    pub services: Vec<ServiceName>,
    /// The operator who ordered the job. None if the job is automatic.
    pub by: Option<String>,
    /// Whether the job ignores hold, window and settle time. It never ignores fencing and quorum.
    pub now: bool,
    /// Whether the node is only cleaned up and nothing is provisioned.
    pub decommission: bool,
    /// Whether the job may run although the agent is down, provided that the host answers. It
    /// overrides nothing else.
    pub force: bool,
    /// The attempt to undo. If it is set, the job only restores the files that this attempt backed
    /// up.
    pub undo: Option<AttemptId>,
    /// Variables of this job. They override the fleet's variables.
    pub vars: JobVars,
    /// Whether the job is part of an order that rolls a generation out to several nodes of a group.
    /// One node is then set up first as the canary, as in an automatic rollout.
    pub rollout: bool,
}

impl JobSpec {
    /// An automatic job for the whole group, without reasons from an examination. Callers set the
    /// other fields.
    pub fn new(trigger: Trigger) -> Self {
        Self {
            trigger,
            reasons: Vec::new(),
            services: Vec::new(),
            by: None,
            now: false,
            decommission: false,
            force: false,
            undo: None,
            vars: JobVars::new(),
            rollout: false,
        }
    }

    /// The request for this job. The request waits since `since`, and is based on no examination.
    pub fn into_request(self, since: Wall) -> ResetupRequest {
        ResetupRequest { spec: self, since, examined: None, commission: false }
    }

    /// The purpose of the job.
    pub fn kind(&self) -> JobKind {
        match (self.undo, self.decommission) {
            (Some(_), _) => JobKind::Undo,
            (None, true) => JobKind::Decommission,
            (None, false) => JobKind::Resetup,
        }
    }
}

/// One re-setup, decommissioning or undo on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub id: JobId,
    pub node: NodeId,
    pub opened: Wall,
    pub spec: JobSpec,
    /// The generation to provision from. Cleanup uses the baseline's generation.
    pub generation: GenerationSeq,
    pub state: JobState,
    pub attempts: Vec<Attempt>,
    /// Number of failures that used up a retry.
    pub failures: u32,
    /// The time at which the next attempt is due.
    pub retry_at: Option<Wall>,
    pub closed: Option<Wall>,
    pub result: Option<Baseline>,
    /// Number of attempts that were dropped from the record, which keeps the last 16.
    pub attempts_dropped: u32,
    /// Whether the job was cancelled with `now`. The current task is then ended at once. Otherwise
    /// it may finish.
    pub end_task_now: bool,
}

flat_form! {
    Job {
        id: JobId,
        node: NodeId,
        opened: Wall,
        #[serde(rename = "occasion")]
        trigger: Trigger,
        reasons: Vec<Reason>,
        services: Vec<ServiceName>,
        generation: GenerationSeq,
        by: Option<String>,
        now: bool,
        decommission: bool,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        undo: Option<AttemptId>,
        #[serde(default)]
        rollout: bool,
        state: JobState,
        attempts: Vec<Attempt>,
        failures: u32,
        retry_at: Option<Wall>,
        closed: Option<Wall>,
        result: Option<Baseline>,
        attempts_dropped: u32,
        #[serde(default)]
        vars: JobVars,
        #[serde(default, rename = "cut")]
        end_task_now: bool,
    } = Self {
        id,
        node,
        opened,
        spec: JobSpec { trigger, reasons, services, by, now, decommission, force, undo, vars, rollout },
        generation,
        state,
        attempts,
        failures,
        retry_at,
        closed,
        result,
        attempts_dropped,
        end_task_now,
    }
}

impl Job {
    /// The purpose of the job.
    pub fn kind(&self) -> JobKind {
        self.spec.kind()
    }

    /// The request that opens this job again after it was held. For an automatic job, the node is
    /// examined first.
    pub fn to_request(&self, since: Wall) -> ResetupRequest {
        let examined = self.spec.by.is_none().then_some(self.opened);
        ResetupRequest { examined, ..self.spec.clone().into_request(since) }
    }

    /// The attempt that is running. None if no attempt runs.
    pub fn open_attempt(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|a| a.closed.is_none())
    }
}
