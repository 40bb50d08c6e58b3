//! What managers answer on `/agent/v1`: an agent's own manifest, and whom it may meet.

use super::join::Peer;
use crate::model::Manifest;
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
}
