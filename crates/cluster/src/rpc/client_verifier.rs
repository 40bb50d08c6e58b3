//! How a server verifies a client's certificate: the cluster's CA must have signed it, and it must
//! be valid for clients. A certificate that is not valid at this time, or whose CA was replaced,
//! passes the handshake too. So its holder receives a readable error and can request a new
//! certificate. The [server](super::server) rejects all other requests of such a client.

use super::verify::nearest_valid_moment;
use remoor_host::tls::ClientRule;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DistinguishedName, Error};
use rustls_pki_types::{CertificateDer, UnixTime};
use std::sync::Arc;

/// Verifies client certificates. A certificate that has expired is verified as of its last moment,
/// and one that is not valid yet as of its first moment.
#[derive(Debug)]
pub(super) struct ClientTrust {
    /// Accepts client certificates of the current CAs.
    pub present: Arc<dyn ClientCertVerifier>,
    /// Accepts client certificates of the replaced CAs. None if no CA was replaced.
    pub former: Option<Arc<dyn ClientCertVerifier>>,
}

/// The CAs by which a certificate is accepted: the current ones, the replaced ones or none. The
/// dates of the certificate are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IssuerStatus {
    Present,
    Former,
    Unknown,
}

impl ClientTrust {
    /// Judges a certificate by the current CAs. The certificate may be from a new handshake, or
    /// from the handshake of an open connection.
    pub fn judge_chain(&self, chain: &[CertificateDer<'_>]) -> IssuerStatus {
        let Some((end_entity, intermediates)) = chain.split_first() else { return IssuerStatus::Unknown };
        let now = UnixTime::now();
        if verify_ignoring_dates(&self.present, end_entity, intermediates, now).is_ok() {
            return IssuerStatus::Present;
        }
        match &self.former {
            Some(former) if verify_ignoring_dates(former, end_entity, &[], now).is_ok() => IssuerStatus::Former,
            _ => IssuerStatus::Unknown,
        }
    }
}

fn verify_ignoring_dates(
    verifier: &Arc<dyn ClientCertVerifier>,
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<ClientCertVerified, Error> {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let verified = verifier.verify_client_cert(end_entity, intermediates, now);
    match &verified {
        Err(Error::InvalidCertificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })) => {
            verifier.verify_client_cert(end_entity, intermediates, nearest_valid_moment(end_entity, now))
        }
        _ => verified,
    }
}

impl ClientRule for ClientTrust {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.present.root_hint_subjects()
    }

    fn accept(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let verified = verify_ignoring_dates(&self.present, end_entity, intermediates, now);
        match &self.former {
            Some(former) if verified.is_err() => verify_ignoring_dates(former, end_entity, &[], now).or(verified),
            _ => verified,
        }
        .map(|_| ())
    }
}
