//! Invitations. Each has a secret for one machine, created by `node add`. The state stores only the
//! hashes of the secrets.

use super::{ClusterRole, NodeName, Wall};
use serde::{Deserialize, Serialize};

/// Maximum number of open invitations. Expired ones are dropped first.
pub const INVITES_MAX: usize = 256;

/// One invitation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invite {
    /// The only name under which the machine may join.
    pub name: NodeName,
    pub role: ClusterRole,
    pub expires: Wall,
    /// Key of the machine that joined. Only this machine may join again with the invitation,
    /// because the answer may have been lost.
    pub used_by: Option<String>,
}

impl Invite {
    /// Whether a machine with this name and key may join by this invitation at `now`.
    pub fn admits(&self, name: &NodeName, public_key: &str, now: Wall) -> bool {
        self.name == *name && now <= self.expires && self.used_by.as_deref().is_none_or(|key| key == public_key)
    }
}
