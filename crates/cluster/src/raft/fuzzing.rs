//! Decodes messages of other members without a member, for the fuzz targets.

use super::StateMachine;
use super::snapshot::Image;
use super::types::{SnapshotMeta, Types, Vote};
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use serde::{Serialize, de::DeserializeOwned};

/// Decodes the body of a request as [`super::Raft::handle`] does, and whatever follows it. The
/// first byte selects the kind. Panics if a decoded body can't be encoded and decoded again.
pub fn decode_request<S: StateMachine>(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => drop(decode_twice::<AppendEntriesRequest<Types<S>>>(body)),
        1 => drop(decode_twice::<VoteRequest<Types<S>>>(body)),
        2 => drop(decode_twice::<TransferLeaderRequest<Types<S>>>(body)),
        _ => {
            if let Some((_, state)) = decode_twice::<(Vote<S>, SnapshotMeta<S>)>(body) {
                // The error says why the state can't be read.
                let _ = Image::<S>::decode(state.to_vec());
            }
        }
    }
}

/// The value, and the bytes after it. None if the bytes are no such value.
fn decode_twice<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<(T, &[u8])> {
    let mut rest = bytes;
    let value: T = rmp_serde::from_read(&mut rest).ok()?;
    let encode = |value: &T| rmp_serde::to_vec_named(value).expect("a decoded body can be encoded");
    let encoded = encode(&value);
    let again: T = rmp_serde::from_slice(&encoded).expect("an encoded body can be decoded");
    assert_eq!(encode(&again), encoded);
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::Inventory;

    #[test]
    fn bytes_of_any_kind_are_decoded_or_refused() {
        for kind in 0..4 {
            decode_request::<Inventory>(&[kind]);
            decode_request::<Inventory>(&[kind, 0x81, 0xa4, b'v', b'o', b't', b'e', 0xc0]);
        }
    }
}
