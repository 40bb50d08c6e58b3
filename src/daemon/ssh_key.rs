//! Loads the cluster's SSH key on a manager: from its disk, or from another manager over mTLS. A
//! manager can work without the cluster's key if the operator's own keys give access to the nodes.
//! So the start does not wait for the key.

use crate::manager::{ManagerContext, api};
use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_exec::ssh::ClusterKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Maximum number of attempts. The pauses are 1, 2, 4, ... and at most 60 s, so all attempts take
/// about a quarter of an hour. If all of them fail, the next start tries again.
const TRIES: u32 = 20;
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Reads the key. If the key is missing or unreadable, starts a task that fetches it.
pub fn take(shared: &Arc<ManagerContext>, managers: Vec<PeerInfo>, tls: ClientTls, stopped: watch::Receiver<bool>) {
    match ClusterKey::load(&shared.keys.ssh_key_file) {
        Ok(Some(key)) => {
            know(shared, key);
            return;
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the cluster's SSH key can't be read; fetching it from another manager"),
    }
    let shared = shared.clone();
    let others = managers.into_iter().filter(|m| m.id != shared.identity.node).collect();
    tokio::spawn(async move {
        let mut stopped = stopped;
        tokio::select! {
            () = fetch(&shared, others, &tls) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
}

fn know(shared: &ManagerContext, key: ClusterKey) {
    // No other code sets the key, so this never fails.
    let _set = shared.keys.ssh_key.set(key);
}

/// Asks the other managers until one has sent the cluster's SSH key, or until all have answered
/// that there is no key.
async fn fetch(shared: &ManagerContext, mut others: Vec<PeerInfo>, tls: &ClientTls) {
    for n in 0..TRIES {
        let mut unheard = Vec::new();
        for manager in others {
            match ask(&manager, tls).await {
                Ok(Some(key)) => {
                    match key.save(&shared.keys.ssh_key_file) {
                        Ok(()) => {
                            tracing::info!(from = %manager.name, "the cluster's SSH key was fetched");
                            know(shared, key);
                        }
                        Err(error) => tracing::warn!(%error, "the cluster's SSH key can't be stored"),
                    }
                    return;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(from = %manager.name, %error, "the cluster's SSH key could not be fetched");
                    unheard.push(manager);
                }
            }
        }
        if unheard.is_empty() {
            return;
        }
        others = unheard;
        tokio::time::sleep(PAUSE_MAX.min(Duration::from_secs(1 << n.min(6)))).await;
    }
    tracing::warn!("no manager sent the cluster's SSH key; it is fetched at the next start");
}

/// Asks one manager for the key. None if that manager has no key, or its version does not support
/// this request.
async fn ask(manager: &PeerInfo, tls: &ClientTls) -> Result<Option<ClusterKey>, String> {
    let client = Client::tls(manager.api_addr.clone(), tls, Some(manager.id));
    match client.get::<api::SshKeyReply>("/manager/v1/ssh-key").await {
        Ok(reply) => ClusterKey::parse(reply.key.reveal()).map(Some).map_err(|e| e.to_string()),
        Err(ApiError::Status { code, .. }) if code == "not-found" => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
