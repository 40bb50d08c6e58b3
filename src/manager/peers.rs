//! Clients for the other managers. The pool has one client for each pair of an address and the node
//! that must answer there.

use remoor_cluster::rpc::client::{ApiError, Client};
use remoor_cluster::rpc::clocks::PeerClocks;
use remoor_cluster::rpc::tls::ClientTls;
use remoor_cluster::rpc::wire::SMALL_BODY_MAX;
use remoor_model::{NodeId, RaftId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Maximum number of clients in the pool. If there are more, the client with the alphabetically
/// first address is dropped.
const CLIENTS_MAX: usize = 64;

/// Current API addresses of the managers as `host:port`. For each address, the node is stored whose
/// certificate is required there, because gossip does not prove which node listens at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManagerAddresses {
    /// For each address that a manager no longer uses: the new address of the manager, and the id
    /// of its node.
    pub moved: BTreeMap<String, (String, NodeId)>,
    /// For each address in Raft's membership, the node that the membership expects there.
    pub entered: BTreeMap<String, NodeId>,
    /// Addresses of Raft's members. A leader's stream of messages to a member keeps the address
    /// with which it began. So the Raft id, not that address, decides where a message goes.
    pub members: BTreeMap<RaftId, String>,
    /// The node of each Raft id.
    pub ids: BTreeMap<RaftId, NodeId>,
}

impl ManagerAddresses {
    /// The address to use for the manager that is or was at `addr`, and the node that must answer.
    /// The node is None if it is unknown; any node of the cluster may then answer.
    pub fn for_address(&self, addr: &str) -> (String, Option<NodeId>) {
        match self.moved.get(addr) {
            Some((to, node)) => (to.clone(), Some(*node)),
            None => (addr.to_owned(), self.entered.get(addr).copied()),
        }
    }

    /// The address to use for the Raft member `id`, and the node that must answer. `addr` is the
    /// address that the caller knows for this member.
    pub fn for_member(&self, id: RaftId, addr: &str) -> (String, Option<NodeId>) {
        let meant = self.ids.get(&id).copied();
        let at = self.members.get(&id).map_or(addr, String::as_str);
        match self.moved.get(at) {
            // The new address of a moved manager is used only if that manager is the node with the
            // Raft id `id`.
            Some((to, node)) if meant.is_none_or(|meant| meant == *node) => (to.clone(), Some(*node)),
            _ => (at.to_owned(), meant),
        }
    }
}

pub struct Peers {
    tls: ClientTls,
    clients: Mutex<BTreeMap<(String, Option<NodeId>), Client>>,
    whereabouts: Mutex<ManagerAddresses>,
    clocks: PeerClocks,
}

impl Peers {
    pub fn new(tls: ClientTls) -> Self {
        Self { tls, clients: Mutex::default(), whereabouts: Mutex::default(), clocks: PeerClocks::default() }
    }

    /// Replaces all known addresses of the managers.
    pub fn redirect(&self, now: ManagerAddresses) {
        let mut known = self.whereabouts();
        for (from, (to, node)) in now.moved.iter().filter(|(from, to)| known.moved.get(*from) != Some(*to)) {
            tracing::info!(%from, %to, %node, "a manager moved");
        }
        *known = now;
    }

    /// The client for the manager at `addr` (`host:port`), or at its new address if it moved.
    pub fn client(&self, addr: &str) -> Client {
        let place = self.whereabouts().for_address(addr);
        self.pooled_client(place).comparing_clocks(&self.clocks)
    }

    /// The client for a Raft member, whose last known address is `addr`. If the node of the member
    /// is known, only that node may answer.
    pub fn member(&self, id: RaftId, addr: &str) -> Client {
        let place = self.whereabouts().for_member(id, addr);
        self.pooled_client(place).comparing_clocks(&self.clocks)
    }

    /// The client for exactly this node at exactly this address; known moves are ignored. Only a
    /// small answer is accepted, because the node need not be a manager.
    pub fn node(&self, id: NodeId, addr: &str) -> Client {
        self.pooled_client((addr.to_owned(), Some(id))).with_answer_max(SMALL_BODY_MAX)
    }

    /// Whether the node with this Raft id is known.
    pub fn knows(&self, id: RaftId) -> bool {
        self.whereabouts().ids.contains_key(&id)
    }

    /// The TLS identity with which the clients connect.
    pub fn tls(&self) -> &ClientTls {
        &self.tls
    }

    /// The clocks of the nodes that answered these clients.
    pub fn clocks(&self) -> &PeerClocks {
        &self.clocks
    }

    fn pooled_client(&self, place: (String, Option<NodeId>)) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(|p| p.into_inner());
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&place) {
            clients.pop_first();
        }
        let (to, node) = place.clone();
        clients.entry(place).or_insert_with(|| Client::tls(to, &self.tls, node)).clone()
    }

    fn whereabouts(&self) -> MutexGuard<'_, ManagerAddresses> {
        self.whereabouts.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub async fn get_bytes(&self, addr: &str, path: &str, within: Duration) -> Result<Vec<u8>, ApiError> {
        self.client(addr).with_timeout(within).get_bytes(path).await.map(|b| b.to_vec())
    }

    pub async fn post_bytes(
        &self,
        addr: &str,
        path: &str,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, ApiError> {
        self.client(addr).with_timeout(within).post_bytes(path, body.into()).await.map(|b| b.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, routing::get};
    use remoor_cluster::rpc::ca::testing::node_identity;
    use remoor_cluster::rpc::ca::{ClusterCa, Validity};
    use remoor_cluster::rpc::server::{ServerLimits, serve_tls};
    use remoor_cluster::rpc::tls::ServerTls;
    use remoor_model::ClusterId;

    #[tokio::test]
    async fn only_the_manager_that_moved_may_answer_at_its_new_address() {
        let ca = ClusterCa::create(&ClusterId::from("c1")).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let router = Router::new().route("/x", get(async || "7"));
        let tls = ServerTls::new(&node_identity(&ca, 2, Validity::days_from_now(1))).unwrap();
        let server = tokio::spawn(serve_tls(listener, tls, router, ServerLimits::default(), std::future::pending()));
        let peers = Peers::new(ClientTls::member(&node_identity(&ca, 1, Validity::days_from_now(1))).unwrap());
        let within = Duration::from_secs(60);
        let before = "old.test:7947";
        let moved = |node| ManagerAddresses {
            moved: [(before.to_owned(), (there.clone(), node))].into(),
            ..ManagerAddresses::default()
        };

        peers.redirect(moved(NodeId(3)));
        let refused = peers.get_bytes(before, "/x", within).await;
        assert!(
            matches!(refused, Err(ApiError::Identity { .. })),
            "node 2 answers at the address of node 3: {refused:?}"
        );
        peers.redirect(moved(NodeId(2)));
        assert_eq!(peers.get_bytes(before, "/x", within).await.unwrap(), b"7");

        let ids = [(RaftId(12), NodeId(2)), (RaftId(13), NodeId(3))].into();
        peers.redirect(ManagerAddresses {
            ids,
            entered: [(there.clone(), NodeId(3))].into(),
            ..ManagerAddresses::default()
        });
        let other = peers.get_bytes(&there, "/x", within).await;
        assert!(matches!(other, Err(ApiError::Identity { .. })), "{other:?}");
        let other = peers.member(RaftId(13), &there).get_bytes("/x").await;
        assert!(matches!(other, Err(ApiError::Identity { .. })), "{other:?}");
        assert!(peers.member(RaftId(12), &there).get_bytes("/x").await.is_ok());
        assert!(peers.member(RaftId(14), &there).get_bytes("/x").await.is_ok(), "not known here yet");
        server.abort();
    }
}
