//! The number of the current gossip key. The managers derive the key from the CA key and this
//! number, so the log contains no key.

use super::{Sha256, Wall};
use serde::{Deserialize, Serialize};

/// The current step of the rotation to a new gossip key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyStep {
    /// All nodes accept the new key in addition to the old one, and still send with the old one.
    #[default]
    Insert,
    /// All nodes send with the new key and still accept the old one.
    Use,
}

/// A new gossip key that is being distributed to all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextKey {
    /// Index of the log entry that began the rotation.
    pub serial: u64,
    pub step: KeyStep,
    pub since: Wall,
    pub by: String,
    /// The CA from whose key the gossip key is derived, as a [`super::ca_id`]. None if it is the CA
    /// that `init` created.
    #[serde(default)]
    pub base: Option<Sha256>,
}

/// The current gossip key and a rotation in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipKeys {
    /// The number of the current key. 0 for the key that `init` created.
    pub serial: u64,
    /// The CA from whose key the current gossip key is derived, in the form of [`NextKey::base`].
    #[serde(default)]
    pub base: Option<Sha256>,
    pub next: Option<NextKey>,
    /// Index of the last entry that changed this state. If two managers report different states,
    /// the state with the higher index is newer.
    pub changed: u64,
}

impl GossipKeys {
    /// The number of the key that nodes send with, and the number of the other key that they
    /// accept.
    pub fn active_keys(&self) -> (u64, Option<u64>) {
        match &self.next {
            None => (self.serial, None),
            Some(NextKey { serial, step: KeyStep::Insert, .. }) => (self.serial, Some(*serial)),
            Some(NextKey { serial, step: KeyStep::Use, .. }) => (*serial, Some(self.serial)),
        }
    }
}
