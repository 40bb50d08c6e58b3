//! Answers of the API: the JSON contract of `/v1` (docs/reference/api.md), shared by server and
//! command line.
//!
//! Changes only add fields. Fields are never renamed. Times are RFC 3339 in UTC. The name of a
//! field with a duration ends in `_ms`.

mod agent;
mod backup;
mod keys;
mod members;
mod node;
mod removed;
mod replay;
mod timestamps;

pub use agent::*;
pub use backup::*;
pub use keys::*;
pub use members::*;
pub use node::*;
pub use removed::*;
pub use replay::*;
pub use timestamps::with_times;

use super::token::Secret;
use remoor_model::{Breaker, CheckResult, Difference, HistoryItem, Job, NodeDigest, Refusal, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The source and age of the state that an answer shows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf {
    /// The manager whose state the answer shows.
    pub by: String,
    pub leader: Option<String>,
    pub at: String,
    /// Whether no leader confirmed the state. It is then only the last state that `by` knew. If
    /// `heard` is not set, the reason is a missing quorum.
    pub stale: bool,
    /// Set only if `stale` is set. In that case gossip or Raft shows a leader, but the leader did
    /// not answer the request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heard: bool,
    /// Age of the state that the answer shows, in milliseconds.
    pub age_ms: u64,
}

/// Answer of `/v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusView {
    pub version: u32,
    pub as_of: AsOf,
    pub cluster: String,
    pub epoch: u64,
    pub generation: u64,
    pub generation_at: Option<String>,
    pub managers_up: u32,
    pub managers: u32,
    pub breaker: Option<Breaker>,
    pub warnings: Vec<String>,
    pub nodes: Vec<NodeView>,
    /// The line for `authorized_keys` with which the managers log in. None in a cluster that was
    /// created by a version without such a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<String>,
    /// The backups of the answering manager. None if the manager never made a backup and none is
    /// planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupView>,
    /// Machines and nodes that wait for `remoor accept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingView>,
    /// Nodes that left by their own request and may come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftView>,
}

/// Answer of `/v1/history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    pub version: u32,
    pub as_of: AsOf,
    /// Names of the nodes in the items, by id.
    pub names: BTreeMap<u64, String>,
    /// The items. The oldest item is the first.
    pub items: Vec<HistoryItem>,
}

/// Answer of `/v1/jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsView {
    pub version: u32,
    pub as_of: AsOf,
    pub names: BTreeMap<u64, String>,
    /// The jobs. The oldest job is the first.
    pub jobs: Vec<Job>,
    /// Requests for re-setups that have not become jobs yet.
    #[serde(default)]
    pub queued: Vec<QueuedView>,
}

/// A request for a re-setup that has not become a job yet. An operator or a verdict caused it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedView {
    pub node: u64,
    pub want: remoor_model::ResetupRequest,
    /// The conditions for which the request waits. If the list is empty, the job is about to begin.
    pub waits: Vec<String>,
}

/// The complete state and history of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: NodeView,
    pub absence: Option<remoor_model::Absence>,
    pub want: Option<remoor_model::ResetupRequest>,
    pub job: Option<Job>,
    pub history: Vec<HistoryItem>,
    /// The actions that remoor did not take on the node, each with the reason.
    pub not_done: Vec<String>,
    pub next: Vec<String>,
}

/// Answer of `resetup --check NODE`: the planned re-setup. The node was examined for it; nothing
/// was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub verdict: String,
    pub reasons: Vec<String>,
    /// Whether the command without `--check` would order a re-setup.
    pub would_change: bool,
    /// The services to set up, with those that depend on them. Empty stands for all services of the
    /// group.
    pub services: Vec<String>,
    /// The selected tasks of the playbooks, in their order; at most 1000 for each phase.
    pub tasks: Vec<PlanTaskView>,
    /// The reasons for which the re-setup would wait or be refused.
    pub against: Vec<String>,
    pub notes: Vec<String>,
    pub took_ms: u64,
}

/// A task that a phase may run. Only the node knows whether the conditions of the task are met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanTaskView {
    /// The phase that may run the task: `cleanup` or `provision`.
    pub phase: String,
    /// The name in the playbook. Templates in it are not rendered.
    pub name: String,
    pub module: String,
    pub file: String,
    pub line: u32,
}

/// Answer of `check NODE`. The checks were executed now, over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub verdict: String,
    pub reasons: Vec<String>,
    pub checks: Vec<CheckResult>,
    pub differences: Vec<Difference>,
    pub took_ms: u64,
}

/// Answer of `/v1/nodes/{name}/diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub files: Vec<FileDiff>,
    /// Facts that could not be determined, as text. Examples: a file cannot be read, or no content
    /// is recorded.
    #[serde(default)]
    pub unclear: Vec<String>,
}

/// One file that differs from the desired or recorded state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    pub service: String,
    pub path: String,
    /// The kind of the difference: `missing`, `extra` or `changed`.
    pub what: String,
    pub attributes: Vec<String>,
    /// The source of the compared content. `rendered`: the manager renders it from the fleet.
    /// `recorded`: it was recorded at the last set-up or adoption. `none`: the file is extra.
    #[serde(default)]
    pub origin: String,
    /// The time of the earliest examination since which every examination of the node has found
    /// this difference. None if only the examination for this answer has found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Wall>,
    /// Unified diff from the rendered to the found content. None if no content was rendered, or if
    /// the file is secret.
    pub unified: Option<String>,
    pub note: Option<String>,
}

/// Answer of `/v1/nodes/{name}/adopt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptView {
    pub version: u32,
    pub node: String,
    pub digest: NodeDigest,
    /// Differences from the previous baseline. Empty if there was no previous baseline.
    pub changes: Vec<Difference>,
    /// Whether drift after a return will be reported and not repaired. This is the case if remoor
    /// never set the node up and its group configures no policy.
    #[serde(default)]
    pub reported_only: bool,
}

/// The result of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderView {
    pub version: u32,
    /// One line for operators: the effect of the order.
    pub text: String,
    /// Whether the order had no effect, because its goal was already reached.
    pub nothing_to_do: bool,
    /// Whether the order waits for the node's return.
    pub queued: bool,
    /// Consequences that the operator should consider before the order takes effect (promote,
    /// demote).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The result of an order for one of several nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedView {
    pub node: String,
    #[serde(flatten)]
    pub order: OrderView,
}

/// Answer of `/v1/orders`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersView {
    pub version: u32,
    /// The results, in the order of the nodes in the request.
    pub orders: Vec<OrderedView>,
    /// Warnings that concern all the orders together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Answer of `/v1/apply`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedView {
    pub version: u32,
    pub generation: u64,
    pub unchanged: bool,
    pub outdated: Vec<String>,
    pub warnings: Vec<remoor_model::Fault>,
}

/// Body of `POST /v1/nodes/{name}/resetup` and of the other orders for one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderRequest {
    pub services: Vec<String>,
    pub force: bool,
    pub now: bool,
    pub no_queue: bool,
    /// Whether the order `update` updates all nodes at once, without a canary in each group.
    pub no_canary: bool,
    /// The duration that the order `maintenance` sets, in milliseconds. 0 ends the maintenance.
    pub for_ms: u64,
    /// The zone that the order `zone` sets. An empty name removes the nodes from their zone.
    pub zone: String,
    /// The fingerprint of the SSH host key that the operator verified, for the order `trust-key`.
    pub fingerprint: String,
    /// Whether the order `remove` keeps the gossip key, which the removed nodes have. Otherwise the
    /// leader gives a new key to all other nodes.
    pub keep_gossip_key: bool,
    /// The paths to which the order `adopt` is limited.
    pub paths: Vec<String>,
    /// Variables of the jobs that the order causes.
    pub vars: remoor_model::JobVars,
}

/// Answer of `GET /v1/nodes/{name}/checks`: all check files of the generation by which the node is
/// examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub generation: u64,
    pub files: Vec<remoor_model::CheckFile>,
}

/// Answer of `GET /v1/nodes/{name}/vars`. The variables are sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VarsView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub vars: Vec<VarView>,
}

/// A variable of a node, with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VarView {
    pub name: String,
    pub value: serde_json::Value,
    /// The file and position, or the job, that set the value.
    pub origin: String,
}

/// Body of `POST /v1/orders`: one order for several nodes. It is accepted or refused as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrdersRequest {
    /// `resetup`, `commission`, `decommission`, `update`, `pause`, `resume`, `maintenance`,
    /// `drain`, `promote`, `demote`, `zone`, `remove`.
    pub order: String,
    pub nodes: Vec<String>,
    #[serde(flatten)]
    pub request: OrderRequest,
}

/// Body of an order without parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {}

/// Body of `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CancelRequest {
    /// Whether the running task of the job is interrupted. Otherwise the task may finish.
    pub now: bool,
}

/// Body of `POST /v1/nodes`: creates a join token for a machine with this name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteRequest {
    pub name: String,
    #[serde(default)]
    pub want_manager: bool,
}

/// A join token for one machine.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteView {
    pub version: u32,
    pub cluster: String,
    pub name: String,
    pub token: Secret,
    pub expires: String,
    /// API addresses of the managers through which the machine can join. The leader's address is
    /// the first.
    pub managers: Vec<String>,
}

/// One line of the stream of `/v1/watch` and `/v1/jobs/{id}/log`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum StreamItem {
    History {
        item: Box<HistoryItem>,
        node: Option<String>,
    },
    Task {
        job: u64,
        attempt: u64,
        phase: String,
        event: serde_json::Value,
    },
    /// Some items are missing, because this reader was too slow. `count` is their number.
    Missed {
        count: u64,
    },
    /// A snapshot replaced the journal's entries up to `index`. This stream does not contain them,
    /// but `/v1/history` does.
    Resync {
        index: u64,
    },
    End {
        text: String,
    },
}

/// Faults in a fleet directory, as `apply` and `lint` report them in an error's details.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultsView {
    pub faults: Vec<remoor_model::Fault>,
}

/// A refusal of the state machine, in an error's details.
pub type RefusalView = Refusal;
