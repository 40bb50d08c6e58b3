//! The keys by which gossip on a manager verifies the records of other nodes.

use super::manager_lifecycle::ManagerLifecycle;
use crate::agent::KeyBook;
use remoor_cluster::gossip::Gossip;
use remoor_model::Inventory;
use std::sync::Arc;
use tokio::sync::watch;

/// Makes gossip trust the public keys of the nodes in the applied inventory, while the manager
/// service runs.
pub(super) async fn follow(
    manage: ManagerLifecycle,
    keys: KeyBook,
    gossip: Gossip,
    mut stopped: watch::Receiver<bool>,
) {
    let mut parts = manage.follow();
    loop {
        let part = parts.borrow_and_update().clone();
        let follow = async {
            if let Some(shared) = part {
                trust_inventory_keys(shared.raft.state(), &keys, &gossip).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = follow => {}
            changed = parts.changed() => if changed.is_err() { return },
            _ = stopped.wait_for(|stop| *stop) => return,
        }
    }
}

async fn trust_inventory_keys(mut state: watch::Receiver<Arc<Inventory>>, keys: &KeyBook, gossip: &Gossip) {
    loop {
        let inventory = state.borrow_and_update().clone();
        let set = keys.set(inventory.nodes.values().map(|n| (n.name(), n.spec.public_key.as_str())));
        if keys.remove(inventory.removed_names()) || set {
            gossip.recheck().await;
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
