//! False messages that a node with the gossip key can send. Only for tests.

use super::guard::wire::{self, OwnedMessage};
use super::transport::GossipKeyring;
use memberlist::proto::{Alive, Dead, Meta, Node, Suspect};
use remoor_model::{ClusterId, NodeName};
use smol_str::SmolStr;
use std::net::SocketAddr;

fn id(name: &NodeName) -> SmolStr {
    SmolStr::new(name.as_str())
}

fn encode(message: OwnedMessage) -> Vec<u8> {
    wire::encode(&message).expect("a valid message")
}

/// A message that a node is alive.
pub fn alive(name: &NodeName, addr: SocketAddr, number: u32, meta: &[u8]) -> Vec<u8> {
    let meta = Meta::try_from(meta).expect("a short report");
    encode(Alive::new(number, Node::new(id(name), addr)).with_meta(meta).into())
}

/// A message that `from` suspects a node.
pub fn suspect(name: &NodeName, from: &NodeName, number: u32) -> Vec<u8> {
    encode(Suspect::new(number, id(name), id(from)).into())
}

/// A message of `from` that a node failed.
pub fn dead(name: &NodeName, from: &NodeName, number: u32) -> Vec<u8> {
    encode(Dead::new(number, id(name), id(from)).into())
}

/// An encrypted datagram with these messages.
pub fn datagram(cluster: &ClusterId, key: [u8; 32], messages: &[Vec<u8>]) -> Vec<u8> {
    let keyring = GossipKeyring::new(cluster, key).expect("a short cluster id");
    keyring.seal(&wire::join(messages).expect("messages")).expect("encrypted").to_vec()
}
