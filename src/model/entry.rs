//! Everything that may enter the Raft log. A refused command changes nothing (I12).

use super::{
    AbsenceNo, AttemptId, Availability, Baseline, ClusterId, ClusterRole, Epoch, Finding, FleetSummary, GenerationSeq,
    Gone, JobId, Marks, NodeId, NodeName, NodeSpec, Outcome, Phase, RaftId, Sha256, Wall, Want,
};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Highest format of an entry that this program reads. An entry whose meaning an earlier program would miss, by a field that
/// counts or by another rule of applying it, is written with the next number as its first field, `format`; one without it is of
/// format 1. A manager that gets, or finds, an entry of a later format stops there, instead of applying it as something else.
pub const ENTRY_FORMAT: u32 = 3;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Stored")]
pub struct Entry {
    pub at: Wall,
    /// The manager or operator that proposes it, for the journal.
    pub by: String,
    pub command: Command,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, by, command } = self;
        let format = Some(command.format()).filter(|format| *format > 1);
        Written { format, at, by, command }.serialize(serializer)
    }
}

/// An entry as it is written.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<u32>,
    at: &'a Wall,
    by: &'a str,
    command: &'a Command,
}

/// An entry as it is read: the format is looked at before what it is about.
#[derive(Deserialize)]
struct Stored {
    #[serde(default, rename = "format")]
    _format: Readable,
    at: Wall,
    by: String,
    command: Command,
}

impl From<Stored> for Entry {
    fn from(Stored { _format, at, by, command }: Stored) -> Self {
        Self { at, by, command }
    }
}

/// The format of an entry that this program reads; another one is an error.
#[derive(Default, Deserialize)]
#[serde(try_from = "u32")]
struct Readable;

impl TryFrom<u32> for Readable {
    type Error = String;

    fn try_from(format: u32) -> Result<Self, String> {
        match format {
            ..=ENTRY_FORMAT => Ok(Self),
            _ => Err(format!(
                "an entry of format {format}, this program reads up to {ENTRY_FORMAT}: install the newer program"
            )),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// First of all: who we are, and the hashes of the joining secrets.
    Init {
        cluster: ClusterId,
        epoch: Epoch,
        ca_pem: String,
        worker_secret: Sha256,
        manager_secret: Sha256,
    },
    /// A machine joins; its id is the index of this entry. The same key joins as the same node.
    Accept {
        spec: NodeSpec,
        role: ClusterRole,
    },
    /// Lets one machine of this name in by a secret of its own, until `expires`.
    Invite {
        secret: Sha256,
        name: NodeName,
        role: ClusterRole,
        expires: Wall,
    },
    /// An invited machine joins, in the role of its invitation.
    AcceptInvited {
        spec: NodeSpec,
        secret: Sha256,
    },
    /// A machine without a secret asks to be let in; it has proved to hold its key.
    Pend {
        spec: NodeSpec,
        role: ClusterRole,
    },
    /// The machine that waits under this name with this key may come in.
    Admit {
        name: NodeName,
        key: String,
        role: ClusterRole,
    },
    /// The machine that waits under this name is not let in.
    Deny {
        name: NodeName,
    },
    /// An operator has credentials with this key, of this CA, until then.
    MakeOperator {
        name: String,
        key: String,
        ca: Sha256,
        until: Wall,
    },
    /// All credentials that were made for this operator count no more.
    RevokeOperator {
        name: String,
    },
    /// An admitted machine joins, in the role that it was admitted in.
    AcceptPending {
        spec: NodeSpec,
    },
    /// A node came with a certificate that had run out.
    Lapse {
        node: NodeId,
    },
    /// It may have a new one.
    Readmit {
        node: NodeId,
    },
    /// It has used the new one.
    Renewed {
        node: NodeId,
    },
    /// Another join secret for this role; the one before counts for `keep_ms` more.
    RotateToken {
        role: ClusterRole,
        secret: Sha256,
        keep_ms: u64,
    },
    /// A new gossip key for all nodes, which the managers derive from the index of this entry.
    RotateGossip,
    /// All have it as it was at entry `changed`: the next step.
    GossipStep {
        changed: u64,
    },
    /// A new certificate authority for all nodes; its key is on a majority of the managers already.
    RotateCa {
        ca_pem: String,
        /// The same, signed by the present one.
        cross_pem: String,
    },
    /// All are where entry `changed` wanted them: the next step.
    CaStep {
        changed: u64,
    },
    /// These workers, which are away, are not waited for by the rotation under way.
    FinishCa {
        without: BTreeSet<NodeId>,
    },
    /// Gives a manager its Raft id: the index of this entry, 1 for the founder. One that has an id keeps it.
    Grant {
        node: NodeId,
        founder: bool,
    },
    /// The node is to be a manager, or a worker, from now on; what follows from that is brought about by the leader.
    Role {
        node: NodeId,
        role: ClusterRole,
    },
    /// A worker's Raft id, which is out of the membership of Raft, is nobody's from now on and is never granted again.
    Retire {
        node: NodeId,
        raft: RaftId,
    },
    /// The node is taken out for good, and remembered as removed. Refused while it manages, is up or has an open job; with
    /// `force` only for the job, and a manager is removed once it has left Raft.
    Remove {
        node: NodeId,
        force: bool,
    },
    /// The node says itself that it goes for good. Refused while it manages or has an open job.
    Leave {
        node: NodeId,
    },
    /// A node that left, at this moment, did not come back within the time that is set: it is taken out, as by `Remove`.
    ForgetLeft {
        node: NodeId,
        since: Wall,
    },
    /// The node signs at another address than the one entered. Refused where another node has that one and is not away,
    /// unless it is `over`: the leader has seen that one elsewhere.
    Readdress {
        node: NodeId,
        api: String,
        gossip: String,
        #[serde(default)]
        over: Option<NodeId>,
    },
    /// What is desired, rendered anew after the move at `moved`: the hosts whose hash is another than the one that was
    /// applied. With a `fault` nothing is changed, and nobody waits for it any longer.
    Rendered {
        generation: GenerationSeq,
        moved: u64,
        hosts: BTreeMap<NodeName, Sha256>,
        fault: Option<String>,
    },
    TrustKey {
        node: NodeId,
        keys: Vec<String>,
    },
    KeyChanged {
        node: NodeId,
        fingerprint: String,
        /// Applied index that the look began with: a key that was trusted since is not changed. 0: not told (older managers).
        #[serde(default)]
        basis: u64,
    },
    Generation {
        blob: Sha256,
        summary: Box<FleetSummary>,
    },
    Availability {
        node: NodeId,
        availability: Availability,
    },
    /// Nothing is provisioned on the node until it is resumed; what is there, if anything, is cleaned up by `want`.
    Drain {
        node: NodeId,
        want: Box<Want>,
    },
    /// What fails together with this node, by name; empty: nobody says.
    Zone {
        node: NodeId,
        zone: String,
    },
    Maintenance {
        node: NodeId,
        until: Option<Wall>,
    },
    /// First sight of a node, and every later moment at which nothing was missed.
    Marks {
        node: NodeId,
        marks: Marks,
    },
    AbsenceOpened {
        node: NodeId,
        no: AbsenceNo,
        last_seen: Wall,
        seen_by: Vec<NodeName>,
        gone: Gone,
        planned: bool,
        /// Set for an absence that is told from its traces only.
        returned: Option<Marks>,
    },
    Gone {
        node: NodeId,
        no: AbsenceNo,
        gone: Gone,
    },
    Returned {
        node: NodeId,
        no: AbsenceNo,
        after: Marks,
    },
    /// Away again before it was examined: the same absence goes on.
    AwayAgain {
        node: NodeId,
        no: AbsenceNo,
    },
    /// The conclusion of an absence, or of a live examination.
    Conclude {
        node: NodeId,
        finding: Box<Finding>,
    },
    /// A live examination that could not tell: counted, nothing else.
    Unclear {
        node: NodeId,
        why: String,
    },
    Adopt {
        node: NodeId,
        baseline: Baseline,
        /// Applied index that the look began with: what was set up since is not what was seen. 0: not told (older managers).
        #[serde(default)]
        basis: u64,
    },
    /// A node that was only adopted comes under the policies of its group; nothing is run.
    Entrust {
        node: NodeId,
    },
    /// An operator's order, or a decommissioning; queued while the node is away.
    Want {
        node: NodeId,
        want: Box<Want>,
    },
    DropWant {
        node: NodeId,
        why: String,
    },
    OpenJob {
        node: NodeId,
        runner: NodeName,
    },
    NextAttempt {
        job: JobId,
        after: AttemptId,
        runner: NodeName,
        why: String,
    },
    Phase {
        job: JobId,
        attempt: AttemptId,
        phase: Phase,
    },
    CloseAttempt {
        job: JobId,
        attempt: AttemptId,
        outcome: Outcome,
        baseline: Option<Baseline>,
        marks: Option<Marks>,
    },
    HoldJob {
        job: JobId,
        why: String,
    },
    /// The task under way may finish, unless `now` says otherwise; that may be said of a cancelled job too.
    CancelJob {
        job: JobId,
        why: String,
        #[serde(default)]
        now: bool,
    },
    BreakerOpened {
        group: Option<super::GroupName>,
        why: String,
    },
    Resume,
    ResumeNode {
        node: NodeId,
    },
    /// Orders about nodes that are accepted all or refused all; at most [`BATCH_MAX`].
    Batch(Vec<Command>),
    /// An order by way of those who may be of the cluster no more once it is applied, and then it is refused.
    Ordered {
        /// The manager that passed it on to the leader.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<NodeId>,
        /// The operator's key, in hex, where the credentials were made by an entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        command: Box<Command>,
    },
}

/// So many orders one entry may hold.
pub const BATCH_MAX: usize = 1_000;

impl Command {
    /// Which format an entry about it has.
    fn format(&self) -> u32 {
        match self {
            Command::MakeOperator { .. } | Command::RevokeOperator { .. } => 2,
            Command::Ordered { .. } => 3,
            _ => 1,
        }
    }

    /// With those whose standing is asked again when it is applied. Where there are none it stays what it is, which an earlier
    /// program reads.
    pub fn ordered(self, via: Option<NodeId>, key: Option<String>) -> Self {
        if via.is_none() && key.is_none() {
            return self;
        }
        Command::Ordered { via, key, command: Box::new(self) }
    }

    /// The node of an order that may stand in a batch; None: it may not.
    pub fn in_batch(&self) -> Option<NodeId> {
        match self {
            Command::Want { node, .. }
            | Command::DropWant { node, .. }
            | Command::Entrust { node }
            | Command::Availability { node, .. }
            | Command::Drain { node, .. }
            | Command::Zone { node, .. }
            | Command::Maintenance { node, .. }
            | Command::ResumeNode { node }
            | Command::Role { node, .. }
            | Command::Remove { node, .. } => Some(*node),
            _ => None,
        }
    }
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Applied {
    Done,
    Node(NodeId),
    Raft(super::RaftId),
    Generation(super::GenerationSeq),
    Job(JobId, AttemptId),
    Refused(Refusal),
}

impl Applied {
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Applied::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// Why nothing was changed; `next` is a command or an action that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Machine-readable, kebab-case, stable.
    pub code: String,
    pub message: String,
    pub next: Option<String>,
}

impl Refusal {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), next: None }
    }
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
