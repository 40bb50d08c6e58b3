//! Keeps this node's gossip keys equal to the keys that the managers prescribe, and reports the
//! keys to the leader. The request uses TLS with the node's certificate. So a node that was down
//! during a key rotation can still fetch the new key.

use super::keyring::Keyring;
use crate::agent::AgentState;
use remoor_cluster::gossip::Gossip;
use remoor_cluster::rpc::agent::{GOSSIP_KEYS_PATH, GossipKeysReply, GossipKeysRequest};
use remoor_cluster::rpc::client::Client;
use remoor_cluster::rpc::identity::GossipKey;
use std::time::Duration;
use tokio::sync::watch;

const ASK_WITHIN: Duration = Duration::from_secs(10);
/// Pause between requests to the leader while a key rotation is in progress, and after a failed
/// request.
const SOON: Duration = Duration::from_secs(2);
/// Maximum number of gossip keys in a manager's answer: a rotation uses two.
const KEYS_MAX: usize = 2;

/// Runs until `stopped`. The managers are asked when the agent has heard of a newer gossip key.
pub async fn follow(keyring: Keyring, gossip: Gossip, own: AgentState, mut stopped: watch::Receiver<bool>) {
    let mut told = own.follow_gossip();
    let mut holds = 0;
    loop {
        let wanted = *told.borrow_and_update();
        let busy = match wanted > holds || !keyring.now().gossip_others.is_empty() {
            true => synchronize_once(&keyring, &gossip, &own, &mut holds).await,
            false => false,
        };
        let pause = if busy || wanted > holds { SOON } else { Duration::MAX };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = told.changed() => if changed.is_err() { return },
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

/// Asks the leader for the keys, and reports the keys of this node. Returns true if a rotation is
/// in progress or the request failed. `holds` is the log index at which the managers prescribed
/// this node's keys.
async fn synchronize_once(keyring: &Keyring, gossip: &Gossip, own: &AgentState, holds: &mut u64) -> bool {
    let managers = own.follow_managers().borrow().clone();
    for manager in managers {
        let client =
            Client::tls(manager.api_addr.clone(), &keyring.client(), Some(manager.id)).with_timeout(ASK_WITHIN);
        let mut reply = match ask(&client, *holds).await {
            Some(reply) if reply.leads && reply.changed >= *holds => reply,
            _ => continue,
        };
        if reply.changed > *holds || *holds == 0 {
            if let Err(error) = take(keyring, gossip, &reply).await {
                tracing::warn!(error, "the new gossip key can't be used; will retry");
                return true;
            }
            *holds = reply.changed;
            // The key rotation proceeds when all nodes have sent this report.
            reply = ask(&client, *holds).await.unwrap_or(reply);
        }
        return reply.keys.len() > 1;
    }
    true
}

async fn ask(client: &Client, holds: u64) -> Option<GossipKeysReply> {
    let answer = client.post(GOSSIP_KEYS_PATH, &GossipKeysRequest { holds }).await;
    answer.map_err(|error| tracing::debug!(%error, "a manager did not answer which gossip key is in use")).ok()
}

/// Uses the gossip keys of a manager's reply. The keys are written to disk first. So a node that is
/// killed before it uses them starts with keys that the other nodes accept.
async fn take(keyring: &Keyring, gossip: &Gossip, reply: &GossipKeysReply) -> Result<(), String> {
    let keys = reply.keys.iter().map(|key| GossipKey::from_hex(key.reveal())).collect::<Result<Vec<_>, _>>();
    let mut keys = keys.map_err(|e| e.to_string())?;
    if keys.is_empty() || keys.len() > KEYS_MAX {
        return Err(format!("the manager sent {} keys", keys.len()));
    }
    let first = keys.remove(0);
    let (ring, own_first, others) = (keyring.clone(), first.clone(), keys.clone());
    let kept = tokio::task::spawn_blocking(move || ring.use_gossip_keys(own_first, others)).await;
    kept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    let others: Vec<[u8; 32]> = keys.iter().map(|key| key.0).collect();
    gossip.set_keys(first.0, &others);
    tracing::info!(keys = 1 + others.len(), "gossip now uses the keys sent by the managers");
    Ok(())
}
