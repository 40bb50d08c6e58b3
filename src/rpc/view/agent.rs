//! What an agent answers of itself on its own machine's socket: `/v1/agent`. It is not the cluster's view, and says so.

use super::{AsOf, ReportView};
use crate::model::CheckResult;
use serde::{Deserialize, Serialize};

/// Everything that the agent of one node knows without asking anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub version: u32,
    /// `agent`, so that nobody takes it for the cluster's view.
    pub kind: String,
    /// `by` is this node; `leader` is always null.
    pub as_of: AsOf,
    pub node: AgentNode,
    /// All nodes that this one was told of or met, without itself.
    pub peers: Vec<PeerView>,
    pub peers_alive: u32,
    pub isolation: IsolationView,
    pub manager: ContactView,
    /// What managers told it to look at; None: no manager answered yet, ever.
    pub manifest: Option<ManifestView>,
    /// The last look at files and checks; None: none since the agent started.
    pub look: Option<LookView>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentNode {
    pub id: u64,
    pub name: String,
    pub cluster: String,
    pub epoch: u64,
    /// A manager part runs beside the agent.
    pub manager: bool,
    pub agent_version: String,
    pub boot: String,
    pub instance: String,
    pub started: String,
    /// Starts of the agent within one boot that followed no goodbye, ever.
    pub crashes: u32,
    pub previous_end: Option<String>,
    /// Files of its data directory that were damaged and put aside.
    #[serde(default)]
    pub damaged: Vec<String>,
    /// The node was taken out for good, in a manager's words: its agent does nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<String>,
    /// It is none since it left by its own word: a join brings it back as who it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerView {
    pub name: String,
    /// None: gossip has it, and no manager has named it yet.
    pub id: Option<u64>,
    pub manager: bool,
    /// Its gossip address.
    pub gossip: String,
    /// Its API; empty where unknown.
    pub api: String,
    /// By this node's gossip alone: `alive`, `gone`, `left`, `never-seen`.
    pub presence: String,
    pub since: Option<String>,
    pub report: Option<ReportView>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolationView {
    /// Episodes without any live peer, ever.
    pub episodes: u32,
    /// One lasts now.
    pub alone: bool,
    /// Of the last episode.
    pub from: Option<String>,
    pub to: Option<String>,
    pub peers_lost: u32,
}

/// The agent's last words with a manager.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContactView {
    /// Who answered last, and when; None: nobody since the agent started.
    pub name: Option<String>,
    pub at: Option<String>,
    pub age_ms: Option<u64>,
    /// Why nobody answered the last time; None: somebody did, or nobody was asked yet.
    pub error: Option<String>,
    /// API addresses of the managers that it knows.
    pub known: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestView {
    pub group: String,
    pub generation: u64,
    pub services: Vec<String>,
    pub check_interval_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookView {
    pub at: String,
    pub age_ms: u64,
    pub took_ms: u64,
    /// Root of the node digest, short.
    pub digest: String,
    pub generation: u64,
    /// Files that could not be read, with why.
    pub unreadable: Vec<String>,
    pub passed: u32,
    pub failed: u32,
    /// Could not tell.
    pub unknown: u32,
    /// Those that failed first; at most 500.
    pub checks: Vec<CheckResult>,
    pub checks_left_out: u64,
}
