//! The body of a join request, which any machine of the network may send. A request that passes the
//! check can be encoded again and passes again.

use remoor_cluster::rpc::join::JoinRequest;

pub fn target(bytes: &[u8]) -> bool {
    let Ok(request) = serde_json::from_slice::<JoinRequest>(bytes) else { return true };
    let accepted = request.check().is_ok();
    let encoded = serde_json::to_vec(&request).expect("a request can be encoded");
    let again: JoinRequest = serde_json::from_slice(&encoded).expect("an encoded request can be decoded");
    assert_eq!(again, request);
    assert_eq!(again.check().is_ok(), accepted);
    true
}
