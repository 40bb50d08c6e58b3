//! Requests and answers about join tokens, keys, operators and pending machines.

use super::{AsOf, Secret};
use crate::rpc::identity::TlsIdentity;
use serde::{Deserialize, Serialize};

/// Answer of `/v1/tokens`. It contains no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokensView {
    pub version: u32,
    pub as_of: AsOf,
    /// The public part of every token. A machine that joins with it waits for `remoor accept`.
    pub public: String,
    pub tokens: Vec<TokenView>,
}

/// The join token of one role, without its secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// `worker` or `manager`.
    pub role: String,
    /// Since when the token is valid. None: the cluster did not record it yet.
    pub since: Option<String>,
    pub by: String,
    /// Until when the previous token is valid too.
    pub old_until: Option<String>,
}

/// Body of `/v1/tokens/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateRequest {
    pub role: String,
    /// For how long the previous token stays valid.
    #[serde(default)]
    pub keep_old_ms: u64,
}

/// A new join token, shown once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotatedView {
    pub version: u32,
    pub role: String,
    pub token: Secret,
    /// Until when the previous token is or was valid.
    pub old_until: String,
}

/// A machine that requests to join, or a node whose certificate expired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    pub name: String,
    /// `join` or `certificate`.
    pub why: String,
    /// `waiting`, `accepted`, `denied`.
    pub state: String,
    /// The role that it will have or requests.
    pub role: String,
    /// The fingerprint of its key.
    pub fingerprint: String,
    pub address: String,
    pub since: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// Body of `/v1/accept`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptRequest {
    pub name: String,
    /// `worker` or `manager`; empty: as requested.
    #[serde(default)]
    pub role: String,
    #[serde(default)]
    pub deny: bool,
    /// The fingerprint that its key must have; empty: any.
    #[serde(default)]
    pub fingerprint: String,
}

/// Body of `/v1/keys/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateKeyRequest {
    /// `gossip` or `ca`.
    pub key: String,
    /// The current CA rotation stops waiting for absent workers.
    #[serde(default)]
    pub finish: bool,
}

/// Answer of `/v1/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysView {
    pub version: u32,
    pub as_of: AsOf,
    /// Index of the entry that set the current gossip key; 0: `init`.
    pub serial: u64,
    /// The rotation in progress.
    pub gossip: Option<RotationView>,
    /// None from an older manager.
    #[serde(default)]
    pub ca: Option<CaView>,
    /// Nodes whose certificate is no longer valid. They get a new one by `remoor accept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<PendingView>,
    /// Operators' credentials that were created by `/v1/operators`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorView>,
}

/// Body of `/v1/operators` and `/v1/operators/revoke`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRequest {
    pub name: String,
}

/// New credentials, shown once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMade {
    pub version: u32,
    pub name: String,
    /// The fingerprint of their key.
    pub fingerprint: String,
    pub until: String,
    /// In the format of the file for `--credentials`.
    pub credentials: TlsIdentity,
}

/// An operator's credentials, without the key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorView {
    pub name: String,
    pub fingerprint: String,
    pub since: String,
    pub by: String,
    pub until: String,
    /// `counts` (valid), `revoked`, `ended`, `replaced` (its CA was).
    pub state: String,
}

/// The cluster's certificate authority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaView {
    /// Index of the entry that started it; 0: `init`.
    pub serial: u64,
    /// As in join tokens.
    pub fingerprint: String,
    pub until: String,
    /// The rotation in progress.
    pub next: Option<RotationView>,
}

/// A rotation in progress, of the gossip key or the CA.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationView {
    /// For a gossip key `insert` (all nodes add it) or `use` (all encrypt with it). For a CA
    /// `trust` (all nodes trust it in addition to the old one) or `issue` (all get certificates
    /// from it).
    pub step: String,
    pub since: String,
    pub by: String,
    /// Present nodes that have not confirmed the step.
    pub waits_for: Vec<String>,
    /// Absent nodes. They get a gossip key when they come back; a CA rotation waits for them.
    pub away: Vec<String>,
    /// For a CA: its fingerprint as in join tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Nodes of `waits_for` that had enough time, so something is wrong with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overdue: Vec<String>,
    /// Absent workers for which a CA rotation does not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// What was done, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedView {
    pub version: u32,
    pub text: String,
}
