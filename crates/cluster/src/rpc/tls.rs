//! TLS 1.3 configurations for server and client, built from a [`TlsIdentity`]. They can be replaced
//! while they are in use, so a renewed certificate needs no restart.
//!
//! Sessions are never resumed, because resumption would skip the verification of certificates.

use super::client_verifier::{ClientTrust, IssuerStatus};
use super::identity::{self, IdentityError, TlsIdentity};
use super::raft_stream;
use super::verify::Trust;
pub use super::verify::may_be_the_clock;
use remoor_host::tls::PeerVerifier;
use remoor_model::ClusterId;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// The TLS configuration of a server. Clones share it.
#[derive(Clone)]
pub struct ServerTls {
    cluster: ClusterId,
    now: Arc<watch::Sender<ActiveConfig>>,
}

/// The configuration of new connections, and the verifier for the client certificates of new and
/// open connections.
#[derive(Clone)]
struct ActiveConfig {
    config: Arc<ServerConfig>,
    clients: Arc<PeerVerifier<ClientTrust>>,
}

impl ServerTls {
    /// A configuration that serves as this node. Clients may connect without a certificate. A
    /// client's certificate must be a valid one of this cluster.
    pub fn new(identity: &TlsIdentity) -> Result<Self, IdentityError> {
        let now = Arc::new(watch::channel(build_config(identity, "")?).0);
        Ok(Self { cluster: identity.cluster.clone(), now })
    }

    /// Replaces the identity. New connections use `identity`. Open connections continue with the
    /// old one as long as the CA of the client's certificate is current. A client with a
    /// certificate of one of the `former` CAs (PEM; may be empty) may only request a new
    /// certificate.
    pub fn replace(&self, identity: &TlsIdentity, former: &str) -> Result<(), IdentityError> {
        self.now.send_replace(build_config(identity, former)?);
        Ok(())
    }

    pub(super) fn current(&self) -> Arc<ServerConfig> {
        self.now.borrow().config.clone()
    }

    /// Judges the certificates of a client that passed a handshake.
    pub(super) fn judge(&self, chain: Vec<CertificateDer<'static>>) -> JudgedChain {
        let mut now = self.now.subscribe();
        let clients = now.borrow_and_update().clients.clone();
        JudgedChain { by: clients.0.judge_chain(&chain), chain, now }
    }

    pub(super) fn cluster(&self) -> &ClusterId {
        &self.cluster
    }
}

/// The client's certificates on an open connection, and their judgement at the start of the
/// connection.
pub(super) struct JudgedChain {
    pub by: IssuerStatus,
    chain: Vec<CertificateDer<'static>>,
    now: watch::Receiver<ActiveConfig>,
}

impl JudgedChain {
    /// Waits until the same certificates would be judged differently, because the CAs were
    /// replaced.
    pub async fn until_changed(mut self) {
        while self.now.changed().await.is_ok() {
            let clients = self.now.borrow_and_update().clients.clone();
            if clients.0.judge_chain(&self.chain) != self.by {
                return;
            }
        }
        std::future::pending().await
    }
}

/// The TLS configuration of a client. Clones share it.
#[derive(Clone)]
pub struct ClientTls {
    /// None for a machine that has not joined a cluster.
    cluster: Option<ClusterId>,
    config: Arc<RwLock<Arc<ClientConfig>>>,
    /// Incremented whenever the identity is replaced, for example by a renewed certificate.
    generation: Arc<AtomicU64>,
    /// If set, only managers receive requests. Other nodes name the managers at this path.
    managers_only: Option<&'static str>,
}

impl ClientTls {
    /// A configuration that connects as this node or operator. It accepts only nodes of the same
    /// cluster.
    pub fn member(identity: &TlsIdentity) -> Result<Self, IdentityError> {
        let config = Arc::new(RwLock::new(member_config(identity)?));
        Ok(Self { cluster: Some(identity.cluster.clone()), config, generation: Arc::default(), managers_only: None })
    }

    /// A configuration that connects anonymously to the cluster whose CA has this digest, as in a
    /// token.
    pub fn joiner(ca_digest: &str) -> Result<Self, IdentityError> {
        let config = client_builder(Trust::Digest(ca_digest.to_owned()))?.with_no_client_auth();
        Ok(Self {
            cluster: None,
            config: Arc::new(RwLock::new(finish(config))),
            generation: Arc::default(),
            managers_only: None,
        })
    }

    /// A configuration that connects anonymously to nodes of this cluster and ignores the dates of
    /// their certificates. Use it only to compare clocks, because a wrong clock alone can make a
    /// date seem invalid.
    pub fn ignoring_dates(identity: &TlsIdentity) -> Result<Self, IdentityError> {
        let trust = Trust::RootsIgnoringDates(roots(&identity.ca_pem)?.1);
        let config = Arc::new(RwLock::new(finish(client_builder(trust)?.with_no_client_auth())));
        Ok(Self { cluster: Some(identity.cluster.clone()), config, generation: Arc::default(), managers_only: None })
    }

    /// The same configuration for requests with secrets or the fleet, which only managers may
    /// receive. The server's certificate must show that the server is a manager. Any other server
    /// receives only an empty request for `redirect`, a path at which workers name the managers.
    pub fn for_managers_only(self, redirect: &'static str) -> Self {
        Self { managers_only: Some(redirect), ..self }
    }

    /// Replaces the identity. New connections use `identity`. Open connections end after their
    /// current request.
    pub fn replace(&self, identity: &TlsIdentity) -> Result<(), IdentityError> {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = member_config(identity)?;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A number that changes with each replacement of the identity.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<ClientConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn cluster(&self) -> Option<&ClusterId> {
        self.cluster.as_ref()
    }

    pub(super) fn managers_only(&self) -> Option<&'static str> {
        self.managers_only
    }
}

fn build_config(identity: &TlsIdentity, former: &str) -> Result<ActiveConfig, IdentityError> {
    let loaded = LoadedIdentity::new(identity)?;
    let present = clients_of(loaded.roots)?;
    let former = if former.is_empty() { None } else { Some(clients_of(roots(former)?.1)?) };
    let clients = Arc::new(PeerVerifier(ClientTrust { present, former }));
    // The CA is part of the chain, because a joining machine knows only the CA's digest.
    let chain = loaded.chain.into_iter().chain(loaded.cas).collect();
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| malformed_error("TLS configuration", e))?
        .with_client_cert_verifier(clients.clone())
        .with_single_cert(chain, loaded.key)
        .map_err(|e| malformed_error("certificate and key", e))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![raft_stream::PROTOCOL.to_vec(), b"http/1.1".to_vec()];
    Ok(ActiveConfig { config: Arc::new(config), clients })
}

fn clients_of(roots: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, IdentityError> {
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|e| malformed_error("CA certificate", e))
}

fn roots(ca_pem: &str) -> Result<(Vec<CertificateDer<'static>>, RootCertStore), IdentityError> {
    let cas = identity::certificates("CA certificate", ca_pem)?;
    let mut roots = RootCertStore::empty();
    for ca in &cas {
        roots.add(ca.clone()).map_err(|e| malformed_error("CA certificate", e))?;
    }
    Ok((cas, roots))
}

fn member_config(identity: &TlsIdentity) -> Result<Arc<ClientConfig>, IdentityError> {
    let loaded = LoadedIdentity::new(identity)?;
    let config = client_builder(Trust::Roots(loaded.roots))?
        .with_client_auth_cert(loaded.chain, loaded.key)
        .map_err(|e| malformed_error("certificate and key", e))?;
    Ok(finish(config))
}

fn client_builder(
    trust: Trust,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, IdentityError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| malformed_error("TLS configuration", e))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PeerVerifier(trust))))
}

fn finish(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.resumption = Resumption::disabled();
    // No server name is sent, because it would show eavesdroppers which node of which cluster is
    // dialled.
    config.enable_sni = false;
    Arc::new(config)
}

/// The parsed certificates and key of an identity.
struct LoadedIdentity {
    roots: RootCertStore,
    cas: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl LoadedIdentity {
    fn new(identity: &TlsIdentity) -> Result<Self, IdentityError> {
        let (cas, roots) = roots(&identity.ca_pem)?;
        let chain = identity::certificates("certificate", &identity.cert_pem)?;
        let key = PrivateKeyDer::from_pem_slice(identity.key_pem.reveal().as_bytes())
            .map_err(|e| malformed_error("private key", e))?;
        Ok(Self { roots, cas, chain, key })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn malformed_error(what: &'static str, reason: impl std::fmt::Display) -> IdentityError {
    IdentityError::Malformed { what, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::ca::{ClusterCa, Validity};

    #[test]
    fn a_foreign_key_is_refused() {
        let ca = ClusterCa::create(&"c1".into()).unwrap();
        let mut identity = ca.issue_operator("zoe", Validity::days_from_now(1)).unwrap();
        assert!(ClientTls::member(&identity).is_ok());
        identity.key_pem = ca.issue_operator("max", Validity::days_from_now(1)).unwrap().key_pem;
        let error = ClientTls::member(&identity).err().unwrap().to_string();
        assert!(error.contains("certificate and key"), "{error}");
    }

    #[test]
    fn a_server_asks_for_a_certificate_of_the_present_ca_and_requires_none() {
        let (ca, former) = (ClusterCa::create(&"c1".into()).unwrap(), ClusterCa::create_next(&"c1".into()).unwrap());
        let identity = ca.issue_operator("zoe", Validity::days_from_now(1)).unwrap();
        let clients = build_config(&identity, former.cert_pem()).unwrap().clients;
        assert!(clients.offer_client_auth() && !clients.client_auth_mandatory());
        assert_eq!(clients.root_hint_subjects().len(), 1, "the replaced CA is not named to clients");
        assert_eq!(
            clients.supported_verify_schemes(),
            provider().signature_verification_algorithms.supported_schemes()
        );
    }
}
