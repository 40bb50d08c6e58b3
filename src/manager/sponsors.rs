//! Whom a manager lets speak before its own log says who they are: managers by the word of the node's agent, and of the order
//! by which the manager part was begun.

use crate::model::{Node, NodeId};
use crate::rpc::join::Peer;
use std::sync::Arc;
use tokio::sync::watch;

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Sponsors {
    order: Arc<[Peer]>,
    known: watch::Receiver<Vec<Peer>>,
    ask: Arc<dyn Fn() + Send + Sync>,
}

impl Sponsors {
    /// `known` is what the agent was told last, `ask` has it ask again.
    pub fn new(order: Vec<Peer>, known: watch::Receiver<Vec<Peer>>, ask: impl Fn() + Send + Sync + 'static) -> Self {
        Self { order: order.into(), known, ask: Arc::new(ask) }
    }

    /// Each once, where it is by the newer word.
    pub fn peers(&self) -> Vec<Peer> {
        let mut peers = self.known.borrow().clone();
        let others = self.order.iter().filter(|o| !peers.iter().any(|p| p.id == o.id)).cloned().collect::<Vec<_>>();
        peers.extend(others);
        peers
    }

    /// A manager by the agent's word.
    pub fn told(&self, node: NodeId) -> bool {
        self.known.borrow().iter().any(|p| p.id == node)
    }

    /// A manager by the order, which is as old as the manager part.
    pub fn ordered(&self, node: NodeId) -> bool {
        self.order.iter().any(|p| p.id == node)
    }

    /// Whether the order lets `node` speak, of which the own log says `known`. As long as the log is `behind` the order, whatever it
    /// says is of before: one that managed, was demoted and manages again may lead. After that a manager that left since may not
    /// speak by it for ever.
    pub fn lets(&self, node: NodeId, known: Option<&Node>, behind: bool) -> bool {
        self.ordered(node) && (behind || known.is_none_or(Node::manages))
    }

    /// Somebody came who may be a new manager.
    pub fn ask_again(&self) {
        (self.ask)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_counts_beside_what_the_agent_hears_later() {
        let peer = |id: u64, api: &str| Peer {
            name: format!("m{id}").as_str().into(),
            id: NodeId(id),
            gossip_addr: String::new(),
            api_addr: api.to_owned(),
            public_key: String::new(),
        };
        let (told, known) = watch::channel(Vec::new());
        let sponsors = Sponsors::new(vec![peer(1, "old"), peer(2, "b")], known, || {});
        assert!(sponsors.ordered(NodeId(2)) && !sponsors.told(NodeId(2)) && !sponsors.told(NodeId(3)));
        told.send_replace(vec![peer(1, "new"), peer(3, "c")]);
        assert!(sponsors.ordered(NodeId(2)) && sponsors.told(NodeId(3)) && !sponsors.ordered(NodeId(3)));
        let log = crate::model::sample::fleet(0, 2);
        let worker = log.nodes.values().find(|n| !n.manages()).expect("a worker");
        let sponsors_of = Sponsors::new(vec![peer(worker.id.0, "a")], watch::channel(Vec::new()).1, || {});
        assert!(sponsors_of.lets(worker.id, None, false), "the log says nothing of it");
        assert!(sponsors_of.lets(worker.id, Some(worker), true), "what the log says is of before the order");
        assert!(!sponsors_of.lets(worker.id, Some(worker), false), "it was a manager once");
        let at: Vec<String> = sponsors.peers().into_iter().map(|p| p.api_addr).collect();
        assert_eq!(at, ["new", "c", "b"]);
    }
}
