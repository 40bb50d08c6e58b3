//! Configuration of a gossip member. Values only; nothing here uses the network.

use ed25519_dalek::{SigningKey, VerifyingKey};
use remoor_model::{ClusterId, NodeName};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The key with which a node must sign its reports, as far as the inventory knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyLookup {
    /// Records with the node's name are accepted only with a signature of this key.
    Known(VerifyingKey),
    /// The inventory has no node of this name. The node is admitted as a member that the inventory
    /// does not know, and its reports are not trusted.
    Unknown,
    /// The node was removed from the cluster. Its records are rejected.
    Removed,
}

/// The input of [`start`](super::start).
#[derive(Clone)]
pub struct Config {
    /// Identifies the cluster. The id is in the label of every packet and in the signed text of
    /// every report. So nodes ignore packets and reports of other clusters.
    pub cluster: ClusterId,
    /// This node's name, which is its id on the wire.
    pub name: NodeName,
    /// The local address for UDP and TCP. Port 0 binds a free port.
    pub bind: SocketAddr,
    /// The address that other nodes dial; never 0.0.0.0. Port 0 stands for the port that was bound.
    pub advertise: SocketAddr,
    /// The cluster's AES-256 key. A process without it can neither read packets nor join.
    pub key: [u8; 32],
    /// The key with which this node signs its reports.
    pub signer: SigningKey,
    /// Looks up the key with which a node must sign its reports. The function runs while a record
    /// is judged and the membership view is locked. So it must return at once, must not wait for a
    /// lock that is held long, and must not call [`Gossip`](super::Gossip).
    pub verify: Arc<dyn Fn(&NodeName) -> KeyLookup + Send + Sync>,
    pub timing: GossipTiming,
}

/// Every duration and multiplier of gossip. The defaults were chosen by measurement; tests use
/// shorter ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GossipTiming {
    /// The interval at which one random member is probed.
    pub probe_interval: Duration,
    /// If a probed member does not answer within this time, other members are asked to probe it.
    /// The timeout must be shorter than `probe_interval`.
    pub probe_timeout: Duration,
    /// Timeout of a stream for connecting, reading and writing. The fallback ping over TCP has the
    /// same timeout and blocks probing.
    pub stream_timeout: Duration,
    /// The minimum duration of a suspicion is this factor times log10(members) times the probe
    /// interval.
    pub suspicion_mult: usize,
    /// The maximum duration of a suspicion is this factor times its minimum.
    pub suspicion_max_mult: usize,
    pub gossip_interval: Duration,
    /// Interval of the full state exchange with one random member.
    pub exchange_interval: Duration,
    /// A failed node may come back with another address once this time has passed since its
    /// failure.
    pub reclaim: Duration,
    /// The maximum time that a changed report waits for its first transmission.
    pub update_timeout: Duration,
    /// The maximum time that the leave message waits for its first transmission.
    pub leave_timeout: Duration,
    /// Minimum time between two alarms of the same kind about the same name.
    pub alarm_interval: Duration,
    /// A record that this node's key signed may name another address. If the record is observed at
    /// that address for this time, it shows that the data directory was copied. Before that, the
    /// record may be an echo from the time before this node's address changed.
    pub copy_grace: Duration,
    /// Interval between dials of a missing node while there are live peers.
    pub rejoin_interval: Duration,
    /// The wait before an isolated node dials a missing node for the first time. The wait doubles
    /// with each dial of that node.
    pub isolated_min: Duration,
    /// The longest wait of an isolated node between two dials of the same missing node.
    pub isolated_max: Duration,
    /// Minimum time between two dials of one node, even after
    /// [`RejoinLoop::nudge`](super::RejoinLoop::nudge).
    pub nudge_spacing: Duration,
    /// After a change of the members, the rejoin loop decides again for every node whether to dial
    /// it. This is the minimum time between two such decisions. All changes within it share one
    /// decision.
    pub change_spacing: Duration,
    /// Interval at which the rejoin loop writes the addresses of the live members to its cache
    /// file.
    pub cache_interval: Duration,
}

impl GossipTiming {
    /// Timing of a node that is not a manager. Each gossip round of an idle node costs two or three
    /// wake-ups with nothing to send. They are most of a worker's wake-ups, so its reports may wait
    /// half a second. Managers make decisions, so they gossip more often.
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
