//! What the manager orders and what the executor answers. Own types of the wire, versioned by [`PROTO`].
//!
//! The manager sends one order at a time and waits for its final reply; `Heartbeat` and `Cancel` may come at any time.
//! A plan, its events and its end are opaque here: `playbook` gives them their meaning.

pub mod frame;

use self::frame::blob;
use crate::model::{
    AttemptId, Below, BranchQuestion, Exam, Fence, JobId, Manifest, NodeName, Outline, ServiceName, Sha256,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Version of everything in this file; both ends must have the same.
pub const PROTO: u32 = 1;

/// Which half of a re-setup a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Cleanup,
    Provision,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Cleanup => "cleanup",
            Phase::Provision => "provision",
        }
    }
}

/// Run a plan. Refused unless this session holds `fence`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOrder {
    pub fence: Fence,
    pub phase: Phase,
    /// A serialized plan; may hold secrets, so it is kept out of `Debug` and off the disk.
    #[serde(with = "blob")]
    pub plan: Vec<u8>,
    /// Paths that this run may not delete, as globs.
    pub protect: Vec<String>,
    /// Globs of files whose content no event may show.
    #[serde(default)]
    pub secret: Vec<String>,
    /// What the audit line names: the tags or services that the run is about.
    pub tags: Vec<String>,
    /// After so long the run is told to stop after its current task.
    pub timeout_ms: u64,
}

/// Run a plan because a person asked for it (`remoor play`), outside of any attempt. The node is held for the time of the run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlayOrder {
    /// A serialized plan; may hold secrets, as that of a [`RunOrder`].
    #[serde(with = "blob")]
    pub plan: Vec<u8>,
    /// Which playbook it is: handlers that a run owes are for the next run of the same name.
    pub name: String,
    /// What the audit line names.
    pub run_id: String,
    pub tags: Vec<String>,
    /// Only tell what would be changed.
    pub check: bool,
    /// Also on a node of a fleet.
    pub force: bool,
    /// Plays after this one wait for `Go`; None: none waits.
    #[serde(default)]
    pub through: Option<u32>,
    /// Hosts of the run that failed or were not reached before.
    #[serde(default)]
    pub lost: Vec<String>,
}

/// From manager to executor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Digest and checks. Needs no fence, changes nothing. `known`: roots of services whose entries the manager has; then
    /// the answer is `Outlined`. An executor of before it answers `Exam`, with every entry.
    Examine {
        manifest: Manifest,
        digest_key: [u8; 32],
        #[serde(default, skip_serializing_if = "Option::is_none")]
        known: Option<BTreeMap<ServiceName, Sha256>>,
    },
    /// What is below branches of the digest that the last examination of this session outlined.
    Branches { questions: Vec<BranchQuestion> },
    /// Take the node for one attempt: remember the fence, end an older attempt, take the lock. A `remoor play` that
    /// holds the lock is waited for, at most `timeout_ms`.
    Fence { fence: Fence, node: NodeName, job: JobId, timeout_ms: u64 },
    /// Run a plan.
    Run(RunOrder),
    /// Look whether cleanup left anything: units neither stopped nor disabled, files that still exist.
    Cleaned { fence: Fence, units: Vec<String>, files: Vec<String>, keep: Vec<String> },
    /// Contents for a diff. Only files that the manifest of an earlier `Examine` of this session does not call secret.
    Fetch { paths: Vec<String> },
    /// Which attempts have copies here. Needs no fence, changes nothing.
    Backups,
    /// Put the files back that `attempt` copied aside. Refused unless this session holds a fence.
    Undo { attempt: AttemptId },
    /// The attempt is over; gives the lock back and ends the session.
    Close { fence: Fence, done: bool },
    /// Stop after the current task; `now`: end that too.
    Cancel { now: bool },
    /// Sign of life; answered by `Alive`.
    Heartbeat,
    /// Take the node for a person, run a plan, give the node back. Refused while somebody else holds it.
    Play(PlayOrder),
    /// Plays up to this one may begin, without the hosts in `lost`, which failed or were not reached. May come at any time,
    /// and is not answered.
    Go {
        play: u32,
        #[serde(default)]
        lost: Vec<String>,
    },
}

impl Order {
    /// Its name, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Order::Examine { .. } => "examine",
            Order::Branches { .. } => "branches",
            Order::Fence { .. } => "fence",
            Order::Run(run) => run.phase.as_str(),
            Order::Cleaned { .. } => "cleaned",
            Order::Fetch { .. } => "fetch",
            Order::Backups => "backups",
            Order::Undo { .. } => "undo",
            Order::Close { .. } => "close",
            Order::Cancel { .. } => "cancel",
            Order::Heartbeat => "heartbeat",
            Order::Play(_) => "play",
            Order::Go { .. } => "go",
        }
    }
}

/// The name only: orders carry keys and plans.
impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({})", self.kind())
    }
}

/// Fence and phase only: the plan may hold secrets.
impl fmt::Debug for RunOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunOrder({} {:?}, {} bytes)", self.phase.as_str(), self.fence, self.plan.len())
    }
}

/// Who the executor is; always its first frame.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program, for people.
    pub version: String,
    pub proto: u32,
    /// Of the running binary.
    pub exe_sha256: Sha256,
    /// As `uname -m` writes it.
    pub arch: String,
    pub uid: u32,
    pub boot_id: String,
    pub machine_id: String,
    pub hostname: String,
}

/// One file of `Fetch`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedFile {
    pub path: String,
    /// At most [`FETCH_MAX`] bytes from the start; empty if `error` is there.
    #[serde(with = "blob")]
    pub content: Vec<u8>,
    /// The whole size in bytes.
    pub size: u64,
    /// Why there is no content: missing, secret, no regular file.
    pub error: Option<String>,
}

/// Without the content, which belongs into a diff and nowhere else.
impl fmt::Debug for FetchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FetchedFile({} {} bytes {:?})", self.path, self.size, self.error)
    }
}

/// So much of one file `Fetch` answers with, in bytes.
pub const FETCH_MAX: usize = 64 * 1024;

/// So many files one `Fetch` may ask for.
pub const FETCH_FILES_MAX: usize = 256;

/// From executor to manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    Hello(Hello),
    Exam(Exam),
    /// An examination whose digest is empty here and outlined beside it.
    Outlined {
        exam: Exam,
        services: BTreeMap<ServiceName, Outline>,
    },
    /// One answer for each question, in order.
    Branches {
        below: Vec<Below>,
    },
    /// The node is this attempt's. `ended` says what had to be ended for it.
    Fenced {
        ended: Option<String>,
    },
    /// Nothing was done. `holder` is the fence that stands in the way, if it is one.
    Refused {
        holder: Option<Fence>,
        why: String,
    },
    /// One event of a run, as the plan's runner wrote it (JSON).
    Event {
        #[serde(with = "blob")]
        event: Vec<u8>,
    },
    /// The run is over; what its runner says of it.
    RunEnd(serde_json::Value),
    /// What cleanup left behind, one line each; empty means clean.
    Cleaned {
        leftovers: Vec<String>,
    },
    Fetched {
        files: Vec<FetchedFile>,
    },
    /// Attempts whose copies are still here.
    Backups {
        attempts: Vec<AttemptId>,
    },
    /// Paths that were put back.
    Undone {
        restored: Vec<String>,
    },
    Closed,
    /// The order could not be carried out; the session goes on, unless it was the stream that failed.
    Error {
        message: String,
    },
    /// Sign of life, with what a `Fence` waits for.
    Alive {
        waiting_for: Option<String>,
    },
}

impl Reply {
    /// Whether this ends an order. Events and signs of life do not, and `Hello` belongs to none.
    pub fn is_final(&self) -> bool {
        !matches!(self, Reply::Hello(_) | Reply::Event { .. } | Reply::Alive { .. })
    }
}

/// A fence of attempt `n`, for tests.
#[cfg(test)]
pub(crate) fn sample_fence(n: u64) -> Fence {
    Fence { cluster: "c1".into(), epoch: crate::model::Epoch(1), attempt: AttemptId(n) }
}
