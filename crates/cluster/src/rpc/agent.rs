//! Answers of managers on `/agent/v1`: an agent's manifest and its peers.

use super::join::PeerInfo;
use super::token::Secret;
use remoor_model::{Epoch, GenerationSeq, Instance, NodeManifest, NodeName, Report};
use serde::{Deserialize, Serialize};

/// Answer of `/agent/v1/manifest`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ManifestReply {
    pub manifest: NodeManifest,
    /// The key for the hashes of secret files, in hex.
    pub digest_key: String,
    /// Interval at which the agent hashes its files and runs its checks.
    pub check_interval_ms: u64,
    /// Interval at which a node with live peers dials missing ones.
    #[serde(default)]
    pub rejoin_ms: u64,
}

/// Maximum length of a report as JSON, in bytes. A report that fits into gossip is shorter.
const REPORT_MAX: usize = 1024;

/// Query of `/agent/v1/peers`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PeersQuery {
    /// The hash of the lists of peers, managers and removed names that the caller already has.
    /// Empty if the caller has no lists.
    #[serde(default)]
    pub have: String,
    /// The agent's last report, as JSON in hex. Gossip normally delivers the same report. With this
    /// copy, nobody can hide a change by suppressing the node's gossip. Empty from older agents.
    #[serde(default)]
    pub report: String,
}

impl PeersQuery {
    /// The query string. `have` is the digest of the lists that the agent has.
    pub fn encode(have: &str, report: &Report) -> String {
        let report = serde_json::to_vec(report).map(hex::encode).unwrap_or_default();
        format!("have={have}&report={report}")
    }

    /// The agent's report. None if there is none, or if it is too long or cannot be read.
    pub fn report(&self) -> Option<Report> {
        if self.report.len() > 2 * REPORT_MAX {
            return None;
        }
        serde_json::from_slice(&hex::decode(&self.report).ok()?).ok()
    }
}

/// Answer of `/agent/v1/peers`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PeersReply {
    pub peers: Vec<PeerInfo>,
    pub managers: Vec<PeerInfo>,
    /// The epoch of the answering manager; 0 from older managers, which do not send it.
    #[serde(default)]
    pub epoch: Epoch,
    /// Names of removed nodes that no current node has. A gossip record with such a name is not
    /// accepted as a member.
    #[serde(default)]
    pub removed: Vec<NodeName>,
    /// Index of the entry that set the current gossip keys. A node whose keys are from an older
    /// entry requests the current ones.
    #[serde(default)]
    pub gossip: u64,
    /// Index of the entry that set the current CAs; 0 if the cluster still has the CA of `init`. A
    /// node whose CAs are from an older entry requests the current ones.
    #[serde(default)]
    pub ca: u64,
    /// Hash of `peers`, `managers` and `removed`; empty from older managers.
    #[serde(default)]
    pub lists: String,
    /// Whether the caller already has the current lists of peers, managers and removed names. If
    /// true, the answer does not contain them.
    #[serde(default)]
    pub unchanged: bool,
    /// Index of the last entry that the answering manager has applied; 0 from older managers.
    #[serde(default)]
    pub applied: u64,
    /// The newest generation that the answering manager knows; 0 from older managers.
    #[serde(default)]
    pub newest: GenerationSeq,
}

/// The path at which every node reports the instance of its running agent to other nodes.
pub const INSTANCE_PATH: &str = "/agent/v1/instance";

/// Answer of `/agent/v1/instance`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReply {
    pub instance: Instance,
}

/// The path at which managers return the valid gossip keys.
pub const GOSSIP_KEYS_PATH: &str = "/agent/v1/gossip-keys";

/// The request for the gossip keys. `holds` is the index of the entry that set the gossip keys of
/// the requesting node; 0 if the index is unknown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GossipKeysRequest {
    pub holds: u64,
}

/// Answer of `/agent/v1/gossip-keys`: all gossip keys that the node needs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GossipKeysReply {
    /// The keys in hex. The node encrypts with the first key.
    pub keys: Vec<Secret>,
    pub changed: u64,
    /// Whether the answering manager is the leader.
    pub leads: bool,
}

/// The path at which managers return the trusted CAs.
pub const CA_PATH: &str = "/agent/v1/ca";

/// The request for the trusted CAs. It contains the node's progress in a CA rotation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CaRequest {
    /// Index of the entry whose CAs the node trusts and whose issuing CA signed its certificate. A
    /// manager must also have the keys of these CAs. 0 if this is true of no entry yet, or if the
    /// index is unknown.
    pub holds: u64,
}

/// Answer of `/agent/v1/ca`: all CAs that the node must trust.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrustedCasReply {
    /// The CA certificates in PEM. The issuing CA is the first.
    pub ca_pem: String,
    pub changed: u64,
    /// Whether a CA rotation is in progress. If true, the node reports its progress.
    pub rotating: bool,
    /// Whether the answering manager is the leader.
    pub leads: bool,
}
