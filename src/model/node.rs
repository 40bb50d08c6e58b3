//! One machine as the replicated state knows it.

use super::{
    AbsenceNo, AttemptId, Finding, GenerationSeq, GroupName, JobId, Marks, NodeId, NodeName, Occasion, Phase, RaftId,
    Reason, ServiceName, Sha256, Vars, Wall,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterRole {
    #[default]
    Worker,
    Manager,
}

impl ClusterRole {
    pub fn word(self) -> &'static str {
        match self {
            ClusterRole::Worker => "worker",
            ClusterRole::Manager => "manager",
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability {
    /// Automatic re-setup.
    #[default]
    Active,
    /// Examined and reported only.
    Pause,
    /// Cleaned up, and nothing is provisioned on it; a manager goes on voting.
    Drain,
}

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
    pub fn word(self) -> &'static str {
        match self {
            Lifecycle::Accepted => "accepted",
            Lifecycle::Commissioning => "commissioning",
            Lifecycle::Commissioned => "commissioned",
            Lifecycle::Decommissioning => "decommissioning",
            Lifecycle::Decommissioned => "decommissioned",
        }
    }
}

/// Why a silent node is silent, as far as one can tell from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gone {
    /// Not probed yet, or the host does not answer on SSH either.
    #[default]
    Away,
    /// The host answers on SSH, the agent does not.
    AgentDown,
    /// The agent said goodbye.
    Left,
}

/// One away-and-back episode; ends in exactly one verdict (I11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absence {
    pub no: AbsenceNo,
    pub opened: Wall,
    /// When the node was last known to be there.
    pub last_seen: Wall,
    /// The managers that missed it; empty for an absence that nobody saw.
    pub seen_by: Vec<NodeName>,
    pub gone: Gone,
    /// What the node was like when last examined.
    pub before: Marks,
    /// None while it lasts.
    pub returned: Option<Wall>,
    /// What the agent said of itself on return; a hint, not evidence.
    pub after: Option<Marks>,
    pub planned: bool,
}

/// What the node was found to have after the last good provisioning, or when adopted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    pub generation: GenerationSeq,
    /// `HostSummary::desired` of that generation.
    pub desired: Sha256,
    /// Root of the node digest.
    pub root: Sha256,
    /// Blob with the node digest itself, MessagePack of `NodeDigest`.
    pub blob: Sha256,
    pub adopted: bool,
    pub at: Wall,
}

impl Baseline {
    /// Of a node of which only these services (empty: all) were set up: as a whole it is what it was `before`, or nothing.
    pub(super) fn of_part(&self, services: &[ServiceName], before: Option<&Baseline>) -> Baseline {
        let whole = before.map(|b| b.desired).unwrap_or_default();
        Baseline { desired: if services.is_empty() { self.desired } else { whole }, ..self.clone() }
    }
}

/// A re-setup that is asked for and not begun: level-triggered, so nothing that dies forgets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Want {
    pub occasion: Occasion,
    pub reasons: Vec<Reason>,
    /// Empty: the whole group.
    pub services: Vec<ServiceName>,
    pub since: Wall,
    /// When the examination behind it was made; None: an operator's order needs none.
    pub examined: Option<Wall>,
    /// None: remoor itself.
    pub by: Option<String>,
    /// Overrides hold, window and settle; never fence or quorum.
    pub now: bool,
    /// Only cleanup, no provisioning after it.
    pub decommission: bool,
    /// Also where only the agent is down; overrides nothing else.
    #[serde(default)]
    pub force: bool,
    /// No re-setup: puts back what this attempt copied aside. Is dropped when the node goes away.
    #[serde(default)]
    pub undo: Option<AttemptId>,
    /// Takes the node into service, also one that was taken out. Nothing else does.
    #[serde(default)]
    pub commission: bool,
    /// Stronger than all that the fleet says, for this re-setup only.
    #[serde(default)]
    pub vars: Vars,
    /// An order that rolls a generation out to several of its group: one of them goes first, as where remoor itself does it.
    #[serde(default)]
    pub rollout: bool,
}

impl Want {
    /// The whole group, wanted by remoor itself, for no reason that an examination found; whoever wants more says so.
    pub fn new(occasion: Occasion, since: Wall) -> Self {
        Self {
            occasion,
            reasons: Vec::new(),
            services: Vec::new(),
            since,
            examined: None,
            by: None,
            now: false,
            decommission: false,
            force: false,
            undo: None,
            commission: false,
            vars: Vars::new(),
            rollout: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    pub from: Wall,
    pub until: Wall,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub why: String,
    pub since: Wall,
    /// None: until an operator ends it.
    pub until: Option<Wall>,
}

/// The node is at another address than when it was last set up, or adopted: what is rendered with it is not right there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// IP address of then.
    pub from: String,
    /// When it moved last.
    pub since: Wall,
}

/// What a joining node says of itself; addresses are hints, the key is its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub name: NodeName,
    /// `host:port` of the TLS API.
    pub api: String,
    /// `ip:port` of gossip.
    pub gossip: String,
    /// ed25519, hex.
    pub public_key: String,
    /// `ssh-ed25519 AAAA...` lines; strict from the first login on.
    pub ssh_host_keys: Vec<String>,
    pub machine_id: String,
    pub version: String,
    /// Is to be drained from the first; says nothing once it is accepted.
    #[serde(default)]
    pub drain: bool,
    /// What fails together, as its operator names it; empty: nobody said.
    #[serde(default)]
    pub zone: String,
    /// Boot id of the machine when it joined; empty: not told. Two machines never share one.
    #[serde(default)]
    pub boot: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub spec: NodeSpec,
    pub accepted: Wall,
    /// Desired, stored; the observed role is derived from the applied Raft membership.
    pub role: ClusterRole,
    pub raft: Option<RaftId>,
    /// It is removed as soon as it has left Raft.
    #[serde(default)]
    pub removing: Option<super::Removing>,
    pub availability: Availability,
    pub lifecycle: Lifecycle,
    /// Stands beside the lifecycle: a failed repair never takes a node out of its group.
    pub failed: Option<String>,
    pub maintenance: Option<Maintenance>,
    pub hold: Option<Hold>,
    /// A changed SSH host key was offered: its fingerprint. Nothing is sent to the node until `trust-key`.
    pub key_changed: Option<String>,
    /// As last examined; None: never seen.
    pub marks: Option<Marks>,
    /// When that was.
    pub seen: Wall,
    pub absence: Option<Absence>,
    pub absences: AbsenceNo,
    /// Beginnings of the last absences, at most 16, for flapping.
    pub recent: Vec<Wall>,
    /// The last conclusion, of an absence or live.
    pub finding: Option<Finding>,
    pub baseline: Option<Baseline>,
    /// Adopted, and neither set up by remoor nor entrusted to it since: see `GroupSummary::policy_of`.
    #[serde(default)]
    pub watched: bool,
    pub want: Option<Want>,
    /// The open job.
    pub job: Option<JobId>,
    /// Crashes of the agent that verdicts named.
    pub agent_faults: u32,
    /// Examinations in a row that ended unknown.
    pub unknowns: u32,
    /// Index of the last entry after which an older examination says nothing any more: it came back, something ran on
    /// it, its baseline or its verdict changed.
    pub altered: u64,
    /// Since when it is known to be drifted; a later look that confirms it does not make the drift new.
    pub drifted_since: Option<Wall>,
    /// Something ran on it that nobody has looked at since: it is examined whatever its agent says.
    #[serde(default)]
    pub unseen: bool,
    /// Index of the entry by which an operator last trusted its SSH host keys.
    #[serde(default)]
    pub trusted: u64,
    #[serde(default)]
    pub moved: Option<Moved>,
    /// IP address that the provisioning under way was begun with.
    #[serde(default)]
    pub provisioned_at: Option<String>,
    /// Was to be a manager when the cluster was founded anew without it; until an operator says what it is to be.
    #[serde(default)]
    pub lost: bool,
}

impl Node {
    pub fn name(&self) -> &NodeName {
        &self.spec.name
    }
    /// It is to be a manager, or is one that has not left yet: others ask it, believe it, and don't take it away lightly.
    pub fn manages(&self) -> bool {
        self.role == ClusterRole::Manager || self.raft.is_some()
    }
    /// IP address, as entered; None: the record holds none.
    pub fn ip(&self) -> Option<&str> {
        super::ip_of(&self.spec.gossip)
    }
    /// An absence is open and the node has not come back.
    pub fn away(&self) -> bool {
        self.absence.as_ref().is_some_and(|a| a.returned.is_none())
    }
    /// Notes in which phase a re-setup ended; that an earlier one got further is not forgotten, also not for an undo.
    pub(super) fn fail(&mut self, phase: Phase) {
        if !matches!(phase, Phase::Fence | Phase::Undo) || self.failed.is_none() {
            self.failed = Some(phase.word().to_owned());
        }
    }
    /// What is there is what is wanted: the last finding, which said otherwise, is overtaken.
    pub(super) fn is_right(&mut self, root: Option<Sha256>, at: Wall) {
        self.drifted_since = None;
        if let Some(finding) = &mut self.finding {
            let before = std::mem::replace(&mut finding.verdict, super::Verdict::Same);
            if before != super::Verdict::Same {
                finding.overtaken = Some((before, at));
            }
            finding.reasons = Vec::new();
            finding.digest = root;
            finding.checks = (finding.checks.0 + finding.checks.1 + finding.checks.2, 0, 0);
            finding.amiss = Some(0);
        }
    }
    /// Was set up, and not cleaned up for good yet; also one that was ordered out and back in meanwhile.
    pub fn serves(&self) -> bool {
        match self.lifecycle {
            Lifecycle::Commissioned => true,
            Lifecycle::Commissioning | Lifecycle::Decommissioning => self.baseline.is_some(),
            Lifecycle::Accepted | Lifecycle::Decommissioned => false,
        }
    }
    /// Counts for the budgets and breakers of its group and fleet: neither a machine that only joined, nor one that was taken out.
    pub fn in_service(&self) -> bool {
        !matches!(self.lifecycle, Lifecycle::Accepted | Lifecycle::Decommissioned)
    }
    /// A re-setup of it ended between cleanup and verification: its services can't be counted on.
    pub fn half_done(&self) -> bool {
        self.failed.as_deref().is_some_and(|phase| phase != Phase::Fence.word())
    }
    /// Away, and its host answers on SSH.
    pub fn agent_down(&self) -> bool {
        self.absence.as_ref().is_some_and(|a| a.returned.is_none() && a.gone == Gone::AgentDown)
    }
    pub fn in_maintenance(&self, at: Wall) -> bool {
        self.maintenance.as_ref().is_some_and(|m| m.from <= at && at < m.until)
    }
    pub fn held(&self, at: Wall) -> Option<&Hold> {
        self.hold.as_ref().filter(|h| h.until.is_none_or(|until| at < until))
    }
}

/// One applied version of the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    pub seq: GenerationSeq,
    /// Blob: MessagePack of `FileSet`.
    pub blob: Sha256,
    pub at: Wall,
    pub by: String,
    pub summary: super::FleetSummary,
    /// Hashes of hosts that are others than in `summary`, since nodes moved after it was applied.
    #[serde(default)]
    pub rendered: BTreeMap<NodeName, Sha256>,
    /// Index of the last move that is in `rendered`.
    #[serde(default)]
    pub rendered_for: u64,
}

impl Generation {
    pub fn group_of(&self, node: &NodeName) -> Option<&GroupName> {
        self.summary.hosts.get(node).map(|h| &h.group)
    }
    /// Services of the node's group.
    pub fn services_of(&self, node: &NodeName) -> &[super::ServiceName] {
        let group = self.group_of(node).and_then(|name| self.summary.groups.get(name));
        group.map(|g| g.services.as_slice()).unwrap_or_default()
    }
    /// Hash of what the node is to be, at the addresses that are entered now; None: the generation does not speak of it.
    pub fn desired(&self, node: &NodeName) -> Option<Sha256> {
        self.rendered.get(node).copied().or_else(|| self.summary.hosts.get(node).map(|h| h.desired))
    }
}
