//! The lists of peers and managers that an agent requests. The lists are made once for each applied
//! state. If the agent already has the same lists, they are not sent.

use super::super::{ManagerContext, agent_reports};
use super::member;
use axum::Extension;
use axum::extract::{Path, Query, State};
use remoor_cluster::rpc::agent::{PeersQuery, PeersReply};
use remoor_cluster::rpc::join::PeerInfo;
use remoor_cluster::rpc::wire::{ApiFailure, Json};
use remoor_model::{Epoch, Inventory, Node, NodeId, NodeName, Report, Sha256};
use std::sync::{Arc, Mutex, PoisonError};

/// The lists of peers, managers and removed names that belong to one applied state. `hash` is the
/// hash of all three lists.
#[derive(Debug, Default, Clone)]
struct PeerLists {
    peers: Vec<PeerInfo>,
    managers: Vec<PeerInfo>,
    removed: Vec<NodeName>,
    hash: String,
}

impl PeerLists {
    fn new(inventory: &Inventory) -> Self {
        let peers: Vec<_> = inventory.nodes.values().map(|n| PeerInfo::for_node(n)).collect();
        let managers = member::managers_of(inventory);
        let removed: Vec<_> = inventory.removed_names().cloned().collect();
        let bytes = serde_json::to_vec(&(&peers, &managers, &removed)).unwrap_or_default();
        Self { peers, managers, removed, hash: Sha256::digest(&bytes).to_string() }
    }
}

/// The peer lists, and the epoch and log index of the applied state from which they were made.
type Made = ((Epoch, u64), Arc<PeerLists>);

/// The peer lists of the latest applied state for which a request arrived.
#[derive(Debug, Default)]
pub struct PeerListCache(Mutex<Option<Made>>);

impl PeerListCache {
    fn lists(&self, inventory: &Inventory) -> Arc<PeerLists> {
        let state = (inventory.epoch, inventory.applied);
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((of, lists)) if *of == state => lists.clone(),
            _ => made.insert((state, Arc::new(PeerLists::new(inventory)))).1.clone(),
        }
    }

    fn answer(&self, inventory: &Inventory, query: &PeersQuery) -> PeersReply {
        let lists = self.lists(inventory);
        let unchanged = query.have == lists.hash;
        let PeerLists { peers, managers, removed, .. } =
            if unchanged { PeerLists::default() } else { PeerLists::clone(&lists) };
        PeersReply {
            peers,
            managers,
            removed,
            epoch: inventory.epoch,
            gossip: inventory.gossip.changed,
            ca: inventory.authority.changed,
            lists: lists.hash.clone(),
            unchanged,
            applied: inventory.applied,
            newest: inventory.current,
        }
    }
}

/// Returns the lists of peers for the caller's node, unless the node has the same lists.
pub async fn peers(
    State(shared): State<Arc<ManagerContext>>,
    Extension(by): Extension<Arc<Node>>,
    Query(query): Query<PeersQuery>,
) -> axum::Json<PeersReply> {
    if let Some(report) = query.report() {
        agent_reports::receive(&shared, &by, report);
    }
    axum::Json(shared.peer_lists.answer(&shared.inventory(), &query))
}

/// Receives the report of a node's agent from another manager.
pub async fn report(
    State(shared): State<Arc<ManagerContext>>,
    Path(id): Path<u64>,
    Json(report): Json<Report>,
) -> Result<axum::Json<()>, ApiFailure> {
    // A manager that no longer leads drops the report, so that reports do not circulate.
    if shared.raft.status().borrow().leads()
        && let Some(node) = shared.inventory().node(NodeId(id))
    {
        agent_reports::receive(&shared, node, report);
    }
    Ok(axum::Json(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remoor_model::sample;

    #[test]
    fn lists_are_sent_once_and_again_after_a_change() {
        let cache = PeerListCache::default();
        let mut inventory = sample::fleet(1, 1);
        let ask = |inventory: &Inventory, have: &str| {
            cache.answer(inventory, &PeersQuery { have: have.to_owned(), ..PeersQuery::default() })
        };
        let first = ask(&inventory, "");
        assert_eq!((first.unchanged, first.peers.len()), (false, inventory.nodes.len()));
        // The next entry of the log changes no peer.
        inventory.applied += 1;
        let second = ask(&inventory, &first.lists);
        assert_eq!((second.unchanged, second.peers.len(), second.managers.len()), (true, 0, 0));
        assert_eq!((second.applied, &second.lists), (inventory.applied, &first.lists));
        let (id, node) = inventory.nodes.iter().next().map(|(id, node)| (*id, node.clone())).expect("a node");
        let mut moved = remoor_model::Node::clone(&node);
        moved.spec.gossip = "10.9.9.9:7946".to_owned();
        inventory.nodes.insert(id, Arc::new(moved));
        inventory.applied += 1;
        let third = ask(&inventory, &first.lists);
        assert!(!third.unchanged && third.peers.iter().any(|peer| peer.gossip_addr == "10.9.9.9:7946"));
        assert!(!ask(&inventory, "of an older manager").unchanged);
    }
}
