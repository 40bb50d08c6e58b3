//! Messages between members: a version byte, an address, a body in MessagePack, and for a snapshot
//! the state's bytes.
//!
//! The address names cluster, epoch, sender and target. A message that reached the wrong log is
//! rejected before its body is read. The transport authenticates the sender. [`crate::incarnation`]
//! decides whether the sender's data directory is its latest one. It does so by the claim, which is
//! in the address of a request and after the body of an answer.

use super::error::RaftError;
use super::incarnation_table::IncarnationTable;
use crate::incarnation::IncarnationClaim;
use remoor_model::{ClusterId, Epoch, RaftId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// The version of the messages. It must be incremented when the form of a message changes, also of
/// a message of openraft.
const VERSION: u8 = 1;
/// The kind of a message that only identifies its sender. It is answered before it reaches the log.
pub const CLAIM: &str = "claim";

/// Sender, target, cluster and epoch of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageAddress {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub from: RaftId,
    pub to: RaftId,
    /// The sender's claim. None from an older program, which sends no claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<IncarnationClaim>,
}

impl MessageAddress {
    /// Checks whether a message with this address comes from the same cluster and epoch. A recovery
    /// begins a new epoch.
    pub fn check_cluster(&self, ours: &LocalMember) -> Result<(), RaftError> {
        if self.cluster != ours.cluster {
            return Err(RaftError::WrongCluster { found: self.cluster.clone(), ours: ours.cluster.clone() });
        }
        if self.epoch != ours.epoch {
            return Err(RaftError::WrongEpoch { found: self.epoch, ours: ours.epoch });
        }
        Ok(())
    }

    /// Checks whether a message with this address is for `ours`.
    fn accept(&self, ours: &LocalMember) -> Result<(), RaftError> {
        self.check_cluster(ours)?;
        if self.to != ours.id {
            return Err(RaftError::WrongTarget { found: self.to, ours: ours.id });
        }
        if self.from == ours.id {
            return Err(RaftError::WrongSender { ours: ours.id });
        }
        Ok(())
    }
}

/// This member's cluster, epoch and Raft id, with its incarnation and the incarnations of the other
/// members.
#[derive(Clone)]
pub struct LocalMember {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub id: RaftId,
    pub incarnations: Arc<IncarnationTable>,
}

impl LocalMember {
    /// The address of a message from this member to `to`, with its current claim.
    pub fn address(&self, to: RaftId) -> MessageAddress {
        let claim = Some(self.incarnations.claim());
        MessageAddress { cluster: self.cluster.clone(), epoch: self.epoch, from: self.id, to, claim }
    }
}

/// The sender that a request names. The server compares it with the caller's certificate before it
/// handles the request.
pub fn sender_of(request: &[u8]) -> Result<MessageAddress, RaftError> {
    let mut rest = check_version(request)?;
    read(&mut rest)
}

/// Encodes a request. `tail` is appended unchanged.
pub fn request<T: Serialize>(
    address: &MessageAddress,
    body: &T,
    tail: &[u8],
) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let mut bytes = vec![VERSION];
    rmp_serde::encode::write_named(&mut bytes, address)?;
    rmp_serde::encode::write_named(&mut bytes, body)?;
    bytes.extend_from_slice(tail);
    Ok(bytes)
}

/// Decodes a request that is for this member. Returns its body and its tail.
pub fn open_request<'a, T: DeserializeOwned>(bytes: &'a [u8], ours: &LocalMember) -> Result<(T, &'a [u8]), RaftError> {
    let mut rest = check_version(bytes)?;
    read::<MessageAddress>(&mut rest)?.accept(ours)?;
    let body = read(&mut rest)?;
    Ok((body, rest))
}

/// Encodes an answer: the body, and after it this member's claim.
pub fn reply<T: Serialize>(body: &T, us: &LocalMember) -> Result<Vec<u8>, RaftError> {
    let mut bytes = vec![VERSION];
    let written = rmp_serde::encode::write_named(&mut bytes, body)
        .and_then(|()| rmp_serde::encode::write_named(&mut bytes, &us.incarnations.claim()));
    written.map_err(|e| RaftError::BadMessage { why: e.to_string() })?;
    Ok(bytes)
}

/// Decodes an answer. Returns its body and the claim of its sender. Older programs send no claim.
pub fn open_reply<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Option<IncarnationClaim>), RaftError> {
    let mut rest = check_version(bytes)?;
    let body = read(&mut rest)?;
    let claim = if rest.is_empty() { None } else { Some(read(&mut rest)?) };
    Ok((body, claim))
}

fn check_version(bytes: &[u8]) -> Result<&[u8], RaftError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((version, _)) => {
            Err(RaftError::BadMessage { why: format!("version {version}, this program speaks {VERSION}") })
        }
        None => Err(RaftError::BadMessage { why: "it is empty".to_owned() }),
    }
}

fn read<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<T, RaftError> {
    rmp_serde::from_read(rest).map_err(|e| RaftError::BadMessage { why: e.to_string() })
}
