//! Configuration of a gossip member. Values only; nothing here uses the network.

use ed25519_dalek::{SigningKey, VerifyingKey};
use remoor_model::{ClusterId, NodeName};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What the inventory knows about the key with which a name should sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLookup {
    /// Records of this name are accepted only with a signature of this key.
    Known(VerifyingKey),
    /// Not in the inventory: admitted as a discovered node, whose reports are not trusted.
    Unknown,
    /// Removed from the cluster: rejected.
    Removed,
}

/// The input of [`start`](super::start).
#[derive(Clone)]
pub struct Config {
    /// Separates clusters: the label of every packet, and part of what is signed.
    pub cluster: ClusterId,
    /// This node's name, which is its id on the wire.
    pub name: NodeName,
    /// UDP and TCP are bound here. Port 0 binds a free port.
    pub bind: SocketAddr,
    /// The address that other nodes dial; never 0.0.0.0. Port 0 stands for the port that was bound.
    pub advertise: SocketAddr,
    /// The cluster's AES-256 key. A process without it can neither read packets nor join.
    pub key: [u8; 32],
    /// The node's own identity.
    pub signer: SigningKey,
    /// Looks up a node's key. Called while a record is judged and the view is locked. So it must
    /// return at once, must not wait for a lock that is held long, and must not call the
    /// [`Gossip`](super::Gossip).
    pub verify: Arc<dyn Fn(&NodeName) -> KeyLookup + Send + Sync>,
    pub timing: GossipTiming,
}

/// Every duration and multiplier of this folder. The defaults were chosen by measurement; tests
/// shorten them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossipTiming {
    /// One random member is probed this often.
    pub probe_interval: Duration,
    /// Without an answer within this time, other members are asked to probe. Must be shorter than
    /// the interval.
    pub probe_timeout: Duration,
    /// Timeout of a stream for connecting, reading and writing. Also the length of the fallback
    /// ping, which blocks probing.
    pub stream_timeout: Duration,
    /// A suspicion lasts this factor times log10(members) times the probe interval ...
    pub suspicion_mult: usize,
    /// ... and at most this factor longer.
    pub suspicion_max_mult: usize,
    pub gossip_interval: Duration,
    /// Interval of the full state exchange with one random member.
    pub exchange_interval: Duration,
    /// After this time a failed node may come back with another address.
    pub reclaim: Duration,
    /// How long a changed report may wait for its first transmission.
    pub update_timeout: Duration,
    /// How long the leave message may wait for its first transmission.
    pub leave_timeout: Duration,
    /// Minimum time between two equal alarms about the same name.
    pub alarm_interval: Duration,
    /// How long a record signed by this node must be seen at another address before it counts as a
    /// copied identity. Until then it may be an echo from before this node's address changed.
    pub copy_grace: Duration,
    /// Interval between dials of a missing node while there are live peers.
    pub rejoin_interval: Duration,
    /// First wait of a node without any live peer; doubled after each attempt.
    pub isolated_min: Duration,
    /// Longest wait of a node without any live peer.
    pub isolated_max: Duration,
    /// Minimum time between two dials of one node, even with nudges.
    pub nudge_spacing: Duration,
    /// Minimum time between two looks of the rejoin loop at all nodes. Changes of the membership
    /// within it are handled as one.
    pub change_spacing: Duration,
    /// Interval at which addresses seen in use are written to the cache.
    pub cache_interval: Duration,
}

impl GossipTiming {
    /// Timing of a node that is not a manager. Its reports may wait half a second: when idle, each
    /// gossip round costs two or three wake-ups with nothing to send, which are most of a worker's
    /// wake-ups. Managers make decisions, so they gossip sooner.
    pub fn for_worker() -> Self {
        Self { gossip_interval: Duration::from_millis(500), ..Self::default() }
    }
}

impl Default for GossipTiming {
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
            change_spacing: Duration::from_secs(1),
            cache_interval: Duration::from_secs(300),
        }
    }
}
