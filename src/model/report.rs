//! What an agent says of itself by gossip: a hint, never evidence.

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
    /// The worst of them; a check with `on-fail: none` does not count.
    pub fn of(results: &[CheckResult]) -> Self {
        let any = |state| results.iter().any(|r| r.state == state && r.on_fail != OnFail::None);
        match () {
            () if any(CheckState::Fail) => CheckSummary::Fail,
            () if any(CheckState::Unknown) => CheckSummary::Unknown,
            () => CheckSummary::Pass,
        }
    }
}

/// Goes signed into the gossip metadata, at most 256 bytes with its signature.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The agent said goodbye; what follows is not a failure.
    pub leaving: bool,
    pub boot: BootId,
    pub instance: Instance,
    /// How many episodes without any live peer this node has had, ever.
    pub isolation: u32,
    /// Root of the node digest; all zero: not taken yet.
    pub digest: Sha256,
    /// Of the manifest that was hashed by.
    pub generation: GenerationSeq,
    pub checks: CheckSummary,
    /// Of the agent's program; empty: it does not say.
    #[serde(default)]
    pub version: String,
    /// What fails or could not be told, see [`super::amiss`]; 0: nothing, or the agent is an older one that does not say.
    #[serde(default)]
    pub amiss: u64,
    /// Of the certificate by which the node answers at its API, so that whoever doubts it can see it proved there; 0: the agent is an
    /// older one that does not say.
    #[serde(default)]
    pub epoch: Epoch,
    /// The port of its API; 0 likewise.
    #[serde(default)]
    pub api: u16,
    /// A manager part runs.
    #[serde(default)]
    pub manages: bool,
}

impl Report {
    /// Nothing could be read of it: no boot id and no instance, which every agent has. Such a node is alive, no more.
    pub fn is_blank(&self) -> bool {
        self.boot.as_str().is_empty() && self.instance.0.is_empty()
    }
}
