//! The node's credentials while the daemon runs: all that speaks TLS here uses these, and goes on with a renewed certificate, or
//! other CAs, without a restart.

use crate::model::{Epoch, Wall};
use crate::rpc::caller::certified_epoch;
use crate::rpc::identity::{Credentials, GossipKey, IdentityError, certificate_not_after, names_issuer};
use crate::rpc::renew::{self, RenewReply};
use crate::rpc::tls::{ClientTls, ServerTls};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A handle; clones are the same.
#[derive(Clone)]
pub struct Keyring {
    dir: PathBuf,
    inner: Arc<Mutex<Inner>>,
    client: ClientTls,
    server: ServerTls,
    /// Counts what may have made a renewal due.
    turn: Arc<watch::Sender<u64>>,
}

struct Inner {
    credentials: Credentials,
    /// By which entry the CAs are as they are here; 0: as of before this process.
    ca: u64,
    /// CAs that were replaced, as PEM; of a manager.
    former: String,
    /// Managers said that the certificate counts no more.
    refused: bool,
}

impl Keyring {
    /// `credentials` as they are in `dir`.
    pub fn new(dir: PathBuf, credentials: Credentials) -> Result<Self, IdentityError> {
        let tls = credentials.tls();
        let (client, server) = (ClientTls::member(&tls)?, ServerTls::new(&tls)?);
        let inner = Inner { credentials, ca: 0, former: String::new(), refused: false };
        Ok(Self { dir, inner: Arc::new(Mutex::new(inner)), client, server, turn: Arc::new(watch::channel(0).0) })
    }

    pub fn now(&self) -> Credentials {
        self.inner().credentials.clone()
    }

    pub fn client(&self) -> ClientTls {
        self.client.clone()
    }

    pub fn server(&self) -> ServerTls {
        self.server.clone()
    }

    /// The last moment of the certificate; 0 where that can't be told, which [`new`](Self::new) rules out.
    pub fn ends(&self) -> Wall {
        certificate_not_after(&self.inner().credentials.cert_pem).unwrap_or_default()
    }

    /// When the certificate is to be renewed; 0: it is another CA that issues, or managers refuse it, or it is of an older epoch than
    /// `known`, and shows nobody that the cluster was founded anew.
    pub fn due(&self, known: Epoch) -> Wall {
        let inner = self.inner();
        match inner.by_issuer() && !inner.refused && inner.certified() >= known {
            true => renew::due(&inner.credentials.cert_pem).unwrap_or_default(),
            false => Wall::default(),
        }
    }

    /// In which the certificate was issued.
    pub fn certified(&self) -> Epoch {
        self.inner().certified()
    }

    /// Whether the certificate opens nothing any more but its renewal.
    pub fn lapsed(&self, now: Wall) -> bool {
        now > self.ends() || self.inner().refused
    }

    /// Changes with each reason to look at [`due`](Self::due) again.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.turn.subscribe()
    }

    /// Stores a new certificate and uses it from now on; one that is not this node's, or not longer, or of a manager that is not
    /// as far as others, changes nothing. Blocks.
    pub fn renew(&self, reply: &RenewReply) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        if reply.ca < inner.ca {
            let reason = "that manager does not know yet which CA issues".to_owned();
            return Err(IdentityError::Malformed { what: "new certificate", reason });
        }
        let renewed = renew::renewed(&inner.credentials, reply)?;
        self.put(&mut inner, renewed)?;
        (inner.ca, inner.refused) = (reply.ca, false);
        Ok(())
    }

    /// Trusts these CAs from now on, by which the managers go since entry `changed`; what is older than what is known changes
    /// nothing. Blocks.
    pub fn trust(&self, ca_pem: &str, changed: u64) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        if changed < inner.ca {
            return Ok(());
        }
        if inner.credentials.ca_pem != ca_pem {
            let trusting = Credentials { ca_pem: ca_pem.to_owned(), ..inner.credentials.clone() };
            self.put(&mut inner, trusting)?;
            self.turn.send_modify(|turn| *turn += 1);
        }
        inner.ca = changed;
        Ok(())
    }

    /// Whether all is as it is to be since entry `changed`: the CAs, and a certificate of the one that issues.
    pub fn settled(&self, changed: u64) -> bool {
        let inner = self.inner();
        inner.ca == changed && inner.by_issuer() && !inner.refused
    }

    /// By which entry the CAs are as they are here.
    pub fn ca(&self) -> u64 {
        self.inner().ca
    }

    /// Who comes with a certificate of one of these CAs may ask for another one, of a manager.
    pub fn set_former(&self, former: String) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        if inner.former != former {
            self.server.replace(&inner.credentials.tls(), &former)?;
            inner.former = former;
        }
        Ok(())
    }

    /// Whether a manager said so since it was made.
    pub fn is_refused(&self) -> bool {
        self.inner().refused
    }

    /// A manager said that the certificate counts no more.
    pub fn refused(&self) {
        if !std::mem::replace(&mut self.inner().refused, true) {
            self.turn.send_modify(|turn| *turn += 1);
        }
    }

    /// The gossip keys that this node holds, first the one by which it sends.
    pub fn gossip_keys(&self) -> Vec<GossipKey> {
        let Inner { credentials, .. } = &*self.inner();
        std::iter::once(&credentials.gossip_key).chain(&credentials.gossip_others).cloned().collect()
    }

    /// Gossip goes by these from the next start on; the first one sends. Blocks.
    pub fn use_gossip_keys(&self, first: GossipKey, others: Vec<GossipKey>) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        let changed = Credentials { gossip_key: first, gossip_others: others, ..inner.credentials.clone() };
        changed.save(&self.dir)?;
        inner.credentials = changed;
        Ok(())
    }

    /// On disk first, then in use.
    fn put(&self, inner: &mut Inner, credentials: Credentials) -> Result<(), IdentityError> {
        credentials.save(&self.dir)?;
        let tls = credentials.tls();
        self.client.replace(&tls)?;
        self.server.replace(&tls, &inner.former)?;
        inner.credentials = credentials;
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Whether the certificate is one of the CA that issues.
    fn by_issuer(&self) -> bool {
        names_issuer(&self.credentials.cert_pem, &self.credentials.ca_pem).unwrap_or(true)
    }

    /// 0 where that can't be told, which [`new`](Keyring::new) rules out.
    fn certified(&self) -> Epoch {
        certified_epoch(&self.credentials.cert_pem, &self.credentials.cluster).unwrap_or_default()
    }
}
