//! How a server verifies a client's certificate: signed by the cluster's CA and valid for clients.
//! An expired certificate, or one of a replaced CA, also passes the handshake, so that its holder
//! receives a readable error and can request a new one. The [server](super::server) rejects all its
//! other requests.

use super::identity;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The usual verification. An expired certificate is verified as of its last moment.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    /// Verifies with the current CAs.
    pub present: Arc<dyn ClientCertVerifier>,
    /// Verifies with the replaced CAs.
    pub former: Option<Arc<dyn ClientCertVerifier>>,
}

/// Which CAs accept a certificate, ignoring its expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IssuerStatus {
    Present,
    Former,
    Unknown,
}

impl ClientVerifier {
    /// Judges a certificate, of a new or an earlier handshake, by the current CAs.
    pub fn judge_chain(&self, chain: &[CertificateDer<'_>]) -> IssuerStatus {
        let Some((end_entity, intermediates)) = chain.split_first() else { return IssuerStatus::Unknown };
        let now = UnixTime::now();
        if verify_ignoring_expiry(&self.present, end_entity, intermediates, now).is_ok() {
            return IssuerStatus::Present;
        }
        match &self.former {
            Some(former) if verify_ignoring_expiry(former, end_entity, &[], now).is_ok() => IssuerStatus::Former,
            _ => IssuerStatus::Unknown,
        }
    }
}

fn verify_ignoring_expiry(
    verifier: &Arc<dyn ClientCertVerifier>,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<ClientCertVerified, Error> {
    use CertificateError::{Expired, ExpiredContext};
    let verified = verifier.verify_client_cert(end_entity, intermediates, now);
    let Err(Error::InvalidCertificate(Expired | ExpiredContext { .. })) = &verified else { return verified };
    let Ok((_, certificate)) = X509Certificate::from_der(end_entity) else { return verified };
    let last = UnixTime::since_unix_epoch(Duration::from_millis(identity::not_after(&certificate).0));
    verifier.verify_client_cert(end_entity, intermediates, last)
}

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.present.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.present.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.present.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = verify_ignoring_expiry(&self.present, end_entity, intermediates, now);
        match &self.former {
            Some(former) if verified.is_err() => verify_ignoring_expiry(former, end_entity, &[], now).or(verified),
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.present.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.present.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.present.supported_verify_schemes()
    }
}
