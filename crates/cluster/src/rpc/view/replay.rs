//! Answer of `/v1/nodes/{name}/replay`.

use super::AsOf;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Answer of `/v1/nodes/{name}/replay`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    /// Since when the answering manager leads. It has no earlier steps. None: it never led.
    pub since: Option<String>,
    /// Steps about any node that were discarded.
    pub dropped: u64,
    /// Stored steps about this node that are not in `steps`.
    pub left_out: u64,
    /// Oldest first.
    pub steps: Vec<ReplayStep>,
    /// How the last verdict was reached. None: there is none.
    pub verdict: Option<ReplayVerdict>,
}

/// One step of the engine: an event and the resulting actions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayStep {
    pub at: String,
    /// The event in plain text.
    #[serde(rename = "told")]
    pub told: String,
    pub asked: Vec<String>,
    /// The engine's values, for debugging; their format may change.
    pub event: Value,
    pub actions: Vec<Value>,
}

/// How a verdict was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayVerdict {
    pub at: String,
    pub by: String,
    /// `evidence`: derived from the examination itself when the verdict was reached; `journal`:
    /// derived now from the journal.
    pub from: String,
    pub evidence: Vec<String>,
    pub rules: Vec<RuleView>,
}

/// One rule that contributed to the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleView {
    /// `cause`, `verdict`, `action`.
    pub decides: String,
    pub rule: String,
    pub gives: String,
    pub concluded: String,
    /// False if today's state gives another result.
    pub agrees: bool,
}
