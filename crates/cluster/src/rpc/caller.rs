//! The identity of a caller, which the connection proves, and the names by which a certificate
//! states it.
//!
//! The layers above decide, from the applied inventory, whether the caller was removed, is a
//! manager, or is authorised for its request.

use super::identity::{self, IdentityError};
use super::wire::{ApiFailure, Code};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use remoor_model::{ClusterId, Epoch, NodeId, Wall};
use std::net::SocketAddr;
use x509_parser::der_parser::Oid;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The sender of a request. Every request that a server of this folder passes to a router has its
/// caller as an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A node with a certificate of this cluster that was issued in `epoch`. `key` is the
    /// certificate's key in hex. The certificate is valid from `cert_not_before` to
    /// `cert_not_after`, both included. `replaced` says that the issuing CA was replaced.
    Node { id: NodeId, epoch: Epoch, key: String, cert_not_before: Wall, cert_not_after: Wall, replaced: bool },
    /// A person or program with an operator's certificate of this cluster. The fields have the same
    /// meaning as those of a node.
    Operator { name: String, key: String, cert_not_before: Wall, cert_not_after: Wall, replaced: bool },
    /// A process of this machine that uses the local socket.
    Local { uid: u32 },
    /// A caller without a certificate, for example a machine that wants to join.
    Anonymous,
}

impl Caller {
    /// Reads the identity from a certificate. The handshake has verified the certificate's
    /// signature.
    pub fn from_certificate(der: &[u8], cluster: &ClusterId) -> Result<Self, IdentityError> {
        let bad = |reason: String| IdentityError::Malformed { what: "client certificate", reason };
        let (_, cert) = X509Certificate::from_der(der).map_err(|e| bad(e.to_string()))?;
        let (cert_not_before, cert_not_after) = (identity::not_before(&cert), identity::not_after(&cert));
        let key = hex::encode(&cert.public_key().subject_public_key.data);
        let names = cert.subject_alternative_name().map_err(|e| bad(e.to_string()))?;
        let names = names.map(|n| n.value.general_names.as_slice()).unwrap_or_default();
        let [GeneralName::DNSName(dns)] = names else { return Err(bad("not exactly one DNS name in it".into())) };
        if *dns == operator_dns(cluster) {
            let name = cert.subject().iter_common_name().next().and_then(|n| n.as_str().ok());
            let name = name.ok_or_else(|| bad("operator without a name".into()))?.to_owned();
            return Ok(Self::Operator { name, key, cert_not_before, cert_not_after, replaced: false });
        }
        let id =
            parse_node_dns(dns, cluster).ok_or_else(|| bad(format!("{dns:?} is not a name of cluster {cluster}")))?;
        let unit = cert.subject().iter_organizational_unit().next().and_then(|u| u.as_str().ok());
        let epoch = unit.and_then(parse_epoch_unit).ok_or_else(|| bad("node without an epoch".into()))?;
        Ok(Self::Node { id, epoch, key, cert_not_before, cert_not_after, replaced: false })
    }

    /// The same caller, with the mark that the CA of its certificate was replaced.
    pub(super) fn with_replaced_ca(mut self) -> Self {
        if let Self::Node { replaced, .. } | Self::Operator { replaced, .. } = &mut self {
            *replaced = true;
        }
        self
    }

    /// Whether the CA of the caller's certificate was replaced.
    pub fn has_replaced_ca(&self) -> bool {
        matches!(self, Self::Node { replaced: true, .. } | Self::Operator { replaced: true, .. })
    }

    /// Whether the caller's certificate has expired by `now`, or its CA was replaced. The
    /// certificate may expire while the connection that it opened is still open.
    pub fn is_expired(&self, now: Wall) -> bool {
        match self {
            Self::Node { cert_not_after, replaced, .. } | Self::Operator { cert_not_after, replaced, .. } => {
                *replaced || now > *cert_not_after
            }
            Self::Local { .. } | Self::Anonymous => false,
        }
    }

    /// Whether the caller is a process of the user that runs this daemon. That user has access to
    /// the daemon's keys, and so could do everything anyway.
    pub fn runs_this_daemon(&self) -> bool {
        matches!(self, Self::Local { uid } if *uid == rustix::process::geteuid().as_raw())
    }

    /// Whether the caller's certificate begins after `now`. Then one of the clocks is or was wrong.
    pub fn is_early(&self, now: Wall) -> bool {
        match self {
            Self::Node { cert_not_before, .. } | Self::Operator { cert_not_before, .. } => now < *cert_not_before,
            Self::Local { .. } | Self::Anonymous => false,
        }
    }

    /// Whether the caller may only request a new certificate.
    pub fn may_only_renew(&self, now: Wall) -> bool {
        self.is_expired(now) || self.is_early(now)
    }
}

/// The object identifier of the X.520 attribute `title`.
pub(super) const TITLE: &[u64] = &[2, 5, 4, 12];
/// The title in the certificate of a manager.
pub(super) const MANAGER: &str = "manager";

/// Whether this verified certificate was issued to a node that was a manager when it was issued.
pub fn is_manager_certificate(der: &[u8]) -> bool {
    let Ok((_, cert)) = X509Certificate::from_der(der) else { return false };
    let Ok(title) = Oid::from(TITLE) else { return false };
    cert.subject().iter_by_oid(&title).any(|value| value.as_str() == Ok(MANAGER))
}

/// Whether the first certificate in `pem` was issued to a node that was a manager then.
pub fn shows_manager(pem: &str) -> Result<bool, IdentityError> {
    Ok(identity::certificates("certificate", pem)?.first().is_some_and(|der| is_manager_certificate(der)))
}

/// The epoch of the first certificate in `pem`, which must be a certificate of a node of this
/// cluster.
pub fn certified_epoch(pem: &str, cluster: &ClusterId) -> Result<Epoch, IdentityError> {
    let bad = |reason: &str| IdentityError::Malformed { what: "certificate", reason: reason.to_owned() };
    let chain = identity::certificates("certificate", pem)?;
    match Caller::from_certificate(chain.first().ok_or_else(|| bad("there is no certificate"))?, cluster)? {
        Caller::Node { epoch, .. } => Ok(epoch),
        _ => Err(bad("it is not that of a node")),
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiFailure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiFailure> {
        let missing = || ApiFailure::new(Code::Internal, "the server did not say who is calling");
        parts.extensions.get::<Self>().cloned().ok_or_else(missing)
    }
}

/// The address from which a request came, as an extension. None for the local socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub Option<SocketAddr>);

impl<S: Sync> FromRequestParts<S> for PeerAddr {
    type Rejection = ApiFailure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiFailure> {
        Ok(parts.extensions.get::<Self>().copied().unwrap_or(Self(None)))
    }
}

/// The DNS name in a node's certificate.
pub fn node_dns(node: NodeId, cluster: &ClusterId) -> String {
    format!("node-{node}.{cluster}.remoor")
}

pub(super) fn operator_dns(cluster: &ClusterId) -> String {
    format!("operator.{cluster}.remoor")
}

pub(super) fn epoch_unit(epoch: Epoch) -> String {
    format!("epoch-{epoch}")
}

fn parse_epoch_unit(text: &str) -> Option<Epoch> {
    text.strip_prefix("epoch-")?.parse().ok().map(Epoch)
}

fn parse_node_dns(text: &str, cluster: &ClusterId) -> Option<NodeId> {
    let id = NodeId(text.strip_prefix("node-")?.split_once('.')?.0.parse().ok()?);
    // The id is encoded again and compared, because "+7" and "007" are not valid ids.
    (node_dns(id, cluster) == text).then_some(id)
}

/// Whether a cluster id can be part of a DNS name.
pub(super) fn check_cluster(cluster: &ClusterId) -> Result<(), IdentityError> {
    let id = cluster.as_str();
    let fits = (1..=63).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase() || b == b'-')
        && !id.starts_with('-')
        && !id.ends_with('-');
    let reason = "it must have 1 to 63 characters of a-z, 0-9 and -".into();
    if fits { Ok(()) } else { Err(IdentityError::Malformed { what: "cluster id", reason }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::ca::{ClusterCa, Validity};
    use crate::rpc::identity::{NodeKey, certificates};

    #[test]
    fn certificates_say_who() {
        let cluster = ClusterId::from("c1");
        let ca = ClusterCa::create(&cluster).unwrap();
        let csr = NodeKey::generate().unwrap().csr_pem().unwrap();
        let pem = ca.issue_node(NodeId(7), &"w1".into(), Epoch(3), &csr, Validity::days_from_now(1)).unwrap();
        let der = &certificates("certificate", &pem).unwrap()[0];
        let caller = Caller::from_certificate(der, &cluster).unwrap();
        let Caller::Node { id: NodeId(7), epoch: Epoch(3), cert_not_before, cert_not_after, .. } = caller else {
            panic!("{caller:?}")
        };
        assert!(!caller.is_early(cert_not_before) && !caller.may_only_renew(cert_not_before));
        let before = Wall(cert_not_before.0 - 1);
        assert!(caller.is_early(before) && caller.may_only_renew(before) && !caller.is_expired(before));
        assert!(!caller.is_expired(cert_not_after) && caller.is_expired(cert_not_after.plus_ms(1)));
        assert!(Caller::from_certificate(der, &"c2".into()).is_err());
        assert!(!is_manager_certificate(der));
        let own = ca.issue_as(true, NodeId(7), &"w1".into(), Epoch(3), &csr, Validity::days_from_now(1)).unwrap();
        let own = &certificates("certificate", &own).unwrap()[0];
        assert!(is_manager_certificate(own) && !is_manager_certificate(b"no certificate"));
        let same = Caller::from_certificate(own, &cluster).unwrap();
        assert!(
            matches!(same, Caller::Node { id: NodeId(7), epoch: Epoch(3), .. }),
            "an earlier program reads the same: {same:?}"
        );

        let pem = ca.issue_operator("zoë", Validity::days_from_now(1)).unwrap().cert_pem;
        let der = &certificates("certificate", &pem).unwrap()[0];
        let caller = Caller::from_certificate(der, &cluster).unwrap();
        assert!(matches!(&caller, Caller::Operator { name, .. } if name == "zoë"), "{caller:?}");

        let der = &certificates("certificate", ca.cert_pem()).unwrap()[0];
        assert!(Caller::from_certificate(der, &cluster).is_err(), "the CA itself is not a caller");
    }

    #[test]
    fn node_names_are_read_strictly() {
        let cluster = ClusterId::from("c1");
        assert_eq!(parse_node_dns("node-7.c1.remoor", &cluster), Some(NodeId(7)));
        for bad in
            ["node-07.c1.remoor", "node-+7.c1.remoor", "node-7.c2.remoor", "node-7.c1.remoor.x", "node-.c1.remoor"]
        {
            assert_eq!(parse_node_dns(bad, &cluster), None, "{bad}");
        }
    }
}
