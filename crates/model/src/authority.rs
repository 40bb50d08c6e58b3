//! The cluster's certificate authority (CA), its successor during a rotation, and former CAs. The
//! state contains certificates only. Private keys are on the managers' disks and never in the log.

use super::{NodeId, Sha256, Wall};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of former CAs that are remembered. A node that missed more rotations must join
/// again.
pub const FORMER_MAX: usize = 3;

/// The current step of the rotation to a new CA.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaStep {
    /// All nodes trust the new CA in addition to the current CA. The current CA still issues.
    #[default]
    Trust,
    /// The new CA issues, and all nodes get certificates from it. They still trust the old CA.
    Issue,
}

/// A new CA that is being distributed to all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextCa {
    /// Index of the log entry that began the rotation.
    pub serial: u64,
    pub step: CaStep,
    pub since: Wall,
    pub by: String,
    pub ca_pem: String,
    /// The new CA's certificate, signed by the current CA. A node that knows only the current CA
    /// can therefore verify it.
    pub cross_pem: String,
    /// Absent workers for which the rotation does not wait. An operator named them.
    #[serde(default)]
    pub without: BTreeSet<NodeId>,
}

/// A CA that is no longer trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerCa {
    pub ca_pem: String,
    /// The certificate of its successor, signed by this CA.
    pub cross_pem: String,
    pub until: Wall,
}

/// The state of the CAs. The current CA's certificate is kept separately, in the inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Index of the entry that began the rotation to the current CA. 0 if `init` created the
    /// current CA.
    pub serial: u64,
    pub next: Option<NextCa>,
    /// CAs that are no longer trusted. The newest one is the first.
    pub former: Vec<FormerCa>,
    /// Index of the last entry that changed this state. If two managers report different states,
    /// the state with the higher index is newer.
    pub changed: u64,
}

/// The hash that identifies a CA. A manager finds the CA's key on its disk by this hash, and
/// messages name the CA by it.
pub fn ca_id(ca_pem: &str) -> Sha256 {
    Sha256::digest(ca_pem.trim().as_bytes())
}
