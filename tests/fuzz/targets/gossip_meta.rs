//! Metadata of a node in gossip, which any machine of the network may send. Metadata that can be
//! decoded can be encoded and signed again with the same content. Arbitrary bytes have no valid
//! signature.

use remoor_cluster::gossip::meta::{META_MAX, SignatureScope, decode, encode, verify, version_of};
use remoor_cluster::rpc::identity::NodeKey;
use remoor_model::{ClusterId, NodeName};
use std::sync::LazyLock;

static KEY: LazyLock<NodeKey> = LazyLock::new(|| NodeKey::generate().expect("a key"));

pub fn target(bytes: &[u8]) -> bool {
    let (cluster, name) = (ClusterId::from("c0ffee"), NodeName::from("w1"));
    let scope = SignatureScope { cluster: &cluster, name: &name, addr: ([10, 0, 0, 1], 7946).into() };
    let (signer, key) = (KEY.signing_key(), KEY.signing_key().verifying_key());
    assert!(!verify(bytes, scope, &key), "arbitrary bytes have a valid signature");
    let version = version_of(bytes);
    let Some(report) = decode(bytes) else { return true };
    assert!(version == Some(1) && bytes.len() <= META_MAX);
    let again = encode(&report, scope, signer).expect("decoded metadata can be encoded");
    assert!(again.len() <= META_MAX && verify(&again, scope, &key));
    assert_eq!(decode(&again), Some(report));
    true
}
