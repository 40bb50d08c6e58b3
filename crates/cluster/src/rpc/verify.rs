//! How a client verifies a server's certificate. The cluster's CA must have signed it, and it must
//! not have expired. If a certain node is expected, the certificate must have been issued to that
//! node.
//!
//! A machine that is about to join has no CA yet. It finds the CA in the server's chain by the
//! digest in its token. No part of the request, and so no secret, leaves the machine before this
//! check has passed.

use super::caller::node_dns;
use super::identity::{self, IdentityError};
use super::token;
use remoor_host::tls::{SIGNATURES, ServerRule};
use remoor_model::{ClusterId, NodeId, Wall};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, OtherError, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;
use std::time::Duration;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Maximum certificates of a chain in which the CA is searched.
const CHAIN_MAX: usize = 8;

/// The server name for connections to which any node of the cluster may answer.
pub(super) const ANY_NODE: &str = "any.remoor";

/// The CAs that a client trusts: the rule for server certificates.
#[derive(Debug)]
pub(super) enum Trust {
    /// Accepts certificates of each of these CAs.
    Roots(RootCertStore),
    /// Accepts certificates of each of these CAs and ignores the dates in the certificate. Use it
    /// only to compare clocks.
    RootsIgnoringDates(RootCertStore),
    /// Accepts certificates of the CA whose certificate has this digest, as in a token.
    Digest(String),
}

/// The server's chain does not contain the CA with the requested digest.
#[derive(Debug, thiserror::Error)]
#[error("no certificate with the token's digest in the chain")]
struct NotTheTokensCa;

impl ServerRule for Trust {
    fn accept(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let cert = ParsedCertificate::try_from(end_entity)?;
        let pinned;
        let roots = match self {
            Self::Roots(roots) | Self::RootsIgnoringDates(roots) => roots,
            Self::Digest(digest) => {
                pinned = pinned_root(digest, intermediates)?;
                &pinned
            }
        };
        let now = match self {
            Self::RootsIgnoringDates(_) => nearest_valid_moment(end_entity, now),
            Self::Roots(_) | Self::Digest(_) => now,
        };
        verify_server_cert_signed_by_trust_anchor(&cert, roots, intermediates, now, SIGNATURES.all)?;
        // Only nodes have certificates for servers, so any server of this CA is a node of the
        // cluster.
        if name.to_str() != ANY_NODE {
            verify_server_name(&cert, name)?;
        }
        Ok(())
    }
}

fn pinned_root(digest: &str, chain: &[CertificateDer<'_>]) -> Result<RootCertStore, Error> {
    let ca = chain.iter().take(CHAIN_MAX).find(|cert| token::digest_of(cert) == digest);
    let ca = ca.ok_or_else(|| CertificateError::Other(OtherError(Arc::new(NotTheTokensCa))))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone().into_owned())?;
    Ok(roots)
}

/// The moment nearest to `now` at which this certificate is valid.
pub(super) fn nearest_valid_moment(certificate: &CertificateDer<'_>, now: UnixTime) -> UnixTime {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return now };
    let moment = |wall: Wall| UnixTime::since_unix_epoch(Duration::from_millis(wall.0));
    now.max(moment(identity::not_before(&parsed))).min(moment(identity::not_after(&parsed)))
}

/// Messages for a certificate that is not valid at this time, by this machine's clock or by the
/// other node's.
const EXPIRED: &str = "its certificate has expired";
const NOT_YET: &str = "its certificate is not valid yet: is one of the clocks wrong?";
const OURS_OUT_OF_TIME: &str = "it refuses our certificate: by its clock expired, or not valid yet";

/// Whether a wrong clock may be the cause of an [`super::client::ApiError::Identity`] with this
/// `reason`.
pub fn may_be_the_clock(reason: &str) -> bool {
    [EXPIRED, NOT_YET, OURS_OUT_OF_TIME].contains(&reason)
}

/// The message for a failure that concerns the identity of either side. A retry would not help.
/// None for other failures.
pub(super) fn identity_fault(error: &Error) -> Option<&'static str> {
    use rustls::AlertDescription as Alert;
    Some(match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate belongs to another cluster"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => EXPIRED,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => NOT_YET,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "it is another node than expected"
            }
            CertificateError::Other(OtherError(cause)) if cause.is::<NotTheTokensCa>() => {
                "its CA is not the one that the token names: another cluster, an interception, or a CA that was replaced \
                 since (a new token: remoor token rotate, on a manager)"
            }
            _ => "its certificate is not valid",
        },
        Error::AlertReceived(alert) => match alert {
            Alert::UnknownCA | Alert::BadCertificate | Alert::DecryptError => {
                "it refuses our certificate: it belongs to another cluster"
            }
            Alert::CertificateExpired => OURS_OUT_OF_TIME,
            Alert::CertificateRequired | Alert::CertificateUnknown | Alert::AccessDenied => {
                "it refuses our certificate"
            }
            _ => return None,
        },
        _ => return None,
    })
}

/// Checks that one of the CAs in `ca_pem` signed `cert_pem`. The certificate must be valid now and
/// for this node of this cluster.
pub(super) fn issued_to_node(
    ca_pem: &str,
    cert_pem: &str,
    node: NodeId,
    cluster: &ClusterId,
) -> Result<(), IdentityError> {
    let what = "node certificate";
    let bad = |e: Error| IdentityError::Malformed { what, reason: e.to_string() };
    let mut roots = RootCertStore::empty();
    for ca in identity::certificates("CA certificate", ca_pem)? {
        roots.add(ca).map_err(bad)?;
    }
    let name = ServerName::try_from(node_dns(node, cluster))
        .map_err(|e| IdentityError::Malformed { what, reason: e.to_string() })?;
    let chain = identity::certificates(what, cert_pem)?;
    Trust::Roots(roots).accept(&chain[0], &[], &name, UnixTime::now()).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::AlertDescription;

    #[test]
    fn a_clock_is_named_for_what_is_out_of_its_time_and_for_nothing_else() {
        let of = |error: Error| identity_fault(&error).is_some_and(may_be_the_clock);
        let now = UnixTime::now();
        for why in [
            CertificateError::Expired,
            CertificateError::ExpiredContext { time: now, not_after: now },
            CertificateError::NotValidYet,
            CertificateError::NotValidYetContext { time: now, not_before: now },
        ] {
            assert!(of(Error::InvalidCertificate(why.clone())), "{why:?}");
        }
        assert!(of(Error::AlertReceived(AlertDescription::CertificateExpired)));
        for why in [CertificateError::UnknownIssuer, CertificateError::NotValidForName, CertificateError::Revoked] {
            assert!(!of(Error::InvalidCertificate(why.clone())), "{why:?}");
        }
        assert!(!of(Error::AlertReceived(AlertDescription::UnknownCA)));
        // This message contains the words `is not valid yet`, but its cause is not a wrong clock.
        assert!(!may_be_the_clock("invalid name: expired.example is not valid yet"));
    }
}
