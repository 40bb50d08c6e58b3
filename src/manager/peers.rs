//! Clients to the other managers, one pooled client per address.

use crate::rpc::client::{ApiError, Client};
use crate::rpc::tls::ClientTls;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Addresses beyond this many are forgotten, oldest name first.
const CLIENTS_MAX: usize = 64;

pub struct Peers {
    tls: ClientTls,
    clients: Mutex<BTreeMap<String, Client>>,
    /// Addresses at which nobody is any more, and where who was there is now.
    moved: Mutex<BTreeMap<String, String>>,
}

impl Peers {
    pub fn new(tls: ClientTls) -> Self {
        Self { tls, clients: Mutex::default(), moved: Mutex::default() }
    }

    /// From now on who asks for a key is given the client for its value. Certificates tell who answers.
    pub fn redirect(&self, moved: BTreeMap<String, String>) {
        let mut known = self.moved.lock().unwrap_or_else(|p| p.into_inner());
        for (from, to) in moved.iter().filter(|(from, to)| known.get(*from) != Some(*to)) {
            tracing::info!(%from, %to, "a manager moved");
        }
        *known = moved;
    }

    /// The client for `addr` (`host:port`), or for where who was there has moved to.
    pub fn client(&self, addr: &str) -> Client {
        let moved = self.moved.lock().unwrap_or_else(|p| p.into_inner()).get(addr).cloned();
        let addr = moved.as_deref().unwrap_or(addr);
        let mut clients = self.clients.lock().unwrap_or_else(|p| p.into_inner());
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(addr) {
            clients.pop_first();
        }
        clients.entry(addr.to_owned()).or_insert_with(|| Client::tls(addr, &self.tls, None)).clone()
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
