//! A verifier for rustls. The rule of the caller decides which certificates are accepted. The
//! signatures of a handshake are verified in the same way for every rule.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::fmt::Debug;
use std::sync::LazyLock;

/// The signature algorithms that are accepted: those of ring.
pub static SIGNATURES: LazyLock<WebPkiSupportedAlgorithms> =
    LazyLock::new(|| ring::default_provider().signature_verification_algorithms);

/// The rule by which a client accepts servers.
pub trait ServerRule: Debug + Send + Sync {
    /// Whether a server with this certificate may be `name`. The signature of the handshake, which
    /// proves that the server holds the key of the certificate, is verified separately.
    fn accept(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error>;
}

/// The rule by which a server accepts clients. A client without a certificate is accepted too, as
/// anonymous.
pub trait ClientRule: Debug + Send + Sync {
    /// Whether a client with this certificate may connect. The signature is verified separately.
    fn accept(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error>;

    /// The CAs that the server names to clients.
    fn root_hint_subjects(&self) -> &[DistinguishedName];
}

/// Verifies the other end of a connection by a rule: a [`ServerRule`] or a [`ClientRule`].
#[derive(Debug)]
pub struct PeerVerifier<R>(pub R);

/// The methods that both verifier traits of rustls require.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, cert, signed, &SIGNATURES)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, cert, signed, &SIGNATURES)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            SIGNATURES.supported_schemes()
        }
    };
}

impl<R: ServerRule> ServerCertVerifier for PeerVerifier<R> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.accept(end_entity, intermediates, server_name, now)?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

impl<R: ClientRule> ClientCertVerifier for PeerVerifier<R> {
    fn client_auth_mandatory(&self) -> bool {
        false
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
        self.0.accept(end_entity, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    verify_signatures!();
}
