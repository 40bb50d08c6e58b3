//! Which certificate authority the cluster goes by, the one that is to follow it, and those that came before. Certificates only:
//! the private keys are on the managers' disks and never in the log.

use super::{NodeId, Sha256, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// So many authorities of before are remembered: a node that missed more rotations than that joins anew.
pub const FORMER_MAX: usize = 3;

/// How far a new authority is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaStep {
    /// All nodes trust it beside the present one, which still issues.
    #[default]
    Trust,
    /// It issues, and all get certificates of it; the old one is still trusted.
    Issue,
}

/// An authority on its way to all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextCa {
    /// Index of the entry that began it.
    pub serial: u64,
    pub step: CaStep,
    pub since: Wall,
    pub by: String,
    pub ca_pem: String,
    /// The same authority, signed by the present one: whoever knows only that one believes it too.
    pub cross_pem: String,
    /// Workers that are away, and that an operator said are not waited for.
    #[serde(default)]
    pub without: BTreeSet<NodeId>,
}

/// One that counts no more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerCa {
    pub ca_pem: String,
    /// The one that followed it, signed by it.
    pub cross_pem: String,
    pub until: Wall,
}

/// What is known beside the present authority's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The entry that began the present one; 0: that of `init`.
    pub serial: u64,
    pub next: Option<NextCa>,
    /// The latest first.
    pub former: Vec<FormerCa>,
    /// Index of the last entry that changed something here: which of two answers is the newer one.
    pub changed: u64,
}

/// By what an authority's key is found on a manager's disk, and named where it matters which one it is.
pub fn ca_id(ca_pem: &str) -> Sha256 {
    Sha256::of(ca_pem.trim().as_bytes())
}
