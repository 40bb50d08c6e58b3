//! What the API answers: the JSON contract of `/v1` (docs/api.md), shared by server and command line.
//!
//! Additive only: fields are added, never renamed. Times are RFC 3339 in UTC, durations end in `_ms`.

mod agent;
mod backup;
mod keys;
mod members;
mod moments;
mod removed;
mod replay;

pub use agent::*;
pub use backup::*;
pub use keys::*;
pub use members::*;
pub use moments::with_times;
pub use removed::*;
pub use replay::*;

use super::token::Secret;
use crate::model::{
    Availability, Baseline, Breaker, CheckResult, CheckSummary, Difference, Finding, HistoryItem, Job, Maintenance,
    NodeDigest, Refusal, Report, Sha256, Wall,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who says so, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsOf {
    /// The manager whose state this is.
    pub by: String,
    pub leader: Option<String>,
    pub at: String,
    /// No leader was asked: this is what `by` last knew. Without a quorum, or where `heard` is set.
    pub stale: bool,
    /// Where it is stale: a leader is heard all the same, and only did not answer when it was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heard: bool,
    /// How old that is.
    pub age_ms: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConditionView {
    pub is: String,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    pub id: u64,
    pub name: String,
    pub group: Option<String>,
    /// `manager` or `worker`: what it is to be.
    pub role: String,
    /// `leader`, `voter`, `learner`: what it is, derived from the Raft membership; None: not a member.
    pub manager: Option<String>,
    /// `alive`, `suspect`, `away`, `agent-down`, `left`, `never-seen`; `unknown` where no leader says.
    pub presence: String,
    pub presence_since: Option<String>,
    pub lifecycle: String,
    /// The phase whose failure stands beside the lifecycle.
    pub failed: Option<String>,
    pub availability: Availability,
    pub maintenance: Option<Maintenance>,
    pub api: String,
    pub gossip: String,
    pub ssh: Option<String>,
    pub ssh_fingerprints: Vec<String>,
    /// Of the last conclusion.
    pub finding: Option<Finding>,
    pub baseline: Option<Baseline>,
    /// What is desired changed since the last provisioning.
    pub outdated: bool,
    pub conditions: Vec<ConditionView>,
    pub job: Option<u64>,
    pub absences: u64,
    pub agent_faults: u32,
    /// What the agent gossips of itself: a hint.
    pub report: Option<ReportView>,
    /// Of the program that its agent runs, or ran when it joined where it does not say.
    #[serde(default)]
    pub agent_version: String,
    /// Managers that don't reach its SSH port while gossip has it.
    pub unreachable_from: Vec<String>,
    /// The same, each with since when.
    #[serde(default)]
    pub unreachable_since: BTreeMap<String, String>,
    /// Pings of the answering manager that it left unanswered since that one's daemon began: what may end in a suspicion,
    /// and after a blip does not.
    #[serde(default)]
    pub unanswered: u64,
    /// `role` compared with the Raft membership: `worker`, `promoting`, `learner`, `voter`, `leader`, `demoting`,
    /// `lost`.
    #[serde(default)]
    pub manager_state: String,
    /// What the leader waits for before it is what it is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_waits: Option<String>,
    /// A member of Raft that does not answer the leader, and for how long, in words: whatever gossip says of its machine, it has
    /// no part in decisions. None also where no leader is asked: no other knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager_silent: Option<String>,
    /// How many entries a learner lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    /// What fails together with it, as its operator said; empty: nobody did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Of its group in the current generation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// When the certificate ends by which it called the answering manager last; None: it did not since that one's daemon began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportView {
    pub boot: String,
    pub instance: String,
    pub isolation: u32,
    pub digest: String,
    pub generation: u64,
    pub checks: String,
    /// Of the agent's program; empty: it does not say.
    #[serde(default)]
    pub version: String,
}

impl ReportView {
    /// None where nothing of the report could be read: an agent of another version.
    pub fn of(report: &Report) -> Option<Self> {
        let checks = match report.checks {
            CheckSummary::None => "none",
            CheckSummary::Pass => "pass",
            CheckSummary::Fail => "fail",
            CheckSummary::Unknown => "unknown",
        };
        let short = |text: &str| text.get(..8).unwrap_or(text).to_owned();
        let taken = report.digest != Sha256::default();
        (!report.is_blank()).then(|| Self {
            boot: short(report.boot.as_str()),
            instance: short(&report.instance.0),
            isolation: report.isolation,
            digest: if taken { report.digest.short() } else { String::new() },
            generation: report.generation.0,
            checks: checks.to_owned(),
            version: report.version.clone(),
        })
    }
}

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
    /// The line for `authorized_keys` by which the managers log in; none in a cluster made before it had a key for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<String>,
    /// Backups of the manager that answers; none where it never made one and none is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupView>,
    /// Who waits for `remoor accept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingView>,
    /// Who left by its own word and may come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryView {
    pub version: u32,
    pub as_of: AsOf,
    /// Names of the nodes that the items speak of, by id.
    pub names: BTreeMap<u64, String>,
    /// Oldest first.
    pub items: Vec<HistoryItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsView {
    pub version: u32,
    pub as_of: AsOf,
    pub names: BTreeMap<u64, String>,
    /// Oldest first.
    pub jobs: Vec<Job>,
    /// What is wanted and no job yet.
    #[serde(default)]
    pub queued: Vec<QueuedView>,
}

/// An order, or a conclusion, that waits for its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedView {
    pub node: u64,
    pub want: crate::model::Want,
    /// What it waits for; empty: it is about to begin.
    pub waits: Vec<String>,
}

/// The whole story of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: NodeView,
    pub absence: Option<crate::model::Absence>,
    pub want: Option<crate::model::Want>,
    pub job: Option<Job>,
    pub history: Vec<HistoryItem>,
    /// What was not done, and why.
    pub not_done: Vec<String>,
    pub next: Vec<String>,
}

/// Answer of `resetup --check NODE`: what would be done. Examined now; nothing was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub verdict: String,
    pub reasons: Vec<String>,
    /// A re-setup would be ordered.
    pub would_change: bool,
    /// Its services, dependents included; empty: the whole group.
    pub services: Vec<String>,
    /// Those of the playbooks that would be selected, in order, at most 1000 of each phase.
    pub tasks: Vec<TaskView>,
    /// What stands against it: it would wait for these, or be refused.
    pub against: Vec<String>,
    pub notes: Vec<String>,
    pub took_ms: u64,
}

/// A task that a phase may run; whether its conditions hold is seen on the node only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskView {
    /// `cleanup` or `provision`.
    pub phase: String,
    /// As written, with its markup.
    pub name: String,
    pub module: String,
    pub file: String,
    pub line: u32,
}

/// Answer of `check NODE`: run now, over SSH.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub files: Vec<FileDiff>,
    /// What could not be told, in words: files that can't be read, nothing recorded to compare with.
    #[serde(default)]
    pub unclear: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiff {
    pub service: String,
    pub path: String,
    /// `missing`, `extra`, `changed`.
    pub what: String,
    pub attributes: Vec<String>,
    /// `rendered`: the manager makes it from the fleet; `recorded`: as it was when last set up or adopted; `none`: an extra file.
    #[serde(default)]
    pub origin: String,
    /// When it was found first, where each look since then found it too. None: this look is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Wall>,
    /// Unified diff of rendered against found; None where there is no rendered content, or the file is secret.
    pub unified: Option<String>,
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdoptView {
    pub version: u32,
    pub node: String,
    pub digest: NodeDigest,
    /// What differs from the baseline before; empty for the first.
    pub changes: Vec<Difference>,
    /// Never set up by remoor, and no policy says otherwise: drift on return will be reported, not repaired.
    #[serde(default)]
    pub reported_only: bool,
}

/// What an order came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderView {
    pub version: u32,
    /// One line for people: what happens now.
    pub text: String,
    /// Nothing had to be done.
    pub nothing_to_do: bool,
    /// The order waits for the node's return.
    pub queued: bool,
    /// What to think of before it is done (promote, demote).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Of one node among several.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedView {
    pub node: String,
    #[serde(flatten)]
    pub order: OrderView,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersView {
    pub version: u32,
    /// In the order of the request.
    pub orders: Vec<OrderedView>,
    /// About all of them together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedView {
    pub version: u32,
    pub generation: u64,
    pub unchanged: bool,
    pub outdated: Vec<String>,
    pub warnings: Vec<crate::model::Fault>,
}

/// Body of `POST /v1/nodes/{name}/resetup` and its relatives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderRequest {
    pub services: Vec<String>,
    pub force: bool,
    pub now: bool,
    pub no_queue: bool,
    /// For `update` of several nodes: all at once, where otherwise one of each group goes first.
    pub no_canary: bool,
    /// For `maintenance`: how long, 0 ends it.
    pub for_ms: u64,
    /// For `zone`: its name; empty: in none.
    pub zone: String,
    /// For `trust-key`: the fingerprint that the operator saw.
    pub fingerprint: String,
    /// Take only these paths (adopt).
    pub paths: Vec<String>,
    /// Variables of the jobs that this leads to.
    pub vars: crate::model::Vars,
}

/// Answer of `GET /v1/nodes/{name}/checks`: every check file of the generation that the node is examined by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecksView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub generation: u64,
    pub files: Vec<crate::model::CheckFile>,
}

/// Answer of `GET /v1/nodes/{name}/vars`, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VarsView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    pub vars: Vec<VarView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VarView {
    pub name: String,
    pub value: serde_json::Value,
    /// The file and place, or the job, whose word holds.
    pub origin: String,
}

/// Body of `POST /v1/orders`: the same order for several nodes, accepted or refused as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OrdersRequest {
    /// `resetup`, `commission`, `decommission`, `update`, `pause`, `resume`, `maintenance`, `promote`, `demote`.
    pub order: String,
    pub nodes: Vec<String>,
    #[serde(flatten)]
    pub request: OrderRequest,
}

/// Body of an order that needs no words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nothing {}

/// Body of `POST /v1/jobs/{id}/cancel`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CancelRequest {
    /// End the task under way too.
    pub now: bool,
}

/// Body of `POST /v1/nodes`: lets a machine in that will join under this name.
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
    /// API addresses of the managers to join through, the leader's first.
    pub managers: Vec<String>,
}

/// One line of the stream of `/v1/watch` and `/v1/jobs/{id}/logs`.
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
    /// The stream was too fast for this reader: so many items are missing.
    Missed {
        count: u64,
    },
    /// A snapshot took the place of the journal's entries up to `index`: what they were is in the history only.
    Resync {
        index: u64,
    },
    End {
        text: String,
    },
}

/// Faults of `apply` and `lint`, inside an error's details.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultsView {
    pub faults: Vec<crate::model::Fault>,
}

/// A refusal of the state machine, inside an error's details.
pub type RefusalView = Refusal;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_shown_short_and_an_unreadable_one_not_at_all() {
        assert_eq!(ReportView::of(&Report::default()), None);
        let report = Report {
            boot: "6f1c2d3e-4b5a-6978-8796-a5b4c3d2e1f0".into(),
            instance: "00112233deadbeef".into(),
            checks: CheckSummary::Fail,
            version: "0.0.9".into(),
            ..Report::default()
        };
        let view = ReportView::of(&report).unwrap();
        assert_eq!((view.boot.as_str(), view.instance.as_str()), ("6f1c2d3e", "00112233"));
        assert_eq!((view.digest.as_str(), view.checks.as_str(), view.version.as_str()), ("", "fail", "0.0.9"));
    }
}
