//! Messages between members: a version byte, an address, a body in MessagePack, and for a snapshot the state's bytes.
//!
//! The address names cluster, epoch, sender and target: a message that reached another log than it was meant for is refused
//! before its body is looked at. Whether the sender is who it says is the transport's business; whether its directory is what it
//! was, that of [`super::life`]: what a member says of itself stands in the address, and behind the body of an answer.

use super::error::RaftError;
use super::life::{Claim, Lives};
use crate::model::{ClusterId, Epoch, RaftId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::sync::Arc;

/// Raised whenever the form of a message changes, openraft's included.
const VERSION: u8 = 1;
/// The kind of a message that only says who sends it. It is answered before it comes to the log.
pub const CLAIM: &str = "claim";

/// From whom to whom, and within what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub from: RaftId,
    pub to: RaftId,
    /// None from a program of before this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

impl Address {
    /// Whether a message with this address comes from the same cluster, before or after no recovery.
    pub fn of_cluster(&self, ours: &Us) -> Result<(), RaftError> {
        if self.cluster != ours.cluster {
            return Err(RaftError::WrongCluster { found: self.cluster.clone(), ours: ours.cluster.clone() });
        }
        if self.epoch != ours.epoch {
            return Err(RaftError::WrongEpoch { found: self.epoch, ours: ours.epoch });
        }
        Ok(())
    }

    /// Whether a message with this address is for `ours`.
    fn accept(&self, ours: &Us) -> Result<(), RaftError> {
        self.of_cluster(ours)?;
        if self.to != ours.id {
            return Err(RaftError::WrongTarget { found: self.to, ours: ours.id });
        }
        if self.from == ours.id {
            return Err(RaftError::WrongSender { ours: ours.id });
        }
        Ok(())
    }
}

/// Who this member is.
#[derive(Clone)]
pub struct Us {
    pub cluster: ClusterId,
    pub epoch: Epoch,
    pub id: RaftId,
    pub lives: Arc<Lives>,
}

impl Us {
    pub fn address(&self, to: RaftId) -> Address {
        let claim = Some(self.lives.claim());
        Address { cluster: self.cluster.clone(), epoch: self.epoch, from: self.id, to, claim }
    }
}

/// Who a request claims to come from, so that the server can compare it with the caller's certificate before handling it.
pub fn sender_of(request: &[u8]) -> Result<Address, RaftError> {
    let mut rest = versioned(request)?;
    read(&mut rest)
}

/// A request; `tail` is appended as it is.
pub fn request<T: Serialize>(address: &Address, body: &T, tail: &[u8]) -> Result<Vec<u8>, rmp_serde::encode::Error> {
    let mut bytes = vec![VERSION];
    rmp_serde::encode::write_named(&mut bytes, address)?;
    rmp_serde::encode::write_named(&mut bytes, body)?;
    bytes.extend_from_slice(tail);
    Ok(bytes)
}

/// The body of a request for us, and its tail.
pub fn open_request<'a, T: DeserializeOwned>(bytes: &'a [u8], ours: &Us) -> Result<(T, &'a [u8]), RaftError> {
    let mut rest = versioned(bytes)?;
    read::<Address>(&mut rest)?.accept(ours)?;
    let body = read(&mut rest)?;
    Ok((body, rest))
}

pub fn reply<T: Serialize>(body: &T, us: &Us) -> Result<Vec<u8>, RaftError> {
    let mut bytes = vec![VERSION];
    let written = rmp_serde::encode::write_named(&mut bytes, body)
        .and_then(|()| rmp_serde::encode::write_named(&mut bytes, &us.lives.claim()));
    written.map_err(|e| RaftError::BadMessage { why: e.to_string() })?;
    Ok(bytes)
}

/// The body of an answer, and what the one that answers says of itself; programs of before say nothing.
pub fn open_reply<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, Option<Claim>), RaftError> {
    let mut rest = versioned(bytes)?;
    let body = read(&mut rest)?;
    let claim = if rest.is_empty() { None } else { Some(read(&mut rest)?) };
    Ok((body, claim))
}

fn versioned(bytes: &[u8]) -> Result<&[u8], RaftError> {
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
