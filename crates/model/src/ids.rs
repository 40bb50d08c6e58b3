//! Names and numbers. Each has its own type, so that they cannot be confused.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! number {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    )*};
}

number! {
    /// The id of a machine: the log index of its Accept entry. It is never reused.
    NodeId
    /// The id of a Raft member: 1 for the founder, otherwise the log index of its Grant entry.
    RaftId
    /// The id of a job, which is one re-setup, decommissioning or undo of one node. It is the log
    /// index of the entry that opened the job.
    JobId
    /// The id of one attempt of a job: the log index of the entry that opened it. So a later
    /// attempt always has a greater id.
    AttemptId
    /// An epoch of the cluster. Recovery and restore begin a new epoch with a higher number. Two
    /// epochs may grant the same node, job or attempt id, so such an id is unique only together
    /// with its epoch.
    Epoch
    /// Sequence number of an applied version of the fleet. 0 means that none was applied.
    GenerationSeq
    /// Number of an absence, counted from 1 for each node.
    AbsenceNo
}

macro_rules! text {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);
        impl $name {
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
        impl From<&str> for $name {
            fn from(s: &str) -> Self { Self(s.to_owned()) }
        }
        impl From<String> for $name {
            fn from(s: String) -> Self { Self(s) }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str { &self.0 }
        }
    )*};
}

text! {
    /// A node's name in the inventory. The name does not identify the node; its key does.
    NodeName
    /// A host group as in Ansible.
    GroupName
    /// A named set of declared files, checks and playbook tags.
    ServiceName
    /// The cluster's random id in hex. `init` creates it.
    ClusterId
    /// The kernel's random boot id (`/proc/sys/kernel/random/boot_id`).
    BootId
    /// The random id of one start of an agent, as 16 hex digits.
    Instance
}

/// A SHA-256, written as 64 hex digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256(pub [u8; 32]);

impl Sha256 {
    /// Hash of `bytes`.
    pub fn digest(bytes: &[u8]) -> Self {
        use sha2::Digest;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Parses 64 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0; 32];
        hex::decode_to_slice(text, &mut out).ok()?;
        Some(Self(out))
    }

    /// The first 12 hex digits, for people.
    pub fn short_hex(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Serialize for Sha256 {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not 64 hex digits"))
    }
}

/// The fencing token. The executor compares cluster, epoch and attempt, in this order, before it
/// obeys a manager.
///
/// A node never accepts a smaller token of its own cluster. The Raft term is not part of the token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fence {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub attempt: AttemptId,
}

impl Fence {
    /// Environment variable that marks the processes of an attempt. It is set for processes that
    /// the attempt starts directly on a node instead of through the executor.
    pub const MARK: &str = "REMOOR_ATTEMPT";

    /// The value of [`MARK`](Self::MARK) for processes that this attempt starts for `node`.
    pub fn mark(&self, node: &NodeName) -> String {
        format!("{}/{node}/{}/{}", self.cluster, self.epoch, self.attempt)
    }

    /// Parses the text of [`mark`](Self::mark). The text is not trusted, because any process may
    /// set it.
    pub fn of_mark(text: &str) -> Option<(NodeName, Self)> {
        let fields: Vec<&str> = text.split('/').collect();
        let [cluster, node, epoch, attempt] = fields[..] else { return None };
        let fence = Self {
            cluster: cluster.into(),
            epoch: Epoch(epoch.parse().ok()?),
            attempt: AttemptId(attempt.parse().ok()?),
        };
        Some((node.into(), fence))
    }
}

/// The meaning that Ansible gives this name in an inventory. No node may have such a name. None for
/// all other names. IPv6 addresses are not checked, because node names contain no colon.
pub fn reserved_by_ansible(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let parts: Vec<&str> = name.split('.').collect();
    match name.as_str() {
        "all" => Some("all hosts"),
        "ungrouped" => Some("the hosts without a group"),
        "localhost" | "localhost.localdomain" => Some("the machine on which it runs"),
        _ if parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok()) => {
            Some("whichever machine has that address")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_reserved_by_ansible_are_recognized() {
        for name in ["all", "Ungrouped", "localhost", "LocalHost.LocalDomain", "10.0.0.5", "255.255.255.255"] {
            assert!(reserved_by_ansible(name).is_some(), "{name}");
        }
        for name in ["localhost.example", "10.0.0", "10.0.0.256", "10.0.0.5.example", "w1.10.0.0", "1"] {
            assert_eq!(reserved_by_ansible(name), None, "{name}");
        }
    }

    #[test]
    fn a_mark_names_the_attempt_and_its_node() {
        let fence = Fence { cluster: "c1".into(), epoch: Epoch(2), attempt: AttemptId(70) };
        let node = NodeName::from("w1.example");
        assert_eq!(Fence::of_mark(&fence.mark(&node)), Some((node, fence)));
        for other in ["", "7", "c1/w1/2", "c1/w1/2/70/1", "c1/w1/x/70", "c1/w1/2/-1"] {
            assert_eq!(Fence::of_mark(other), None, "{other}");
        }
    }
}
