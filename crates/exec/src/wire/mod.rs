//! Orders of the manager and replies of the executor. These types are not part of the crate
//! `model`, because they are sent over the network; [`PROTO`] is their version.
//!
//! The manager sends one order at a time and waits for its final reply. `Heartbeat`, `Cancel`, `Go`
//! and `Answer` may be sent at any time. A plan, its events and its end are opaque here; the crate
//! `playbook` defines them.

pub mod frame;
pub mod reply_limits;

use self::frame::blob;
use remoor_model::{
    AttemptId, BranchContent, BranchQuestion, DigestSummary, Exam, Fence, JobId, NodeManifest, NodeName, ServiceName,
    Sha256,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of the protocol, which consists of all types in this file. Both ends must have the
/// same version.
pub const PROTO: u32 = 1;

/// The phase of a re-setup that a run executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPhase {
    Cleanup,
    Provision,
}

impl RunPhase {
    /// The name of the phase, for logs and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            RunPhase::Cleanup => "cleanup",
            RunPhase::Provision => "provision",
        }
    }
}

/// An order to run a plan. It is refused unless this session holds `fence`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrder {
    pub fence: Fence,
    pub phase: RunPhase,
    /// A serialized plan; may hold secrets, so it is kept out of `Debug` and off the disk.
    #[serde(with = "blob")]
    pub plan: Vec<u8>,
    /// Globs of paths that this run must not delete.
    pub protect: Vec<String>,
    /// Globs of files whose content must not appear in an event.
    #[serde(default)]
    pub secret: Vec<String>,
    /// Tags or services of the run, for the audit line.
    pub tags: Vec<String>,
    /// After this time the run stops after its current task.
    pub timeout_ms: u64,
}

/// An order to run a plan for a person (`remoor play`), outside of any attempt. The node is held
/// during the run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayOrder {
    /// A serialized plan; may hold secrets, as in a [`RunOrder`].
    #[serde(with = "blob")]
    pub plan: Vec<u8>,
    /// Name of the playbook. Pending handlers of a run are kept for the next run of a playbook with
    /// the same name.
    pub name: String,
    /// Id of the run, for the audit line.
    pub run_id: String,
    pub tags: Vec<String>,
    /// Report the changes without making them.
    pub check: bool,
    /// Run also on a node that managers provision.
    pub force: bool,
    /// Plays after this number wait for `Go`. None: no play waits.
    #[serde(default)]
    pub through: Option<u32>,
    /// Hosts of the run that had failed or were not reached when this order was sent.
    #[serde(default)]
    pub lost: Vec<String>,
}

/// A message from manager to executor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecutorOrder {
    /// Examine the node: compute the digest and run the checks. Needs no fence, changes nothing.
    /// `known` has the digest root of each service whose entries the manager already has. With
    /// `known` the reply is `Outlined`. An older executor ignores `known` and replies `Exam` with
    /// every entry.
    Examine {
        manifest: NodeManifest,
        digest_key: [u8; 32],
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<BTreeMap<ServiceName, Sha256>>,
    },
    /// Get the content (hashes or entries) below single branches of a digest. The digest is that of
    /// the last examination in this session whose reply was `Outlined`.
    Branches { questions: Vec<BranchQuestion> },
    /// Take the node for one attempt: store the fence, kill an older attempt, take the lock. Waits
    /// for a `remoor play` that holds the lock, at most `timeout_ms`.
    Fence { fence: Fence, node: NodeName, job: JobId, timeout_ms: u64 },
    /// Check whether this node can run a plan, before anything is changed. The plan has no blobs,
    /// because the check needs none. Refused unless this session holds `fence`.
    CheckPlan {
        fence: Fence,
        #[serde(with = "blob")]
        plan: Vec<u8>,
    },
    /// Run a plan.
    Run(RunOrder),
    /// Verify a cleanup: report units that are not stopped and disabled, and files that still
    /// exist.
    Cleaned { fence: Fence, units: Vec<String>, files: Vec<String>, keep: Vec<String> },
    /// Get contents for a diff. Refused for files that the manifest of this session's last
    /// `Examine` calls secret.
    Fetch { paths: Vec<String> },
    /// List the attempts that have backups on this node. Needs no fence, changes nothing.
    Backups,
    /// Restore the files that `attempt` backed up. Refused unless this session holds a fence.
    Undo { attempt: AttemptId },
    /// The attempt is over: release the lock and end the session. `done`: the attempt succeeded.
    Close { fence: Fence, done: bool },
    /// Stop after the current task. `now`: kill that task too.
    Cancel { now: bool },
    /// Heartbeat; answered by `Alive`.
    Heartbeat,
    /// Take the node for a person, run a plan, release the node. Refused while another run holds
    /// the node.
    Play(PlayOrder),
    /// Let the plays up to `play` begin, without the hosts in `lost`, which failed or were not
    /// reached. May be sent at any time and has no reply.
    Go {
        play: u32,
        #[serde(default)]
        lost: Vec<String>,
    },
    /// The answer to the request `id` of a run (`Reply::Ask`). May be sent at any time and has no
    /// reply.
    Answer {
        id: u64,
        #[serde(with = "blob")]
        content: Vec<u8>,
    },
}

impl ExecutorOrder {
    /// The name of the order, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            ExecutorOrder::Examine { .. } => "examine",
            ExecutorOrder::Branches { .. } => "branches",
            ExecutorOrder::Fence { .. } => "fence",
            ExecutorOrder::CheckPlan { .. } => "check-plan",
            ExecutorOrder::Run(run) => run.phase.as_str(),
            ExecutorOrder::Cleaned { .. } => "cleaned",
            ExecutorOrder::Fetch { .. } => "fetch",
            ExecutorOrder::Backups => "backups",
            ExecutorOrder::Undo { .. } => "undo",
            ExecutorOrder::Close { .. } => "close",
            ExecutorOrder::Cancel { .. } => "cancel",
            ExecutorOrder::Heartbeat => "heartbeat",
            ExecutorOrder::Play(_) => "play",
            ExecutorOrder::Go { .. } => "go",
            ExecutorOrder::Answer { .. } => "answer",
        }
    }
}

/// Shows only the name, because orders contain keys and plans.
impl fmt::Debug for ExecutorOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({})", self.kind())
    }
}

/// Shows only fence, phase and size, because the plan may contain secrets.
impl fmt::Debug for RunOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunOrder({} {:?}, {} bytes)", self.phase.as_str(), self.fence, self.plan.len())
    }
}

/// Identity of the executor; always its first frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the executor's program, for people.
    pub version: String,
    pub proto: u32,
    /// Hash of the executor's running binary.
    pub exe_sha256: Sha256,
    /// The machine type, as `uname -m` prints it.
    pub arch: String,
    pub uid: u32,
    pub boot_id: String,
    pub machine_id: String,
    pub hostname: String,
}

/// One file of the reply to `Fetch`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedFile {
    pub path: String,
    /// The first bytes of the file, at most [`FETCH_MAX`]; empty if `error` is set.
    #[serde(with = "blob")]
    pub content: Vec<u8>,
    /// The size of the whole file in bytes.
    pub size: u64,
    /// The reason why there is no content: missing, secret, not a regular file.
    pub error: Option<String>,
}

/// Omits the content, which must appear only in a diff.
impl fmt::Debug for FetchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FetchedFile({} {} bytes {:?})", self.path, self.size, self.error)
    }
}

/// Maximum number of bytes of one file in a `Fetch` reply.
pub const FETCH_MAX: usize = 64 * 1024;

/// Maximum number of files in one `Fetch`.
pub const FETCH_FILES_MAX: usize = 256;

/// A message from executor to manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Hello(Hello),
    Exam(Exam),
    /// An examination without the entries of its digest. `services` has the digest's root for each
    /// service, and the content below a root that the manager does not know.
    Outlined {
        exam: Exam,
        services: BTreeMap<ServiceName, DigestSummary>,
    },
    /// One answer for each question, in the order of the questions.
    Branches {
        below: Vec<BranchContent>,
    },
    /// This attempt holds the node. `ended` describes the older run that was killed for it.
    Fenced {
        ended: Option<String>,
    },
    /// The reason why this node cannot run a plan. None: the node can run it.
    PlanChecked {
        refused: Option<String>,
    },
    /// Nothing was done. `holder` is the newer fence, if a newer fence is the reason.
    Refused {
        holder: Option<Fence>,
        why: String,
    },
    /// One event of a run as JSON, as the runner of the plan wrote it.
    Event {
        #[serde(with = "blob")]
        event: Vec<u8>,
    },
    /// A request of a run to the controller, as JSON. The run waits for `ExecutorOrder::Answer`
    /// with the same number.
    Ask {
        id: u64,
        #[serde(with = "blob")]
        request: Vec<u8>,
    },
    /// The run is over. The value is the result that the runner of the plan returned.
    RunEnd(serde_json::Value),
    /// The leftovers of a cleanup, one line each. An empty list means that the node is clean.
    Cleaned {
        leftovers: Vec<String>,
    },
    Fetched {
        files: Vec<FetchedFile>,
    },
    /// Attempts that still have a backup on this node.
    Backups {
        attempts: Vec<AttemptId>,
    },
    /// The paths that `Undo` has restored.
    Undone {
        restored: Vec<String>,
    },
    Closed,
    /// The order failed. The session continues, unless the stream failed.
    Error {
        message: String,
    },
    /// Heartbeat reply. `waiting_for` describes the run for which a `Fence` order waits.
    Alive {
        waiting_for: Option<String>,
    },
}

impl Reply {
    /// Whether this reply ends an order. Events, requests and heartbeat replies do not, and `Hello`
    /// belongs to no order.
    pub fn is_final(&self) -> bool {
        !matches!(self, Reply::Hello(_) | Reply::Event { .. } | Reply::Ask { .. } | Reply::Alive { .. })
    }
}

/// A fence of attempt `n`, for tests.
#[cfg(test)]
pub(crate) fn sample_fence(n: u64) -> Fence {
    Fence { cluster: "c1".into(), epoch: remoor_model::Epoch(1), attempt: AttemptId(n) }
}
