//! Machines that ask to be let in without a secret, nodes whose certificate ran out, and since when a join secret counts.

use super::{ClusterRole, NodeSpec, Sha256, Wall};
use serde::{Deserialize, Serialize};

/// So many machines may wait to be let in; answered ones make room for new ones.
pub const PENDING_MAX: usize = 64;
/// So long one waits, and a yes or no to it counts.
pub const PENDING_MS: u64 = 24 * 3_600_000;

/// What an operator said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Nothing yet.
    #[default]
    None,
    /// It may come in, in this role.
    Accepted(ClusterRole),
    Denied,
}

/// A machine that asks to be let in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pending {
    /// In its own words, but for the key, which it has proved to hold.
    pub spec: NodeSpec,
    /// What it asks to be.
    pub role: ClusterRole,
    pub since: Wall,
    pub expires: Wall,
    #[serde(default)]
    pub answer: Answer,
}

/// So many keys may stand denied.
pub const DENIED_MAX: usize = 1_000;

/// An operator's no to a key. It stands until an operator takes it back, whatever secret the machine comes with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denied {
    /// As what it asked to be let in.
    pub spec: NodeSpec,
    pub at: Wall,
    pub by: String,
}

/// A node that came with a certificate of its own that had run out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lapsed {
    pub since: Wall,
    /// Until when it may have a new one, by an operator's yes; None: nobody said so.
    #[serde(default)]
    pub accepted_until: Option<Wall>,
}

impl Lapsed {
    pub fn accepted(&self, now: Wall) -> bool {
        self.accepted_until.is_some_and(|until| now <= until)
    }
}

/// What is known of the join secret of one role beside its hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Since when the secret counts; 0: a cluster of before this was written down.
    pub since: Wall,
    pub by: String,
    /// The secret before.
    #[serde(default)]
    pub old: Option<OldSecret>,
}

/// A join secret that was replaced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldSecret {
    pub secret: Sha256,
    /// The last moment at which it let anybody in.
    pub until: Wall,
}
