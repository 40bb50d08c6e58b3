//! Clients to the other managers, one pooled client per address and node that must answer there.

use crate::model::{NodeId, RaftId};
use crate::rpc::client::{ApiError, Client};
use crate::rpc::tls::ClientTls;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Addresses beyond this many are forgotten, oldest name first.
const CLIENTS_MAX: usize = 64;

pub struct Peers {
    tls: ClientTls,
    clients: Mutex<BTreeMap<(String, Option<NodeId>), Client>>,
    places: Mutex<Places>,
}

/// Where managers are, and whose certificate must answer there: gossip is no proof of who listens at an address.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Places {
    /// Addresses at which nobody is any more, and where who was there is now.
    pub moved: BTreeMap<String, (String, NodeId)>,
    /// The nodes of the addresses in the membership of Raft.
    pub entered: BTreeMap<String, NodeId>,
    /// The nodes of its ids.
    pub ids: BTreeMap<RaftId, NodeId>,
}

impl Places {
    /// What to dial for `addr`, and who must answer; None: any node of the cluster, since nobody is known there yet.
    /// `target` is the Raft id that is meant, where the caller means one.
    fn of(&self, addr: &str, target: Option<RaftId>) -> (String, Option<NodeId>) {
        let meant = target.and_then(|id| self.ids.get(&id)).copied();
        match self.moved.get(addr) {
            // A move of somebody else leads nowhere where this one is meant.
            Some((to, node)) if meant.is_none_or(|meant| meant == *node) => (to.clone(), Some(*node)),
            _ if target.is_some() => (addr.to_owned(), meant),
            _ => (addr.to_owned(), self.entered.get(addr).copied()),
        }
    }
}

impl Peers {
    pub fn new(tls: ClientTls) -> Self {
        Self { tls, clients: Mutex::default(), places: Mutex::default() }
    }

    /// From now on these places count, instead of all before.
    pub fn redirect(&self, places: Places) {
        let mut known = self.places.lock().unwrap_or_else(|p| p.into_inner());
        for (from, (to, node)) in places.moved.iter().filter(|(from, to)| known.moved.get(*from) != Some(*to)) {
            tracing::info!(%from, %to, %node, "a manager moved");
        }
        *known = places;
    }

    /// The client for `addr` (`host:port`), or for where who was there has moved to.
    pub fn client(&self, addr: &str) -> Client {
        self.client_of(addr, None)
    }

    /// The same for the member of Raft with this id, which alone may answer once its node is known.
    pub fn client_of(&self, addr: &str, target: Option<RaftId>) -> Client {
        let key = self.places.lock().unwrap_or_else(|p| p.into_inner()).of(addr, target);
        let mut clients = self.clients.lock().unwrap_or_else(|p| p.into_inner());
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&key) {
            clients.pop_first();
        }
        let (to, node) = key.clone();
        clients.entry(key).or_insert_with(|| Client::tls(to, &self.tls, node)).clone()
    }

    pub async fn get_bytes(&self, addr: &str, path: &str, within: Duration) -> Result<Vec<u8>, ApiError> {
        self.client(addr).within(within).get_bytes(path).await.map(|b| b.to_vec())
    }

    pub async fn post_bytes(
        &self,
        addr: &str,
        path: &str,
        body: Vec<u8>,
        within: Duration,
    ) -> Result<Vec<u8>, ApiError> {
        self.client(addr).within(within).post_bytes(path, body.into()).await.map(|b| b.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ClusterId, Epoch};
    use crate::rpc::ca::{ClusterCa, Validity};
    use crate::rpc::identity::{NodeKey, TlsIdentity};
    use crate::rpc::server::{Limits, serve_tls};
    use crate::rpc::tls::ServerTls;
    use axum::{Router, routing::get};

    fn identity(ca: &ClusterCa, node: u64) -> TlsIdentity {
        let key = NodeKey::generate().unwrap();
        let csr = key.csr_pem().unwrap();
        let cert_pem = ca.issue_node(NodeId(node), &"n".into(), Epoch(1), &csr, Validity::days_from_now(1)).unwrap();
        let (cluster, ca_pem) = (ca.cluster().clone(), ca.cert_pem().into());
        TlsIdentity { cluster, ca_pem, cert_pem, key_pem: key.to_pem().unwrap() }
    }

    #[tokio::test]
    async fn only_the_manager_that_moved_may_answer_at_its_new_address() {
        let ca = ClusterCa::create(&ClusterId::from("c1")).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let router = Router::new().route("/x", get(async || "7"));
        let tls = ServerTls::new(&identity(&ca, 2)).unwrap();
        let server = tokio::spawn(serve_tls(listener, tls, router, Limits::default(), std::future::pending()));
        let peers = Peers::new(ClientTls::member(&identity(&ca, 1)).unwrap());
        let within = Duration::from_secs(60);
        let before = "old.test:7947";
        let moved = |node| Places { moved: [(before.to_owned(), (there.clone(), node))].into(), ..Places::default() };

        peers.redirect(moved(NodeId(3)));
        let refused = peers.get_bytes(before, "/x", within).await;
        assert!(
            matches!(refused, Err(ApiError::Identity { .. })),
            "node 2 sits where node 3 is said to be: {refused:?}"
        );
        peers.redirect(moved(NodeId(2)));
        assert_eq!(peers.get_bytes(before, "/x", within).await.unwrap(), b"7");

        let ids = [(RaftId(12), NodeId(2)), (RaftId(13), NodeId(3))].into();
        peers.redirect(Places { ids, entered: [(there.clone(), NodeId(3))].into(), ..Places::default() });
        let other = peers.get_bytes(&there, "/x", within).await;
        assert!(matches!(other, Err(ApiError::Identity { .. })), "{other:?}");
        let other = peers.client_of(&there, Some(RaftId(13))).get_bytes("/x").await;
        assert!(matches!(other, Err(ApiError::Identity { .. })), "{other:?}");
        assert!(peers.client_of(&there, Some(RaftId(12))).get_bytes("/x").await.is_ok());
        assert!(peers.client_of(&there, Some(RaftId(14))).get_bytes("/x").await.is_ok(), "not known here yet");
        server.abort();
    }
}
