//! The node's credentials while the daemon runs. All TLS connections of the daemon use them. A
//! renewed certificate or other CAs take effect without a restart.

use remoor_cluster::rpc::caller::{certified_epoch, shows_manager};
use remoor_cluster::rpc::identity::{
    Credentials, GossipKey, IdentityError, certificate_life, certificate_not_after, names_issuer,
};
use remoor_cluster::rpc::renew::{self, RenewReply};
use remoor_cluster::rpc::tls::{ClientTls, ServerTls};
use remoor_model::{Epoch, Wall};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A handle to the credentials; all clones share one state.
#[derive(Clone)]
pub struct Keyring {
    dir: PathBuf,
    inner: Arc<Mutex<Inner>>,
    client: ClientTls,
    server: ServerTls,
    /// A counter that increases with every event that may make a renewal due.
    turn: Arc<watch::Sender<u64>>,
}

struct Inner {
    credentials: Credentials,
    /// Log index of the last CA change that the trusted CAs include; 0 if there was none since the
    /// start of the process.
    ca: u64,
    /// Replaced CAs as PEM. The text is always empty on a worker.
    former: String,
    /// Whether a manager has rejected the certificate.
    refused: bool,
}

impl Keyring {
    /// `credentials` must equal those stored in `dir`.
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

    /// Expiry of the certificate; 0 if it can't be read, which [`new`](Self::new) excludes.
    pub fn ends(&self) -> Wall {
        certificate_not_after(&self.inner().credentials.cert_pem).unwrap_or_default()
    }

    /// The time at which the certificate must be renewed. `known` is the newest known epoch of the
    /// cluster, and `manages` whether the manager service of this node runs. The result is 0 (now)
    /// in five cases:
    /// - Another CA issues certificates now.
    /// - Managers reject the certificate.
    /// - The certificate's validity begins after `now`.
    /// - The certificate's epoch is older than `known`. Such a certificate can't prove that the
    ///   cluster was rebuilt.
    /// - The node is a manager, and its certificate does not show that.
    pub fn due(&self, known: Epoch, manages: bool, now: Wall) -> Wall {
        let inner = self.inner();
        let shown = !manages || shows_manager(&inner.credentials.cert_pem).unwrap_or(true);
        match inner.by_issuer() && !inner.refused && inner.certificate_epoch() >= known && shown {
            true => renew::renewal_time(&inner.credentials.cert_pem, now).unwrap_or_default(),
            false => Wall::default(),
        }
    }

    /// The epoch in which the certificate was issued.
    pub fn certificate_epoch(&self) -> Epoch {
        self.inner().certificate_epoch()
    }

    /// Whether the certificate has expired or managers reject it. The managers may then ask an
    /// operator before they renew it.
    pub fn is_expired(&self, now: Wall) -> bool {
        now > self.ends() || self.inner().refused
    }

    /// Whether the certificate is valid for nothing except its own renewal.
    pub fn may_only_renew(&self, now: Wall) -> bool {
        self.is_expired(now)
            || certificate_life(&self.inner().credentials.cert_pem).is_ok_and(|(begins, _)| now < begins)
    }

    /// A TLS client that only compares clocks. It ignores the validity dates of both certificates.
    pub fn client_ignoring_dates(&self) -> Result<ClientTls, IdentityError> {
        ClientTls::ignoring_dates(&self.inner().credentials.tls())
    }

    /// A counter that changes whenever [`due`](Self::due) must be computed again.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.turn.subscribe()
    }

    /// Stores a new certificate and uses it from now on. The call fails and changes nothing if the
    /// certificate belongs to another node, or if the manager does not know the current CAs. It
    /// also fails if the current certificate is still usable and the new one ends no later. Blocks.
    pub fn renew(&self, reply: &RenewReply, now: Wall) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        if reply.ca < inner.ca {
            let reason = "the manager does not know the current issuing CA yet".to_owned();
            return Err(IdentityError::Malformed { what: "new certificate", reason });
        }
        let renewed = renew::apply_renewal(&inner.credentials, reply, now)?;
        self.put(&mut inner, renewed)?;
        (inner.ca, inner.refused) = (reply.ca, false);
        Ok(())
    }

    /// Trusts these CAs from now on. `changed` is the log index of the CA change. If this node
    /// already knows a later CA change, the call changes nothing. Blocks.
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

    /// Whether this node has completed the CA change at log index `changed`. It then trusts the CAs
    /// of that change, and the current CA issued its certificate.
    pub fn is_settled(&self, changed: u64) -> bool {
        let inner = self.inner();
        inner.ca == changed && inner.by_issuer() && !inner.refused
    }

    /// Log index of the last CA change that the trusted CAs include.
    pub fn ca(&self) -> u64 {
        self.inner().ca
    }

    /// Sets the replaced CAs (PEM). A node whose certificate was issued by one of them may request
    /// a new certificate from this manager.
    pub fn set_former(&self, former: String) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        if inner.former != former {
            self.server.replace(&inner.credentials.tls(), &former)?;
            inner.former = former;
        }
        Ok(())
    }

    /// Whether a manager has rejected the current certificate.
    pub fn is_rejected(&self) -> bool {
        self.inner().refused
    }

    /// Records that a manager has rejected the certificate.
    pub fn mark_rejected(&self) {
        if !std::mem::replace(&mut self.inner().refused, true) {
            self.turn.send_modify(|turn| *turn += 1);
        }
    }

    /// The gossip keys of this node. The first key encrypts the messages that this node sends.
    pub fn gossip_keys(&self) -> Vec<GossipKey> {
        let Inner { credentials, .. } = &*self.inner();
        std::iter::once(&credentials.gossip_key).chain(&credentials.gossip_others).cloned().collect()
    }

    /// Stores the gossip keys for the next start. The first key encrypts sent messages. Blocks.
    pub fn use_gossip_keys(&self, first: GossipKey, others: Vec<GossipKey>) -> Result<(), IdentityError> {
        let mut inner = self.inner();
        let changed = Credentials { gossip_key: first, gossip_others: others, ..inner.credentials.clone() };
        changed.save(&self.dir)?;
        inner.credentials = changed;
        Ok(())
    }

    /// Writes the credentials to disk and then uses them.
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
    /// Whether the current CA issued the certificate.
    fn by_issuer(&self) -> bool {
        names_issuer(&self.credentials.cert_pem, &self.credentials.ca_pem).unwrap_or(true)
    }

    /// The epoch in the certificate; 0 if it can't be read, which [`new`](Keyring::new) excludes.
    fn certificate_epoch(&self) -> Epoch {
        certified_epoch(&self.credentials.cert_pem, &self.credentials.cluster).unwrap_or_default()
    }
}
