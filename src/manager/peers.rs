//! Clients to the other managers, one pooled client per address.

use crate::model::RaftId;
use crate::rpc::client::{ApiError, Client};
use crate::rpc::tls::ClientTls;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Addresses beyond this many are forgotten, oldest name first.
const CLIENTS_MAX: usize = 64;

/// Where the managers are now, as `host:port` of the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whereabouts {
    /// Addresses at which nobody is any more, and where who was there is now.
    pub moved: BTreeMap<String, String>,
    /// Members of Raft. A leader's stream to a member keeps the address it began with, though the members have another one
    /// since, so whom it is meant for says where it goes.
    pub members: BTreeMap<RaftId, String>,
}

impl Whereabouts {
    /// Where to ask who is, or was, at `addr`.
    pub fn of<'a>(&'a self, addr: &'a str) -> &'a str {
        self.moved.get(addr).map_or(addr, String::as_str)
    }

    /// Where to ask the member `id`, which somebody has at `addr`.
    pub fn of_member<'a>(&'a self, id: RaftId, addr: &'a str) -> &'a str {
        self.of(self.members.get(&id).map_or(addr, String::as_str))
    }
}

pub struct Peers {
    tls: ClientTls,
    clients: Mutex<BTreeMap<String, Client>>,
    whereabouts: Mutex<Whereabouts>,
}

impl Peers {
    pub fn new(tls: ClientTls) -> Self {
        Self { tls, clients: Mutex::default(), whereabouts: Mutex::default() }
    }

    /// From now on who asks for a manager is given a client for where it is. Certificates tell who answers.
    pub fn redirect(&self, now: Whereabouts) {
        let mut known = self.whereabouts();
        for (from, to) in now.moved.iter().filter(|(from, to)| known.moved.get(*from) != Some(*to)) {
            tracing::info!(%from, %to, "a manager moved");
        }
        *known = now;
    }

    /// The client for `addr` (`host:port`), or for where who was there has moved to.
    pub fn client(&self, addr: &str) -> Client {
        let addr = self.whereabouts().of(addr).to_owned();
        self.pooled(addr)
    }

    /// The client for a member of Raft, last known at `addr`.
    pub fn member(&self, id: RaftId, addr: &str) -> Client {
        let addr = self.whereabouts().of_member(id, addr).to_owned();
        self.pooled(addr)
    }

    fn pooled(&self, addr: String) -> Client {
        let mut clients = self.clients.lock().unwrap_or_else(|p| p.into_inner());
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&addr) {
            clients.pop_first();
        }
        clients.entry(addr.clone()).or_insert_with(|| Client::tls(addr, &self.tls, None)).clone()
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
