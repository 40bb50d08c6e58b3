//! What can go wrong with gossip. Nothing here means that a peer is gone: that comes as an event.

use super::meta::MetaError;
use std::net::SocketAddr;

/// Any error of memberlist, whose own type names half of its generics.
pub(super) type Cause = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// Nothing was started. The configuration has to change.
    #[error("advertised address {0} is not an address that others could dial")]
    Advertise(SocketAddr),
    /// Nothing was started. The configuration has to change.
    #[error("node name of {0} bytes: 1 to {max} printable ASCII characters are allowed", max = super::judge::NAME_MAX)]
    Name(usize),
    /// Nothing was started. The configuration has to change.
    #[error("cluster id is too long for a packet label")]
    Label,
    /// Nothing was started. May succeed later, for example once the port is free.
    #[error("starting the gossip member on {bind}")]
    Start { bind: SocketAddr, source: Cause },
    /// The report that was published before stays in force.
    #[error("encoding the report")]
    Report(#[source] MetaError),
    /// The state is unchanged; may be tried again. The peer may be down, or hold another key.
    #[error("joining by {addr}")]
    Join { addr: SocketAddr, source: Cause },
    /// The exchange goes on in the background and may still succeed: judge by the events.
    #[error("no answer from {addr} in time")]
    JoinTimeout { addr: SocketAddr },
    /// The member has left or was shut down. Start a new one.
    #[error("the gossip member is stopped")]
    Stopped,
    /// The report is stored and goes out with the next exchange; the member itself is in order.
    #[error("announcing the changed report")]
    Announce(#[source] Cause),
    /// The keyring is unchanged: the key is not in it, or it is the primary key.
    #[error("changing the gossip keyring")]
    Key(#[source] Cause),
}
