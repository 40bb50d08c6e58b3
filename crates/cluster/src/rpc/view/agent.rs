//! Answer of `/v1/agent`: the information that an agent gives about itself on its local socket. It
//! is marked as the agent's view, because it is not the cluster's.

use super::{AsOf, ReportView};
use remoor_model::CheckResult;
use serde::{Deserialize, Serialize};

/// Everything that the agent of a node knows without a request to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub version: u32,
    /// Always `agent`, so that a reader does not take the answer for the cluster's view.
    pub kind: String,
    /// In this answer `by` is this node, and `leader` is always null.
    pub as_of: AsOf,
    pub node: AgentNode,
    /// All other nodes that this node knows from managers or from gossip.
    pub peers: Vec<PeerView>,
    pub peers_alive: u32,
    pub isolation: IsolationView,
    pub manager: ContactView,
    /// The list of what the agent hashes and checks, as managers sent it. None if no manager has
    /// ever answered.
    pub manifest: Option<ManifestView>,
    /// The agent's last results of hashing files and running checks. None if there are none since
    /// the agent started.
    pub look: Option<ExaminationView>,
}

/// The node on which the agent runs.
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
    /// The number of starts of the agent within one boot that did not follow an orderly stop.
    pub crashes: u32,
    pub previous_end: Option<String>,
    /// Damaged files of the node's data directory that were moved away.
    #[serde(default)]
    pub damaged: Vec<String>,
    /// The reason why the last attempt to save the agent's record failed, for example a full disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
    /// The number of archived logs (`raft.removed-*`) in the node's data directory.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived_logs: u32,
    /// The message of a manager that the node was removed permanently. The agent is then inactive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
    /// Whether the node left by its own request. A join restores its identity.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Another node, as this node knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    pub name: String,
    /// None if only gossip lists the node, and no manager has named it yet.
    pub id: Option<u64>,
    pub manager: bool,
    /// The node's gossip address.
    pub gossip: String,
    /// The node's API address; empty if unknown.
    pub api: String,
    /// The presence according to this node's gossip alone: `alive`, `gone`, `left`, `never-seen`.
    pub presence: String,
    pub since: Option<String>,
    pub report: Option<ReportView>,
}

/// Periods in which the node had no live peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationView {
    /// The number of periods without any live peer.
    pub episodes: u32,
    /// Whether the node has no live peer now.
    pub alone: bool,
    /// Start of the last period without any live peer.
    pub from: Option<String>,
    pub to: Option<String>,
    pub peers_lost: u32,
}

/// The agent's last contact with a manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactView {
    /// The manager that answered last. None if no manager answered since the agent started.
    pub name: Option<String>,
    pub at: Option<String>,
    pub age_ms: Option<u64>,
    /// The reason why the agent's last request to a manager got no answer. None if the request was
    /// answered, or if there was no request.
    pub error: Option<String>,
    /// API addresses of the managers that the node knows.
    pub known: Vec<String>,
}

/// A summary of the manifest: what the agent hashes and checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestView {
    pub group: String,
    pub generation: u64,
    pub services: Vec<String>,
    pub check_interval_ms: u64,
}

/// The results of one run of the agent over its files and checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExaminationView {
    pub at: String,
    pub age_ms: u64,
    pub took_ms: u64,
    /// Root hash of the node digest, shortened.
    pub digest: String,
    pub generation: u64,
    /// Files that could not be read, with the reason.
    pub unreadable: Vec<String>,
    pub passed: u32,
    pub failed: u32,
    /// The number of checks without a conclusive result.
    pub unknown: u32,
    /// The results of at most 500 checks. Failed checks are the first.
    pub checks: Vec<CheckResult>,
    pub checks_left_out: u64,
}
