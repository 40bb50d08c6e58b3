//! Errors of gossip. No error means that a peer is gone, because an absence is a
//! [`MemberEvent`](super::MemberEvent).

use super::meta::MetaError;
use std::net::SocketAddr;

/// Any error of memberlist. It is boxed, because memberlist's error type would expose half of its
/// generic parameters.
pub(super) type MemberlistError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why an operation of the gossip member failed.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// Nothing was started. The configuration has to change.
    #[error("advertised address {0} cannot be dialled by other nodes")]
    Advertise(SocketAddr),
    /// Nothing was started. The configuration has to change.
    #[error("node name of {0} bytes: 1 to {max} printable ASCII characters are allowed", max = super::judge::NAME_MAX)]
    Name(usize),
    /// Nothing was started. The configuration has to change.
    #[error("cluster id is too long for a packet label")]
    Label,
    /// Nothing was started. A retry may succeed, for example once the port is free.
    #[error("starting the gossip member on {bind}")]
    Start { bind: SocketAddr, source: MemberlistError },
    /// The report published earlier stays in force.
    #[error("encoding the report")]
    Report(#[source] MetaError),
    /// The state is unchanged and the join may be retried. The peer may be down, or it may have
    /// another gossip key.
    #[error("joining through {addr}")]
    Join { addr: SocketAddr, source: MemberlistError },
    /// The exchange continues in the background and may still succeed. The events show whether it
    /// succeeded.
    #[error("no answer from {addr} in time")]
    JoinTimeout { addr: SocketAddr },
    /// The member has left or was shut down. Only a new member can be started.
    #[error("the gossip member is stopped")]
    Stopped,
    /// The report is stored and is sent with the next state exchange. The member keeps running.
    #[error("announcing the changed report")]
    Announce(#[source] MemberlistError),
}
