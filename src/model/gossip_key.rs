//! Which gossip key is in force, as a number: the managers derive the key itself from the CA's, so that none stands in the log.

use super::{Sha256, Wall};
use serde::{Deserialize, Serialize};

/// How far a new key is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyStep {
    /// All take it in, beside the old one, by which they send.
    #[default]
    Insert,
    /// All send by it, and still read the old one.
    Use,
}

/// A key on its way to all nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextKey {
    /// Index of the entry that began it.
    pub serial: u64,
    pub step: KeyStep,
    pub since: Wall,
    pub by: String,
    /// The CA from whose key it is derived, by its [`super::ca_id`]; None: that of `init`.
    #[serde(default)]
    pub base: Option<Sha256>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GossipKeys {
    /// The key in force; 0: that of `init`.
    pub serial: u64,
    /// From whose key that one is derived, as in [`NextKey`].
    #[serde(default)]
    pub base: Option<Sha256>,
    pub next: Option<NextKey>,
    /// Index of the last entry that changed something here: which of two answers is the newer one.
    pub changed: u64,
}

impl GossipKeys {
    /// By which nodes send, and which others they read.
    pub fn held(&self) -> (u64, Option<u64>) {
        match &self.next {
            None => (self.serial, None),
            Some(NextKey { serial, step: KeyStep::Insert, .. }) => (self.serial, Some(*serial)),
            Some(NextKey { serial, step: KeyStep::Use, .. }) => (*serial, Some(self.serial)),
        }
    }
}
