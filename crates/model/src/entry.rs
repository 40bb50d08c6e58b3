//! The commands of the Raft log. A refused command changes nothing (invariant I12).

use super::{
    AbsenceKind, AbsenceNo, AttemptId, AttemptOutcome, Availability, Baseline, ClusterId, ClusterRole, Epoch, Finding,
    FleetSummary, GenerationSeq, HostFingerprint, JobId, NodeId, NodeName, NodeSpec, Phase, RaftId, ResetupRequest,
    Sha256, Wall,
};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The highest entry format that this program reads. If an earlier program would misread an entry
/// (a new field, or another rule for applying it), the entry gets the next number as its first
/// field, `format`. An entry without that field has format 1. A manager that meets a higher format
/// stops. Otherwise it would compute another state than the other managers.
pub const ENTRY_FORMAT: u32 = 4;

/// One entry of the replicated log. It is stored as a MessagePack map with field names.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "EntryToRead")]
pub struct InventoryEntry {
    pub at: Wall,
    /// The manager or operator that proposed the entry, for the journal.
    pub by: String,
    pub command: Command,
}

impl Serialize for InventoryEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { at, by, command } = self;
        let format = Some(command.format()).filter(|format| *format > 1);
        EntryToWrite { format, at, by, command }.serialize(serializer)
    }
}

/// The form in which an entry is written.
#[derive(Serialize)]
struct EntryToWrite<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<u32>,
    at: &'a Wall,
    by: &'a str,
    command: &'a Command,
}

/// The form in which an entry is read. Its format is checked before its other fields.
#[derive(Deserialize)]
struct EntryToRead {
    #[serde(default, rename = "format")]
    _format: ReadableFormat,
    at: Wall,
    by: String,
    command: Command,
}

impl From<EntryToRead> for InventoryEntry {
    fn from(EntryToRead { _format, at, by, command }: EntryToRead) -> Self {
        Self { at, by, command }
    }
}

/// The format of an entry. Reading fails if this program does not support it.
#[derive(Default, Deserialize)]
#[serde(try_from = "u32")]
struct ReadableFormat;

impl TryFrom<u32> for ReadableFormat {
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

/// A change of the replicated state. Variant and field names are stored in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// The first entry of a cluster: its identity and the hashes of the join secrets.
    Init {
        cluster: ClusterId,
        epoch: Epoch,
        ca_pem: String,
        worker_secret: Sha256,
        manager_secret: Sha256,
    },
    /// A machine joins. The index of this entry becomes its id. A machine whose key is known joins
    /// as the node that has this key.
    Accept {
        spec: NodeSpec,
        role: ClusterRole,
    },
    /// Allows one machine to join with this name and its own secret, until `expires`.
    Invite {
        secret: Sha256,
        name: NodeName,
        role: ClusterRole,
        expires: Wall,
    },
    /// An invited machine joins in the role of its invitation.
    AcceptInvited {
        spec: NodeSpec,
        secret: Sha256,
    },
    /// A machine without a secret requests to join. It has proved that it holds its key.
    Pend {
        spec: NodeSpec,
        role: ClusterRole,
    },
    /// Allows the machine that waits under this name with this key to join.
    Admit {
        name: NodeName,
        key: String,
        role: ClusterRole,
    },
    /// Denies the machine that waits under this name.
    Deny {
        name: NodeName,
    },
    /// Records operator credentials with the public key `key`. The CA `ca` issued them, and they
    /// are valid until `until`. All programs that know `enforce` set it. From the first entry with
    /// `enforce` on, the managers accept only recorded credentials.
    MakeOperator {
        name: String,
        key: String,
        ca: Sha256,
        until: Wall,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        enforce: bool,
    },
    /// Revokes all credentials of this operator.
    RevokeOperator {
        name: String,
    },
    /// An admitted machine joins in the role in which it was admitted.
    AcceptPending {
        spec: NodeSpec,
    },
    /// A node presented an expired certificate.
    #[serde(rename = "Lapse")]
    CertificateExpired {
        node: NodeId,
    },
    /// Allows the node to get a new certificate.
    Readmit {
        node: NodeId,
    },
    /// The node has used its new certificate.
    #[serde(rename = "Renewed")]
    CertificateRenewed {
        node: NodeId,
    },
    /// Sets a new join secret for this role. The previous secret stays valid for `keep_ms`
    /// milliseconds.
    RotateToken {
        role: ClusterRole,
        secret: Sha256,
        keep_ms: u64,
    },
    /// Begins a gossip key rotation. The managers derive the new key from the index of this entry.
    RotateGossip,
    /// Begins the next step of the gossip key rotation. All nodes have the gossip keys of entry
    /// `changed`.
    GossipStep {
        changed: u64,
    },
    /// Begins a CA rotation. A majority of the managers already stores the new CA's key.
    RotateCa {
        ca_pem: String,
        /// The new CA's certificate, signed by the current CA.
        cross_pem: String,
    },
    /// Begins the next step of the CA rotation. All nodes have reached the CA state of entry
    /// `changed`.
    CaStep {
        changed: u64,
    },
    /// Ends the waiting of the current CA rotation for these absent workers.
    FinishCa {
        without: BTreeSet<NodeId>,
    },
    /// Gives a manager its Raft id: the index of this entry, or 1 for the founder. A node that has
    /// an id keeps it.
    Grant {
        node: NodeId,
        founder: bool,
    },
    /// Sets the desired cluster role of the node. The leader then changes the Raft membership.
    Role {
        node: NodeId,
        role: ClusterRole,
    },
    /// Withdraws a worker's Raft id after the id has left the Raft membership. The id is never
    /// granted again.
    Retire {
        node: NodeId,
        raft: RaftId,
    },
    /// Removes the node permanently and remembers it as removed. Without `force`, the command is
    /// refused while the node is a manager, is up or has an open job. With `force`, it is refused
    /// only while the node has an open job. A manager is then removed once it has left Raft.
    Remove {
        node: NodeId,
        force: bool,
        /// Whether a new gossip key is due after the removal, see
        /// [`Inventory::is_gossip_rotation_due`](super::Inventory::is_gossip_rotation_due).
        #[serde(default)]
        rotate_gossip: bool,
    },
    /// The node announces that it leaves permanently. The command is refused while the node is a
    /// manager or has an open job.
    Leave {
        node: NodeId,
    },
    /// Removes a node that left at `since` and did not return within the configured time. The
    /// effect is that of `Remove`.
    ForgetLeft {
        node: NodeId,
        since: Wall,
    },
    /// The node signs gossip with another address than the recorded one. The command is refused if
    /// another node that is not away has the new address. It is not refused if `over` names that
    /// other node, because the leader has then observed the other node elsewhere.
    Readdress {
        node: NodeId,
        api: String,
        gossip: String,
        #[serde(default)]
        over: Option<NodeId>,
    },
    /// The desired state, rendered again after the address change at entry `moved`. `hosts`
    /// contains the hosts whose desired state has another hash than in the generation. If `fault`
    /// is set, the rendering failed. Then no hash changes, and nothing waits for the rendering any
    /// more.
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
        /// Applied index when the examination began. An SSH host key that was trusted after that
        /// index is not marked as changed. 0 if unknown (older managers).
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
    /// Provisions nothing on the node until the node is resumed. The request `want` cleans it up.
    Drain {
        node: NodeId,
        want: Box<ResetupRequest>,
    },
    /// Sets the zone of this node. Nodes of one zone may fail together. An empty name removes the
    /// node from its zone.
    Zone {
        node: NodeId,
        zone: String,
    },
    Maintenance {
        node: NodeId,
        until: Option<Wall>,
    },
    /// The boot id, agent instance and isolation count of a node. They are recorded at its first
    /// examination, and at each later one that shows no missed absence.
    #[serde(rename = "Marks")]
    Fingerprint {
        node: NodeId,
        marks: HostFingerprint,
    },
    AbsenceOpened {
        node: NodeId,
        no: AbsenceNo,
        last_seen: Wall,
        seen_by: Vec<NodeName>,
        gone: AbsenceKind,
        planned: bool,
        /// Set if nobody noticed the absence while it lasted. It was detected after the node's
        /// return, because the boot id, the agent instance or the isolation count had changed.
        returned: Option<HostFingerprint>,
    },
    #[serde(rename = "Gone")]
    SetAbsenceKind {
        node: NodeId,
        no: AbsenceNo,
        gone: AbsenceKind,
    },
    Returned {
        node: NodeId,
        no: AbsenceNo,
        after: HostFingerprint,
    },
    /// The node went away again before its examination. The same absence continues.
    AwayAgain {
        node: NodeId,
        no: AbsenceNo,
    },
    /// The conclusion about an absence, or of an examination of a node that was not away.
    Conclude {
        node: NodeId,
        finding: Box<Finding>,
    },
    /// An examination of a node that was not away was inconclusive. The command only counts it.
    #[serde(rename = "Unclear")]
    Inconclusive {
        node: NodeId,
        why: String,
    },
    Adopt {
        node: NodeId,
        baseline: Baseline,
        /// Applied index when the examination began. The command is refused if the node was changed
        /// after that index. 0 if unknown (older managers).
        #[serde(default)]
        basis: u64,
    },
    /// Puts an adopted node under the policies of its group. Runs nothing.
    Entrust {
        node: NodeId,
    },
    /// Requests a re-setup, a decommissioning or an undo. The request waits while the node is away.
    #[serde(rename = "Want")]
    RequestResetup {
        node: NodeId,
        want: Box<ResetupRequest>,
    },
    #[serde(rename = "DropWant")]
    DropRequest {
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
        outcome: AttemptOutcome,
        baseline: Option<Baseline>,
        marks: Option<HostFingerprint>,
    },
    HoldJob {
        job: JobId,
        why: String,
    },
    /// Cancels the job. The current task may finish unless `now` is set. For a job that is already
    /// cancelled, a second command may set `now`.
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
    /// Orders about nodes, at most [`BATCH_MAX`]. They are accepted or refused together.
    Batch(Vec<Command>),
    /// An order with its issuers. If an issuer has lost its authorization before the entry is
    /// applied, the order is refused.
    Ordered {
        /// The manager that forwarded the order to the leader.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<NodeId>,
        /// The operator's key in hex, if a log entry recorded the credentials.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        command: Box<Command>,
    },
}

/// Maximum number of orders in one entry.
pub const BATCH_MAX: usize = 1_000;

impl Command {
    /// The entry format that this command needs.
    fn format(&self) -> u32 {
        match self {
            Command::Ordered { command, .. } => command.format_without_issuers().max(3),
            _ => self.format_without_issuers(),
        }
    }

    fn format_without_issuers(&self) -> u32 {
        match self {
            Command::MakeOperator { enforce: false, .. } | Command::RevokeOperator { .. } => 2,
            Command::MakeOperator { enforce: true, .. } | Command::Remove { rotate_gossip: true, .. } => 4,
            Command::Batch(commands) if commands.iter().any(Command::rotates_gossip) => 4,
            _ => 1,
        }
    }

    fn rotates_gossip(&self) -> bool {
        matches!(self, Command::Remove { rotate_gossip: true, .. })
    }

    /// Adds the issuers, whose authorization is checked again when the entry is applied. Without
    /// issuers the command is unchanged, so that earlier programs can read it.
    pub fn with_issuers(self, via: Option<NodeId>, key: Option<String>) -> Self {
        if via.is_none() && key.is_none() {
            return self;
        }
        Command::Ordered { via, key, command: Box::new(self) }
    }

    /// The node of an order that is allowed in a batch. None if the command is not allowed there.
    pub fn in_batch(&self) -> Option<NodeId> {
        match self {
            Command::RequestResetup { node, .. }
            | Command::DropRequest { node, .. }
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

/// The result of applying an entry.
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
    /// The refusal. None if the command was applied.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Applied::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// The reason why a command changed nothing. `next` is a command or an action that helps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind of refusal for programs, in kebab-case. It does not change between versions.
    pub code: String,
    pub message: String,
    pub next: Option<String>,
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), next: None }
    }
    /// Adds the hint: a command or an action that helps.
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: Some(next.into()), ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
