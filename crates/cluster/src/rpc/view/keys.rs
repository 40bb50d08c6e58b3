//! Requests and answers about join tokens, keys, operators and pending machines.

use super::{AsOf, Secret};
use crate::rpc::identity::TlsIdentity;
use serde::{Deserialize, Serialize};

/// Answer of `/v1/tokens`. It contains no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokensView {
    pub version: u32,
    pub as_of: AsOf,
    /// The public part of all tokens. A machine that joins with it waits for `remoor accept`.
    pub public: String,
    pub tokens: Vec<TokenView>,
}

/// The join token of one role, without its secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// The role that the token gives: `worker` or `manager`.
    pub role: String,
    /// The time since which the token is valid. None if the cluster has not recorded it yet.
    pub since: Option<String>,
    pub by: String,
    /// The time until which the previous token is still valid.
    pub old_until: Option<String>,
}

/// Body of `/v1/tokens/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateRequest {
    pub role: String,
    /// The time for which the previous token stays valid, in milliseconds.
    #[serde(default)]
    pub keep_old_ms: u64,
}

/// A new join token. Only this answer contains its secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotatedView {
    pub version: u32,
    pub role: String,
    pub token: Secret,
    /// The time at which the previous token becomes or became invalid.
    pub old_until: String,
}

/// A machine that requests to join, or a node whose certificate expired.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    pub name: String,
    /// The purpose of the request: `join` or `certificate`.
    pub why: String,
    /// The state of the request: `waiting`, `accepted` or `denied`.
    pub state: String,
    /// The role that the node will have, or that the machine requests.
    pub role: String,
    /// The fingerprint of the machine's key.
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
    /// `worker` or `manager`. Empty accepts the requested role.
    #[serde(default)]
    pub role: String,
    #[serde(default)]
    pub deny: bool,
    /// The fingerprint that the machine's key must have. Empty accepts any key.
    #[serde(default)]
    pub fingerprint: String,
}

/// Body of `/v1/keys/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateKeyRequest {
    /// The key to replace: `gossip` or `ca`.
    pub key: String,
    /// Whether the CA rotation in progress stops waiting for absent workers.
    #[serde(default)]
    pub finish: bool,
}

/// Answer of `/v1/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysView {
    pub version: u32,
    pub as_of: AsOf,
    /// Index of the entry that set the current gossip key. 0 if the key is that of `init`.
    pub serial: u64,
    /// The rotation of the gossip key that is in progress.
    pub gossip: Option<RotationView>,
    /// The cluster's CA. None from an older manager.
    #[serde(default)]
    pub ca: Option<CaView>,
    /// Nodes whose certificate is no longer valid. They get a new one after `remoor accept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<PendingView>,
    /// The list of operators' credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorView>,
    /// Whether credentials that are not on the list are accepted too. An older manager, which has
    /// no such list, does not send the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlisted_operators: bool,
}

/// Body of `/v1/operators` and `/v1/operators/revoke`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRequest {
    pub name: String,
    /// An existing operator's certificate. If it is set, `/v1/operators` puts this certificate on
    /// the list and creates no new one.
    #[serde(default)]
    pub cert_pem: String,
}

/// New credentials of an operator. Only this answer contains them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMade {
    pub version: u32,
    pub name: String,
    /// The fingerprint of the credentials' key.
    pub fingerprint: String,
    pub until: String,
    /// The credentials in the format of the file for `--credentials`. None if the request contained
    /// a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<TlsIdentity>,
}

/// An operator's credentials, without the key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorView {
    pub name: String,
    pub fingerprint: String,
    pub since: String,
    pub by: String,
    pub until: String,
    /// `counts` (valid), `revoked`, `ended`, or `replaced` (the CA of the credentials was
    /// replaced).
    pub state: String,
}

/// The cluster's certificate authority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaView {
    /// Index of the entry that introduced the CA. 0 if it is the CA of `init`.
    pub serial: u64,
    /// The fingerprint of the CA's certificate, in the form of join tokens.
    pub fingerprint: String,
    pub until: String,
    /// The rotation to a new CA that is in progress.
    pub next: Option<RotationView>,
}

/// A rotation in progress, of the gossip key or the CA.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationView {
    /// The current step. For a gossip key it is `insert` (all nodes add the key) or `use` (all
    /// nodes encrypt with it). For a CA it is `trust` (all nodes trust the new CA in addition to
    /// the old one) or `issue` (all nodes get certificates from the new CA).
    pub step: String,
    pub since: String,
    pub by: String,
    /// The nodes in gossip that have not confirmed the current step of the rotation.
    pub waits_for: Vec<String>,
    /// The absent nodes. They get a new gossip key when they return. A CA rotation waits for them.
    pub away: Vec<String>,
    /// The fingerprint of the new CA's certificate, in the form of join tokens. None for a gossip
    /// key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// The nodes of `waits_for` that have not confirmed the current step of the rotation although
    /// they had enough time. They probably have a fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overdue: Vec<String>,
    /// The absent workers for which a CA rotation does not wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// The effect of a request, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedView {
    pub version: u32,
    pub text: String,
}
