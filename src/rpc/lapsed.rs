//! What a server demands of a client's certificate: signed by the cluster's CA, and good for calling. One that ran out gets
//! through the handshake too, so that its holder is told so in words and can ask for a new one; the [server](super::server)
//! lets it ask for nothing else.

use super::identity;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The usual check; of a certificate that ran out, as of its last moment.
#[derive(Debug)]
pub(super) struct ClientVerifier(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ClientVerifier {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        use CertificateError::{Expired, ExpiredContext};
        let verified = self.0.verify_client_cert(end_entity, intermediates, now);
        let Err(Error::InvalidCertificate(Expired | ExpiredContext { .. })) = &verified else { return verified };
        let Ok((_, certificate)) = X509Certificate::from_der(end_entity) else { return verified };
        let last = UnixTime::since_unix_epoch(Duration::from_millis(identity::not_after(&certificate).0));
        self.0.verify_client_cert(end_entity, intermediates, last)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
