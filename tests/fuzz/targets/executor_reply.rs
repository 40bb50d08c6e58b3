//! One frame of an executor, whose machine may be compromised. A reply that passes the limits can
//! be encoded again within the limits.

use remoor_exec::wire::Reply;
use remoor_exec::wire::frame::{decode, encode_reply};
use remoor_exec::wire::reply_limits::{HEAD, check_json, limits_of};

pub fn target(bytes: &[u8]) -> bool {
    let limits = limits_of(&bytes[..bytes.len().min(HEAD)]);
    if limits.check_length(bytes.len()).is_err() || limits.check_values(bytes).is_err() {
        return true;
    }
    let Ok(reply) = decode::<Reply>(bytes) else { return true };
    if check_json(&reply).is_err() {
        return true;
    }
    let frame = encode_reply(&reply).expect("a reply within the limits can be encoded");
    assert_eq!(decode::<Reply>(&frame[4..]).expect("an encoded reply can be decoded"), reply);
    true
}
