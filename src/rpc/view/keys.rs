//! What is said of join tokens, and of who waits to be accepted.

use super::{AsOf, Secret};
use crate::rpc::identity::TlsIdentity;
use serde::{Deserialize, Serialize};

/// Answer of `/v1/tokens`. No secret is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokensView {
    pub version: u32,
    pub as_of: AsOf,
    /// The part of every token that is no secret: who joins with it waits for `remoor accept`.
    pub public: String,
    pub tokens: Vec<TokenView>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenView {
    /// `worker` or `manager`.
    pub role: String,
    /// Since when it counts; None: of a cluster that did not write it down yet.
    pub since: Option<String>,
    pub by: String,
    /// Until when the one before counts, too.
    pub old_until: Option<String>,
}

/// Body of `/v1/tokens/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateRequest {
    pub role: String,
    /// How long the one before counts on.
    #[serde(default)]
    pub keep_old_ms: u64,
}

/// A new join token, told once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotatedView {
    pub version: u32,
    pub role: String,
    pub token: Secret,
    /// Until when the one before counts, or counted.
    pub old_until: String,
}

/// A machine that asks to be let in, or a node whose certificate ran out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingView {
    pub name: String,
    /// `join` or `certificate`.
    pub why: String,
    /// `waiting`, `accepted`, `denied`.
    pub state: String,
    /// What it is to be, or asks to be.
    pub role: String,
    /// Of its key.
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
    /// `worker` or `manager`; empty: as it asked.
    #[serde(default)]
    pub role: String,
    #[serde(default)]
    pub deny: bool,
    /// What its key must have; empty: any.
    #[serde(default)]
    pub fingerprint: String,
}

/// Body of `/v1/keys/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotateKeyRequest {
    /// `gossip` or `ca`.
    pub key: String,
    /// The CA on its way waits for no worker that is away any more.
    #[serde(default)]
    pub finish: bool,
}

/// Answer of `/v1/keys`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysView {
    pub version: u32,
    pub as_of: AsOf,
    /// Entry that made the gossip key that is in force; 0: `init`.
    pub serial: u64,
    /// The one on its way.
    pub gossip: Option<RotationView>,
    /// None of an older manager.
    #[serde(default)]
    pub ca: Option<CaView>,
    /// Nodes whose certificate counts no more: they get another one by `remoor accept`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<PendingView>,
    /// Credentials of operators that were made by `/v1/operators`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorView>,
}

/// Body of `/v1/operators` and `/v1/operators/revoke`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRequest {
    pub name: String,
}

/// New credentials, told once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorMade {
    pub version: u32,
    pub name: String,
    /// Of their key.
    pub fingerprint: String,
    pub until: String,
    /// As `--credentials` takes them from a file.
    pub credentials: TlsIdentity,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorView {
    pub name: String,
    pub fingerprint: String,
    pub since: String,
    pub by: String,
    pub until: String,
    /// `counts`, `revoked`, `ended`, `replaced` (its CA was).
    pub state: String,
}

/// The cluster's certificate authority.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaView {
    /// Entry that began it; 0: `init`.
    pub serial: u64,
    /// As join tokens carry it.
    pub fingerprint: String,
    pub until: String,
    /// The one on its way.
    pub next: Option<RotationView>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RotationView {
    /// Of a gossip key `insert`: all take it in; `use`: all send by it. Of a CA `trust`: all trust it beside the old one;
    /// `issue`: all get certificates of it.
    pub step: String,
    pub since: String,
    pub by: String,
    /// Nodes that are there and have not confirmed the step.
    pub waits_for: Vec<String>,
    /// Those that are not there: a gossip key they get when they come back, a CA waits for them.
    pub away: Vec<String>,
    /// Of a CA, as join tokens carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Of `waits_for`, those that had time enough: something is wrong with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overdue: Vec<String>,
    /// Workers that are away, and that a CA does not wait for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
}

/// What was done, in words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedView {
    pub version: u32,
    pub text: String,
}
