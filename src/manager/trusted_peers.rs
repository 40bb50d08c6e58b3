//! Peers that a manager trusts before its own log contains them. The node's agent reports some of
//! them as managers. The others are in the order that started the manager service.

use remoor_cluster::rpc::join::PeerInfo;
use remoor_model::NodeId;
use std::sync::Arc;
use tokio::sync::watch;

/// A handle to the trusted peers; all clones share one state.
#[derive(Clone)]
pub struct Sponsors {
    order: Arc<[PeerInfo]>,
    known: watch::Receiver<Vec<PeerInfo>>,
    ask: Arc<dyn Fn() + Send + Sync>,
}

impl Sponsors {
    /// `order` contains the managers that the order to start the service named. `known` contains
    /// the managers of the agent's last list. `ask` makes the agent request the list again.
    pub fn new(
        order: Vec<PeerInfo>,
        known: watch::Receiver<Vec<PeerInfo>>,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self { order: order.into(), known, ask: Arc::new(ask) }
    }

    /// All trusted peers, each once. If a peer is in the order and in the agent's list, the address
    /// of the agent's list is used.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let mut peers = self.known.borrow().clone();
        let others = self.order.iter().filter(|o| !peers.iter().any(|p| p.id == o.id)).cloned().collect::<Vec<_>>();
        peers.extend(others);
        peers
    }

    /// Whether the agent's last list names `node` as a manager.
    pub fn is_known_manager(&self, node: NodeId) -> bool {
        self.known.borrow().iter().any(|p| p.id == node)
    }

    /// Whether the order that started the manager service names `node`. This list of managers is as
    /// old as the service.
    pub fn is_initial_manager(&self, node: NodeId) -> bool {
        self.order.iter().any(|p| p.id == node)
    }

    /// Makes the agent request the list of managers again, because an unknown node may be a new
    /// manager.
    pub fn refresh(&self) {
        (self.ask)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_of_the_order_stay_trusted_in_addition_to_those_of_the_agent() {
        let peer = |id: u64, api: &str| PeerInfo {
            name: format!("m{id}").as_str().into(),
            id: NodeId(id),
            gossip_addr: String::new(),
            api_addr: api.to_owned(),
            public_key: String::new(),
        };
        let (told, known) = watch::channel(Vec::new());
        let sponsors = Sponsors::new(vec![peer(1, "old"), peer(2, "b")], known, || {});
        assert!(sponsors.is_initial_manager(NodeId(2)) && !sponsors.is_known_manager(NodeId(2)));
        assert!(!sponsors.is_known_manager(NodeId(3)));
        told.send_replace(vec![peer(1, "new"), peer(3, "c")]);
        assert!(
            sponsors.is_initial_manager(NodeId(2))
                && sponsors.is_known_manager(NodeId(3))
                && !sponsors.is_initial_manager(NodeId(3))
        );
        let at: Vec<String> = sponsors.peers().into_iter().map(|p| p.api_addr).collect();
        assert_eq!(at, ["new", "c", "b"]);
    }
}
