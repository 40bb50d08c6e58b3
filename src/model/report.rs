//! What an agent says of itself by gossip: a hint, never evidence.

use super::{BootId, GenerationSeq, Instance, Sha256};
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
}

impl Report {
    /// Nothing could be read of it: no boot id and no instance, which every agent has. Such a node is alive, no more.
    pub fn is_blank(&self) -> bool {
        self.boot.as_str().is_empty() && self.instance.0.is_empty()
    }
}
