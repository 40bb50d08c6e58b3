//! Detects a second daemon that runs with this node's identity. The first sign is a record in
//! gossip with this node's signature and another address. Such a record alone proves nothing,
//! because anybody who recorded it can send it again. A handshake with the API at that address is
//! the proof, because only a daemon with this node's key and certificate can complete it.

use super::run::DaemonError;
use remoor_cluster::rpc::agent::{INSTANCE_PATH, InstanceReply};
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::connect::verify_node;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::wire::Code;
use remoor_model::{Instance, NodeId, Report};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// Maximum time for the answer to a probe, after the TLS handshake.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Probes an address for another daemon with this daemon's identity. All clones together run at
/// most one probe at a time.
#[derive(Clone)]
pub struct CopiedIdentityProbe {
    tls: ClientTls,
    node: NodeId,
    /// Public key of this node, in hex.
    key: String,
    instance: Instance,
    /// The API port of this node. It is used if the gossip record contains no API port.
    api: u16,
    fatal: mpsc::Sender<DaemonError>,
    /// Allows one probe at a time, because gossip reports the same record as long as it circulates.
    free: Arc<Semaphore>,
}

impl CopiedIdentityProbe {
    /// `own` is the id and the public key (hex) of this node. `report` is the report of this agent
    /// instance.
    pub fn new(tls: ClientTls, own: (NodeId, String), report: &Report, fatal: mpsc::Sender<DaemonError>) -> Self {
        let (node, key) = own;
        let free = Arc::new(Semaphore::new(1));
        Self { tls, node, key, instance: report.instance.clone(), api: report.api, fatal, free }
    }

    /// Probes the machine at `addr`, the gossip address of the record, in the background. If a
    /// second daemon with this node's key answers, this daemon ends with
    /// [`DaemonError::CopiedIdentity`].
    pub fn start(&self, addr: SocketAddr, api: u16) {
        let Ok(place) = self.free.clone().try_acquire_owned() else { return };
        let probe = self.clone();
        tokio::spawn(async move {
            match probe.is_copy(addr, api).await {
                Ok(true) => drop(probe.fatal.try_send(DaemonError::CopiedIdentity(addr))),
                Ok(false) => tracing::info!(%addr, "an earlier address of this node still leads to this daemon"),
                Err(error) => tracing::warn!(
                    %addr,
                    %error,
                    "a record with this node's signature names another address, but no daemon there proves this \
                     node's identity: either an old record is replayed, or the API of a copied node is unreachable"
                ),
            }
            drop(place);
        });
    }

    /// Whether a daemon other than this one answers at the address with this node's key. Returns an
    /// error if no daemon at the address proved that it has the key.
    async fn is_copy(&self, addr: SocketAddr, api: u16) -> Result<bool, ApiError> {
        let api = SocketAddr::from((addr.ip(), if api == 0 { self.api } else { api })).to_string();
        verify_node(&api, &self.tls, Some((self.node, &self.key))).await?;
        let client = Client::tls(api, &self.tls, Some(self.node)).with_timeout(ANSWER_WITHIN);
        match client.get::<InstanceReply>(INSTANCE_PATH).await {
            Ok(reply) => Ok(reply.instance != self.instance),
            // A daemon of the previous version does not have this route. Its TLS handshake is a
            // sufficient proof.
            Err(error) if error.code() == Some(Code::NotFound.as_str()) => Ok(true),
            // Without an answer nothing is proved, because the machine at the address could forward
            // the handshake to this daemon and drop the request.
            Err(error) => Err(error),
        }
    }
}
