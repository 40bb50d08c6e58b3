//! The number of the current gossip key. The managers derive the key itself from the CA key, so the
//! log contains no key.

use super::{Sha256, Wall};
use serde::{Deserialize, Serialize};

/// How far the rotation to a new gossip key has come.
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
    /// The CA from whose key the gossip key is derived, by its [`super::ca_id`]; None: the CA that
    /// `init` made.
    #[serde(default)]
    pub base: Option<Sha256>,
}

/// The current gossip key and a rotation in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipKeys {
    /// The number of the current key; 0: the key that `init` made.
    pub serial: u64,
    /// The CA from whose key the current gossip key is derived, as in [`NextKey`].
    #[serde(default)]
    pub base: Option<Sha256>,
    pub next: Option<NextKey>,
    /// Index of the last entry that changed this state. If two managers report different states,
    /// the state with the higher index is newer.
    pub changed: u64,
}

impl GossipKeys {
    /// The key that nodes send with, and the other key that they accept.
    pub fn active_keys(&self) -> (u64, Option<u64>) {
        match &self.next {
            None => (self.serial, None),
            Some(NextKey { serial, step: KeyStep::Insert, .. }) => (self.serial, Some(*serial)),
            Some(NextKey { serial, step: KeyStep::Use, .. }) => (*serial, Some(self.serial)),
        }
    }
}
