//! One machine in the replicated state.

use super::{
    AbsenceNo, Finding, GenerationSeq, GroupName, HostFingerprint, JobId, NodeId, NodeName, Phase, RaftId,
    ResetupRequest, ServiceName, Sha256, Wall,
};
use crate::flat_form;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The role of a node in the cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterRole {
    #[default]
    Worker,
    Manager,
}

impl ClusterRole {
    /// The name of the role as it is stored and displayed.
    pub fn as_str(self) -> &'static str {
        match self {
            ClusterRole::Worker => "worker",
            ClusterRole::Manager => "manager",
        }
    }
}

/// Whether remoor sets a node up again automatically.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability {
    /// The node is set up again automatically.
    #[default]
    Active,
    /// The node is only examined, and the result is reported.
    Pause,
    /// The node is cleaned up, and nothing is provisioned on it. A drained manager still votes.
    Drain,
}

/// Whether a node is in service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifecycle {
    #[default]
    Accepted,
    Commissioning,
    Commissioned,
    Decommissioning,
    Decommissioned,
}

impl Lifecycle {
    /// The name of the lifecycle as it is stored and displayed.
    pub fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Accepted => "accepted",
            Lifecycle::Commissioning => "commissioning",
            Lifecycle::Commissioned => "commissioned",
            Lifecycle::Decommissioning => "decommissioning",
            Lifecycle::Decommissioned => "decommissioned",
        }
    }
}

/// The reason why a node is silent, as far as other nodes can observe it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AbsenceKind {
    /// The host was not probed yet, or does not answer on SSH.
    #[default]
    Away,
    /// The host answers on SSH, but the agent does not.
    AgentDown,
    /// The agent announced that it leaves.
    Left,
}

/// One absence, from the loss of the node to its return. It ends with exactly one verdict
/// (invariant I11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    pub no: AbsenceNo,
    pub opened: Wall,
    /// The time at which the node was last known to be present.
    pub last_seen: Wall,
    /// The managers that noticed the absence. Empty if the absence was detected only after the
    /// node's return.
    pub seen_by: Vec<NodeName>,
    #[serde(rename = "gone")]
    pub kind: AbsenceKind,
    /// The boot id, agent instance and isolation count at the node's last examination.
    pub before: HostFingerprint,
    /// The time of the return. None while the absence lasts.
    pub returned: Option<Wall>,
    /// The boot id, agent instance and isolation count that the agent reported after the return.
    /// They are a hint, not evidence.
    pub after: Option<HostFingerprint>,
    pub planned: bool,
}

/// The state that was found on the node after its last successful provisioning, or at its adoption.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    pub generation: GenerationSeq,
    /// Hash of the node's desired state in the generation of this baseline, see
    /// `HostSummary::desired`.
    pub desired: Sha256,
    /// Root hash of the node digest.
    pub root: Sha256,
    /// Hash of the blob with the complete digest, stored as MessagePack of `Record`.
    pub blob: Sha256,
    pub adopted: bool,
    pub at: Wall,
}

impl Baseline {
    /// The baseline after a job about these services, or about all services if the list is empty.
    /// After a partial job, the desired hash is that of `before`, or all zero if there is no
    /// `before`.
    pub(super) fn of_part(&self, services: &[ServiceName], before: Option<&Baseline>) -> Baseline {
        let whole = before.map(|b| b.desired).unwrap_or_default();
        Baseline { desired: if services.is_empty() { self.desired } else { whole }, ..self.clone() }
    }
}

/// A maintenance that an operator announced. No automatic re-setup of the node begins in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    pub from: Wall,
    pub until: Wall,
    pub by: String,
}

/// A hold of a node. Until it ends, no re-setup of the node begins, except by an order with `now`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub why: String,
    pub since: Wall,
    /// The end of the hold. None if only an operator ends it.
    pub until: Option<Wall>,
}

/// A change of the node's address since it was last set up or adopted. Configuration that was
/// rendered with the old address is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressChange {
    /// The IP address before the change.
    pub from: String,
    /// The time at which the node's address last changed.
    pub since: Wall,
}

/// The data that a joining node reports about itself. The addresses are hints; the key is its
/// identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub name: NodeName,
    /// `host:port` of the TLS API.
    pub api: String,
    /// `ip:port` of gossip.
    pub gossip: String,
    /// The node's ed25519 public key in hex.
    pub public_key: String,
    /// The node's SSH host keys as lines like `ssh-ed25519 AAAA...`. They are checked strictly from
    /// the first login on.
    pub ssh_host_keys: Vec<String>,
    pub machine_id: String,
    pub version: String,
    /// Whether the node is drained from the beginning. Not used after the node is accepted.
    #[serde(default)]
    pub drain: bool,
    /// The zone that the operator named: nodes of one zone may fail together. Empty if there is
    /// none.
    #[serde(default)]
    pub zone: String,
    /// Boot id of the machine when it joined. Empty if unknown. Two machines never have the same
    /// one.
    #[serde(default)]
    pub boot: String,
}

/// One node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    pub spec: NodeSpec,
    pub accepted: Wall,
    /// The desired role. The observed role is derived from the applied Raft membership.
    pub role: ClusterRole,
    pub raft: Option<RaftId>,
    /// Set if the node is removed as soon as it has left Raft.
    pub removing: Option<super::PendingRemoval>,
    pub availability: Availability,
    pub lifecycle: Lifecycle,
    /// The phase in which the last re-setup failed. It is separate from the lifecycle, because a
    /// failed repair must not take a node out of its group.
    pub failed: Option<String>,
    pub maintenance: Option<Maintenance>,
    pub hold: Option<Hold>,
    pub host_key: HostKeyState,
    pub examination: NodeExamination,
    pub absence: Option<Absence>,
    pub absences: AbsenceHistory,
    pub setup: NodeSetup,
    pub pending_resetup: Option<ResetupRequest>,
    /// The node's open job.
    pub job: Option<JobId>,
    /// Whether the node was to be a manager when the cluster was rebuilt without it. Set until an
    /// operator decides its role.
    pub awaiting_role_decision: bool,
}

/// Whether the recorded SSH host keys of a node are trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostKeyState {
    /// Fingerprint of a changed SSH host key that the node offered. Nothing is sent to the node
    /// until `trust-key`.
    pub changed: Option<String>,
    /// Index of the entry by which an operator last trusted the node's SSH host keys.
    pub trusted_at_index: u64,
}

/// The results of the examinations of a node, and whether it has to be examined again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeExamination {
    /// The boot id, agent instance and isolation count at the last examination. None if the node
    /// was never examined.
    pub last_identity: Option<HostFingerprint>,
    /// The time of the last examination.
    pub seen: Wall,
    /// The last finding. It concludes an absence, or an examination of the node while it was not
    /// away.
    pub finding: Option<Finding>,
    /// Number of consecutive examinations that were inconclusive.
    pub consecutive_inconclusive: u32,
    /// Index of the last entry that invalidates earlier examinations: the node returned, something
    /// ran on it, or its baseline or verdict changed.
    pub invalidated_at_index: u64,
    /// The time since which the node is known to be drifted. Later examinations that confirm the
    /// drift do not change it.
    pub drifted_since: Option<Wall>,
    /// Whether something ran on the node after its last examination. The node is then examined even
    /// if its agent reports no problem.
    pub needs_examination: bool,
}

/// The absences of a node so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AbsenceHistory {
    pub count: AbsenceNo,
    /// Start times of the last absences, at most 16. They serve to detect flapping.
    pub recent: Vec<Wall>,
    /// Number of absences that had the cause `agent` according to their verdict.
    pub agent_faults: u32,
}

/// The last set-up or adoption of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSetup {
    pub baseline: Option<Baseline>,
    /// Whether the node was adopted, but neither set up by remoor nor entrusted to it, see
    /// `GroupSummary::policy_of`.
    pub adopted_only: bool,
    pub address_change: Option<AddressChange>,
    /// The node's IP address when its last provisioning began. None after that provisioning
    /// succeeded.
    pub provisioned_at: Option<String>,
}

flat_form! {
    Node {
        id: NodeId,
        spec: NodeSpec,
        accepted: Wall,
        role: ClusterRole,
        raft: Option<RaftId>,
        #[serde(default)]
        removing: Option<super::PendingRemoval>,
        availability: Availability,
        lifecycle: Lifecycle,
        failed: Option<String>,
        maintenance: Option<Maintenance>,
        hold: Option<Hold>,
        key_changed: Option<String>,
        #[serde(rename = "marks")]
        last_identity: Option<HostFingerprint>,
        seen: Wall,
        absence: Option<Absence>,
        absences: AbsenceNo,
        #[serde(rename = "recent")]
        recent_absences: Vec<Wall>,
        finding: Option<Finding>,
        baseline: Option<Baseline>,
        #[serde(default, rename = "watched")]
        adopted_only: bool,
        #[serde(rename = "want")]
        pending_resetup: Option<ResetupRequest>,
        job: Option<JobId>,
        agent_faults: u32,
        #[serde(rename = "unknowns")]
        consecutive_inconclusive: u32,
        #[serde(rename = "altered")]
        invalidated_at_index: u64,
        drifted_since: Option<Wall>,
        #[serde(default, rename = "unseen")]
        needs_examination: bool,
        #[serde(default)]
        trusted: u64,
        #[serde(default, rename = "moved")]
        address_change: Option<AddressChange>,
        #[serde(default)]
        provisioned_at: Option<String>,
        #[serde(default, rename = "lost")]
        awaiting_role_decision: bool,
    } = Self {
        id,
        spec,
        accepted,
        role,
        raft,
        removing,
        availability,
        lifecycle,
        failed,
        maintenance,
        hold,
        host_key: HostKeyState { changed: key_changed, trusted_at_index: trusted },
        examination: NodeExamination {
            last_identity,
            seen,
            finding,
            consecutive_inconclusive,
            invalidated_at_index,
            drifted_since,
            needs_examination,
        },
        absence,
        absences: AbsenceHistory { count: absences, recent: recent_absences, agent_faults },
        setup: NodeSetup { baseline, adopted_only, address_change, provisioned_at },
        pending_resetup,
        job,
        awaiting_role_decision,
    }
}

impl Node {
    /// The node's name.
    pub fn name(&self) -> &NodeName {
        &self.spec.name
    }
    /// Whether the desired role of the node is manager, or the node has not left Raft yet. Other
    /// nodes query and trust such a node, so it is not removed without a demotion.
    pub fn manages(&self) -> bool {
        self.role == ClusterRole::Manager || self.raft.is_some()
    }
    /// The recorded IP address. None if the record contains none.
    pub fn ip(&self) -> Option<&str> {
        super::ip_of(&self.spec.gossip)
    }
    /// Whether an absence is open and the node has not returned.
    pub fn is_away(&self) -> bool {
        self.absence.as_ref().is_some_and(|a| a.returned.is_none())
    }
    /// Records the phase in which a re-setup failed. A failure in the phase `Fence`, or of an undo,
    /// does not overwrite the failure in a later phase.
    pub(super) fn record_failure(&mut self, phase: Phase) {
        if !matches!(phase, Phase::Fence | Phase::Undo) || self.failed.is_none() {
            self.failed = Some(phase.as_str().to_owned());
        }
    }
    /// Records that the node matches its desired state. If the last finding has another verdict,
    /// this event makes the verdict obsolete.
    pub(super) fn mark_as_desired(&mut self, root: Option<Sha256>, at: Wall) {
        self.examination.drifted_since = None;
        if let Some(finding) = &mut self.examination.finding {
            let before = std::mem::replace(&mut finding.verdict, super::Verdict::Same);
            if before != super::Verdict::Same {
                finding.overtaken = Some((before, at));
            }
            finding.reasons = Vec::new();
            finding.digest = root;
            finding.checks = (finding.checks.0 + finding.checks.1 + finding.checks.2, 0, 0);
            finding.failure_hash = Some(0);
        }
    }
    /// Whether the node was set up and has not been decommissioned yet. It is also true for a node
    /// whose decommissioning was revoked.
    pub fn serves(&self) -> bool {
        match self.lifecycle {
            Lifecycle::Commissioned => true,
            Lifecycle::Commissioning | Lifecycle::Decommissioning => self.setup.baseline.is_some(),
            Lifecycle::Accepted | Lifecycle::Decommissioned => false,
        }
    }
    /// Whether the node counts for the budgets and breakers of its group and fleet. Nodes that only
    /// joined or are decommissioned do not count.
    pub fn in_service(&self) -> bool {
        !matches!(self.lifecycle, Lifecycle::Accepted | Lifecycle::Decommissioned)
    }
    /// Whether a re-setup ended between cleanup and verification. Then the node's services possibly
    /// do not run.
    pub fn half_done(&self) -> bool {
        self.failed.as_deref().is_some_and(|phase| phase != Phase::Fence.as_str())
    }
    /// Whether the node is away and its host answers on SSH.
    pub fn agent_down(&self) -> bool {
        self.absence.as_ref().is_some_and(|a| a.returned.is_none() && a.kind == AbsenceKind::AgentDown)
    }
    /// Whether the node is in an announced maintenance at this moment.
    pub fn in_maintenance(&self, at: Wall) -> bool {
        self.maintenance.as_ref().is_some_and(|m| m.from <= at && at < m.until)
    }
    /// The hold that is in force at this moment.
    pub fn active_hold(&self, at: Wall) -> Option<&Hold> {
        self.hold.as_ref().filter(|h| h.until.is_none_or(|until| at < until))
    }
}

/// One applied version of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    pub seq: GenerationSeq,
    /// Hash of the blob with the files of the fleet directory, stored as MessagePack of `FileSet`.
    pub blob: Sha256,
    pub at: Wall,
    pub by: String,
    pub summary: super::FleetSummary,
    /// Hashes of the desired state of those hosts for which `summary` has another hash. They differ
    /// because node addresses changed after the generation was applied.
    #[serde(default)]
    pub rendered: BTreeMap<NodeName, Sha256>,
    /// Index of the last address change with which the hashes in `rendered` were computed.
    #[serde(default)]
    pub rendered_for: u64,
}

impl Generation {
    /// The node's host group. None if the generation does not contain the node.
    pub fn group_of(&self, node: &NodeName) -> Option<&GroupName> {
        self.summary.hosts.get(node).map(|h| &h.group)
    }
    /// Services of the node's group.
    pub fn services_of(&self, node: &NodeName) -> &[super::ServiceName] {
        let group = self.group_of(node).and_then(|name| self.summary.groups.get(name));
        group.map(|g| g.services.as_slice()).unwrap_or_default()
    }
    /// Hash of the node's desired state, rendered with the recorded addresses. None if the
    /// generation does not contain the node.
    pub fn desired_hash(&self, node: &NodeName) -> Option<Sha256> {
        self.rendered.get(node).copied().or_else(|| self.summary.hosts.get(node).map(|h| h.desired))
    }
}
