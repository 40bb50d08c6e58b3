//! Invitations: secrets for one machine each, made by `node add`, known to the state by their hash only.

use super::{ClusterRole, NodeName, Wall};
use serde::{Deserialize, Serialize};

/// So many may be open; expired ones make room for new ones.
pub const INVITES_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The only name under which the machine may join.
    pub name: NodeName,
    pub role: ClusterRole,
    pub expires: Wall,
    /// Key of the machine that came. It may ask again, as its answer may have been lost; nobody else may.
    pub used_by: Option<String>,
}

impl Invite {
    /// Whether a machine with this name and key may come in by it at `now`.
    pub fn admits(&self, name: &NodeName, public_key: &str, now: Wall) -> bool {
        self.name == *name && now <= self.expires && self.used_by.as_deref().is_none_or(|key| key == public_key)
    }
}
