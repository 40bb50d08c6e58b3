//! Holds this node's gossip keys to what the managers say, over TLS by its certificate, so that a node which was away while the
//! key was changed finds back; and says what it holds.

use super::keyring::Keyring;
use crate::agent::Own;
use crate::gossip::Gossip;
use crate::rpc::agent::{GOSSIP_KEYS_PATH, GossipKeysReply, GossipKeysRequest};
use crate::rpc::client::Client;
use crate::rpc::identity::GossipKey;
use std::time::Duration;
use tokio::sync::watch;

const ASK_WITHIN: Duration = Duration::from_secs(10);
/// While a key is on its way, and after a question in vain.
const SOON: Duration = Duration::from_secs(2);
/// More keys than a rotation has are nobody's to give.
const KEYS_MAX: usize = 2;

/// Until `stopped`. The managers are asked when the agent has heard that another key counts.
pub async fn follow(keyring: Keyring, gossip: Gossip, own: Own, mut stopped: watch::Receiver<bool>) {
    let mut told = own.follow_gossip();
    let mut holds = 0;
    loop {
        let wanted = *told.borrow_and_update();
        let busy = match wanted > holds || !keyring.now().gossip_others.is_empty() {
            true => once(&keyring, &gossip, &own, &mut holds).await,
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

/// Whether a key is on its way. What the leader says counts; it hears what this node holds.
async fn once(keyring: &Keyring, gossip: &Gossip, own: &Own, holds: &mut u64) -> bool {
    let managers = own.follow_managers().borrow().clone();
    for manager in managers {
        let client = Client::tls(manager.api_addr.clone(), &keyring.client(), Some(manager.id)).within(ASK_WITHIN);
        let mut reply = match ask(&client, *holds).await {
            Some(reply) if reply.leads && reply.changed >= *holds => reply,
            _ => continue,
        };
        if reply.changed > *holds || *holds == 0 {
            if let Err(error) = take(keyring, gossip, &reply).await {
                tracing::warn!(error, "another gossip key can't be used; tried again");
                return true;
            }
            *holds = reply.changed;
            // The leader goes on once all have said so.
            reply = ask(&client, *holds).await.unwrap_or(reply);
        }
        return reply.keys.len() > 1;
    }
    true
}

async fn ask(client: &Client, holds: u64) -> Option<GossipKeysReply> {
    let answer = client.post(GOSSIP_KEYS_PATH, &GossipKeysRequest { holds }).await;
    answer.map_err(|error| tracing::debug!(%error, "a manager did not say which gossip key counts")).ok()
}

/// On disk first: a node that was killed in between starts with what the others read.
async fn take(keyring: &Keyring, gossip: &Gossip, reply: &GossipKeysReply) -> Result<(), String> {
    let keys = reply.keys.iter().map(|key| GossipKey::from_hex(key.reveal())).collect::<Result<Vec<_>, _>>();
    let mut keys = keys.map_err(|e| e.to_string())?;
    if keys.is_empty() || keys.len() > KEYS_MAX {
        return Err(format!("{} keys were named", keys.len()));
    }
    let first = keys.remove(0);
    let (ring, own_first, others) = (keyring.clone(), first.clone(), keys.clone());
    let kept = tokio::task::spawn_blocking(move || ring.use_gossip_keys(own_first, others)).await;
    kept.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    let others: Vec<[u8; 32]> = keys.iter().map(|key| key.0).collect();
    gossip.set_keys(first.0, &others).map_err(|e| e.to_string())?;
    tracing::info!(keys = 1 + others.len(), "gossip goes by the keys that the managers named");
    Ok(())
}
