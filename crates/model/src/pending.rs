//! Machines that ask to join without a secret, nodes with an expired certificate, and the validity
//! of join secrets.

use super::{ClusterRole, NodeSpec, Sha256, Wall};
use serde::{Deserialize, Serialize};

/// Maximum number of machines that wait for permission to join; decided requests are dropped first.
pub const PENDING_MAX: usize = 64;
/// How long a request waits and how long the decision about it is valid.
pub const PENDING_MS: u64 = 24 * 3_600_000;

/// An operator's decision about a join request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinDecision {
    /// Not decided yet.
    #[default]
    None,
    /// The machine may join in this role.
    Accepted(ClusterRole),
    Denied,
}

/// A machine that asks to join.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingJoin {
    /// The machine's description of itself. Only its key is proved.
    pub spec: NodeSpec,
    /// The role that the machine asks for.
    pub role: ClusterRole,
    pub since: Wall,
    pub expires: Wall,
    #[serde(default)]
    pub answer: JoinDecision,
}

/// Maximum number of denied keys.
pub const DENIED_MAX: usize = 1_000;

/// A denied key. The denial stands until an operator revokes it, whichever secret the machine
/// presents.
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
    /// Until when it may get a new certificate, by an operator's decision; None: not decided.
    #[serde(default)]
    pub accepted_until: Option<Wall>,
}

impl ExpiredCertificate {
    /// The node may get a new certificate at this moment.
    pub fn is_accepted(&self, now: Wall) -> bool {
        self.accepted_until.is_some_and(|until| now <= until)
    }
}

/// Facts about the join secret of one role, in addition to its hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Since when the secret is valid; 0: the cluster is older than this record.
    pub since: Wall,
    pub by: String,
    /// The previous secret.
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
