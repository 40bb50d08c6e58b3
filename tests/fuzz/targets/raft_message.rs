//! The body of a Raft message, which another manager sends after TLS and the check of its claim.

use remoor_cluster::raft::fuzzing::decode_request;
use remoor_model::Inventory;

pub fn target(bytes: &[u8]) -> bool {
    decode_request::<Inventory>(bytes);
    true
}
