//! Machines that request to join without a secret, nodes with an expired certificate, and the
//! validity of join secrets.

use super::{ClusterRole, NodeSpec, Sha256, Wall};
use serde::{Deserialize, Serialize};

/// Maximum number of machines that wait for permission to join. Decided requests are dropped first.
pub const PENDING_MAX: usize = 64;
/// The time for which a request waits, and for which a decision about it is valid.
pub const PENDING_MS: u64 = 24 * 3_600_000;

/// An operator's decision about a join request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinDecision {
    /// The operator has not decided yet.
    #[default]
    None,
    /// The machine may join in this role.
    Accepted(ClusterRole),
    Denied,
}

/// A machine that requests to join.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingJoin {
    /// The machine's description of itself. Only its key is proved.
    pub spec: NodeSpec,
    /// The role that the machine requests.
    pub role: ClusterRole,
    pub since: Wall,
    pub expires: Wall,
    #[serde(default)]
    pub answer: JoinDecision,
}

/// Maximum number of denied keys.
pub const DENIED_MAX: usize = 1_000;

/// A denied key. The denial is valid until an operator revokes it, also if the machine presents a
/// secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeniedKey {
    /// The machine's description in its join request.
    pub spec: NodeSpec,
    pub at: Wall,
    pub by: String,
}

/// A node that presented its own expired certificate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredCertificate {
    pub since: Wall,
    /// The time until which the node may get a new certificate. An operator's decision sets it.
    /// None if there is no decision.
    #[serde(default)]
    pub accepted_until: Option<Wall>,
}

impl ExpiredCertificate {
    /// Whether the node may get a new certificate at this moment.
    pub fn is_accepted(&self, now: Wall) -> bool {
        self.accepted_until.is_some_and(|until| now <= until)
    }
}

/// Facts about the join secret of one role, in addition to its hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// The time since which the secret is valid. 0 if the secret was set before remoor recorded
    /// this time.
    pub since: Wall,
    pub by: String,
    /// The join secret that the current one replaced.
    #[serde(default)]
    pub old: Option<OldSecret>,
}

/// A join secret that was replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldSecret {
    pub secret: Sha256,
    /// The last moment at which this secret is accepted.
    pub until: Wall,
}
