//! Clients to the other managers, one pooled client per address and node that must answer there.

use crate::model::{NodeId, RaftId};
use crate::rpc::client::{ApiError, Client};
use crate::rpc::tls::ClientTls;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Addresses beyond this many are forgotten, oldest name first.
const CLIENTS_MAX: usize = 64;

/// Where the managers are now, as `host:port` of the API, and whose certificate must answer there: gossip is no proof of who
/// listens at an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Addresses at which nobody is any more, and where who was there is now.
    pub moved: BTreeMap<String, (String, NodeId)>,
    /// The nodes of the addresses in the membership of Raft.
    pub entered: BTreeMap<String, NodeId>,
    /// Members of Raft. A leader's stream to a member keeps the address it began with, though the members have another one
    /// since, so whom it is meant for says where it goes.
    pub members: BTreeMap<RaftId, String>,
    /// The nodes of the ids of Raft.
    pub ids: BTreeMap<RaftId, NodeId>,
}

impl Whereabouts {
    /// Where to ask who is, or was, at `addr`, and who must answer; None: any node of the cluster, since nobody is known there yet.
    pub fn of(&self, addr: &str) -> (String, Option<NodeId>) {
        match self.moved.get(addr) {
            Some((to, node)) => (to.clone(), Some(*node)),
            None => (addr.to_owned(), self.entered.get(addr).copied()),
        }
    }

    /// Where to ask the member `id`, which somebody has at `addr`.
    pub fn of_member(&self, id: RaftId, addr: &str) -> (String, Option<NodeId>) {
        let meant = self.ids.get(&id).copied();
        let at = self.members.get(&id).map_or(addr, String::as_str);
        match self.moved.get(at) {
            // A move of somebody else leads nowhere where this one is meant.
            Some((to, node)) if meant.is_none_or(|meant| meant == *node) => (to.clone(), Some(*node)),
            _ => (at.to_owned(), meant),
        }
    }
}

pub struct Peers {
    tls: ClientTls,
    clients: Mutex<BTreeMap<(String, Option<NodeId>), Client>>,
    whereabouts: Mutex<Whereabouts>,
}

impl Peers {
    pub fn new(tls: ClientTls) -> Self {
        Self { tls, clients: Mutex::default(), whereabouts: Mutex::default() }
    }

    /// From now on these places count, instead of all before.
    pub fn redirect(&self, now: Whereabouts) {
        let mut known = self.whereabouts();
        for (from, (to, node)) in now.moved.iter().filter(|(from, to)| known.moved.get(*from) != Some(*to)) {
            tracing::info!(%from, %to, %node, "a manager moved");
        }
        *known = now;
    }

    /// The client for `addr` (`host:port`), or for where who was there has moved to.
    pub fn client(&self, addr: &str) -> Client {
        let place = self.whereabouts().of(addr);
        self.pooled(place)
    }

    /// The client for a member of Raft, last known at `addr`, which alone may answer once its node is known.
    pub fn member(&self, id: RaftId, addr: &str) -> Client {
        let place = self.whereabouts().of_member(id, addr);
        self.pooled(place)
    }

    /// The client for exactly this node at exactly this address, whatever else is known of either.
    pub fn node(&self, id: NodeId, addr: &str) -> Client {
        self.pooled((addr.to_owned(), Some(id)))
    }

    /// Whether it is known which node alone may answer for this member.
    pub fn knows(&self, id: RaftId) -> bool {
        self.whereabouts().ids.contains_key(&id)
    }

    fn pooled(&self, place: (String, Option<NodeId>)) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(|p| p.into_inner());
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&place) {
            clients.pop_first();
        }
        let (to, node) = place.clone();
        clients.entry(place).or_insert_with(|| Client::tls(to, &self.tls, node)).clone()
    }

    fn whereabouts(&self) -> MutexGuard<'_, Whereabouts> {
        self.whereabouts.lock().unwrap_or_else(|p| p.into_inner())
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
        let moved =
            |node| Whereabouts { moved: [(before.to_owned(), (there.clone(), node))].into(), ..Whereabouts::default() };

        peers.redirect(moved(NodeId(3)));
        let refused = peers.get_bytes(before, "/x", within).await;
        assert!(
            matches!(refused, Err(ApiError::Identity { .. })),
            "node 2 sits where node 3 is said to be: {refused:?}"
        );
        peers.redirect(moved(NodeId(2)));
        assert_eq!(peers.get_bytes(before, "/x", within).await.unwrap(), b"7");

        let ids = [(RaftId(12), NodeId(2)), (RaftId(13), NodeId(3))].into();
        peers.redirect(Whereabouts { ids, entered: [(there.clone(), NodeId(3))].into(), ..Whereabouts::default() });
        let other = peers.get_bytes(&there, "/x", within).await;
        assert!(matches!(other, Err(ApiError::Identity { .. })), "{other:?}");
        let other = peers.member(RaftId(13), &there).get_bytes("/x").await;
        assert!(matches!(other, Err(ApiError::Identity { .. })), "{other:?}");
        assert!(peers.member(RaftId(12), &there).get_bytes("/x").await.is_ok());
        assert!(peers.member(RaftId(14), &there).get_bytes("/x").await.is_ok(), "not known here yet");
        server.abort();
    }
}
