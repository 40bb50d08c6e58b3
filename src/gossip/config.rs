//! What a gossip member is started with. Values only; nothing here talks to the network.

use crate::model::{ClusterId, NodeName};
use ed25519_dalek::{SigningKey, VerifyingKey};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What the inventory knows of the key that a name should sign with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLookup {
    /// Records of this name are believed only with a signature of this key.
    Known(VerifyingKey),
    /// Not in the inventory: let in as a discovered node, its word counts for nothing.
    Unknown,
    /// Removed from the cluster: kept out.
    Removed,
}

/// Everything that [`start`](super::start) needs.
#[derive(Clone)]
pub struct Config {
    /// Separates clusters: the label of every packet, and part of what is signed.
    pub cluster: ClusterId,
    /// The own name, the id on the wire.
    pub name: NodeName,
    /// UDP and TCP are bound here. Port 0 takes a free one.
    pub bind: SocketAddr,
    /// What others dial; never 0.0.0.0. Port 0 stands for the port that was bound.
    pub advertise: SocketAddr,
    /// The cluster's AES-256 key. Whoever lacks it can neither read nor join.
    pub key: [u8; 32],
    /// The node's own identity.
    pub signer: SigningKey,
    /// Called while a record is being taken in and the view is locked, so it must return at once, wait for no lock that
    /// is held long, and never call the [`Gossip`](super::Gossip) back.
    pub verify: Arc<dyn Fn(&NodeName) -> KeyLookup + Send + Sync>,
    pub timing: Timing,
}

/// Every duration and multiplier of this folder. The defaults are the measured ones; tests shorten them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// One random member is probed this often.
    pub probe_interval: Duration,
    /// Without an answer for so long others are asked to probe; must be shorter than the interval.
    pub probe_timeout: Duration,
    /// Of a stream: connecting, reading and writing. Also the length of the fallback ping, which blocks probing.
    pub stream_timeout: Duration,
    /// Suspicion lasts this times log10 of the members times the probe interval.
    pub suspicion_mult: usize,
    /// And at most this many times longer.
    pub suspicion_max_mult: usize,
    pub gossip_interval: Duration,
    /// Full state exchange with one random member.
    pub exchange_interval: Duration,
    /// A failed node may come back with another address after so long.
    pub reclaim: Duration,
    /// How long a changed report may wait for its first transmission.
    pub update_timeout: Duration,
    /// The same for the goodbye.
    pub leave_timeout: Duration,
    /// The same alarm about the same name is raised at most this often.
    pub alarm_interval: Duration,
    /// A record of this node, signed by it, at another address must be seen for so long before it counts as a copied
    /// identity: until then it may be an echo of this node before its address changed.
    pub copy_grace: Duration,
    /// A missing node is dialled this often while there are peers.
    pub rejoin_interval: Duration,
    /// First wait of a node without any live peer; doubled after each try.
    pub isolated_min: Duration,
    /// Longest wait of a node without any live peer.
    pub isolated_max: Duration,
    /// Nudges never make two dials of one node come closer than this.
    pub nudge_spacing: Duration,
    /// Addresses seen in use are written to the cache this often.
    pub cache_interval: Duration,
}

impl Timing {
    /// Of a node that is no manager. What it has to say may wait half a second; at rest each round of gossip is two or three
    /// wake-ups with nothing to send, most of what such a node wakes up for. Managers, who decide, pass on sooner.
    pub fn of_worker() -> Self {
        Self { gossip_interval: Duration::from_millis(500), ..Self::default() }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            probe_interval: Duration::from_secs(1),
            probe_timeout: Duration::from_millis(500),
            stream_timeout: Duration::from_secs(2),
            suspicion_mult: 4,
            suspicion_max_mult: 2,
            gossip_interval: Duration::from_millis(200),
            exchange_interval: Duration::from_secs(30),
            reclaim: Duration::from_secs(1),
            update_timeout: Duration::from_secs(3),
            leave_timeout: Duration::from_secs(3),
            alarm_interval: Duration::from_secs(60),
            copy_grace: Duration::from_secs(30),
            rejoin_interval: Duration::from_secs(60),
            isolated_min: Duration::from_secs(1),
            isolated_max: Duration::from_secs(60),
            nudge_spacing: Duration::from_secs(5),
            cache_interval: Duration::from_secs(300),
        }
    }
}
