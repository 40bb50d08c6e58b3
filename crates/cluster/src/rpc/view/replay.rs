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
    /// The time since which the answering manager leads. It has recorded no earlier steps of the
    /// engine. None if it never led.
    pub since: Option<String>,
    /// The number of recorded steps, about any node, that were discarded.
    pub dropped: u64,
    /// The number of stored steps about this node that are not in `steps`.
    pub left_out: u64,
    /// The engine's steps about this node. The oldest step is the first.
    pub steps: Vec<ReplayStep>,
    /// The derivation of the last verdict. None if there is no verdict.
    pub verdict: Option<ReplayVerdict>,
}

/// One step of the engine: an event and the resulting actions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayStep {
    pub at: String,
    /// The event as text for people.
    #[serde(rename = "told")]
    pub told: String,
    pub asked: Vec<String>,
    /// The engine's own values, for debugging. Their format may change.
    pub event: Value,
    pub actions: Vec<Value>,
}

/// The derivation of a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayVerdict {
    pub at: String,
    pub by: String,
    /// The source of the evidence. `evidence`: it was derived from the examination when the verdict
    /// was reached. `journal`: it was derived now from the journal.
    pub from: String,
    pub evidence: Vec<String>,
    pub rules: Vec<RuleView>,
}

/// One rule that contributed to the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleView {
    /// The kind of conclusion to which the rule contributed: `cause`, `verdict` or `action`.
    pub decides: String,
    pub rule: String,
    pub gives: String,
    pub concluded: String,
    /// Whether the rule gives the same result with today's state.
    pub agrees: bool,
}
