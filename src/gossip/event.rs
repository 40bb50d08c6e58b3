//! What gossip tells the rest of the program. Plain values.

use crate::model::{Epoch, NodeName, Report};
use std::net::SocketAddr;

/// A live member as last seen, this node included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: NodeName,
    pub addr: SocketAddr,
    /// The default if the node speaks a newer version of the report.
    pub report: Report,
    /// The report carries a good signature of the key that the inventory has for this name.
    pub signed: bool,
}

/// Somebody says that its certificate is of a newer epoch than the own one: a hint, to be seen proved. Of a node that is known it
/// bears its signature; one that joined since is known to nobody here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Where it gossips.
    pub addr: SocketAddr,
    pub epoch: Epoch,
    /// The port of its API.
    pub api: u16,
    /// It says that it manages.
    pub manages: bool,
    /// By the key that managers named.
    pub signed: bool,
}

/// In the order in which they were seen. The node's own record is among them, so consumers filter by name if they care.
///
/// A goodbye is an `Update` whose report says `leaving`, followed by `Gone`; a failure is a `Gone` alone. A restart
/// quicker than failure detection is an `Update` with another instance and no `Gone` at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEvent {
    /// A node is there that was not, or not any more.
    Alive { name: NodeName, addr: SocketAddr, report: Report, signed: bool },
    /// A present node says something new, or its signature counts now and did not before, or the reverse.
    Update { name: NodeName, addr: SocketAddr, report: Report, signed: bool },
    /// Failed, left or was removed.
    Gone { name: NodeName, addr: SocketAddr },
    /// Two addresses claim one name; the existing one stays. Rate-limited.
    Conflict { name: NodeName, existing: SocketAddr, other: SocketAddr },
    /// A record with a bad signature: of a known node, or of this one. It was not believed. Rate-limited.
    Forged { name: NodeName, addr: SocketAddr },
    /// A node's report has a version that this program can't read, though the signature is good. The node is shown as
    /// present with an empty report. Rate-limited.
    Unreadable { name: NodeName, addr: SocketAddr, version: u8 },
    /// This node's identity is in use at another address: a copied data directory or disk. Fatal for the daemon.
    SignedElsewhere { addr: SocketAddr },
    /// The same, where the other one is to end and not this one: it is of an older epoch, or manages nothing while this one does.
    /// Rate-limited. `lasting`: it has been seen there for a while, and is no echo of one that ended.
    OutrankedElsewhere { addr: SocketAddr, lasting: bool },
}
