//! The observations that gossip reports to the rest of the program. Plain values.

use remoor_model::{Epoch, NodeName, Report};
use std::net::SocketAddr;

/// A live member as it was last observed. This node is included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: NodeName,
    pub addr: SocketAddr,
    /// The node's last report. It is the default report if the node uses a newer version of the
    /// report format.
    pub report: Report,
    /// Whether the report's signature verifies with the key that the inventory has for this name.
    pub signed: bool,
}

/// A node claims that its certificate belongs to a newer epoch than this node's. The claim is only
/// a hint and must be verified. The claim of a known node is signed. A node that joined after this
/// node's inventory was last updated is unknown here, so its claim is unsigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochClaim {
    /// The node's gossip address.
    pub addr: SocketAddr,
    pub epoch: Epoch,
    /// The port of the node's API.
    pub api: u16,
    /// Whether the node claims to be a manager.
    pub manages: bool,
    /// Whether the signature verifies with the key that managers recorded for this node.
    pub signed: bool,
}

/// An observed change of the membership. Events arrive in the order in which they were observed.
/// They include those about this node's own record, so consumers filter by name.
///
/// A node that leaves on purpose causes an `Update` whose report says `leaving`, and then a `Gone`.
/// A failure causes a `Gone` alone. A restart that is faster than failure detection causes an
/// `Update` with another instance and no `Gone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEvent {
    /// A node became a live member.
    Alive { name: NodeName, addr: SocketAddr, report: Report, signed: bool },
    /// A live member has a new report, or the signature of its report started or stopped being
    /// valid.
    Update { name: NodeName, addr: SocketAddr, report: Report, signed: bool },
    /// The node failed, left or was removed.
    Gone { name: NodeName, addr: SocketAddr },
    /// Two addresses claim one name. The existing address stays. Rate-limited.
    Conflict { name: NodeName, existing: SocketAddr, other: SocketAddr },
    /// A record of a known node, or of this node, has a bad signature and was rejected.
    /// Rate-limited.
    Forged { name: NodeName, addr: SocketAddr },
    /// The signature is valid, but this program cannot read the report's version. The node is
    /// listed as a member with an empty report. Rate-limited.
    Unreadable { name: NodeName, addr: SocketAddr, version: u8 },
    /// A record with this node's signature names another address, and was observed for
    /// [`GossipTiming::copy_grace`](super::GossipTiming::copy_grace). Either the data directory was
    /// copied and a second daemon runs, or an old record is replayed. A handshake with the API at
    /// `addr` distinguishes the two cases. `api` is the API's port, or 0 if the record does not
    /// name it. Rate-limited.
    SignedElsewhere { addr: SocketAddr, api: u16 },
    /// This node's identity is in use at another address, and the other daemon has to stop. Either
    /// it has an older epoch, or it is no manager while this one is. This daemon continues.
    /// Rate-limited. `lasting` says that the record was observed for
    /// [`GossipTiming::copy_grace`](super::GossipTiming::copy_grace). Then it is not an echo of a
    /// daemon that ended.
    OutrankedElsewhere { addr: SocketAddr, lasting: bool },
}
