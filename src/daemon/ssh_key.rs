//! Where a manager has the cluster's SSH key from: its own disk, or another manager over mTLS. A manager works without it as
//! far as the operator's own keys go, so nothing waits for it.

use crate::manager::{Shared, api};
use crate::rpc::client::{ApiError, Client};
use crate::rpc::join::Peer;
use crate::rpc::tls::ClientTls;
use crate::ssh::ClusterKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// With pauses of 1, 2, 4 and at most 60 s: for about a quarter of an hour; then at the next start.
const TRIES: u32 = 20;
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Reads the key, or has it fetched where it is missing or can't be read.
pub fn take(shared: &Arc<Shared>, managers: Vec<Peer>, tls: ClientTls, stopped: watch::Receiver<bool>) {
    match ClusterKey::load(&shared.ssh_key_file) {
        Ok(Some(key)) => {
            know(shared, key);
            return;
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "another manager is asked for the cluster's SSH key"),
    }
    let shared = shared.clone();
    let others = managers.into_iter().filter(|m| m.id != shared.id).collect();
    tokio::spawn(async move {
        let mut stopped = stopped;
        tokio::select! {
            () = fetch(&shared, others, &tls) => {}
            _ = stopped.wait_for(|stop| *stop) => {}
        }
    });
}

fn know(shared: &Shared, key: ClusterKey) {
    // Set once: this is the only place.
    let _set = shared.ssh_key.set(key);
}

/// Until one of the others has handed it out, or all of them have said that there is none.
async fn fetch(shared: &Shared, mut others: Vec<Peer>, tls: &ClientTls) {
    for n in 0..TRIES {
        let mut unheard = Vec::new();
        for manager in others {
            match ask(&manager, tls).await {
                Ok(Some(key)) => {
                    match key.save(&shared.ssh_key_file) {
                        Ok(()) => {
                            tracing::info!(from = %manager.name, "the cluster's SSH key was fetched");
                            know(shared, key);
                        }
                        Err(error) => tracing::warn!(%error, "the managers' key can't be kept here"),
                    }
                    return;
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(from = %manager.name, %error, "the cluster's SSH key was asked for in vain");
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
    tracing::warn!("no manager handed out the cluster's SSH key; it is asked for again at the next start");
}

/// None: that manager has none, or is of a version that knows none.
async fn ask(manager: &Peer, tls: &ClientTls) -> Result<Option<ClusterKey>, String> {
    let client = Client::tls(manager.api_addr.clone(), tls, Some(manager.id));
    match client.get::<api::SshKeyReply>("/manager/v1/ssh-key").await {
        Ok(reply) => ClusterKey::parse(reply.key.reveal()).map(Some).map_err(|e| e.to_string()),
        Err(ApiError::Status { code, .. }) if code == "not-found" => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}
