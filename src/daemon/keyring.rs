//! The node's credentials while the daemon runs: all that speaks TLS here uses these, and goes on with a renewed certificate
//! without a restart.

use crate::model::Wall;
use crate::rpc::identity::{Credentials, GossipKey, IdentityError, certificate_not_after};
use crate::rpc::renew;
use crate::rpc::tls::{ClientTls, ServerTls};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Keyring {
    dir: PathBuf,
    credentials: Arc<Mutex<Credentials>>,
    client: ClientTls,
    server: ServerTls,
}

impl Keyring {
    /// `credentials` as they are in `dir`.
    pub fn new(dir: PathBuf, credentials: Credentials) -> Result<Self, IdentityError> {
        let tls = credentials.tls();
        let (client, server) = (ClientTls::member(&tls)?, ServerTls::new(&tls)?);
        Ok(Self { dir, credentials: Arc::new(Mutex::new(credentials)), client, server })
    }

    pub fn now(&self) -> Credentials {
        self.inner().clone()
    }

    pub fn client(&self) -> ClientTls {
        self.client.clone()
    }

    pub fn server(&self) -> ServerTls {
        self.server.clone()
    }

    /// The last moment of the certificate; 0 where that can't be told, which [`new`](Self::new) rules out.
    pub fn ends(&self) -> Wall {
        certificate_not_after(&self.inner().cert_pem).unwrap_or_default()
    }

    /// When the certificate is to be renewed.
    pub fn due(&self) -> Wall {
        renew::due(&self.inner().cert_pem).unwrap_or_default()
    }

    /// Stores a new certificate and uses it from now on; one that is not this node's, or not longer, changes nothing. Blocks.
    pub fn renew(&self, cert_pem: &str) -> Result<(), IdentityError> {
        let mut credentials = self.inner();
        let renewed = renew::renewed(&credentials, cert_pem)?;
        renewed.save(&self.dir)?;
        let tls = renewed.tls();
        self.client.replace(&tls)?;
        self.server.replace(&tls)?;
        *credentials = renewed;
        Ok(())
    }

    /// The gossip keys that this node holds, first the one by which it sends.
    pub fn gossip_keys(&self) -> Vec<GossipKey> {
        let credentials = self.inner();
        std::iter::once(&credentials.gossip_key).chain(&credentials.gossip_others).cloned().collect()
    }

    /// Gossip goes by these from the next start on; the first one sends. Blocks.
    pub fn use_gossip_keys(&self, first: GossipKey, others: Vec<GossipKey>) -> Result<(), IdentityError> {
        let mut credentials = self.inner();
        let changed = Credentials { gossip_key: first, gossip_others: others, ..credentials.clone() };
        changed.save(&self.dir)?;
        *credentials = changed;
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, Credentials> {
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
