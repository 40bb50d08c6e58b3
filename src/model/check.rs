//! Checks: what is asked of a node, and the answer.

use super::ServiceName;
use serde::{Deserialize, Serialize};

/// How much a failing check matters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Info,
    Warning,
    #[default]
    Critical,
}

/// What a failing check asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFail {
    None,
    Alert,
    Resetup,
}

/// `Unknown` is neither pass nor fail: the check erred or timed out, and triggers nothing (I9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckState {
    Pass,
    Fail,
    Unknown,
    Skip,
    Waived,
}

/// The answer to one assertion of one check (`service:nginx: running`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    pub service: ServiceName,
    /// `type:id`, as in the file: `service:nginx`, `file:/etc/nginx/nginx.conf`.
    pub check: String,
    /// The attribute asserted: `running`, `sha256`.
    pub property: String,
    pub state: CheckState,
    pub severity: Severity,
    pub on_fail: OnFail,
    /// For people; never the content of a secret.
    pub expected: String,
    pub found: String,
    pub message: String,
    pub took_ms: u64,
}

impl CheckResult {
    /// What is not as asserted, in one line: `service:nginx running: expected true, found false`.
    pub fn told(&self) -> String {
        let mut text = format!("{} {}: ", self.check, self.property);
        if self.found.is_empty() {
            text += if self.message.is_empty() { "no answer" } else { &self.message };
            return text;
        }
        text += &format!("expected {}, found {}", self.expected, self.found);
        if !self.message.is_empty() {
            text += &format!(" ({})", self.message);
        }
        text
    }
}
