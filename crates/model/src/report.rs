//! What an agent reports about itself by gossip. It is a hint, never evidence.

use super::{BootId, CheckResult, CheckState, Epoch, GenerationSeq, Instance, OnFail, Sha256};
use serde::{Deserialize, Serialize};

/// Summary of the periodic checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckSummary {
    /// No manifest yet, or not run yet.
    #[default]
    None,
    Pass,
    Fail,
    Unknown,
}

impl CheckSummary {
    /// The worst result. Checks with `on-fail: none` do not count.
    pub fn from_results(results: &[CheckResult]) -> Self {
        let any = |state| results.iter().any(|r| r.state == state && r.on_fail != OnFail::None);
        match () {
            () if any(CheckState::Fail) => CheckSummary::Fail,
            () if any(CheckState::Unknown) => CheckSummary::Unknown,
            () => CheckSummary::Pass,
        }
    }
}

/// The report of an agent. It is sent with a signature in the gossip metadata, together at most 256
/// bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The agent announced that it leaves, so its silence is not a failure.
    pub leaving: bool,
    pub boot: BootId,
    pub instance: Instance,
    /// Number of episodes without any live peer since the agent's record began.
    pub isolation: u32,
    /// Root of the node digest; all zero: not computed yet.
    pub digest: Sha256,
    /// Generation of the manifest that the digest was computed with.
    pub generation: GenerationSeq,
    pub checks: CheckSummary,
    /// Version of the agent program; empty: not reported.
    #[serde(default)]
    pub version: String,
    /// Hash of failed and inconclusive checks, see [`super::failure_hash`]; 0: no problem, or an
    /// older agent that does not report it.
    #[serde(default, rename = "amiss")]
    pub failure_hash: u64,
    /// Epoch of the certificate that the node's API presents, so that other nodes can verify it
    /// there; 0: an older agent that does not report it.
    #[serde(default)]
    pub epoch: Epoch,
    /// The port of the node's API; 0: an older agent that does not report it.
    #[serde(default)]
    pub api: u16,
    /// A manager service runs on the node.
    #[serde(default)]
    pub manages: bool,
}

impl Report {
    /// True if the report could not be read. Then boot id and instance are empty, although every
    /// agent sets them. Such a report shows only that the node is alive.
    pub fn is_blank(&self) -> bool {
        self.boot.as_str().is_empty() && self.instance.0.is_empty()
    }
}
