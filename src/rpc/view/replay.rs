//! What `/v1/nodes/{name}/replay` answers.

use super::AsOf;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayView {
    pub version: u32,
    pub as_of: AsOf,
    pub node: String,
    /// Since when the manager that answers leads; it knows of nothing before. None: it never led.
    pub since: Option<String>,
    /// Steps about any node that it remembers no more.
    pub dropped: u64,
    /// Steps about this node that it remembers and that are not in `steps`.
    pub left_out: u64,
    /// Oldest first.
    pub steps: Vec<ReplayStep>,
    /// How the last verdict came about; None: there is none.
    pub verdict: Option<ReplayVerdict>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplayStep {
    pub at: String,
    /// In people's words.
    pub told: String,
    pub asked: Vec<String>,
    /// The same as values of the engine: for debugging, their form is not promised.
    pub event: Value,
    pub actions: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayVerdict {
    pub at: String,
    pub by: String,
    /// `evidence`: derived when it was concluded, from the examination itself; `journal`: now, from what the journal keeps.
    pub from: String,
    pub evidence: Vec<String>,
    pub rules: Vec<RuleView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleView {
    /// `cause`, `verdict`, `action`.
    pub decides: String,
    pub rule: String,
    pub gives: String,
    pub concluded: String,
    /// False where the state of today gives something else.
    pub agrees: bool,
}
