//! What managers answer on `/agent/v1`: an agent's own manifest, and whom it may meet.

use super::join::Peer;
use super::token::Secret;
use crate::model::{Epoch, Manifest, NodeName};
use serde::{Deserialize, Serialize};

/// Answer of `/agent/v1/manifest`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ManifestReply {
    pub manifest: Manifest,
    /// Hex; for the hashes of secret files.
    pub digest_key: String,
    /// How often files and checks are looked at.
    pub check_interval_ms: u64,
    /// How often a node with peers dials those that are missing.
    #[serde(default)]
    pub rejoin_ms: u64,
}

/// Answer of `/agent/v1/peers`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PeersReply {
    pub peers: Vec<Peer>,
    pub managers: Vec<Peer>,
    /// In which the manager that answers is; 0: it does not say (older managers).
    #[serde(default)]
    pub epoch: Epoch,
    /// Names that were those of removed nodes, and are nobody's now: what gossips by them is no member.
    #[serde(default)]
    pub removed: Vec<NodeName>,
    /// By which entry the gossip keys are as they are: who holds those of an older one asks for them.
    #[serde(default)]
    pub gossip: u64,
    /// By which entry the CAs are as they are, likewise; 0: the cluster has the one of `init`, and no other was ever made.
    #[serde(default)]
    pub ca: u64,
}

/// Where managers say which gossip keys count.
pub const GOSSIP_KEYS_PATH: &str = "/agent/v1/gossip-keys";

/// Which the node holds, by the entry's number; 0: it does not know.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GossipKeysRequest {
    pub holds: u64,
}

/// All that the node is to hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GossipKeysReply {
    /// Hex; by the first one it sends.
    pub keys: Vec<Secret>,
    pub changed: u64,
    /// Whether the manager that answers leads.
    pub leads: bool,
}

/// Where managers say which CAs are to be trusted.
pub const CA_PATH: &str = "/agent/v1/ca";

/// How far the node is.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CaRequest {
    /// By which entry it trusts the CAs that it trusts, and holds a certificate of the one that issues; a manager holds the keys
    /// of these CAs, too. 0: it is not so far, or does not know.
    pub holds: u64,
}

/// All that the node is to trust.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaReply {
    /// PEM, first the one that issues.
    pub ca_pem: String,
    pub changed: u64,
    /// Whether one takes the place of another: then the node says how far it is.
    pub rotating: bool,
    /// Whether the manager that answers leads.
    pub leads: bool,
}
