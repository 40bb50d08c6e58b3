//! Answer of an agent about itself on its local socket: `/v1/agent`. It is marked as the agent's
//! view, not the cluster's.

use super::{AsOf, ReportView};
use remoor_model::CheckResult;
use serde::{Deserialize, Serialize};

/// Everything that the agent of a node knows without a request to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub version: u32,
    /// `agent`, so that it is not mistaken for the cluster's view.
    pub kind: String,
    /// `by` is this node; `leader` is always null.
    pub as_of: AsOf,
    pub node: AgentNode,
    /// All other nodes that this one received from managers or met in gossip.
    pub peers: Vec<PeerView>,
    pub peers_alive: u32,
    pub isolation: IsolationView,
    pub manager: ContactView,
    /// What managers instructed it to examine. None: no manager has ever answered.
    pub manifest: Option<ManifestView>,
    /// The last examination of files and checks. None: none since the agent started.
    pub look: Option<ExaminationView>,
}

/// The node itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentNode {
    pub id: u64,
    pub name: String,
    pub cluster: String,
    pub epoch: u64,
    /// Whether a manager service runs on the node.
    pub manager: bool,
    pub agent_version: String,
    pub boot: String,
    pub instance: String,
    pub started: String,
    /// Total starts of the agent within one boot that were not preceded by an orderly stop.
    pub crashes: u32,
    pub previous_end: Option<String>,
    /// Damaged files of its data directory that were moved away.
    #[serde(default)]
    pub damaged: Vec<String>,
    /// A manager's message that the node was removed permanently; its agent is then inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
    /// The node left by its own request. A join restores its identity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

/// Another node, as this one knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    pub name: String,
    /// None: gossip lists it, and no manager has named it yet.
    pub id: Option<u64>,
    pub manager: bool,
    /// Its gossip address.
    pub gossip: String,
    /// Its API address; empty if unknown.
    pub api: String,
    /// According to this node's gossip alone: `alive`, `gone`, `left`, `never-seen`.
    pub presence: String,
    pub since: Option<String>,
    pub report: Option<ReportView>,
}

/// Periods in which the node had no live peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationView {
    /// Total periods without any live peer.
    pub episodes: u32,
    /// Whether such a period lasts now.
    pub alone: bool,
    /// Start of the last period.
    pub from: Option<String>,
    pub to: Option<String>,
    pub peers_lost: u32,
}

/// The agent's last contact with a manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactView {
    /// The manager that answered last, and when. None: no answer since the agent started.
    pub name: Option<String>,
    pub at: Option<String>,
    pub age_ms: Option<u64>,
    /// Why the last attempt got no answer. None: it was answered, or there was no attempt yet.
    pub error: Option<String>,
    /// API addresses of the managers that the node knows.
    pub known: Vec<String>,
}

/// What managers instructed the agent to examine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestView {
    pub group: String,
    pub generation: u64,
    pub services: Vec<String>,
    pub check_interval_ms: u64,
}

/// The results of an examination by the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExaminationView {
    pub at: String,
    pub age_ms: u64,
    pub took_ms: u64,
    /// Root of the node digest, shortened.
    pub digest: String,
    pub generation: u64,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
    pub passed: u32,
    pub failed: u32,
    /// Checks without a conclusive result.
    pub unknown: u32,
    /// Failed checks first; at most 500.
    pub checks: Vec<CheckResult>,
    pub checks_left_out: u64,
}
