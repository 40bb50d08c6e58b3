//! Finds out whether a second daemon runs with this node's identity. Gossip delivers a record with
//! this node's signature at another address. Such a record alone proves nothing, because anybody who
//! recorded it can send it again. A handshake with the API at that address proves it: only a daemon
//! with this node's key and certificate can complete it.

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

/// Maximum time for the answer after the handshake.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The identity of this daemon, and the means to ask for it elsewhere. Clones share one limit.
#[derive(Clone)]
pub struct CopiedIdentityProbe {
    tls: ClientTls,
    node: NodeId,
    /// Public key of this node, in hex.
    key: String,
    instance: Instance,
    /// The API port of this node, for a record that names none.
    api: u16,
    fatal: mpsc::Sender<DaemonError>,
    /// One address is asked at a time. Gossip repeats the event as long as the record is seen.
    free: Arc<Semaphore>,
}

impl CopiedIdentityProbe {
    /// `own`: id of this node, and its public key in hex. `report`: the report of this start.
    pub fn new(tls: ClientTls, own: (NodeId, String), report: &Report, fatal: mpsc::Sender<DaemonError>) -> Self {
        let (node, key) = own;
        let free = Arc::new(Semaphore::new(1));
        Self { tls, node, key, instance: report.instance.clone(), api: report.api, fatal, free }
    }

    /// Asks who is at `addr`, the gossip address of the record, in the background. If a second
    /// daemon with this node's key answers there, this daemon ends with
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

    /// Whether a daemon other than this one answers at the address with this node's key. An error:
    /// nobody there proved that it holds the key.
    async fn is_copy(&self, addr: SocketAddr, api: u16) -> Result<bool, ApiError> {
        let api = SocketAddr::from((addr.ip(), if api == 0 { self.api } else { api })).to_string();
        verify_node(&api, &self.tls, Some((self.node, &self.key))).await?;
        let client = Client::tls(api, &self.tls, Some(self.node)).with_timeout(ANSWER_WITHIN);
        match client.get::<InstanceReply>(INSTANCE_PATH).await {
            Ok(reply) => Ok(reply.instance != self.instance),
            // A daemon of the previous version does not know the question. Its handshake is proof
            // enough.
            Err(error) if error.code() == Some(Code::NotFound.as_str()) => Ok(true),
            // Without an answer nothing is proved: whoever passes on the handshake to this daemon
            // can drop the question.
            Err(error) => Err(error),
        }
    }
}
